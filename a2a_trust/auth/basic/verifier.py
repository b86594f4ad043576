"""HTTP Basic: verifies user names and passwords, by the records of a store or by a function."""

from __future__ import annotations

import inspect
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from a2a_trust.auth.basic.hashing import NOBODY, hashing
from a2a_trust.auth.basic.records import PasswordRecord, PasswordStore
from a2a_trust.auth.basic.user_pass import read_user_pass
from a2a_trust.auth.peers import sending
from a2a_trust.auth.principal import RECHECKS, CredentialKind, Identity, UnchangedError
from a2a_trust.auth.records import CachedRecord, Reading, RecordCache
from a2a_trust.base.cache import BoundedCache, SingleFlight
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    TemporarilyUnavailableError,
)

PasswordFunction: TypeAlias = Callable[[str, str], Awaitable[Identity | None]]
"""Gets a user name and a password, and returns the identity; None when they are wrong."""

_CACHED_SECONDS: Final = 300.0
_MOST_CACHED: Final = 32_768
_KNOWN_BASE: Final = 900
"""The bytes of a cached record, without its user and its scopes."""

_log = logging.getLogger("a2a_trust")


class BasicVerifier:
    """Verifies the credentials of HTTP Basic (RFC 7617).

    ``source`` is a store of passwords, or an async function of a user name and a password::

        BasicVerifier(SqlitePasswords("passwords.db"))
        BasicVerifier(ask_directory)  # async def ask_directory(user: str, password: str) -> Identity | None

    With a store, the identity's subject is the user's name, exactly as it is stored. Verifiers of different stores need
    different ``issuer`` names; otherwise users with the same name in both would be one caller, so an agent with both
    does not start. ``issuer`` is part of every user's ``id``, so do not change it. Records are cached
    (``auth.records``): **a revoked or changed password is rejected at most** ``refresh`` **seconds after the
    change is in the store**, and a new one works at once. While the store cannot be read, a cached record is accepted
    for ``stale_if_error`` seconds.

    A password is hashed in separate threads, for unknown, revoked and expired users as well. A right one is cached for
    five minutes, so that not every request costs a hash: as a keyed digest of the password, the user and the record's
    hash, with a key that only this process has. KeySourceUnavailableError: too many passwords of this peer wait to be
    hashed, or the store cannot be read.

    With a function, nothing is cached. ``None`` and InvalidCredentialsError mean that the password is wrong. Any other
    exception is KeySourceUnavailableError. It counts as a failure for the limits, except TemporarilyUnavailableError,
    TimeoutError and OSError, which are outages.
    """

    kind = CredentialKind.PASSWORD

    def __init__(
        self,
        source: PasswordStore | PasswordFunction,
        *,
        issuer: str = "passwords",
        refresh: float = 2.0,
        stale_if_error: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` measures ages, in seconds; the moment of a request is an argument of verify. ``issuer`` is for a
        store; a function writes its own into identities. ConfigurationError: argon2-cffi is missing for a store.
        """
        if not issuer:
            raise ConfigurationError("BasicVerifier: issuer is empty; name the store, as in issuer='passwords'")
        find = getattr(source, "find", None)
        is_other = isinstance(source, str | bytes | type) or hasattr(source, "touch")  # a path, or a store of API keys
        if is_other or not (callable(find) or callable(source)):
            raise ConfigurationError(
                "BasicVerifier: source is not a store of passwords and not a function; "
                "for a file write BasicVerifier(SqlitePasswords('passwords.db'))"
            )
        self.stores_by_issuer: Final[Mapping[str, object]] = {issuer: source} if callable(find) else {}
        self._passwords: _FromStore | _FromFunction
        self.parts: tuple[object, ...] = ()
        if callable(find):
            self._passwords = _FromStore(find, issuer, refresh, stale_if_error, clock)
            self.parts = (self._passwords.records,)
        else:
            self._passwords = _FromFunction(source)

    async def verify(self, credential: str, now: float) -> Identity:
        """The user whose password it is. InvalidCredentialsError: malformed, unknown, wrong, revoked or expired; its
        text holds no password, and a name only if a record has it. KeySourceUnavailableError."""
        user, password = read_user_pass(credential)
        return await self._passwords.identity(user, password, now)

    def is_remembered(self, credential: str, now: float) -> bool:  # noqa: ARG002
        """Whether the password needs no hash, because it was right a short while ago."""
        try:
            user, password = read_user_pass(credential)
        except InvalidCredentialsError:
            return False
        return self._passwords.is_remembered(user, password)


_SAYS_WRONG: Final = "Basic: the function says that the user or the password is wrong"


class _FromFunction:
    def __init__(self, function: Any) -> None:
        self._function = function

    async def identity(self, user: str, password: str, now: float) -> Identity:  # noqa: ARG002
        if RECHECKS.get():
            raise UnchangedError
        try:
            answer = self._function(user, password)
            is_async = inspect.isawaitable(answer)
            identity = await answer if is_async else answer
        except InvalidCredentialsError:
            raise InvalidCredentialsError(_SAYS_WRONG) from None  # its text may hold a password
        except Exception as error:  # noqa: BLE001  the function is anybody's
            _log.warning("BasicVerifier: the function raised %s", type(error).__name__)  # its text may hold a password
            is_outage = isinstance(error, TemporarilyUnavailableError | OSError)  # TimeoutError is an OSError
            raise KeySourceUnavailableError(
                "the function of BasicVerifier raised an exception", counts_as_failure=not is_outage
            ) from None
        if not is_async:
            raise TypeError("the function of BasicVerifier is not async; write async def")
        if identity is None:
            raise InvalidCredentialsError(_SAYS_WRONG)
        if not isinstance(identity, Identity):
            raise TypeError(
                f"the function of BasicVerifier returned {type(identity).__name__}; return an Identity, or None"
            )
        return identity

    def is_remembered(self, user: str, password: str) -> bool:  # noqa: ARG002
        return False


@dataclass(slots=True, kw_only=True)
class _KnownUser(CachedRecord):
    hash: str = field(repr=False)


class _FromStore:
    def __init__(
        self, find: Any, issuer: str, refresh: float, stale_if_error: float, clock: Callable[[], float]
    ) -> None:
        self._hashing = hashing()
        self._issuer = issuer
        self._clock = clock
        self.records = RecordCache(
            "passwords",
            find,
            self._entry_of,
            size=_KNOWN_BASE,
            nobody=lambda: secrets.token_hex(16),
            refresh=refresh,
            stale_if_error=stale_if_error,
            clock=clock,
        )
        self._key = secrets.token_bytes(blake2b.MAX_KEY_SIZE)
        self._right = BoundedCache[bytes, bool](max_entries=_MOST_CACHED)
        self._flights = SingleFlight[bytes, bool]()

    def _entry_of(self, record: PasswordRecord, reading: Reading) -> tuple[str, _KnownUser]:
        identity = Identity(issuer=self._issuer, subject=record.user, scopes=record.scopes, expires_at=record.expires)
        good_until = record.expires if record.revoked is None else -math.inf
        return record.user, _KnownUser(reading=reading, hash=record.hash, good_until=good_until, identity=identity)

    async def identity(self, user: str, password: str, now: float) -> Identity:
        """The user's identity, in these steps:

        1. Read the user's record: from the cache, if that password was right a short while ago. Else one look-up in the
           store, for every name: its time must not reveal which names exist, and the password may be a new one.
        2. Compare the password with the cache, or hash it. Without a valid record, the hash of nobody takes as long.
        """
        unavailable = None
        try:
            known = await (self.records.get(user) if self.is_remembered(user, password) else self.records.read(user))
        except KeySourceUnavailableError as error:
            known, unavailable = self.records.in_outage(user), error
        identity = await self._verify(known, user, password, now)
        if identity is None:
            raise unavailable or InvalidCredentialsError(f"Basic: {_why(known, now)}")
        return identity

    def is_remembered(self, user: str, password: str) -> bool:
        known = self.records.known.get(user)
        return known is not None and self._right.get(self._digest(known.hash, user, password), self._clock()) is True

    async def _verify(self, known: _KnownUser | None, user: str, password: str, now: float) -> Identity | None:
        """The identity, if the user's record is valid now and the password is right."""
        good = known if known is not None and now < known.good_until else None
        hashed = NOBODY if good is None else good.hash
        digest = self._digest(hashed, user, password)
        at = self._clock()
        if good is not None and self._right.get(digest, at):
            return good.identity
        path = sending()  # here, since a flight runs outside of the request
        is_right = await self._flights.run(digest, lambda: self._hashing.is_right(hashed, password, path))
        if good is None or not is_right:
            return None
        self._right.put(digest, True, since=at, until=at + _CACHED_SECONDS)
        return good.identity

    def _digest(self, hashed: str, user: str, password: str) -> bytes:
        # Names and passwords hold no control character, so the parts are unambiguous.
        return blake2b(f"{hashed}\0{user}\0{password}".encode(), key=self._key).digest()


def _why(known: _KnownUser | None, now: float) -> str:
    """Why a password is rejected, for the log. A name that no record has may be a password."""
    if known is None:
        return "the user is unknown"
    if not now < known.good_until:
        end = "revoked" if known.good_until == -math.inf else "expired"
        return f"the password of {known.identity.subject!r} is {end}"
    return f"the password of {known.identity.subject!r} is wrong"
