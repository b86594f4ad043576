"""docs/frameworks/agentstack.md is true: its agent and its client run, at both interfaces.

The calls are those of the a2a-sdk 0.3.24 that agentstack comes with, and as streams: without one, this server and that
SDK give no answer before Python 3.13, protected or not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import httpx
import pytest

from tests.frameworks.guide import block_of
from tests.frameworks.impostors import KINDS, UNCHANGED, impostors
from tests.frameworks.page_programs import prints, run_client
from tests.frameworks.parties import BAD, Parties, callers, challenged_resource, parties
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import SERVERS, free_port, serving

ENVIRONMENT: Final = "agentstack-0.7.1"
PAGE: Final = "agentstack"
PATHS: Final = {"JSONRPC": "/jsonrpc/", "HTTP+JSON": "/v1/message:stream"}
ANN: Final = "ann@api-keys"
TASK_NOT_FOUND: Final = -32001
UNSUPPORTED_OPERATION: Final = -32004


class Seen(NamedTuple):
    origin: str
    of: Parties
    outcomes: dict[tuple[str, str], dict[str, Any]]
    """What came of the calls of the SDK's client, by binding and caller."""

    def call(self, method: str, params: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return httpx.post(f"{self.origin}/jsonrpc/", json=body, headers=headers, trust_env=False, timeout=60)

    def stream(self, headers: dict[str, str], **more: str) -> list[dict[str, Any]]:
        """The results, or the errors, that come for a message."""
        message = {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "hi"}], **more}
        lines = self.call("message/stream", {"message": message}, headers).text.splitlines()
        events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith(("data: ", "{"))]
        return [event.get("result") or event["error"] for event in events]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    command = [str(python_of(ENVIRONMENT)), "-m", *SERVERS["uvicorn-h11"]("agent:app", port)]
    with parties(tmp_path_factory.mktemp("parties")) as of:
        (of.folder / "agent.py").write_text(block_of(PAGE, 0), encoding="utf-8")
        cases = {
            (binding, caller): case_of(origin, binding, case["headers"])
            for binding in PATHS
            for caller, case in callers(of, origin).items()
            if caller != "verifying"
        }
        with serving(command, origin, of.settings(AGENT_URL=origin), of.folder):
            yield Seen(origin, of, dict(zip(cases, called([*cases.values()]), strict=True)))


def called(cases: list[dict[str, Any]]) -> Any:
    """What came of the calls of the SDK's own client."""
    return answer_of(ENVIRONMENT, "sdk_client_0_3.py", cases)


def case_of(url: str, binding: str, headers: dict[str, str]) -> dict[str, Any]:
    """A case for ``sdk_client_0_3``: it takes credentials by the names of the schemes for one of the bindings."""
    names = {"X-API-Key": "key", "Authorization": "login"}
    credentials = {names[name]: value.removeprefix("Bearer ") for name, value in headers.items()}
    common = {"url": url, "binding": binding, "streaming": True, "text": "hi"}
    return {**common, "credentials": credentials, "headers": headers}


bindings = pytest.mark.parametrize("binding", PATHS)


@bindings
@pytest.mark.parametrize("caller", ["key", "token"])
def test_callers_with_a_credential_are_answered_and_known(seen: Seen, binding: str, caller: str) -> None:
    outcome = seen.outcomes[binding, caller]
    name = f"ann@{seen.of.issuer.url}" if caller == "token" else ANN
    assert (outcome["error"], outcome["answer"]) == (None, f"{name} said hi")
    assert (outcome["events"][0], outcome["events"][-1]) == ("submitted", "completed")


@bindings
@pytest.mark.parametrize("caller", BAD)
def test_other_callers_are_rejected(seen: Seen, binding: str, caller: str) -> None:
    outcome = seen.outcomes[binding, caller]
    assert (outcome["statuses"], outcome["events"]) == ([BAD[caller]], [])
    assert str(BAD[caller]) in outcome["error"]


@pytest.mark.parametrize("path", ["", "/jsonrpc/.well-known/agent-card.json", "/jsonrpc/.well-known/agent.json"])
def test_the_card_is_signed_and_says_what_is_enforced_wherever_it_is(seen: Seen, path: str) -> None:
    card = seen.of.fetch(f"{seen.origin}{path}").card
    assert (card["name"], card["url"]) == ("ledger", f"{seen.origin}/jsonrpc/")
    assert card["security"] == [{"key": ["read"]}, {"login": ["read"]}]


@bindings
def test_the_metadata_that_a_challenge_names_is_there(seen: Seen, binding: str) -> None:
    assert challenged_resource(f"{seen.origin}{PATHS[binding]}") == seen.origin


def test_the_extended_card_is_for_callers_and_there_is_none(seen: Seen) -> None:
    key = {"X-API-Key": seen.of.key("read")}
    answers = [seen.call("agent/getAuthenticatedExtendedCard", {}, headers) for headers in ({}, key)]
    assert [answer.status_code for answer in answers] == [401, 200]
    assert answers[1].json()["error"]["code"] == UNSUPPORTED_OPERATION


def test_tasks_and_conversations_belong_to_their_callers(seen: Seen) -> None:
    ann, bob = ({"X-API-Key": seen.of.key("read", owner=owner)} for owner in ("ann", "bob"))

    def said(headers: dict[str, str]) -> list[str]:
        events = seen.stream(headers, contextId="10bd4fa6-62a1-4b0d-8c72-24c2e5a2c4cb")
        return [each["artifact"]["parts"][0]["text"] for each in events if each["kind"] == "artifact-update"]

    assert [said(ann), said(ann), said(bob)] == [
        [f"{ANN} said hi"],
        [f"{ANN} said hi, hi"],
        ["bob@api-keys said hi"],
    ]
    task = seen.stream(ann)[-1]["taskId"]
    assert seen.call("tasks/get", {"id": task}, ann).json()["result"]["id"] == task
    for method in ("tasks/get", "tasks/cancel", "tasks/resubscribe"):
        assert f'"code":{TASK_NOT_FOUND}' in seen.call(method, {"id": task}, bob).text.replace(" ", ""), method
    assert seen.stream(bob, taskId=task)[0]["code"] == TASK_NOT_FOUND


def test_the_client_of_the_page_is_answered(seen: Seen) -> None:
    done = run_client(ENVIRONMENT, PAGE, 1, seen.of, seen.origin)
    assert (done.returncode, done.stdout.strip()) == (0, f"{ANN} said hello"), done.stderr
    assert prints(PAGE, done.stdout)


@pytest.mark.parametrize("kind", [*KINDS, UNCHANGED])
def test_the_client_of_the_page_sends_nothing_to_an_impostor(seen: Seen, kind: str) -> None:
    with impostors(seen.origin) as found:
        done = run_client(ENVIRONMENT, PAGE, 1, seen.of, found[kind].url)
        assert done.returncode == 1
        assert KINDS.get(kind, "MissingCredentialsError") in done.stderr
        assert (found[kind].stolen, found[kind].calls) == ([], [])


@bindings
@pytest.mark.parametrize("kind", KINDS)
def test_the_sdk_itself_verifies_nothing(seen: Seen, kind: str, binding: str) -> None:
    with impostors(seen.origin) as found:
        called([case_of(found[kind].url, binding, {"X-API-Key": "secret"})])
        assert set(found[kind].stolen) == {"secret"}
        assert found[kind].calls == [PATHS[binding]]
