"""The key of a program on fasta2a or BeeAI, which fetch the card by themselves, does not go to an impostor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust import publish_jwks
from tests.base.net.test_fetcher import Authority
from tests.client.agents import NEW, OWNER, Agent, Asked, Page, card_of, serving_agent, signed
from tests.servers.environments import answer_of
from tests.servers.serving import ROOT

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).resolve().parent / "framework_clients.py"
AGENT, IMPOSTOR = "127.0.0.1", "localhost"


class Case(NamedTuple):
    program: str
    host: str
    strict: bool


CASES = [
    Case(program, host, strict)
    for program in ("fasta2a", "BeeAI")
    for host, strict in ((AGENT, True), (IMPOSTOR, True), (IMPOSTOR, False))
]


class Seen(NamedTuple):
    """What the program came to, and which requests for anything but a card reached the server."""

    answer: str | None
    errors: list[str]
    calls: list[Asked]
    cards: list[Asked]


def card_for(program: str, origin: str, base: str) -> dict[str, Any]:
    """fasta2a reads cards of 1.0 without the requirements of others, and BeeAI's a2a-sdk those of 0.3."""
    if program == "fasta2a":
        interface = {"url": f"{origin}{base}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        card = card_of(origin, supportedInterfaces=[interface], capabilities={}, skills=[])
        return {name: value for name, value in card.items() if not name.startswith("security")}
    return {
        "name": "Ledger",
        "description": "Books invoices.",
        "version": "1.0.0",
        "protocolVersion": "0.3.0",
        "url": f"{origin}{base}",
        "preferredTransport": "JSONRPC",
        "capabilities": {"streaming": False},
        "security": [],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "ask", "name": "Ask", "description": "Answers.", "tags": ["ledger"]}],
    }


def answer(asked: Asked) -> Page:
    """A message, in the words of each generation."""
    said: dict[str, Any] = {"kind": "message", "messageId": "2", "parts": [{"kind": "text", "text": "hello"}]}
    said["role"] = "agent"
    result = {"message": said} if asked.path.startswith("/fasta2a") else said
    return Page(body=json.dumps({"jsonrpc": "2.0", "id": json.loads(asked.body)["id"], "result": result}).encode())


def add_case(agent: Agent, index: int, case: Case) -> str:
    """The server is the agent of that case below a path of its own; its URL."""
    origin, base = agent.origin(case.host), f"/{case.program.lower()}-{index}"
    card = card_for(case.program, origin, base)
    agent.pages[base + NEW] = signed(card) if case.host == AGENT else json.dumps(card).encode()
    agent.pages[base] = agent.pages[f"{base}/"] = answer
    return origin + base


pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Case, Seen]]:
    """What every case comes to; one process runs them, one after the other."""
    folder = tmp_path_factory.mktemp("authority")
    authority = Authority(folder)
    (folder / "ca.pem").write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    with serving_agent(authority.server(AGENT, IMPOSTOR)) as agent:
        urls = [add_case(agent, index, case) for index, case in enumerate(CASES)]
        questions = [
            {
                "program": case.program,
                "url": url,
                "strict": case.strict,
                "host": AGENT,
                "keys": publish_jwks([OWNER.public_key]),
            }
            for case, url in zip(CASES, urls, strict=True)
        ]
        settings = {"PYTHONPATH": str(ROOT), "SSL_CERT_FILE": str(folder / "ca.pem"), "BEEAI_LOG_LEVEL": "ERROR"}
        outcomes = answer_of("frameworks-2026.11", str(SCRIPT), questions, **settings)
        found = {}
        for case, url, outcome in zip(CASES, urls, outcomes, strict=True):
            asked = [each for each in agent.asked if each.path.startswith("/" + url.rpartition("/")[2])]
            calls = [each for each in asked if "/.well-known/" not in each.path]
            found[case] = Seen(outcome["answer"], outcome["errors"], calls, [a for a in asked if a not in calls])
        yield found


@pytest.mark.parametrize("program", ["fasta2a", "BeeAI"])
def test_the_agent_is_called_when_its_card_is_verified(seen: dict[Case, Seen], program: str) -> None:
    found = seen[Case(program, AGENT, strict=True)]
    assert (found.answer, found.errors) == ("hello", [])
    assert [asked.headers.get("x-api-key") for asked in found.calls] == ["secret-key"]
    assert not any("x-api-key" in asked.headers for asked in found.cards)


@pytest.mark.parametrize("program", ["fasta2a", "BeeAI"])
def test_the_key_does_not_go_to_an_impostor(seen: dict[Case, Seen], program: str) -> None:
    found = seen[Case(program, IMPOSTOR, strict=True)]
    assert found.answer is None
    assert "UnverifiedCardError" in found.errors
    assert found.errors[-1] == "UnsignedCardError"
    assert found.calls == []
    assert not any("x-api-key" in asked.headers for asked in found.cards)


@pytest.mark.parametrize("program", ["fasta2a", "BeeAI"])
def test_control_the_same_program_sends_it_where_anything_passes(seen: dict[Case, Seen], program: str) -> None:
    found = seen[Case(program, IMPOSTOR, strict=False)]
    assert (found.answer, found.errors) == ("hello", [])
    assert [asked.headers.get("x-api-key") for asked in found.calls] == ["secret-key"]
