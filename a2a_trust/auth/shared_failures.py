"""Failed credentials of all replicas, counted in Redis or Valkey.

Each process goes on counting for itself (``auth.throttle``), and that alone decides while Redis cannot be reached. The
shared counters are read before a guessable credential is verified, and written after a failure in the background. So a
guesser who tries all replicas at once gets a few guesses more than the limit, those under way, and not one limit for
each replica.

Redis learns digests of peers and names. Counters end with their period.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from a2a_trust.cache import SingleFlight
from a2a_trust.databases.availability import REQUEST_SECONDS
from a2a_trust.databases.redis import RedisServer
from a2a_trust.errors import KeySourceUnavailableError

if TYPE_CHECKING:
    from limits import RateLimitItem
    from limits.aio.strategies import FixedWindowRateLimiter

__all__ = ["RedisFailures"]

_PAUSE: Final = 1.0
"""So many seconds after a failed trip Redis is left alone: not every request waits for it."""
_MOST_COUNTED: Final = 4_096
"""Counters that wait to be written; beyond that, only this process counts."""
_PREFIX: Final = "a2a:failures:fixed"
"""Counters of another strategy must not have the same names."""

_Counter: TypeAlias = "tuple[RateLimitItem, str]"


class RedisFailures:
    """The failed credentials of all replicas: ``FailureLimits(shared=RedisFailures("rediss://HOST:6379/0"))``.

    Agents with the same server and the same limits are counted together.
    """

    def __init__(self, url: str, *, timeout: float = REQUEST_SECONDS) -> None:
        """``url``: ``rediss://HOST:6379/0``, or ``redis://…`` without TLS. ``timeout``: the longest, in seconds, that a
        request waits for the server. ConfigurationError: an argument is wrong.
        """
        self._server = RedisServer(
            url,
            what="counters of failed credentials",
            unavailable=KeySourceUnavailableError,
            timeout=timeout,
            may_drop=True,
        )
        self._limiters: WeakKeyDictionary[Any, FixedWindowRateLimiter] = WeakKeyDictionary()
        self._unwritten: dict[_Counter, int] = {}
        self._writing = SingleFlight[None, None]()
        self._retry_at = -math.inf

    async def seconds_over(self, counters: Iterable[_Counter]) -> dict[_Counter, float]:
        """The counters that have reached their limits, and in how many seconds they end. Empty while Redis is down."""
        if time.monotonic() < self._retry_at:
            return {}
        over: dict[_Counter, float] = {}
        try:
            async with self._server.session() as client:
                limiter = self._limiter(client)
                for counter in counters:
                    window = await limiter.get_window_stats(*counter)
                    if not window.remaining:
                        over[counter] = window.reset_time - time.time()
        except (KeySourceUnavailableError, ValueError):  # a counter that is not a number was not written by us
            self._retry_at = time.monotonic() + _PAUSE
            return {}
        return over

    def count(self, counters: Iterable[_Counter]) -> None:
        """Count a failure in the background."""
        for counter in counters:
            if counter in self._unwritten or len(self._unwritten) < _MOST_COUNTED:
                self._unwritten[counter] = self._unwritten.get(counter, 0) + 1
        self._writing.begin(None, self._write)

    async def aclose(self) -> None:
        """Write what was counted, and close the connections of the running event loop."""
        await self._writing.run(None, self._write)
        await self._server.aclose()

    async def _write(self) -> None:
        while self._unwritten:
            counted, self._unwritten = self._unwritten, {}
            if time.monotonic() < self._retry_at:
                return  # this process has counted them, too
            try:
                async with self._server.session() as client:
                    limiter = self._limiter(client)
                    await asyncio.gather(*[limiter.hit(*counter, cost=count) for counter, count in counted.items()])
            except KeySourceUnavailableError:
                self._retry_at = time.monotonic() + _PAUSE

    def _limiter(self, client: Any) -> FixedWindowRateLimiter:
        limiter = self._limiters.get(client)
        if limiter is None:
            from limits.aio.storage import RedisStorage
            from limits.aio.strategies import FixedWindowRateLimiter

            pool = {"connection_pool": client.connection_pool}
            storage = RedisStorage("redis://", implementation="redispy", key_prefix=_PREFIX, **pool)
            limiter = self._limiters[client] = FixedWindowRateLimiter(storage)
        return limiter
