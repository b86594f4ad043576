"""Records of API keys and of passwords: checks of names, scopes and times, writes, and a store in memory."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, ClassVar, Final, Generic, NamedTuple, NoReturn, Protocol, TypeVar

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
