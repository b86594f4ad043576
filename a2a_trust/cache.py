"""Bounded memories, and one flight for several callers who want the same."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from asyncio import AbstractEventLoop, Task
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeAlias, TypeVar

from a2a_trust.errors import ConfigurationError

__all__ = ["BoundedCache", "SingleFlight"]

_K = TypeVar("_K")
_V = TypeVar("_V")

_Entry: TypeAlias = tuple[_V, float, float, int]


class BoundedCache(Generic[_K, _V]):
    """A mapping of at most ``max_entries`` entries and ``max_bytes`` bytes; the entry that was put first leaves first.

    A hit moves nothing: an order by last use made a hit cost 1.6 times as much, without the lock that it then needs.

    The caller says how many bytes an entry takes. An entry that is larger than the whole cache is not kept.

    Threads: ``get`` takes no lock, and returns the value of one ``put`` for that key, whole. The other methods take
    turns. Keys must be of types whose comparison runs no Python code, such as the built-in ones.
    """

    def __init__(self, *, max_entries: int, max_bytes: float = math.inf) -> None:
        """ConfigurationError: a bound is not a number, 0 or more. With 0 nothing is kept."""
        if type(max_entries) is not int or max_entries < 0 or not max_bytes >= 0:
            raise ConfigurationError("a cache: write bounds of 0 or more, and the number of entries as an int")
        self._max_entries, self._max_bytes = max_entries, max_bytes
        #: Key -> value, the begin and the end of its time, its bytes. Not a dict: to find its first entry after many
        #: were deleted in front of it takes a walk over the places of all of them.
        self._entries: OrderedDict[_K, _Entry[_V]] = OrderedDict()
        #: As ``get``, for a caller that compares the times itself: it saves a call, 14 % of a hit in ``CardVerifier``.
        self.entry: Callable[[_K], _Entry[_V] | None] = self._entries.get
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """The number of entries, with those whose time has ended."""
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """The bytes of all entries, as their callers said."""
        return self._bytes

    def get(self, key: _K, now: float | None = None) -> _V | None:
        """The value; None when there is none, or it does not count at ``now``. Without ``now`` all values count."""
        entry = self._entries.get(key)
        return entry[0] if entry is not None and (now is None or entry[1] <= now < entry[2]) else None

    def items(self, now: float | None = None) -> list[tuple[_K, _V]]:
        """The keys and values that count at ``now``, from the oldest entry on. Without ``now`` all values count."""
        with self._lock:
            entries = list(self._entries.items())
        return [(key, value) for key, (value, since, until, _) in entries if now is None or since <= now < until]

    def put(self, key: _K, value: _V, *, since: float = -math.inf, until: float = math.inf, size: int = 0) -> None:
        """Keep the value, of ``size`` bytes, as the newest entry; it counts from ``since`` on and before ``until``, by
        the caller's clock."""
        with self._lock:
            self._pop(key)
            if size > self._max_bytes:
                return
            self._entries[key] = value, since, until, size
            self._bytes += size
            while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
                _, (_, _, _, freed) = self._entries.popitem(last=False)
                self._bytes -= freed

    def remove(self, key: _K) -> None:
        """Drop the entry, if there is one."""
        with self._lock:
            self._pop(key)

    def remove_where(self, is_unwanted: Callable[[_V], bool]) -> None:
        """Drop the entries of all such values. It looks at every entry."""
        with self._lock:
            for key in [key for key, (value, _, _, _) in self._entries.items() if is_unwanted(value)]:
                self._pop(key)

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def _pop(self, key: _K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry[3]


class SingleFlight(Generic[_K, _V]):
    """Several callers who want the same wait for one call.

    - Cancelling a caller does not cancel the call, which goes on to its end also when nobody waits any more: it needs
      a time limit of its own.
    - Its result or its error reaches everybody who waits, and is not remembered: the next caller begins a new call.
    - One call at a time for each key and *event loop*. Loops in other threads make calls of their own: a call ends with
      its loop, and nobody elsewhere may wait for it.
    - The call runs in a context of its own, so it does not carry the first caller's request along.
    """

    def __init__(self) -> None:
        self._flights: dict[AbstractEventLoop, dict[_K, Task[_V]]] = {}

    async def run(self, key: _K, work: Callable[[], Coroutine[Any, Any, _V]]) -> _V:
        """What ``work()`` returns or raises, or the call for this key that is under way."""
        return await self.wait(self.begin(key, work))

    def running(self, key: _K) -> Task[_V] | None:
        """The call for this key that is under way in this event loop."""
        flight = self._flights.get(asyncio.get_running_loop(), {}).get(key)
        return None if flight is None or flight.done() else flight

    def begin(self, key: _K, work: Callable[[], Coroutine[Any, Any, _V]]) -> Task[_V]:
        """The call for this key, begun now or under way, without waiting for it; await it by ``wait``."""
        flight = self.running(key)
        if flight is None:
            loop = asyncio.get_running_loop()
            for closed in [each for each in [*self._flights] if each.is_closed()]:
                self._flights.pop(closed, None)  # its calls died with it
            flight = loop.create_task(work(), context=contextvars.Context())
            self._flights.setdefault(loop, {})[key] = flight
            flight.add_done_callback(lambda ended: self._end(loop, key, ended))
        return flight

    @staticmethod
    async def wait(flight: Task[_V]) -> _V:
        """The result of a call, or its error. Cancelling the one who waits leaves the call alone, for the others."""
        await asyncio.wait([flight])
        return flight.result()

    def _end(self, loop: AbstractEventLoop, key: _K, ended: Task[_V]) -> None:
        flights = self._flights.get(loop, {})
        if flights.get(key) is ended:  # and not the next one
            del flights[key]
        if not flights:
            self._flights.pop(loop, None)
        if not ended.cancelled():
            ended.exception()  # where nobody waits any more, the loop need not tell of it
