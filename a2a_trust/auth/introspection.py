"""Opaque access tokens, verified by asking the server that issued them: RFC 7662, and RFC 9701 for signed answers.

The rules, in the order in which they are applied:

1. A cached token is answered from the cache. No introspection request delays that.
2. A JWT of another issuer is for another verifier, and is sent nowhere. An expired JWT, and an ID,
   refresh or logout token by its own unverified claims, is rejected without an introspection request.
3. With ``shared``, what the server answered to another replica is looked up, by the rules below. Then the server is
   asked by the rules of ``introspection_endpoint``, once for all requests with the same token.
4. ``active`` is true. ``iss`` and ``aud``, where the answer has them, are ours; ``exp`` lies ahead, ``nbf`` and ``iat``
   do not.
5. The answer shows that the token is an access token, and nothing in it says that it is another kind of token. Servers
   answer for refresh tokens, too.
6. A token that is bound to a key or a certificate (``cnf``) proves nothing by itself, as in ``jwt``.
7. ``sub`` names the caller; without it ``username``, then ``client_id``, each under an issuer of its own.

A valid token is cached under the digest of the whole token. An invalid one is cached for ten seconds in another cache,
so it evicts no valid token. An outage is not cached. Replicas share valid answers only, and cache each until
``remember_for`` seconds after the introspection request.

The rules of the shared cache, which is in Redis or Valkey:

a. An answer is sealed (``keys.sealed``) for its token and for the configuration of the verifier that asked. To read or
   make one takes the secret of the replicas: access to the server alone reveals no claim and makes no identity.
b. The key of an answer is a digest. No token is in its name or its value.
c. An answer has the time of the introspection request. A reader accepts it for as long as an answer of its own, by its
   own clock. An answer from more than ten seconds ahead is a miss.
d. The reader applies its own rules to the answer, as if the issuer had just given it.
e. A server that cannot be used, a value that does not open, and an answer that is too large are misses: the issuer is
   asked. The server may drop answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import struct
import time
from asyncio import Task
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import Context
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from a2a_trust.auth.discovery import KeySource
from a2a_trust.auth.introspection_endpoint import EndpointAuthentication, IntrospectionEndpoint, NoAnswer
from a2a_trust.auth.jwt import MAX_TOKEN
from a2a_trust.auth.peers import Path, sending
from a2a_trust.auth.principal import RECHECKS, Identity, TokenBinding, UnchangedError
from a2a_trust.auth.token_claims import (
    AccessTokenMark,
    ClaimsVerifier,
    ScopesFrom,
    bytes_of,
    check_other_kinds,
    moments_of,
    shorten,
    signed_part,
)
from a2a_trust.base import strict_json
from a2a_trust.base.cache import BoundedCache, LookUps, SingleFlight
from a2a_trust.base.databases.availability import REQUEST_SECONDS, Pooled
from a2a_trust.base.databases.redis import RedisServer
from a2a_trust.base.net.fetcher import Fetcher, check_fetcher
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError, MalformedError
from a2a_trust.keys import base64url
from a2a_trust.keys.sealed import MIN_SECRET, Seal

_log: Final = logging.getLogger(__name__)

MAX_REMEMBERED: Final = 30.0
"""The longest time for which an answer is cached, in seconds."""
_WAS_VALID_SECONDS: Final = 3_600.0
_SKEW: Final = 30.0
"""By how many seconds ``nbf`` and ``iat`` may lie ahead."""
_INVALID_SECONDS: Final = 10.0
_INVALID_TOKENS: Final = 16_384
_FORGOTTEN_TOKENS: Final = 65_536
_INVALID_BYTES: Final = 512  # for each invalid token
_REPLICA_SKEW: Final = 10.0
"""By how many seconds the clocks of replicas may differ."""

_VERSION: Final = b"1"
_PREFIX: Final = b"a2a:token:" + _VERSION + b":"
_LARGEST: Final = 65_536
"""The largest sealed answer, in bytes: no more is ever read from the server."""
_ROUND_TRIP_SECONDS: Final = 0.2
"""Shorter than a request waits, so a request makes no second round trip after one that failed."""
_TIME: Final = struct.Struct(">d")

#: The claims for the kind of a token, and their values for access tokens, in lower case: RFC 7662 2.2 with RFC 6749 7.1
#: and RFC 9449 5, Ory Hydra, and Keycloak.
_KINDS: Final[Mapping[str, frozenset[str]]] = {
    "token_type": frozenset({"bearer", "dpop"}),
    "token_use": frozenset({"access_token", "access"}),
    "typ": frozenset({"bearer", "dpop"}),
}
#: The claims that name the caller, best first, and the addition to the issuer: a user, a client and a subject of the
#: same name are three callers.
_SUBJECTS: Final = (("sub", ""), ("username", "#username"), ("client_id", "#client_id"))


class SharedAnswer(NamedTuple):
    """The issuer's answer about a token, and the time of the request, in seconds since the epoch."""

    asked: float
    answer: JSONObject


def slot_of(configuration: bytes, token: bytes) -> bytes:
    """The key of the answer about a token, for verifiers of one configuration; both are SHA-256 digests."""
    return _PREFIX + hashlib.sha256(configuration + token).digest()


class RedisTokenCache(Pooled[RedisServer]):
    """Shares valid answers about opaque tokens: ``IntrospectionVerifier(…, shared=RedisTokenCache(url, secret=…))``.

    A request waits for the server for a quarter of a second at most, and after a failure one request per second tries
    it again. Several verifiers may have the same cache.
    """

    def __init__(self, url: str, *, secret: bytes) -> None:
        """``url``: ``rediss://HOST:6379/0``, or ``redis://…`` without TLS. ``secret``: at least 32 random bytes, the
        same for all replicas of an agent; it must not be on the server. ConfigurationError: an argument is wrong.
        """
        if type(secret) is not bytes or len(secret) < MIN_SECRET:
            raise ConfigurationError(
                f"RedisTokenCache: the secret must be {MIN_SECRET} bytes or more; make one with "
                "secrets.token_bytes(32), and give the same one to all replicas of the agent"
            )
        self._server = RedisServer(url, what="cache of opaque tokens", timeout=_ROUND_TRIP_SECONDS, may_drop=True)
        self._seal = Seal(secret, b"a2a_trust introspection " + _VERSION)
        self._look_ups = LookUps(self._round_trip)
        self._removing = set[Task[None]]()
        self._is_logged = False

    async def aclose(self) -> None:
        loop = asyncio.get_running_loop()
        removing = [task for task in self._removing if task.get_loop() is loop]
        if removing:
            await asyncio.wait(removing)
        await super().aclose()

    async def find(self, slot: bytes, *, first: bool) -> SharedAnswer | None:
        """The answer in the slot; None if there is none, or the server cannot be used. ``first`` as in ``LookUps``."""
        if not self._server.pause.may_try():
            return None
        found = await self._look_ups.find_within(REQUEST_SECONDS, [slot], first=first)
        return self._open(slot, found[slot]) if found else None

    async def keep(self, slot: bytes, shared: SharedAnswer, seconds: float) -> None:
        """Keep the answer for so many seconds, if the server can."""
        value = _TIME.pack(shared.asked) + json.dumps(shared.answer, separators=(",", ":")).encode()
        sealed = self._seal.seal(value, slot)
        milliseconds = int(seconds * 1000)
        if len(sealed) > _LARGEST or milliseconds < 1 or not self._server.pause.may_try():
            return
        with suppress(KeySourceUnavailableError):
            async with self._server.session() as client:
                await client.set(slot, sealed, px=milliseconds)

    def forget(self, slot: bytes) -> None:
        """Remove the answer, if the server can: in the background of the event loop, or while the caller waits."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            with suppress(KeySourceUnavailableError), self._server.blocking() as client:
                client.delete(slot)
            return
        task = loop.create_task(self._remove(slot), context=Context())
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def _remove(self, slot: bytes) -> None:
        with suppress(KeySourceUnavailableError):
            async with self._server.session() as client:
                await client.delete(slot)

    async def _round_trip(self, slots: tuple[bytes, ...]) -> Mapping[bytes, bytes]:
        async with self._server.session() as client, client.pipeline(transaction=False) as pipeline:
            for slot in slots:
                pipeline.getrange(slot, 0, _LARGEST - 1)
            values = await pipeline.execute()
        return {slot: value for slot, value in zip(slots, values, strict=True) if value}

    def _open(self, slot: bytes, sealed: Any) -> SharedAnswer | None:
        value = self._seal.open(sealed, slot) if type(sealed) is bytes else None
        if value is None:
            if not self._is_logged:
                self._is_logged = True
                _log.warning(
                    "the %s has a value that was not sealed with this secret, so the issuer is asked; give all "
                    "replicas the same secret, or find out who else writes to that server",
                    self._server.what,
                )
            return None
        try:
            answer = strict_json.parse(value[_TIME.size :], what="answer")
        except MalformedError:
            return None
        return SharedAnswer(_TIME.unpack_from(value)[0], answer) if type(answer) is dict else None


#: Errors are values here, because several callers raise them.
_Outcome: TypeAlias = Identity | InvalidCredentialsError | KeySourceUnavailableError


class IntrospectionVerifier(ClaimsVerifier):
    """Verifies access tokens by asking the server that issued them; ``issuer`` and ``audience`` are compared exactly.

    ::

        IntrospectionVerifier(
            "https://login.example.com/introspect",
            issuer="https://login.example.com",
            audience="https://agent.example.com",
            client_id="agent",
            authentication=ClientSecret(SecretFile("/run/secrets/introspection")),
        )

    - ``client_id``, ``authentication``: of this agent, as a client of the server.
    - ``fetcher``: has the private origins and the certificate of the agent.
    - ``knows_access_tokens_only``: the endpoint answers only for access tokens, so an answer need not show that its
      token is one. ``marked_by``: the claims that show it at this server.
    - ``allow_missing_audience``: accepts tokens without ``aud``, which may have been issued for another agent.
    - ``signed_answers``: the keys of the issuer; then only answers that it signed are accepted.
    - ``remember_for``: how long an answer is cached, in seconds, 30 at most. Until then a revoked token is accepted.
    - ``remember``: the largest number of cached tokens.
    - ``shared``: a cache that all replicas of the agent share, so that the server is asked once for each token. Clocks
      of replicas differ, by up to ten seconds, so a revoked token may be accepted that much longer.
    - ``hints``: texts that are added to errors, by the claims that they are about.
    """

    _name = "IntrospectionVerifier"
    metadata_urls: tuple[str, ...] = ()
    """Empty: the endpoint is configured, not found."""
    asks_issuer: Final = True
    """It sends unknown tokens to its issuer, so no other introspecting verifier may share its place."""

    def __init__(
        self,
        endpoint: str,
        *,
        issuer: str,
        audience: str | Iterable[str],
        client_id: str,
        authentication: EndpointAuthentication,
        fetcher: Fetcher | None = None,
        scopes_from: ScopesFrom = "scope",
        marked_by: AccessTokenMark | Iterable[AccessTokenMark] = (),
        knows_access_tokens_only: bool = False,
        allow_missing_audience: bool = False,
        signed_answers: KeySource | None = None,
        binding: TokenBinding = TokenBinding.OPTIONAL,
        remember_for: float = MAX_REMEMBERED,
        remember: int = 32_768,
        shared: RedisTokenCache | None = None,
        hints: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(issuer, audience, scopes_from, marked_by, hints, binding, remember)
        if {type(knows_access_tokens_only), type(allow_missing_audience)} != {bool}:
            raise ConfigurationError(
                "IntrospectionVerifier: knows_access_tokens_only and allow_missing_audience are True or False"
            )
        if isinstance(remember_for, bool) or not 0 <= remember_for <= MAX_REMEMBERED:
            raise ConfigurationError(
                f"IntrospectionVerifier: remember_for={remember_for!r:.40} is not 0 to {MAX_REMEMBERED:.0f} seconds"
            )
        if not isinstance(shared, RedisTokenCache | None):
            raise ConfigurationError("IntrospectionVerifier: write shared=RedisTokenCache(url, secret=…)")
        check_fetcher(fetcher)
        self._knows_access_tokens_only = knows_access_tokens_only
        self._allow_missing_audience = allow_missing_audience
        self._endpoint = IntrospectionEndpoint(
            endpoint,
            issuer=issuer,
            client_id=client_id,
            authentication=authentication,
            fetcher=Fetcher() if fetcher is None else fetcher,
            signed_answers=signed_answers,
        )
        self._seconds = remember_for
        self._invalid: BoundedCache[bytes, str] = BoundedCache(
            max_entries=_INVALID_TOKENS, max_bytes=_INVALID_TOKENS * _INVALID_BYTES
        )
        #: Tokens that were valid. They are only introspected first: before unknown tokens.
        self._were_valid: BoundedCache[bytes, bool] = BoundedCache(max_entries=remember)
        self._requests = SingleFlight[tuple[int, bytes], _Outcome]()
        self._shared = shared
        self.parts: Final[tuple[object, ...]] = (shared,)
        #: Shared answers to verifiers of another configuration are not read.
        decides = [issuer, sorted(self.audiences), endpoint, client_id, signed_answers is not None]
        self._configuration = hashlib.sha256(json.dumps(decides).encode()).digest()
        #: Forgotten tokens, whose shared answers are not read: perhaps they could not be removed.
        self._not_shared: BoundedCache[int, bool] = BoundedCache(max_entries=_FORGOTTEN_TOKENS)
        #: How often tokens were forgotten: answers to earlier introspection requests are not cached, nor waited for.
        self._forgotten = 0

    async def verify_bound(self, credential: str, now: float) -> Identity:
        """As ``BoundVerifier.verify_bound``: the identity that the server's answer gives."""
        if len(credential) > MAX_TOKEN or not credential.isascii() or not credential:
            raise InvalidCredentialsError("token: empty, too long, or not ASCII")
        digest = hashlib.sha256(credential.encode()).digest()
        known = self._valid.entry(digest)  # 1
        if known is not None and known[1] <= now < known[2]:
            return known[0]
        why = self._invalid.get(digest, now)
        if why is not None:
            raise InvalidCredentialsError(why)
        self._check_unverified(credential, now)  # 2
        if RECHECKS.get():
            raise UnchangedError
        outcome = await self._ask(credential, digest, now)  # 3 to 7
        if not isinstance(outcome, Identity):
            raise type(outcome)(str(outcome))
        if not now < outcome.expires_at:  # an earlier caller began the introspection request
            raise InvalidCredentialsError("token: it has expired")
        return outcome

    def forget(self, credential: str) -> None:
        """Remove a token from the cache, as after its revocation; a JWT with every spelling of its signature.

        The next use of the token is introspected. The shared answer is removed if the cache can be used: in the
        background of the running event loop; a caller without one waits for it. The caches of other replicas keep it
        until its time ends.
        """
        self._forgotten += 1
        digest = hashlib.sha256(credential.encode()).digest()
        self._invalid.remove(digest)
        super().forget(credential)
        if self._shared is not None:
            self._not_shared.put(signed_part(credential), True, until=time.monotonic() + MAX_REMEMBERED + _REPLICA_SKEW)
            self._shared.forget(slot_of(self._configuration, digest))

    # 2

    def _check_unverified(self, credential: str, now: float) -> None:
        parts = credential.split(".")
        if len(parts) != 3:
            return
        try:
            claims, _ = strict_json.read_members(base64url.decode(parts[1], "payload"), what="claims")
        except MalformedError:
            return
        if type(claims) is not dict:
            return
        self._check_issuer(claims)
        exp = claims.get("exp")
        if (type(exp) is int or type(exp) is float) and exp <= now:
            raise InvalidCredentialsError("token: it has expired")
        _check_kind(claims, ("token_use", "typ"))

    # 3

    async def _ask(self, credential: str, digest: bytes, now: float) -> _Outcome:
        key = self._forgotten, digest
        path = sending()  # here, since the introspection runs outside of the request
        request = self._requests.begin(key, lambda: self._introspect(credential, key, now, path))
        await asyncio.wait([request])
        if request.cancelled():
            return KeySourceUnavailableError("introspection: the request was cancelled")
        return request.result()

    async def _introspect(self, credential: str, key: tuple[int, bytes], now: float, path: Path) -> _Outcome:
        """The result of an introspection request, cached if allowed."""
        forgotten, digest = key
        shared = await self._look_up(credential, key, now)
        if shared is not None:
            return shared
        answer = await self._endpoint.ask(credential, now, path, was_valid=self._were_valid.get(digest, now) is True)
        if isinstance(answer, NoAnswer):
            if answer.is_for_one_token and answer.status == 400:
                return InvalidCredentialsError(f"token: the issuer cannot read it: {answer.reason}")
            return KeySourceUnavailableError(answer.reason)
        is_current = forgotten == self._forgotten
        try:
            identity, good_from = self._identity(answer, credential, now)
        except (InvalidCredentialsError, MalformedError) as error:
            why = str(error)
            self._were_valid.remove(digest)
            if is_current:
                self._invalid.put(
                    digest, why, since=now - _INVALID_SECONDS, until=now + _INVALID_SECONDS, size=200 + len(why)
                )
            return InvalidCredentialsError(why)
        if is_current:
            self._cache(credential, digest, identity, SharedAnswer(now, answer), good_from)
            await self._share(credential, key, identity, SharedAnswer(now, answer))
        return identity

    def _cache(
        self, credential: str, digest: bytes, identity: Identity, shared: SharedAnswer, good_from: float
    ) -> None:
        # In both directions of the clock: an answer from while it ran ahead is not used later.
        since = max(good_from, shared.asked - self._seconds)
        until = min(identity.expires_at, shared.asked + self._seconds)
        size = bytes_of(shared.answer, identity.scopes)
        self._were_valid.put(digest, True, until=min(identity.expires_at, shared.asked + _WAS_VALID_SECONDS))
        self._valid.put(digest, identity, since=since, until=until, size=size, notes=(signed_part(credential),))

    async def _look_up(self, credential: str, key: tuple[int, bytes], now: float) -> Identity | None:
        """The identity in an answer that another replica got; None if the server has to be asked."""
        forgotten, digest = key
        if self._shared is None or self._not_shared.get(signed_part(credential), time.monotonic()):
            return None
        slot = slot_of(self._configuration, digest)
        shared = await self._shared.find(slot, first=self._were_valid.get(digest, now) is True)
        if shared is None or not shared.asked - _REPLICA_SKEW <= now < shared.asked + self._seconds:
            return None
        try:
            identity, good_from = self._identity(shared.answer, credential, now)
        except (InvalidCredentialsError, MalformedError):
            return None
        if forgotten != self._forgotten:
            return None
        self._cache(credential, digest, identity, shared, good_from)
        return identity

    async def _share(self, credential: str, key: tuple[int, bytes], identity: Identity, shared: SharedAnswer) -> None:
        if self._shared is None:
            return
        forgotten, digest = key
        slot = slot_of(self._configuration, digest)
        seconds = min(identity.expires_at - shared.asked, self._seconds)
        await self._shared.keep(slot, shared._replace(answer=_without(shared.answer, credential)), seconds)
        if forgotten != self._forgotten:
            self._shared.forget(slot)

    # 4 to 7

    def _identity(self, answer: JSONObject, credential: str, now: float) -> tuple[Identity, float]:
        """The identity in an answer, and the time from which the token is valid."""
        if answer.get("active") is not True:
            raise InvalidCredentialsError("token: not active; it is unknown to the issuer, expired or revoked")
        claims = {name: value for name, value in _without(answer, credential).items() if value is not None}
        self._check_parties(claims)
        good_from, exp = moments_of(claims, now, _SKEW)
        bound_to = self._bound_to(claims)
        is_dpop = "dpop" in (_lower(claims.get("token_type")), _lower(claims.get("typ")))
        if is_dpop and (bound_to is None or bound_to.jkt is None):
            raise InvalidCredentialsError("token: it is a DPoP token, and the answer names no key for it (cnf.jkt)")
        is_named, is_marked = _check_kind(claims, _KINDS), self._is_marked(claims)
        if not (is_named or is_marked or self._knows_access_tokens_only):
            raise InvalidCredentialsError(
                "token: nothing in the answer shows that it is an access token (token_type Bearer); pass "
                "marked_by=AccessTokenMark('claim') for a claim that only access tokens have, or "
                "knows_access_tokens_only=True if the endpoint answers for no other tokens"
            )
        issuer, subject = self._caller(claims)
        expires_at = float("inf") if exp is None else exp
        return self._identity_of(claims, issuer, subject, expires_at, bound_to), good_from

    def _check_parties(self, claims: JSONObject) -> None:
        if claims.get("iss", self._issuer) != self._issuer:
            raise self._error("iss", f"token: issuer {shorten(claims['iss'])} is not {shorten(self._issuer)}")
        if "aud" in claims:
            self._check_audience(claims)
        elif not self._allow_missing_audience:
            raise self._error(
                "aud",
                "token: the answer has no aud, so the token may be for another agent; have the server name the "
                "audience, or pass allow_missing_audience=True",
            )

    def _caller(self, claims: JSONObject) -> tuple[str, str]:
        for name, suffix in _SUBJECTS:
            subject = claims.get(name)
            if subject is None:
                continue
            if type(subject) is not str or not subject:
                raise self._error("sub", f"token: {name} is missing, empty or not a string")
            return f"{self._issuer}{suffix}", subject
        raise self._error("sub", "token: the answer has no sub, username or client_id")


def _check_kind(claims: JSONObject, names: Iterable[str]) -> bool:
    """Whether claims of these names call the token an access token; InvalidCredentialsError: another kind of token."""
    check_other_kinds(claims)
    named = [name for name in names if claims.get(name) is not None]
    for name in named:
        if _lower(claims[name]) not in _KINDS[name]:
            raise InvalidCredentialsError(
                f"token: its claim {name} is {shorten(claims[name])}, so it is not an access token"
            )
    return bool(named)


def _without(value: Any, credential: str) -> Any:
    """An answer without the token, which claims must not hold, and a server may repeat at any depth."""
    if type(value) is dict:
        return {name: _without(item, credential) for name, item in value.items() if item != credential}
    if type(value) is list:
        return [_without(item, credential) for item in value if item != credential]
    return value


def _lower(value: object) -> str:
    return value.lower() if type(value) is str else ""
