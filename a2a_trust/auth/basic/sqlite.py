"""Passwords in an SQLite file: the embedded store, which several processes of one machine may share.

How they share it is in ``files.sqlite``. Servers need the right to read only.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from a2a_trust.auth.basic.records import FoundPasswords, PasswordRecord, PasswordTable, PasswordWrites
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError
from a2a_trust.files.sqlite import SqliteFile, SqliteReader, revision_of, text_of

__all__ = ["SqlitePasswords"]

_log = logging.getLogger("a2a_trust")

_APPLICATION_ID: Final = 0x41325077  # "A2Pw"

_COLUMNS: Final = "user, hash, scopes, created, changed, expires, revoked"

_TABLES: Final = f"""
CREATE TABLE password (
    user TEXT NOT NULL PRIMARY KEY,
    hash TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created REAL NOT NULL CHECK (typeof(created) = 'real'),
    changed REAL NOT NULL CHECK (typeof(changed) = 'real'),
    expires REAL NOT NULL CHECK (typeof(expires) = 'real'),
    revoked REAL CHECK (typeof(revoked) IN ('real', 'null'))
);
{revision_of("password", _COLUMNS)}"""


class SqlitePasswords(PasswordWrites):
    """The passwords in one SQLite file, for servers (``BasicVerifier(SqlitePasswords(path))``) and operators alike.

    KeySourceUnavailableError when the file cannot be read or written now.
    """

    def __init__(self, path: Path | str, *, create: bool = False, timeout: float = 5.0) -> None:
        """``create`` makes the file, for its owner only, if it is not there. ``timeout``: the longest, in seconds, that
        a read or a write waits for others. ConfigurationError when the file is missing or is no such store.
        """
        self._file = SqliteFile(
            path=Path(path).absolute(),
            what="password store",
            application_id=_APPLICATION_ID,
            version=1,
            tables=_TABLES,
            if_damaged="restore it from a copy",
            timeout=timeout,
            unavailable=KeySourceUnavailableError,
        )
        self._reader = SqliteReader(self._file)
        first = f"make one with its first password: a2a-sign password create --store {path} --user NAME"
        self._file.open_or_make(path, create=create, if_missing=first)

    def records(self) -> tuple[PasswordRecord, ...]:
        """Every record, in order of creation. Those that ``unreadable`` names are left out."""
        with self._file.connection() as connection:
            rows = _rows(connection)
        return tuple(record for record in map(_read, rows) if isinstance(record, PasswordRecord))

    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """The records that were made or damaged by hand, whose users are rejected: each name and what is wrong."""
        with self._file.connection() as connection:
            rows = _rows(connection)
        found = ((row, _read(row)) for row in rows)
        return tuple((text_of(row[0]), str(why)) for row, why in found if isinstance(why, ConfigurationError))

    async def find(self, users: tuple[str, ...]) -> FoundPasswords:
        return await asyncio.to_thread(self._find, users)

    def _find(self, users: tuple[str, ...]) -> FoundPasswords:
        with self._reader.reading() as connection:
            (revision,) = connection.execute("SELECT value FROM revision").fetchone()
            records: list[PasswordRecord] = []
            for row in (row for user in users for row in _rows(connection, "WHERE user = ?", user)):
                record = _read(row)
                if isinstance(record, PasswordRecord):
                    records.append(record)
                else:
                    _log.warning("a record in the password store %s does not count: %s", self._file.path, record)
            return FoundPasswords(revision, tuple(records))

    @contextmanager
    def _writing(self) -> Iterator[PasswordTable]:
        with self._file.writing() as connection:
            yield _Table(connection)


class _Table:
    """The table inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def get(self, user: str) -> PasswordRecord | None:
        rows = _rows(self._connection, "WHERE user = ?", user)
        return _record(rows[0]) if rows else None

    def put(self, record: PasswordRecord) -> None:
        self._connection.execute(
            f"INSERT OR REPLACE INTO password ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  a constant
            (
                record.user,
                record.hash,
                " ".join(sorted(record.scopes)),
                record.created,
                record.changed,
                record.expires,
                record.revoked,
            ),
        )


def _rows(connection: sqlite3.Connection, where: str = "", *values: str) -> list[tuple[Any, ...]]:
    connection.text_factory = text_of
    query = f"SELECT {_COLUMNS} FROM password {where} ORDER BY created, user"  # noqa: S608  constants
    return connection.execute(query, values).fetchall()


def _read(row: tuple[Any, ...]) -> PasswordRecord | ConfigurationError:
    """The record, or what is wrong with it: one that was made by hand must not keep out the others."""
    try:
        return _record(row)
    except ConfigurationError as error:
        return error


def _record(row: tuple[Any, ...]) -> PasswordRecord:
    user, hashed, scopes, created, changed, expires, revoked = row
    return PasswordRecord(
        user=user,
        hash=hashed,
        scopes=frozenset(scopes.split()),
        created=created,
        changed=changed,
        expires=expires,
        revoked=revoked,
    )
