"""The table of a store, of API keys or of passwords, with one SQL text for SQLite and PostgreSQL.

A record that was damaged keeps out no other.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, Protocol, TypeVar

from a2a_trust.auth.records import Found, readable_of, split, text_of
from a2a_trust.files.sqlite import SqliteFile, SqliteReader

_R = TypeVar("_R")


class Session(Protocol):
    """A transaction; ``values`` are the parameters $1, $2 ..."""

    def fetch(self, query: str, *values: object) -> list[Any]: ...
    def execute(self, query: str, *values: object) -> object: ...


class SqliteSession:
    """A transaction of SQLite, where ``$1`` is a parameter with a name."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = text_of
        self.connection = connection

    def fetch(self, query: str, *values: Any) -> list[Any]:
        """The rows of a query."""
        return self.connection.execute(query, {str(place): value for place, value in enumerate(values, 1)}).fetchall()

    execute = fetch


class RecordTable(Generic[_R]):
    """The table ``name``, whose first column is what people call a record by.

    ``record`` makes a record of the ``columns`` of a row, or raises ConfigurationError. ``reading`` begins a session.
    """

    def __init__(
        self,
        name: str,
        columns: str,
        record: Callable[[Sequence[Any]], _R],
        reading: Callable[[], AbstractContextManager[Session]],
    ) -> None:
        self.name = name
        self._select = f"SELECT {columns} FROM {name}"  # noqa: S608  constants
        self._order = f"ORDER BY created, {columns.partition(',')[0]}"
        self._record, self._reading = record, reading

    def records(self, where: str = "", *values: object) -> tuple[_R, ...]:
        """The records, in order of creation; those that ``unreadable`` names are left out."""
        with self._reading() as session:
            return readable_of(self.rows(session, where, *values), self._record)

    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """The records that were made or damaged by hand: what each is called, and what is wrong."""
        with self._reading() as session:
            return split(self.rows(session), self._record)[1]

    def get(self, session: Session, where: str, value: object) -> _R | None:
        """The one record, inside a transaction. ConfigurationError: it is unreadable."""
        rows = self.rows(session, where, value)
        return self._record(rows[0]) if rows else None

    def rows(self, session: Session, where: str = "", *values: object) -> list[Any]:
        """The rows, in order of creation."""
        return session.fetch(f"{self._select} {where} {self._order}", *values)


class SqliteTable(RecordTable[_R]):
    """A table in an SQLite file; ``key`` is the column that look-ups go by.

    ``revision`` (``files.sqlite.revision_of``) and the records of one look-up are of one moment. In an unchanged store
    one look confirms all that was read before.
    """

    def __init__(
        self, file: SqliteFile, name: str, columns: str, *, key: str, record: Callable[[Sequence[Any]], _R]
    ) -> None:
        super().__init__(name, columns, record, self._session)
        self._file = file
        self._reader = SqliteReader(file)
        self._by_key = f"WHERE {key} = $1"

    @contextmanager
    def _session(self) -> Iterator[Session]:
        with self._file.connection() as connection:
            yield SqliteSession(connection)

    async def find(self, keys: Sequence[str | bytes]) -> Found[_R]:
        """The revision, and the records with these keys."""
        return await asyncio.to_thread(self._find, keys)

    def _find(self, keys: Sequence[str | bytes]) -> Found[_R]:
        with self._reader.reading() as connection:
            (revision,) = connection.execute("SELECT value FROM revision").fetchone()
            session = SqliteSession(connection)
            rows = [row for key in keys for row in self.rows(session, self._by_key, key)]
            return Found(revision, readable_of(rows, self._record, what=f"{self._file.what} {self._file.path}"))
