"""Bounded caches; single flight: one call for several callers that need the same result; look-ups in batches."""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import threading
from asyncio import AbstractEventLoop, Future, Task
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any, Final, Generic, TypeAlias, TypeVar

from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError

_K = TypeVar("_K")
_V = TypeVar("_V")

_Entry: TypeAlias = tuple[_V, float, float, int, *tuple[Any, ...]]


class BoundedCache(Generic[_K, _V]):
    """A mapping of at most ``max_entries`` entries and ``max_bytes`` bytes; the oldest entry is dropped first.

    Eviction is first in, first out: an order by last use made a hit 1.6 times as slow, even without its lock.

    The caller says how many bytes an entry takes. An entry that is larger than the whole cache is not kept.

    Threads: ``get`` takes no lock, and returns the whole value of one ``put``. The other methods run one at a time.
    Keys must be of types whose comparison runs no Python code, such as the built-in ones.
    """

    def __init__(self, *, max_entries: int, max_bytes: float = math.inf) -> None:
        """ConfigurationError: a bound is not a number of 0 or more. With 0 nothing is kept."""
        if type(max_entries) is not int or max_entries < 0 or not max_bytes >= 0:
            raise ConfigurationError(
                f"max_entries={max_entries!r}, max_bytes={max_bytes!r}: write 0 or more, max_entries as an int"
            )
        self._max_entries, self._max_bytes = max_entries, max_bytes
        #: Key -> value, begin and end of its validity, bytes, notes. Not a dict: finding the first entry of a dict
        #: walks over the places of all entries that were deleted before it.
        self._entries: OrderedDict[_K, _Entry[_V]] = OrderedDict()
        #: As ``get``, for a caller that compares the times itself. It saves a call: 14 % of a hit in ``CardVerifier``.
        self.entry: Callable[[_K], _Entry[_V] | None] = self._entries.get
        self._bytes = 0  # the sum of the sizes that the callers gave
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """The number of entries, expired ones included."""
        return len(self._entries)

    def get(self, key: _K, now: float | None = None) -> _V | None:
        """The value; None if there is no entry that is valid at ``now``. Without ``now`` every entry is valid."""
        entry = self._entries.get(key)
        return entry[0] if entry is not None and (now is None or entry[1] <= now < entry[2]) else None

    def items(self, now: float | None = None) -> list[tuple[_K, _V]]:
        """The keys and values of entries that are valid at ``now``, oldest first. Without ``now`` all are valid."""
        with self._lock:
            entries = list(self._entries.items())
        return [(key, value) for key, (value, since, until, *_) in entries if now is None or since <= now < until]

    def put(
        self,
        key: _K,
        value: _V,
        *,
        since: float = -math.inf,
        until: float = math.inf,
        size: int = 0,
        notes: tuple[Any, ...] = (),
    ) -> None:
        """Keep the value, of ``size`` bytes, as the newest entry. It is valid from ``since`` until just before
        ``until``, by the caller's clock. The entry also has the caller's ``notes``, from its fifth member on."""
        with self._lock:
            self._pop(key)
            if size > self._max_bytes:
                return
            self._entries[key] = value, since, until, size, *notes
            self._bytes += size
            while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
                _, dropped = self._entries.popitem(last=False)
                self._bytes -= dropped[3]

    def remove(self, key: _K) -> None:
        """Drop the entry; without one, do nothing."""
        with self._lock:
            self._pop(key)

    def remove_where(self, is_unwanted: Callable[[_Entry[_V]], bool]) -> None:
        """Drop the entries that match. It checks every entry."""
        with self._lock:
            for key in [key for key, entry in self._entries.items() if is_unwanted(entry)]:
                self._pop(key)

    def _pop(self, key: _K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry[3]


class SingleFlight(Generic[_K, _V]):
    """Callers that need the same result at the same time share one call.

    - Cancelling a caller does not cancel the call. The call runs to its end even without callers, so it needs its own
      time limit.
    - All waiting callers get its result or its error, which is not cached: the next caller begins a new call.
    - There is one call at a time for each key and *event loop*. Loops in other threads make their own calls, because a
      call ends with its loop.
    - The call runs in a new context, without the context variables of the first caller's request.
    """

    def __init__(self) -> None:
        self._flights: dict[AbstractEventLoop, dict[_K, Task[_V]]] = {}

    async def run(self, key: _K, work: Callable[[], Coroutine[Any, Any, _V]]) -> _V:
        """The result or the error of the running call for this key, or else of ``work()``."""
        return await self.wait(self.begin(key, work))

    def running(self, key: _K) -> Task[_V] | None:
        """The running call for this key in this event loop; None without one."""
        flight = self._flights.get(asyncio.get_running_loop(), {}).get(key)
        return None if flight is None or flight.done() else flight

    def begin(self, key: _K, work: Callable[[], Coroutine[Any, Any, _V]]) -> Task[_V]:
        """The running call for this key, or a new one. Await it with ``wait``."""
        flight = self.running(key)
        if flight is None:
            loop = asyncio.get_running_loop()
            for other in [*self._flights]:
                if other.is_closed():
                    self._flights.pop(other, None)  # its calls died with it
            flight = loop.create_task(work(), context=contextvars.Context())
            self._flights.setdefault(loop, {})[key] = flight
            flight.add_done_callback(lambda ended: self._end(loop, key, ended))
        return flight

    @staticmethod
    async def wait(flight: Task[_V]) -> _V:
        """The result of a call, or its error. Cancelling the waiting caller does not cancel the call."""
        await asyncio.wait([flight])
        return flight.result()

    def _end(self, loop: AbstractEventLoop, key: _K, ended: Task[_V]) -> None:
        flights = self._flights.get(loop, {})
        if flights.get(key) is ended:  # it may be the next call already
            del flights[key]
        if not flights:
            self._flights.pop(loop, None)
        if not ended.cancelled():
            ended.exception()  # mark it as read: the event loop must not log an error that no caller waits for


#: After a fork, the values of the parent: kept, since closing clients would end the connections of the parent.
_INHERITED: Final[list[object]] = []


class PerLoop(Generic[_V]):
    """A value for each event loop and process, such as a client of a database, made when a loop first needs it."""

    def __init__(self, make: Callable[[], _V]) -> None:
        """``make`` makes a value for the running event loop, and does not wait."""
        self._make = make
        self._process = os.getpid()
        self._values: dict[AbstractEventLoop, _V] = {}

    def get(self) -> _V:
        """The value of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._process != os.getpid():
            _INHERITED.append(self._values)
            self._process, self._values = os.getpid(), {}
        if loop not in self._values:
            for closed in [each for each in [*self._values] if each.is_closed()]:
                self._values.pop(closed, None)
            self._values[loop] = self._make()
        return self._values[loop]

    def pop(self) -> _V | None:
        """The value of the running event loop, which the caller closes; the next ``get`` makes another one."""
        return self._values.pop(asyncio.get_running_loop(), None)


_TOGETHER: Final = 100
"""The most keys of one round trip: on a disk that takes 10 ms for each read, it still ends within seconds."""
_ALONE: Final = 16
"""How many keys have a round trip of their own after the store has failed for one of several."""
_WAITING: Final = 10_000
"""The most unknown keys that wait: more of them come only from a flood."""

_Queue: TypeAlias = dict[_K, Future[_V | None]]


class LookUps(Generic[_K, _V]):
    """Looks keys up in a store, up to 100 in one round trip; later look-ups share the next one.

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
        self._waiting: PerLoop[tuple[_Queue[_K, _V], _Queue[_K, _V]]] = PerLoop(lambda: ({}, {}))

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
        ahead, others = self._waiting.get()
        future = ahead.get(key) or others.get(key)
        if future is None:
            if not first and len(others) >= _WAITING:
                raise KeySourceUnavailableError("too many look-ups wait for the store")
            future = asyncio.get_running_loop().create_future()
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
