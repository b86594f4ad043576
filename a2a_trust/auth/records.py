"""Records of API keys and of passwords: checks of names, scopes and times, writes, a store in memory, and a cache.

The cache is there so that requests need not wait for the store. A record is looked up on its first use, and cached.
After half of ``refresh`` seconds, the next use asks the store in the background whether anything changed; if so, each
record is looked up again when it is used. A request waits for the store only if its record is not cached, or if
nothing was read for ``refresh`` seconds. So a change takes effect at most ``refresh`` seconds after it is in the store,
in every process, and a new record at once.

While the store cannot be read, a cached record stays valid for at most ``stale_if_error`` seconds after it was last
confirmed. After that, and for other records: KeySourceUnavailableError.

Anybody can send a name for which an operator's own store raises an exception. So after an exception, the store is asked
for a random name: if it answers, there is no outage, and only that one record cannot be read.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from sys import getsizeof
from threading import Lock
from typing import Any, ClassVar, Final, Generic, NamedTuple, NoReturn, Protocol, TypeVar

from a2a_trust.auth.principal import Identity
from a2a_trust.base.cache import BoundedCache, LookUps
from a2a_trust.base.net.metadata import SCOPE
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError

_log: Final = logging.getLogger("a2a_trust")

_R = TypeVar("_R")

_LONGEST_NAME: Final = 256
_YEAR_10000: Final = 253_402_300_800


def check_name(name: str, what: str) -> None:
    """ConfigurationError: it cannot be the name of a caller. ``what`` begins the text, as in "API key: the owner"."""
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or name != name.strip():
        # Names of callers must not differ only in invisible characters.
        raise ConfigurationError(f"{what} is 1 to {_LONGEST_NAME} printable characters, with no blank at either end")


def check_scopes(scopes: Iterable[str], what: str) -> None:
    """ConfigurationError: one is not a scope of RFC 6749 3.3."""
    if not all(map(SCOPE.fullmatch, scopes)):
        raise ConfigurationError(f'{what}: a scope is a word of visible ASCII without " and \\, as in tasks:read')


def check_moments(what: str, expires: float, *moments: float) -> None:
    """ConfigurationError: a time is not in seconds since the epoch; ``expires`` may be infinite."""
    finite = (*moments, 0 if expires == math.inf else expires)
    if not all(0 <= moment < _YEAR_10000 for moment in finite):
        raise ConfigurationError(f"{what}: a time is out of range; write seconds (not milliseconds) since the epoch")


def check_ahead(expires: float, now: float) -> None:
    if not expires > now:
        raise ConfigurationError("the expiry is in the past; write a later time, in seconds since the epoch")


def scope_set(scopes: Iterable[str], what: str) -> frozenset[str]:
    """The scopes of an argument; ConfigurationError for a string in place of a list."""
    if isinstance(scopes, str):
        raise ConfigurationError(f'{what}: write scopes=["read"], a list even of one')
    return frozenset(scopes)


def reason(error: Exception) -> str:
    """The text of our own errors, which contain no secret; only the type of other errors."""
    return str(error) if isinstance(error, KeySourceUnavailableError | ConfigurationError) else type(error).__name__


def text_of(value: object) -> str:
    """The value as text. Bytes that are not UTF-8 become surrogates, which no record may hold."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """The members that records of API keys and passwords share."""

    scopes: frozenset[str] = frozenset()
    created: float
    expires: float = math.inf
    revoked: float | None = None

    def is_good(self, now: float) -> bool:
        """Whether the key or the password is valid at that moment."""
        return self.revoked is None and now < self.expires


@dataclass(frozen=True, slots=True)
class Issued(Generic[_R]):
    """A new secret. ``text`` is the secret itself, which is not stored: give it to its owner, and do not keep it.

    ``replaces`` is the previous record of what it replaces.
    """

    record: _R
    text: str = field(repr=False, compare=False)
    replaces: _R | None = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key or a password is not pickled or copied; pass on its record")


class Found(NamedTuple, Generic[_R]):
    """The result of a look-up. ``revision`` is a value that the store never repeats; every change except of a last use
    gives a new one. It is of the same moment as the records, or earlier."""

    revision: Hashable
    records: tuple[_R, ...]


def readable_of(
    rows: Iterable[Sequence[Any]], record: Callable[[Sequence[Any]], _R], *, what: str = ""
) -> tuple[_R, ...]:
    """The records in rows of a database. Damaged ones are left out, with a warning if ``what`` holds them is given."""
    found, damaged = split(rows, record)
    for _, why in damaged if what else ():
        _log.warning("a record in the %s does not count: %s", what, why)
    return found


def split(
    rows: Iterable[Sequence[Any]], record: Callable[[Sequence[Any]], _R]
) -> tuple[tuple[_R, ...], tuple[tuple[str, str], ...]]:
    """The records in rows of a database; and the damaged ones, each by its first column, and what is wrong with it."""
    found, damaged = list[_R](), list[tuple[str, str]]()
    for row in rows:
        try:
            found.append(record(row))
        except ConfigurationError as error:
            damaged.append((text_of(row[0]), str(error)))
    return tuple(found), tuple(damaged)


class WriteTable(Protocol[_R]):
    """The records as one write sees them: nobody else writes meanwhile, and all of it happens or nothing.

    A record has a name (the id of an API key, or a user) and a key, by which look-ups find it.
    """

    def get(self, name: str) -> _R | None: ...
    def name_of(self, key: Any) -> str | None: ...
    def put(self, record: _R) -> None: ...


_S = TypeVar("_S", bound=StoredRecord)


class RecordWrites(Generic[_S]):
    """The writes that API keys and passwords share, for every store that can open a table for writing."""

    _unknown: ClassVar[str]
    """The error for an unknown name. It does not repeat the name, which may be a secret."""

    def _writing(self) -> AbstractContextManager[WriteTable[_S]]:
        raise NotImplementedError

    def _get(self, table: WriteTable[_S], name: str) -> _S:
        record = table.get(name)
        if record is None:
            raise ConfigurationError(self._unknown)
        return record

    def revoke_all(self, names: Iterable[str]) -> tuple[_S, ...]:
        """Revoke the keys with these ids, or the passwords of these users: all of them, or none if one is unknown."""
        wanted = tuple(names)
        with self._writing() as table:
            found = [table.get(name) for name in wanted]
            records = tuple(revoke_record(record) for record in found if record is not None)
            if None in found:
                where = f"number {found.index(None) + 1} of {len(found)}: " if len(found) > 1 else ""
                raise ConfigurationError(f"{where}{self._unknown}")
            for record in records:
                table.put(record)
        return records


def revoke_record(record: _S) -> _S:
    return record if record.revoked is not None else replace(record, revoked=time.time())


class MemoryTable(Generic[_R]):
    """A table in memory; ``names`` gives a record's name and its key."""

    def __init__(self, names: Callable[[_R], tuple[str, Hashable]]) -> None:
        self.records: dict[str, _R] = {}
        self.ids: dict[Hashable, str] = {}  # by key
        self._names = names

    def get(self, name: str) -> _R | None:
        return self.records.get(name)

    def name_of(self, key: Hashable) -> str | None:
        return self.ids.get(key)

    def put(self, record: _R) -> None:
        name, key = self._names(record)
        self.records[name], self.ids[key] = record, name


class MemoryStore(Generic[_R]):
    """Records of this process only, gone when it ends."""

    def __init__(self, table: MemoryTable[_R]) -> None:
        self._lock = Lock()
        self._revision = object()
        self._table = table

    async def find(self, keys: tuple[Any, ...]) -> Found[_R]:
        with self._lock:
            names = filter(None, map(self._table.name_of, keys))
            return Found(self._revision, tuple(map(self._table.records.__getitem__, names)))

    @contextmanager
    def _writing(self) -> Iterator[WriteTable[_R]]:
        with self._lock:
            yield self._table
            self._revision = object()


_PATIENCE: Final = 5.0
"""How long a look-up may take, in seconds. A request waits for twice as long at most, if others are before it."""
_QUIET: Final = 60.0
"""Between two log lines about records that cannot be read, in seconds."""
_MOST_RECORDS: Final = 32_768
_MOST_BYTES: Final = 50_331_648


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
        #: The records that ``keep_at_once`` was given, by other keys.
        self.at_once: BoundedCache[bytes, _C] = BoundedCache(max_entries=_MOST_RECORDS, max_bytes=_MOST_BYTES)
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
            self.known.put(key, record, size=self._size_of(record))

    def keep_at_once(self, key: bytes, record: _C) -> None:
        self.at_once.put(key, record, size=self._size_of(record))

    def _size_of(self, record: _C) -> int:
        subject, scopes = record.identity.subject, record.identity.scopes
        return self._size + sum(map(getsizeof, (subject, scopes, *scopes)))
