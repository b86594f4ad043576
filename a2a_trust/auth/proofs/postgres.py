"""Used DPoP proofs in PostgreSQL.

A proof is accepted when its transaction is on the disk of the server (``synchronous_commit = on``). A standby that
takes over is another timeline, and a restored table is another file, so proofs are rejected for a while then
(``auth.proofs.shared``, rule 3).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Final

from a2a_trust.auth.proofs.shared import SharedProofMemory, State, Use
from a2a_trust.base.databases.availability import REQUEST_SECONDS
from a2a_trust.base.databases.postgres import Postgres

#: The server's name for itself. It changes with the server, with its timeline, with a database or a table that was
#: restored from a copy, and with TRUNCATE; also with VACUUM FULL, which looks the same.
SERVER: Final = """
(SELECT system_identifier FROM pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
    || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())
    || '/' || pg_relation_filenode('a2a_trust.proof')
"""

#: In one statement, so in one round trip. Rows that others commit meanwhile are neither added nor seen: replays.
#: A row that another transaction is dropping is both there and added; the old one comes last, and decides.
#: In the order of digests, so that two transactions never wait for each other.
_REMEMBER: Final = f"""
WITH added AS (
    INSERT INTO a2a_trust.proof (digest, attempt, issued, ends)
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::float8[], $4::float8[]) ORDER BY 1
    ON CONFLICT (digest) DO NOTHING RETURNING digest, attempt
), first AS (
    SELECT digest, attempt, 1 AS place FROM added
    UNION ALL SELECT digest, attempt, 2 FROM a2a_trust.proof WHERE digest = ANY ($1::bytea[])
)
SELECT
    {SERVER} AS server,
    extract(epoch FROM clock_timestamp())::float8 AS at,
    store.server AS known_server,
    coalesce(store.since, 'infinity') AS since, coalesce(store.dropped, '-infinity') AS dropped,
    ARRAY (SELECT digest FROM first ORDER BY digest, place) AS digests,
    ARRAY (SELECT attempt FROM first ORDER BY digest, place) AS attempts
FROM (SELECT) AS one LEFT JOIN a2a_trust.proof_store AS store ON true
"""  # noqa: S608  a constant

_MARK: Final = """
INSERT INTO a2a_trust.proof_store (server, since, dropped) VALUES ($1, $2, $3)
ON CONFLICT (only_row) DO UPDATE SET server = excluded.server, since = excluded.since,
    dropped = greatest(nullif(proof_store.dropped, 'NaN'), excluded.dropped)
"""

_DROP: Final = """
WITH ended AS (
    SELECT digest FROM a2a_trust.proof WHERE ends < $1 ORDER BY ends LIMIT 1000 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM a2a_trust.proof WHERE digest IN (SELECT digest FROM ended) RETURNING issued
)
UPDATE a2a_trust.proof_store SET dropped = greatest(dropped, (SELECT max(issued) FROM gone))
WHERE EXISTS (SELECT FROM gone)
"""

_DROP_EVERY: Final = 0.25
"""Ended proofs are dropped this often, in seconds: 4,000 a second by each process."""


class PostgresProofMemory(SharedProofMemory):
    """Remembers proofs in one PostgreSQL database, for all processes and machines of an agent.

    KeySourceUnavailableError (503) when the database does not answer in time, or a first use is not certain.
    """

    _server: Postgres

    def __init__(self, url: str, *, capacity: int = 1_000_000, timeout: float = REQUEST_SECONDS) -> None:
        """``url``: ``postgresql://USER@HOST/DATABASE``, prepared with ``a2a-sign database migrate``. ``capacity``: the
        largest number of proofs of this process at once. ``timeout``: the longest, in seconds, that one round trip to
        the database takes; a request waits for twice as long at most. ConfigurationError: an argument is wrong.
        """
        server = Postgres(url, what="memory of DPoP proofs", timeout=timeout)
        super().__init__(server, capacity, "PostgresProofMemory(…, capacity=…)", timeout)
        self._drop_at = -math.inf

    async def _remember(self, uses: tuple[Use, ...]) -> tuple[State, Mapping[bytes, bytes]]:
        columns = zip(*((use.digest, use.attempt, use.issued, use.ends) for use in uses), strict=True)
        async with self._server.session() as connection:
            (row,) = await connection.fetch(_REMEMBER, *map(list, columns))
            state = State(**{name: row[name] for name in State._fields})
            if time.monotonic() >= self._drop_at:
                self._drop_at = time.monotonic() + _DROP_EVERY
                await connection.execute(_DROP, state.at)
        return state, dict(zip(row["digests"], row["attempts"], strict=True))

    async def _mark(self, state: State) -> None:
        async with self._server.session() as connection:
            await connection.execute(_MARK, state.known_server, state.since, state.dropped)
