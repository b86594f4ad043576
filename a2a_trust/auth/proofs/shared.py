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
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from a2a_trust.auth.look_ups import LookUps
from a2a_trust.auth.proofs.memory import MAX_WINDOW, Capacity, VolatileProofMemory, digest_of
from a2a_trust.base.cache import SingleFlight
from a2a_trust.base.databases.availability import Pooled
from a2a_trust.base.dates import date_of
from a2a_trust.errors import KeySourceUnavailableError

if TYPE_CHECKING:
    from a2a_trust.base.databases.postgres import Postgres
    from a2a_trust.base.databases.redis import RedisServer

SKEW: Final = 10.0
"""By how many seconds the clocks of a replica and of the database may differ."""
GRAIN: Final = 5.0
"""By how many seconds the stored time of the last dropped proof may be behind."""
_IN_TIME: Final = 0.1
"""A round trip that failed within this time, in seconds, is made once more: the connection may have been lost."""
_RETRY_SECONDS: Final = 1.0
_BUSY: Final = "too many proofs wait for it"


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


class SharedProofMemory(Pooled):
    """The base of memories in a database."""

    def __init__(self, server: Postgres | RedisServer, capacity: int, call: str, timeout: float) -> None:
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

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._server.aclose()

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
