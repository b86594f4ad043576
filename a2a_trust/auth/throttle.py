"""Limits failed requests by peer and by credential name; beyond a limit, passwords are rejected unverified.

Only failures count. Beyond a limit, a credential that can be guessed is verified only if the verifier has cached it,
and only for the peer for which it was verified: for others, an answer would reveal whether a guess is right. The peer
is the address in the scope: from the socket, or from a proxy that the server trusts.

The counters of the process decide exactly, always. Shared counters only add rejections: they are read before a
credential that can be guessed is verified, and count each failure. They are in Redis or Valkey. A counter is one key
that expires with its window, which begins with its first failure. The name of a key has digests of peers and user names
only. The server may drop counters.

Shared counters that are read or written while a round trip is under way share the next one (``LookUps``): with a round
trip for each, 1,000 peers at once took longer than requests wait, and were not counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import math
import re
import secrets
import time
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, NamedTuple, TypeAlias

from a2a_trust.auth.peers import FairQueue, Path, path_of
from a2a_trust.base.cache import BoundedCache, LookUps
from a2a_trust.base.databases.availability import REQUEST_SECONDS, Pooled
from a2a_trust.base.databases.redis import RedisServer
from a2a_trust.errors import ConfigurationError, TooManyRequestsError

_COUNTERS: Final = 32_768
"""Counters in memory: 12 MB."""
_LIMIT: Final = re.compile(r"\s*([0-9]{1,18})\s*(?:/|per)\s*([1-9][0-9]{0,17})?\s*([a-z]+)\s*", re.IGNORECASE)
_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "month": 2_592_000, "year": 31_104_000}

_TIMES: Final = (1, 4, 16)
"""The limits of a peer, and of the wider networks of a peer of IPv6 (56 and 48 bits), in limits of a peer."""
_KNOWN_SECONDS: Final = 300.0
"""How long a verified credential is known by its peer; ``BasicVerifier`` caches passwords as long."""
_AT_ONCE: Final = 16
"""How many requests of one counter, and so of one network, are verified at once: a fraction of the queue for hashes."""
_ROUND_TRIP_SECONDS: Final = 0.2
"""Shorter than a request waits, so a request makes no second round trip after one that failed."""
_PREFIX: Final = "a2a:failures:fixed-window:"
"""Another strategy could not read these keys."""


class Counter(NamedTuple):
    """Counts the failures of a network, or of a name that a network tries, for a limit of ``amount`` in ``seconds``.

    ``name`` has no text of a caller's. ``option`` is how the limit was written.
    """

    name: str
    amount: int
    seconds: int
    option: str
    network: str

    @property
    def key(self) -> str:
        return _PREFIX + self.name


class _Hit(NamedTuple):
    """One failure to count. The number makes it a look-up of its own."""

    counter: Counter
    number: int


class _SharedWindow(NamedTuple):
    """How many failed, and in how many seconds the counter ends."""

    failures: int
    rest: float


class RedisCounters(Pooled[RedisServer]):
    """Counts failed credentials in one Redis server: ``FailureLimits(shared=RedisCounters("rediss://…"))``.

    Agents that use the same database of a server, with the same limits, share the counters. A right password ends the
    count of its peer and user name, so agents whose users differ need databases of their own.

    While the server cannot be used, each process has only its own counters. A request waits for the server for a
    quarter of a second at most, and after a failure one request per second tries it again.
    """

    def __init__(self, url: str) -> None:
        """``url``: ``rediss://HOST:6379/0``, or ``redis://…`` without TLS. ConfigurationError: it is not such a URL,
        or the extra is not installed."""
        self._server = RedisServer(
            url, what="counters of failed credentials", timeout=_ROUND_TRIP_SECONDS, may_drop=True
        )
        self._reads = LookUps(self._read)
        self._writes = LookUps(self._write)
        self._ends = LookUps(self._end)
        #: The names of counters that were not 0 in their last round trip.
        self._counting = BoundedCache[str, bool](max_entries=_COUNTERS)
        self._numbers = itertools.count()

    async def full(self, counters: Iterable[Counter]) -> dict[str, float]:
        """The names of the counters that have reached their limits, and in how many seconds each ends; empty if the
        server cannot be used."""
        if not self._server.pause.may_try():
            return {}
        windows = await self._reads.find_within(REQUEST_SECONDS, counters)
        for each in windows:
            self._counting.put(each.name, True)
        return {each.name: window.rest for each, window in windows.items() if window.failures >= each.amount}

    async def hit(self, counters: Iterable[Counter]) -> dict[str, float]:
        """Count a failure, also if the caller is cancelled; returns as ``full`` the counters beyond their limits."""
        if not self._server.pause.may_try():
            return {}
        hits = [_Hit(each, next(self._numbers)) for each in counters]
        windows = await self._writes.find_within(REQUEST_SECONDS, hits)
        for hit in windows:
            self._counting.put(hit.counter.name, True)
        return {
            hit.counter.name: window.rest for hit, window in windows.items() if window.failures > hit.counter.amount
        }

    async def clear(self, counters: Iterable[Counter]) -> None:
        """Set the counters back to 0, if the server can be used. Without failures there is no round trip."""
        counting = [each for each in counters if self._counting.get(each.name)]
        if counting and self._server.pause.may_try():
            await self._ends.find_within(REQUEST_SECONDS, counting)
            for each in counting:
                self._counting.remove(each.name)

    async def _read(self, counters: tuple[Counter, ...]) -> Mapping[Counter, _SharedWindow]:
        async with self._server.session() as client, client.pipeline(transaction=False) as pipeline:
            for counter in counters:
                pipeline.get(counter.key)
                pipeline.pttl(counter.key)
            answers = await pipeline.execute()
        found = {each: _read_window(each, *answers[2 * place :][:2]) for place, each in enumerate(counters)}
        return {each: window for each, window in found.items() if window}

    async def _write(self, hits: tuple[_Hit, ...]) -> Mapping[_Hit, _SharedWindow]:
        async with self._server.session() as client, client.pipeline(transaction=True) as pipeline:
            for counter, _ in hits:
                pipeline.incr(counter.key)
                pipeline.expire(counter.key, counter.seconds, nx=True)  # never a counter without an end
                pipeline.pttl(counter.key)
            answers = await pipeline.execute()
        found = {hit: _read_window(hit.counter, *answers[3 * place :][:3:2]) for place, hit in enumerate(hits)}
        return {hit: window for hit, window in found.items() if window}

    async def _end(self, counters: tuple[Counter, ...]) -> Mapping[Counter, _SharedWindow]:
        async with self._server.session() as client:
            await client.delete(*(each.key for each in counters))
        return {}


def _read_window(counter: Counter, failures: Any, milliseconds: Any) -> _SharedWindow | None:
    """The window, which no server makes longer than it is; or None if the key holds no counter."""
    try:
        failures, seconds = int(failures or 0), int(milliseconds) / 1000
    except (ValueError, TypeError):
        return None
    return _SharedWindow(failures, min(seconds, counter.seconds)) if seconds > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLimits:
    """How many requests with a wrong password or API key are accepted in a period, as in ``"10/minute"``.

    ``by_credential`` is the limit for each pair of a peer and a user name (or key id), ``by_peer`` for each peer: an
    IPv4 address, or an IPv6 network of 64 bits. Networks of 56 bits have 4 times both limits, networks of 48 bits
    16 times. Credentials without a name count only for their peer.

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
            _limits(self, each)
        if not isinstance(self.shared, RedisCounters | None):
            raise ConfigurationError('failures: write shared=RedisCounters("rediss://HOST:6379/0")')

    def throttle(self) -> Throttle:
        """New counters, for one guard."""
        return Throttle(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLimits(FailureLimits):
    """Limits whose counters outlive a guard, for the guard in its place."""

    _throttle: list[Throttle] = field(default_factory=list, init=False, repr=False, compare=False)

    def throttle(self) -> Throttle:
        if not self._throttle:
            self._throttle.append(Throttle(self))
        return self._throttle[0]


#: How a limit was written, failures, and seconds.
_Limit: TypeAlias = tuple[str, int, int]


def _limits(limits: FailureLimits, option: str) -> tuple[_Limit, ...]:
    """The limits of a peer and of its wider networks; ConfigurationError: the text is not one limit of 1 or more."""
    text = getattr(limits, option)
    match = _LIMIT.fullmatch(text) if isinstance(text, str) else None
    seconds = _SECONDS.get(match[3].lower().removesuffix("s")) if match else None
    if match is None or seconds is None or int(match[1]) < 1:
        raise ConfigurationError(
            f"failures: {option}={text!r:.64} is not a limit; write a number of failures, 1 or more, and a period, as "
            'in "10/minute", "100/hour" or "20/5 minutes"'
        )
    written, amount, seconds = f"{option}={text}", int(match[1]), seconds * int(match[2] or 1)
    return tuple((f"{each} times {written}" if each > 1 else written, amount * each, seconds) for each in _TIMES)


class _Window(NamedTuple):
    """When a counter ends, and how many more may fail until then."""

    ends: float
    remaining: int


_Waiter: TypeAlias = tuple[AbstractEventLoop, Future[None]]


class Throttle:
    """Counts the failed requests of each peer and its wider networks, and of each name that one of them tries.

    ``begin`` is for credentials that can be guessed. It lets only as many be verified at once as may still fail, and at
    most 16; the others wait. So a limit is exact, many valid passwords at once are not rejected, and no peer takes all
    the time of the hashes.

    Windows are fixed, and begin with the first failure: so ``Retry-After`` is true. The price is that around the end of
    a window up to twice the limit may fail.

    Shared counters are exact if guesses come one after the other. If guesses come to several processes at the same
    moment, each process may verify as many as its own counters allow. A throttle belongs to one guard.
    """

    def __init__(self, limits: FailureLimits, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds that never run backwards."""
        self._by_peer = _limits(limits, "by_peer")
        self._by_credential = _limits(limits, "by_credential")
        self._clock = clock
        #: Failures, and when the window ends. The counter that was not used for the longest time is evicted first.
        self._counters = BoundedCache[str, tuple[int, float]](max_entries=_COUNTERS)
        self._shared = limits.shared
        self.parts: Final[tuple[object, ...]] = (limits.shared,)
        #: The shared counters that have reached their limits, and when they end: they are not read until then.
        self._full = BoundedCache[str, float](max_entries=_COUNTERS)
        #: How many requests of each counter are being verified, and which requests wait for their end.
        self._begun: dict[Counter, int] = {}
        self._waiting: dict[Counter, FairQueue[_Waiter]] = {}
        self._lock = Lock()
        #: Digests of verified credentials and their peers, with a key that only this process has.
        self._known = BoundedCache[bytes, bool](max_entries=_COUNTERS)
        self._key = secrets.token_bytes(hashlib.blake2b.MAX_KEY_SIZE)

    def knows(self, scope: Mapping[str, Any], scheme: str, credential: object) -> bool:
        """Whether this credential was verified for this scheme and this peer a short while ago."""
        return self._known.get(self._pair(scope, scheme, credential), self._clock()) is True

    def note_valid(self, scope: Mapping[str, Any], scheme: str, credential: object) -> None:
        self._known.put(self._pair(scope, scheme, credential), True, until=self._clock() + _KNOWN_SECONDS)

    def _pair(self, scope: Mapping[str, Any], scheme: str, credential: object) -> bytes:
        return hashlib.blake2b(repr((path_of(scope)[-1], scheme, credential)).encode(), key=self._key).digest()

    async def begin(self, scope: Mapping[str, Any], names: Collection[str]) -> Callable[[], None]:
        """Wait until a request's credentials of these names may be verified; call what this returns at their end.

        TooManyRequestsError: too many failed before. Call ``count_failure`` before the end for rejected credentials.
        """
        path = path_of(scope)
        counters = [counter for each in self._counters_of(path, names) for counter in each]
        while (full := self._begin(path, counters)) is not None:
            await full
        if self._shared is not None:
            try:
                self._note_full(await self._shared.full(counters))
                over = [each for each in counters if self._is_full(each)]
                if over:
                    raise self._error(over)
            except BaseException:
                self._end(counters)
                raise
        return lambda: self._end(counters)

    async def count_failure(self, scope: Mapping[str, Any], names: Collection[str]) -> TooManyRequestsError | None:
        """Count a request whose credentials of these names were rejected; the error if that was one too many.

        It is counted at once, also if the caller is cancelled while it waits for the shared counters.
        """
        by_network, *by_name = self._counters_of(path_of(scope), names)
        # Names are not counted beyond the limit of their peer: invented names would evict the counters of others.
        to_share, over = self._count(by_network)
        if not over:
            for each in by_name:
                counted, full = self._count(each)
                to_share, over = to_share + counted, over + full
        if self._shared is not None and to_share:
            self._note_full(await self._shared.hit(to_share))
            over += [each for each in to_share if self._is_full(each)]
        return self._error(over) if over else None

    async def clear(self, scope: Mapping[str, Any], names: Collection[str]) -> None:
        """Clear the counters of the pairs of the request's peer and these names, whose credentials are valid. The
        counters of the peer and of its wider networks stay, for other names and peers."""
        _, *by_name = self._counters_of(path_of(scope), names)
        pairs = [narrowest for narrowest, *_ in by_name]
        for counter in pairs:
            self._counters.remove(counter.name)
            self._full.remove(counter.name)
        if self._shared is not None:
            await self._shared.clear(pairs)

    def _count(self, counters: Iterable[Counter]) -> tuple[list[Counter], list[Counter]]:
        """Count a failure here, from the narrowest network to the widest; returns the counters to share, and the
        counters that are beyond their limits.

        Failures of one network beyond its limit are not counted for the wider ones: it would lock out its neighbors.
        """
        to_share: list[Counter] = []
        for each in counters:
            is_over = self._hit(each) > each.amount
            if self._is_full(each):
                return to_share, [each]
            to_share.append(each)
            if is_over:
                return to_share, [each]
        return to_share, []

    def _hit(self, counter: Counter) -> int:
        name, now = counter.name, self._clock()
        with self._lock:
            count, ends = self._counters.get(name, now) or (0, now + counter.seconds)
            self._counters.put(name, (count + 1, ends), until=ends)
        return count + 1

    def _note_full(self, full: Mapping[str, float]) -> None:
        now = self._clock()
        for name, seconds in full.items():
            self._full.put(name, now + seconds, until=now + seconds)

    def _is_full(self, counter: Counter) -> bool:
        return self._full.get(counter.name, self._clock()) is not None

    def _counters_of(self, path: Path, names: Collection[str]) -> list[list[Counter]]:
        """The counters of the networks, then those for each name, from the narrowest network to the widest. Processes
        with other limits count elsewhere."""
        by_name = [(self._by_credential, f" {name}") for name in sorted({*names} - {""})]
        return [
            [
                Counter(f"{_digest(network + name)}/{amount}/{seconds}", amount, seconds, option, network)
                for (option, amount, seconds), network in zip(limits, reversed(path), strict=False)
            ]
            for limits, name in [(self._by_peer, ""), *by_name]
        ]

    def _window(self, counter: Counter) -> _Window:
        """The window of the counter here, or of the shared one if that is stricter."""
        name, now = counter.name, self._clock()
        count, ends = self._counters.get(name, now) or (0, now)
        remaining = max(0, counter.amount - count)
        full_until = self._full.get(name, now)
        if full_until is None:
            return _Window(ends, remaining)
        return _Window(full_until if remaining else max(full_until, ends), 0)

    def _begin(self, path: Path, counters: list[Counter]) -> Future[None] | None:
        """Begin, or return the end to wait for."""
        with self._lock:
            remaining = {counter: self._window(counter).remaining for counter in counters}
            over = [counter for counter in counters if not remaining[counter]]
            if over:
                raise self._error(over)
            for counter in counters:
                if self._begun.get(counter, 0) >= min(remaining[counter], _AT_ONCE):
                    loop = asyncio.get_running_loop()
                    future: Future[None] = loop.create_future()
                    self._waiting.setdefault(counter, FairQueue()).put(path, (loop, future))
                    return future
            for counter in counters:
                self._begun[counter] = self._begun.get(counter, 0) + 1
        return None

    def _end(self, counters: list[Counter]) -> None:
        with self._lock:
            woken: list[_Waiter] = []
            for counter in reversed(counters):  # waiters of a wide network come before a busy peer in it
                begun = self._begun[counter] = self._begun[counter] - 1
                remaining = self._window(counter).remaining
                if not begun:
                    del self._begun[counter]
                woken += self._next(counter, min(remaining, _AT_ONCE) - begun if begun and remaining else math.inf)
        for loop, future in woken:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_wake, future)

    def _next(self, counter: Counter, most: float) -> Iterator[_Waiter]:
        """The next waiters, ``most`` at most: to wake all each time would cost the square of their number. If some have
        gone away, the next end wakes others, and the last end wakes all."""
        waiting = self._waiting.get(counter)
        while waiting and most > 0:
            yield waiting.pop()
            most -= 1
        if waiting is not None and not waiting:
            del self._waiting[counter]

    def _error(self, over: Collection[Counter]) -> TooManyRequestsError:
        """The error when these counters have reached their limits. Its cause is the same for all names that a network
        tries, and for all peers of a wider network that has reached its limit."""
        ends = max(self._window(counter).ends for counter in over)
        widest = min((counter.network for counter in over), key=lambda network: network.rpartition("/")[2])
        limits = sorted({counter.option for counter in over if counter.network == widest})
        cause = f"too many failed credentials from {widest or 'peers without address'}"
        return TooManyRequestsError(
            f"{cause} ({', '.join(limits)})", cause=cause, retry_after=max(1, math.ceil(ends - self._clock()))
        )


def _wake(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
