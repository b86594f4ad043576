"""A client that goes away while its request waits, seen from the messages of one request."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from a2a_trust.middleware.disconnect import ClientGoneError, Message, ReadAhead
from tests.middleware.agent import KEY, Agent, guarded

GONE: Message = {"type": "http.disconnect"}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.middleware.disconnect._PATIENCE", 0)


def piece(size: int, *, more: bool = True) -> Message:
    return {"type": "http.request", "body": b"x" * size, "more_body": more}


class Server:
    """The server's side of a request: a queue of messages, as servers have one."""

    def __init__(self, *messages: Message) -> None:
        self.queue = asyncio.Queue[Message]()
        for message in messages:
            self.queue.put_nowait(message)

    async def receive(self) -> Message:
        return await self.queue.get()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def alone() -> None:
        async with asyncio.timeout(60):
            await test()
        await settle()
        assert len(asyncio.all_tasks()) == 1  # nothing is left behind

    asyncio.run(alone())


async def settle() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


def test_work_that_does_not_wait_asks_for_nothing() -> None:
    async def test() -> None:
        server = Server(piece(1))
        ahead = ReadAhead(server.receive)
        assert await ahead.during(asyncio.sleep(0, "done")) == "done"
        assert ahead.receive == server.receive
        assert server.queue.qsize() == 1

    run(test)


def test_a_client_that_goes_away_cancels_the_work() -> None:
    async def test() -> None:
        server, ended = Server(piece(3), piece(0, more=False)), asyncio.Event()

        async def work() -> None:
            server.queue.put_nowait(GONE)
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        ahead = ReadAhead(server.receive)
        with pytest.raises(ClientGoneError):
            await ahead.during(work())
        assert ended.is_set()
        ahead.close()
        await asyncio.sleep(0)  # whoever waits on can: the task is not cancelled any more
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0

    run(test)


def test_a_client_that_goes_away_while_its_caller_is_found_is_no_error_of_the_application() -> None:
    class Waiting:
        async def verify(self, credential: str, now: float) -> Any:
            await asyncio.Event().wait()

    async def test() -> None:
        agent, sent = Agent(), list[Message]()

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": "/docs", "headers": [(b"x-api-key", KEY.encode())]}
        app = guarded(agent, verifiers={"key": Waiting(), "oauth": Waiting()})
        await app(scope, Server(GONE).receive, send)
        assert (agent.scopes, sent) == ([], [])

    run(test)


def test_work_that_swallows_its_end_is_no_answer() -> None:
    async def test() -> None:
        server = Server(GONE)

        async def work() -> str:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "let in"

        with pytest.raises(ClientGoneError):
            await ReadAhead(server.receive).during(work())

    run(test)


def test_what_was_read_ahead_is_handed_on_in_order_and_no_wait_is_given_up() -> None:
    async def test() -> None:
        server, go_on = Server(piece(1), piece(2)), asyncio.Event()
        ahead = ReadAhead(server.receive)
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        await ahead.during(go_on.wait())
        server.queue.put_nowait(piece(3, more=False))
        await settle()  # whoever waits for it began before
        server.queue.put_nowait(GONE)
        assert [await ahead.receive() for _ in range(4)] == [piece(1), piece(2), piece(3, more=False), GONE]
        ahead.close()

    run(test)


def test_a_message_that_came_when_the_wait_was_closed_is_not_lost() -> None:
    async def test() -> None:
        server, go_on = Server(), asyncio.Event()
        ahead = ReadAhead(server.receive)
        work = asyncio.create_task(ahead.during(go_on.wait()))
        await settle()
        go_on.set()
        server.queue.put_nowait(piece(7))
        await work
        ahead.close()
        assert await asyncio.wait_for(ahead.receive(), 60) == piece(7)

    run(test)


def test_a_server_that_shuts_down_is_not_a_client_that_goes_away() -> None:
    async def test() -> None:
        ahead = ReadAhead(Server().receive)

        async def request() -> None:
            try:
                await ahead.during(asyncio.Event().wait())
            finally:
                ahead.close()

        task = asyncio.create_task(request())
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settle()

    run(test)


def test_a_server_that_fails_fails_for_whoever_reads() -> None:
    async def test() -> None:
        async def receive() -> Message:
            raise OSError("broken")

        go_on = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        for reads in (True, False):
            ahead = ReadAhead(receive)
            await ahead.during(go_on.wait())
            if reads:
                with pytest.raises(OSError, match="broken"):
                    await ahead.receive()
            ahead.close()
            go_on.set()

    run(test)


@pytest.mark.parametrize(("sent", "left"), [(60_000, 0), (200_000, 1)])
def test_so_much_of_a_body_is_read_before_the_caller_is_known(sent: int, left: int) -> None:
    async def test() -> None:
        server = Server(*[piece(10_000) for _ in range(sent // 10_000)])
        ahead, go_on = ReadAhead(server.receive), asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, go_on.set)
        await ahead.during(go_on.wait())
        assert bool(server.queue.qsize()) == bool(left)
        assert sent - server.queue.qsize() * 10_000 < 80_000
        for _ in range(sent // 10_000):
            assert await ahead.receive() == piece(10_000)
        ahead.close()

    run(test)


def test_work_that_ends_at_once_needs_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async def at_once() -> str:
            return "done"

        async def waiting() -> str:
            await asyncio.sleep(0)
            return "done"

        timers: list[float] = []
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def counted(delay: float, *given: Any) -> asyncio.TimerHandle:
            timers.append(delay)
            return call_later(delay, *given)

        monkeypatch.setattr(loop, "call_later", counted)

        async def receive() -> Any:
            raise AssertionError("nothing is read ahead of work that is done")

        ahead = ReadAhead(receive)
        assert (await ahead.during(at_once()), timers) == ("done", [])
        assert (await ahead.during(waiting()), len(timers)) == ("done", 1)

    asyncio.run(main())


def test_what_the_work_raises_and_a_cancellation_reach_both_sides() -> None:
    async def main() -> None:
        seen: list[str] = []

        async def failing(*, waits: bool) -> None:
            if waits:
                await asyncio.sleep(0)
            raise ValueError("failed")

        async def endless() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        async def receive() -> Any:
            return await asyncio.Future()

        for waits in (False, True):
            with pytest.raises(ValueError, match="failed"):
                await ReadAhead(receive).during(failing(waits=waits))
        task = asyncio.create_task(ReadAhead(receive).during(endless()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["cancelled"]

    asyncio.run(main())


def test_a_request_that_is_over_before_its_message_is_asked_for_asks_for_none() -> None:
    """Seen with many requests that wait for 0.1 seconds: a coroutine of the server was made, and never awaited."""
    asked: list[str] = []

    async def receive() -> Message:
        asked.append("asked")
        return piece(1)

    async def request() -> None:
        ahead = ReadAhead(receive)
        watch = asyncio.create_task(ahead._take(asyncio.create_task(settle())))
        await asyncio.sleep(0)  # the watch has made the task that asks, and that has not begun
        ahead.close()
        watch.cancel()
        await settle()
        gc.collect()

    run(request)
    assert asked == []
