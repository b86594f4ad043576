"""docs/frameworks/agno.md is true: its agents and its client run, and Agno's own client calls the agents."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest

from tests.frameworks.guide import block_of
from tests.frameworks.impostors import KINDS, UNCHANGED, impostors
from tests.frameworks.page_programs import prints, run_client
from tests.frameworks.parties import FOLDER, Parties, challenged_resource, parties
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import SERVERS, free_port, serving

ENVIRONMENT: Final = "agno-3.1.10"
PAGE: Final = "agno"
UNSUPPORTED_OPERATION: Final = -32004
ANN: Final = "ann@api-keys"
AGENTS: Final = ("billing", "ops")
CALLS: Final = {True: "message:stream", False: "message:send"}
"""What Agno's client calls, with and without a stream."""


def other(name: str) -> str:
    return AGENTS[1 - AGENTS.index(name)]


class Seen(NamedTuple):
    origin: str
    of: Parties
    outcomes: dict[tuple[str, str, bool], dict[str, Any]]
    """What came of the calls of Agno's own client: by caller, agent, and whether it asked for a stream."""

    def url(self, name: str) -> str:
        return f"{self.origin}/a2a/agents/{name}"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    urls = {name: f"{origin}/a2a/agents/{name}" for name in AGENTS}
    with parties(tmp_path_factory.mktemp("parties")) as of:
        keys = {name: of.key(name) for name in AGENTS}
        tokens = {name: of.issuer.token(audience=urls[name], scope=" ".join(AGENTS)) for name in AGENTS}
        cases: dict[tuple[str, str, bool], dict[str, Any]] = {}
        for name, url in urls.items():
            callers: dict[str, dict[str, Any]] = {
                "key": {"headers": {"X-API-Key": keys[name]}},
                "token": {"headers": {"Authorization": f"Bearer {tokens[name]}"}},
                "nothing": {},
                "bad key": {"headers": {"X-API-Key": "bad"}},
                "key for the other agent": {"headers": {"X-API-Key": keys[other(name)]}},
                "token for the other agent": {"headers": {"Authorization": f"Bearer {tokens[other(name)]}"}},
                "verifying": {"keys": of.keys, "key": keys[name]},
            }
            cases |= {
                (caller, name, streaming): {"url": url, "streaming": streaming, **case}
                for caller, case in callers.items()
                for streaming in CALLS
            }
        with agents(of, port, origin):
            yield Seen(origin, of, dict(zip(cases, called(of, [*cases.values()]), strict=True)))


@contextmanager
def agents(of: Parties, port: int, url: str, *options: str) -> Iterator[None]:
    """The page's agents are served at that port, as those at that URL, while the block runs."""
    (of.folder / "agent.py").write_text(block_of(PAGE, 0), encoding="utf-8")
    shutil.copyfile(FOLDER / "agno_model.py", of.folder / "model.py")
    command = [str(python_of(ENVIRONMENT)), "-m", *SERVERS["uvicorn-h11"]("agent:app", port), *options]
    with serving(command, f"http://127.0.0.1:{port}", of.settings(OS_URL=url, AGNO_TELEMETRY="false"), of.folder):
        yield


def called(of: Parties, cases: list[dict[str, Any]]) -> Any:
    """What came of the calls of Agno's own client."""
    return answer_of(ENVIRONMENT, str(FOLDER / "agno_client.py"), cases, **of.settings())


@pytest.mark.parametrize("streaming", CALLS)
@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("caller", ["key", "token"])
def test_callers_with_a_credential_for_the_agent_are_answered_and_known(
    seen: Seen, caller: str, name: str, streaming: bool
) -> None:
    user = f"ann@{seen.of.issuer.url}" if caller == "token" else ANN
    assert seen.outcomes[caller, name, streaming] == {
        "card": name,
        "answer": f"invoices of {user}",
        "requests": [
            ["GET", f"/a2a/agents/{name}/.well-known/agent-card.json", 200],
            ["POST", f"/a2a/agents/{name}/v1/{CALLS[streaming]}", 200],
        ],
    }


@pytest.mark.parametrize("streaming", CALLS)
@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize(
    ("caller", "status"),
    [("nothing", 401), ("bad key", 401), ("key for the other agent", 403), ("token for the other agent", 401)],
)
def test_other_callers_are_rejected(seen: Seen, caller: str, status: int, name: str, streaming: bool) -> None:
    outcome = seen.outcomes[caller, name, streaming]
    assert outcome["requests"][1:] == [["POST", f"/a2a/agents/{name}/v1/{CALLS[streaming]}", status]]
    assert f"{status}" in outcome["error"]


@pytest.mark.parametrize("name", AGENTS)
def test_a_verifying_client_serves_agnos_own_client_for_streams(seen: Seen, name: str) -> None:
    outcome = seen.outcomes["verifying", name, True]
    assert (outcome.get("answer"), outcome.get("card")) == (f"invoices of {ANN}", name), outcome


@pytest.mark.parametrize("name", AGENTS)
def test_a_verifying_client_sends_nothing_to_a_path_that_the_card_does_not_name(seen: Seen, name: str) -> None:
    outcome = seen.outcomes["verifying", name, False]
    assert "UnverifiedCardError" in outcome["error"]
    assert {method for method, _path, _status in outcome["requests"]} == {"GET"}


@pytest.mark.parametrize("name", AGENTS)
def test_each_agent_has_a_signed_card_that_says_what_is_enforced(seen: Seen, name: str) -> None:
    card = seen.of.fetch(seen.url(name)).card
    assert (card["name"], card["url"]) == (name, f"{seen.url(name)}/v1/message:stream")
    assert card["security"] == [{"key": [name]}, {"login": [name]}]
    assert card["securitySchemes"].keys() == {"key", "login"}


@pytest.mark.parametrize("name", AGENTS)
def test_the_extended_card_is_for_callers_and_there_is_none(seen: Seen, name: str) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard"}
    url, key = f"{seen.url(name)}/v1/message:stream", {"X-API-Key": seen.of.key(name)}
    answers = [httpx.post(url, json=call, headers=headers, trust_env=False, timeout=60) for headers in ({}, key)]
    assert [answer.status_code for answer in answers] == [401, 200]
    assert answers[1].json()["error"]["code"] == UNSUPPORTED_OPERATION


@pytest.mark.parametrize("path", ["message:send", "message:stream", "tasks:get", "tasks:cancel"])
@pytest.mark.parametrize("name", AGENTS)
def test_the_metadata_that_a_challenge_names_is_there(seen: Seen, name: str, path: str) -> None:
    assert challenged_resource(f"{seen.url(name)}/v1/{path}") == seen.url(name)


def test_a_run_belongs_to_its_caller_at_every_agent(seen: Seen) -> None:
    def called(name: str, path: str, params: dict[str, Any], **headers: str) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": "1", "method": path.replace(":", "/"), "params": params}
        return httpx.post(f"{seen.url(name)}/v1/{path}", json=body, headers=headers, trust_env=False, timeout=60)

    message = {"messageId": "1", "role": "user", "contextId": "anns", "parts": [{"kind": "text", "text": "hi"}]}
    ann = {"X-API-Key": seen.of.key("billing", owner="ann")}
    run = called("billing", "message:send", {"message": message}, **ann, **{"X-User-ID": "bob"}).json()["result"]
    assert "ann" in run["history"][-1]["metadata"]["userId"]
    task = {"id": run["id"], "contextId": "anns"}
    assert called("billing", "tasks:get", task, **ann).json()["result"]["id"] == run["id"]
    bob = {"X-API-Key": seen.of.key(*AGENTS, owner="bob"), "X-User-ID": "ann"}
    for name in AGENTS:
        assert called(name, "tasks:get", task, **bob).status_code == 404
        assert called(name, "tasks:cancel", task, **bob).status_code == 404
    assert called("billing", "message:send", {"message": message}, **bob).status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/agents/billing/runs"),  # the same agent, by the framework's own interface
        ("GET", "/sessions"),
        ("GET", "/config"),
        ("GET", "/openapi.json"),
        ("POST", "/a2a/agents/unknown/v1/message:send"),
        ("POST", "/a2a/teams/billing/v1/message:send"),
        ("GET", "/.well-known/agent-card.json"),
    ],
)
def test_what_belongs_to_no_agent_is_not_there_whoever_asks(seen: Seen, method: str, path: str) -> None:
    for headers in ({}, {"X-API-Key": seen.of.key(*AGENTS)}):
        assert httpx.request(method, seen.origin + path, headers=headers, trust_env=False).status_code == 404


def test_the_card_is_that_of_the_url_whatever_host_a_request_names(seen: Seen) -> None:
    place = f"{seen.url('ops')}/.well-known/agent-card.json"
    card = httpx.get(place, headers={"Host": "evil.example"}, trust_env=False, timeout=60).json()
    assert card["url"] == f"{seen.url('ops')}/v1/message:stream"


def test_paths_that_are_named_are_open(seen: Seen) -> None:
    response = httpx.get(f"{seen.origin}/health", trust_env=False, timeout=60)
    assert (response.status_code, response.json()["status"]) == (200, "ok")


def test_behind_a_root_path_the_cards_name_the_public_urls(tmp_path: Path) -> None:
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    message = {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
    call = {"jsonrpc": "2.0", "id": "1", "method": "message/stream", "params": {"message": message}}
    with parties(tmp_path) as of, agents(of, port, f"{origin}/team", "--root-path", "/team"):
        # a proxy takes "/team" off, and the server tells the application so
        card = httpx.get(f"{origin}/a2a/agents/ops/.well-known/agent-card.json", trust_env=False, timeout=60).json()
        assert card["url"] == f"{origin}/team/a2a/agents/ops/v1/message:stream"
        for name, status in (("ops", 200), ("billing", 403)):
            key = {"X-API-Key": of.key(name)}
            url = f"{origin}/a2a/agents/ops/v1/message:stream"
            assert httpx.post(url, json=call, headers=key, trust_env=False, timeout=60).status_code == status
        assert challenged_resource(f"{origin}/a2a/agents/ops/v1/message:send") == f"{origin}/team/a2a/agents/ops"


def test_the_client_of_the_page_is_answered(seen: Seen) -> None:
    done = run_client(ENVIRONMENT, PAGE, 1, seen.of, seen.url("billing"), "billing")
    assert (done.returncode, done.stdout.strip()) == (0, f"invoices of {ANN}"), done.stderr
    assert prints(PAGE, done.stdout)


@pytest.mark.parametrize("kind", [*KINDS, UNCHANGED])
def test_the_client_of_the_page_sends_nothing_to_an_impostor(seen: Seen, kind: str) -> None:
    with impostors(seen.url("billing")) as found:
        done = run_client(ENVIRONMENT, PAGE, 1, seen.of, found[kind].url)
        assert done.returncode == 1
        assert KINDS.get(kind, "") in done.stderr
        assert (found[kind].stolen, found[kind].calls) == ([], [])


@pytest.mark.parametrize("kind", KINDS)
def test_agno_itself_verifies_nothing(seen: Seen, kind: str) -> None:
    with impostors(seen.url("billing")) as found:
        called(seen.of, [{"url": found[kind].url, "streaming": True, "headers": {"X-API-Key": "secret"}}])
        assert set(found[kind].stolen) == {"secret"}
        assert found[kind].calls == ["/a2a/agents/billing/v1/message:stream"]
