"""Two agents in the application of ``adk api_server --a2a`` behind ``protect_agents``, with rules of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import httpx
import pytest

from tests.frameworks.parties import FOLDER, Parties, challenged_resource, parties
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import SERVERS, free_port, serving

ENVIRONMENT: Final = "google-adk-2.13.0"
AGENTS: Final = ("billing", "ops")
TASK_NOT_FOUND: Final = -32001


def other(name: str) -> str:
    return AGENTS[1 - AGENTS.index(name)]


def card_of(name: str, url: str) -> dict[str, Any]:
    """The card that the developer of an agent writes, without security."""
    return {
        "name": name,
        "description": "Greets.",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "greet", "name": "Greet", "description": "Greets.", "tags": ["greeting"]}],
    }


class Seen(NamedTuple):
    origin: str
    of: Parties
    outcomes: dict[tuple[str, str], dict[str, Any]]
    """What came of the calls of ADK's own client, by caller and agent."""

    def url(self, name: str) -> str:
        return f"{self.origin}/a2a/{name}"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    urls = {name: f"{origin}/a2a/{name}" for name in AGENTS}
    folder = tmp_path_factory.mktemp("agents")
    for name, url in urls.items():
        (folder / name).mkdir()
        (folder / name / "agent.json").write_text(json.dumps(card_of(name, url)))
    with parties(tmp_path_factory.mktemp("parties")) as of:
        keys = {name: of.key(name) for name in AGENTS}
        tokens = {name: of.issuer.token(audience=urls[name], scope=" ".join(AGENTS)) for name in AGENTS}
        cases: dict[tuple[str, str], dict[str, Any]] = {}
        for name, url in urls.items():
            headers = {
                "key": {"X-API-Key": keys[name]},
                "token": {"Authorization": f"Bearer {tokens[name]}"},
                "nothing": {},
                "key for the other agent": {"X-API-Key": keys[other(name)]},
                "token for the other agent": {"Authorization": f"Bearer {tokens[other(name)]}"},
            }
            called: dict[str, Any] = {"url": url, "streaming": False}
            cases |= {(caller, name): {**called, "headers": each} for caller, each in headers.items()}
            cases["verifying", name] = {**called, "keys": of.keys, "key": keys[name]}
        settings = of.settings(ORIGIN=origin, AGENTS=str(folder))
        command = [str(python_of(ENVIRONMENT)), "-m", *SERVERS["uvicorn-h11"]("adk_agents:app", port)]
        with serving(command, origin, settings, FOLDER):
            answers = answer_of(ENVIRONMENT, str(FOLDER / "adk_client.py"), [*cases.values()], **of.settings())
            yield Seen(origin, of, dict(zip(cases, answers, strict=True)))


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("caller", ["verifying", "key", "token"])
def test_callers_with_a_credential_for_the_agent_are_answered(seen: Seen, caller: str, name: str) -> None:
    outcome = seen.outcomes[caller, name]
    assert outcome.get("answer") == f"hello from {name}", outcome
    assert outcome["requests"][-1] == ["POST", f"/a2a/{name}", 200]


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize(
    ("caller", "status"), [("nothing", 401), ("key for the other agent", 403), ("token for the other agent", 401)]
)
def test_other_callers_are_rejected(seen: Seen, caller: str, status: int, name: str) -> None:
    outcome = seen.outcomes[caller, name]
    assert outcome["requests"][-1] == ["POST", f"/a2a/{name}", status]
    assert f"HTTP Error {status}" in outcome["error"]


@pytest.mark.parametrize("name", AGENTS)
def test_each_agent_has_a_signed_card_that_says_what_is_enforced(seen: Seen, name: str) -> None:
    card = dict(seen.of.fetch(seen.url(name)).card)
    del card["securitySchemes"]
    demanded = [{"schemes": {scheme: {"list": [name]}}} for scheme in ("key", "login")]
    assert card == {**card_of(name, seen.url(name)), "securityRequirements": demanded}


@pytest.mark.parametrize("name", AGENTS)
def test_the_metadata_that_a_challenge_names_is_there(seen: Seen, name: str) -> None:
    assert challenged_resource(seen.url(name)) == seen.url(name)


def test_a_task_belongs_to_its_caller_at_every_agent(seen: Seen) -> None:
    def called(name: str, method: str, params: dict[str, Any], key: str) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"A2A-Version": "1.0", "X-API-Key": key}
        return httpx.post(seen.url(name), json=body, headers=headers, trust_env=False, timeout=60).json()

    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    ann, bob = (seen.of.key(*AGENTS, owner=owner) for owner in ("ann", "bob"))
    task = called("billing", "SendMessage", {"message": message}, ann)["result"]["task"]
    assert "ann" in task["metadata"]["adk_user_id"]
    assert called("billing", "GetTask", {"id": task["id"]}, ann)["result"]["id"] == task["id"]
    for name in AGENTS:
        assert called(name, "GetTask", {"id": task["id"]}, bob)["error"]["code"] == TASK_NOT_FOUND


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/run"),  # the same agents, by the framework's own interface
        ("POST", "/run_sse"),
        ("GET", "/list-apps"),
        ("POST", "/apps/billing/users/ann/sessions"),
        ("GET", "/openapi.json"),
        ("POST", "/a2a/unknown"),
        ("GET", "/.well-known/agent-card.json"),
    ],
)
def test_what_belongs_to_no_agent_is_not_there_whoever_asks(seen: Seen, method: str, path: str) -> None:
    for headers in ({}, {"X-API-Key": seen.of.key(*AGENTS)}):
        assert httpx.request(method, seen.origin + path, headers=headers, trust_env=False).status_code == 404


def test_paths_that_are_named_are_open(seen: Seen) -> None:
    assert httpx.get(f"{seen.origin}/health", trust_env=False, timeout=60).status_code == 200
