"""The card's requirements at work: what must be configured, and who is let in.

Requirements are an OR of ANDs, as in OpenAPI. Every credential that a request carries must be good, whatever else it
carries; each scheme's scopes are checked against that scheme's own credential; nobody is let in as anonymous who
carries a credential for any declared scheme. Schemes are independent: an issuer that is out of reach changes nothing
for callers whom another alternative lets in. A credential that is bound to a key counts only in a request that proves
the key, whatever is remembered of it (RFC 8705 3, RFC 9449 7). What would leave a hole is a ConfigurationError when the
guard is made, and its text shows what to write.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier
from a2a_trust.auth.certificate.verifier import CertificateVerifier
from a2a_trust.auth.credentials import (
    CERTIFICATES,
    ClientCertificate,
    Extractor,
    HeaderLines,
    HttpAuthorization,
    Lines,
    certificates_of,
    extractor_for,
)
from a2a_trust.auth.dpop import DPoP
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.principal import SCOPE, Anonymous, Identity, Principal, Verifier
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
from a2a_trust.errors import (
    AuthorizationError,
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MissingCredentialsError,
    UnrecognizedCredentialsError,
)
from a2a_trust.keys import base64url

__all__ = ["AnonymousAllowed", "AnonymousRefused", "At", "Guard", "HandlersEnforceSkills", "SkillsRefused"]


@dataclass(frozen=True, slots=True)
class AnonymousRefused:
    """Nobody is let in without proof; a card that says otherwise does not start."""


@dataclass(frozen=True, slots=True)
class AnonymousAllowed:
    """The named permission for a card that lets callers in without proof. They own nothing afterwards: what an
    anonymous request makes cannot be asked for by the next one."""


@dataclass(frozen=True, slots=True)
class SkillsRefused:
    """A card whose skills demand more than the card does not start: nobody would check it."""


@dataclass(frozen=True, slots=True)
class HandlersEnforceSkills:
    """The statement that the agent's own code checks what single skills demand, with ``principal_of``."""


@dataclass(frozen=True, slots=True)
class At:
    """A verifier and the place of its credential, for schemes of 0.1 cards, which are a word and name no place."""

    place: Extractor
    verifier: Verifier


Anonymity: TypeAlias = AnonymousRefused | AnonymousAllowed
Skills: TypeAlias = SkillsRefused | HandlersEnforceSkills


@dataclass(frozen=True, slots=True)
class _Checked:
    name: str
    place: Extractor
    verifier: Verifier
    header: bytes = field(init=False)
    """The header in which the credential travels; b"" for none."""
    takes_dpop: bool = False
    prove: Callable[[str, float], Awaitable[Identity]] = field(init=False)
    """The verifier's ``verify_bound``, else its ``verify``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "header", self.place.header or b"")
        object.__setattr__(self, "prove", _prover(self.verifier))


def _prover(verifier: Any) -> Callable[[str, float], Awaitable[Identity]]:
    """``verify_bound``, which takes bound credentials too, unless somebody has put a ``verify`` of their own over it,
    in a subclass, a wrapper or on the object: that may refuse more, and has to be asked."""
    prove: Callable[[str, float], Awaitable[Identity]] = verifier.verify
    for names in (getattr(verifier, "__dict__", {}), *map(vars, type(verifier).__mro__)):
        if "verify_bound" in names:
            prove = verifier.verify_bound
        if "verify_bound" in names or "verify" in names:
            break
    return prove


class _Evidence:
    """What the credentials of one request have proven, by the names of the schemes, in their order."""

    __slots__ = ("identities", "is_bound", "refused", "token", "undecided")

    def __init__(self) -> None:
        self.identities: dict[str, Identity] = {}
        #: The schemes whose verifiers cannot tell now.
        self.undecided: dict[str, KeySourceUnavailableError] = {}
        self.refused: dict[str, InvalidCredentialsError] = {}
        #: What came as ``Authorization: DPoP``.
        self.token = ""
        #: Whether a credential is good only with the proof of a key.
        self.is_bound = False

    def add(self, checked: _Checked, identity: object, now: float) -> None:
        """Keep what a verifier has returned, which may be anybody's; InvalidCredentialsError when it has expired."""
        if not isinstance(identity, Identity):
            raise TypeError(f"the verifier of {checked.name!r} returned {type(identity).__name__}, not an Identity")
        if not now < identity.expires_at:
            raise InvalidCredentialsError(f"the credential of {checked.name!r} has expired")
        self.identities[checked.name] = identity
        if identity.bound_to is not None:
            self.is_bound = True

    def raise_refusal(self, places: Mapping[str, Extractor]) -> None:
        """Raise for a credential that no verifier takes; ``places`` are those of the schemes.

        Schemes may share a place (two issuers of bearer tokens): what came there is good when one says so, and else it
        is the verifier for its issuer that says what is wrong.
        """
        open_places = {places[name] for names in (self.identities, self.undecided) for name in names}
        invalid = [error for name, error in self.refused.items() if places[name] not in open_places]
        for error in sorted(invalid, key=lambda error: isinstance(error, UnrecognizedCredentialsError)):
            raise error

    def raise_undecided(self, alternative: Alternative) -> None:
        """Raise if the alternative might be satisfied, if only its verifiers could tell."""
        unknown = None
        for name, scopes in alternative.schemes:
            identity = self.identities.get(name)
            if name in self.undecided:
                unknown = unknown or self.undecided[name]
            elif identity is None or not scopes <= identity.scopes:
                return
        if unknown is not None:
            raise unknown


_NO_LINES: Final[Lines] = []
_BY_DPOP: Final = HttpAuthorization("dpop")
_PROOF: Final = b"dpop"


class Guard:
    """A card and its verifiers, made ready: ``authenticate`` says who a request is from, or raises."""

    def __init__(
        self,
        card: CardView,
        verifiers: Mapping[str, Verifier | At],
        *,
        anonymous: Anonymity = AnonymousRefused(),
        skills: Skills = SkillsRefused(),
        dpop: DPoP | None = None,
    ) -> None:
        if not isinstance(anonymous, AnonymousRefused | AnonymousAllowed):
            raise ConfigurationError("anonymous: write AnonymousRefused() or AnonymousAllowed(), with parentheses")
        if not isinstance(skills, SkillsRefused | HandlersEnforceSkills):
            raise ConfigurationError("skills: write SkillsRefused() or HandlersEnforceSkills(), with parentheses")
        self.card = card
        _check_names(card, verifiers)
        requirements = card.requirements or (Alternative(()),)
        _check_scopes(requirements)
        _check_anonymous(card, requirements, anonymous, verifiers)
        _check_skills(card, skills)
        used = sorted({name for alternative in requirements for name, _ in alternative.schemes})
        self._checked = tuple(_checked(name, card, verifiers, dpop is not None) for name in used)
        self.dpop = dpop
        if dpop is not None:
            _check_dpop(dpop, self._checked)
        self._alternatives = tuple(alternative for alternative in requirements if not alternative.is_anonymous)
        self._lets_anonymous_in = len(self._alternatives) < len(requirements)
        # A credential for a scheme that no requirement uses proves nothing here, and is no anonymous request either.
        places = [_place(scheme) for name, scheme in card.schemes.items() if name not in used]
        self._unused = tuple(place for place in places if place is not None)
        headers = {place.header for place in self.places}
        self._lines = HeaderLines(
            {header for header in headers if header is not None} | {b"authorization"} | self.proof_headers
        )

    @property
    def schemes(self) -> tuple[SecurityScheme, ...]:
        """The schemes that requirements use, in order of their names: those to challenge for."""
        return tuple(self.card.schemes[checked.name] for checked in self._checked)

    def place(self, name: str) -> Extractor:
        """Where requests carry the credential of a used scheme."""
        return next(checked.place for checked in self._checked if checked.name == name)

    @property
    def places(self) -> tuple[Extractor, ...]:
        """Where requests may carry a credential of any declared scheme, used or not."""
        return (*self._unused, *(checked.place for checked in self._checked))

    @property
    def proof_headers(self) -> frozenset[bytes]:
        """The headers, in lower case, in which requests prove the keys that their credentials are bound to."""
        return frozenset() if self.dpop is None else frozenset({_PROOF})

    def takes_dpop(self, name: str) -> bool:
        """Whether the tokens of a used scheme may also come as ``Authorization: DPoP``, with a proof."""
        return any(checked.takes_dpop for checked in self._checked if checked.name == name)

    async def authenticate(self, scope: Any, now: float) -> Principal | Anonymous:
        """Who the request is from.

        ``scope`` is an ASGI scope, ``now`` seconds since the epoch. MissingCredentialsError, InvalidCredentialsError,
        AuthorizationError, KeySourceUnavailableError. Whatever a verifier raises otherwise passes through: it is no
        decision, and whoever calls this must let nobody in.

        1. Each credential is taken from its one place and judged by the verifiers of all schemes that share the place.
        2. One that no verifier takes is rejected, whatever the alternatives are.
        3. The request proves the keys that its credentials are bound to.
        4. The first alternative whose schemes are all proven, with their scopes, makes the principal. A scheme that
           cannot be judged now matters only here, where nothing else lets the caller in.
        """
        lines = self._lines.find(scope["headers"])
        evidence = await self._judge(lines, scope, now)  # 1
        if evidence.refused:
            evidence.raise_refusal({checked.name: checked.place for checked in self._checked})  # 2
        if evidence.identities or evidence.undecided:
            if evidence.is_bound or evidence.token:
                await self._check_bindings(evidence, lines.get(_PROOF, _NO_LINES), scope, now)  # 3
            return self._principal(evidence)  # 4
        if (
            self._lets_anonymous_in
            and b"authorization" not in lines
            and _PROOF not in lines  # it goes with a token that is missing
            and not self._carries_unused(lines, scope)
        ):
            return Anonymous()
        came = lines.get(b"authorization", _NO_LINES)
        hint = "; to take DPoP, pass dpop=DPoP(url=…)" if self.dpop is None and _comes_as_dpop(came) else ""
        raise MissingCredentialsError(f"no credential for any scheme of the card{hint}")

    async def _judge(self, lines: dict[bytes, Lines], scope: Any, now: float) -> _Evidence:
        """What the credentials that came prove, scheme by scheme; InvalidCredentialsError for one oddly written."""
        evidence = _Evidence()
        for checked in self._checked:
            found = lines.get(checked.header, _NO_LINES)
            if found is _NO_LINES and checked.header:
                continue
            try:
                credential = checked.place.take(found, scope)
                if credential is None and checked.takes_dpop:
                    credential = _BY_DPOP.take(found, scope)
                    evidence.token = credential or ""
            except InvalidCredentialsError as error:
                error.scheme = checked.name
                raise
            if credential is None:
                continue
            try:
                evidence.add(checked, await checked.prove(credential, now), now)
            except InvalidCredentialsError as error:
                error.scheme, error.by_dpop = checked.name, bool(evidence.token) and checked.takes_dpop
                evidence.refused[checked.name] = error
            except KeySourceUnavailableError as error:
                evidence.undecided[checked.name] = error
        return evidence

    async def _check_bindings(self, evidence: _Evidence, proofs: Lines, scope: Any, now: float) -> None:
        """Return when the request proves every key that its credentials are bound to.

        ``proofs`` are the lines of the header DPoP.
        """
        token = evidence.token
        proven_by: dict[str, str] = {}  # thumbprints of keys of proofs, with the scheme whose token demands one
        for checked in self._checked:
            identity = evidence.identities.get(checked.name)
            if identity is None:
                continue
            by_dpop = bool(token) and checked.takes_dpop
            binding = identity.bound_to
            jkt = None if binding is None else binding.jkt
            if jkt is not None:
                if not by_dpop:
                    mend = "it did not come as DPoP" if self.dpop else "to take it, pass dpop=DPoP(url=…)"
                    raise _blamed(f"a token is bound to a key, and no proof of it is taken here: {mend}", checked.name)
                proven_by[jkt] = checked.name
            elif by_dpop:
                raise _blamed("a token came as DPoP, and is bound to no key of proofs", checked.name, by_dpop=True)
            if binding is not None and binding.x5t_s256 is not None:
                why = _certificate_mismatch(binding.x5t_s256, scope)
                if why:
                    raise _blamed(why, checked.name, by_dpop)
        if not proven_by:
            return
        (jkt, name), *others = proven_by.items()
        if others or self.dpop is None:
            raise _blamed("one token cannot be bound to several keys of proofs", name, by_dpop=True)
        try:
            await self.dpop.check(proofs, scope, token=token, jkt=jkt, now=now)
        except InvalidCredentialsError as error:
            error.scheme, error.by_dpop = name, True
            raise

    def _principal(self, evidence: _Evidence) -> Principal:
        """The caller, by the first alternative that is satisfied; else why there is none."""
        identities = evidence.identities
        for alternative in self._alternatives:
            proven = []
            for name, scopes in alternative.schemes:
                identity = identities.get(name)
                if identity is None or not scopes <= identity.scopes:
                    break
                proven.append((name, identity))
            else:
                return Principal(identities=tuple(proven))
        for alternative in self._alternatives if evidence.undecided else ():
            evidence.raise_undecided(alternative)
        met = [each for each in self._alternatives if all(name in identities for name, _ in each.schemes)]
        raise self._lacking_scopes(evidence, met) if met else self._missing(identities)

    def _missing(self, identities: Mapping[str, Identity]) -> MissingCredentialsError:
        missing = [
            " and ".join(repr(name) for name, _ in alternative.schemes if name not in identities)
            for alternative in self._alternatives
        ]
        return MissingCredentialsError(
            f"the credentials that came are not all that any alternative demands; missing: {', or '.join(missing)}"
        )

    def _lacking_scopes(self, evidence: _Evidence, met: Iterable[Alternative]) -> AuthorizationError:
        """The refusal of a known caller; ``met`` are the alternatives whose credentials came."""
        wanting: set[str] = set()
        lacking: dict[str, set[str]] = {}
        for alternative in met:
            for name, scopes in alternative.schemes:
                wanting |= scopes
                if not scopes <= evidence.identities[name].scopes:
                    lacking.setdefault(name, set()).update(scopes)
        error = AuthorizationError(
            "the credentials lack scopes that the card demands",
            tuple(sorted(wanting)),
            {name: tuple(sorted(scopes)) for name, scopes in lacking.items()},
        )
        error.by_dpop = bool(evidence.token)
        error.caller = Principal(identities=tuple(evidence.identities.items()))
        return error

    def _carries_unused(self, lines: dict[bytes, Lines], scope: Any) -> bool:
        return any(place.take(lines.get(place.header or b"", []), scope) is not None for place in self._unused)


def _comes_as_dpop(lines: Lines) -> bool:
    return any(line is not None and line.lower().startswith(b"dpop ") for line in lines)


def _certificate_mismatch(x5t_s256: str, scope: Any) -> str:
    """Why the client's certificate is not the one that a token is bound to (RFC 8705 3); "" when it is."""
    certificates = certificates_of(scope)
    if not certificates:
        mend = "" if CERTIFICATES in scope else "; to take any, pass client_certificates=FromTls()"
        return f"a token is bound to a certificate, and none was shown{mend}"
    if base64url.encode(hashlib.sha256(certificates[0]).digest()) != x5t_s256:
        return "a token is bound to another certificate"
    return ""


def _blamed(why: str, scheme: str, by_dpop: bool = False) -> InvalidCredentialsError:
    error = InvalidCredentialsError(why)
    error.scheme, error.by_dpop = scheme, by_dpop
    return error


def _place(scheme: SecurityScheme) -> Extractor | None:
    try:
        return extractor_for(scheme)
    except ConfigurationError:
        return None  # not used by any requirement, so it need not be enforceable


def _check_names(card: CardView, verifiers: Mapping[str, Verifier | At]) -> None:
    if verifiers and not card.schemes:
        schemes = {name: _declaration(given, is_legacy=card.is_legacy) for name, given in verifiers.items()}
        raise ConfigurationError(
            "verifiers: the card declares no security schemes, so nothing is demanded of callers; write into the card: "
            f'"securitySchemes": {json.dumps(schemes)}, {_demand(card, verifiers)}'
        )
    for name in verifiers:
        if name not in card.schemes:
            declared = ", ".join(map(repr, card.schemes)) or "none"
            raise ConfigurationError(f"verifiers: {name!r} is no scheme of the card; declared are: {declared}")


def _demand(card: CardView, names: Iterable[str]) -> str:
    """The member of the card that demands any one of these schemes, as JSON."""
    if card.is_legacy:
        return f'"security": {json.dumps([{name: []} for name in names])}'
    return f'"securityRequirements": {json.dumps([{"schemes": {name: {"list": []}}} for name in names])}'


def _declaration(given: Verifier | At, *, is_legacy: bool) -> dict[str, Any]:
    """How a card declares a scheme for this verifier."""
    verifier = given.verifier if isinstance(given, At) else given
    url = verifier.metadata_url if isinstance(verifier, JwtVerifier) else None
    kind, members = "http", {"scheme": "bearer"}
    if isinstance(verifier, ApiKeyVerifier):
        kind, members = "apiKey", {"in" if is_legacy else "location": "header", "name": "X-API-Key"}
    elif isinstance(verifier, CertificateVerifier):
        kind, members = "mutualTLS", {}
    elif url is not None and url.endswith("/openid-configuration"):
        kind, members = "openIdConnect", {"openIdConnectUrl": url}
    if is_legacy:
        return {"type": kind, **members}
    return {wrapper: members for wrapper, name in SCHEME_TYPES.items() if name == kind}


def _check_anonymous(
    card: CardView, requirements: tuple[Alternative, ...], anonymous: Anonymity, names: Iterable[str]
) -> None:
    if not any(alternative.is_anonymous for alternative in requirements):
        return
    if isinstance(anonymous, AnonymousRefused):
        member = "security" if card.is_legacy else "securityRequirements"
        what = f"has no {member}" if not card.requirements else f"has {{}} among its {member}"
        mend = "demand a scheme in the card:" if not card.requirements else "take {} out, so that there remain such as"
        raise ConfigurationError(
            f"the card {what}, so everybody may call the agent. If that is meant, pass anonymous=AnonymousAllowed(); "
            f"else {mend} {_demand(card, [*names] or ['NAME'])}"
        )
    if card.has_extended_card:
        raise ConfigurationError(
            "the card promises authenticated callers an extended card and lets everybody in, who could ask for it too; "
            "take extendedAgentCard out of the capabilities, or demand a scheme of everybody"
        )


def _check_scopes(requirements: tuple[Alternative, ...]) -> None:
    for alternative in requirements:
        for name, scopes in alternative.schemes:
            for scope in scopes:
                if not SCOPE.fullmatch(scope):
                    raise ConfigurationError(
                        f"the scope {scope[:64]!a} of {name!r} is none that a token can have: write scopes one by one, "
                        "of visible ASCII characters without blanks, quotation marks and backslashes"
                    )


def _check_skills(card: CardView, skills: Skills) -> None:
    demanding = [skill.id for skill in card.skills if skill.requirements]
    if demanding and not isinstance(skills, HandlersEnforceSkills):
        raise ConfigurationError(
            f"skills of the card demand more than the card: {', '.join(map(repr, demanding))}; nobody checks that. "
            "Check it in the handlers, with principal_of(scope), and pass skills=HandlersEnforceSkills()"
        )
    undeclared = {
        name
        for skill in card.skills
        for alternative in skill.requirements or ()
        for name, _ in alternative.schemes
        if name not in card.schemes
    }
    if undeclared:
        raise ConfigurationError(
            f"skills demand schemes that the card does not declare: {', '.join(sorted(undeclared))}"
        )


def _check_dpop(dpop: DPoP, checked: Iterable[_Checked]) -> None:
    if not isinstance(dpop, DPoP):
        raise ConfigurationError("dpop: write DPoP(url='https://agent.example')")
    if not any(each.takes_dpop for each in checked):
        raise ConfigurationError(
            "dpop: proofs go with tokens of OAuth 2.0 and OpenID Connect, and the card demands no such scheme; declare "
            'one in the card, as in {"oauth2SecurityScheme": …}, or leave dpop out'
        )


def _checked(name: str, card: CardView, verifiers: Mapping[str, Verifier | At], has_dpop: bool) -> _Checked:
    scheme = card.schemes.get(name)
    if scheme is None:
        raise ConfigurationError(
            f'the card demands the scheme {name!r} and does not declare it; add it: "securitySchemes": {{"{name}": …}}'
        )
    given = verifiers.get(name)
    if given is None:
        raise ConfigurationError(
            f"the card demands the scheme {name!r} and nothing verifies it; pass verifiers={{{name!r}: …}}: for API "
            "keys ApiKeyVerifier(store), for OAuth 2.0, OpenID Connect and bearer "
            "JwtVerifier(keys, issuer=…, audience=…), for mutual TLS CertificateVerifier(…)"
        )
    verifier = given.verifier if isinstance(given, At) else given
    if isinstance(verifier, type) or not callable(getattr(verifier, "verify", None)):
        raise ConfigurationError(
            f"verifiers: that of {name!r} has no method verify; a store of API keys is wrapped: "
            f"{{{name!r}: ApiKeyVerifier(store)}}"
        )
    if isinstance(scheme, NamedScheme):
        if isinstance(given, At):
            if given.place == _BY_DPOP:
                raise ConfigurationError(f'{name!r}: write At(HttpAuthorization("bearer"), …); DPoP goes without At')
            _check_kind(scheme, given.place, given.verifier)
            return _Checked(name, given.place, given.verifier)
        if name.lower() in _WORDS_FOR_TOKENS:
            _check_kind(scheme, HttpAuthorization("bearer"), given)
            takes_dpop = has_dpop and name.lower() != "bearer"
            return _Checked(name, HttpAuthorization("bearer"), given, takes_dpop=takes_dpop)
        raise ConfigurationError(
            f"{name!r} of a 0.1 card names no place for its credential; say it: "
            f'verifiers={{{name!r}: At(Header("X-API-Key"), …)}}'
        )
    if isinstance(given, At):
        raise ConfigurationError(
            f"the card says where the credential of {name!r} travels; pass the verifier without At"
        )
    place = extractor_for(scheme)
    _check_kind(scheme, place, given)
    _check_metadata(scheme, given)
    takes_dpop = has_dpop and isinstance(scheme, OAuth2Scheme | OpenIdConnectScheme)
    return _Checked(name, place, given, takes_dpop=takes_dpop)


def _check_kind(scheme: SecurityScheme, place: Extractor, verifier: Verifier) -> None:
    """Refuse a verifier for another kind of credential than the card declares: two were swapped. A certificate is never
    a password: anybody can have its text, and it is TLS that proves who has its key."""
    kind = next((kind for kind in _KINDS if isinstance(verifier, kind.verifier)), None)
    demanded = _kind_of(scheme, place)
    if kind is None or kind is demanded or (demanded is None and kind is not _CERTIFICATES):
        return
    there, mend = ("text", "") if demanded is None else (demanded.words, f"pass {demanded.example}, or ")
    raise ConfigurationError(
        f"verifiers: that of {scheme.name!r} is for {kind.words}, and the card demands {there}; "
        f"{mend}declare {kind.declared} in the card"
    )


class _Kind(NamedTuple):
    """A kind of credentials, and the words for it in errors."""

    verifier: type
    words: str
    example: str
    declared: str


_API_KEYS: Final = _Kind(ApiKeyVerifier, "API keys", "ApiKeyVerifier(store)", "an API key")
_TOKENS: Final = _Kind(
    JwtVerifier, "tokens", "JwtVerifier(keys, issuer=…, audience=…)", "OAuth 2.0, OpenID Connect or HTTP bearer"
)
_CERTIFICATES: Final = _Kind(
    CertificateVerifier,
    "client certificates, whose keys TLS has proven",
    "CertificateVerifier(…)",
    "mutual TLS",
)
_KINDS: Final = (_API_KEYS, _TOKENS, _CERTIFICATES)
_WORDS_FOR_TOKENS: Final = ("bearer", "oauth2", "openidconnect")


def _kind_of(scheme: SecurityScheme, place: Extractor) -> _Kind | None:
    """What the card demands there; None where HTTP bearer, or a word of 0.1, leaves it open.

    An agent may take its API keys as bearer credentials, which OAuth 2.0 and OpenID Connect do not allow.
    """
    if isinstance(place, ClientCertificate):
        return _CERTIFICATES
    if isinstance(scheme, HttpScheme):
        return None
    if isinstance(scheme, NamedScheme):
        word = scheme.name.lower()
        return _API_KEYS if word == "apikey" else _TOKENS if word in _WORDS_FOR_TOKENS else None
    return _API_KEYS if isinstance(scheme, ApiKeyScheme) else _TOKENS


def _check_metadata(scheme: SecurityScheme, verifier: Verifier) -> None:
    """Refuse a card that sends its callers to another issuer for tokens than the one whose tokens are taken."""
    if isinstance(scheme, OpenIdConnectScheme):
        member, said = "openIdConnectUrl", scheme.discovery_url
    elif isinstance(scheme, OAuth2Scheme) and scheme.metadata_url is not None:
        member, said = "oauth2MetadataUrl", scheme.metadata_url
    else:
        return
    used = verifier.metadata_url if isinstance(verifier, JwtVerifier) else None
    if used is not None and used != said:
        raise ConfigurationError(
            f"the card's {member} of {scheme.name!r} is {said!a}, and its verifier takes the keys of {used!a}: callers "
            "would get their tokens elsewhere. Make the two alike; OAuth2Keys(issuer, door, metadata_url=…) names the "
            "other place that an issuer may have"
        )
