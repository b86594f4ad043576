"""The card memory in PostgreSQL, which the clients on several machines share.

1. A transaction locks the host of a location, and the hosts of a card's interfaces, before it reads, because a first
   use depends on all records of the host. So a second client is checked against the record of the first. Other hosts do
   not wait. All hosts of a card are locked at once and in one order, so two clients never wait for each other.
2. Transactions are READ COMMITTED, and the lock is a statement of its own: the query after it sees the records of the
   client that had the lock before. PostgreSQL shows what is committed first, and frees the lock after that.
3. A database that cannot be used in time is an error, because an empty memory would accept every key as a first use.
4. The lock of a client that was stopped or cut off ends with its session, which the server closes after twice the time
   limit (``base.databases.postgres``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from typing import Final

from a2a_trust.base.databases.availability import REQUEST_SECONDS
from a2a_trust.base.databases.postgres import Postgres, Transaction
from a2a_trust.client.location import Location
from a2a_trust.client.memory import CardTable, Remembered, TableCardMemory
from a2a_trust.errors import CardMemoryUnavailableError
from a2a_trust.keys.trust.origins import host_of

_SELECT: Final = """
SELECT location, thumbprints, issued, version, first_seen, last_seen, on_first_use,
    (SELECT string_agg(digest, ' ') FROM a2a_trust.card_interface WHERE card_interface.location = card.location)
FROM a2a_trust.card
"""
_NAMED_AT: Final = "SELECT location FROM a2a_trust.card_interface WHERE digest = ANY($2)"
_LOCK: Final = "SELECT pg_advisory_xact_lock(host) FROM unnest($1::bigint[]) AS host"
_PUT: Final = """
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
        self._session.execute(_PUT, record.location.host, *replace(record, version=written).row())
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
