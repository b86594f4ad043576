"""The page of python-a2a: its agent, a Flask application, called by python-a2a's own client."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx
import pytest

from tests.frameworks.called_pages import GOOD, Case, Page, page_of
from tests.frameworks.impostors import KINDS, UNCHANGED
from tests.frameworks.page_programs import prints
from tests.frameworks.parties import BAD, challenged_resource

ENVIRONMENT: Final = "python-a2a-0.5.10"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("page")
    with page_of(folder, ENVIRONMENT, "python_a2a_agent", "python_a2a_client") as page:
        yield page


def called(page: Page, key: str, path: str, params: dict[str, Any]) -> httpx.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": path.strip("/"), "params": params}
    return httpx.post(page.url + path, json=body, headers={"X-API-Key": key}, trust_env=False, timeout=60)


def sent(page: Page, key: str, **params: Any) -> dict[str, Any]:
    said = {"role": "user", "parts": [{"type": "text", "text": "hi"}]}
    task: dict[str, Any] = called(page, key, "/tasks/send", {"message": said, **params}).json()["result"]
    return task


@pytest.mark.parametrize("caller", GOOD)
def test_a_client_with_a_credential_is_answered_by_its_name(page: Page, caller: str) -> None:
    assert page.outcomes[Case(caller)].get("answer") == f"{page.name_of(caller)} said hi"


@pytest.mark.parametrize("caller", GOOD)
def test_a_stream_is_answered_and_does_not_know_its_caller(page: Page, caller: str) -> None:
    assert page.outcomes[Case(caller, streaming=True)].get("answer") == "someone said|hi"


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("caller", BAD)
def test_other_clients_are_rejected_and_do_not_learn_why(page: Page, caller: str, streaming: bool) -> None:
    answer = page.outcomes[Case(caller, streaming=streaming)]["answer"]
    assert f"Failed to communicate with agent at {page.url}/tasks/send. Tried multiple endpoint variations." in answer


@pytest.mark.parametrize(
    ("headers", "status"), [({}, 401), ({"X-API-Key": "bad"}, 401), ({"Authorization": "Bearer e30.e30.e30"}, 401)]
)
@pytest.mark.parametrize("path", ["/", "/tasks/send", "/tasks/get", "/tasks/cancel", "/stream"])
def test_every_path_needs_a_credential(page: Page, path: str, headers: dict[str, str], status: int) -> None:
    assert httpx.post(page.url + path, json={}, headers=headers, trust_env=False, timeout=60).status_code == status


@pytest.mark.parametrize("path", ["/a2a", "/agent", "/agent.json", "/a2a/agent.json", "/a2a/tasks/send"])
def test_paths_that_are_not_named_are_not_there(page: Page, path: str) -> None:
    key = {"X-API-Key": page.of.key("read")}
    for method in ("GET", "POST"):
        assert httpx.request(method, page.url + path, headers=key, trust_env=False).status_code == 404


def test_the_lines_of_the_page_call_the_agent(page: Page) -> None:
    assert page.outcomes[Case("page")].get("answer") == "ann@api-keys said hello", page.outcomes[Case("page")]
    assert prints("python-a2a", page.outcomes[Case("page")]["answer"])


def test_the_lines_of_the_page_tell_of_a_bad_key(page: Page) -> None:
    assert page.errors("page with a bad key").startswith("ConnectionError: Failed to communicate with agent")


@pytest.mark.parametrize("impostor", KINDS)
def test_with_the_lines_of_the_page_the_key_does_not_go_to_an_impostor(page: Page, impostor: str) -> None:
    assert "CardVerificationError" in page.errors("page", impostor) or "UntrustedCardError" in page.errors(
        "page", impostor
    )
    assert page.credentials[Case("page", impostor)] == []


def test_with_the_lines_of_the_page_the_key_does_not_go_to_a_copy_with_the_same_card(page: Page) -> None:
    assert page.credentials[Case("page", UNCHANGED)] == []


@pytest.mark.parametrize("impostor", [*KINDS, UNCHANGED])
def test_control_without_them_the_key_goes_to_an_impostor(page: Page, impostor: str) -> None:
    assert page.credentials[Case("key", impostor)] != []


def test_the_card_is_signed_and_says_what_is_enforced(page: Page) -> None:
    card = page.of.fetch(page.url).card
    assert (card["name"], card["url"], card["protocolVersion"]) == ("ledger", page.url, "0.3.0")
    assert card["security"] == [{"key": ["read"]}, {"login": ["read"]}]


def test_known_callers_get_the_extended_card(page: Page) -> None:
    assert page.of.fetch_extended(page.url).card["description"] == "Books invoices, for known callers."


def test_the_metadata_that_a_challenge_names_is_there(page: Page) -> None:
    assert challenged_resource(f"{page.url}/tasks/send") == page.url


def test_python_a2a_does_not_speak_json_rpc_at_the_url_of_its_card(page: Page) -> None:
    # When this fails, clients of other SDKs can call it: say so on the page.
    said = {"role": "user", "kind": "message", "messageId": "1", "parts": [{"kind": "text", "text": "hi"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": said}}
    answer = httpx.post(
        f"{page.url}/", json=body, headers={"X-API-Key": page.of.key("read")}, trust_env=False, timeout=60
    )
    assert (answer.status_code, "Unknown content type" in answer.text) == (500, True)


def test_the_agent_knows_the_caller_of_each_request(page: Page) -> None:
    owners = ["ann", "bob"] * 4
    keys = [page.of.key("read", owner=owner) for owner in owners]
    with ThreadPoolExecutor(len(keys)) as pool:
        tasks = list(pool.map(lambda key: sent(page, key), keys))
    said = [task["artifacts"][0]["parts"][0]["text"] for task in tasks]
    assert said == [f"{owner}@api-keys said hi" for owner in owners]


def test_a_caller_does_not_see_or_replace_the_tasks_of_others(page: Page) -> None:
    ann, bob = (page.of.key("read", owner=owner) for owner in ("ann", "bob"))
    sent(page, ann, id="one")
    for path in ("/tasks/get", "/tasks/cancel"):
        assert called(page, bob, path, {"id": "one"}).status_code == 404
    sent(page, bob, id="one")
    for key, owner in ((ann, "ann"), (bob, "bob")):
        task = called(page, key, "/tasks/get", {"id": "one"}).json()["result"]
        assert task["artifacts"][0]["parts"][0]["text"] == f"{owner}@api-keys said hi"
