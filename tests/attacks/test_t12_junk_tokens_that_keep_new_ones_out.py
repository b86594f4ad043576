"""T12: one address sends so many invented opaque tokens that the authorization server is asked about no others.

Few questions are under way at once, and few wait. If they were first come, first served, 200 invented tokens a second
would take every place, and callers with new tokens would get 503. The same if status 429 were an outage for everybody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from a2a_trust.auth import introspection_endpoint as endpoint
from tests.auth.introspecting import IntrospectionServer, active, introspecting, verifier_for
from tests.middleware.agent import CARD, Agent, guarded, verifiers
from tests.tables import walk

pytestmark = pytest.mark.anyio

ANN = "192.0.2.7"
ATTACKERS = {
    "one address": ["198.51.100.66"],
    "/64": [f"2001:db8:0:1::{number:x}" for number in range(1, 31)],
    "/56": [f"2001:db8:0:{number:x}::1" for number in range(30)],
    "/48": [f"2001:db8:0:{number:x}00::1" for number in range(30)],
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class World:
    """A server, and an agent that may ask it two questions at once, while ten wait for as long as the test takes."""

    def __init__(self, server: IntrospectionServer) -> None:
        self.server = server
        given = {**verifiers(), "oauth": verifier_for(server, timeout=60.0)}
        self._app = guarded(Agent(), CARD, verifiers=given)

    async def status(self, token: str, peer: str = ANN) -> int:
        transport = httpx.ASGITransport(self._app, client=(peer, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
            return (await http.post("/rpc", headers={"Authorization": f"Bearer {token}"})).status_code

    def begin(self, token: str, peer: str = ANN) -> asyncio.Task[int]:
        return asyncio.create_task(self.status(token, peer))


@asynccontextmanager
async def world(monkeypatch: pytest.MonkeyPatch, **tokens: Any) -> AsyncIterator[World]:
    monkeypatch.setattr(endpoint, "_AT_ONCE", 2)
    monkeypatch.setattr(endpoint, "_MOST_WAITING", 10)
    monkeypatch.setattr(endpoint, "_WAIT", 600.0)
    monkeypatch.setattr(endpoint, "_PATIENCE", 60.0)
    async with introspecting(**tokens) as server:
        yield World(server)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


def done(tasks: list[asyncio.Task[int]]) -> int:
    return sum(task.done() for task in tasks)


@pytest.mark.parametrize("peers", ATTACKERS.values(), ids=ATTACKERS)
async def test_a_new_token_of_another_peer_is_asked_about_next(
    monkeypatch: pytest.MonkeyPatch, peers: list[str]
) -> None:
    async with world(monkeypatch, good=active()) as attacked:
        attacked.server.open.clear()
        flood = [attacked.begin(f"junk-{number}", peers[number % len(peers)]) for number in range(30)]
        await until(lambda: done(flood) == 30 - 2 - 10)
        good = attacked.begin("good")
        await until(lambda: done(flood) == 30 - 2 - 9)  # one of theirs made room
        assert not good.done()
        attacked.server.open.set()
        assert await good == 200
        assert attacked.server.asked.index("good") <= 2 + 2
        assert sorted(await asyncio.gather(*flood)) == [401] * 11 + [503] * 19


async def test_tokens_that_were_valid_before_take_turns_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come before others, also those of an attacker who has many."""
    tokens = {name: active() for name in ["good", *(f"own-{number}" for number in range(20))]}
    async with world(monkeypatch, **tokens) as attacked:
        for name in tokens:
            await attacked.status(name)
        verifier: Any = attacked._app.access.guard._schemes["oauth"].verifier
        verifier._valid.remove_where(lambda _: True)  # as thirty seconds later
        attacked.server.asked.clear()
        attacked.server.open.clear()
        flood = [attacked.begin(f"own-{number}", "198.51.100.66") for number in range(20)]
        await until(lambda: done(flood) == 20 - 2 - 10)
        good = attacked.begin("good")
        await until(lambda: done(flood) == 20 - 2 - 9)
        attacked.server.open.set()
        assert await good == 200
        assert attacked.server.asked.index("good") <= 2 + 2
        await asyncio.gather(*flood)


class Clock:
    """The clock of the event loop and of the outage rules, which jumps when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        real = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: real() + self.ahead)


def limited(retry_after: str = "60") -> tuple[str, bytes]:
    return f"429 Too Many Requests\r\nRetry-After: {retry_after}", b"slow down"


@pytest.mark.parametrize("retry_after", ["60", "3600", "9" * 40, "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_status_429_ends_questions_for_a_minute_at_most_and_is_no_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, retry_after: str
) -> None:
    clock = Clock(monkeypatch)
    async with world(monkeypatch, known=active(), good=active()) as attacked:
        monkeypatch.setattr(endpoint, "_WAIT", 5.0)
        assert await attacked.status("known") == 200
        attacked.server.failing = limited(retry_after)
        assert await attacked.status("good") == 503
        attacked.server.failing = None
        for clock.ahead in (0.0, 20.0):
            assert [await attacked.status(each) for each in ("good", "other")] == [503, 503]
            assert await attacked.status("known") == 200  # from the cache
        assert attacked.server.asked == ["known", "good"]  # and not about a token that nobody has
        clock.ahead = 60.0
        assert await attacked.status("good") == 200
    (record,) = [each for each in caplog.records if each.name == endpoint.__name__]
    assert (record.levelno, "the server limits the requests (429)" in record.getMessage()) == (logging.WARNING, True)


@walk("retry_after", ["0", "", "soon", "-5", "Mon, 99 Foo 2026 00:00:00 GMT"])
async def test_without_a_time_it_is_a_second(monkeypatch: pytest.MonkeyPatch, retry_after: str) -> None:
    clock = Clock(monkeypatch)
    async with world(monkeypatch, good=active()) as attacked:
        monkeypatch.setattr(endpoint, "_WAIT", -600.0)  # nobody waits for the end of a pause
        attacked.server.failing = limited(retry_after)
        assert await attacked.status("good") == 503
        attacked.server.failing = None
        assert await attacked.status("good") == 503
        clock.ahead = 1.0
        monkeypatch.setattr(endpoint, "_WAIT", 600.0)
        assert await attacked.status("good") == 200
        assert len(attacked.server.asked) == 2


async def test_who_made_the_server_answer_429_does_not_get_all_of_the_next_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    async with world(monkeypatch, good=active()) as attacked:
        attacked.server.failing = limited()
        assert await attacked.status("junk", "198.51.100.66") == 503
        attacked.server.failing = None
        flood = [attacked.begin(f"junk-{number}", "198.51.100.66") for number in range(30)]
        await until(lambda: done(flood) == 30 - 10)
        good = attacked.begin("good")
        await until(lambda: done(flood) == 30 - 9)
        assert attacked.server.asked == ["junk"]
        clock.ahead = 60.0
        assert await good == 200
        assert attacked.server.asked.index("good") <= 2
        await asyncio.gather(*flood)


async def test_status_429_after_an_outage_shows_that_the_server_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    async with world(monkeypatch, good=active()) as attacked:
        attacked.server.failing = "500 Oops", b"{}"
        assert await attacked.status("good") == 503
        clock.ahead = 5.0
        attacked.server.failing = limited("2")
        assert await attacked.status("good") == 503
        attacked.server.failing = None
        clock.ahead = 7.0
        assert await attacked.status("good") == 200


async def test_a_caller_with_many_valid_tokens_keeps_out_no_new_ones() -> None:
    turns = endpoint._Slots()
    asked = [asyncio.create_task(turns.take(("198.51.100.66",), first=True)) for _ in range(200)]
    await asyncio.sleep(0)
    new = asyncio.create_task(turns.take((ANN,), first=False))
    await asyncio.sleep(0)
    for _ in range(4):
        turns.give_back()
    assert await new
    assert sum(each.done() for each in asked) <= 16 + 3
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
