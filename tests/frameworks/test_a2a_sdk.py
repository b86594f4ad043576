"""The page of the a2a-sdk: its agent, called by the SDK's own client, and what it says of whose task is whose."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.frameworks.called_pages import GOOD, Case, Page, page_of, post
from tests.frameworks.impostors import KINDS, UNCHANGED
from tests.frameworks.page_programs import prints
from tests.frameworks.parties import BAD, challenged_resource
from tests.frameworks.shared_tasks import SDKS, Call, Shared, sharing
from tests.servers.environments import python_of
from tests.servers.serving import ROOT


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("page")
    with page_of(folder, "server-1.3.0", "sdk_agent", "sdk_client") as page:
        yield page


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("caller", GOOD)
def test_a_client_with_a_credential_is_answered_by_its_name(page: Page, caller: str, streaming: bool) -> None:
    assert page.outcomes[Case(caller, streaming=streaming)] == {
        "answer": f"{page.name_of(caller)} said hi",
        "requests": [["GET", "/.well-known/agent-card.json", 200], ["POST", "/rpc", 200]],
    }


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("caller", "status"), BAD.items())
def test_other_clients_are_rejected(page: Page, caller: str, status: int, streaming: bool) -> None:
    assert page.outcomes[Case(caller, streaming=streaming)]["requests"][1:] == [["POST", "/rpc", status]]
    assert page.errors(caller, streaming=streaming).startswith(f"A2AClientError: HTTP Error {status}")


def test_the_lines_of_the_page_call_the_agent(page: Page) -> None:
    assert page.outcomes[Case("page")].get("answer") == "ann@api-keys said hello", page.outcomes[Case("page")]
    assert prints("a2a-sdk", page.outcomes[Case("page")]["answer"])


def test_the_lines_of_the_page_tell_of_a_bad_key(page: Page) -> None:
    first, second, *_ = page.errors("page with a bad key").splitlines()
    assert first.startswith("A2AClientError: HTTP Error 401")
    assert second.startswith("CredentialsRejectedError")


@pytest.mark.parametrize("impostor", KINDS)
def test_with_the_lines_of_the_page_the_key_does_not_go_to_an_impostor(page: Page, impostor: str) -> None:
    errors = page.errors("page", impostor)
    assert errors.startswith("AgentCardResolutionError: Network communication error")
    assert "\nUnverifiedCardError: " in errors
    assert page.credentials[Case("page", impostor)] == []


def test_with_the_lines_of_the_page_the_key_does_not_go_to_a_copy_with_the_same_card(page: Page) -> None:
    assert page.credentials[Case("page", UNCHANGED)] == []


@pytest.mark.parametrize("impostor", [*KINDS, UNCHANGED])
def test_control_without_them_the_key_goes_to_an_impostor(page: Page, impostor: str) -> None:
    assert page.credentials[Case("key", impostor)] != []


def test_both_cards_are_signed_and_say_what_is_enforced(page: Page) -> None:
    public, extended = page.of.fetch(page.url).card, page.of.fetch_extended(page.url).card
    for card in (public, extended):
        assert (card["name"], card["supportedInterfaces"][0]["url"]) == ("ledger", f"{page.url}/rpc")
        assert card["securityRequirements"] == [{"schemes": {name: {"list": ["read"]}}} for name in ("key", "login")]
    assert public["description"] == "Books invoices."
    assert extended["description"] == "Books invoices, for known callers."


def test_the_metadata_that_a_challenge_names_is_there(page: Page) -> None:
    assert challenged_resource(f"{page.url}/rpc") == page.url


def test_a_tool_knows_the_caller_of_each_request(page: Page) -> None:
    owners = ["ann", "bob"] * 4
    keys = [page.of.key("read", owner=owner) for owner in owners]
    said = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}

    def answer(key: str) -> Any:
        task = post(page.url + "/rpc", key, {"method": "SendMessage", "params": {"message": said}})["result"]["task"]
        return task["artifacts"][0]["parts"][0]["text"]

    with ThreadPoolExecutor(len(keys)) as pool:
        assert [*pool.map(answer, keys)] == [f"{owner}@api-keys said hi" for owner in owners]


#: What a caller can do with another caller's task, by the SDK and its store.
GETS_IN: Final = {
    ("server-1.3.0", "the SDK's"): set(),
    ("server-1.0.0", "the SDK's"): {Call.SUBSCRIBE, Call.CANCEL},
    ("server-0.3.26", "the SDK's"): {Call.GET, Call.SEND, Call.SUBSCRIBE, Call.CANCEL},
    ("server-0.3.26", "own"): set(),
}


@pytest.mark.parametrize(("sdk", "store"), GETS_IN)
def test_the_page_says_whose_task_is_whose(sdk: str, store: str, tmp_path: Path) -> None:
    async def bobs_calls(shared: Shared) -> set[Call]:
        """With which of them Bob gets in at a task of Ann's that is at work."""
        found = set()
        async with shared.client() as http:
            ann, bob = shared.callers(http)
            for what in (Call.GET, Call.SEND, Call.SUBSCRIBE, Call.CANCEL):
                stream, task = await ann.open(f"works {what.name}")
                assert not (await ann.call(Call.GET, "reads", task)).is_error
                if not (await bob.call(what, "calls", task)).is_error:
                    found.add(what)
                await stream.aclose()
        return found

    with sharing(sdk, tmp_path, STORE=store, ISSUER="of no use here") as shared:
        assert asyncio.run(bobs_calls(shared)) == GETS_IN[sdk, store]


TYPED: Final = """
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a_trust import Principal, acting_for, principal_of
from a2a_trust.auth import Anonymous

def callers(context: RequestContext, call: ServerCallContext) -> list[Principal | Anonymous]:
    with acting_for(context) as first, acting_for(call) as second:
        return [first, second, principal_of(context), principal_of(call)]

def wrong(context: RequestContext) -> None:
    principal_of(context.message)
"""


@pytest.mark.parametrize("sdk", SDKS)
def test_type_checkers_accept_the_contexts_of_the_sdk_and_nothing_else_of_it(sdk: str, tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED, encoding="utf-8")
    options = ["--strict", "--follow-imports=silent", "--cache-dir=cache", f"--python-executable={python_of(sdk)}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "typed.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert [line.split(":")[1] for line in errors] == [
        str(TYPED.splitlines().index("    principal_of(context.message)") + 1)
    ]
    assert 'Argument 1 to "principal_of" has incompatible type "Message' in errors[0]
