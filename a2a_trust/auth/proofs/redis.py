"""Used DPoP proofs in Redis or Valkey.

A proof is one key that expires: about 140 bytes until then. A restart may lose proofs of the last second, or all, so
proofs are rejected for a while after it, as after a failover (``auth.proofs.shared``, rule 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from a2a_trust.auth.proofs.shared import SharedProofMemory, State, Use
from a2a_trust.base.databases.availability import REQUEST_SECONDS
from a2a_trust.base.databases.redis import RedisServer
from a2a_trust.errors import KeySourceUnavailableError

_STATE: Final = "a2a:proofs"


class RedisProofMemory(SharedProofMemory):
    """Remembers proofs in one Redis server, for all processes and machines of an agent.

    KeySourceUnavailableError (503) if the server does not answer in time or evicts keys, or a first use is not certain.
    """

    _server: RedisServer

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
