"""Limits failed requests by peer and by credential name; beyond a limit, passwords are rejected unverified.

Only failures count. A credential that cannot be guessed is always verified. One that can is verified beyond a limit
only if the verifier remembers it, and only for the peer for which it was verified: to all others, an answer would tell
whether a guess is right. The peer is the address in the scope: that of the socket, or one from a proxy that the server
trusts.

The counters of the process decide exactly, always. Those that it shares with others, if any, only add rejections: they
are asked before a credential that can be guessed is verified, and told of each failure.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import secrets
import time
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from threading import Lock
from typing import Any, Final, NamedTuple

from limits import RateLimitItem, WindowStats, parse_many
from limits.storage import Storage
from limits.strategies import FixedWindowRateLimiter

from a2a_trust.auth.shared_counters import RedisCounters, SharedCounter
from a2a_trust.cache import BoundedCache
from a2a_trust.errors import ConfigurationError, TooManyRequestsError

__all__ = ["FailureLimits", "Throttle", "peer_of"]

_COUNTERS: Final = 32_768
"""Counters in memory: 12 MB."""

_NAMED: Final = 64
"""The bits by which IPv6 addresses differ: the owner of one address has all addresses of its /64."""

_KNOWN_SECONDS: Final = 300.0
"""How long a verified credential is known by its peer; ``BasicVerifier`` remembers passwords as long."""

_AT_ONCE: Final = 16
"""How many requests of one peer are verified at once: a fraction of the passwords that may wait for their hashes, so
that no peer fills the queue alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLimits:
    """How many requests with a wrong password or API key are accepted in a period, as in ``"10/minute"``.

    ``by_credential`` is the limit for each pair of a peer and a user name (or key id), ``by_peer`` for each peer: an
    IPv4 address, or an IPv6 network of 64 bits. Credentials without a name count only for their peer.

    Beyond a limit the answer is 429, and passwords of this peer are not verified until the period ends. API keys,
    tokens, and passwords that were verified for this peer a short while ago are still verified. A right password ends
    the count of its pair.

    Each process has its own counters. With ``shared``, all processes of the agent have common counters, too.
    """

    by_credential: str = "10/minute"
    by_peer: str = "100/minute"
    shared: RedisCounters | None = None

    def __post_init__(self) -> None:
        for each in ("by_credential", "by_peer"):
            _limit(self, each)
        if not isinstance(self.shared, RedisCounters | None):
            raise ConfigurationError('failures: write shared=RedisCounters("rediss://HOST:6379/0")')


def _limit(limits: FailureLimits, option: str) -> _Limit:
    """A limit; ConfigurationError where the text states none, several, or one that accepts nothing."""
    text = getattr(limits, option)
    try:
        (item,) = parse_many(text)
    except ValueError:
        item = None
    if item is None or item.amount < 1:
        raise ConfigurationError(
            f"failures: {option}={text!r:.64} is not a limit; write a number of failures, 1 or more, and a period, as "
            'in "10/minute", "100/hour" or "20/5 minutes"'
        )
    return _Limit(f"{option}={text}", item)


class _Limit(NamedTuple):
    """A limit, and how it was written."""

    option: str
    item: RateLimitItem


class _Counter(NamedTuple):
    """The counted attempts: for a limit, the failures of a peer, or of a name that a peer tries."""

    limit: _Limit
    owner: str

    @property
    def shared(self) -> SharedCounter:
        return SharedCounter.of(self.limit.item, self.owner)


class Throttle:
    """Counts the failed requests of each peer, and of each name that a peer tries.

    ``begin`` is for credentials that somebody might guess. While those of other requests are being verified, no more
    are begun than may still fail, and no more than 16; the rest wait for the outcome. So a limit is exact, many valid
    passwords at once are not rejected, and no peer takes all the time of the hashes.

    The windows are fixed ones: each begins with its first failure. A sliding window takes two counters and 1.4 times
    the time, and its end is an estimate, where ``Retry-After`` has to be true. The price is that around the end of a
    window up to twice the limit may fail.

    Shared counters are exact if guesses come one after the other. If guesses come to several processes at the same
    moment, each process may verify as many as its own counters allow.

    Why this is a class: it counts. One belongs to one guard.
    """

    def __init__(self, limits: FailureLimits, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds that never run backwards."""
        self._by_peer = _limit(limits, "by_peer")
        self._by_credential = _limit(limits, "by_credential")
        self._clock = clock
        self._counters = _Counters(clock)
        self._counted = FixedWindowRateLimiter(self._counters)
        self._shared = limits.shared
        #: The shared counters that have reached their limits, and when they end: they need not be asked until then.
        self._full = BoundedCache[str, float](max_entries=_COUNTERS)
        #: How many requests of each counter are being verified, and those that wait for their end.
        self._begun: dict[_Counter, int] = {}
        self._waiting: dict[_Counter, list[tuple[AbstractEventLoop, Future[None]]]] = {}
        self._lock = Lock()
        #: Digests of verified credentials and their peers, with a key that only this process has.
        self._known = BoundedCache[bytes, bool](max_entries=_COUNTERS)
        self._key = secrets.token_bytes(hashlib.blake2b.MAX_KEY_SIZE)

    def knows(self, scope: Mapping[str, Any], scheme: str, credential: object) -> bool:
        """Whether this credential was ``accepted`` for this scheme and this peer a short while ago."""
        return self._known.get(self._pair(scope, scheme, credential), self._clock()) is True

    def accepted(self, scope: Mapping[str, Any], scheme: str, credential: object) -> None:
        """Remember that this credential was verified for this peer."""
        self._known.put(self._pair(scope, scheme, credential), True, until=self._clock() + _KNOWN_SECONDS)

    def _pair(self, scope: Mapping[str, Any], scheme: str, credential: object) -> bytes:
        return hashlib.blake2b(repr((peer_of(scope), scheme, credential)).encode(), key=self._key).digest()

    async def begin(self, scope: Mapping[str, Any], names: Collection[str]) -> Callable[[], None]:
        """Wait until a request's credentials of these names may be verified; call what this returns at their end.

        TooManyRequestsError: too many failed before. Call ``failed`` before the end if the credentials were rejected.
        """
        peer = peer_of(scope)
        counters = self._counters_of(peer, names)
        while (full := self._begin(peer, counters)) is not None:
            await full
        if self._shared is not None:
            try:
                await self._ask(self._shared, peer, counters)
            except BaseException:
                self._end(counters)
                raise
        return lambda: self._end(counters)

    async def failed(self, scope: Mapping[str, Any], names: Collection[str]) -> TooManyRequestsError | None:
        """Count a request whose credentials of these names were rejected; the error if that was one too many.

        It is counted when this is called: to be cancelled while waiting for the shared counters changes nothing.
        """
        peer = peer_of(scope)
        by_peer, *by_name = counters = self._counters_of(peer, names)
        # Names are not counted beyond the limit of their peer: it would drive out the counters of others by inventing
        # names.
        over = [] if self._hit(by_peer) else [by_peer]
        if not over and not self._is_full(by_peer):
            over = [each for each in by_name if not self._hit(each)]
        if self._shared is not None:
            if not self._is_full(by_peer):
                told = [by_peer] if by_peer in over else [each for each in counters if not self._is_full(each)]
                self._remember(await self._shared.hit(each.shared for each in told))
            over += [each for each in counters if self._is_full(each)]
        return self._refusal(peer, over) if over else None

    async def succeeded(self, scope: Mapping[str, Any], names: Collection[str]) -> None:
        """Clear the counters of a request's valid credentials of these names: those that count pairs of a peer and a
        name. A caller that knows a password does not guess it. The counter of the peer stays, for the other names."""
        _, *by_name = self._counters_of(peer_of(scope), names)
        for counter in by_name:
            self._counted.clear(counter.limit.item, counter.owner)
            self._full.remove(counter.shared.name)
        if self._shared is not None:
            await self._shared.clear(each.shared for each in by_name)

    async def _ask(self, shared: RedisCounters, peer: str, counters: tuple[_Counter, ...]) -> None:
        """TooManyRequestsError: too many failed in all processes together."""
        self._remember(await shared.full(each.shared for each in counters))
        over = [each for each in counters if self._is_full(each)]
        if over:
            raise self._refusal(peer, over)

    def _remember(self, full: Mapping[str, float]) -> None:
        now = self._clock()
        for name, seconds in full.items():
            self._full.put(name, now + seconds, until=now + seconds)

    def _is_full(self, counter: _Counter) -> bool:
        return self._full.get(counter.shared.name, self._clock()) is not None

    def _counters_of(self, peer: str, names: Collection[str]) -> tuple[_Counter, ...]:
        by_name = [_Counter(self._by_credential, _digest(f"{peer} {name}")) for name in sorted({*names} - {""})]
        return (_Counter(self._by_peer, _digest(peer)), *by_name)

    def _hit(self, counter: _Counter) -> bool:
        return self._counted.hit(counter.limit.item, counter.owner)

    def _window(self, counter: _Counter) -> WindowStats:
        """When the counter ends, and how many more may fail until then; of the counters here and of the shared ones
        that is stricter."""
        here = self._counted.get_window_stats(counter.limit.item, counter.owner)
        ends = None if self._shared is None else self._full.get(counter.shared.name, self._clock())
        if ends is None:
            return here
        return WindowStats(ends if here.remaining else max(ends, here.reset_time), 0)

    def _begin(self, peer: str, counters: tuple[_Counter, ...]) -> Future[None] | None:
        """Begin, or return what to wait for."""
        with self._lock:
            remaining = {counter: self._window(counter).remaining for counter in counters}
            over = [counter for counter in counters if not remaining[counter]]
            if over:
                raise self._refusal(peer, over)
            for counter in counters:
                if self._begun.get(counter, 0) >= min(remaining[counter], _AT_ONCE):
                    loop = asyncio.get_running_loop()
                    future: Future[None] = loop.create_future()
                    self._waiting.setdefault(counter, []).append((loop, future))
                    return future
            for counter in counters:
                self._begun[counter] = self._begun.get(counter, 0) + 1
        return None

    def _end(self, counters: tuple[_Counter, ...]) -> None:
        with self._lock:
            woken: list[tuple[AbstractEventLoop, Future[None]]] = []
            for counter in counters:
                begun = self._begun[counter] = self._begun[counter] - 1
                remaining = self._window(counter).remaining
                if not begun:
                    del self._begun[counter]
                if not begun or not remaining:
                    woken += self._waiting.pop(counter, ())
                else:
                    woken += self._next(counter, min(remaining, _AT_ONCE) - begun)
        for loop, future in woken:
            with suppress(RuntimeError):  # a loop that is closed waits for nothing
                loop.call_soon_threadsafe(_wake, future)

    def _next(self, counter: _Counter, room: int) -> list[tuple[AbstractEventLoop, Future[None]]]:
        """Those that have waited longest, no more than there is room for: to wake all each time would cost the square
        of their number. If some of them have gone away, the next end wakes others, and the last end wakes all."""
        waiting = self._waiting.get(counter, [])
        woken, waiting[:] = waiting[: max(room, 0)], waiting[max(room, 0) :]
        return woken

    def _refusal(self, peer: str, over: Collection[_Counter]) -> TooManyRequestsError:
        """The error when these counters have reached their limits. Its cause is the same for all names that a peer
        tries."""
        ends = max(self._window(counter).reset_time for counter in over)
        limits = sorted({counter.limit.option for counter in over})
        cause = f"too many failed credentials from {peer or 'peers without address'}"
        return TooManyRequestsError(
            f"{cause} ({', '.join(limits)})",
            cause=cause,
            retry_after=max(1, math.ceil(ends - self._clock())),
        )


def _wake(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _digest(text: str) -> str:
    """A text of a caller's, in a fixed size."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_WITH_PORT: Final = re.compile(r"([0-9.]+):[0-9]+|\[([0-9A-Fa-f:.]+)\](?::[0-9]+)?")


def peer_of(scope: Mapping[str, Any]) -> str:
    """Whose failures are counted together: an IPv4 address, an IPv6 network, or "" for all whose address is unknown."""
    text = str((scope.get("client") or ("",))[0])
    with_port = _WITH_PORT.fullmatch(text)  # as some proxies write X-Forwarded-For
    if with_port is not None:
        text = with_port[1] or with_port[2]
    try:
        address = ip_address(text.partition("%")[0])  # without the zone of a link-local one
    except ValueError:
        return ""
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:  # of a socket that takes both versions
        return str(address.ipv4_mapped)
    return str(ip_network((address, _NAMED), strict=False))


class _Counters(Storage):
    """Counters for ``limits``, of a bounded number: the one that was not counted for the longest time leaves first.

    The storage in memory that ``limits`` has is not bounded, and starts a thread.
    """

    STORAGE_SCHEME = None

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._ends = BoundedCache[str, tuple[int, float]](max_entries=_COUNTERS)
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def base_exceptions(self) -> tuple[type[Exception], ...]:
        """Nothing here fails."""
        return ()

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """The counter with ``amount`` more; a new one ends in ``expiry`` seconds."""
        with self._lock:
            now = self._clock()
            count, ends = self._ends.get(key, now) or (0, now + expiry)
            self._ends.put(key, (count + amount, ends), until=ends)
        return count + amount

    def get(self, key: str) -> int:
        """The counter; 0 for none."""
        return self._now(key)[0]

    def get_expiry(self, key: str) -> float:
        """When the counter ends."""
        return self._now(key)[1]

    def _now(self, key: str) -> tuple[int, float]:
        now = self._clock()
        return self._ends.get(key, now) or (0, now)

    def check(self) -> bool:
        """Whether the storage can be used."""
        return True

    def reset(self) -> int:
        """Drop all counters."""
        count = len(self._ends)
        self._ends.clear()
        return count

    def clear(self, key: str) -> None:
        """Drop a counter."""
        self._ends.remove(key)
