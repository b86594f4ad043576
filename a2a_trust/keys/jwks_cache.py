"""The keys of one issuer, kept fresh: while a key is known nobody waits for the network, unknown ones cannot flood it.

- **Fresh** (the server's max-age, within 1 minute and 1 day): answered from memory.
- **Stale** for a short while: answered from memory, and refreshed behind the caller's back. After a longer silence the
  caller waits for the refresh: nobody knows whether the key still counts. While the source fails, the old keys hold for
  a bounded time; then nothing can be verified (503, not 401).
- **Unknown name**: one refresh, so that a rotation never refuses a good token. Anybody can invent names, so these
  refreshes have a budget: five at once, then one every five seconds. While it is spent, nobody can tell whether the
  issuer has the key: such a token is neither good nor bad (503), and a new key is known at most five seconds late.
- There is one load at a time, and everybody who needs one waits for it; who stops waiting does not stop it.
- After failures, attempts are spaced by a growing back-off. What fails never replaces or empties what was there; a
  document that was read does, also one without keys: a key that is gone from it proves nothing any more.

All state changes between two awaits of one event loop, by assignment; a cache belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from a2a_trust.cache import SingleFlight
from a2a_trust.errors import (
    ConfigurationError,
    FetchError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MalformedError,
)
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.keyset import KeySet, read_jwks

__all__ = ["JwksCache", "JwksCacheTimes"]

_log: Final = logging.getLogger(__name__)

_BURST: Final = 5
"""How many refreshes for unknown names may follow each other at once."""

_PATIENCE: Final = 30.0
"""How long a load may take, in seconds; the fetcher is much stricter, sources of users may not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JwksCacheTimes:
    """How long things hold, in seconds."""

    default_max_age: float = 300.0
    """For how long a set is fresh whose server does not say."""
    min_max_age: float = 60.0
    max_max_age: float = 86_400.0
    """What the server says is moved into these bounds."""
    revalidate: float = 300.0
    """For how long after that callers get the old set at once, while it is refreshed."""
    stale_if_error: float = 3_600.0
    """For how long after that the old set holds while the source fails: the longest time a dropped key lives on."""
    cooldown: float = 5.0
    """Between two refreshes for unknown names, after a burst of five."""
    max_backoff: float = 60.0
    """Between two attempts at a source that fails; it begins with 1 second and doubles."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigurationError(f"{name}: write a finite number of seconds above 0")
        if self.min_max_age > self.max_max_age or self.revalidate > self.stale_if_error:
            raise ConfigurationError("min_max_age must not exceed max_max_age, nor revalidate stale_if_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """What one load has brought: never changed, only replaced. ``load`` is its number, from 1."""

    load: int
    keys: dict[tuple[str, str], PublicKey]
    held: frozenset[PublicKey]
    fresh_until: float
    usable_until: float

    def key(self, kid: str, kty: str) -> PublicKey | None:
        """The key of that name, if it may be used now by what it says about itself: that is in the time of the day."""
        key = self.keys.get((kid, kty))
        return key if key is None or key.is_valid_at(time.time()) else None


class JwksCache:
    """The JWK Set that ``load`` gives as (document, max-age in seconds or None), by the rules of this module.

    ``load`` may raise anything; every exception counts as a source that is out of reach. ``name`` stands for the source
    in errors and logs. ``clock`` gives seconds that never run backwards.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[tuple[bytes, float | None]]],
        *,
        name: str = "JWK Set",
        times: JwksCacheTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = load
        self._name = name
        self._times = JwksCacheTimes() if times is None else times
        self._clock = clock
        self._snapshot: _Snapshot | None = None
        self._flights = SingleFlight[None, _Snapshot | None]()
        #: The last load, which tests wait for; ``_flights`` tells whether one is under way.
        self._flight: asyncio.Task[_Snapshot | None] | None = None
        self._loads = 0
        self._failures = 0
        self._retry_at = -math.inf
        #: When the searches that were begun will be paid for, at one in each cool-down (a leaky bucket).
        self._searches_until = -math.inf
        #: Rises whenever a key is lost: for whoever remembers what keys have verified.
        self.generation: int = 0

    async def key(self, kid: str, kty: str) -> PublicKey:
        """The key of that name and type.

        InvalidCredentialsError: the source has no such key, or says that it is revoked or not valid now.
        KeySourceUnavailableError: it cannot be asked now.
        """
        snapshot = self._snapshot
        if snapshot is not None and (known := snapshot.key(kid, kty)) and self._clock() < snapshot.fresh_until:
            return known  # the way of nearly all calls
        return await self._find(
            lambda snapshot: snapshot.key(kid, kty),
            f"no {kty} key named {ascii(kid)[:64]} is valid now",
        )

    async def only_key(self, kty: str) -> PublicKey:
        """The key of that type, for tokens that name none; InvalidCredentialsError unless there is exactly one."""

        def pick(snapshot: _Snapshot) -> PublicKey | None:
            now = time.time()
            keys = [key for key in snapshot.held if key.kty == kty and key.is_valid_at(now)]
            if len(keys) > 1:
                raise InvalidCredentialsError(f"{self._name}: several {kty} keys, and the token names none by kid")
            return keys[0] if keys else None

        return await self._find(pick, f"no {kty} key is valid now")

    async def keys(self) -> tuple[PublicKey, ...]:
        """All keys of the set, as they are known now, also those that are not valid now; KeySourceUnavailableError."""
        return tuple((await self._usable()).keys.values())

    async def _find(self, pick: Callable[[_Snapshot], PublicKey | None], complaint: str) -> PublicKey:
        loads = self._loads
        snapshot = await self._usable()
        while (found := pick(snapshot)) is None:
            if snapshot.load > loads:  # it was begun after we were asked, so it knows every key that signed the token
                raise InvalidCredentialsError(f"{self._name}: {complaint}")
            loaded = await _result(self._search())
            if loaded is None:
                raise KeySourceUnavailableError(f"{self._name}: out of reach, and the key is not among those known")
            snapshot = loaded
        return found

    async def _usable(self) -> _Snapshot:
        """The set as it is known, refreshed as its age demands."""
        snapshot, now = self._snapshot, self._clock()
        if snapshot is not None and now < snapshot.fresh_until:
            return snapshot
        flight = self._flights.running(None)
        if flight is None and now >= self._retry_at:
            flight = self._begin()
        is_usable = snapshot is not None and now < snapshot.usable_until
        # A source that has just failed is not waited for again: it may take its whole time limit to fail.
        is_recent = snapshot is not None and (self._failures > 0 or now < snapshot.fresh_until + self._times.revalidate)
        if flight is not None and not (is_usable and is_recent):
            await _result(flight)
        snapshot = self._snapshot
        if snapshot is None or self._clock() >= snapshot.usable_until:
            raise KeySourceUnavailableError(f"{self._name}: out of reach, and no usable keys are known")
        return snapshot

    def _search(self) -> asyncio.Task[_Snapshot | None]:
        """The load that may find an unknown name: the one under way, or a new one; KeySourceUnavailableError."""
        flight = self._flights.running(None)
        if flight is not None:
            return flight
        now = self._clock()
        if now < self._retry_at:
            raise KeySourceUnavailableError(f"{self._name}: out of reach, and the key is not among those known")
        paid = max(now, self._searches_until)
        if paid - now > (_BURST - 1) * self._times.cooldown:
            raise KeySourceUnavailableError(
                f"{self._name}: the key is not among those known, and too many unknown ones came to look for it now"
            )
        self._searches_until = paid + self._times.cooldown
        return self._begin()

    def _begin(self) -> asyncio.Task[_Snapshot | None]:
        self._loads += 1
        self._flight = self._flights.begin(None, lambda: self._load(self._loads))
        return self._flight

    async def _load(self, load: int) -> _Snapshot | None:
        """The new snapshot, already in its place, or None when there is none."""
        begun, times = self._clock(), self._times
        try:
            async with asyncio.timeout(_PATIENCE):  # a source that hangs must not keep out the next attempt
                document, max_age = await self._source()
            # 256 keys take 200 ms: not on the loop that serves requests.
            key_set = await asyncio.to_thread(read_jwks, document)
        except Exception as error:  # noqa: BLE001  whatever the user's function raises, its keys are out of reach
            self._failed(error)
            return None
        age = times.default_max_age if max_age is None else max_age
        fresh_until = begun + max(times.min_max_age, min(age, times.max_max_age))
        snapshot = _Snapshot(
            load=load,
            keys={(key.kid, key.kty): key for key in key_set.keys},
            held=frozenset(key_set.keys),
            fresh_until=fresh_until,
            usable_until=fresh_until + times.stale_if_error,
        )
        self._failures, self._retry_at = 0, -math.inf
        held = frozenset[PublicKey]() if self._snapshot is None else self._snapshot.held
        if not held <= snapshot.held:
            self.generation += 1
        if self._snapshot is None or held != snapshot.held:
            self._report(key_set)
        self._snapshot = snapshot
        return snapshot

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self._retry_at = self._clock() + min(2.0 ** min(self._failures - 1, 32), self._times.max_backoff)
        if self._failures == 1:  # one line for each outage, not for each attempt
            if isinstance(error, FetchError):
                reason = str(error)
            elif isinstance(error, MalformedError):
                reason = "the document is not a JWK Set that can be read"  # the error's text may quote it
            else:
                reason = type(error).__name__
            _log.warning("%s: cannot be refreshed, known keys hold for now: %s", self._name, reason)

    def _report(self, key_set: KeySet) -> None:
        level = logging.INFO if key_set.keys else logging.WARNING
        _log.log(level, "%s: usable keys: %d, not usable: %d", self._name, len(key_set.keys), len(key_set.skipped))


async def _result(flight: asyncio.Task[_Snapshot | None]) -> _Snapshot | None:
    """As ``SingleFlight.wait``, and None where the load was cancelled, which must not cancel those who wait."""
    await asyncio.wait([flight])
    return None if flight.cancelled() else flight.result()
