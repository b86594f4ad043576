"""The card memory in an SQLite file, which processes of one machine may share, and in PostgreSQL, for several machines.

``base.files.sqlite`` says how processes share a file. A damaged or missing file is an error, and so is a database that
cannot be used in time, because an empty memory would accept every key as a first use. In PostgreSQL:

1. A transaction locks the host of a location, and the hosts of a card's interfaces, before it reads, because a first
   use depends on all records of the host. So a second client is checked against the record of the first. Other hosts do
   not wait. All hosts of a card are locked at once and in one order, so two clients never wait for each other.
2. Transactions are READ COMMITTED, and the lock is a statement of its own: the query after it sees the records of the
   client that had the lock before. PostgreSQL shows what is committed first, and frees the lock after that.
3. The lock of a client that was stopped or cut off ends with its session, which the server closes after twice the time
   limit (``base.databases.postgres``).
"""

from __future__ import annotations

import json
import logging
import shlex
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from a2a_trust.base.databases.availability import REQUEST_SECONDS
from a2a_trust.base.files.sqlite import SqliteFile
from a2a_trust.client.location import Location
from a2a_trust.client.memory import CardTable, Remembered, TableCardMemory
from a2a_trust.errors import CardMemoryUnavailableError
from a2a_trust.keys.trust.origins import host_of

if TYPE_CHECKING:
    from a2a_trust.base.databases.postgres import Transaction

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


_SELECT: Final = """
SELECT location, thumbprints, issued, version, first_seen, last_seen, on_first_use,
    (SELECT string_agg(digest, ' ') FROM a2a_trust.card_interface WHERE card_interface.location = card.location)
FROM a2a_trust.card
"""
_NAMED_AT: Final = "SELECT location FROM a2a_trust.card_interface WHERE digest = ANY($2)"
_LOCK: Final = "SELECT pg_advisory_xact_lock(host) FROM unnest($1::bigint[]) AS host"
_UPSERT: Final = """
INSERT INTO a2a_trust.card (host, location, thumbprints, issued, version, first_seen, last_seen, on_first_use)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (location) DO UPDATE SET
    thumbprints = excluded.thumbprints, issued = excluded.issued, version = excluded.version,
    first_seen = excluded.first_seen, last_seen = excluded.last_seen, on_first_use = excluded.on_first_use
"""
_DROP_INTERFACES: Final = "DELETE FROM a2a_trust.card_interface WHERE location = $1 AND digest <> ALL($2)"
_PUT_INTERFACES: Final = """
INSERT INTO a2a_trust.card_interface (digest, location) SELECT digest, $1 FROM unnest($2::text[]) AS digest
ON CONFLICT (digest) DO UPDATE SET location = excluded.location
"""


class PostgresCardMemory(TableCardMemory):
    """The card memory in one PostgreSQL database, for all processes and machines of a client.

    ``url``: ``postgresql://USER@HOST/DATABASE``, prepared with ``a2a-sign database migrate``. ``timeout``: the longest,
    in seconds, that a call waits for the database and for other clients; the first one connects.
    ConfigurationError: an argument is wrong. CardMemoryUnavailableError: the database cannot be used in time, or lacks
    the tables of this release.
    """

    def __init__(self, url: str, *, timeout: float = REQUEST_SECONDS) -> None:
        from a2a_trust.base.databases.postgres import Postgres  # slow, and the command seldom needs it

        self._database = Postgres(url, what="memory of cards", unavailable=CardMemoryUnavailableError, timeout=timeout)
        self._place = self._database.url.argument

    @contextmanager
    def _reading(self) -> Iterator[CardTable]:
        with self._database.transaction(audits=True) as session:
            yield _PostgresTable(session, locks=False)

    @contextmanager
    def _writing(self) -> Iterator[CardTable]:
        with self._database.transaction(audits=True) as session:
            yield _PostgresTable(session)


class _PostgresTable:
    """The table inside a transaction. Every method for locations locks their hosts first, if the transaction writes."""

    def __init__(self, session: Transaction, *, locks: bool = True) -> None:
        self._session, self._locks = session, locks
        self._locked: set[str] = set()

    def records(self, where: str = "", *values: object) -> tuple[Remembered, ...]:
        records = map(Remembered.of_row, self._session.fetch(f"{_SELECT} {where} ORDER BY location", *values))
        return tuple(
            each if each.version is None else replace(each, version=json.loads(each.version)) for each in records
        )

    def get(self, location: Location) -> Remembered | None:
        self._lock(location.host)
        return next(iter(self.records("WHERE location = $1", location)), None)

    def neighbours(self, location: Location) -> tuple[Remembered, ...]:
        self._lock(location.host)
        return self.records("WHERE host = $1 AND location <> $2", location.host, location)

    def elsewhere(self, location: Location, interfaces: Mapping[str, str]) -> tuple[Remembered, ...]:
        self._lock(location.host, *map(host_of, interfaces.values()))
        return self.records(f"WHERE location <> $1 AND location IN ({_NAMED_AT})", location, [*interfaces])

    def put(self, record: Remembered) -> None:
        self._lock(record.location.host)
        # In ASCII: text cannot hold NUL.
        written = None if record.version is None else json.dumps(record.version)
        self._session.execute(_UPSERT, record.location.host, *replace(record, version=written).row())
        for statement in (_DROP_INTERFACES, _PUT_INTERFACES):
            self._session.execute(statement, record.location, sorted(record.interfaces))

    def remove(self, location: Location) -> None:
        self._lock(location.host)
        self._session.execute("DELETE FROM a2a_trust.card WHERE location = $1", location)

    def _lock(self, *hosts: str) -> None:
        needed = {*hosts} - self._locked
        if needed and self._locks:
            # Two hosts with the same number wait for each other, and nothing else.
            digests = [sha256(f"a2a_trust.card {host}".encode()).digest() for host in needed]
            numbers = sorted(int.from_bytes(digest[:8], "big", signed=True) for digest in digests)
            # In a statement of its own: a statement sees what was committed when it began, and this one waits.
            self._session.execute(_LOCK, numbers)
            self._locked |= needed
