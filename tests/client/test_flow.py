"""The two drivers of flows: a flow gets each result and each error, cleans up, and leaves no secret in a traceback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from a2a_trust.client.flow import Acquire, Ask, Awaited, Awaiting, Blocking, Flow, InThread, Within, run, run_async
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


def test_a_cancelled_flow_frees_its_lock_and_cleans_up() -> None:
    driver, done = Awaiting(), list[str]()

    async def main() -> None:
        lock = driver.make_lock()

        def flow() -> Flow[None]:
            yield Acquire(lock)
            try:
                yield Awaited(anyio.sleep_forever)
            finally:
                lock.release()
                yield Ask(lambda: done.append("cleaned up"))

        with pytest.raises(TimeoutError):
            await driver.run(one_step(Within(0.01, flow())))
        assert not lock.locked()

    asyncio.run(main())
    assert done == ["cleaned up"]


def one_step(step: Any) -> Flow[Any]:
    return (yield step)


def test_a_lock_makes_tasks_and_threads_wait() -> None:
    async def main() -> list[str]:
        driver, order = Awaiting(), list[str]()
        lock = driver.make_lock()

        def flow(name: str) -> Flow[None]:
            yield Acquire(lock)
            order.append(f"{name} begins")
            yield Awaited(lambda: anyio.sleep(0))
            order.append(f"{name} ends")
            lock.release()

        await asyncio.gather(driver.run(flow("one")), driver.run(flow("two")))
        return order

    assert asyncio.run(main()) == ["one begins", "one ends", "two begins", "two ends"]
    lock = Blocking.make_lock()
    run(one_step(Acquire(lock)))
    assert lock.locked()
