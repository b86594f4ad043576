"""Used DPoP proofs in a database, so that exactly one replica accepts a proof.

The rules, beside the rules of ``auth.proofs.memory``, which each process applies to its own proofs:

1. The database stores a proof, and says whether it was there, in one step. Every request has an ``attempt`` of its
   own, so a command that is sent again, because its answer was lost, is no replay.
2. The clocks of this machine and of the database differ by at most ten seconds, so a proof is stored for longer than
   any replica accepts it. Else: 503.
3. A database that is new, was restored, or took the place of another may lack proofs that were used before. It says so
   by its name for itself (``server``). Proofs that may be older than this change are rejected with 503. A name that is
   not the last one that this process saw is a change, too: the first server may come back without what the second knew.
4. The times of dropped proofs are kept. A proof of such a time, after clocks were set back: 503. A proof is kept for
   the largest window that can be configured, so replicas may have different windows.
5. A database that is unreachable is not an empty one: 503. A request waits for twice ``timeout`` at most.
6. A database whose data about itself are damaged is treated as new.

In PostgreSQL, a proof is accepted when its transaction is on the disk of the server (``synchronous_commit = on``). A
standby that takes over is another timeline, and a restored table is another file: rule 3. In Redis and Valkey, a proof
is one key that expires: about 140 bytes until then. A restart may lose proofs of the last second, or all: rule 3.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from a2a_trust.auth.proofs.memory import MAX_WINDOW, Capacity, VolatileProofMemory, digest_of
from a2a_trust.base.cache import LookUps, SingleFlight
from a2a_trust.base.databases.availability import REQUEST_SECONDS, Pooled
from a2a_trust.base.databases.postgres import Postgres
from a2a_trust.base.databases.redis import RedisServer
from a2a_trust.base.dates import date_of
from a2a_trust.errors import KeySourceUnavailableError

SKEW: Final = 10.0
"""By how many seconds the clocks of a replica and of the database may differ."""
GRAIN: Final = 5.0
"""By how many seconds the stored time of the last dropped proof may be behind."""
_IN_TIME: Final = 0.1
"""A round trip that failed within this time, in seconds, is made once more: the connection may have been lost."""
_RETRY_SECONDS: Final = 1.0
_BUSY: Final = "too many proofs wait for it"

Server = TypeVar("Server", Postgres, RedisServer)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Use:
    """A proof that a request brings; times are in seconds since the epoch."""

    digest: bytes
    attempt: bytes
    now: float
    issued: float
    window: float
    until: float
    """How long the request waits, by the monotonic clock."""

    @property
    def ends(self) -> float:
        """When the database may drop it: then no replica accepts it any more, whatever window it is configured with."""
        return self.issued + MAX_WINDOW + 2 * SKEW


class State(NamedTuple):
    """The database at the moment of a round trip.

    ``server`` is its name for itself, ``at`` its time. ``known_server`` and ``since`` are from the last change;
    ``dropped`` is the time of the youngest dropped proof. Invalid numbers are NaN.
    """

    server: str
    at: float
    known_server: str | None
    since: float
    dropped: float


class SharedProofMemory(Pooled[Server]):
    """The base of memories in a database."""

    def __init__(self, server: Server, capacity: int, call: str, timeout: float) -> None:
        """``capacity`` and ``call`` as for ``Capacity``, for the proofs of this process. ``timeout`` is for one round
        trip, in seconds."""
        self._server = server
        self._patience = 2 * timeout
        self._last_server = ""
        self._own = VolatileProofMemory(capacity)
        self._own.capacity = Capacity(capacity, call)
        self._look_ups = LookUps(self._round_trip)
        self._tries = SingleFlight[None, bool]()

    def outage(self) -> str:
        """Why the database cannot be used, since its last use failed; "" if it can. It is then used again, later."""
        if self._server.lost:
            self._tries.begin(None, self._try_again)
        return self._server.lost

    async def _try_again(self) -> bool:
        await asyncio.sleep(_RETRY_SECONDS)
        now = time.time()
        return await self.first_use("", os.urandom(16).hex(), now=now, issued=now, window=1.0)

    async def _remember(self, uses: tuple[Use, ...]) -> tuple[State, Mapping[bytes, bytes]]:
        """Store the proofs, and return by digest the first attempt, from now or before."""
        raise NotImplementedError

    async def _mark(self, state: State) -> None:
        """Store ``known_server``, ``since`` and ``dropped`` of the state."""
        raise NotImplementedError

    async def first_use(self, jkt: str, jti: str, *, now: float, issued: float, window: float) -> bool:
        if not await self._own.first_use(jkt, jti, now=now, issued=issued, window=window):
            return False
        use = Use(
            digest=digest_of(jkt, jti),
            attempt=os.urandom(16),
            now=now,
            issued=issued,
            window=window,
            until=time.monotonic() + self._patience,
        )
        try:
            async with asyncio.timeout(self._patience):
                answer = await self._look_ups.find(use)
        except TimeoutError:
            answer = _BUSY
        except BaseException:
            self._own.forget(jkt, jti, issued=issued)  # nobody learned that it was used
            raise
        if isinstance(answer, str):
            self._own.forget(jkt, jti, issued=issued)
            raise KeySourceUnavailableError(f"the {self._server.what}: {answer}")
        return answer is True

    async def _round_trip(self, uses: tuple[Use, ...]) -> Mapping[Use, bool | str]:
        """For each proof whether this is its first use, or why that is unknown."""
        begun = time.monotonic()
        waiting = tuple(use for use in uses if use.until > begun)  # the others have timed out
        if not waiting:
            return dict.fromkeys(uses, _BUSY)
        try:
            state, first = await self._remember(waiting)
        except KeySourceUnavailableError:
            if time.monotonic() - begun > _IN_TIME:
                raise
            state, first = await self._remember(waiting)
        state = await self._mark_changes(state)
        found = {use: _doubt(use, state) or first.get(use.digest) == use.attempt for use in waiting}
        return {**dict.fromkeys(uses, _BUSY), **found}

    async def _mark_changes(self, state: State) -> State:
        """The state, after its changes were stored."""
        is_damaged = math.isnan(state.since) or math.isnan(state.dropped)
        dropped = state.at - MAX_WINDOW - 2 * SKEW
        if not is_damaged:
            dropped = max(dropped, state.dropped)
        is_another = state.server != state.known_server or self._last_server not in (state.server, "")
        if is_another or is_damaged:
            state = state._replace(known_server=state.server, since=state.at, dropped=dropped)
            await self._mark(state)
        elif dropped > state.dropped + GRAIN:
            await self._mark(state._replace(dropped=dropped))
        self._last_server = state.server
        return state._replace(dropped=dropped)


def _doubt(use: Use, state: State) -> str:
    """Why it is unknown whether the proof was used before; "" if it is known."""
    if not abs(state.at - use.now) <= SKEW:
        return (
            f"its clock and the clock of this machine differ by {abs(state.at - use.now):.0f} seconds, and {SKEW:.0f} "
            "are allowed; look at their time services"
        )
    certain = state.since + use.window + 2 * SKEW
    if not use.issued > certain:
        return (
            "it is new, was restarted or took the place of another, which may have known more proofs; proofs count "
            f"again from {date_of(certain)} on"
        )
    if not use.issued > state.dropped + GRAIN:
        return "it no longer has the proofs of this time: a clock was set back; look at the time services"
    return ""


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


class PostgresProofMemory(SharedProofMemory[Postgres]):
    """Remembers proofs in one PostgreSQL database, for all processes and machines of an agent.

    KeySourceUnavailableError (503) when the database does not answer in time, or a first use is not certain.
    """

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


_STATE: Final = "a2a:proofs"


class RedisProofMemory(SharedProofMemory[RedisServer]):
    """Remembers proofs in one Redis server, for all processes and machines of an agent.

    KeySourceUnavailableError (503) if the server does not answer in time or evicts keys, or a first use is not certain.
    """

    def __init__(self, url: str, *, capacity: int = 1_000_000, timeout: float = REQUEST_SECONDS) -> None:
        """``url``: ``rediss://HOST:6379/0``, or ``redis://…`` without TLS. ``capacity``: the largest number of proofs
        of this process at once. ``timeout``: the longest, in seconds, that one round trip to the server takes; a
        request waits for twice as long at most. ConfigurationError: an argument is wrong.
        """
        server = RedisServer(url, what="memory of DPoP proofs", timeout=timeout)
        super().__init__(server, capacity, "RedisProofMemory(…, capacity=…)", timeout)

    async def _remember(self, uses: tuple[Use, ...]) -> tuple[State, Mapping[bytes, bytes]]:
        first: dict[bytes, bytes] = {}
        async with self._server.session() as client, client.pipeline(transaction=False) as pipeline:
            for use in uses:
                pipeline.set(b"a2a:proof:" + use.digest, use.attempt, nx=True, get=True, pxat=int(use.ends * 1000))
            pipeline.time()
            pipeline.hmget(_STATE, ["server", "since", "dropped"])
            pipeline.info("server", "memory")
            *before, (seconds, microseconds), (server, since, dropped), info = await pipeline.execute()
            self._server.check_room(info)
        if not info.get("run_id"):
            raise KeySourceUnavailableError(f"the {self._server.what} cannot be used: INFO gives no run_id")
        for use, attempt in zip(uses, before, strict=True):
            first.setdefault(use.digest, use.attempt if attempt is None else attempt)
        return State(
            server=info["run_id"],
            at=seconds + microseconds / 1e6,
            known_server=None if server is None else server.decode(errors="replace"),
            since=math.inf if since is None else _number(since),
            dropped=-math.inf if dropped is None else _number(dropped),
        ), first

    async def _mark(self, state: State) -> None:
        async with self._server.session() as client:
            times = ["since", repr(state.since), "dropped", repr(state.dropped)]
            await client.hset(_STATE, items=["server", str(state.known_server), *times])


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
