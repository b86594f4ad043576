"""Look-ups together: one trip at a time, one look-up for all who want the same, and a bound for floods."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

import pytest

import a2a_trust.base.cache as subject
from a2a_trust.base.cache import LookUps
from a2a_trust.errors import KeySourceUnavailableError
from tests.waiting import settled

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Place:
    """Where numbers are looked up: even ones are there. It holds everybody up until ``gate`` is set."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.trips: list[tuple[int, ...]] = []
        self.under_way = 0
        self.error: Exception | None = None

    async def find(self, keys: tuple[int, ...]) -> Mapping[int, str]:
        self.trips.append(keys)
        self.under_way += 1
        assert self.under_way == 1
        await self.gate.wait()
        self.under_way -= 1
        if self.error is not None:
            raise self.error
        return {key: str(key) for key in keys if key % 2 == 0}


async def test_who_comes_during_a_trip_shares_the_next_one() -> None:
    place = Place()
    look_ups = LookUps(place.find)
    first = asyncio.create_task(look_ups.find(0))
    await settled()
    others = [asyncio.create_task(look_ups.find(number)) for number in [*range(250), 0, 0, 7]]
    await settled()
    place.gate.set()
    assert await first == "0"
    assert await asyncio.gather(*others) == [None if n % 2 else str(n) for n in [*range(250), 0, 0, 7]]
    assert [len(trip) for trip in place.trips] == [1, 100, 100, 49]


async def test_a_failed_trip_ends_all_that_wait_and_is_not_remembered() -> None:
    place = Place()
    look_ups = LookUps(place.find)
    waiting = [asyncio.create_task(look_ups.find(number)) for number in range(250)]
    await settled()
    place.error = KeySourceUnavailableError("down")
    place.gate.set()
    assert {str(error) for error in await asyncio.gather(*waiting, return_exceptions=True)} == {"down"}
    assert len(place.trips) == 1
    place.error = None
    assert await look_ups.find(2) == "2"


async def test_a_key_that_the_store_fails_for_ends_its_own_look_up_alone() -> None:
    place = Place()
    place.gate.set()
    trips: list[tuple[int, ...]] = []

    async def find(keys: tuple[int, ...]) -> Mapping[int, str] | None:
        trips.append(keys)
        return None if 7 in keys or 13 in keys else await place.find(keys)

    look_ups = LookUps(find)
    found = await asyncio.gather(*map(look_ups.find, range(100)), return_exceptions=True)
    failed = [number for number, each in enumerate(found) if isinstance(each, KeySourceUnavailableError)]
    assert failed == [7, 13]
    assert all(getattr(found[number], "counts_as_failure", False) for number in failed)
    assert [each for each in found if not isinstance(each, BaseException)] == [
        None if number % 2 else str(number) for number in range(100) if number not in failed
    ]
    assert [len(trip) for trip in trips] == [100, *[1] * 16, 84]
    assert await look_ups.find(2) == "2"


async def test_one_who_goes_away_does_not_end_the_look_up_of_the_others() -> None:
    place = Place()
    look_ups = LookUps(place.find)
    gone, stays = (asyncio.create_task(look_ups.find(2)) for _ in range(2))
    await settled()
    gone.cancel()
    place.gate.set()
    assert await stays == "2"
    assert gone.cancelled()


async def test_a_flood_finds_a_bound_and_leaves_those_who_wait_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_WAITING", 150)
    place = Place()
    look_ups = LookUps(place.find)
    good = asyncio.create_task(look_ups.find(2))
    await settled()
    flood = [asyncio.create_task(look_ups.find(number)) for number in range(1001, 3001, 2)]
    await settled()
    refused = [task for task in flood if task.done()]
    assert len(refused) == 1000 - 149
    assert all(isinstance(task.exception(), KeySourceUnavailableError) for task in refused)
    place.gate.set()
    assert await good == "2"
    assert await asyncio.gather(*(task for task in flood if task not in refused)) == [None] * 149
    assert await look_ups.find(4) == "4"


async def test_keys_that_go_first_have_a_place_in_a_full_queue_and_the_next_trip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject, "_WAITING", 300)
    place = Place()
    look_ups = LookUps(place.find)
    under_way = asyncio.create_task(look_ups.find(1))
    await settled()
    flood = [asyncio.create_task(look_ups.find(number)) for number in range(1001, 3001, 2)]
    await settled()
    assert any(task.done() for task in flood)
    first = [asyncio.create_task(look_ups.find(number, first=True)) for number in (2, 1, 4, 1203)]  # two wait already
    await settled()
    place.gate.set()
    assert await asyncio.gather(*first) == ["2", None, "4", None]
    await asyncio.gather(under_way, *flood, return_exceptions=True)
    assert place.trips[0] == (1,)
    assert set(place.trips[1]) >= {2, 4, 1203}
    assert sum(trip.count(1203) for trip in place.trips) == 1
    assert sum(map(len, place.trips)) == 302


def test_loops_of_several_threads_make_trips_of_their_own() -> None:
    async def find(keys: tuple[int, ...]) -> Mapping[int, str]:
        await asyncio.sleep(0.001)
        return {key: str(key) for key in keys}

    look_ups = LookUps(find)
    done: list[list[str | None]] = []

    async def several() -> list[str | None]:
        return [await look_ups.find(number) for number in range(20)]

    for _ in range(2):  # loops that are closed are forgotten
        threads = [threading.Thread(target=lambda: done.append(asyncio.run(several()))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert done == [[str(number) for number in range(20)]] * 6
    assert len(look_ups._waiting._values) <= 3
