"""Every operation of the SDKs' clients reaches the agent that a verified card names, as it does without the rule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust import publish_jwks
from tests.base.net.test_fetcher import Authority
from tests.client.agents import NEW, OWNER, Agent, Asked, Page, card_of, serving_agent, signed
from tests.servers.environments import answer_of
from tests.servers.serving import ROOT

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"


class Speaker(NamedTuple):
    """One way in which one SDK speaks, in the environment where it is."""

    version: str
    binding: str
    tenant: str = ""


SPEAKERS = [
    Speaker("1.3.0", "JSONRPC"),
    Speaker("1.3.0", "HTTP+JSON"),
    Speaker("1.3.0", "HTTP+JSON", "bank"),
    Speaker("0.3.26", "JSONRPC"),
    Speaker("0.3.26", "HTTP+JSON"),
]
ENVIRONMENTS = {"1.3.0": "server-1.3.0", "0.3.26": "server-0.3.26"}
SCRIPTS = {"1.3.0": "sdk_operations_1_3.py", "0.3.26": "sdk_operations_0_3.py"}


class Seen(NamedTuple):
    outcomes: dict[str, str]
    calls: list[tuple[str, str, str, str]]
    """Method, path, method of JSON-RPC and key of what reached the agent, but for the GETs of cards."""


def card_for(version: str, origin: str) -> dict[str, Any]:
    able = {"streaming": True, "pushNotifications": True}
    if version == "1.3.0":
        return card_of(origin, capabilities={**able, "extendedAgentCard": True})
    return {
        "name": "Ledger",
        "description": "Books invoices.",
        "version": "1.0.0",
        "protocolVersion": "0.3.0",
        "url": f"{origin}/rpc",
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [{"url": f"{origin}/rest", "transport": "HTTP+JSON"}],
        "supportsAuthenticatedExtendedCard": True,
        "capabilities": able,
        "security": [],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }


def message(version: str, binding: str) -> dict[str, Any]:
    if version == "1.3.0":
        return {"message": {"messageId": "2", "role": "ROLE_AGENT", "parts": [{"text": "hello"}]}}
    if binding == "HTTP+JSON":  # the JSON of its protobuf
        return {"message": {"messageId": "2", "role": "ROLE_AGENT", "content": [{"text": "hello"}]}}
    return {"kind": "message", "messageId": "2", "role": "agent", "parts": [{"kind": "text", "text": "hello"}]}


def serve(agent: Agent, speaker: Speaker) -> None:
    """The agent answers messages, streams and cards; every other operation is an error."""
    origin = agent.origin(HOST)
    card = card_for(speaker.version, origin)
    extended = signed({**card, "description": "More."})

    def event(result: dict[str, Any]) -> Page:
        body = b"data: %b\n\n" % json.dumps(result).encode()
        return Page(body=body, headers={"Content-Type": "text/event-stream"})

    def rpc(asked: Asked) -> Page:
        call = json.loads(asked.body)
        name = call["method"].casefold()
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": call["id"]}
        if "extended" in name:
            return Page(body=json.dumps({**answer, "result": json.loads(extended)}).encode())
        said = {**answer, "result": message(speaker.version, speaker.binding)}
        if "stream" in name or "subscribe" in name:
            return event(said)
        failed = {**answer, "error": {"code": -32001, "message": "Task not found"}}
        return Page(body=json.dumps(said if "send" in name else failed).encode())

    before = "/rest" if speaker.version == "1.3.0" else "/rest/v1"
    base = f"{before}/{speaker.tenant}" if speaker.tenant else before
    said = message(speaker.version, speaker.binding)
    agent.pages = {
        NEW: signed(card),
        "/rpc": rpc,
        f"{base}/message:send": json.dumps(said).encode(),
        f"{base}/message:stream": lambda _: event(said),
        f"{base}/tasks/t-1:subscribe": lambda _: event(said),
        f"{base}/extendedAgentCard": extended,
        f"{base}/card": extended,
    }


pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=SCRIPTS)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[Speaker, bool], Seen]]:
    """What every speaker of one SDK comes to, with the rule and without it; one process of that SDK runs them all."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    cases = [(each, strict) for each in SPEAKERS if each.version == request.param for strict in (True, False)]
    with ExitStack() as stack:
        agents = [stack.enter_context(serving_agent(authority.server(HOST))) for _ in cases]
        for agent, (speaker, _) in zip(agents, cases, strict=True):
            serve(agent, speaker)
        questions = [
            {
                "url": agent.origin(HOST),
                "host": HOST,
                "binding": speaker.binding,
                "tenant": speaker.tenant,
                "strict": strict,
                "keys": publish_jwks([OWNER.public_key]),
                "ca": authority.certificate.public_bytes(Encoding.PEM).decode(),
            }
            for agent, (speaker, strict) in zip(agents, cases, strict=True)
        ]
        script = str(HERE / SCRIPTS[request.param])
        outcomes = answer_of(ENVIRONMENTS[request.param], script, questions, PYTHONPATH=str(ROOT))
        yield {
            case: Seen(outcome, calls_of(agent)) for case, outcome, agent in zip(cases, outcomes, agents, strict=True)
        }


def calls_of(agent: Agent) -> list[tuple[str, str, str, str]]:
    return [
        (asked.method, asked.path, method_in(asked), asked.headers.get("x-api-key", ""))
        for asked in agent.asked
        if "/.well-known/" not in asked.path
    ]


def method_in(asked: Asked) -> str:
    return str(json.loads(asked.body)["method"]) if asked.path == "/rpc" else ""


def test_every_operation_reaches_the_agent_as_it_does_where_anything_passes(
    seen: dict[tuple[Speaker, bool], Seen],
) -> None:
    for speaker, _ in seen:
        strict, careless = seen[speaker, True], seen[speaker, False]
        assert strict == careless, speaker
        assert {key for *_, key in strict.calls} == {"secret-key"}
        # 0.3.26 has no list of tasks and of configurations, and does not delete these.
        assert len(strict.calls) == len(strict.outcomes) == (11 if speaker.version == "1.3.0" else 8)
        assert (strict.outcomes["send"], strict.outcomes["stream"]) == ("hello", "hello")
        assert strict.outcomes["extended card"] == "AgentCard"
        assert not any("Unverified" in outcome for outcome in strict.outcomes.values())
