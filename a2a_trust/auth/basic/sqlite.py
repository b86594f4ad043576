"""Passwords in an SQLite file: the embedded store, which several processes of one machine may share.

How they share it is in ``files.sqlite``. Servers need the right to read only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from a2a_trust.auth.basic.records import PasswordRecord, PasswordTable, PasswordWrites
from a2a_trust.auth.record_table import SqliteSession, SqliteTable
from a2a_trust.auth.records import Found
from a2a_trust.errors import KeySourceUnavailableError
from a2a_trust.files.sqlite import SqliteFile, revision_of

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
        self._table = SqliteTable(self._file, "password", _COLUMNS, key="user", record=_record)
        first = f"make one with its first password: a2a-sign password create --store {path} --user NAME"
        self._file.open_or_make(path, create=create, if_missing=first)

    def records(self) -> tuple[PasswordRecord, ...]:
        """Every record, in order of creation. Those that ``unreadable`` names are left out."""
        return self._table.records()

    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """The records that were made or damaged by hand, whose users are rejected: each name and what is wrong."""
        return self._table.unreadable()

    async def find(self, users: tuple[str, ...]) -> Found[PasswordRecord]:
        return await self._table.find(users)

    @contextmanager
    def _writing(self) -> Iterator[PasswordTable]:
        with self._file.writing() as connection:
            yield _Writable(SqliteSession(connection), self._table)


@dataclass(frozen=True, slots=True)
class _Writable:
    """The table inside a transaction."""

    session: SqliteSession
    table: SqliteTable[PasswordRecord]

    def get(self, user: str) -> PasswordRecord | None:
        return self.table.get(self.session, "WHERE user = $1", user)

    def put(self, record: PasswordRecord) -> None:
        self.session.execute(
            f"INSERT OR REPLACE INTO password ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)",  # noqa: S608
            *{**asdict(record), "scopes": " ".join(sorted(record.scopes))}.values(),
        )


def _record(row: Sequence[Any]) -> PasswordRecord:
    members = dict(zip(_COLUMNS.split(", "), row, strict=True))
    return PasswordRecord(**{**members, "scopes": frozenset(members["scopes"].split())})
