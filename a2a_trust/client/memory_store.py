"""The card memory in an SQLite file, which processes of one machine may share.

``base.files.sqlite`` says how they share it. A damaged or missing file is an error, because an empty memory would
accept every key as a first use.
"""

from __future__ import annotations

import logging
import shlex
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from a2a_trust.base.files.sqlite import SqliteFile
from a2a_trust.client.location import Location
from a2a_trust.client.memory import CardTable, Remembered, TableCardMemory
from a2a_trust.errors import CardMemoryUnavailableError

_log: Final = logging.getLogger(__name__)

_APPLICATION_ID: Final = 0x41324350  # "A2CP"
_TABLES: Final = """
CREATE TABLE card (
    location TEXT NOT NULL PRIMARY KEY,
    thumbprints TEXT NOT NULL CHECK (length(thumbprints) >= 43),
    issued REAL CHECK (typeof(issued) IN ('real', 'null')),
    version TEXT CHECK (typeof(version) IN ('text', 'null')),
    first_seen REAL NOT NULL CHECK (typeof(first_seen) = 'real'),
    last_seen REAL NOT NULL CHECK (typeof(last_seen) = 'real'),
    on_first_use INTEGER NOT NULL CHECK (on_first_use IN (0, 1))
) WITHOUT ROWID;
CREATE TABLE interface (
    digest TEXT NOT NULL PRIMARY KEY CHECK (length(digest) = 43),
    location TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX interface_location ON interface (location);
"""

_COLUMNS: Final = "location, thumbprints, issued, version, first_seen, last_seen, on_first_use"
_PUT: Final = f"INSERT OR REPLACE INTO card ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  a constant
_INTERFACES: Final = "(SELECT group_concat(digest, ' ') FROM interface WHERE interface.location = card.location)"


class SqliteCardMemory(TableCardMemory):
    """The card memory in one SQLite file that only its owner can read.

    ``create`` makes a missing file. ``timeout`` is how long a read or a write waits for other processes, in seconds.
    ConfigurationError: the file is missing, or is not a card memory. CardMemoryUnavailableError: it is damaged, or
    cannot be read or written now.
    """

    def __init__(self, path: Path | str, *, create: bool = False, timeout: float = 5.0) -> None:
        self._file = SqliteFile(
            path=Path(path).absolute(),
            what="memory of cards",
            application_id=_APPLICATION_ID,
            version=3,
            tables=_TABLES,
            if_damaged="restore it from a copy, or move it away; without it, every card counts as the first one",
            timeout=timeout,
            unavailable=CardMemoryUnavailableError,
        )
        first = (
            "the first card that is verified with one makes it, and so does: "
            f"a2a-sign memory accept --file {shlex.quote(str(path))} LOCATION THUMBPRINT"
        )
        if self._file.open_or_make(path, create=create, if_missing=first):
            _log.info("made a memory of cards at %s; it has no records yet", self._file.path)
        self._file.check_content()
        self._place = str(self._file.path)

    @contextmanager
    def _reading(self) -> Iterator[CardTable]:
        with self._file.connection() as connection:
            yield _SqliteTable(connection)

    @contextmanager
    def _writing(self) -> Iterator[CardTable]:
        with self._file.writing() as connection:
            yield _SqliteTable(connection)


class _SqliteTable:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def records(self, where: str = "", *values: str) -> tuple[Remembered, ...]:
        query = f"SELECT {_COLUMNS}, {_INTERFACES} FROM card {where} ORDER BY location"  # noqa: S608  constants
        return tuple(map(Remembered.of_row, self._connection.execute(query, values)))

    def get(self, location: Location) -> Remembered | None:
        return next(iter(self.records("WHERE location = ?", location)), None)

    def neighbours(self, location: Location) -> tuple[Remembered, ...]:
        # The host, its paths and its ports are in these ranges, because ";" follows ":". So are some other hosts.
        bases = [f"{scheme}://{location.host}" for scheme in ("https", "http")]
        where = "WHERE location BETWEEN ? AND ? OR location BETWEEN ? AND ?"
        near = self.records(where, *[f"{base}{end}" for base in bases for end in ("", ";")])
        return tuple(each for each in near if each.location.host == location.host and each.location != location)

    def elsewhere(self, location: Location, interfaces: Iterable[str]) -> tuple[Remembered, ...]:
        digests = [*interfaces]
        named = f"SELECT location FROM interface WHERE digest IN ({', '.join('?' * len(digests))})"  # noqa: S608
        return self.records(f"WHERE location IN ({named}) AND location != ?", *digests, location)

    def put(self, record: Remembered) -> None:
        self._connection.execute("DELETE FROM interface WHERE location = ?", (record.location,))
        self._connection.executemany(
            "INSERT OR REPLACE INTO interface VALUES (?, ?)", [(each, record.location) for each in record.interfaces]
        )
        self._connection.execute(_PUT, record.row())

    def remove(self, location: Location) -> None:
        for table in ("interface", "card"):
            self._connection.execute(f"DELETE FROM {table} WHERE location = ?", (location,))  # noqa: S608  constants
