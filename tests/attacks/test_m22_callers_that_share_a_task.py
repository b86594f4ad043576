"""M22: ``current_principal`` gives the name of another caller.

Two callers work on one task of the a2a-sdk. Its release 1.0.0 runs the second caller's message in a task that the first
caller's request has started, and so in the context of that request; the first caller keeps the request alive by not
reading the answer. The defense: a context counts only in the task of its own request.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.frameworks.shared_tasks import SDKS, Call, Shared, sharing

pytestmark = pytest.mark.real

NOBODY, NO_CONTEXT = "NoCallerError", "ConfigurationError"


async def calls(shared: Shared) -> list[dict[str, Any]]:
    """Ann streams and does not read, while Bob and she call the same task again; what the agent has seen."""
    async with shared.client() as http:
        ann, bob = shared.callers(http)
        unread, task = await ann.open("unread")
        answers = [
            await bob.call(Call.SEND, "sends", task),
            await ann.call(Call.SEND, "sends", task),
            await bob.call(Call.STREAM, "streams", task),
        ]
        if not shared.is_0_3:  # it answers some of two messages at once with an error of its own
            both = [caller.call(Call.SEND, "meanwhile", task) for caller in (ann, bob)]
            answers += await asyncio.gather(*both)
        works, task = await ann.open("works")
        answers.append(await bob.call(Call.SUBSCRIBE, "subscribes", task))
        answers.append(await bob.call(Call.CANCEL, "cancels", task))
        assert not [each for each in answers if each.is_error]
        seen = await ann.seen()
        await works.aclose()
        await unread.aclose()
    return seen


@pytest.fixture(scope="module", params=SDKS)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    with sharing(request.param, tmp_path_factory.mktemp("shared"), STORE="shared") as shared:
        return asyncio.run(calls(shared))


def test_nobody_gets_the_name_of_another_caller(seen: list[dict[str, Any]]) -> None:
    for each in seen:
        if "call" in each:
            owner = f"{each['call'].split()[0]}@api-keys"
            assert set(each["principal_of"]) == {owner}
            assert set(each["current"]) <= {owner, NOBODY}
            assert set(each.get("acting", [owner])) == {owner}


def test_both_callers_were_at_each_place(seen: list[dict[str, Any]]) -> None:
    executed = {each["call"]: each["task"] for each in seen if each["place"] == "execute"}
    of_one_task = {call for call, task in executed.items() if task == executed["ann unread"]}
    assert {"ann unread", "bob sends", "ann sends", "bob streams"} <= of_one_task
    assert {each["call"] for each in seen if each["place"] == "subscription"} == {"bob subscribes"}


def test_executors_have_to_say_whom_they_act_for(seen: list[dict[str, Any]]) -> None:
    executed = [each for each in seen if each["place"] == "execute"]
    assert {name for each in executed for name in each["current"]} == {NOBODY}
    assert {len(each["acting"]) for each in executed} == {3}  # in the block, and in a task and a thread of it


def test_what_runs_in_the_request_knows_its_caller_by_itself(seen: list[dict[str, Any]]) -> None:
    streamed = [each for each in seen if each["place"] == "subscription"]
    assert {name for each in streamed for name in each["current"]} == {"bob@api-keys"}
    (cancelled,) = [each for each in seen if each["place"] == "cancel"]
    if "call" in cancelled:
        bob = "bob@api-keys"
        assert cancelled["current"] == [bob, NOBODY, NOBODY, bob, bob]  # a task and threads of asyncio and anyio
    else:  # 0.3.26 gives its context no call_context there
        assert (cancelled["principal_of"], cancelled["current"]) == ([NO_CONTEXT], ["bob@api-keys"])
