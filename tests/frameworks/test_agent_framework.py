"""The page of agent-framework: its agent, called by its own client."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.frameworks.called_pages import GOOD, Case, Page, page_of, post
from tests.frameworks.impostors import KINDS, UNCHANGED
from tests.frameworks.page_programs import prints
from tests.frameworks.parties import BAD, challenged_resource

ENVIRONMENT: Final = "agent-framework-1.0.0b261022"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    more = {"verifying": {"verifying": True}}
    folder = tmp_path_factory.mktemp("page")
    with page_of(folder, ENVIRONMENT, "agent_framework_agent", "agent_framework_client", **more) as page:
        yield page


def asked(page: Page, key: str, method: str = "SendMessage", **message: Any) -> dict[str, Any]:
    said = {"role": "ROLE_USER", "messageId": "1", "parts": [{"text": "hi"}], **message}
    return post(page.url, key, {"method": method, "params": {"message": said}})


def answer(response: dict[str, Any]) -> str:
    return "".join(part["text"] for part in response["result"]["task"]["artifacts"][0]["parts"])


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("caller", GOOD)
def test_a_client_with_a_credential_is_answered_by_its_name(page: Page, caller: str, streaming: bool) -> None:
    assert page.outcomes[Case(caller, streaming=streaming)] == {
        "answer": f"{page.name_of(caller)}, message 3",
        "requests": [["POST", "/", 200]],  # and no card
    }


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("caller", "status"), BAD.items())
def test_other_clients_are_rejected(page: Page, caller: str, status: int, streaming: bool) -> None:
    assert page.outcomes[Case(caller, streaming=streaming)]["requests"] == [["POST", "/", status]]
    assert f"A2AClientError: HTTP Error {status}" in page.errors(caller, streaming=streaming)


def test_the_lines_of_the_page_call_the_agent(page: Page) -> None:
    assert page.outcomes[Case("page")].get("answer") == "ann@api-keys, message 3", page.outcomes[Case("page")]
    assert prints("agent-framework", page.outcomes[Case("page")]["answer"])


def test_the_lines_of_the_page_tell_of_a_bad_key(page: Page) -> None:
    errors = page.errors("page with a bad key")
    assert errors.startswith("A2AClientError: HTTP Error 401")
    assert "CredentialsRejectedError" in errors


@pytest.mark.parametrize("impostor", KINDS)
def test_with_the_lines_of_the_page_the_key_does_not_go_to_an_impostor(page: Page, impostor: str) -> None:
    errors = page.errors("page", impostor)
    assert errors.startswith("AgentCardResolutionError: Network communication error")
    assert "UnverifiedCardError" in errors
    assert page.credentials[Case("page", impostor)] == []


@pytest.mark.parametrize("impostor", KINDS)
def test_a_verifying_client_protects_a_client_that_fetches_no_card(page: Page, impostor: str) -> None:
    errors = page.errors("verifying", impostor)
    assert errors.startswith("A2AClientError: Network communication error")
    assert "UnverifiedCardError" in errors
    assert page.credentials[Case("verifying", impostor)] == []


def test_a_client_that_fetches_no_card_works_with_a_verifying_client(page: Page) -> None:
    assert page.outcomes[Case("verifying")].get("answer") == "ann@api-keys, message 3"


def test_with_the_lines_of_the_page_the_key_does_not_go_to_a_copy_with_the_same_card(page: Page) -> None:
    assert page.credentials[Case("page", UNCHANGED)] == []


@pytest.mark.parametrize("impostor", [*KINDS, UNCHANGED])
def test_control_without_them_the_key_goes_to_an_impostor(page: Page, impostor: str) -> None:
    assert page.credentials[Case("key", impostor)] != []


def test_the_card_is_signed_and_says_what_is_enforced(page: Page) -> None:
    card = page.of.fetch(page.url).card
    assert (card["name"], card["supportedInterfaces"][0]["url"]) == ("ledger", page.url)
    assert card["securityRequirements"] == [{"schemes": {name: {"list": ["read"]}}} for name in ("key", "login")]


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
    task = asked(page, ann)["result"]["task"]
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        response = post(page.url, bob, {"method": method, "params": {"id": task["id"]}})
        assert response["error"]["message"] == "Task not found"
    assert task["id"] in asked(page, bob, taskId=task["id"], contextId=task["contextId"])["error"]["message"]
    assert post(page.url, ann, {"method": "GetTask", "params": {"id": task["id"]}})["result"]["id"] == task["id"]


def test_a_caller_does_not_continue_the_conversations_of_others(page: Page) -> None:
    ann, bob = (page.of.key("read", owner=owner) for owner in ("ann", "bob"))
    context = asked(page, ann)["result"]["task"]["contextId"]
    assert answer(asked(page, bob, contextId=context)) == "bob@api-keys, message 3"
    assert answer(asked(page, ann, contextId=context)) == "ann@api-keys, message 7"
