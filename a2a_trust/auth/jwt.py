"""JWT access tokens (RFC 9068), judged by RFC 8725: whose they are, for whom, until when, and for what.

The rules, numbered as in ``JwtVerifier.verify``:

1. Three canonical base64url parts; a header without ``crit``; an asymmetric ``alg`` that is the key's own.
2. ``typ`` is that of an access token. ID tokens, refresh tokens and logout tokens are none, whoever signed them.
3. The key is one of the issuer's, by ``kid`` and key type, and the signature is its.
4. ``iss`` and ``aud`` are exactly ours; ``sub`` names somebody.
5. ``exp`` lies ahead, ``nbf`` and ``iat`` do not.
6. A token that is bound to a key or a certificate (``cnf``) is not accepted without the proof: here, never.

What is remembered of a token are its proven claims, under the digest of the whole token, for five minutes at most and
never beyond a change of the issuer's keys: that is how long a key that the issuer withdrew may still count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from a2a_trust import strict_json
from a2a_trust.auth.principal import Identity
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, InvalidSignatureError, MalformedError
from a2a_trust.keys import base64url
from a2a_trust.keys.algorithms import ALGORITHMS
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.jws import read_header, verify_jws
from a2a_trust.strict_json import JSONObject

__all__ = ["IdTokenVerifier", "JwtVerifier", "KeySource", "TokenProfile"]

MAX_TOKEN: Final = 16_384
"""The longest token that is looked at, in characters."""

MAX_SKEW: Final = 300.0
"""The most that clocks may differ, in seconds."""

_MEMORY_SECONDS: Final = 300.0
_MEMORY_TOKENS: Final = 4096


class KeySource(Protocol):
    """Where the issuer's keys come from; ``a2a_trust.keys.jwks_cache`` has the one for URLs."""

    @property
    def generation(self) -> int:
        """A number that rises whenever the set of keys changes."""
        ...

    async def key(self, kid: str, kty: str) -> PublicKey:
        """The key of that name and type; InvalidCredentialsError, or KeySourceUnavailableError."""
        ...

    async def only_key(self, kty: str) -> PublicKey:
        """The one key of that type, for tokens without ``kid``; InvalidCredentialsError when there are several."""
        ...


class TokenProfile(StrEnum):
    """What an issuer writes into the access tokens that it signs."""

    RFC9068 = "at+jwt"
    """``typ`` is at+jwt: an access token says so."""

    PLAIN_JWT = "JWT"
    """``typ`` is JWT or absent, as Keycloak and Entra ID write it. Such a token is told from ID, refresh and logout
    tokens by what it must have (``scope`` or ``scp``, or Entra's ``azpacr`` and ``appidacr``) and must not have."""


#: Claims of ID tokens (OpenID Connect Core 2 and 3.3.2.11) and of logout tokens (Back-Channel Logout 2.4).
_OF_OTHER_TOKENS: Final = ("nonce", "at_hash", "c_hash", "s_hash", "events")
#: Claims that only access tokens have: RFC 8693 4.2, and how the client proved itself in Entra ID's versions 1 and 2.
#: Not ``roles``: ID tokens may have them too.
_OF_ACCESS_TOKENS: Final = ("scope", "scp", "azpacr", "appidacr")
#: Keycloak's own claim for the kind of token.
_KEYCLOAK_ACCESS: Final = ("Bearer",)


@dataclass(frozen=True, slots=True)
class _Proven:
    identity: Identity
    generation: int
    remembered_until: float
    not_before: float


class JwtVerifier:
    """Verifies access tokens of one issuer for one audience.

    Why this is a class: it remembers proven claims. ``issuer`` and ``audience`` are compared exactly.
    """

    def __init__(
        self,
        keys: KeySource,
        *,
        issuer: str,
        audience: str,
        profile: TokenProfile = TokenProfile.RFC9068,
        skew: float = 30.0,
    ) -> None:
        """``skew``: by how many seconds ``nbf`` and ``iat`` may lie ahead; ``exp`` gets none."""
        for name, value in (("issuer", issuer), ("audience", audience)):
            if not value:
                raise ConfigurationError(
                    f"JwtVerifier: {name} must be a string that is not empty; it says whose tokens"
                )
        if not 0 <= skew <= MAX_SKEW:
            raise ConfigurationError(f"JwtVerifier: skew must be 0 to {MAX_SKEW:.0f} seconds")
        self._keys, self._issuer, self._audience = keys, issuer, audience
        self._profile, self._skew = TokenProfile(profile), skew
        self._proven: dict[bytes, _Proven] = {}

    async def verify(self, credential: str, now: float) -> Identity:
        """The identity in an access token, or InvalidCredentialsError, or KeySourceUnavailableError."""
        if len(credential) > MAX_TOKEN or not credential.isascii():
            raise InvalidCredentialsError("token: too long, or not ASCII")
        digest = hashlib.sha256(credential.encode("ascii")).digest()
        proven = self._proven.get(digest)
        if (
            proven is not None
            and proven.generation == self._keys.generation
            and proven.not_before <= now < proven.identity.expires_at
            and now < proven.remembered_until
        ):
            return proven.identity
        identity, not_before = await self._prove(credential, now)
        self._remember(digest, _Proven(identity, self._keys.generation, now + _MEMORY_SECONDS, not_before), now)
        return identity

    def forget(self, credential: str) -> None:
        """Drop what is remembered of a token, as after its revocation."""
        self._proven.pop(hashlib.sha256(credential.encode()).digest(), None)

    async def _prove(self, credential: str, now: float) -> tuple[Identity, float]:
        try:
            header, claims = await self._claims(credential)
            self._check_kind(header, claims)
            return _identity(claims, self._issuer, self._audience, now, self._skew)
        except MalformedError as error:
            raise InvalidCredentialsError(f"token: {error}") from None

    async def _claims(self, credential: str) -> tuple[Mapping[str, Any], JSONObject]:
        """Steps 1 and 3."""
        parts = credential.split(".")
        if len(parts) != 3:
            raise InvalidCredentialsError("token: not three parts")
        protected, encoded, signature = parts
        header = read_header(protected)
        payload = base64url.decode(encoded, "payload")
        key = await self._key(header)
        try:
            verify_jws(protected=protected, payload=payload, signature=signature, key=key)
        except InvalidSignatureError:
            raise InvalidCredentialsError("token: the signature is not the issuer's") from None
        claims = strict_json.parse(payload, what="claims")
        if type(claims) is not dict:
            raise InvalidCredentialsError("token: the claims are no JSON object")
        return header, claims

    async def _key(self, header: Mapping[str, Any]) -> PublicKey:
        kty = next((a.kty for a in ALGORITHMS.values() if a.is_named(header["alg"])), None)
        if kty is None:
            raise InvalidCredentialsError("token: alg is none that is accepted")
        kid = header.get("kid")
        if kid is None:
            return await self._keys.only_key(kty)
        if type(kid) is not str:
            raise InvalidCredentialsError("token: kid is not a string")
        return await self._keys.key(kid, kty)

    def _check_kind(self, header: Mapping[str, Any], claims: JSONObject) -> None:
        """Step 2."""
        typ = header.get("typ", "JWT")
        if type(typ) is not str or typ.lower().removeprefix("application/") != self._profile.lower():
            raise InvalidCredentialsError(f"token: typ is not that of the profile {self._profile}")
        if any(name in claims for name in _OF_OTHER_TOKENS):
            raise InvalidCredentialsError("token: it has claims of an ID token or a logout token")
        if self._profile is TokenProfile.PLAIN_JWT:
            if claims.get("typ", "Bearer") not in _KEYCLOAK_ACCESS:
                raise InvalidCredentialsError("token: its own claim typ says that it is no access token")
            if not any(name in claims for name in _OF_ACCESS_TOKENS):
                raise InvalidCredentialsError("token: nothing shows that it is an access token (scope, scp …)")

    def _remember(self, digest: bytes, proven: _Proven, now: float) -> None:
        if len(self._proven) >= _MEMORY_TOKENS:
            # A copy and an assignment: readers on other threads see the old memory or the new one.
            kept = {key: value for key, value in self._proven.items() if now < value.remembered_until}
            self._proven = kept if len(kept) < _MEMORY_TOKENS else {}
        self._proven[digest] = proven


class IdTokenVerifier(JwtVerifier):
    """Verifies ID tokens, for agents that really are sent ID tokens: ``audience`` is the client's ``client_id``.

    An ID token tells who logged in somewhere, not that its bearer may call this agent; where the issuer gives access
    tokens, use ``JwtVerifier``. Source: OpenID Connect Core 3.1.3.7.
    """

    def __init__(self, keys: KeySource, *, issuer: str, audience: str, skew: float = 30.0) -> None:
        super().__init__(keys, issuer=issuer, audience=audience, profile=TokenProfile.PLAIN_JWT, skew=skew)

    def _check_kind(self, header: Mapping[str, Any], claims: JSONObject) -> None:
        typ = header.get("typ", "JWT")
        if type(typ) is not str or typ.lower().removeprefix("application/") != "jwt":
            raise InvalidCredentialsError("token: typ is not JWT")
        if "events" in claims or claims.get("typ", "ID") != "ID":
            raise InvalidCredentialsError("token: a logout, refresh or access token is no ID token")
        audience = claims.get("aud")
        if type(audience) is list and len(audience) > 1 and claims.get("azp") != self._audience:
            raise InvalidCredentialsError("token: several audiences, and azp is not ours")


def _identity(claims: JSONObject, issuer: str, audience: str, now: float, skew: float) -> tuple[Identity, float]:
    """Steps 4 to 6: the identity, and the moment from which the token is good."""
    if type(claims.get("iss")) is not str or claims["iss"] != issuer:
        raise InvalidCredentialsError("token: iss is not the issuer")
    audiences = claims.get("aud")
    audiences = [audiences] if type(audiences) is str else audiences
    if type(audiences) is not list or not all(type(item) is str for item in audiences) or audience not in audiences:
        raise InvalidCredentialsError("token: aud is not our audience")
    subject = claims.get("sub")
    if type(subject) is not str or not subject:
        raise InvalidCredentialsError("token: sub names nobody")
    expires = _moment(claims, "exp")
    if expires is None or expires <= now:
        raise InvalidCredentialsError("token: it has expired, or has no exp")
    starts = max(_moment(claims, "nbf") or 0.0, _moment(claims, "iat") or 0.0) - skew
    if now < starts:
        raise InvalidCredentialsError("token: it is not valid yet (nbf or iat)")
    if "cnf" in claims:
        raise InvalidCredentialsError("token: it is bound to a key (cnf), and no proof of that key is taken here")
    identity = Identity(issuer=issuer, subject=subject, scopes=_scopes(claims), expires_at=expires, claims=claims)
    return identity, starts


def _moment(claims: JSONObject, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if type(value) not in (int, float):
        raise InvalidCredentialsError(f"token: {name} is not a number")
    return float(value)


def _scopes(claims: JSONObject) -> frozenset[str]:
    """The scopes of ``scope`` (RFC 8693 4.2) and of ``scp``, which some issuers write as a list."""
    found: set[str] = set()
    for name in ("scope", "scp"):
        value = claims.get(name, "")
        words = value.split(" ") if type(value) is str else value
        if type(words) is not list or not all(type(word) is str for word in words):
            raise InvalidCredentialsError(f"token: {name} is neither a string nor a list of strings")
        found.update(word for word in words if word)
    return frozenset(found)
