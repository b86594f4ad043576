"""Checks a card and its verifiers at start.

A hole is a ConfigurationError that says what to write: a scheme without a verifier, a verifier for another kind of
credential, or a card that admits everybody without ``allow_anonymous``.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from a2a_trust.auth.basic.user_pass import user_of
from a2a_trust.auth.credentials import ClientCertificate, Extractor, HttpAuthorization, extractor_for
from a2a_trust.auth.principal import CredentialKind, Identity, Verifier, cache_of, verification_of
from a2a_trust.auth.token_claims import asks_issuer
from a2a_trust.base.net.metadata import SCOPE
from a2a_trust.card.places import WORDS_FOR_TOKENS
from a2a_trust.card.schema import SCHEME_TYPES
from a2a_trust.card.view import (
    Alternative,
    ApiKeyScheme,
    CardView,
    HttpScheme,
    NamedScheme,
    OAuth2Scheme,
    OpenIdConnectScheme,
    SecurityScheme,
)
from a2a_trust.errors import ConfigurationError

if TYPE_CHECKING:
    from a2a_trust.auth.dpop import DPoP

_BY_DPOP: Final = HttpAuthorization("dpop")
_BASIC: Final = HttpAuthorization("basic")


@dataclass(frozen=True, slots=True)
class CredentialAt:
    """A verifier and the place of its credential, for schemes of 0.1 cards, which do not name a place."""

    place: Extractor
    verifier: Verifier[Any]


class ConfiguredScheme:
    """A scheme that requirements of the card use: the place of its credential, and its verifier.

    - ``places``: every place of its credential, and whether the credential comes there as ``Authorization: DPoP``.
    - ``takes_dpop``: its tokens may also come there, with a proof.
    - ``header``: the header of the credential; b"" if it is not in a header.
    - ``is_for_access_tokens``: the verifier is of the kind ACCESS_TOKEN; not so for ID tokens.
    - ``name_of``: ``credential_name`` of the verifier, if failures are counted.
    - ``is_remembered``: the verifier's method, if credentials can be guessed.
    """

    def __init__(self, name: str, place: Extractor, verifier: Verifier[Any], *, takes_dpop: bool) -> None:
        self.name: str = name
        self.place: Extractor = place
        self.verifier: Verifier[Any] = verifier
        self.takes_dpop: bool = takes_dpop
        self.places: tuple[tuple[Extractor, bool], ...] = ((place, False), *(((_BY_DPOP, True),) if takes_dpop else ()))
        self.header: bytes = place.header or b""
        self.is_for_access_tokens: bool = getattr(verifier, "kind", None) is CredentialKind.ACCESS_TOKEN
        self.verify: Callable[[Any, float], Awaitable[Identity]] = verification_of(verifier)
        self.remembered: Callable[[Any, float], Identity | None] | None = cache_of(verifier)
        self.name_of: Callable[[Any], str] | None = getattr(verifier, "credential_name", None)
        self.is_remembered: Callable[[Any, float], bool] | None = getattr(verifier, "is_remembered", None)
        if place == _BASIC:  # a password can be guessed, also with a user's verifier
            self.name_of, self.is_remembered = self.name_of or user_of, self.is_remembered or (lambda *_: False)
        if self.is_remembered is not None:
            self.name_of = self.name_of or (lambda _: "")


class GuardConfig(NamedTuple):
    """A card and its verifiers, checked and ready for decisions.

    ``schemes`` are those that requirements of the card or of a skill use, in the order of their names. ``alternatives``
    are the requirements without ``{}``, which is ``admits_anonymous``. ``skills`` has the requirements of each skill by
    its id; empty if it has none. ``unused`` are the places that only declared schemes have which no requirement uses:
    such a credential admits nobody, but its request is not anonymous.
    """

    card: CardView
    schemes: tuple[ConfiguredScheme, ...]
    alternatives: tuple[Alternative, ...]
    skills: Mapping[str, tuple[Alternative, ...]]
    admits_anonymous: bool
    unused: tuple[Extractor, ...]


def configure(
    card: CardView,
    verifiers: Mapping[str, Verifier[Any] | CredentialAt],
    *,
    allow_anonymous: bool,
    skills_are_checked: bool,
    dpop: DPoP | None,
) -> GuardConfig:
    """The configuration of a guard; ConfigurationError: a rule of the card would not be enforced."""
    _check_names(card, verifiers)
    requirements = card.requirements or (Alternative(()),)
    skills = {skill.id: skill.requirements or () for skill in card.skills}
    of_skills = [alternative for alternatives in skills.values() for alternative in alternatives]
    _check_scopes((*requirements, *of_skills))
    _check_anonymous(card, requirements, verifiers, allowed=allow_anonymous)
    _check_skills(card, are_checked=skills_are_checked)
    used = sorted({name for alternative in (*requirements, *of_skills) for name, _ in alternative.schemes})
    schemes = tuple(_configure_scheme(name, card, verifiers, dpop is not None) for name in used)
    _check_introspecting(schemes)
    _check_stores(schemes)
    if dpop is not None:
        _check_dpop(dpop, schemes)
    alternatives = tuple(alternative for alternative in requirements if not alternative.is_anonymous)
    _check_one_authorization((*alternatives, *of_skills), schemes)
    unused: list[Extractor] = []
    for scheme in [scheme for name, scheme in card.schemes.items() if name not in used]:
        with suppress(ConfigurationError):  # no requirement uses it, so it need not be enforceable
            unused.append(extractor_for(scheme))
    places = {each.place for each in schemes}
    return GuardConfig(
        card=card,
        schemes=schemes,
        alternatives=alternatives,
        skills=skills,
        admits_anonymous=len(alternatives) < len(requirements),
        unused=tuple(place for place in unused if place not in places),
    )


def _check_names(card: CardView, verifiers: Mapping[str, Verifier[Any] | CredentialAt]) -> None:
    if not isinstance(verifiers, Mapping):
        raise ConfigurationError(
            "verifiers: write a dict, by the names of the card's schemes: verifiers={'key': ApiKeyVerifier(store)}"
        )
    if verifiers and not card.schemes:
        schemes = {name: _declaration(given, is_legacy=card.is_legacy) for name, given in verifiers.items()}
        raise ConfigurationError(
            "verifiers: the card declares no security schemes, so nothing is demanded of callers; if a framework makes "
            "the card, pass security=CardSecurity(schemes={…}, requirements=[…]) to protect, else write into the card: "
            f'"securitySchemes": {json.dumps(schemes)}, {_demand(card, verifiers)}'
        )
    for name in verifiers:
        if name not in card.schemes:
            declared = ", ".join(map(repr, card.schemes)) or "no scheme"
            raise ConfigurationError(
                f"verifiers: {name!r} is not a scheme of the card; the card declares {declared}; write the same name "
                "in both"
            )


def _demand(card: CardView, names: Iterable[str]) -> str:
    """The member of a card that demands one of these schemes, as JSON."""
    if card.is_legacy:
        return f'"security": {json.dumps([{name: []} for name in names])}'
    return f'"securityRequirements": {json.dumps([{"schemes": {name: {"list": []}}} for name in names])}'


def _declaration(given: Verifier[Any] | CredentialAt, *, is_legacy: bool) -> dict[str, Any]:
    """The declaration of a scheme for this verifier, as in a card."""
    verifier = given.verifier if isinstance(given, CredentialAt) else given
    urls, given_kind = getattr(verifier, "metadata_urls", ()), _kind_of(verifier)
    kind, members = "http", {"scheme": "bearer"}
    if given_kind is CredentialKind.API_KEY:
        kind, members = "apiKey", {"in" if is_legacy else "location": "header", "name": "X-API-Key"}
    elif given_kind is CredentialKind.PASSWORD:
        members = {"scheme": "basic"}
    elif given_kind is CredentialKind.CERTIFICATE:
        kind, members = "mutualTLS", {}
    elif urls and urls[0].endswith("/openid-configuration"):
        kind, members = "openIdConnect", {"openIdConnectUrl": urls[0]}
    if is_legacy:
        return {"type": kind, **members}
    return {wrapper: members for wrapper, name in SCHEME_TYPES.items() if name == kind}


def _check_anonymous(
    card: CardView, requirements: tuple[Alternative, ...], names: Iterable[str], *, allowed: bool
) -> None:
    if not any(alternative.is_anonymous for alternative in requirements):
        return
    if allowed is not True:
        member = "security" if card.is_legacy else "securityRequirements"
        what = f"has no {member}" if not card.requirements else f"has {{}} among its {member}"
        fix = "demand a scheme in the card:" if not card.requirements else "remove {} and keep requirements such as"
        raise ConfigurationError(
            f"the card {what}, so everybody may call the agent. If that is intended, pass "
            f"rules=RequestRules(allow_anonymous=True); else {fix} {_demand(card, [*names] or ['NAME'])}"
        )
    if card.has_extended_card:
        raise ConfigurationError(
            "the card promises an extended card to authenticated callers, and also admits anonymous callers; remove "
            "extendedAgentCard from the capabilities, or demand a scheme in every requirement"
        )


def _check_scopes(requirements: tuple[Alternative, ...]) -> None:
    for name, scopes in [pair for alternative in requirements for pair in alternative.schemes]:
        for scope in scopes:
            if not SCOPE.fullmatch(scope):
                raise ConfigurationError(
                    f"the scope {scope[:64]!a} of {name!r} is not valid in tokens; write one scope per element, in "
                    "visible ASCII without blanks, quotation marks and backslashes"
                )


def _check_skills(card: CardView, *, are_checked: bool) -> None:
    demanding = [skill.id for skill in card.skills if skill.requirements]
    if demanding and are_checked is not True:
        raise ConfigurationError(
            f"these skills demand more than the card: {', '.join(map(repr, demanding))}, and a request does not say "
            "which skill it is for. Check it in the handlers, with require_skill(request, id), and pass "
            "rules=RequestRules(handlers_check_skills=True); or pass a function that finds the skill of a call: "
            "rules=RequestRules(skill_of=lambda call, body: …)"
        )
    ids = [skill.id for skill in card.skills]
    for name in demanding:
        if ids.count(name) > 1:
            raise ConfigurationError(
                f"two skills of the card have the id {name[:64]!a}, and one demands more: rename one"
            )


def _check_one_authorization(alternatives: Iterable[Alternative], schemes: Iterable[ConfiguredScheme]) -> None:
    words = {each.name: each.place.scheme for each in schemes if isinstance(each.place, HttpAuthorization)}
    for alternative in alternatives:
        by_word = {words[name]: name for name, _ in alternative.schemes if name in words}
        if len(by_word) > 1:
            both = " and ".join(f"{name!r} ({word})" for word, name in sorted(by_word.items()))
            raise ConfigurationError(
                f"the card demands {both} together, and a request has only one Authorization header; demand them as "
                "alternatives, in separate requirements"
            )


def _check_dpop(dpop: DPoP, schemes: Iterable[ConfiguredScheme]) -> None:
    from a2a_trust.auth.dpop import DPoP  # it loads cryptography

    if not isinstance(dpop, DPoP):
        raise ConfigurationError("dpop: write DPoP(url='https://agent.example')")
    if not any(each.takes_dpop for each in schemes):
        raise ConfigurationError(
            "dpop: proofs are for tokens of OAuth 2.0 and OpenID Connect, and the card demands no such scheme; declare "
            'one in the card, as in {"oauth2SecurityScheme": …}, or leave dpop out'
        )


def _check_introspecting(schemes: Iterable[ConfiguredScheme]) -> None:
    """Reject verifiers that share a place with an introspecting verifier, unless their own credentials are JWTs: the
    introspecting server would get another issuer's tokens, or API keys."""
    for scheme in [each for each in schemes if asks_issuer(each.verifier)]:
        for other in schemes:
            if other.place != scheme.place or other.verifier is scheme.verifier:
                continue
            both = f"verifiers: {scheme.name!r} sends unknown credentials in {scheme.place} to its issuer"
            if asks_issuer(other.verifier):
                raise ConfigurationError(
                    f"{both}, and so does {other.name!r}, so each server would get the tokens of the other; pass one "
                    "IntrospectionVerifier for both, which takes several audiences, or verify the JWTs of one issuer "
                    "by JwtVerifier"
                )
            if _kind_of(other.verifier) is not CredentialKind.ACCESS_TOKEN:
                raise ConfigurationError(
                    f"{both}, and the credentials of {other.name!r} come there, too; declare another place for them in "
                    "the card, such as a header X-API-Key"
                )


def _check_stores(schemes: Iterable[ConfiguredScheme]) -> None:
    """Reject verifiers of one issuer over different stores: two owners of one name would have one ``id``."""
    found: dict[str, tuple[str, object]] = {}
    for scheme in schemes:
        tokens = dict.fromkeys(getattr(scheme.verifier, "issuers", ()))
        for issuer, store in {**tokens, **getattr(scheme.verifier, "stores_by_issuer", {})}.items():
            first, known = found.setdefault(issuer, (scheme.name, store))
            if known is not store:
                raise ConfigurationError(
                    f"verifiers: {first!r} and {scheme.name!r} have the issuer {issuer[:128]!a} and different stores, "
                    "so two owners of one name would be one caller; give one of them another issuer, as in "
                    "ApiKeyVerifier(store, issuer='partners'), or give both the same store object"
                )


def _configure_scheme(
    name: str, card: CardView, verifiers: Mapping[str, Verifier[Any] | CredentialAt], has_dpop: bool
) -> ConfiguredScheme:
    scheme = card.schemes.get(name)
    if scheme is None:
        raise ConfigurationError(
            f'the card demands the scheme {name!r} and does not declare it; write "securitySchemes": {{"{name}": …}}'
        )
    given = verifiers.get(name)
    if given is None:
        raise ConfigurationError(
            f"the card demands the scheme {name!r} and nothing verifies it; pass verifiers={{{name!r}: …}}: for API "
            "keys ApiKeyVerifier(store), for OAuth 2.0, OpenID Connect and bearer "
            "JwtVerifier(keys, issuer=…, audience=…), for HTTP basic BasicVerifier(store), for mutual TLS "
            "CertificateVerifier(…)"
        )
    verifier = given.verifier if isinstance(given, CredentialAt) else given
    if isinstance(verifier, type) or not callable(getattr(verifier, "verify", None)):
        raise ConfigurationError(
            f"verifiers: the verifier of {name!r} has no method verify; wrap a store: "
            f"{{{name!r}: ApiKeyVerifier(store)}}, or BasicVerifier(store) for passwords"
        )
    place = _place_of(scheme, given)
    _check_kind(scheme, place, verifier)
    _check_metadata(scheme, verifier)
    return ConfiguredScheme(name, place, verifier, takes_dpop=has_dpop and _has_tokens_of_oauth(scheme, given))


def _place_of(scheme: SecurityScheme, given: Verifier[Any] | CredentialAt) -> Extractor:
    """The place of the credential by the card; in cards of 0.1 by ``CredentialAt``, or by the scheme's word."""
    if not isinstance(scheme, NamedScheme):
        if isinstance(given, CredentialAt):
            raise ConfigurationError(
                f"the card names the place of the credential of {scheme.name!r}; pass the verifier without CredentialAt"
            )
        return extractor_for(scheme)
    if isinstance(given, CredentialAt):
        if given.place == _BY_DPOP:
            raise ConfigurationError(
                f'{scheme.name!r}: write CredentialAt(HttpAuthorization("bearer"), …); DPoP needs no CredentialAt'
            )
        return given.place
    if scheme.name.lower() in WORDS_FOR_TOKENS:
        return HttpAuthorization("bearer")
    if scheme.name.lower() == "basic":
        return _BASIC
    raise ConfigurationError(
        f"{scheme.name!r} of a 0.1 card names no place for its credential; write "
        f'verifiers={{{scheme.name!r}: CredentialAt(InHeader("X-API-Key"), …)}}'
    )


def _has_tokens_of_oauth(scheme: SecurityScheme, given: Verifier[Any] | CredentialAt) -> bool:
    """Whether the scheme is OAuth 2.0 or OpenID Connect, whose tokens DPoP is for."""
    if isinstance(scheme, NamedScheme):
        return not isinstance(given, CredentialAt) and scheme.name.lower() in ("oauth2", "openidconnect")
    return isinstance(scheme, OAuth2Scheme | OpenIdConnectScheme)


def _check_kind(scheme: SecurityScheme, place: Extractor, verifier: Verifier[Any]) -> None:
    """Reject a verifier for another kind of credential than the card declares, such as a swapped one. Certificates and
    passwords have their own places: a certificate in a header would prove nothing, because only TLS proves its key."""
    kind, demanded = _kind_of(verifier), _demanded_kind(scheme, place)
    if kind is None or kind is demanded or (demanded is None and kind not in _OF_ONE_PLACE):
        return
    plural, _, declared = _WORDS[kind]
    there, fix = "keys or tokens", ""
    if demanded is not None:
        there, other, _ = _WORDS[demanded]
        fix = f"pass {other}, or "
    raise ConfigurationError(
        f"verifiers: the verifier of {scheme.name!r} is for {plural}, and the card demands {there}; "
        f"{fix}declare {declared} in the card"
    )


def _kind_of(verifier: Any) -> CredentialKind | None:
    """The kind of the verifier, with ID tokens as tokens; None if it has no ``kind``."""
    kind = getattr(verifier, "kind", None)
    if kind is CredentialKind.ID_TOKEN:
        return CredentialKind.ACCESS_TOKEN
    return kind if isinstance(kind, CredentialKind) else None


#: A kind of credential in errors: many of them, a verifier for them, and how a card declares them.
_WORDS: Final = {
    CredentialKind.API_KEY: ("API keys", "ApiKeyVerifier(store)", "an API key"),
    CredentialKind.ACCESS_TOKEN: (
        "tokens",
        "JwtVerifier(keys, issuer=…, audience=…)",
        "OAuth 2.0, OpenID Connect or HTTP bearer",
    ),
    CredentialKind.CERTIFICATE: (
        "client certificates, whose keys TLS has proven",
        "CertificateVerifier(…)",
        "mutual TLS",
    ),
    CredentialKind.PASSWORD: ("passwords", "BasicVerifier(store)", "HTTP basic"),
}
_OF_ONE_PLACE: Final = (CredentialKind.CERTIFICATE, CredentialKind.PASSWORD)


def _demanded_kind(scheme: SecurityScheme, place: Extractor) -> CredentialKind | None:
    """The kind of credential that the card demands; None for HTTP bearer, and for words of 0.1 that leave it open.

    An agent may accept API keys as bearer credentials, but not for OAuth 2.0 and OpenID Connect.
    """
    if isinstance(place, ClientCertificate):
        return CredentialKind.CERTIFICATE
    if place == _BASIC:
        return CredentialKind.PASSWORD
    if isinstance(scheme, HttpScheme):
        return None
    if isinstance(scheme, NamedScheme):
        word = scheme.name.lower()
        if word == "apikey":
            return CredentialKind.API_KEY
        return CredentialKind.ACCESS_TOKEN if word in WORDS_FOR_TOKENS else None
    return CredentialKind.API_KEY if isinstance(scheme, ApiKeyScheme) else CredentialKind.ACCESS_TOKEN


def _check_metadata(scheme: SecurityScheme, verifier: Verifier[Any]) -> None:
    """Reject a card that sends its callers to another issuer than the one whose tokens the verifier accepts."""
    if isinstance(scheme, OpenIdConnectScheme):
        member, said = "openIdConnectUrl", scheme.discovery_url
    elif isinstance(scheme, OAuth2Scheme) and scheme.metadata_url is not None:
        member, said = "oauth2MetadataUrl", scheme.metadata_url
    else:
        return
    used: tuple[str, ...] = getattr(verifier, "metadata_urls", ())
    if used and said not in used:
        names = " and ".join(map(ascii, used))
        raise ConfigurationError(
            f"the card's {member} of {scheme.name!r} is {said!a}, and its verifier uses the keys of {names}, so "
            "callers would get tokens that are rejected. Make both the same; for an issuer with another URL of "
            "metadata, write OAuth2Keys(issuer, fetcher, metadata_url=…)"
        )
