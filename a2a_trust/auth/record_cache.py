"""A cache of a store's records of API keys or passwords, so that requests need not wait for the store.

A record is looked up on its first use, and cached. After half of ``refresh`` seconds, the next use asks the store in
the background whether anything changed; if so, each record is looked up again when it is used. A request waits for the
store only if its record is not cached, or if nothing was read for ``refresh`` seconds. So a change takes effect at most
``refresh`` seconds after it is in the store, in every process, and a new record at once.

While the store cannot be read, a cached record stays valid for at most ``stale_if_error`` seconds after it was last
confirmed. After that, and for other records: KeySourceUnavailableError.

Anybody can send a name for which an operator's own store raises an exception. So after an exception, the store is asked
for a random name: if it answers, there is no outage, and only that one record cannot be read.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from sys import getsizeof
from typing import Any, Final, Generic, TypeVar

from a2a_trust.auth.principal import Identity
from a2a_trust.auth.records import Found, reason
from a2a_trust.base.cache import BoundedCache, LookUps
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError

_PATIENCE: Final = 5.0
"""How long a look-up may take, in seconds. A request waits for twice as long at most, if others are before it."""
_QUIET: Final = 60.0
"""Between two log lines about records that cannot be read, in seconds."""
_MOST_RECORDS: Final = 32_768
_MOST_BYTES: Final = 50_331_648

_log = logging.getLogger("a2a_trust")


@dataclass(slots=True, eq=False)
class Reading:
    """The reading of records at one ``revision`` of the store, and its last time, by the cache's clock.

    While the store has that revision, one look confirms every record of the reading.
    """

    revision: Hashable
    at: float


@dataclass(slots=True, kw_only=True)
class CachedRecord:
    """A record as requests need it; verifiers add members."""

    reading: Reading
    identity: Identity
    good_until: float


_K = TypeVar("_K")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=CachedRecord)


class RecordCache(Generic[_K, _R, _C]):
    """Holds the 32,768 records that were looked up last."""

    def __init__(
        self,
        what: str,
        find: Callable[[tuple[_K, ...]], Coroutine[Any, Any, Found[_R]]],
        made: Callable[[_R, Reading], tuple[_K, _C]],
        *,
        size: int,
        nobody: Callable[[], _K],
        refresh: float,
        stale_if_error: float,
        clock: Callable[[], float],
    ) -> None:
        """``what`` is in the store, for people ("API keys"). ``find`` is the store's method; ``made`` gives a record's
        key and its entry, which takes about ``size`` bytes without its subject and its scopes. ``nobody`` makes a key
        that no record has. ConfigurationError: the times are invalid.
        """
        if not 0 < refresh <= stale_if_error < math.inf:
            raise ConfigurationError(f"{what}: 0 < refresh <= stale_if_error, in seconds, and both finite")
        self._what = what
        self._find_in_store = find
        self._made = made
        self._size = size
        self._nobody, self._probe = nobody, nobody()
        self._refresh = refresh
        self.look_again_after: float = refresh / 2
        """The age, in seconds, from which on a record is looked up, if only in the background."""
        self._stale_if_error = stale_if_error
        self._clock = clock
        self.known: BoundedCache[_K, _C] = BoundedCache(max_entries=_MOST_RECORDS, max_bytes=_MOST_BYTES)
        self._look_ups = LookUps(self._find)
        self._reading = Reading(None, -math.inf)
        #: All readings that may be younger than ``refresh``, for ``look_again``.
        self._readings = [self._reading]
        self._changed_at = -math.inf
        self._retry_at = -math.inf
        self._outage = ""
        self._quiet_until = -math.inf

    async def get(self, key: _K) -> _C | None:
        """The record; None if the store has none. KeySourceUnavailableError: the store cannot be read."""
        known = self.known.get(key)
        if known is None or self._clock() - known.reading.at >= self.look_again_after:
            return await self.look_up(key, known)
        return known

    async def read(self, key: _K) -> _C | None:
        """As ``get``, always from the store: it takes the same time for every key."""
        if self._clock() < self._retry_at:
            raise KeySourceUnavailableError(f"the {self._what} cannot be read now")
        return await self._find_in_time(key, first=False)

    def in_outage(self, key: _K) -> _C | None:
        """The cached record, if it is still valid while the store cannot be read."""
        known = self.known.get(key)
        return None if known is None or self._clock() - known.reading.at >= self._stale_if_error else known

    def outage(self) -> str:
        """Why the store cannot be read, since the last look-up failed; "" if it can. It is then read again, later."""
        if self._outage and self._clock() >= self._retry_at:
            self._look_ups.begin(self._probe, first=True)
        return self._outage

    def look_again(self) -> None:
        """The store has changed: each record is looked up once more before its next use.

        While the store cannot be read, records are as valid as if they were confirmed ``refresh`` seconds ago.
        """
        self._changed_at = self._clock()
        stale = self._changed_at - self._refresh
        for reading in self._readings:
            reading.at = min(reading.at, stale)

    async def look_up(self, key: _K, known: _C | None) -> _C | None:
        """The record as the store has it, or the cached one (``known``) while it is valid."""
        at = self._clock()
        age = math.inf if known is None else at - known.reading.at
        if at >= self._retry_at:
            is_known = known is not None  # their number is bounded by the cache
            with suppress(KeySourceUnavailableError):
                if age < self._refresh:
                    self._look_ups.begin(key, first=is_known)  # in the background
                else:
                    return await self._find_in_time(key, first=is_known)
        known = self.in_outage(key)
        if known is None:
            raise KeySourceUnavailableError(f"the {self._what} cannot be read now")
        return known

    async def _find_in_time(self, key: _K, *, first: bool) -> _C | None:
        try:
            async with asyncio.timeout(2 * _PATIENCE):  # with the round trips before it
                return await self._look_ups.find(key, first=first)
        except TimeoutError:
            raise KeySourceUnavailableError(f"too many look-ups wait for the {self._what}") from None

    async def _find(self, keys: tuple[_K, ...]) -> Mapping[_K, _C] | None:
        """Look the records up, and cache them. None: the store fails for one of these keys only."""
        try:
            async with asyncio.timeout(_PATIENCE):  # a look-up that hangs must not delay the next
                records = await self._read_unless_one_fails(keys)
        except Exception as error:  # noqa: BLE001  the store is anybody's
            self._retry_at = self._clock() + self._refresh / 2
            why = reason(error)
            if why != self._outage:
                _log.warning("the %s could not be read: %s", self._what, why)
            self._outage = why
            raise KeySourceUnavailableError(f"the {self._what} could not be read") from None
        if self._outage:
            _log.warning("the %s can be read again", self._what)
            self._outage = ""
        return records

    async def _read_unless_one_fails(self, keys: tuple[_K, ...]) -> Mapping[_K, _C] | None:
        try:
            return await self._read(keys)
        except Exception as error:  # noqa: BLE001
            await self._read((self._nobody(),))  # raises in an outage
            if len(keys) == 1 and self._clock() >= self._quiet_until:
                self._quiet_until = self._clock() + _QUIET
                _log.warning("one record of the %s could not be read: %s", self._what, reason(error))
            return None

    async def _read(self, keys: tuple[_K, ...]) -> Mapping[_K, _C]:
        at = self._clock()
        found = await self._find_in_store(keys)
        reading = self._reading_of(found.revision, at)
        records = dict(self._made(record, reading) for record in found.records)
        for key in keys:
            self._cache(key, records.get(key), at)
        return records

    def _reading_of(self, revision: Hashable, at: float) -> Reading:
        if at <= self._changed_at:  # the reading may be from before the change
            at = min(at, self._changed_at - self._refresh)
        last = self._reading
        if last.revision != revision:
            reading = Reading(revision, at)
            if at >= last.at:  # else a later look-up was faster
                self._reading = reading
            self._readings = [each for each in self._readings if at - each.at < self._refresh]
            self._readings.append(reading)
            return reading
        last.at = max(last.at, at)
        return last

    def _cache(self, key: _K, record: _C | None, at: float) -> None:
        """Cache the record. Unknown keys are not cached: a flood of them would evict the records."""
        before = self.known.get(key)
        if before is not None and before.reading.at > at:
            return  # a later look-up was faster
        if record is None:
            self.known.remove(key)
        else:
            subject, scopes = record.identity.subject, record.identity.scopes
            self.known.put(key, record, size=self._size + sum(map(getsizeof, (subject, scopes, *scopes))))
