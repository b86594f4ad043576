"""docs/frameworks/google-adk.md is true: its agent and its client run, and ADK's own client calls the agent."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import httpx
import pytest

from tests.frameworks.impostors import KINDS, UNCHANGED, impostors
from tests.frameworks.page_programs import prints, run_client
from tests.frameworks.parties import BAD, FOLDER, Parties, callers, challenged_resource, parties
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import SERVERS, free_port, serving

ENVIRONMENT: Final = "google-adk-2.13.0"
PAGE: Final = "google-adk"
PATHS: Final = ("", "/analysis")
ANSWER: Final = "invoices of ann@api-keys"
UNSUPPORTED_OPERATION: Final = -32004
TASK_NOT_FOUND: Final = -32001


class Seen(NamedTuple):
    path: str
    url: str
    of: Parties
    outcomes: dict[tuple[str, bool], dict[str, Any]]
    """What came of the calls of ADK's own client, by caller, and whether it asked for a stream."""

    def call(self, method: str, params: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return httpx.post(self.url, json=body, headers={"A2A-Version": "1.0", **headers}, trust_env=False, timeout=60)

    def send(self, headers: dict[str, str]) -> Any:
        """The task that a message makes."""
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        return self.call("SendMessage", {"message": message}, headers).json()["result"]["task"]


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Seen]]:
    with parties(tmp_path_factory.mktemp("parties")) as of, ExitStack() as stack:
        seen = {}
        for path in PATHS:
            port = free_port()
            origin = f"http://127.0.0.1:{port}"
            settings = of.settings(AGENT_URL=f"{origin}{path}")
            command = [
                str(python_of(ENVIRONMENT)),
                "-m",
                *SERVERS["uvicorn-h11"]("tests.frameworks.adk_agent:app", port),
            ]
            stack.enter_context(serving(command, origin, settings, of.folder))
            seen[path] = Seen(path, f"{origin}{path}", of, {})
        cases = {
            (path, caller, streaming): {**case, "streaming": streaming}
            for path in PATHS
            for caller, case in callers(of, seen[path].url).items()
            for streaming in (False, True)
        }
        for (path, caller, streaming), outcome in zip(cases, called(of, [*cases.values()]), strict=True):
            seen[path].outcomes[caller, streaming] = outcome
        yield seen


def called(of: Parties, cases: list[dict[str, Any]]) -> Any:
    """What came of the calls of ADK's own client."""
    return answer_of(ENVIRONMENT, str(FOLDER / "adk_client.py"), cases, **of.settings())


@pytest.fixture(params=PATHS, ids=lambda path: path or "/")
def seen(request: pytest.FixtureRequest, agents: dict[str, Seen]) -> Seen:
    return agents[request.param]


streams = pytest.mark.parametrize("streaming", [False, True])


@streams
@pytest.mark.parametrize("caller", ["verifying", "key", "token"])
def test_callers_with_a_credential_are_answered_and_known(seen: Seen, caller: str, streaming: bool) -> None:
    card, call = f"{seen.path}/.well-known/agent-card.json", seen.path or "/"
    outcome = seen.outcomes[caller, streaming]
    name = f"ann@{seen.of.issuer.url}" if caller == "token" else "ann@api-keys"
    assert outcome.get("answer") == f"invoices of {name}", outcome
    *reads, sent = outcome["requests"]
    assert sent == ["POST", call, 200]
    assert reads in ([["GET", card, 200]], [["GET", card, 200]] * 2)  # a verifying client reads it for itself, too


@streams
@pytest.mark.parametrize("caller", BAD)
def test_other_callers_are_rejected(seen: Seen, caller: str, streaming: bool) -> None:
    outcome = seen.outcomes[caller, streaming]
    assert outcome["requests"][-1] == ["POST", seen.path or "/", BAD[caller]]
    assert outcome["error"].startswith(f"A2A request failed: HTTP Error {BAD[caller]}")


def test_every_tool_sees_its_own_caller(seen: Seen) -> None:
    names = [f"caller-{number}" for number in range(8)]
    keys = [{"X-API-Key": seen.of.key("read", owner=name)} for name in names]
    with ThreadPoolExecutor(len(names)) as pool:
        tasks = [*pool.map(seen.send, keys * 3)]
    answers = [task["artifacts"][0]["parts"][-1]["text"] for task in tasks]
    assert answers == [f"invoices of {name}@api-keys" for name in names] * 3


def test_a_task_belongs_to_its_caller(seen: Seen) -> None:
    ann, bob = ({"X-API-Key": seen.of.key("read", owner=owner)} for owner in ("ann", "bob"))
    task = seen.send(ann)
    assert task["metadata"]["adk_user_id"] == "ann@api-keys"
    assert seen.call("GetTask", {"id": task["id"]}, ann).json()["result"]["id"] == task["id"]
    assert seen.call("GetTask", {"id": task["id"]}, bob).json()["error"]["code"] == TASK_NOT_FOUND


def test_the_card_of_the_application_is_signed_and_says_what_is_enforced(seen: Seen) -> None:
    card = seen.of.fetch(seen.url).card
    assert card["name"] == "ledger"
    assert [each["url"] for each in card["supportedInterfaces"]] == [seen.url]
    assert card["securityRequirements"] == [{"schemes": {name: {"list": ["read"]}}} for name in ("key", "login")]
    assert card["securitySchemes"].keys() == {"key", "login"}


def test_the_extended_card_is_for_callers_and_there_is_none(seen: Seen) -> None:
    key = {"X-API-Key": seen.of.key("read")}
    answers = [seen.call("GetExtendedAgentCard", {}, headers) for headers in ({}, key)]
    assert [answer.status_code for answer in answers] == [401, 200]
    assert answers[1].json()["error"]["code"] == UNSUPPORTED_OPERATION


def test_the_metadata_that_a_challenge_names_is_there(seen: Seen) -> None:
    assert challenged_resource(seen.url) == seen.url


def test_the_client_of_the_page_is_answered(agents: dict[str, Seen]) -> None:
    seen = agents[""]
    done = run_client(ENVIRONMENT, PAGE, 2, seen.of, seen.url)
    assert (done.returncode, done.stdout.strip()) == (0, ANSWER), done.stderr
    assert prints(PAGE, done.stdout)


@pytest.mark.parametrize("kind", [*KINDS, UNCHANGED])
def test_the_client_of_the_page_sends_nothing_to_an_impostor(agents: dict[str, Seen], kind: str) -> None:
    seen = agents[""]
    with impostors(seen.url) as found:
        done = run_client(ENVIRONMENT, PAGE, 2, seen.of, found[kind].url)
        assert done.stdout.startswith("error: "), done.stderr
        assert KINDS.get(kind, "") in done.stdout
        assert (found[kind].stolen, found[kind].calls) == ([], [])


@pytest.mark.parametrize("kind", KINDS)
def test_adk_itself_verifies_nothing(seen: Seen, kind: str) -> None:
    with impostors(seen.url) as found:
        case = callers(seen.of, found[kind].url)["key"]
        called(seen.of, [{**case, "streaming": False}])
        assert set(found[kind].stolen) == {case["headers"]["X-API-Key"]}
        assert found[kind].calls == [seen.path or "/"]
