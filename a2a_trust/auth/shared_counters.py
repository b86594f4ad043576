"""Counters of failed credentials in Redis or Valkey, which the processes and machines of an agent share.

``limits`` counts, in fixed windows. A counter is one key that expires with its window, and its name has digests of
peers and user names only. The server may drop counters: each process still has its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from a2a_trust.databases.availability import REQUEST_SECONDS, Pause
from a2a_trust.databases.redis import RedisServer
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError

if TYPE_CHECKING:
    from limits import RateLimitItem
    from limits.aio.strategies import FixedWindowRateLimiter

__all__ = ["RedisCounters", "SharedCounter"]

_PREFIX: Final = "a2a:failures:fixed-window"
"""The strategies of ``limits`` do not read each other's keys."""

_ROUNDED: Final = 0.5
"""Redis rounds the rest of a window to whole seconds; so much later, in seconds, it has certainly ended."""


class SharedCounter(NamedTuple):
    """What is counted: for a limit, the failures of an owner, which is a digest."""

    item: RateLimitItem
    owner: str

    @property
    def name(self) -> str:
        """The name of the counter; that of its key is longer."""
        return str(self.item.key_for(self.owner))


class RedisCounters:
    """Counts failed credentials in one Redis server: ``FailureLimits(shared=RedisCounters("rediss://…"))``.

    Agents that use the same database of a server, with the same limits, share the counters.

    While the server cannot be used, each process has only its own counters. A request waits for the server for a
    quarter of a second at most, and after a failure one request per second tries it again.
    """

    def __init__(self, url: str) -> None:
        """``url``: ``rediss://HOST:6379/0``, or ``redis://…`` without TLS. ConfigurationError: it is no such URL, or
        an extra is not installed.
        """
        try:
            from limits.aio.storage import RedisStorage
            from limits.aio.strategies import FixedWindowRateLimiter
        except ImportError:
            raise ConfigurationError('RedisCounters needs limits: pip install "a2a-trust[server,redis]"') from None
        self._server = RedisServer(
            url,
            what="counters of failed credentials",
            unavailable=KeySourceUnavailableError,
            timeout=REQUEST_SECONDS,
            may_drop=True,
        )
        self._pause = Pause()
        self._limiters: WeakKeyDictionary[Any, FixedWindowRateLimiter] = WeakKeyDictionary()
        self._storage, self._limiter = RedisStorage, FixedWindowRateLimiter

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._server.aclose()

    async def full(self, counters: Sequence[SharedCounter]) -> dict[SharedCounter, float]:
        """The counters that have reached their limits, and in how many seconds each ends; empty when Redis cannot
        tell."""

        async def ask(limiter: FixedWindowRateLimiter) -> dict[SharedCounter, float]:
            return {each: await _rest(limiter, each) for each in counters if not await limiter.test(*each)}

        return await self._asked(ask)

    async def hit(self, first: SharedCounter, others: Sequence[SharedCounter]) -> dict[SharedCounter, float]:
        """Count a failure; returns as ``full`` the counters that are beyond their limits now. The others are counted
        only if the first is not beyond its own.
        """

        async def count(limiter: FixedWindowRateLimiter) -> dict[SharedCounter, float]:
            if not await limiter.hit(*first):
                return {first: await _rest(limiter, first)}
            return {each: await _rest(limiter, each) for each in others if not await limiter.hit(*each)}

        return await self._asked(count)

    async def _asked(
        self, work: Callable[[FixedWindowRateLimiter], Coroutine[Any, Any, dict[SharedCounter, float]]]
    ) -> dict[SharedCounter, float]:
        if not self._pause.may_try():
            return {}
        try:
            async with self._server.session() as client:
                found = await work(self._of(client))
        except (KeySourceUnavailableError, ValueError, TypeError):  # or what is there is no number
            self._pause.failed()
            return {}
        self._pause.worked()
        return found

    def _of(self, client: Any) -> FixedWindowRateLimiter:
        """The counters behind the connections of this client: those of ``limits`` would have no time limits."""
        limiter = self._limiters.get(client)
        if limiter is None:
            storage = self._storage(
                "async+redis://",
                implementation="redispy",
                key_prefix=_PREFIX,
                connection_pool=client.connection_pool,
            )
            limiter = self._limiters[client] = self._limiter(storage)
        return limiter


async def _rest(limiter: FixedWindowRateLimiter, counter: SharedCounter) -> float:
    """In how many seconds the counter ends. No server makes that longer than the window of the limit."""
    ends = (await limiter.get_window_stats(*counter)).reset_time
    return min(ends - time.time() + _ROUNDED, counter.item.get_expiry())
