"""Counters of failed credentials in Redis or Valkey, which the processes and machines of an agent share.

A counter is one key that expires with its window, which begins with its first failure. The name of a key has digests of
peers and user names only. The server may drop counters: each process still has its own.

Counters that are read or written while a round trip is under way share the next one (``look_ups``): with a round trip
for each, 1,000 peers at once took longer than requests wait, and were not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, Final, NamedTuple

from a2a_trust.auth.look_ups import LookUps
from a2a_trust.base.cache import BoundedCache
from a2a_trust.base.databases.availability import REQUEST_SECONDS, Pooled
from a2a_trust.base.databases.redis import RedisServer

_ROUND_TRIP_SECONDS: Final = 0.2
"""Shorter than a request waits, so a request makes no second round trip after one that failed."""
_COUNTING: Final = 32_768
_PREFIX: Final = "a2a:failures:fixed-window:"
"""Another strategy could not read these keys."""


class Counter(NamedTuple):
    """Counts the failures of a network, or of a name that a network tries, for a limit of ``amount`` in ``seconds``.

    ``name`` has no text of a caller's. ``option`` is how the limit was written.
    """

    name: str
    amount: int
    seconds: int
    option: str
    network: str

    @property
    def key(self) -> str:
        return _PREFIX + self.name


class _Hit(NamedTuple):
    """One failure to count. The number makes it a look-up of its own."""

    counter: Counter
    number: int


class _SharedWindow(NamedTuple):
    """How many failed, and in how many seconds the counter ends."""

    failures: int
    rest: float


class RedisCounters(Pooled[RedisServer]):
    """Counts failed credentials in one Redis server: ``FailureLimits(shared=RedisCounters("rediss://…"))``.

    Agents that use the same database of a server, with the same limits, share the counters. A right password ends the
    count of its peer and user name, so agents whose users differ need databases of their own.

    While the server cannot be used, each process has only its own counters. A request waits for the server for a
    quarter of a second at most, and after a failure one request per second tries it again.
    """

    def __init__(self, url: str) -> None:
        """``url``: ``rediss://HOST:6379/0``, or ``redis://…`` without TLS. ConfigurationError: it is not such a URL,
        or the extra is not installed."""
        self._server = RedisServer(
            url, what="counters of failed credentials", timeout=_ROUND_TRIP_SECONDS, may_drop=True
        )
        self._reads = LookUps(self._read)
        self._writes = LookUps(self._write)
        self._ends = LookUps(self._end)
        #: The names of counters that were not 0 in their last round trip.
        self._counting = BoundedCache[str, bool](max_entries=_COUNTING)
        self._numbers = count()

    async def full(self, counters: Iterable[Counter]) -> dict[str, float]:
        """The names of the counters that have reached their limits, and in how many seconds each ends; empty if the
        server cannot be used."""
        if not self._server.pause.may_try():
            return {}
        windows = await self._reads.find_within(REQUEST_SECONDS, counters)
        for each in windows:
            self._counting.put(each.name, True)
        return {each.name: window.rest for each, window in windows.items() if window.failures >= each.amount}

    async def hit(self, counters: Iterable[Counter]) -> dict[str, float]:
        """Count a failure, also if the caller is cancelled; returns as ``full`` the counters beyond their limits."""
        if not self._server.pause.may_try():
            return {}
        hits = [_Hit(each, next(self._numbers)) for each in counters]
        windows = await self._writes.find_within(REQUEST_SECONDS, hits)
        for hit in windows:
            self._counting.put(hit.counter.name, True)
        return {
            hit.counter.name: window.rest for hit, window in windows.items() if window.failures > hit.counter.amount
        }

    async def clear(self, counters: Iterable[Counter]) -> None:
        """Set the counters back to 0, if the server can be used. Without failures there is no round trip."""
        counting = [each for each in counters if self._counting.get(each.name)]
        if counting and self._server.pause.may_try():
            await self._ends.find_within(REQUEST_SECONDS, counting)
            for each in counting:
                self._counting.remove(each.name)

    async def _read(self, counters: tuple[Counter, ...]) -> Mapping[Counter, _SharedWindow]:
        async with self._server.session() as client, client.pipeline(transaction=False) as pipeline:
            for counter in counters:
                pipeline.get(counter.key)
                pipeline.pttl(counter.key)
            answers = await pipeline.execute()
        found = {each: _read_window(each, *answers[2 * place :][:2]) for place, each in enumerate(counters)}
        return {each: window for each, window in found.items() if window}

    async def _write(self, hits: tuple[_Hit, ...]) -> Mapping[_Hit, _SharedWindow]:
        async with self._server.session() as client, client.pipeline(transaction=True) as pipeline:
            for counter, _ in hits:
                pipeline.incr(counter.key)
                pipeline.expire(counter.key, counter.seconds, nx=True)  # never a counter without an end
                pipeline.pttl(counter.key)
            answers = await pipeline.execute()
        found = {hit: _read_window(hit.counter, *answers[3 * place :][:3:2]) for place, hit in enumerate(hits)}
        return {hit: window for hit, window in found.items() if window}

    async def _end(self, counters: tuple[Counter, ...]) -> Mapping[Counter, _SharedWindow]:
        async with self._server.session() as client:
            await client.delete(*(each.key for each in counters))
        return {}


def _read_window(counter: Counter, failures: Any, milliseconds: Any) -> _SharedWindow | None:
    """The window, which no server makes longer than it is; or None if the key holds no counter."""
    try:
        failures, seconds = int(failures or 0), int(milliseconds) / 1000
    except (ValueError, TypeError):
        return None
    return _SharedWindow(failures, min(seconds, counter.seconds)) if seconds > 0 else None
