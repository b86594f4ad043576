"""JWT access tokens (RFC 9068), verified as RFC 8725 demands: issuer, audience, times and scopes.

The rules, in the order in which they are applied:

1. Three canonical base64url parts; a header without ``crit``; an asymmetric ``alg``.
2. ``iss`` is exactly our issuer. A token of another issuer is for another verifier; no key is fetched for it.
3. ``typ`` and the claims show an access token, not an ID, refresh or logout token. A JWT without its kind in ``typ``
   must show it by a claim: ``scope``, ``scp``, or a mark that the operator names.
4. ``aud`` has one of our audiences; ``sub`` is not empty.
5. ``exp`` is in the future; ``nbf`` and ``iat`` are not.
6. A token that is bound to a key or a certificate (``cnf``) proves nothing by itself: the guard demands the proof in
   every request, and ``verify``, which sees no requests, rejects it. Other members of ``cnf`` are rejected. A verifier
   may demand that tokens are bound (``TokenBinding.REQUIRED``).
7. The key is one of the issuer's, by ``kid`` and key type, and valid now; ``alg`` is its own, and so is the signature.

Rules 2 to 6 read an unverified token, and can only reject it: a token that could not be good anyway causes no fetch of
keys and no signature check. Nothing counts before rule 7.

The verified claims of a token are cached under the digest of the whole token, for five minutes at most. The loss of any
of the issuer's keys ends that, so a withdrawn key stays valid for five minutes at most.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from a2a_trust.auth.discovery import IssuerKeys, KeySource
from a2a_trust.auth.principal import CredentialKind, Identity, KeyBinding, TokenBinding
from a2a_trust.auth.token_claims import (
    NOT_ID,
    OF_OTHER_TOKENS,
    AccessTokenMark,
    ClaimsVerifier,
    ScopesFrom,
    bytes_of,
    check_other_kinds,
    claim_of_kind,
    moments_of,
    shorten,
)
from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import JSON, JSONObject
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    InvalidSignatureError,
    MalformedError,
    UnrecognizedCredentialsError,
)
from a2a_trust.keys import base64url
from a2a_trust.keys.algorithms import algorithm_of
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.jws import read_header, verify_signed

MAX_TOKEN: Final = 16_384
"""The longest token, in characters."""
MAX_SKEW: Final = 300.0
"""The most that clocks may differ, in seconds."""
_CACHED_SECONDS: Final = 300.0


class TokenProfile(StrEnum):
    """The ``typ`` that an issuer writes into its access tokens."""

    RFC9068 = "at+jwt"
    """``typ`` is at+jwt, which marks an access token."""

    PLAIN_JWT = "JWT"
    """``typ`` is JWT or absent, as in Keycloak and Entra ID. Claims must show that it is an access token: ``scope``,
    ``scp``, Entra's ``azpacr`` or ``appidacr``, or an ``AccessTokenMark``. Claims of other tokens are rejected."""


#: Claims that only access tokens have: RFC 8693 4.2, and how the client proved itself in Entra ID's versions 1 and 2.
#: Not ``roles``: ID tokens may have them too.
_OF_ACCESS_TOKENS: Final = frozenset({"scope", "scp", "azpacr", "appidacr"})
_OF_OTHERS_IF_UNMARKED: Final = OF_OTHER_TOKENS | {"nonce"}


class JwtVerifier(ClaimsVerifier):
    """Verifies JWT access tokens of one issuer; issuer and audience must match exactly.

    ::

        keys = OpenIdKeys("https://idp.example", Fetcher())
        JwtVerifier(keys, issuer="https://idp.example", audience="https://agent.example")
    """

    _name = "JwtVerifier"

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
        hints: Mapping[str, str] = MappingProxyType({}),
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
        tokens have to be bound to a key. ``remember`` bounds the cache, in tokens: write as many as are live at once.
        It takes about 1.6 kB for a typical token, and never more than 4 kB times ``remember``.
        """
        super().__init__(issuer, audience, scopes_from, marked_by, hints, binding, remember)
        if isinstance(keys, type) or not callable(getattr(keys, "only_key", None)):
            raise ConfigurationError(
                "JwtVerifier: keys is not a source of keys; write OpenIdKeys(issuer, fetcher), JwksFile(path) or "
                "JwksCache(fetcher.loader(url, configured=True))"
            )
        if isinstance(keys, IssuerKeys) and keys.issuer != issuer:
            raise ConfigurationError(
                f"JwtVerifier: issuer is {issuer!a}, and the keys belong to {keys.issuer!a}; make both the same"
            )
        if not 0 <= skew <= MAX_SKEW:
            raise ConfigurationError(f"JwtVerifier: skew={skew!r:.40} must be 0 to {MAX_SKEW:.0f} seconds")
        self._keys, self._skew, self._audience_from = keys, skew, audience_from
        self.parts: Final[tuple[object, ...]] = (keys,)
        profiles = (profile,) if isinstance(profile, str) else tuple(profile)
        if not profiles or not all(each in [*TokenProfile] for each in profiles):
            raise ConfigurationError(
                "JwtVerifier: profile is TokenProfile.RFC9068 or TokenProfile.PLAIN_JWT, or a list of both"
            )
        self._profiles = {each.lower(): TokenProfile(each) for each in profiles}
        if audience_from is not None and (not audience_from or not self._marks):
            raise ConfigurationError(
                "audience_from: it needs a claim that marks access tokens, because they have no aud; write "
                'marked_by=AccessTokenMark("token_use", "access")'
            )

    @property
    def metadata_urls(self) -> tuple[str, ...]:
        """The URL of the issuer's metadata, which the guard compares with the card; empty if keys come another way."""
        return (self._keys.metadata_url,) if isinstance(self._keys, IssuerKeys) else ()

    async def verify_bound(self, credential: str, now: float) -> Identity:
        if len(credential) > MAX_TOKEN or not credential.isascii():
            raise InvalidCredentialsError("token: too long, or not ASCII")
        digest = sha256(credential.encode()).digest()
        generation = self._keys.generation  # before the key: if a key is lost meanwhile, the result is not used again
        known = self._valid.entry(digest)
        if known is not None:
            identity, since, until, _, _, made_in = known
            if since <= now < until and made_in == generation:
                return identity
        try:
            token = read_token(credential)  # 1
            claims, text = strict_json.read_members(token.payload, what="claims")  # with rounded numbers
            if type(claims) is not dict:
                claims = _exact_claims(token.payload, claims, text or b"")
            self._check_origin(token, claims)  # 2 and 3
            good_from, good_until, bound_to = self._check_claims(claims, now)  # 4 to 6
            key = await token.key_in(self._keys)  # 7
            token.verify_with(key, now)
            # Only now: exact numbers and claims that cannot be changed cost many times what their JSON weighs.
            if text is not None:
                claims = _exact_claims(token.payload, claims, text)
                good_from, good_until, bound_to = self._check_claims(claims, now)
            identity = self._identity_of(claims, self._issuer, claims["sub"], good_until, bound_to)
        except MalformedError as error:
            raise InvalidCredentialsError(f"token: {error}") from None
        self._valid.put(
            digest,
            identity,
            # Five minutes of the clock in both directions: a result from while it ran ahead is not used later.
            since=max(good_from, key.not_before, now - _CACHED_SECONDS),
            until=min(good_until, key.not_after, now + _CACHED_SECONDS),
            size=bytes_of(claims, identity.scopes, token.payload if text is None else None),
            notes=(hash(token.signed), generation),
        )
        return identity

    def remembered(self, credential: str, now: float) -> Identity | None:
        """The result of ``verify_bound``, if the cache has it; else None."""
        if len(credential) > MAX_TOKEN or not credential.isascii():
            return None
        known = self._valid.entry(sha256(credential.encode()).digest())
        if known is None:
            return None
        identity, since, until, _, _, generation = known
        return identity if since <= now < until and generation == self._keys.generation else None

    def _check_origin(self, token: SignedToken, claims: JSONObject) -> None:
        """Rules 2 and 3."""
        if "iss" not in claims:
            raise UnrecognizedCredentialsError(
                self._with_hint("iss", f"token: iss is not the issuer {shorten(self._issuer)}; it is missing")
            )
        self._check_issuer(claims)
        profile = self._profiles.get(token.typ)
        if profile is None:
            why = f"token: typ is not {' or '.join(self._profiles.values())}, but {shorten(token.typ)}"
            if token.typ == TokenProfile.PLAIN_JWT.lower():
                why += "; for an issuer that writes this into access tokens pass profile=TokenProfile.PLAIN_JWT"
            raise InvalidCredentialsError(why)
        self._check_kind(claims, profile)

    def _check_kind(self, claims: JSONObject, profile: TokenProfile) -> None:
        """The rest of rule 3: what the claims say about the kind of token."""
        is_marked = self._is_marked(claims)
        # Some issuers copy the nonce of ID tokens into access tokens, as Keycloak did before version 25.
        check_other_kinds(claims, OF_OTHER_TOKENS if is_marked else _OF_OTHERS_IF_UNMARKED)
        if profile is TokenProfile.PLAIN_JWT:
            said = claims.get("typ", "Bearer")  # Keycloak's own claim for the kind of token
            if said != "Bearer" and not (said == "DPoP" and "cnf" in claims):
                raise InvalidCredentialsError(f"token: its claim typ is {shorten(said)}, so it is not an access token")
            if not is_marked and _OF_ACCESS_TOKENS.isdisjoint(claims):
                why = "token: no claim shows that it is an access token, such as scope or scp"
                if not self._marks:
                    why += (
                        "; name a claim that only access tokens of this issuer have: marked_by=AccessTokenMark('claim')"
                    )
                raise self._error("scope", why)

    def _check_claims(self, claims: JSONObject, now: float) -> tuple[float, float, KeyBinding | None]:
        """Rules 4 to 6. From when until when the token is valid, and the keys that it is bound to."""
        name = "aud"
        if self._audience_from is not None and "aud" not in claims and self._is_marked(claims):
            name = self._audience_from
        self._check_audience(claims, name)
        subject = claims.get("sub")
        if type(subject) is not str or not subject:
            raise self._error("sub", "token: sub is missing, empty or not a string")
        good_from, good_until = moments_of(claims, now, self._skew)
        if good_until is None:
            raise InvalidCredentialsError("token: it has no exp")
        return good_from, good_until, self._bound_to(claims)


class IdTokenVerifier(JwtVerifier):
    """Verifies ID tokens, for agents that really are sent ID tokens: ``audience`` is the client's ``client_id``.

    An ID token names a user who logged in somewhere. It does not allow its bearer to call this agent; if the issuer
    gives access tokens, use ``JwtVerifier``. Source: OpenID Connect Core 3.1.3.7.
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


class SignedToken(NamedTuple):
    """A JWT whose header is checked, and whose signature is not. ``signed`` is its text without the signature."""

    signed: str
    payload: bytes
    signature: str
    header: Mapping[str, Any]
    kid: str | None
    kty: str
    typ: str

    def key_in(self, keys: KeySource) -> Awaitable[PublicKey]:
        """The key that the header names. InvalidCredentialsError, KeySourceUnavailableError."""
        return keys.only_key(self.kty) if self.kid is None else keys.key(self.kid, self.kty)

    def verify_with(self, key: PublicKey, now: float) -> None:
        """InvalidCredentialsError unless the key is valid now, and the signature is its own."""
        if not key.is_valid_at(now):
            raise InvalidCredentialsError("token: its key is revoked, expired or not valid yet (A2A 8.4.3)")
        try:
            verify_signed(self.header, self.signature, self.signed.encode("ascii"), key)
        except InvalidSignatureError:
            raise InvalidCredentialsError("token: the signature is not the issuer's") from None


def read_token(text: str) -> SignedToken:
    """Rule 1. UnrecognizedCredentialsError: it is not a JWT. InvalidCredentialsError, MalformedError."""
    signed, _, signature = text.rpartition(".")
    protected, dot, encoded = signed.partition(".")
    if not dot or "." in encoded:
        raise UnrecognizedCredentialsError("token: not a JWT; for opaque tokens use IntrospectionVerifier")
    header = _read_header(protected)
    return SignedToken(signed, base64url.decode(encoded, "payload"), signature, *header)


@lru_cache(maxsize=128)
def _read_header(protected: str) -> tuple[Mapping[str, Any], str | None, str, str]:
    """The header, ``kid``, the key type of ``alg``, and ``typ`` in lower case and without ``application/``.

    One issuer's tokens have few different headers; each is checked once.
    """
    header = read_header(protected)
    algorithm = algorithm_of(header["alg"])
    if algorithm is None:
        raise InvalidCredentialsError("token: its alg is not accepted")
    kid, typ = header.get("kid"), header.get("typ", "JWT")
    if "kid" in header and type(kid) is not str:
        raise InvalidCredentialsError("token: kid is not a string")
    if type(typ) is not str:
        raise InvalidCredentialsError("token: typ is not a string")
    return header, kid, algorithm.kty, typ.lower().removeprefix("application/")


def _exact_claims(payload: bytes, claims: JSON, text: bytes) -> JSONObject:
    """The claims, exact: where they hold fractions, huge integers or further objects, the reader looks twice."""
    exact, _ = strict_json.read_numbers(payload, claims, text, what="claims")
    if type(exact) is not dict:
        raise InvalidCredentialsError("token: the claims are not a JSON object")
    return exact
