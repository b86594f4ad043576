"""The two drivers of flows: a flow gets each result and each error, cleans up, and leaves no secret in a traceback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from a2a_trust.client.flow import Ask, Awaited, Awaiting, Flow, InThread, Slot, Slots, Within, run, run_async
from tests.attacks.test_c05_traces_of_credentials import traces_of

Run = Callable[[Flow[Any]], Any]


def on_a_loop(flow: Flow[Any]) -> Any:
    return asyncio.run(run_async(flow))


drivers = pytest.mark.parametrize("drive", [run, on_a_loop], ids=["blocking", "awaiting"])


def failing() -> None:
    raise LookupError("the step fails")


async def seven() -> int:
    return 7


@drivers
def test_a_flow_gets_the_result_of_each_step_and_has_its_own(drive: Run) -> None:
    def inner() -> Flow[Any]:
        return (yield InThread(lambda: 2)) + (yield Awaited(seven))

    def flow() -> Flow[Any]:
        return (yield Ask(lambda: 1)) + (yield Within(60, inner()))

    assert drive(flow()) == 10


@drivers
def test_a_flow_cleans_up_by_further_steps_when_one_fails(drive: Run) -> None:
    done: list[str] = []

    def flow() -> Flow[None]:
        try:
            yield InThread(failing)
        finally:
            yield InThread(lambda: done.append("cleaned up"))

    with pytest.raises(LookupError, match="the step fails"):
        drive(flow())
    assert done == ["cleaned up"]


@drivers
def test_a_flow_may_go_on_after_an_error(drive: Run) -> None:
    def flow() -> Flow[str]:
        try:
            yield Within(60, fails())
        except LookupError as error:
            return f"{error}: {(yield Ask(lambda: 'and nothing else'))}"
        return ""

    def fails() -> Flow[None]:
        yield Ask(failing)

    assert drive(flow()) == "the step fails: and nothing else"


@drivers
def test_a_result_is_in_no_traceback_of_the_package(drive: Run) -> None:
    def flow() -> Flow[None]:
        yield Ask(lambda: "secret-key")
        raise LookupError("after a secret")

    with pytest.raises(LookupError) as raised:
        drive(flow())
    assert not [each for each in traces_of(raised.value) if "secret" in each.replace("after a secret", "")]


def test_a_cancelled_flow_cleans_up_and_ends_its_turn() -> None:
    driver, turns, done = Awaiting(), Slots(), list[str]()

    def flow() -> Flow[None]:
        turn = Slot(turns, "key")
        try:
            assert not (yield from turn.wait())
            yield Awaited(anyio.sleep_forever)
        finally:
            turn.end()
            yield Ask(lambda: done.append("cleaned up"))

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await driver.run(one_step(Within(0.01, flow())))

    asyncio.run(main())
    assert done == ["cleaned up"]
    assert not turns._queues


def one_step(step: Any) -> Flow[Any]:
    return (yield step)


def taking(turns: Slots, order: list[str], name: str, key: str = "key") -> Flow[None]:
    turn = Slot(turns, key)
    try:
        if (yield from turn.wait()):
            order.append(f"{name} waited")
        order.append(f"{name} begins")
        yield Awaited(lambda: anyio.sleep(0))
        order.append(f"{name} ends")
    finally:
        turn.end()


def test_flows_of_one_key_run_one_after_the_other() -> None:
    turns, order = Slots(), list[str]()

    async def main() -> None:
        driver = Awaiting()
        flows = [taking(turns, order, name) for name in "abc"]
        await asyncio.gather(*map(driver.run, [*flows, taking(turns, order, "x", "other")]))

    asyncio.run(main())
    mine = [each for each in order if not each.startswith("x")]
    assert mine == [
        *("a begins", "a ends", "b waited", "b begins", "b ends"),
        *("c waited", "c begins", "c ends"),
    ]
    assert order.index("x begins") < order.index("a ends")
    assert not turns._queues


def test_a_flow_that_is_cancelled_while_it_waits_lets_the_next_one_in() -> None:
    turns, order = Slots(), list[str]()

    async def main() -> None:
        driver, first = Awaiting(), Slot(turns, "key")
        waiting = [asyncio.create_task(driver.run(taking(turns, order, name))) for name in "ab"]
        while len(turns._queues["key"]) < 3:
            await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        first.end()
        await waiting[1]

    asyncio.run(main())
    assert order == ["b waited", "b begins", "b ends"]


def test_a_turn_that_comes_to_a_cancelled_flow_is_passed_on() -> None:
    turns, order = Slots(), list[str]()

    async def main() -> None:
        driver, first = Awaiting(), Slot(turns, "key")
        waiting = [asyncio.create_task(driver.run(taking(turns, order, name))) for name in "ab"]
        while len(turns._queues["key"]) < 3:
            await asyncio.sleep(0)
        first.end()
        waiting[0].cancel()
        await asyncio.wait(waiting, timeout=60)

    asyncio.run(main())
    assert order[-1:] == ["b ends"]
    assert not turns._queues


def test_threads_wait_for_each_other() -> None:
    turns, order = Slots(), list[str]()
    first = Slot(turns, "key")
    thread = threading.Thread(target=lambda: run(taking(turns, order, "thread")))
    thread.start()
    while len(turns._queues["key"]) < 2:
        thread.join(0.01)
    order.append("first ends")
    first.end()
    thread.join(60)
    assert order == ["first ends", "thread waited", "thread begins", "thread ends"]


def test_a_call_within_a_call_of_its_thread_does_not_wait_for_itself() -> None:
    turns, order = Slots(), list[str]()
    outer = Slot(turns, "key")
    run(taking(turns, order, "inner"))
    assert order[-1:] == ["inner ends"]
    outer.end()
    outer.end()
    assert not turns._queues
