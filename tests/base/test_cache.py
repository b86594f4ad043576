"""Bounded memories and single flights: bounds, order, ends, threads, cancelled callers, errors, several loops."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.base.cache import BoundedCache, SingleFlight
from a2a_trust.errors import ConfigurationError
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# BoundedCache


def test_the_entry_that_was_put_first_leaves_first() -> None:
    cache: BoundedCache[str, int] = BoundedCache(max_entries=3)
    for number, key in enumerate("abc"):
        cache.put(key, number)
    assert cache.get("a") == 0  # a hit moves nothing
    cache.put("b", 7)  # to be put again does
    cache.put("d", 3)
    cache.put("e", 4)
    assert [cache.get(key) for key in "abcde"] == [None, 7, None, 3, 4]
    assert len(cache) == 3


def test_bytes_bound_a_cache_too() -> None:
    cache: BoundedCache[str, str] = BoundedCache(max_entries=100, max_bytes=10)
    cache.put("a", "first", size=4)
    cache.put("b", "second", size=6)
    assert cache._bytes == 10
    cache.put("c", "third", size=1)
    assert (cache.get("a"), cache.get("b"), cache._bytes) == (None, "second", 7)
    cache.put("b", "smaller", size=2)
    assert cache._bytes == 3


def test_what_is_larger_than_the_cache_is_not_kept_and_drives_nothing_out() -> None:
    cache: BoundedCache[str, int] = BoundedCache(max_entries=100, max_bytes=10)
    cache.put("a", 1, size=5)
    cache.put("b", 2, size=5)
    cache.put("a", 3, size=11)
    assert (cache.get("a"), cache.get("b"), cache._bytes) == (None, 2, 5)  # nor is its old value


def test_an_entry_does_not_count_from_its_end_on_by_the_callers_clock() -> None:
    cache: BoundedCache[str, int] = BoundedCache(max_entries=3)
    cache.put("a", 1, until=10.0)
    assert [cache.get("a", now) for now in (9.9, 10.0, 11.0)] == [1, None, None]
    assert cache.get("a", 9.0) == 1  # the clock came back
    assert cache.get("a") == 1  # a caller without a clock


def test_an_entry_counts_from_its_begin_on() -> None:
    cache: BoundedCache[str, int] = BoundedCache(max_entries=3)
    cache.put("a", 1, since=5.0, until=10.0)
    cache.put("b", 2)
    assert [cache.get("a", now) for now in (4.9, 5.0, 10.0, float("nan"))] == [None, 1, None, None]
    assert [cache.items(now) for now in (4.9, 5.0)] == [[("b", 2)], [("a", 1), ("b", 2)]]
    assert cache.items() == [("a", 1), ("b", 2)]
    assert cache.get("a") == 1
    assert cache.entry("a") == (1, 5.0, 10.0, 0)
    cache.remove_where(lambda _: True)
    assert cache.entry("a") is None


def test_entries_are_removed_one_by_one_by_their_value_and_all() -> None:
    cache: BoundedCache[int, int] = BoundedCache(max_entries=10, max_bytes=100)
    for number in range(6):
        cache.put(number, number, size=2)
    cache.remove(0)
    cache.remove(99)
    cache.remove_where(lambda entry: entry[0] % 2 == 1)
    assert ([cache.get(number) for number in range(6)], cache._bytes) == ([None, None, 2, None, 4, None], 4)
    cache.remove_where(lambda _: True)
    assert (len(cache), cache._bytes, cache.get(2)) == (0, 0, None)


def test_an_entry_has_the_notes_of_its_caller_and_is_removed_by_them() -> None:
    cache: BoundedCache[str, int] = BoundedCache(max_entries=2, max_bytes=100)
    for number, name in enumerate("abc"):
        cache.put(name, number, until=10.0, size=3, notes=(name.upper(), number))
    assert cache.entry("b") == (1, float("-inf"), 10.0, 3, "B", 1)
    assert (cache.items(9.0), cache._bytes) == ([("b", 1), ("c", 2)], 6)
    cache.remove_where(lambda entry: entry[4] == "B")
    assert (cache.items(), cache._bytes) == ([("c", 2)], 3)


def test_a_cache_without_room_keeps_nothing() -> None:
    cache: BoundedCache[str, int] = BoundedCache(max_entries=0)
    cache.put("a", 1)
    assert (len(cache), cache.get("a")) == (0, None)


@walk(("entries", "octets"), [(-1, 1), (True, 1), (1.0, 1), ("1", 1), (1, -1), (1, float("nan"))])
def test_bounds_are_numbers(entries: int, octets: float) -> None:
    with pytest.raises(ConfigurationError, match="write 0 or more"):
        BoundedCache(max_entries=entries, max_bytes=octets)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 7), st.booleans())))
def test_whatever_is_done_the_bounds_hold_and_the_sum_is_right(steps: list[tuple[int, int, bool]]) -> None:
    cache: BoundedCache[int, int] = BoundedCache(max_entries=4, max_bytes=12)
    last: dict[int, int] = {}
    for key, size, puts in steps:
        if puts:
            cache.put(key, size, size=size)
            last[key] = size
        else:
            cache.remove(key)
            last.pop(key, None)
        held = [value for key in last if (value := cache.get(key)) is not None]
        assert cache._bytes == sum(held) <= 12
        assert len(cache) == len(held) <= 4
        assert not puts or cache.get(key) == size  # the newest is there


def test_threads_that_change_one_cache_leave_it_whole() -> None:
    cache: BoundedCache[int, int] = BoundedCache(max_entries=50, max_bytes=1_000)

    def change(seed: int) -> None:
        for step in range(3_000):
            key = (seed * 31 + step * 7) % 100
            cache.put(key, key, size=key % 30)
            found = cache.get((key + 1) % 100)
            assert found is None or found == (key + 1) % 100
            if step % 50 == 0:
                cache.remove_where(lambda entry: entry[0] % 10 == seed)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(4)))
    held = [value for key in range(100) if (value := cache.get(key)) is not None]
    assert len(cache) == len(held) <= 50
    assert cache._bytes == sum(value % 30 for value in held) <= 1_000


# SingleFlight


class Work:
    """Work that ends when it is told to, and counts how often it began."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return number


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_callers_who_want_the_same_wait_for_one_call() -> None:
    flights, work, other = SingleFlight[str, int](), Work(), Work()
    same = [asyncio.create_task(flights.run("a", work)) for _ in range(20)]
    another = asyncio.create_task(flights.run("b", other))
    await settle()
    assert (work.begun, other.begun) == (1, 1)
    work.go.set()
    other.go.set()
    assert await asyncio.gather(*same, another) == [1] * 21
    assert await flights.run("a", work) == 2  # a result is not remembered


async def test_a_caller_that_is_cancelled_leaves_the_call_to_the_others() -> None:
    flights, work = SingleFlight[str, int](), Work()
    first, second = (asyncio.create_task(flights.run("a", work)) for _ in range(2))
    await settle()
    first.cancel()
    await settle()
    assert first.cancelled()
    work.go.set()
    assert (await second, work.begun) == (1, 1)


async def test_a_call_goes_on_when_nobody_waits_and_serves_who_comes_then() -> None:
    flights, work = SingleFlight[str, int](), Work()
    only = asyncio.create_task(flights.run("a", work))
    await settle()
    only.cancel()
    await settle()
    late = asyncio.create_task(flights.run("a", work))
    await settle()
    work.go.set()
    assert (await late, work.begun) == (1, 1)


async def test_an_error_reaches_everybody_and_is_not_remembered() -> None:
    flights, work = SingleFlight[str, int](), Work()
    work.error = ConfigurationError("no")
    work.go.set()
    done = await asyncio.gather(*[flights.run("a", work) for _ in range(5)], return_exceptions=True)
    assert [type(each) for each in done] == [ConfigurationError] * 5
    work.error = None
    assert await flights.run("a", work) == 2


async def test_a_call_that_has_just_ended_is_not_joined() -> None:
    flights, work = SingleFlight[str, int](), Work()
    work.go.set()
    first = flights.begin("a", work)
    while not first.done():
        await asyncio.sleep(0)  # what is told of its end comes later in the loop
    second = flights.begin("a", work)
    assert second is not first
    await settle()
    assert flights.running("a") is None
    assert await flights.wait(second) == 2


async def test_nothing_is_left_of_calls_that_have_ended() -> None:
    flights, work = SingleFlight[str, int](), Work()
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    work.error = ConfigurationError("nobody waits for this")
    work.go.set()
    before = asyncio.all_tasks()
    flights.begin("a", work)
    await settle()
    gc.collect()
    assert (told, flights._flights, asyncio.all_tasks()) == ([], {}, before)


async def test_a_call_does_not_carry_the_request_of_its_first_caller_along() -> None:
    request = contextvars.ContextVar("request", default="none")
    request.set("the first caller's")

    async def work() -> str:
        return request.get()

    assert await SingleFlight[str, str]().run("a", work) == "none"


def test_a_call_that_died_with_its_loop_is_in_nobodys_way() -> None:
    flights = SingleFlight[str, int]()

    async def hang() -> int:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def begin() -> None:
        flights.begin("a", hang)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()

    async def answer() -> int:
        return 7

    async def ask() -> tuple[int, int]:
        found = await flights.run("a", answer)
        return found, len(flights._flights)

    assert asyncio.run(asyncio.wait_for(ask(), 60)) == (7, 0)


def test_loops_in_several_threads_have_calls_of_their_own() -> None:
    flights, both = SingleFlight[str, str](), threading.Barrier(2, timeout=60)

    async def work() -> str:
        both.wait()  # only if both loops are at work at once
        return threading.current_thread().name

    def serve() -> bool:
        async def ask() -> list[str]:
            return await asyncio.gather(*[flights.run("a", work) for _ in range(3)])

        return asyncio.run(ask()) == [threading.current_thread().name] * 3

    with ThreadPoolExecutor(2) as pool:
        assert [each.result() for each in [pool.submit(serve) for _ in range(2)]] == [True, True]
