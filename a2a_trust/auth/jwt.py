"""JWT access tokens (RFC 9068), verified as RFC 8725 demands: issuer, audience, times and scopes.

The rules, in the order in which they are applied:

1. Three canonical base64url parts; a header without ``crit``; an asymmetric ``alg``.
2. ``iss`` is exactly our issuer. A token of another issuer is for another verifier; no key is fetched for it.
3. ``typ`` and the claims are those of an access token, not of an ID, refresh or logout token. A JWT without its kind in
   ``typ`` must show it by a claim: ``scope``, ``scp``, or a mark that the operator names.
4. ``aud`` has one of our audiences; ``sub`` is not empty.
5. ``exp`` is in the future; ``nbf`` and ``iat`` are not.
6. A token that is bound to a key or a certificate (``cnf``) proves nothing by itself: the guard demands the proof in
   every request, and ``verify``, which sees no requests, refuses it. Other members of ``cnf`` are not understood, and
   refused. A verifier may demand that tokens are bound (``TokenBinding.REQUIRED``).
7. The key is one of the issuer's, by ``kid`` and key type, and valid now; ``alg`` is its own, and so is the signature.

Rules 2 to 6 read an unverified token, and can only reject it: a token that could not be good anyway causes no fetch of
keys and no signature check. Nothing counts before rule 7.

The verified claims of a token are cached under the digest of the whole token, for five minutes at most. The loss of any
of the issuer's keys ends that, so a withdrawn key stays valid for five minutes at most. The cache is bounded in tokens
and in bytes; the token that was verified first leaves it first.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from a2a_trust import strict_json
from a2a_trust.auth.discovery import IssuerKeys
from a2a_trust.auth.key_sources import KeySource
from a2a_trust.auth.principal import BoundVerifier, CredentialKind, Identity, KeyBinding, TokenBinding
from a2a_trust.auth.token_claims import (
    NOT_ACCESS,
    NOT_ID,
    AccessTokenMark,
    ScopeClaims,
    ScopesFrom,
    audiences_of,
    binding_of,
    claim_of_kind,
    is_for,
    marks_of,
    moments_of,
    shown,
)
from a2a_trust.cache import BoundedCache
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    InvalidSignatureError,
    MalformedError,
    UnrecognizedCredentialsError,
)
from a2a_trust.keys import base64url
from a2a_trust.keys.algorithms import algorithm_of
from a2a_trust.keys.jws import read_header, verify_jws
from a2a_trust.net.issuers import check_issuer
from a2a_trust.strict_json import JSON, JSONObject

MAX_TOKEN: Final = 16_384
"""The longest token, in characters."""

MAX_SKEW: Final = 300.0
"""The most that clocks may differ, in seconds."""

_MEMORY_SECONDS: Final = 300.0
_MEMORY_BYTES: Final = 4_096
"""How many bytes the memory may take for each of the tokens that it is for; one of 450 characters takes 1,550."""


class TokenProfile(StrEnum):
    """The ``typ`` that an issuer writes into its access tokens."""

    RFC9068 = "at+jwt"
    """``typ`` is at+jwt, which marks an access token."""

    PLAIN_JWT = "JWT"
    """``typ`` is JWT or absent, as in Keycloak and Entra ID. Claims must show that it is an access token: ``scope``,
    ``scp``, Entra's ``azpacr`` or ``appidacr``, or an ``AccessTokenMark``. Claims of other tokens are rejected."""


#: Claims of ID tokens (OpenID Connect Core 3.3.2.11) and of logout tokens (Back-Channel Logout 2.4).
_OF_OTHER_TOKENS: Final = frozenset({"at_hash", "c_hash", "s_hash", "events"})
#: Also of ID tokens; some issuers copy it into access tokens, as Keycloak did before version 25.
_NONCE: Final = "nonce"
#: Claims that only access tokens have: RFC 8693 4.2, and how the client proved itself in Entra ID's versions 1 and 2.
#: Not ``roles``: ID tokens may have them too.
_OF_ACCESS_TOKENS: Final = frozenset({"scope", "scp", "azpacr", "appidacr"})
#: Keycloak's own claim ``typ`` for the kind of token, and that for tokens which are bound to a key.
_KEYCLOAK_ACCESS: Final = "Bearer"
_KEYCLOAK_BOUND: Final = "DPoP"
_NO_HINTS: Final[Mapping[str, str]] = MappingProxyType({})
#: The types of claims that are final as they are read: they hold no others, and no number that could be rounded.
_FLAT: Final = frozenset({str, int, bool, type(None)})


class _Header(NamedTuple):
    """The members of a token's header; ``typ`` in lower case and without ``application/``."""

    kid: str | None
    kty: str
    typ: str


class _Verified(NamedTuple):
    identity: Identity
    signed: bytes
    """The digest of the signed part: one signed part can have several valid signatures."""
    generation: int


class JwtVerifier(BoundVerifier[str]):
    """Verifies JWT access tokens of one issuer; issuer and audience must match exactly.

    ::

        keys = OpenIdKeys("https://idp.example", Fetcher())
        JwtVerifier(keys, issuer="https://idp.example", audience="https://agent.example")

    Why this is a class: it remembers verified claims.
    """

    kind = CredentialKind.ACCESS_TOKEN

    def __init__(
        self,
        keys: KeySource,
        *,
        issuer: str,
        audience: str | Iterable[str],
        profile: TokenProfile | Iterable[TokenProfile] = TokenProfile.RFC9068,
        scopes_from: ScopesFrom = ("scope", "scp"),
        audience_from: str | None = None,
        marked_by: AccessTokenMark | Iterable[AccessTokenMark] = (),
        hints: Mapping[str, str] = _NO_HINTS,
        skew: float = 30.0,
        binding: TokenBinding = TokenBinding.OPTIONAL,
        remember: int = 32_768,
    ) -> None:
        """A token is for this agent if it has one of the audiences. ``profile`` is what the issuer writes; both, while
        it changes from one to the other. ``scopes_from`` says where the scopes are: see ``ScopesFrom``.

        ``marked_by`` are claims that only access tokens of this issuer have. With one of them a plain JWT needs no
        scope, and may have a ``nonce``. ``audience_from`` is the claim that stands for a missing ``aud``, in tokens
        with such a mark. ``hints`` are added to the errors about a claim: what the issuer's console has to change.

        ``skew``: by how many seconds ``nbf`` and ``iat`` may lie ahead; ``exp`` gets none. ``binding`` says whether
        tokens have to be bound to a key. ``remember`` bounds the memory, in tokens: write as many as are live at once.
        It takes about 1.6 kB for a usual token, and never more than 4 kB times ``remember``.
        """
        if type(issuer) is not str or not issuer:
            raise ConfigurationError(
                "JwtVerifier: issuer must be a string that is not empty; for several issuers write "
                "SeveralIssuers([JwtVerifier(…), …])"
            )
        check_issuer(issuer)
        if isinstance(keys, type) or not callable(getattr(keys, "only_key", None)):
            raise ConfigurationError(
                "JwtVerifier: keys is not a source of keys; write OpenIdKeys(issuer, fetcher), JwksFile(path) or "
                "JwksCache(fetcher.loader(url, configured=True))"
            )
        if isinstance(keys, IssuerKeys) and keys.issuer != issuer:
            raise ConfigurationError(
                f"JwtVerifier: issuer is {issuer!a}, and the keys are those of {keys.issuer!a}; make both the same"
            )
        if not 0 <= skew <= MAX_SKEW:
            raise ConfigurationError(f"JwtVerifier: skew={skew!r:.40} must be 0 to {MAX_SKEW:.0f} seconds")
        if type(remember) is not int or remember < 0:
            raise ConfigurationError(f"JwtVerifier: remember={remember!r:.40} must be a number of tokens, 0 or more")
        self._keys, self._issuer, self._skew = keys, issuer, skew
        self._audiences = audiences_of(audience, "JwtVerifier")
        self._profiles = {each.lower(): each for each in _profiles_of(profile)}
        self._scopes, self._marks, self._hints = ScopeClaims(scopes_from), marks_of(marked_by), hints
        self._audience_from = audience_from
        if audience_from is not None and (not audience_from or not self._marks):
            raise ConfigurationError(
                "audience_from: it needs a claim that marks access tokens, because they have no aud; write "
                'marked_by=AccessTokenMark("token_use", "access")'
            )
        self._binding = TokenBinding(binding)
        self._verified: BoundedCache[bytes, _Verified] = BoundedCache(
            max_entries=remember, max_bytes=remember * _MEMORY_BYTES
        )

    @property
    def issuers(self) -> tuple[str, ...]:
        """The issuer whose tokens are accepted."""
        return (self._issuer,)

    @property
    def binding(self) -> TokenBinding:
        """Whether tokens must be bound to a key."""
        return self._binding

    @property
    def metadata_urls(self) -> tuple[str, ...]:
        """The URL of the issuer's metadata, which the guard compares with the card; empty if keys come another way."""
        return (self._keys.metadata_url,) if isinstance(self._keys, IssuerKeys) else ()

    async def verify_bound(self, credential: str, now: float) -> Identity:
        """The identity in an access token. If it is ``bound_to`` keys, the calling code must check their proofs.

        InvalidCredentialsError, KeySourceUnavailableError: as for ``Verifier.verify``.
        """
        if len(credential) > MAX_TOKEN or not credential.isascii():
            raise InvalidCredentialsError("token: too long, or not ASCII")
        digest = hashlib.sha256(credential.encode()).digest()
        # Read before the key: if a key is lost meanwhile, the cached result is not used.
        generation = self._keys.generation
        verified = self._verified.get(digest, now)
        if verified is not None:
            identity, _, then = verified
            if then == generation:
                return identity
        try:
            identity, good_from, good_until, size = await self._verify(credential, now)
        except MalformedError as error:
            raise InvalidCredentialsError(f"token: {error}") from None
        # Five minutes of the clock in both directions: what was verified while it ran ahead is verified again.
        good_from = max(good_from, now - _MEMORY_SECONDS)
        good_until = min(good_until, now + _MEMORY_SECONDS)
        verified = _Verified(identity, _signed(credential), generation)
        self._verified.put(digest, verified, since=good_from, until=good_until, size=size)
        return identity

    def remembered(self, credential: str, now: float) -> Identity | None:
        """The result of ``verify_bound``, if the cache has it; else None."""
        if len(credential) > MAX_TOKEN or not credential.isascii():
            return None
        generation = self._keys.generation
        verified = self._verified.get(hashlib.sha256(credential.encode()).digest(), now)
        return None if verified is None or verified.generation != generation else verified.identity

    def forget(self, credential: str) -> None:
        """Remove a token from the cache, for example after its revocation, and every token with the same signed part:
        from an ECDSA signature (r, s) anybody can make a second one, (r, n - s)."""
        signed = _signed(credential)
        self._verified.remove_where(lambda verified: verified.signed == signed)

    async def _verify(self, credential: str, now: float) -> tuple[Identity, float, float, int]:
        """The identity, from when until when the token and the key that signed it are good, and how many bytes it
        takes to remember that."""
        # 1
        parts = credential.split(".")
        if len(parts) != 3:
            raise UnrecognizedCredentialsError("token: not a JWT; for opaque tokens use IntrospectionVerifier")
        protected, encoded, signature = parts
        kid, kty, typ = _read_header(protected)
        payload = base64url.decode(encoded, "payload")
        claims, text = _read_claims(payload)
        # 2
        if claims.get("iss") != self._issuer:  # no JSON value but a string equals a string
            if "iss" not in claims:
                raise UnrecognizedCredentialsError(
                    self._with_hint("iss", f"token: iss is not the issuer {shown(self._issuer)}; it is missing")
                )
            raise UnrecognizedCredentialsError(
                f"token: iss is not the issuer {shown(self._issuer)}, but {shown(claims['iss'])}"
            )
        # 3
        profile = self._profiles.get(typ)
        if profile is None:
            why = f"token: typ is not {' or '.join(self._profiles.values())}, but {shown(typ)}"
            option = "; for an issuer that writes this into access tokens pass profile=TokenProfile.PLAIN_JWT"
            raise InvalidCredentialsError(f"{why}{option}" if typ == TokenProfile.PLAIN_JWT.lower() else why)
        self._check_kind(claims, profile)
        # 4 to 6
        self._check_claims(claims, now)
        # 7
        key = await (self._keys.only_key(kty) if kid is None else self._keys.key(kid, kty))
        if not key.is_valid_at(now):
            raise InvalidCredentialsError("token: its key is revoked, expired or not valid yet (A2A 8.4.3)")
        try:
            verify_jws(protected=protected, payload=payload, signature=signature, key=key)
        except InvalidSignatureError:
            raise InvalidCredentialsError("token: the signature is not the issuer's") from None
        # Only now: exact numbers and claims that cannot be changed cost many times what their JSON weighs.
        claims = _exact_claims(payload, claims, text)
        identity, good_from = self._identity(claims, now)
        if self._scopes.has_function:
            identity = replace(identity, scopes=self._scopes.by_function(identity.claims))
        good_until = min(identity.expires_at, key.not_after)
        return identity, max(good_from, key.not_before), good_until, bytes_of(claims, identity.scopes)

    def _check_kind(self, claims: JSONObject, profile: TokenProfile) -> None:
        """The rest of rule 3: what the claims say about the kind of token."""
        is_marked = any(mark.is_in(claims) for mark in self._marks)
        if not _OF_OTHER_TOKENS.isdisjoint(claims) or (_NONCE in claims and not is_marked):
            found = ", ".join(sorted(claims.keys() & {*_OF_OTHER_TOKENS, _NONCE}))
            raise InvalidCredentialsError(f"token: it has claims of an ID token or a logout token ({found})")
        for mark in self._marks:
            if mark.is_contradicted_by(claims):
                said = shown(claims[mark.claim]) if mark.claim in claims else "missing"
                why = f"token: {mark.claim} is {said}, so it is not an access token"
                raise InvalidCredentialsError(self._with_hint(mark.claim, why))
        kind = claim_of_kind(claims, NOT_ACCESS)
        if kind is not None:
            raise InvalidCredentialsError(f"token: its claim {kind} says that it is not an access token")
        if profile is TokenProfile.PLAIN_JWT:
            said = claims.get("typ", _KEYCLOAK_ACCESS)
            if said != _KEYCLOAK_ACCESS and not (said == _KEYCLOAK_BOUND and "cnf" in claims):
                raise InvalidCredentialsError(f"token: its claim typ is {shown(said)}, so it is not an access token")
            if not is_marked and _OF_ACCESS_TOKENS.isdisjoint(claims):
                why = "token: no claim shows that it is an access token, such as scope or scp"
                option = (
                    "; name a claim that only access tokens of this issuer have: marked_by=AccessTokenMark('claim')"
                )
                raise InvalidCredentialsError(self._with_hint("scope", why if self._marks else f"{why}{option}"))

    def _check_claims(self, claims: JSONObject, now: float) -> tuple[float, float, KeyBinding | None]:
        """Rules 4 to 6. From when until when the token is valid, and the keys that it is bound to."""
        self._check_audience(claims)
        subject = claims.get("sub")
        if type(subject) is not str or not subject:
            raise InvalidCredentialsError(self._with_hint("sub", "token: sub is missing, empty or not a string"))
        good_from, good_until = moments_of(claims, now, self._skew)
        if good_until is None:
            raise InvalidCredentialsError("token: it has no exp")
        bound_to = binding_of(claims["cnf"]) if "cnf" in claims else None
        if bound_to is None and self._binding is TokenBinding.REQUIRED:
            raise InvalidCredentialsError(
                "token: it is not bound to a key (cnf), and this agent accepts only bound tokens"
            )
        return good_from, good_until, bound_to

    def _identity(self, claims: JSONObject, now: float) -> tuple[Identity, float]:
        """The identity in verified claims, and the moment from which the token is valid."""
        good_from, good_until, bound_to = self._check_claims(claims, now)
        identity = Identity(
            issuer=self._issuer,
            subject=claims["sub"],
            scopes=self._scopes.of_claims(claims),
            expires_at=good_until,
            claims=claims,
            bound_to=bound_to,
        )
        return identity, good_from

    def _check_audience(self, claims: JSONObject) -> None:
        name = "aud"
        if self._audience_from is not None and "aud" not in claims and any(mark.is_in(claims) for mark in self._marks):
            name = self._audience_from
        if not is_for(claims.get(name), self._audiences):
            ours = " or ".join(map(shown, sorted(self._audiences)))
            said = shown(claims.get(name))
            what = f"audience {said}" if name == "aud" else f"{name} {said}, in the place of aud,"
            raise InvalidCredentialsError(self._with_hint("aud", f"token: {what} does not include {ours}"))

    def _with_hint(self, claim: str, why: str) -> str:
        return f"{why}; {self._hints[claim]}" if claim in self._hints else why


class IdTokenVerifier(JwtVerifier):
    """Verifies ID tokens, for agents that really are sent ID tokens: ``audience`` is the client's ``client_id``.

    An ID token tells who logged in somewhere, not that its bearer may call this agent; where the issuer gives access
    tokens, use ``JwtVerifier``. Source: OpenID Connect Core 3.1.3.7.
    """

    kind = CredentialKind.ID_TOKEN

    def __init__(self, keys: KeySource, *, issuer: str, audience: str, skew: float = 30.0) -> None:
        if type(audience) is not str:  # azp is compared with it
            raise ConfigurationError("IdTokenVerifier: audience must be a string that is not empty: the client_id")
        super().__init__(keys, issuer=issuer, audience=audience, profile=TokenProfile.PLAIN_JWT, skew=skew)
        self._audience = audience

    def _check_kind(self, claims: JSONObject, profile: TokenProfile) -> None:  # noqa: ARG002  it is the plain one
        is_other = "events" in claims or claims.get("typ", "ID") != "ID" or claim_of_kind(claims, NOT_ID) is not None
        if is_other or not _OF_ACCESS_TOKENS.isdisjoint(claims):
            raise InvalidCredentialsError("token: it is a logout, refresh or access token, not an ID token")
        audience = claims.get("aud")
        is_for_several = type(audience) is list and len(audience) > 1
        if claims.get("azp", None if is_for_several else self._audience) != self._audience:
            raise InvalidCredentialsError("token: it was issued to another party (azp), or for several audiences")


@lru_cache(maxsize=128)
def _read_header(protected: str) -> _Header:
    """Rule 1: one issuer's tokens have few different headers; each is checked once."""
    header = read_header(protected)
    algorithm = algorithm_of(header["alg"])
    if algorithm is None:
        raise InvalidCredentialsError("token: its alg is not accepted")
    kid, typ = header.get("kid"), header.get("typ", "JWT")
    if "kid" in header and type(kid) is not str:
        raise InvalidCredentialsError("token: kid is not a string")
    if type(typ) is not str:
        raise InvalidCredentialsError("token: typ is not a string")
    return _Header(kid, algorithm.kty, typ.lower().removeprefix("application/"))


_BYTES_BESIDE_CLAIMS: Final = 600
_BYTES_OF_READ_ONLY: Final = 96  # what makes an object in the claims one that cannot be changed


def bytes_of(claims: JSONObject, scopes: frozenset[str]) -> int:
    """About how many bytes an entry of the memory takes; rather more than fewer."""
    size = _BYTES_BESIDE_CLAIMS
    found: list[object] = [claims, scopes, *scopes]  # which are strings of their own
    for value in found:  # which grows meanwhile
        size += sys.getsizeof(value)
        if type(value) is dict:
            size += _BYTES_OF_READ_ONLY
            found += value
            found += value.values()
        elif type(value) is list:
            found += value
    return size


def _signed(credential: str) -> bytes:
    """The digest of a token without its signature."""
    return hashlib.sha256(credential.rpartition(".")[0].encode()).digest()


def _read_claims(payload: bytes) -> tuple[JSONObject, bytes]:
    """The claims, with rounded numbers, and their text for ``_exact_claims``."""
    claims, text = strict_json.read_members(payload, what="claims")
    if type(claims) is not dict:
        claims = _exact_claims(payload, claims, text)  # which has the reason for its rejection
    return claims, text


def _exact_claims(payload: bytes, claims: JSON, text: bytes) -> JSONObject:
    """The claims, exact: where they hold fractions, huge integers or further objects, the reader looks twice."""
    if type(claims) is not dict or not _FLAT.issuperset(map(type, claims.values())):
        claims, _ = strict_json.read_numbers(payload, claims, text, what="claims")
        if type(claims) is not dict:
            raise InvalidCredentialsError("token: the claims are not a JSON object")
    return claims


def _profiles_of(profile: TokenProfile | Iterable[TokenProfile]) -> tuple[TokenProfile, ...]:
    several = (profile,) if isinstance(profile, str) else tuple(profile)
    if not several or not all(each in [*TokenProfile] for each in several):
        raise ConfigurationError(
            "JwtVerifier: profile is TokenProfile.RFC9068 or TokenProfile.PLAIN_JWT, or a list of both"
        )
    return tuple(map(TokenProfile, several))
