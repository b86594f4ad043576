"""Batches look-ups in a store: one round trip at a time; later look-ups share the next one."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any, Final, Generic, TypeAlias, TypeVar

from a2a_trust.base.cache import SingleFlight
from a2a_trust.errors import KeySourceUnavailableError

_K = TypeVar("_K")
_V = TypeVar("_V")

_TOGETHER: Final = 100
"""The most keys of one round trip: on a disk that takes 10 ms for each read, it still ends within seconds."""
_ALONE: Final = 16
"""How many keys have a round trip of their own after the store has failed for one of several."""
_WAITING: Final = 10_000
"""The most unknown keys that wait: more of them come only from a flood."""

_Queue: TypeAlias = dict[_K, Future[_V | None]]


class LookUps(Generic[_K, _V]):
    """Looks keys up in a store, up to 100 in one round trip.

    A flood of unknown keys delays a valid key only by the round trips before it: they are short, a key is looked up
    once for all waiting requests, and the number of waiting keys is bounded. Keys with ``first`` are in the next round
    trips; the caller bounds their number. Each event loop has its own round trips.
    """

    def __init__(self, find: Callable[[tuple[_K, ...]], Coroutine[Any, Any, Mapping[_K, _V] | None]]) -> None:
        """``find`` gets up to 100 keys, and returns the values of those that there are. It needs a time limit.

        None from ``find``: the store fails for one of these keys only. The next 16 keys then have round trips of their
        own, and ``find`` of the one key ends in KeySourceUnavailableError.
        """
        self._find = find
        self._round_trips = SingleFlight[None, None]()
        #: The look-ups of each event loop that wait or are under way: those that go first, and the others.
        self._waiting: dict[AbstractEventLoop, tuple[_Queue[_K, _V], _Queue[_K, _V]]] = {}

    async def find(self, key: _K, *, first: bool = False) -> _V | None:
        """The value; None if there is none. It raises as ``begin`` and the look-up do."""
        future = self.begin(key, first=first)
        await asyncio.wait([future])  # a caller that is cancelled does not cancel the look-up, which others wait for
        return future.result()

    async def find_within(self, seconds: float, keys: Iterable[_K], *, first: bool = False) -> dict[_K, _V]:
        """The values that are found within so many seconds. A look-up that fails finds none."""
        futures: dict[_K, Future[_V | None]] = {}
        with suppress(KeySourceUnavailableError):  # too many wait
            for key in keys:
                futures[key] = self.begin(key, first=first)
        if futures:
            await asyncio.wait(futures.values(), timeout=seconds)
        ended = {key: each for key, each in futures.items() if each.done() and not each.cancelled()}
        return {
            key: found for key, each in ended.items() if not each.exception() and (found := each.result()) is not None
        }

    def begin(self, key: _K, *, first: bool = False) -> Future[_V | None]:
        """The look-up of this key, without waiting for it.

        KeySourceUnavailableError: too many wait already, and this one does not go ``first``.
        """
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(loop)
        if waiting is None:
            for closed in [each for each in [*self._waiting] if each.is_closed()]:
                self._waiting.pop(closed, None)
            waiting = self._waiting[loop] = ({}, {})
        ahead, others = waiting
        future = ahead.get(key) or others.get(key)
        if future is None:
            if not first and len(others) >= _WAITING:
                raise KeySourceUnavailableError("too many look-ups wait for the store")
            future = loop.create_future()
            (ahead if first else others)[key] = future
        elif first and key in others:  # it goes ahead from now on
            ahead[key] = others.pop(key)
        self._round_trips.begin(None, partial(self._work, ahead, others))
        return future

    async def _work(self, ahead: _Queue[_K, _V], others: _Queue[_K, _V]) -> None:
        """Make round trips until no key waits. One that fails ends all of them: the next would fail, too."""
        alone = 0
        try:
            while keys := tuple(islice(chain(ahead, others), 1 if alone else _TOGETHER)):
                found = await self._find(keys)
                if found is None and len(keys) > 1:
                    alone = _ALONE
                    continue
                alone = max(alone - 1, 0)
                for key in keys:
                    future = (ahead if key in ahead else others).pop(key)
                    if found is None:
                        _fail(future, KeySourceUnavailableError("the store fails for this key", counts_as_failure=True))
                    else:
                        future.set_result(found.get(key))
        except Exception as error:  # noqa: BLE001  the waiting requests get it
            for future in chain(ahead.values(), others.values()):
                _fail(future, error)
        finally:
            for future in chain(ahead.values(), others.values()):
                future.cancel()  # with the loop; a future with a result keeps it
            ahead.clear()
            others.clear()


def _fail(future: Future[Any], error: Exception) -> None:
    future.set_exception(error)
    future.exception()  # retrieved, because perhaps no request waits for it any more
