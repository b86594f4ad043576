"""The table of a store in SQLite, of API keys or of passwords: a record that was damaged keeps out no other.

``revision`` (``files.sqlite.revision_of``) and the records of one look-up are of one moment. In an unchanged store one
look confirms all that was read before.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from a2a_trust.auth.records import readable_of, text_of, unreadable_of
from a2a_trust.files.sqlite import SqliteFile, SqliteReader

_R = TypeVar("_R")


class RecordTable(Generic[_R]):
    """Reads the table ``name`` of a file, whose first column is what people call a record by.

    ``record`` makes a record of the ``columns`` of a row, or raises ConfigurationError; ``key`` is the column that
    look-ups go by.
    """

    def __init__(
        self, file: SqliteFile, name: str, columns: str, *, key: str, record: Callable[[Sequence[Any]], _R]
    ) -> None:
        self._file = file
        self._reader = SqliteReader(file)
        self._select = f"SELECT {columns} FROM {name}"  # noqa: S608  constants
        self._order = f"ORDER BY created, {columns.partition(',')[0]}"
        self._by_key = f"WHERE {key} = ?"
        self._record = record

    def records(self, where: str = "", *values: str) -> tuple[_R, ...]:
        """The records, in order of creation; those that ``unreadable`` names are left out."""
        with self._file.connection() as connection:
            return readable_of(self._rows(connection, where, *values), self._record)

    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """The records that were made or damaged by hand: what each is called, and what is wrong."""
        with self._file.connection() as connection:
            return unreadable_of(self._rows(connection), self._record)

    async def find(self, keys: tuple[str | bytes, ...]) -> tuple[bytes, tuple[_R, ...]]:
        """The revision, and the records with these keys."""
        return await asyncio.to_thread(self._find, keys)

    def _find(self, keys: tuple[str | bytes, ...]) -> tuple[bytes, tuple[_R, ...]]:
        with self._reader.reading() as connection:
            (revision,) = connection.execute("SELECT value FROM revision").fetchone()
            rows = [row for key in keys for row in self._rows(connection, self._by_key, key)]
            return revision, readable_of(rows, self._record, what=f"{self._file.what} {self._file.path}")

    def get(self, connection: sqlite3.Connection, where: str, value: str) -> _R | None:
        """The one record, inside a transaction. ConfigurationError: it is unreadable."""
        rows = self._rows(connection, where, value)
        return self._record(rows[0]) if rows else None

    def _rows(self, connection: sqlite3.Connection, where: str = "", *values: str | bytes) -> list[tuple[Any, ...]]:
        connection.text_factory = text_of
        return connection.execute(f"{self._select} {where} {self._order}", values).fetchall()
