"""Reads the claims of a token: audience, scopes, binding, times and kind; the rules that JWTs and opaque tokens share,
and several issuers for one scheme.

Issuers write the same facts in different claims. The operator or a preset of ``providers`` names each difference;
nothing is guessed. Only the client is read from any of four claims, and decides nothing here. The claims may be
unverified here, so they can only cause a rejection.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final, TypeAlias

from a2a_trust.auth.principal import (
    Actor,
    BoundVerifier,
    CredentialKind,
    Identity,
    KeyBinding,
    TokenBinding,
    TokenVerifier,
    read_only,
    verification_of,
)
from a2a_trust.base.cache import BoundedCache
from a2a_trust.base.net.metadata import check_issuer
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.errors import (
    ConfigurationError,
    InvalidActorsError,
    InvalidCredentialsError,
    UnrecognizedCredentialsError,
)
from a2a_trust.keys import base64url

_ScopesFunction: TypeAlias = Callable[[Mapping[str, Any]], Iterable[str]]
ScopesFrom: TypeAlias = str | Iterable[str] | _ScopesFunction
"""The place of a token's scopes: the name of a claim, several names, or a function of the verified claims.

Dots in a name separate nested claims (``realm_access.roles``). A name with a colon or a slash is one claim
(``https://example.com/roles``). A claim has scopes as a string of words, or as a list of strings. A claim other than
``scope`` and ``scp`` may also be an object: the names of its members are scopes, except members that are false, null, 0
or empty.
"""


@dataclass(frozen=True, slots=True, init=False)
class AccessTokenMark:
    """A claim that only access tokens of an issuer have, and no other token of it.

    ::

        AccessTokenMark("token_use", "access")        # the claim has one of these values
        AccessTokenMark("sub", prefix="spiffe://")    # the claim begins so
        AccessTokenMark("kubernetes.io")              # the claim is there

    A token with another value of the claim is not an access token. With ``in_all``, a token without the claim is not
    one either. ``claim`` is the exact name of a claim at the top level.
    """

    claim: str
    values: tuple[str, ...]
    prefix: str
    in_all: bool

    def __init__(self, claim: str, *values: str, prefix: str = "", in_all: bool = False) -> None:
        texts = (claim, prefix, *values)
        if not all(type(text) is str for text in texts) or not claim or "" in values or (values and prefix):
            raise ConfigurationError(
                "AccessTokenMark: write the name of a claim, and its values or a prefix as strings, as in "
                'AccessTokenMark("use", "access")'
            )
        for name, value in (("claim", claim), ("values", values), ("prefix", prefix), ("in_all", in_all is True)):
            object.__setattr__(self, name, value)

    def is_in(self, claims: Mapping[str, Any]) -> bool:
        value = claims.get(self.claim)
        if self.values:
            return type(value) is str and value in self.values
        if self.prefix:
            return type(value) is str and value.startswith(self.prefix) and value != self.prefix
        return bool(value)

    def is_contradicted_by(self, claims: Mapping[str, Any]) -> bool:
        """Whether the claims say that this is another kind of token."""
        return (self.in_all or self.claim in claims) and not self.is_in(claims)


def marks_of(marked_by: AccessTokenMark | Iterable[AccessTokenMark]) -> tuple[AccessTokenMark, ...]:
    marks = (marked_by,) if isinstance(marked_by, AccessTokenMark) else tuple(_list_values(marked_by))
    if (not marks and marked_by != ()) or not all(isinstance(mark, AccessTokenMark) for mark in marks):
        raise ConfigurationError('marked_by: write AccessTokenMark("claim", "value"), or a list of them')
    return marks


#: The names of the claim with the kind of a token: RFC 6749 7.1, Cognito and Ory Hydra, Casdoor, PingAM, Oracle,
#: Curity, and Keycloak.
_KIND_CLAIMS: Final = ("token_type", "token_use", "tokenType", "tokenName", "tok_type", "purpose", "typ")
_KIND_NAMES: Final = frozenset(_KIND_CLAIMS)
#: Claims of ID tokens (OpenID Connect Core 2 and 3.3.2.11) and of logout tokens (Back-Channel Logout 2.4).
OF_OTHER_TOKENS: Final = frozenset({"at_hash", "c_hash", "s_hash", "events"})
#: The values of the claim, without hyphens and underscores.
_OF_NEITHER: Final = frozenset({"refresh", "refreshtoken", "rt", "offline", "offlinetoken", "logout", "logouttoken"})
_NOT_ACCESS: Final = _OF_NEITHER | {"id", "idtoken", "it"}
NOT_ID: Final = _OF_NEITHER | {"access", "accesstoken", "at"}


def claim_of_kind(claims: Mapping[str, Any], kinds: frozenset[str]) -> str | None:
    """The claim that calls the token one of these ``kinds``; None where none does.

    Issuers write whatever they like there, so other values say nothing.
    """
    if _KIND_NAMES.isdisjoint(claims):
        return None
    for name in _KIND_CLAIMS:
        value = claims.get(name)
        if type(value) is str and value.lower().replace("_", "").replace("-", "") in kinds:
            return name
    return None


def check_other_kinds(claims: Mapping[str, Any], names: frozenset[str] = OF_OTHER_TOKENS) -> None:
    """Reject ID, refresh and logout tokens. ``names`` are claims that only such tokens have."""
    if not names.isdisjoint(claims):
        found = sorted(names.intersection(claims))
        raise InvalidCredentialsError(f"token: it has claims of an ID token or a logout token ({', '.join(found)})")
    kind = claim_of_kind(claims, _NOT_ACCESS)
    if kind is not None:
        raise InvalidCredentialsError(
            f"token: its claim {kind} is {shorten(claims[kind])}, so it is not an access token"
        )


def audiences_of(audience: str | Iterable[str], what: str) -> frozenset[str]:
    """The audiences of an option, one at least; ConfigurationError. ``what`` names the verifier in errors."""
    found = [audience] if isinstance(audience, str) else _list_values(audience)
    if not found or not all(type(each) is str and each for each in found):
        raise ConfigurationError(f"{what}: audience must be a string that is not empty, or a list of such strings")
    return frozenset(found)


def _list_values(given: Any) -> list[Any]:
    """The values of an option; empty if it is not a list, so that its caller rejects it."""
    return [*given] if isinstance(given, Iterable) else []


def is_for(aud: object, audiences: frozenset[str]) -> bool:
    """Whether the claim ``aud``, a string or a list of strings, has one of the audiences (RFC 7519 4.1.3)."""
    if type(aud) is str:
        return aud in audiences
    return type(aud) is list and {*map(type, aud)} == {str} and not audiences.isdisjoint(aud)


_CONFIRMATIONS: Final = {"jkt": "jkt", "x5t#S256": "x5t_s256"}
_DIGEST_OCTETS: Final = 32


def binding_of(cnf: object) -> KeyBinding:
    """The keys that the token is bound to (RFC 7800 3.1); InvalidCredentialsError if it is not understood."""
    if type(cnf) is not dict or not cnf or not cnf.keys() <= _CONFIRMATIONS.keys():
        raise InvalidCredentialsError("token: it is bound to a key (cnf) in a way that is not supported")
    for name, thumbprint in cnf.items():
        what = f"it is bound to a key (cnf): {name}"
        if type(thumbprint) is not str or len(base64url.decode(thumbprint, what)) != _DIGEST_OCTETS:
            raise InvalidCredentialsError(f"token: {what} is not a SHA-256 thumbprint")
    return KeyBinding(**{_CONFIRMATIONS[name]: thumbprint for name, thumbprint in cnf.items()})


#: The claims with the client of a token: RFC 9068 2.2 and RFC 7662 2.2; OpenID Connect Core 2, as in Keycloak, Auth0,
#: authentik and Entra ID; Okta; Entra ID's version 1.
_CLIENTS: Final = ("client_id", "azp", "cid", "appid")


def client_of(claims: Mapping[str, Any]) -> str | None:
    """The client that the token was issued to; None if no claim names it."""
    for name in _CLIENTS:
        client = claims.get(name)
        if type(client) is str and client:
            return client
    return None


MOST_ACTORS: Final = 8


def actors_of(claims: Mapping[str, Any], issuer: str) -> tuple[Actor, ...]:
    """The actors in the claim ``act``, the current one first (RFC 8693 4.1); InvalidActorsError: it is malformed.

    ``issuer`` is for actors without ``iss``.
    """
    actors: list[Actor] = []
    while "act" in claims:
        claims = claims["act"]
        if len(actors) == MOST_ACTORS:
            raise InvalidActorsError(f"token: act names more than {MOST_ACTORS} actors")
        named, subject = (claims.get("iss", issuer), claims.get("sub")) if type(claims) is dict else (None, None)
        if type(named) is not str or type(subject) is not str or not (named and subject):
            raise InvalidActorsError("token: act is not an object with sub, and perhaps iss, as strings")
        actors.append(Actor(issuer=named, subject=subject))
    return tuple(actors)


_OF_MOMENTS: Final = frozenset({int, float, type(None)})


def moments_of(claims: Mapping[str, Any], now: float, skew: float) -> tuple[float, float | None]:
    """From when and until when (None: always) a token is valid; InvalidCredentialsError: it is not valid ``now``."""
    exp, nbf, iat = claims.get("exp"), claims.get("nbf"), claims.get("iat")
    if not _OF_MOMENTS.issuperset((type(exp), type(nbf), type(iat))):
        wrong = next(name for name in ("exp", "nbf", "iat") if type(claims.get(name)) not in _OF_MOMENTS)
        raise InvalidCredentialsError(f"token: {wrong} is not a number")
    if exp is not None and exp <= now:
        raise InvalidCredentialsError("token: it has expired")
    good_from = max(nbf or 0, iat or 0) - skew
    if now < good_from:
        raise InvalidCredentialsError("token: it is not valid yet (nbf or iat)")
    return good_from, None if exp is None else float(exp)


def shorten(value: object) -> str:
    """A claim for the audit trail, escaped and cut, because a caller may have chosen it."""
    return json.dumps(value, default=repr)[:200]


class ScopeClaims:
    """Reads the scopes of tokens from the place ``scopes_from``; ConfigurationError: it is not a place."""

    def __init__(self, scopes_from: ScopesFrom) -> None:
        self._function: _ScopesFunction | None = None
        self._paths: tuple[tuple[str, tuple[str, ...]], ...] = ()
        if callable(scopes_from):
            self._function = scopes_from
            return
        given = [scopes_from] if isinstance(scopes_from, str) else _list_values(scopes_from)
        if not given or not all(type(name) is str and name and "" not in _path_of(name) for name in given):
            raise ConfigurationError(
                "scopes_from: write the name of a claim, as in 'scope' or 'realm_access.roles', a list of names, or a "
                "function of the claims that returns the scopes"
            )
        self._paths = tuple((name, _path_of(name)) for name in given)

    def of_claims(self, claims: Mapping[str, Any]) -> frozenset[str]:
        """The scopes in verified claims. InvalidCredentialsError: they are in another place, or the function fails."""
        if self._function is not None:
            return self._by_function(self._function, read_only(claims))
        words: list[str] = []
        for name, path in self._paths:
            value: Any = claims
            for step in path:
                if type(value) is not dict and not isinstance(value, Mapping):
                    raise InvalidCredentialsError(f"token: the claim {shorten(name)} is not where scopes_from says")
                if step not in value:
                    break
                value = value[step]
            else:
                words += _words(value, name)
        return frozenset(filter(None, words))

    @staticmethod
    def _by_function(function: _ScopesFunction, claims: Mapping[str, Any]) -> frozenset[str]:
        try:
            found = function(claims)
            scopes = None if isinstance(found, str | Mapping) else frozenset(found)
        except Exception as error:  # noqa: BLE001  the function is anybody's
            raise InvalidCredentialsError(f"token: scopes_from raised {type(error).__name__}") from None
        if scopes is None or not all(type(scope) is str for scope in scopes):
            raise InvalidCredentialsError("token: scopes_from did not return a list of strings")
        return scopes - {""}


def _path_of(name: str) -> tuple[str, ...]:
    return (name,) if ":" in name or "/" in name else tuple(name.split("."))


#: RFC 8693 4.2, and what some issuers write as a list.
_STANDARD: Final = ("scope", "scp")


def _words(value: object, name: str) -> list[str]:
    if type(value) is str:
        return value.split(" ")
    words: list[Any] | None = None
    if isinstance(value, list | tuple):
        words = [*value]
    elif isinstance(value, Mapping) and name not in _STANDARD:
        words = [word for word, what in value.items() if what]  # {"admin": false} grants nothing
    if words is None or not all(type(word) is str for word in words):
        raise InvalidCredentialsError(f"token: {name} is neither a string nor a list of strings")
    return words


_DEEPEST: Final = 3
_MOST: Final = 256


def candidates(claims: Mapping[str, Any], scopes: Iterable[str]) -> tuple[str, ...]:
    """The names for ``scopes_from`` of claims that hold some of the scopes, for the log of a 403.

    It looks at the first 256 claims, three levels deep.
    """
    wanted = frozenset(scopes)
    found = []
    for name, value in islice(_list_claims(claims, ()), _MOST):
        try:
            words = _words(value, name)
        except InvalidCredentialsError:
            continue
        if not wanted.isdisjoint(words):
            found.append(name)
    return tuple(found)


def _list_claims(claims: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """The claims with a name for ``scopes_from``, by that name."""
    for name, value in claims.items():
        path = (*above, name)
        full = ".".join(path)
        if _path_of(full) == path:
            yield full, value
            if isinstance(value, Mapping) and len(path) < _DEEPEST:
                yield from _list_claims(value, path)


_CACHE_BYTES: Final = 4_096
"""The most bytes of the cache for each token; a token of 450 characters takes 1,550."""
_BYTES_BESIDE_CLAIMS: Final = 600
_BYTES_OF_READ_ONLY: Final = 96  # the wrapper of an object in the claims
_BYTES_BESIDE_TEXT: Final = sys.getsizeof("")  # of a string; a number takes less


def bytes_of(claims: JSONObject, scopes: frozenset[str], flat: bytes | None = None) -> int:
    """About how many bytes an entry of the cache takes; rather more than fewer.

    ``flat`` is the JSON of claims that hold no others. Looking at its length took a fifth of the time of looking at
    each value, which was 7 % of a new token by RS256.
    """
    size = _BYTES_BESIDE_CLAIMS
    if flat is not None and flat.isascii() and ord("\\") not in flat:  # each letter takes a byte
        size += _BYTES_OF_READ_ONLY + sys.getsizeof(claims) + sys.getsizeof(scopes) + len(flat)
        return size + _BYTES_BESIDE_TEXT * (2 * len(claims) + len(scopes)) + 4 * sum(map(len, scopes))
    found: list[object] = [claims, scopes, *scopes]
    for value in found:  # which grows meanwhile
        size += sys.getsizeof(value)
        if type(value) is dict:
            size += _BYTES_OF_READ_ONLY
            found += value
            found += value.values()
        elif type(value) is list:
            found += value
    return size


def signed_part(credential: str) -> int:
    """A hash of a JWT without its signature, which can have other spellings; of another token, of all of it.

    64 bits are enough: of two tokens with one hash, both are forgotten.
    """
    return hash(credential.rpartition(".")[0] or credential)


class ClaimsVerifier(BoundVerifier[str]):
    """The rules for claims that JWTs and opaque tokens share."""

    kind = CredentialKind.ACCESS_TOKEN
    _name: ClassVar[str]

    def __init__(
        self,
        issuer: str,
        audience: str | Iterable[str],
        scopes_from: ScopesFrom,
        marked_by: AccessTokenMark | Iterable[AccessTokenMark],
        hints: Mapping[str, str],
        binding: TokenBinding,
        remember: int,
    ) -> None:
        if type(issuer) is not str or not issuer:
            raise ConfigurationError(
                f"{self._name}: issuer must be a string that is not empty; for several issuers write "
                f"SeveralIssuers([{self._name}(…), …])"
            )
        check_issuer(issuer)
        if type(remember) is not int or remember < 0:
            raise ConfigurationError(f"{self._name}: remember={remember!r:.40} must be a number of tokens, 0 or more")
        self._issuer = issuer
        self._scopes, self._marks, self._hints = ScopeClaims(scopes_from), marks_of(marked_by), dict(hints)
        self.issuers: Final = (issuer,)
        self.audiences: Final = audiences_of(audience, self._name)
        self.binding: Final = TokenBinding(binding)
        #: By the digest of the token. The first note is its ``signed_part``; of a JWT, the second is the generation of
        #: the keys.
        self._valid: BoundedCache[bytes, Identity] = BoundedCache(
            max_entries=remember, max_bytes=remember * _CACHE_BYTES
        )

    def forget(self, credential: str) -> None:
        """Remove a token from the cache, for example after its revocation, and every token with the same signed part:
        from an ECDSA signature (r, s) anybody can make a second one, (r, n - s)."""
        signed = signed_part(credential)
        self._valid.remove_where(lambda entry: entry[4] == signed)

    def _check_issuer(self, claims: Mapping[str, Any]) -> None:
        if claims.get("iss", self._issuer) != self._issuer:  # no JSON value but a string equals a string
            raise UnrecognizedCredentialsError(
                f"token: iss is not the issuer {shorten(self._issuer)}, but {shorten(claims['iss'])}"
            )

    def _is_marked(self, claims: Mapping[str, Any]) -> bool:
        """Whether a mark shows an access token; InvalidCredentialsError: a mark shows another token."""
        is_marked = False
        for mark in self._marks:
            if mark.is_contradicted_by(claims):
                said = shorten(claims[mark.claim]) if mark.claim in claims else "missing"
                raise self._error(mark.claim, f"token: {mark.claim} is {said}, so it is not an access token")
            is_marked = is_marked or mark.is_in(claims)
        return is_marked

    def _check_audience(self, claims: Mapping[str, Any], name: str = "aud") -> None:
        """``name`` is the claim that has the audience."""
        if not is_for(claims.get(name), self.audiences):
            ours, said = " or ".join(map(shorten, sorted(self.audiences))), shorten(claims.get(name))
            what = f"audience {said}" if name == "aud" else f"{name} {said}, in the place of aud,"
            raise self._error("aud", f"token: {what} does not include {ours}")

    def _bound_to(self, claims: Mapping[str, Any]) -> KeyBinding | None:
        """The keys that the token is bound to. InvalidCredentialsError: it must be bound, and is not."""
        bound_to = binding_of(claims["cnf"]) if "cnf" in claims else None
        if bound_to is None and self.binding is TokenBinding.REQUIRED:
            raise InvalidCredentialsError(
                "token: it is not bound to a key (cnf), and this agent accepts only bound tokens"
            )
        return bound_to

    def _identity_of(
        self, claims: dict[str, Any], issuer: str, subject: str, expires_at: float, bound_to: KeyBinding | None
    ) -> Identity:
        """The identity in verified claims. InvalidCredentialsError: the scopes are in another place, or ``act`` is
        malformed."""
        return Identity(
            issuer=issuer,
            subject=subject,
            expires_at=expires_at,
            claims=claims,
            bound_to=bound_to,
            client_id=client_of(claims),
            actors=actors_of(claims, self._issuer),
            scopes=self._scopes.of_claims(claims),
        )

    def _error(self, claim: str, why: str) -> InvalidCredentialsError:
        return InvalidCredentialsError(self._with_hint(claim, why))

    def _with_hint(self, claim: str, why: str) -> str:
        return f"{why}; {self._hints[claim]}" if claim in self._hints else why


class SeveralIssuers(BoundVerifier[str]):
    """Verifies the access tokens of several issuers for one security scheme, each by its own verifier.

    ::

        SeveralIssuers([JwtVerifier(OpenIdKeys(issuer, fetcher), issuer=issuer, audience=AGENT) for issuer in ISSUERS])

    The verifiers get the token in their order, and the first one that recognizes its issuer decides. So an outage of
    one issuer does not affect the tokens of another. Opaque tokens do not name their issuer: only one verifier may
    introspect, because its server would get the tokens of the others.
    """

    kind = CredentialKind.ACCESS_TOKEN

    def __init__(self, verifiers: Iterable[TokenVerifier]) -> None:
        """ConfigurationError: two verifiers are for JWTs of one issuer, two introspect, or one is for other tokens."""
        given: Any = verifiers
        self._verifiers: tuple[TokenVerifier, ...] = tuple(given) if isinstance(given, Iterable) else ()
        for each in self._verifiers:
            if getattr(each, "kind", None) is not CredentialKind.ACCESS_TOKEN or not hasattr(each, "issuers"):
                raise ConfigurationError(
                    f"SeveralIssuers: {type(each).__name__} is not a verifier of access tokens; write "
                    "JwtVerifier(…) or IntrospectionVerifier(…)"
                )
        if len(self._verifiers) < 2:
            raise ConfigurationError("SeveralIssuers: write a list of two verifiers or more")
        asking = [each for each in self._verifiers if asks_issuer(each)]
        if len(asking) > 1:
            raise ConfigurationError(
                "SeveralIssuers: two verifiers introspect, and each server would be sent the other's tokens; keep one"
            )
        known = [issuer for each in self._verifiers if not asks_issuer(each) for issuer in each.issuers]
        for issuer in known:
            if known.count(issuer) > 1:
                raise ConfigurationError(
                    f"SeveralIssuers: two verifiers are for the issuer {issuer!a}; write one, with a list of audiences "
                    "or profiles"
                )
        self.parts: Final[tuple[object, ...]] = self._verifiers
        self._verify = tuple(verification_of(each) for each in self._verifiers)

    @property
    def issuers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(issuer for each in self._verifiers for issuer in each.issuers))

    @property
    def audiences(self) -> frozenset[str]:
        return frozenset[str]().union(*(getattr(each, "audiences", ()) for each in self._verifiers))

    @property
    def binding(self) -> TokenBinding:
        """REQUIRED if all of them require it."""
        is_required = all(each.binding is TokenBinding.REQUIRED for each in self._verifiers)
        return TokenBinding.REQUIRED if is_required else TokenBinding.OPTIONAL

    @property
    def metadata_urls(self) -> tuple[str, ...]:
        """The URLs of the issuers' metadata; the card names one of them."""
        return tuple(dict.fromkeys(url for each in self._verifiers for url in each.metadata_urls))

    @property
    def asks_issuer(self) -> bool:
        """Whether one of them sends tokens to its issuer."""
        return any(map(asks_issuer, self._verifiers))

    async def verify_bound(self, credential: str, now: float) -> Identity:
        """The identity by the first verifier that recognizes the token. As ``Verifier.verify``."""
        reasons = []
        for verify in self._verify:
            try:
                return await verify(credential, now)
            except UnrecognizedCredentialsError as error:
                reasons.append(str(error))
        raise UnrecognizedCredentialsError("; ".join(dict.fromkeys(reasons)))


def asks_issuer(verifier: Any) -> bool:
    """Whether a verifier sends tokens that do not name their issuer to its own."""
    return getattr(verifier, "asks_issuer", False) is True
