"""The agent of the a2a project's sample, which has an extended card of its own, behind three more lines."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest

from a2a_trust import SqliteApiKeys, generate_signer, publish_jwks
from a2a_trust.keys.files import save_private_key
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import free_port, serving
from tests.serving_cards.conftest import verified

HERE: Final = Path(__file__).resolve().parent
AGENT: Final = HERE / "hello_world"
#: The three lines, each with the line of the agent that it stands before.
LINES: Final = {
    "import uvicorn\n": "import a2a_trust as trust\n",
    "    uvicorn.run(": """\
    security = trust.CardSecurity(schemes={"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}}, requirements=[{"schemes": {"key": {"list": []}}}])
    app = trust.protect(app, card=trust.FromApplication(), extended_card=trust.ExtendedCard(trust.FromApplication()), security=security, verifiers={"key": trust.ApiKeyVerifier(trust.SqliteApiKeys("keys.db"))}, serving=trust.CardServing(signer=trust.load_private_key("card.key"), companion=True))
""",  # noqa: E501  as it stands in a program
}


class Agents(NamedTuple):
    """Where the agent is as it was, and where it is behind the three lines, with a key for a caller and the JWKS."""

    bare: str
    protected: str
    key: str
    keys: list[dict[str, Any]]


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    folder = tmp_path_factory.mktemp("hello_world")
    program = (AGENT / "__main__.py").read_text(encoding="utf-8")
    for line, added in LINES.items():
        assert program.count(line) == 1
        program = program.replace(line, added + line)
    (folder / "__main__.py").write_text(program, encoding="utf-8")
    (folder / "agent_executor.py").write_bytes((AGENT / "agent_executor.py").read_bytes())
    signer = generate_signer("ES256")
    save_private_key(folder / "card.key", signer)
    key = SqliteApiKeys(folder / "keys.db", create=True).create(owner="ann").text
    python = str(python_of("server-1.3.0"))
    ports = [free_port(), free_port()]
    bare, protected = (f"http://127.0.0.1:{port}" for port in ports)
    with (
        serving([python, "__main__.py"], bare, {"PORT": str(ports[0])}, AGENT),
        serving([python, "__main__.py"], protected, {"PORT": str(ports[1])}, folder),
    ):
        yield Agents(bare, protected, key, publish_jwks([signer.public_key])["keys"])


@pytest.fixture(scope="module")
def answers(agents: Agents) -> dict[str, dict[str, Any]]:
    """What the SDK's own client gets, by its caller."""
    cases = {
        "anybody, of the bare agent": (agents.bare, None),
        "the caller": (agents.protected, agents.key),
        "a stranger": (agents.protected, None),
        "a stranger with a key": (agents.protected, "a2a_guessed"),
    }
    questions = [{"url": url, "key": key, "keys": agents.keys} for url, key in cases.values()]
    found = answer_of("python-1.3.0", str(HERE / "sdk_hello_world_client.py"), questions)
    return dict(zip(cases, found, strict=True))


def test_the_client_of_the_sdk_gets_what_the_bare_agent_answers(answers: dict[str, dict[str, Any]]) -> None:
    found, bare = answers["the caller"], answers["anybody, of the bare agent"]
    for name, count in (("sent", 1), ("streamed", 4), ("sent by the extended card", 1)):
        assert len(found[name]) == count
        assert [without_ids(event) for event in found[name]] == [without_ids(event) for event in bare[name]]
    assert "Hello, you said: hi" in json.dumps(found["sent"])


def without_ids(value: Any) -> Any:
    """The event without what every run makes anew."""
    if isinstance(value, list):
        return [without_ids(each) for each in value]
    if not isinstance(value, dict):
        return value
    made = ("id", "taskId", "contextId", "messageId", "artifactId", "timestamp")
    return {name: without_ids(each) for name, each in value.items() if name not in made}


def test_the_cards_are_those_of_the_application_and_have_our_signatures_only(
    agents: Agents, answers: dict[str, dict[str, Any]]
) -> None:
    found, bare = answers["the caller"], answers["anybody, of the bare agent"]
    (key,) = agents.keys
    for which in ("public", "extended"):
        card = found[which]["card"]
        assert found[which]["refused"] is None  # in the eyes of the SDK
        headers = [json.loads(base64.urlsafe_b64decode(each["protected"] + "==")) for each in card.pop("signatures")]
        assert {header["kid"] for header in headers} == {key["kid"]}
        assert card.pop("securitySchemes") == {
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
        }
        assert card.pop("securityRequirements") == [{"schemes": {"key": {}}}]
        (interface,) = card.pop("supportedInterfaces")
        assert (interface["url"], interface["protocolBinding"]) == (agents.protected, "JSONRPC")
        assert card == {name: each for name, each in bare[which]["card"].items() if name != "supportedInterfaces"}
    assert answers["anybody, of the bare agent"]["public"]["refused"] == "NoSignatureError"


def test_both_cards_verify_here_byte_for_byte(agents: Agents) -> None:
    key = {"X-API-Key": agents.key, "A2A-Version": "1.0"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}}
    jwks = json.dumps({"keys": agents.keys}).encode()
    public = httpx.get(f"{agents.protected}/.well-known/agent-card.json", timeout=60).raise_for_status().content
    answer = httpx.post(agents.protected, json=call, headers=key, timeout=60).raise_for_status().text
    extended = answer.partition('"result":')[2].removesuffix("}").encode()
    assert verified(public, jwks, agents.protected)["description"] == "The public card."
    assert verified(extended, jwks, agents.protected)["description"] == "The extended card."


@pytest.mark.parametrize("caller", ["a stranger", "a stranger with a key"])
def test_strangers_get_the_public_card_and_nothing_else(answers: dict[str, dict[str, Any]], caller: str) -> None:
    found = answers[caller]
    assert found["public"]["refused"] is None
    assert {name: answer for name, answer in found.items() if name != "public"} == dict.fromkeys(
        ("sent", "streamed", "extended", "sent by the extended card"), 401
    )
