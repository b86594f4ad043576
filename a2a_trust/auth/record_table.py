"""The table of a store, of API keys or of passwords, with one SQL text for SQLite and PostgreSQL; the stores in SQLite.

API keys are looked up by digest, so a look-up costs the same however many there are. A damaged record does not affect
the others.

A store in an SQLite file is embedded, and several processes of one machine may share it, as ``base.files.sqlite`` says.
Its ``revision`` changes with every change except of a last use. Servers need the right to read only; without the right
to write, last uses are not kept.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from a2a_trust.auth.api_key.verifier import ApiKeyRecord, ApiKeyWrites
from a2a_trust.auth.basic.records import PasswordRecord, PasswordWrites
from a2a_trust.auth.records import Found, WriteTable, readable_of, split, text_of
from a2a_trust.base.files.sqlite import SqliteFile, SqliteReader, revision_of
from a2a_trust.errors import KeySourceUnavailableError

_R = TypeVar("_R")


class Session(Protocol):
    """A transaction; ``values`` are the parameters $1, $2 ..."""

    def fetch(self, query: str, *values: object) -> list[Any]: ...
    def execute(self, query: str, *values: object) -> object: ...


class RecordTable(Generic[_R]):
    """The table ``name``, whose first column is what people call a record by. Look-ups go by the column ``key``.

    ``made`` makes a record of its ``members``, which are in the ``columns``, or raises ConfigurationError. A write
    of an existing record sets only the columns ``changing``.
    """

    def __init__(
        self, name: str, columns: str, made: Callable[..., _R], *, members: str, key: str, changing: str
    ) -> None:
        names = columns.split(", ")
        places = ", ".join(f"${place}" for place, _ in enumerate(names, 1))
        changes = ", ".join(f"{each} = excluded.{each}" for each in changing.split(", "))
        self._made, self._members = made, members.split(", ")
        self._select, self._order = f"SELECT {columns} FROM {name}", f"ORDER BY created, {names[0]}"  # noqa: S608
        self.by_name: str = f"WHERE {names[0]} = $1"
        self.by_key: str = f"WHERE {key} = $1"
        insert = f"INSERT INTO {name} ({columns}) VALUES ({places})"  # noqa: S608  constants
        self.put: str = f"{insert} ON CONFLICT ({names[0]}) DO UPDATE SET {changes}"

    def rows(self, session: Session, where: str = "", *values: object) -> list[Any]:
        """The rows, in order of creation."""
        return session.fetch(f"{self._select} {where} {self._order}", *values)

    def record(self, row: Sequence[Any]) -> _R:
        """The record in a row. ConfigurationError: it is damaged."""
        members = dict(zip(self._members, row, strict=True))
        scopes = frozenset(members["scopes"].split())  # of bytes if it is damaged, which no record accepts
        return self._made(**{**members, "scopes": scopes})

    def row(self, record: _R) -> tuple[Any, ...]:
        members = {name: getattr(record, name) for name in self._members}
        return tuple({**members, "scopes": " ".join(sorted(members["scopes"]))}.values())


@dataclass(frozen=True, slots=True)
class WritableTable(Generic[_R]):
    session: Session
    table: RecordTable[_R]

    def get(self, name: str) -> _R | None:
        """The record of that name. ConfigurationError: it is unreadable."""
        rows = self.table.rows(self.session, self.table.by_name, name)
        return self.table.record(rows[0]) if rows else None

    def name_of(self, key: object) -> str | None:
        rows = self.table.rows(self.session, self.table.by_key, key)
        return str(rows[0][0]) if rows else None

    def put(self, record: _R) -> None:
        self.session.execute(self.table.put, *self.table.row(record))


class RecordsInTable(Generic[_R]):
    """The operators' lists of records, for the stores in tables."""

    _table: RecordTable[_R]

    def _reading(self) -> AbstractContextManager[Session]:
        raise NotImplementedError

    def _records(self, where: str = "", *values: object) -> tuple[_R, ...]:
        with self._reading() as session:
            return readable_of(self._table.rows(session, where, *values), self._table.record)

    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """The damaged records, which admit nobody: the id or user of each, and what is wrong with it."""
        with self._reading() as session:
            return split(self._table.rows(session), self._table.record)[1]


def store_file(what: str, **kind: Any) -> SqliteFile:
    """The file of a kind of store, still without its path. ``kind`` has the other members of ``SqliteFile``."""
    advice = "restore it from a copy"
    return SqliteFile(
        path=Path(), what=what, if_damaged=advice, timeout=0.0, unavailable=KeySourceUnavailableError, **kind
    )


class SqliteStore(RecordsInTable[_R]):
    """A store in an SQLite file, which several processes of one machine may share (``base.files.sqlite``).

    ``revision`` (``base.files.sqlite.revision_of``) and the records of one look-up are of one moment.
    """

    _kind: ClassVar[SqliteFile]
    """A file of this kind, without its path."""
    _first: ClassVar[str]
    """How to make a store with its first record."""

    def __init__(self, path: Path | str, *, create: bool = False, timeout: float = 5.0) -> None:
        """``create`` makes the file, for its owner only, if it is not there. ``timeout``: the longest, in seconds, that
        a read or a write waits for others. ConfigurationError: the file is missing, or is another kind of file.
        """
        self._file = replace(self._kind, path=Path(path).absolute(), timeout=timeout)
        self._reader = SqliteReader(self._file)
        self._file.open_or_make(path, create=create, if_missing=self._first.format(path=path))

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with self._file.connection() as connection:
            yield _SqliteSession(connection)

    @contextmanager
    def _writing(self) -> Iterator[WriteTable[_R]]:
        with self._file.writing() as connection:
            yield WritableTable(_SqliteSession(connection), self._table)

    async def find(self, keys: tuple[Any, ...]) -> Found[_R]:
        return await asyncio.to_thread(self._find, keys)

    def _find(self, keys: Sequence[Any]) -> Found[_R]:
        with self._reader.reading() as connection:
            (revision,) = connection.execute("SELECT value FROM revision").fetchone()
            session = _SqliteSession(connection)
            rows = [row for key in keys for row in self._table.rows(session, self._table.by_key, key)]
            return Found(revision, readable_of(rows, self._table.record, what=f"{self._file.what} {self._file.path}"))


class _SqliteSession:
    """A transaction of SQLite, where ``$1`` is a parameter with a name."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = text_of
        self._connection = connection

    def fetch(self, query: str, *values: Any) -> list[Any]:
        return self._connection.execute(query, {str(place): value for place, value in enumerate(values, 1)}).fetchall()

    execute = fetch


KEY_COLUMNS: Final = "id, digest, owner, scopes, created, expires, revoked, replaced_by, imported, last_used"

_KEY_TABLES: Final = f"""
CREATE TABLE api_key (
    id TEXT NOT NULL PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (typeof(digest) = 'blob' AND length(digest) = 32),
    owner TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created REAL NOT NULL CHECK (typeof(created) = 'real'),
    expires REAL NOT NULL CHECK (typeof(expires) = 'real'),
    revoked REAL CHECK (typeof(revoked) IN ('real', 'null')),
    replaced_by TEXT,
    imported INTEGER NOT NULL CHECK (imported IN (0, 1)),
    last_used REAL CHECK (typeof(last_used) IN ('real', 'null'))
);
CREATE INDEX api_key_owner ON api_key (owner);
{revision_of("api_key", KEY_COLUMNS.removesuffix(", last_used"))}"""

_USES: Final = 100
"""Last uses of one transaction: few enough that readers hardly wait for it."""


def api_key_table(name: str) -> RecordTable[ApiKeyRecord]:
    changing = "expires, revoked, replaced_by"
    return RecordTable(name, KEY_COLUMNS, _api_key_of, members=f"key_{KEY_COLUMNS}", key="digest", changing=changing)


def _api_key_of(*, imported: int, **members: Any) -> ApiKeyRecord:
    return ApiKeyRecord(imported=bool(imported), **members)


class ApiKeysInTable(RecordsInTable[ApiKeyRecord], ApiKeyWrites):
    def records(self, *, owner: str | None = None) -> tuple[ApiKeyRecord, ...]:
        """Every readable record, or every one of the owner, with last uses, in order of creation."""
        return self._records() if owner is None else self._records("WHERE owner = $1", owner)


class SqliteApiKeys(SqliteStore[ApiKeyRecord], ApiKeysInTable):
    """The API keys in one SQLite file, for servers (``ApiKeyVerifier(SqliteApiKeys(path))``) and operators alike.

    KeySourceUnavailableError when the file cannot be read or written now.
    """

    _kind = store_file("API key store", application_id=0x41324B79, version=2, tables=_KEY_TABLES)  # "A2Ky"
    _first = "make one with its first key: a2a-sign api-key create --store {path} --owner NAME"
    _table = api_key_table("api_key")

    async def touch(self, used: Mapping[str, float]) -> None:
        uses = iter(used.items())
        while some := [*islice(uses, _USES)]:
            await asyncio.to_thread(self._touch, some)

    def _touch(self, used: list[tuple[str, float]]) -> None:
        with self._file.writing() as connection:
            connection.executemany(
                "UPDATE api_key SET last_used = :at WHERE id = :id AND (last_used IS NULL OR last_used < :at)",
                [{"id": key_id, "at": moment} for key_id, moment in used],
            )


_USER_COLUMNS: Final = "user, hash, scopes, created, changed, expires, revoked"
_CHANGING: Final = _USER_COLUMNS.removeprefix("user, ")

_USER_TABLES: Final = f"""
CREATE TABLE password (
    user TEXT NOT NULL PRIMARY KEY,
    hash TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created REAL NOT NULL CHECK (typeof(created) = 'real'),
    changed REAL NOT NULL CHECK (typeof(changed) = 'real'),
    expires REAL NOT NULL CHECK (typeof(expires) = 'real'),
    revoked REAL CHECK (typeof(revoked) IN ('real', 'null'))
);
{revision_of("password", _USER_COLUMNS)}"""


class SqlitePasswords(SqliteStore[PasswordRecord], PasswordWrites):
    """The passwords in one SQLite file, for servers (``BasicVerifier(SqlitePasswords(path))``) and operators alike.

    KeySourceUnavailableError when the file cannot be read or written now.
    """

    _kind = store_file("password store", application_id=0x41325077, version=1, tables=_USER_TABLES)  # "A2Pw"
    _first = "make one with its first password: a2a-sign password create --store {path} --user NAME"
    _table = RecordTable(
        "password", _USER_COLUMNS, PasswordRecord, members=_USER_COLUMNS, key="user", changing=_CHANGING
    )

    def records(self) -> tuple[PasswordRecord, ...]:
        """Every record, in order of creation. Damaged ones are left out."""
        return self._records()
