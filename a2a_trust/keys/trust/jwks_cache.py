"""The key set of one issuer, kept fresh. Known keys cause no waiting, and unknown keys cannot flood the issuer.

- **Fresh** (for the max-age of the server, at least 1 minute and at most 1 day): keys come from the cache.
- **Stale for a short time**: keys come from the cache, and the set is refreshed in the background.
- **Stale for longer**: the caller waits for the refresh, because the key may have been removed. While the source fails,
  the old keys stay valid for a limited time. After that nothing can be verified (503, not 401).
- **Unknown kid**: one refresh, so that a rotation never causes the rejection of a valid token. Anybody can invent kids,
  so these refreshes have a budget: five at once, then one every five seconds. While the budget is spent, it is unknown
  whether the issuer has the key, so the answer is 503, and a new key is known at most five seconds late.
- There is one load at a time, and all callers that need one share it. A caller that stops waiting does not stop it.
- After failures the time between attempts grows. A failed load never changes the keys. A successful load replaces
  them, even by an empty set: a key that is missing from it verifies nothing any more.

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

from a2a_trust.base.cache import SingleFlight
from a2a_trust.base.state_changes import StateChange, StateKind, announce
from a2a_trust.errors import (
    ConfigurationError,
    FetchError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MalformedError,
)
from a2a_trust.keys.jwk import PublicKey, read_jwks

_log: Final = logging.getLogger(__name__)

_BURST: Final = 5
"""The number of refreshes for unknown kids without a pause."""

_LOAD_TIMEOUT: Final = 30.0
"""The time limit of a load, in seconds. The fetcher has a much shorter one, but sources of users may have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JwksCacheTimes:
    """The times of a ``JwksCache``, in seconds."""

    default_max_age: float = 300.0
    """How long a set is fresh if its server sends no max-age."""
    min_max_age: float = 60.0
    """The shortest time for which a set is fresh, whatever its server says."""
    max_max_age: float = 86_400.0
    """The longest time for which a set is fresh, whatever its server says."""
    revalidate: float = 300.0
    """How long, after that, callers still get the old set without waiting, while it is refreshed."""
    stale_if_error: float = 3_600.0
    """How long after the fresh time the keys stay valid while the source fails, even keys that were removed."""
    cooldown: float = 5.0
    """The time between two refreshes for unknown kids, after five without a pause."""
    max_backoff: float = 60.0
    """The longest time between two attempts at a source that fails; the first is 1 second, and each one doubles."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigurationError(f"{name}: write a finite number of seconds above 0")
        if self.min_max_age > self.max_max_age or self.revalidate > self.stale_if_error:
            raise ConfigurationError(
                "JwksCacheTimes: min_max_age must be at most max_max_age, and revalidate at most stale_if_error"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """The result of one load: never changed, only replaced. ``load`` is its number, from 1."""

    load: int
    keys: dict[tuple[str, str], PublicKey]
    fresh_until: float
    usable_until: float

    def key(self, kid: str, kty: str) -> PublicKey | None:
        """The key of that name, if its JWK permits its use now (wall-clock time)."""
        key = self.keys.get((kid, kty))
        return key if key is None or key.is_valid_at(time.time()) else None


class JwksCache:
    """A cache for the JWK Set of one source, with the rules of this module.

    ``load`` returns the document and its max-age in seconds, or None without one. An exception of ``load`` means that
    the source is unreachable. ``name`` names the source in errors and logs. ``clock`` returns monotonic seconds.
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
        self.name: Final = name
        self._times = JwksCacheTimes() if times is None else times
        self._clock = clock
        self._snapshot: _Snapshot | None = None
        self._flights = SingleFlight[None, _Snapshot | None]()
        self._loads = 0
        self._failures = 0
        self._retry_at = -math.inf
        #: The moment at which the budget for refreshes is full again (a leaky bucket: one refresh per cool-down).
        self._searches_until = -math.inf
        #: Rises whenever a key is lost, for caches of results that keys have verified.
        self.generation: int = 0

    async def key(self, kid: str, kty: str) -> PublicKey:
        """The key of that name and type.

        InvalidCredentialsError: the source has no such key, or the key is revoked or not valid now.
        KeySourceUnavailableError: the source is unreachable, so it is unknown whether the key exists.
        """
        snapshot = self._snapshot
        if snapshot is not None and (known := snapshot.key(kid, kty)) and self._clock() < snapshot.fresh_until:
            return known  # nearly all calls end here
        return await self._find(
            lambda snapshot: snapshot.key(kid, kty), f"no {kty} key named {ascii(kid)[:64]} is valid now"
        )

    async def only_key(self, kty: str) -> PublicKey:
        """The key of that type, for tokens without a kid; InvalidCredentialsError unless there is exactly one."""

        def pick(snapshot: _Snapshot) -> PublicKey | None:
            now = time.time()
            keys = [key for key in snapshot.keys.values() if key.kty == kty and key.is_valid_at(now)]
            if len(keys) > 1:
                raise InvalidCredentialsError(f"{self.name}: the set has several {kty} keys, and the token has no kid")
            return keys[0] if keys else None

        return await self._find(pick, f"no {kty} key is valid now")

    def outage(self) -> str:
        """Why no key can be used: the last load failed, and no usable keys are known; else "". It then loads again."""
        now, snapshot = self._clock(), self._snapshot
        if not self._failures or (snapshot is not None and now < snapshot.usable_until):
            return ""
        if now >= self._retry_at and self._flights.running(None) is None:
            self._begin()
        return f"{self.name}: unreachable, and no usable keys are known"

    async def keys(self) -> tuple[PublicKey, ...]:
        """All known keys of the set, even keys that are not valid now; KeySourceUnavailableError."""
        return tuple((await self._usable()).keys.values())

    async def _find(self, pick: Callable[[_Snapshot], PublicKey | None], complaint: str) -> PublicKey:
        loads = self._loads
        snapshot = await self._usable()
        while (found := pick(snapshot)) is None:
            if snapshot.load > loads:  # this load began after the call, so it has the key that signed the token
                raise InvalidCredentialsError(f"{self.name}: {complaint}")
            loaded = await _result(self._search())
            if loaded is None:
                raise KeySourceUnavailableError(f"{self.name}: unreachable, and the key is not among the known keys")
            snapshot = loaded
        return found

    async def _usable(self) -> _Snapshot:
        """The known set, refreshed if it is too old."""
        snapshot, now = self._snapshot, self._clock()
        if snapshot is not None and now < snapshot.fresh_until:
            return snapshot
        flight = self._flights.running(None)
        if flight is None and now >= self._retry_at:
            flight = self._begin()
        is_usable = snapshot is not None and now < snapshot.usable_until
        # Do not wait for a source that has just failed: it may take its whole time limit to fail again.
        is_recent = snapshot is not None and (self._failures > 0 or now < snapshot.fresh_until + self._times.revalidate)
        if flight is not None and not (is_usable and is_recent):
            await _result(flight)
        snapshot = self._snapshot
        if snapshot is None or self._clock() >= snapshot.usable_until:
            raise KeySourceUnavailableError(f"{self.name}: unreachable, and no usable keys are known")
        return snapshot

    def _search(self) -> asyncio.Task[_Snapshot | None]:
        """The load that may find an unknown kid: the running one, or a new one; KeySourceUnavailableError."""
        flight = self._flights.running(None)
        if flight is not None:
            return flight
        now = self._clock()
        if now < self._retry_at:
            raise KeySourceUnavailableError(f"{self.name}: unreachable, and the key is not among the known keys")
        paid = max(now, self._searches_until)
        if paid - now > (_BURST - 1) * self._times.cooldown:
            raise KeySourceUnavailableError(
                f"{self.name}: the key is not among the known keys, and the budget for refreshes is spent: too many "
                "unknown kids came"
            )
        self._searches_until = paid + self._times.cooldown
        return self._begin()

    def _begin(self) -> asyncio.Task[_Snapshot | None]:
        self._loads += 1
        return self._flights.begin(None, lambda: self._load(self._loads))

    async def _load(self, load: int) -> _Snapshot | None:
        """Load the set and keep it; returns the new snapshot, or None after a failure."""
        begun, times = self._clock(), self._times
        try:
            async with asyncio.timeout(_LOAD_TIMEOUT):  # a source that hangs must not prevent the next attempt
                document, max_age = await self._source()
            # 256 keys take 200 ms, too long for the event loop that serves requests.
            key_set = await asyncio.to_thread(read_jwks, document)
        except Exception as error:  # noqa: BLE001  every exception of the user's function: its keys are unreachable
            self._note_failure(error)
            return None
        age = times.default_max_age if max_age is None else max_age
        fresh_until = begun + max(times.min_max_age, min(age, times.max_max_age))
        snapshot = _Snapshot(
            load=load,
            keys={(key.kid, key.kty): key for key in key_set.keys},
            fresh_until=fresh_until,
            usable_until=fresh_until + times.stale_if_error,
        )
        if self._failures:
            announce(StateChange(StateKind.KEYS_FRESH, self.name))
        self._failures, self._retry_at = 0, -math.inf
        held = {} if self._snapshot is None else self._snapshot.keys
        if not held.items() <= snapshot.keys.items():
            self.generation += 1
        if self._snapshot is None or held != snapshot.keys:
            level = logging.INFO if key_set.keys else logging.WARNING
            _log.log(level, "%s: usable keys: %d, not usable: %d", self.name, len(key_set.keys), len(key_set.skipped))
        self._snapshot = snapshot
        return snapshot

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        self._retry_at = self._clock() + min(2.0 ** min(self._failures - 1, 32), self._times.max_backoff)
        if self._failures == 1:  # one line for each outage, not for each attempt
            if isinstance(error, FetchError):
                reason = str(error)
            elif isinstance(error, MalformedError):
                reason = "the document is not a readable JWK Set"  # the text of the error may quote the document
            else:
                reason = type(error).__name__
            _log.warning("%s: cannot be refreshed, known keys stay valid for now: %s", self.name, reason)
            announce(StateChange(StateKind.KEYS_STALE, f"{self.name}: {reason}"))


async def _result(flight: asyncio.Task[_Snapshot | None]) -> _Snapshot | None:
    """As ``SingleFlight.wait``, but None if the load was cancelled, because its callers must not be cancelled."""
    await asyncio.wait([flight])
    return None if flight.cancelled() else flight.result()
