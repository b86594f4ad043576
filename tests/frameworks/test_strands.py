"""The page of Strands: its agent, called by Strands' own client."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.frameworks.called_pages import GOOD, Case, Page, page_of, post
from tests.frameworks.impostors import KINDS, UNCHANGED
from tests.frameworks.page_programs import prints
from tests.frameworks.parties import BAD, challenged_resource

ENVIRONMENT: Final = "strands-1.62.0"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("page")
    with page_of(folder, ENVIRONMENT, "strands_agent", "strands_client") as page:
        yield page


def asked(page: Page, key: str, **message: Any) -> dict[str, Any]:
    said = {"role": "user", "kind": "message", "messageId": "1", "parts": [{"kind": "text", "text": "hi"}], **message}
    return post(page.url, key, {"method": "message/send", "params": {"message": said}})


def answer(response: dict[str, Any]) -> str:
    text: str = response["result"]["artifacts"][0]["parts"][0]["text"]
    return text


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("caller", GOOD)
def test_a_client_with_a_credential_is_answered_by_its_name(page: Page, caller: str, streaming: bool) -> None:
    assert page.outcomes[Case(caller, streaming=streaming)] == {
        "answer": f"{page.name_of(caller)}, message 3",
        "requests": [["GET", "/.well-known/agent-card.json", 200], ["POST", "/", 200]],
    }


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("caller", "status"), BAD.items())
def test_other_clients_are_rejected(page: Page, caller: str, status: int, streaming: bool) -> None:
    assert page.outcomes[Case(caller, streaming=streaming)]["requests"][1:] == [["POST", "/", status]]
    assert f"A2AClientHTTPError: HTTP Error {status}" in page.errors(caller, streaming=streaming)


def test_the_lines_of_the_page_call_the_agent(page: Page) -> None:
    assert page.outcomes[Case("page")].get("answer") == "ann@api-keys, message 3", page.outcomes[Case("page")]
    assert prints("strands", page.outcomes[Case("page")]["answer"])


def test_the_lines_of_the_page_tell_of_a_bad_key(page: Page) -> None:
    assert page.errors("page with a bad key").startswith("CredentialsRejectedError")


@pytest.mark.parametrize("impostor", KINDS)
def test_with_the_lines_of_the_page_the_key_does_not_go_to_an_impostor(page: Page, impostor: str) -> None:
    errors = page.errors("page", impostor)
    assert errors.startswith("A2AClientHTTPError: HTTP Error 503: Network communication error")
    assert "UnverifiedCardError" in errors
    assert page.credentials[Case("page", impostor)] == []


def test_with_the_lines_of_the_page_the_key_does_not_go_to_a_copy_with_the_same_card(page: Page) -> None:
    assert page.credentials[Case("page", UNCHANGED)] == []


@pytest.mark.parametrize("impostor", [*KINDS, UNCHANGED])
def test_control_without_them_the_key_goes_to_an_impostor(page: Page, impostor: str) -> None:
    assert page.credentials[Case("key", impostor)] != []


def test_the_card_is_signed_and_says_what_is_enforced(page: Page) -> None:
    card = page.of.fetch(page.url).card
    assert (card["name"], card["url"], card["protocolVersion"]) == ("ledger", f"{page.url}/", "0.3.0")
    assert card["security"] == [{"key": ["read"]}, {"login": ["read"]}]


def test_known_callers_get_the_extended_card(page: Page) -> None:
    assert page.of.fetch_extended(page.url).card["description"] == "Books invoices, for known callers."


def test_the_metadata_that_a_challenge_names_is_there(page: Page) -> None:
    assert challenged_resource(f"{page.url}/") == page.url


def test_a_tool_knows_the_caller_of_each_request(page: Page) -> None:
    owners = ["ann", "bob"] * 4
    keys = [page.of.key("read", owner=owner) for owner in owners]
    with ThreadPoolExecutor(len(keys)) as pool:
        said = [answer(response) for response in pool.map(lambda key: asked(page, key), keys)]
    assert said == [f"{owner}@api-keys, message 3" for owner in owners]


def test_a_caller_does_not_see_the_tasks_of_others(page: Page) -> None:
    ann, bob = (page.of.key("read", owner=owner) for owner in ("ann", "bob"))
    task = asked(page, ann)["result"]
    for method in ("tasks/get", "tasks/cancel", "tasks/resubscribe"):
        response = post(page.url, bob, {"method": method, "params": {"id": task["id"]}})
        assert response["error"]["message"] == "Task not found"
    assert "does not exist" in asked(page, bob, taskId=task["id"], contextId=task["contextId"])["error"]["message"]
    assert post(page.url, ann, {"method": "tasks/get", "params": {"id": task["id"]}})["result"]["id"] == task["id"]


def test_a_caller_does_not_continue_the_conversations_of_others(page: Page) -> None:
    ann, bob = (page.of.key("read", owner=owner) for owner in ("ann", "bob"))
    context = asked(page, ann)["result"]["contextId"]
    assert answer(asked(page, bob, contextId=context)) == "bob@api-keys, message 3"
    assert answer(asked(page, ann, contextId=context)) == "ann@api-keys, message 7"
