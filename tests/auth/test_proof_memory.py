"""The memories of used proofs: first use, room, shares, and clocks; the rules are those of both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from a2a_trust.auth.proofs.memory import DroppedTimes, ProofMemory, VolatileProofMemory
from a2a_trust.auth.proofs.shared import PostgresProofMemory, RedisProofMemory, SharedProofMemory, State, Use
from a2a_trust.auth.proofs.sqlite import SqliteProofMemory
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError, TooManyRequestsError
from tests.auth.test_jwt import NOW
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


DAY = 86_400.0

Make = Callable[..., ProofMemory]


class OfTheTest(SharedProofMemory[Any]):
    """A memory in a database whose clock is that of the test; it closes its connections when nothing waits."""

    waiting = 0

    async def first_use(self, jkt: str, jti: str, **times: float) -> bool:
        self.waiting += 1
        try:
            return await super().first_use(jkt, jti, **times)
        finally:
            self.waiting -= 1
            if not self.waiting:
                await self.aclose()

    async def _remember(self, uses: tuple[Use, ...]) -> tuple[State, Any]:
        state, first = await super()._remember(uses)
        return state._replace(at=uses[0].now), first


class OfRedis(OfTheTest, RedisProofMemory):
    pass


class OfPostgres(OfTheTest, PostgresProofMemory):
    pass


def _sqlite(request: pytest.FixtureRequest) -> Make:
    path = request.getfixturevalue("tmp_path") / "proofs.db"
    return lambda **options: SqliteProofMemory(path, create=True, timeout=60, **options)


def _redis(request: pytest.FixtureRequest) -> Make:
    url = request.getfixturevalue("redis_url")
    return lambda **options: OfRedis(url, timeout=60, **options)


def _postgres(request: pytest.FixtureRequest) -> Make:
    url = request.getfixturevalue("postgres_url")
    return lambda **options: OfPostgres(url, timeout=60, **options)


LOCAL: dict[str, Callable[[pytest.FixtureRequest], Make]] = {
    "volatile": lambda _: VolatileProofMemory,
    "sqlite": _sqlite,
}
SHARED: dict[str, Callable[[pytest.FixtureRequest], Make]] = {"redis": _redis, "postgres": _postgres}
_SHARED = [pytest.param(name, marks=pytest.mark.real) for name in SHARED]


@pytest.fixture(params=[*LOCAL, *_SHARED])
def make(request: pytest.FixtureRequest) -> Make:
    return {**LOCAL, **SHARED}[request.param](request)


@pytest.fixture(params=LOCAL)
def local(request: pytest.FixtureRequest) -> Make:
    """Memories of one machine, whose one clock says what was dropped."""
    return LOCAL[request.param](request)


@pytest.fixture(params=_SHARED)
def shared(request: pytest.FixtureRequest) -> Make:
    return SHARED[request.param](request)


async def use(
    memory: ProofMemory, jti: str, *, jkt: str = "key", now: float = NOW, iat: float | None = None, window: float = 60
) -> bool:
    return await memory.first_use(jkt, jti, now=now, issued=now if iat is None else iat, window=window)


async def test_a_proof_is_used_for_the_first_time_once(make: Make) -> None:
    memory = make()
    assert [await use(memory, "1"), await use(memory, "1"), await use(memory, "1", iat=NOW - 5)] == [True, False, False]
    assert await use(memory, "1", jkt="another key")
    assert await use(memory, "2")


async def test_of_many_at_once_one_is_the_first(make: Make) -> None:
    memory = make()
    assert sum(await asyncio.gather(*[use(memory, "1") for _ in range(50)])) == 1
    with ThreadPoolExecutor(4) as threads:  # and in event loops of their own
        assert sum(threads.map(lambda _: asyncio.run(use(memory, "2")), range(64))) == 1


@pytest.mark.parametrize("iat", [-60, -53, 0, 5, 60])
async def test_a_proof_is_remembered_until_its_end(make: Make, iat: float) -> None:
    memory = make()
    assert await use(memory, "1", iat=NOW + iat)
    moment, number = NOW, 1
    while moment <= NOW + iat + 60:
        number += 1
        assert await use(memory, str(number), now=moment)  # others come, and old ones are dropped
        assert not await use(memory, "1", now=moment, iat=NOW + iat)
        moment += 6.9
    assert not await use(memory, "1", now=NOW + iat + 60, iat=NOW + iat)


async def test_a_full_memory_refuses_and_forgets_nothing(make: Make) -> None:
    memory = make(capacity=3)
    used = [(f"key {number}", str(number)) for number in range(3)]
    for jkt, jti in used:
        assert await use(memory, jti, jkt=jkt)
    for _ in range(3):
        with pytest.raises(KeySourceUnavailableError, match=r"full, with 3; .*ProofMemory\(.*capacity=…"):
            await use(memory, "new", jkt="new key")
        for jkt, jti in used:
            assert not await use(memory, jti, jkt=jkt)
    assert await use(memory, "new", jkt="new key", now=NOW + 62)  # what has ended made room


async def test_a_key_that_used_up_its_share_is_refused_and_the_others_go_on(make: Make) -> None:
    memory = make(capacity=64)
    for number in range(4):
        assert await use(memory, str(number), jkt="greedy")
    for _ in range(3):
        with pytest.raises(TooManyRequestsError, match="the key 'greedy' used 4 in a few minutes"):
            await use(memory, "more", jkt="greedy")
        assert not await use(memory, "0", jkt="greedy")  # a used one is still told from a new one
    for number in range(4):
        assert await use(memory, str(number), jkt="modest")
    for number in range(4):
        assert await use(memory, f"later {number}", jkt="greedy", now=NOW + 62)
    with pytest.raises(TooManyRequestsError):
        await use(memory, "more", jkt="greedy", now=NOW + 62)


async def test_a_busy_client_is_within_its_share(make: Make) -> None:
    """62,500 of a million: some 900 requests a second in a minute; here a thousandth of both."""
    memory = make(capacity=1_000)
    for number in range(60):
        assert await use(memory, str(number), now=NOW + number / 0.9)


async def test_a_window_that_grows_brings_no_used_proof_back(make: Make) -> None:
    """Workers of two configurations share a file for a while, or one follows the other."""
    memory = make()
    assert await use(memory, "1", window=10)
    assert await use(memory, "2", now=NOW + 13, window=10)  # this drops what has ended
    with pytest.raises(KeySourceUnavailableError, match="another window was configured before"):
        await use(memory, "1", now=NOW + 14, iat=NOW, window=60)
    assert not await use(memory, "2", now=NOW + 14, iat=NOW + 13, window=60)


async def test_requests_that_overtake_each_other_are_no_clock_that_ran_ahead(make: Make) -> None:
    """With the largest window, a proof at its late edge comes before a request whose clock was read earlier."""
    memory = make()
    assert await use(memory, "1", now=NOW, iat=NOW + 300, window=300)
    assert await use(memory, "2", now=NOW - 5, window=300)
    assert not await use(memory, "1", now=NOW + 1, iat=NOW + 300, window=300)
    assert await use(memory, "3", now=NOW + 300, window=300)


# Clocks


async def test_where_the_clock_goes_back_to_dropped_times_nobody_can_tell(make: Make) -> None:
    """Requests read the time, and then wait for the issuer's keys: they do not come in the order of their times."""
    memory = make()
    assert await use(memory, "1")
    assert await use(memory, "2", now=NOW + 75)  # this drops what has ended
    for jti in ("1", "new"):
        with pytest.raises(KeySourceUnavailableError, match="clock"):
            await use(memory, jti, now=NOW + 59, iat=NOW)
    assert await use(memory, "3", now=NOW + 59, iat=NOW + 60)  # and what was surely not dropped is as good as ever


@pytest.mark.parametrize("ahead", [0, 30, 300, 5_000])
async def test_a_clock_that_ran_ahead_for_some_time_and_came_back_refuses_nobody(local: Make, ahead: int) -> None:
    """Everything counted as used until the clock had caught up: for a day."""
    memory = local()
    assert await use(memory, "before")
    for passed in range(0, ahead + 1, 10):
        assert await use(memory, f"ahead {passed}", now=NOW + DAY + passed)
    assert await use(memory, "after", now=NOW + ahead + 1)
    if ahead < 60:
        with_clock_right = await _told(use(memory, "before", now=NOW + ahead + 1, iat=NOW))
        assert with_clock_right is not True
    for passed in range(0, ahead + 1, 10):  # a day later, the clock passes those times again
        assert await _told(use(memory, f"ahead {passed}", now=NOW + DAY + passed)) is not True


async def test_clocks_that_all_ran_ahead_refuse_until_they_are_there_again(shared: Make) -> None:
    """A database drops proofs by its own clock, so all times before the latest one are uncertain."""
    memory, another = shared(), shared()
    assert await use(another, "before")
    assert await use(memory, "ahead", now=NOW + DAY)
    for jti in ("before", "after"):
        with pytest.raises(KeySourceUnavailableError, match="clock"):
            await use(memory, jti, now=NOW + 1, iat=NOW)
        with pytest.raises(KeySourceUnavailableError, match="a clock was set back"):
            await use(another, f"{jti} {jti}", now=NOW + 1, iat=NOW)
    started_later = shared()
    assert not await use(started_later, "ahead", now=NOW + DAY)
    assert await use(started_later, "new", now=NOW + DAY)


async def _told(work: Any) -> object:
    try:
        return await work
    except KeySourceUnavailableError as error:
        return error


async def test_proofs_of_a_clock_that_ran_ahead_take_no_room(local: Make) -> None:
    memory = local(capacity=16)
    for number in range(16):
        assert await use(memory, str(number), jkt=f"key {number}", now=NOW + DAY)
    for number in range(16):
        assert await use(memory, f"new {number}", jkt=f"key {number}", now=NOW + 1)
    assert await _told(use(memory, "0", jkt="key 0", now=NOW + DAY)) is not True


def test_dropped_times_are_a_few_ranges_and_never_forget_one() -> None:
    dropped, added = DroppedTimes(), [*range(0, 100_000, 1_000), 10**7]
    for second in added:
        dropped.add(second)
        dropped.add(second + 50)
    assert len(dropped.ranges) <= 16
    for second in added:
        for inside in (second, second + 20, second + 50):
            with pytest.raises(KeySourceUnavailableError):
                dropped.check(inside)
    for outside in (added[-1] - 1_000, added[-2] + 1_000, added[-2] + 51, added[-2] - 500):
        dropped.check(outside)


# Wrong use


@walk("capacity", [0, -1, 1.5, True, None])
def test_a_memory_has_room_for_one_at_least(make: Make, capacity: Any) -> None:
    with pytest.raises(ConfigurationError, match="ProofMemory: capacity must be a number of proofs"):
        make(capacity=capacity)


async def test_to_forget_a_proof_leaves_a_later_one_of_the_same_name() -> None:
    """A request waited for a database until its proof had ended, and another one used the name meanwhile."""
    memory = VolatileProofMemory()
    assert await use(memory, "1")
    assert await use(memory, "1", now=NOW + 70)
    memory.forget("key", "1", issued=NOW)
    assert not await use(memory, "1", now=NOW + 70)
    memory.forget("key", "1", issued=NOW + 70)
    assert await use(memory, "1", now=NOW + 70)
