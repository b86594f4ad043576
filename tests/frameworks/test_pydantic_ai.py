"""The page of pydantic-ai: its agent on fasta2a, called by fasta2a's own client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx
import pytest

from tests.frameworks.called_pages import GOOD, Case, Page, page_of, post
from tests.frameworks.impostors import KINDS, UNCHANGED
from tests.frameworks.page_programs import prints
from tests.frameworks.parties import BAD, challenged_resource

ENVIRONMENT: Final = "pydantic-ai-2.68.0"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    more = {"fetching": {"fetch_card": True}}
    folder = tmp_path_factory.mktemp("page")
    with page_of(folder, ENVIRONMENT, "pydantic_ai_agent", "pydantic_ai_client", **more) as page:
        yield page


def submitted(page: Page, key: str, **message: Any) -> dict[str, Any]:
    said = {"role": "user", "kind": "message", "messageId": "1", "parts": [{"kind": "text", "text": "hi"}], **message}
    task: dict[str, Any] = post(page.url, key, {"method": "message/send", "params": {"message": said}})["result"][
        "task"
    ]
    return task


def finished(page: Page, key: str, task: dict[str, Any]) -> dict[str, Any]:
    while task["status"]["state"] in ("submitted", "working"):
        time.sleep(0.02)
        task = post(page.url, key, {"method": "tasks/get", "params": {"id": task["id"]}})["result"]
    return task


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("caller", GOOD)
def test_a_client_with_a_credential_is_answered_by_its_name(page: Page, caller: str, streaming: bool) -> None:
    outcome = page.outcomes[Case(caller, streaming=streaming)]
    assert outcome.get("answer") == f'{{"whoami":"{page.name_of(caller)}"}}', outcome
    assert outcome["requests"][0] == ["POST", "/", 200]


@pytest.mark.parametrize(("caller", "status"), BAD.items())
def test_other_clients_are_rejected(page: Page, caller: str, status: int) -> None:
    assert page.outcomes[Case(caller)]["requests"] == [["POST", "/", status]]
    assert f"UnexpectedResponseError: ({status}" in page.errors(caller)


@pytest.mark.parametrize(("caller", "status"), BAD.items())
def test_a_rejected_stream_is_empty(page: Page, caller: str, status: int) -> None:
    assert page.outcomes[Case(caller, streaming=True)] == {"answer": "", "requests": [["POST", "/", status]]}


def test_the_lines_of_the_page_call_the_agent(page: Page) -> None:
    assert page.outcomes[Case("page")].get("answer") == '{"whoami":"ann@api-keys"}', page.outcomes[Case("page")]
    assert prints("pydantic-ai", page.outcomes[Case("page")]["answer"])


def test_the_lines_of_the_page_tell_of_a_bad_key(page: Page) -> None:
    assert page.errors("page with a bad key").startswith("CredentialsRejectedError")


@pytest.mark.parametrize("impostor", KINDS)
def test_with_the_lines_of_the_page_the_key_does_not_go_to_an_impostor(page: Page, impostor: str) -> None:
    assert "UnverifiedCardError" in page.errors("page", impostor)
    assert page.credentials[Case("page", impostor)] == []


def test_with_the_lines_of_the_page_the_key_does_not_go_to_a_copy_with_the_same_card(page: Page) -> None:
    assert page.credentials[Case("page", UNCHANGED)] == []


@pytest.mark.parametrize("impostor", [*KINDS, UNCHANGED])
def test_control_without_them_the_key_goes_to_an_impostor(page: Page, impostor: str) -> None:
    assert page.credentials[Case("key", impostor)] != []


def test_fasta2a_does_not_read_the_requirements_of_cards_of_1_0(page: Page) -> None:
    # Its own cards have {"schemes": {"key": []}}. When this fails, its client can fetch our cards.
    outcome = page.outcomes[Case("fetching")]
    assert outcome["requests"] == []
    assert "securityRequirements.0.schemes.key" in page.errors("fetching")
    assert "Input should be a valid list" in page.errors("fetching")


def test_the_card_is_signed_and_says_what_is_enforced(page: Page) -> None:
    card = page.of.fetch(page.url).card
    assert (card["name"], card["supportedInterfaces"][0]["url"]) == ("ledger", page.url)
    assert card["securityRequirements"] == [{"schemes": {name: {"list": ["read"]}}} for name in ("key", "login")]


def test_known_callers_get_the_extended_card(page: Page) -> None:
    assert page.of.fetch_extended(page.url).card["description"] == "Books invoices, for known callers."


def test_the_metadata_that_a_challenge_names_is_there(page: Page) -> None:
    assert challenged_resource(f"{page.url}/") == page.url


def test_paths_that_the_card_does_not_name_are_not_there(page: Page) -> None:
    key = {"X-API-Key": page.of.key("read")}
    statuses = [
        httpx.get(f"{page.url}/docs", headers=each, trust_env=False, timeout=60).status_code for each in ({}, key)
    ]
    assert statuses == [401, 404]


def test_each_task_runs_for_the_caller_who_submitted_it(page: Page) -> None:
    owners = ["ann", "bob"] * 4
    keys = [page.of.key("read", owner=owner) for owner in owners]
    with ThreadPoolExecutor(len(keys)) as pool:
        tasks = list(pool.map(lambda key: finished(page, key, submitted(page, key)), keys))
    said = [task["artifacts"][0]["parts"][0]["text"] for task in tasks]
    assert said == [f'{{"whoami":"{owner}@api-keys"}}' for owner in owners]


def test_a_caller_does_not_see_the_tasks_and_conversations_of_others(page: Page) -> None:
    ann, bob = (page.of.key("read", owner=owner) for owner in ("ann", "bob"))
    task = finished(page, ann, submitted(page, ann))
    for method in ("tasks/get", "tasks/cancel", "tasks/resubscribe"):
        response = post(page.url, bob, {"method": method, "params": {"id": task["id"]}})
        assert response["error"]["message"] == "Task not found"
    said = {"role": "user", "kind": "message", "messageId": "2", "contextId": task["contextId"], "parts": []}
    body = {"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": {"message": said}}
    assert httpx.post(page.url, json=body, headers={"X-API-Key": bob}, trust_env=False, timeout=60).status_code == 404
    with pytest.raises(httpx.RemoteProtocolError):  # the stream has begun when fasta2a looks
        httpx.post(
            page.url, json={**body, "method": "message/stream"}, headers={"X-API-Key": bob}, trust_env=False, timeout=60
        )
    assert submitted(page, ann, contextId=task["contextId"])["contextId"] == task["contextId"]
