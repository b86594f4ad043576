"""T1: strangers invent opaque tokens, flood the authorization server with questions, and keep callers waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from a2a_trust.auth import introspection_endpoint
from a2a_trust.errors import InvalidCredentialsError, KeySourceUnavailableError
from tests.auth.introspecting import active, introspecting, verifier_for
from tests.auth.test_jwt import NOW

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of 100 in place of 1,000, and nothing that ends by the clock."""
    monkeypatch.setattr(introspection_endpoint, "_MOST_WAITING", 100)
    for name in ("_WAIT", "_PATIENCE"):
        monkeypatch.setattr(introspection_endpoint, name, 60.0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def turns(count: int = 100) -> None:
    """All that can go on without the server has gone on."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_storm_makes_few_questions_at_once_and_a_remembered_token_does_not_wait() -> None:
    async with introspecting(good=active()) as server:
        verifier = verifier_for(server, timeout=60.0)
        good = await verifier.verify("good", NOW)
        server.open.clear()  # as slow as a server can be
        storm = [asyncio.create_task(verifier.verify(f"junk-{number}", NOW)) for number in range(300)]
        await until(lambda: sum(task.done() for task in storm) >= 300 - 16 - 100)
        assert await verifier.verify("good", NOW) is good  # the server answers nothing before ``open`` is set
        assert len(server.asked) <= 1 + 16
        assert sum(task.done() for task in storm) == 300 - 16 - 100
        server.open.set()
        found = await asyncio.gather(*storm, return_exceptions=True)
        assert server.busiest <= 16
        assert {type(each) for each in found} == {InvalidCredentialsError, KeySourceUnavailableError}


async def test_one_invented_token_again_and_again_makes_one_question() -> None:
    async with introspecting() as server:
        verifier = verifier_for(server, timeout=60.0)
        for _ in range(5):
            found = await asyncio.gather(*(verifier.verify("junk", NOW) for _ in range(100)), return_exceptions=True)
            assert {type(each) for each in found} == {InvalidCredentialsError}
        assert server.asked == ["junk"]


async def test_callers_that_go_away_leave_no_questions_behind_and_none_that_others_need() -> None:
    async with introspecting(good=active()) as server:
        verifier = verifier_for(server, timeout=60.0)
        server.open.clear()
        leaving = [asyncio.create_task(verifier.verify("good", NOW)) for _ in range(50)]
        staying = asyncio.create_task(verifier.verify("good", NOW))
        await until(lambda: server.asked == ["good"])
        for each in leaving:
            each.cancel()
        await turns()
        server.open.set()
        assert (await staying).subject == "ann"
        assert server.asked == ["good"]


async def test_junk_keeps_nobody_out_whose_remembered_token_has_to_be_asked_about_again() -> None:
    """Else it would be 503 for as long as strangers keep the queue full."""
    async with introspecting(good=active()) as server:
        verifier = verifier_for(server, timeout=60.0)
        await verifier.verify("good", NOW)
        server.open.clear()
        storm = [asyncio.create_task(verifier.verify(f"junk-{number}", NOW)) for number in range(200)]
        await until(lambda: any(task.done() for task in storm))
        again = asyncio.create_task(verifier.verify("good", NOW + 31))
        await turns()
        server.open.set()
        assert (await again).subject == "ann"
        assert server.asked.index("good", 1) <= 1 + 2 * 16  # no later than the first of those that waited
        await asyncio.gather(*storm, return_exceptions=True)


async def test_a_revoked_token_has_no_better_place_than_others() -> None:
    async with introspecting(good=active()) as server:
        verifier = verifier_for(server, timeout=60.0)
        await verifier.verify("good", NOW)
        server.tokens.clear()
        with pytest.raises(InvalidCredentialsError):
            await verifier.verify("good", NOW + 31)
        assert len(verifier._were_valid) == 0
