"""Decides who the caller of a request is, by the card's requirements and the credentials in the request.

Requirements are an OR of ANDs, as in OpenAPI. ``Guard.authenticate`` has the rules, ``guard_config`` the start checks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from a2a_trust.auth.credentials import CERTIFICATES, ClientCertificate, Extractor, HeaderLines, Lines, certificates_of
from a2a_trust.auth.guard_config import ConfiguredScheme, CredentialAt, GuardConfig, configure
from a2a_trust.auth.peers import CLIENT
from a2a_trust.auth.principal import Anonymous, Identity, Principal, SubjectToken, UnchangedError, Verifier, outage_of
from a2a_trust.auth.throttle import FailureLimits, Throttle
from a2a_trust.auth.token_claims import candidates
from a2a_trust.base.databases.availability import Pooled
from a2a_trust.card.view import Alternative, CardView, SecurityScheme
from a2a_trust.errors import (
    AuthenticationError,
    AuthorizationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MissingCredentialsError,
    TooManyRequestsError,
    UnrecognizedCredentialsError,
)
from a2a_trust.keys import base64url

if TYPE_CHECKING:
    from a2a_trust.auth.dpop import DPoP


class Rejected(NamedTuple):
    """A rejected request: the error, and the facts that its answer needs.

    ``scheme`` is the card's name of the scheme whose credential is invalid. ``by_dpop``: the credential came as
    ``Authorization: DPoP``. ``caller`` is set if the credentials are valid but not sufficient. ``demanded`` are the
    alternatives that it does not satisfy, of a skill; None for the alternatives of the card.
    """

    error: AuthenticationError | AuthorizationError | TooManyRequestsError | KeySourceUnavailableError
    scheme: str | None = None
    by_dpop: bool = False
    caller: Principal | Anonymous | None = None
    demanded: tuple[Alternative, ...] | None = None


class _Carried(NamedTuple):
    scheme: ConfiguredScheme
    credential: Any
    by_dpop: bool

    def __repr__(self) -> str:
        return f"_Carried({self.scheme.name!r}, …)"  # tracebacks may show locals


@dataclass(slots=True, repr=False)
class _Evidence:
    """The results of verifying one request's credentials, by the names of the schemes, in their order.

    ``undecided``: the verifiers are unavailable now. ``failed``: the limits of failures count these credentials.
    ``dpop_token`` came as ``Authorization: DPoP``. ``is_bound``: a credential
    is valid only with the proof of a key. ``too_many``: a credential was rejected after too many others.
    """

    identities: dict[str, Identity] = field(default_factory=dict)
    undecided: dict[str, KeySourceUnavailableError] = field(default_factory=dict)
    rejected: dict[str, InvalidCredentialsError] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    dpop_token: str = ""
    is_bound: bool = False
    too_many: TooManyRequestsError | None = None


_Verified: TypeAlias = tuple[tuple[str, Identity], ...]
"""The identities of an alternative, by the names of their schemes."""

_NO_ONE: Final[Mapping[str, Identity]] = {}
_NO_LINES: Final[Lines] = []
_PROOF: Final = b"dpop"
_MOST_PRINCIPALS: Final = 4096
_SHOWN: Final = 8  # alternatives, schemes and scopes in one error


class Guard:
    """A card and its verifiers, ready for requests: ``authenticate`` finds the caller."""

    def __init__(
        self,
        card: CardView,
        verifiers: Mapping[str, Verifier[Any] | CredentialAt],
        *,
        allow_anonymous: bool = False,
        skills_are_checked: bool = False,
        dpop: DPoP | None = None,
        throttle: Throttle | None = None,
    ) -> None:
        """``throttle`` counts failures; the default has the limits of ``FailureLimits()``. ConfigurationError: a rule
        of the card would not be enforced."""
        config = configure(
            card, verifiers, allow_anonymous=allow_anonymous, skills_are_checked=skills_are_checked, dpop=dpop
        )
        self._config = config
        self.dpop = dpop
        self._throttle = Throttle(FailureLimits()) if throttle is None else throttle
        self._schemes = {scheme.name: scheme for scheme in config.schemes}
        #: Schemes that share a verifier share the counters of its credentials; others count their users apart.
        self._counted_as = {
            scheme.name: next(each.name for each in config.schemes if each.verifier is scheme.verifier)
            for scheme in config.schemes
        }
        self._card_schemes = frozenset(name for each in config.alternatives for name, _ in each.schemes)
        self._skill_schemes = frozenset(
            name for alternatives in config.skills.values() for each in alternatives for name, _ in each.schemes
        )
        self._may_be_guessed = any(scheme.is_remembered for scheme in config.schemes)
        headers = {place.header for place in self.places if place.header is not None}
        self.headers: Final = headers | {b"authorization"} | self.proof_headers
        """The headers that may have credentials or proofs of keys, in lower case."""
        self._lines = HeaderLines(self.headers)
        self._at_once = _at_once(config)
        #: Scheme and id of an identity that a verifier has cached -> principal: ``find_cached`` makes it once.
        #: With the scheme, because schemes that share a verifier also share its identities.
        self._principals: dict[tuple[str, int], Principal] = {}

    @property
    def schemes(self) -> tuple[SecurityScheme, ...]:
        """The schemes that requirements of the card and of its skills use, in the order of their names."""
        return tuple(self._config.card.schemes[name] for name in self._schemes)

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """The requirements of the card, without ``{}``."""
        return self._config.alternatives

    def place(self, name: str) -> Extractor:
        """The place of a used scheme's credential in requests."""
        return self._schemes[name].place

    @property
    def places(self) -> tuple[Extractor, ...]:
        """The places of the credentials of all declared schemes, used or not."""
        return (*self._config.unused, *(scheme.place for scheme in self._config.schemes))

    @property
    def proof_headers(self) -> frozenset[bytes]:
        """The headers, in lower case, in which requests prove the keys that their credentials are bound to."""
        return frozenset() if self.dpop is None else frozenset({_PROOF})

    @property
    def takes_access_tokens(self) -> bool:
        return any(scheme.is_for_access_tokens for scheme in self._config.schemes)

    def takes_dpop(self, name: str) -> bool:
        """Whether the tokens of a used scheme may also come as ``Authorization: DPoP``, with a proof."""
        return self._schemes[name].takes_dpop

    def find_cached(self, lines: Mapping[bytes, Lines], scope: Any, now: float) -> Principal | None:
        """The result of ``authenticate``, at once, for most callers that were here before; else None.

        ``lines`` are the lines of the headers that ``self.headers`` names.

        The request has one credential, in a header that is for one scheme only. The scheme's verifier has cached the
        identity, which is bound to no key and satisfies an alternative alone. So there is nothing to count or to bind.
        """
        if len(lines) != 1:
            return None
        ((header, came),) = lines.items()
        found = self._at_once.get(header)
        if found is None:
            return None
        scheme, known = found
        try:
            credential = scheme.place.take(came, scope)
        except InvalidCredentialsError:
            return None
        identity = None if credential is None else known(credential, now)
        # A user's verifier may return anything.
        if not isinstance(identity, Identity) or identity.bound_to is not None or not now < identity.expires_at:
            return None
        # The principal holds its identity, so no other identity has the same id as long as it is kept.
        return self._principals.get((scheme.name, id(identity))) or self._principal_of(scheme.name, identity)

    def _principal_of(self, scheme: str, identity: Identity) -> Principal | None:
        """The principal with this identity alone, which is kept; None if that satisfies no alternative."""
        scopes_of = [each.schemes[0][1] for each in self._config.alternatives if [*dict(each.schemes)] == [scheme]]
        if not any(scopes <= identity.scopes for scopes in scopes_of):
            return None
        if len(self._principals) >= _MOST_PRINCIPALS:
            self._principals.clear()  # a principal that is still used is made once more
        principal = Principal(identities=((scheme, identity),))
        self._principals[scheme, id(identity)] = principal
        return principal

    async def authenticate(
        self, scope: Any, now: float, seconds: list[float] | None = None
    ) -> Principal | Anonymous | Rejected:
        """The caller of the request, or why it is rejected.

        ``scope`` is an ASGI scope, ``now`` is in seconds since the epoch. The time that verifiers take is added to
        ``seconds``. Other exceptions of a verifier pass through; the calling code must then reject the request.

        1. Collect: each credential is taken from its place. A request without credentials is anonymous, or rejected;
           a request with a credential for a declared scheme is never anonymous, unless only skills demand that scheme.
        2. Verify: all verifiers of a place get the credential from there. A credential that can be guessed is rejected
           unverified while its peer has too many failures.
        3. Reject: a credential that no verifier accepts is rejected, even if another alternative is satisfied. It is
           counted if its verifier has a ``credential_name``; beyond the limit the answer is as in step 2. A
           credential that can be guessed, and is valid, clears the counter of its peer and name.
        4. Bind: the request must prove the keys that its credentials are bound to, also if the credentials are cached
           (RFC 8705 3, RFC 9449 7).
        5. Decide: an alternative whose schemes are all verified, each with the scopes of its own credential, makes the
           principal. If several are, the one with the lowest ``_rank`` does. A scheme that cannot be verified
           now matters only if no other alternative does. The credentials that only skills demand are verified in steps
           1 to 4, and kept for ``check_skill``.
        """
        lines = self._lines.find(scope["headers"])
        carried = self._collect(lines, scope)  # 1
        if isinstance(carried, Rejected):
            return carried
        if not carried:
            return self._without_credentials(lines, scope)
        CLIENT.set(scope.get("client"))  # for the queues of verifiers
        begun = 0.0 if seconds is None else perf_counter()
        try:
            verifying = self._verify_guesses(carried, scope, now) if self._may_be_guessed else _verify(carried, now)
            evidence = await verifying  # 2
        except TooManyRequestsError as error:
            return Rejected(error)
        finally:
            if seconds is not None:
                seconds.append(perf_counter() - begun)
        if evidence.rejected and (rejected := await self._reject_invalid(evidence, carried, scope)):  # 3
            return rejected
        if evidence.is_bound or evidence.dpop_token:
            rejection = await self._key_without_proof(evidence, lines.get(_PROOF, _NO_LINES), scope, now)  # 4
            if rejection is not None:
                return rejection
        return self._decide(evidence, lines, scope)  # 5

    async def recheck(self, scope: Any, caller: Principal | Anonymous, now: float) -> Rejected | None:
        """The rejection of a caller whose answer still runs, and who would not be admitted now; else None.

        ``scope`` is the request with its credentials. Nothing is counted, and proofs of keys are not verified again.
        """
        known = {**dict(caller.identities), **dict(caller.for_skills)}
        for name, identity in known.items():
            if not now < identity.expires_at:
                why = f"the credential of {name[:64]!a} expired while the answer ran"
                return Rejected(InvalidCredentialsError(why), name, caller=caller)
        carried = self._collect(self._lines.find(scope["headers"]), scope)
        if isinstance(carried, Rejected):
            return carried
        CLIENT.set(scope.get("client"))  # for the queues of verifiers
        evidence = await _verify([each for each in carried if each.scheme.name in known], now, known)
        for name in known:
            if error := evidence.rejected.get(name) or evidence.undecided.get(name):
                return Rejected(error, name, caller=caller)
        alternatives = self._config.alternatives
        is_lacking = caller.identities and not _satisfied(alternatives, evidence.identities)
        return self._reject_unsatisfied(alternatives, evidence, "the card") if is_lacking else None

    def outages(self) -> tuple[dict[str, str], bool]:
        """By the names of schemes, why their credentials cannot be verified now, as far as is known without a wait; and
        whether the card admits a caller all the same."""
        proofs = outage_of(self.dpop)
        every = {name: outage_of(each.verifier) or (each.takes_dpop and proofs) for name, each in self._schemes.items()}
        lost = {name: why for name, why in every.items() if why}
        needed = ([name for name, _ in alternative.schemes] for alternative in self._config.alternatives)
        return lost, self._config.admits_anonymous or any(lost.keys().isdisjoint(names) for names in needed)

    async def aclose(self) -> None:
        """Close the connections of all stores to the running event loop. A store that is used again opens new ones."""
        parts: list[Any] = [*(scheme.verifier for scheme in self._schemes.values()), self.dpop, self._throttle]
        for part in parts:  # which grows meanwhile
            parts += (each for each in getattr(part, "parts", ()) if each not in parts)
            if isinstance(part, Pooled):
                await part.aclose()

    def subject_token(self, scope: Any, caller: Principal | Anonymous) -> SubjectToken | None:
        """The access token that authenticated ``caller`` in this request; None if the caller used none.

        Schemes of several issuers share one place, so a caller has at most one token.
        """
        lines = self._lines.find(scope["headers"])
        for name, identity in caller.identities if isinstance(caller, Principal) else ():
            scheme = self._schemes[name]
            if scheme.is_for_access_tokens:
                # Behind "#" stands the claim that names the identity, if it is not sub.
                issuer, _, _ = identity.issuer.partition("#")
                subject, expires_at, scopes = identity.subject, identity.expires_at, identity.scopes
                for place, _ in scheme.places:
                    text = place.take(lines.get(scheme.header, _NO_LINES), scope)
                    if isinstance(text, str):
                        return SubjectToken(text, issuer=issuer, subject=subject, expires_at=expires_at, scopes=scopes)
        return None

    def check_skill(self, skill: str, caller: Principal | Anonymous) -> Rejected | None:
        """The rejection of a caller who does not satisfy the requirements of a skill of the card, by its id."""
        demanded = self._config.skills.get(skill)
        if demanded is None:
            return Rejected(AuthorizationError(f"the card has no skill {skill[:64]!a}"), caller=caller)
        identities = {**dict(caller.identities), **dict(caller.for_skills)}
        if not demanded or _satisfied(demanded, identities):
            return None
        evidence = _Evidence(identities, dict(caller.unverified))
        rejected = self._reject_unsatisfied(demanded, evidence, f"the skill {skill[:64]!a}")
        by_dpop = any(each.bound_to is not None and each.bound_to.jkt is not None for each in identities.values())
        return rejected._replace(by_dpop=by_dpop, caller=caller, demanded=demanded)

    # 1

    def _collect(self, lines: dict[bytes, Lines], scope: Any) -> list[_Carried] | Rejected:
        carried = []
        for scheme in self._config.schemes:
            found = lines.get(scheme.header, _NO_LINES)
            if found is _NO_LINES and scheme.header:
                continue
            for place, by_dpop in scheme.places:
                try:
                    credential = place.take(found, scope)
                except InvalidCredentialsError as error:
                    return Rejected(error, scheme.name)
                if credential is not None:
                    carried.append(_Carried(scheme, credential, by_dpop))
                    break
        return carried

    def _without_credentials(
        self, lines: dict[bytes, Lines], scope: Any, read: Iterable[bytes] = ()
    ) -> Anonymous | Rejected:
        """The answer to a request without a credential of the card. ``read`` are the headers of those for skills."""
        # A proof belongs to a token, which is missing.
        if self._config.admits_anonymous and {b"authorization", _PROOF}.intersection(lines).issubset(read):
            try:
                taken = (place.take(lines.get(place.header or b"", []), scope) for place in self._config.unused)
                if all(credential is None for credential in taken):
                    return Anonymous()
            except InvalidCredentialsError as error:
                return Rejected(error)
        came = lines.get(b"authorization", _NO_LINES)
        by_dpop = self.dpop is None and any(line and line.lower().startswith(b"dpop ") for line in came)
        hint = "; to accept DPoP, pass dpop=DPoP(url='https://agent.example')" if by_dpop else ""
        expected = ", ".join(f"{scheme.name[:64]} ({scheme.place})" for scheme in self._config.schemes[:_SHOWN])
        why = f"no credential for any scheme of the card; expected: {expected}{hint}"
        return Rejected(MissingCredentialsError(why))

    # 2

    async def _verify_guesses(self, carried: list[_Carried], scope: Any, now: float) -> _Evidence:
        """As ``_verify``, and count failures. TooManyRequestsError: too many failed before."""
        guesses = [each for each in carried if self._is_guess(each, scope, now)]
        guessed = self._names(guesses)
        end = await self._throttle.begin(scope, guessed) if guessed else None
        try:
            try:
                evidence = await _verify(carried, now)
            except BaseException:
                # A client that disconnects before the outcome has also caused a password hash.
                if guessed:
                    await self._throttle.count_failure(scope, guessed)
                raise
            if evidence.failed:
                evidence.too_many = await self._count(evidence, carried, scope)
            right = [each for each in guesses if each.scheme.name in evidence.identities]
            for each in right:
                self._throttle.note_valid(scope, each.scheme.name, each.credential)
            if named := self._names(right):
                await self._throttle.clear(scope, named)
        finally:
            if end is not None:
                end()
        return evidence

    # 3

    async def _count(self, evidence: _Evidence, carried: list[_Carried], scope: Any) -> TooManyRequestsError | None:
        """Count a request with rejected credentials; returns the error if it exceeds a limit.

        If schemes share a place, one verifier that accepts is enough. An unavailable verifier is not, because its
        outage would hide the failures of the others.
        """
        accepted = {self.place(name) for name in evidence.identities}
        failed = self._names(
            each for each in carried if each.scheme.name in evidence.failed and each.scheme.place not in accepted
        )
        return await self._throttle.count_failure(scope, failed) if failed else None

    def _is_guess(self, carried: _Carried, scope: Any, now: float) -> bool:
        """Whether the credential can be guessed, and was not verified for this peer a short while ago."""
        scheme, credential, _ = carried
        if scheme.is_remembered is None:
            return False
        # The peer comes first: what is cached for other peers changes no time that an attacker can measure.
        return not (self._throttle.knows(scope, scheme.name, credential) and scheme.is_remembered(credential, now))

    def _names(self, carried: Iterable[_Carried]) -> set[str]:
        """The names to count these credentials by; "" for one without a name."""
        named = [(scheme, scheme.name_of(credential)) for scheme, credential, _ in carried if scheme.name_of]
        return {name and f"{self._counted_as[scheme.name]!r} {name}" for scheme, name in named}

    async def _reject_invalid(self, evidence: _Evidence, carried: list[_Carried], scope: Any) -> Rejected | None:
        """The rejection of a credential that no verifier accepts, or the rejection for too many failures.

        Schemes may share a place (two issuers of bearer tokens). Its credential is valid if one verifier accepts it;
        else the error comes from the verifier for its issuer.
        """
        open_places = {self.place(name) for names in (evidence.identities, evidence.undecided) for name in names}
        invalid = [
            Rejected(error, name, self._is_by_dpop(name, evidence))
            for name, error in evidence.rejected.items()
            if self.place(name) not in open_places
        ]
        too_many = evidence.too_many if self._may_be_guessed else await self._count(evidence, carried, scope)
        if invalid and too_many is not None:
            return Rejected(too_many)
        return min(invalid, key=lambda each: isinstance(each.error, UnrecognizedCredentialsError), default=None)

    def _is_by_dpop(self, name: str, evidence: _Evidence) -> bool:
        return bool(evidence.dpop_token) and self.takes_dpop(name)

    # 4

    async def _key_without_proof(self, evidence: _Evidence, proofs: Lines, scope: Any, now: float) -> Rejected | None:
        """The rejection of a request that does not prove every key that its credentials are bound to.

        ``proofs`` are the lines of the header DPoP.
        """
        demanded_by: dict[str, str] = {}  # thumbprints of keys of proofs, with the scheme whose token demands one
        for name, identity in evidence.identities.items():
            by_dpop, binding = self._is_by_dpop(name, evidence), identity.bound_to
            why = _binding_mismatch(identity, by_dpop, scope, takes_dpop=self.dpop is not None)
            if why:
                return Rejected(InvalidCredentialsError(why), name, by_dpop)
            if binding is not None and binding.jkt is not None:
                demanded_by[binding.jkt] = name
        if not demanded_by:
            return None
        (jkt, name), *others = demanded_by.items()
        try:
            if others or self.dpop is None:
                raise InvalidCredentialsError(
                    "the credentials are bound to several keys, and a request has one DPoP proof"
                )
            await self.dpop.check(proofs, scope, token=evidence.dpop_token, jkt=jkt, now=now)
        except InvalidCredentialsError as error:
            return Rejected(error, name, by_dpop=True)
        except (TooManyRequestsError, KeySourceUnavailableError) as error:
            return Rejected(error)
        return None

    # 5

    def _decide(self, evidence: _Evidence, lines: dict[bytes, Lines], scope: Any) -> Principal | Anonymous | Rejected:
        """The caller, by the alternatives that are satisfied; else the rejection."""
        identities, alternatives = evidence.identities, self._config.alternatives
        satisfied = _satisfied(alternatives, identities)
        if satisfied:
            caller = self._caller_by(satisfied, identities)
            return replace(caller, unverified=(*evidence.undecided.items(),)) if evidence.undecided else caller
        names = {*identities, *evidence.undecided}
        if self._config.admits_anonymous and self._card_schemes.isdisjoint(names):
            read = {self._schemes[name].header for name in names} | ({_PROOF} if evidence.dpop_token else set())
            found = self._without_credentials(lines, scope, read)
            if isinstance(found, Rejected):
                return found
            return Anonymous(for_skills=(*identities.items(),), unverified=(*evidence.undecided.items(),))
        return self._reject_unsatisfied(alternatives, evidence, "the card")

    def _reject_unsatisfied(self, alternatives: tuple[Alternative, ...], evidence: _Evidence, what: str) -> Rejected:
        """The rejection of credentials that satisfy none of the alternatives, which ``what`` demands."""
        identities = evidence.identities
        for alternative in alternatives:
            if (unknown := _find_outage(alternative, evidence)) is not None:
                return Rejected(unknown)
        met = [each for each in alternatives if all(name in identities for name, _ in each.schemes)]
        if met:
            callers = [tuple((name, identities[name]) for name, _ in each.schemes) for each in met]
            caller = self._caller_by(callers, identities)
            return Rejected(_lacking_scopes(identities, met, what), by_dpop=bool(evidence.dpop_token), caller=caller)
        missing = [
            " and ".join([f"{name[:64]!r}" for name, _ in alternative.schemes if name not in identities][:_SHOWN])
            for alternative in alternatives[:_SHOWN]
        ]
        return Rejected(
            MissingCredentialsError(
                f"the credentials of the request satisfy no alternative of {what}; missing: {', or '.join(missing)}"
            )
        )

    def _caller_by(self, alternatives: Sequence[_Verified], identities: Mapping[str, Identity]) -> Principal:
        """The caller by one of these alternatives; neither the card's order nor its names of schemes decide about the
        id."""
        chosen = alternatives[0] if len(alternatives) == 1 else min(alternatives, key=self._rank)
        if len(chosen) == len(identities) or not self._skill_schemes:
            return Principal(identities=chosen)
        for_skills = [item for item in identities.items() if item[0] in self._skill_schemes and item not in chosen]
        return Principal(identities=chosen, for_skills=tuple(for_skills))

    def _rank(self, alternative: _Verified) -> tuple[int, int, str]:
        """The number of owners; the number of client certificates, because a gateway or a mesh shows its own with the
        requests of all its users; the id."""
        owners = Principal(identities=alternative).id
        shown = sum(isinstance(self.place(name), ClientCertificate) for name, _ in alternative)
        return owners.count(","), shown, owners  # a comma stands between two owners


def _satisfied(alternatives: Iterable[Alternative], identities: Mapping[str, Identity]) -> list[_Verified]:
    """The identities of each alternative that is satisfied: by all its schemes, each with its own scopes."""
    found: list[_Verified] = []
    for alternative in alternatives:
        verified = []
        for name, scopes in alternative.schemes:
            identity = identities.get(name)
            if identity is None or not scopes <= identity.scopes:
                break
            verified.append((name, identity))
        else:
            found.append(tuple(verified))
    return found


def _at_once(config: GuardConfig) -> dict[bytes, tuple[ConfiguredScheme, Callable[[Any, float], Identity | None]]]:
    """Header -> the scheme of its credential and the cache of its verifier.

    Only headers of one scheme, whose credentials cannot be guessed: guesses are counted. Empty if a credential may be
    outside of headers: every request has to be searched then.
    """
    if not all(scheme.header for scheme in config.schemes):
        return {}
    headers = [scheme.header for scheme in config.schemes]
    return {
        scheme.header: (scheme, scheme.remembered)
        for scheme in config.schemes
        if scheme.remembered is not None and scheme.is_remembered is None and headers.count(scheme.header) == 1
    }


async def _verify(carried: Iterable[_Carried], now: float, known: Mapping[str, Identity] = _NO_ONE) -> _Evidence:
    """``known``: the identities that were found before."""
    evidence = _Evidence()
    for scheme, credential, by_dpop in carried:
        if by_dpop:
            evidence.dpop_token = credential
        try:
            identity = await scheme.verify(credential, now)
            # A user's verifier may return anything.
            if not isinstance(identity, Identity):
                raise TypeError(f"the verifier of {scheme.name!r} returned {type(identity).__name__}, not an Identity")
            if not now < identity.expires_at:
                raise InvalidCredentialsError(f"the credential of {scheme.name!r} has expired")
        except UnchangedError:
            evidence.identities[scheme.name] = known[scheme.name]
        except InvalidCredentialsError as error:
            evidence.rejected[scheme.name] = error
            evidence.failed.add(scheme.name)
        except KeySourceUnavailableError as error:
            evidence.undecided[scheme.name] = error
            if error.counts_as_failure:
                evidence.failed.add(scheme.name)
        else:
            evidence.identities[scheme.name] = identity
            evidence.is_bound |= identity.bound_to is not None
    return evidence


def _binding_mismatch(identity: Identity, by_dpop: bool, scope: Any, *, takes_dpop: bool) -> str:
    """Why the header or the certificate of a request does not match the binding; "" if it does. It checks no proof."""
    binding = identity.bound_to
    jkt = None if binding is None else binding.jkt
    if jkt is not None and not by_dpop:
        if takes_dpop:
            return "a token is bound to a key, and did not come as Authorization: DPoP with a proof"
        return (
            "a token is bound to a key, and proofs of keys are not accepted; to accept them, pass "
            "dpop=DPoP(url='https://agent.example')"
        )
    if jkt is None and by_dpop:
        return "a token came as Authorization: DPoP, and is not bound to a key"
    x5t_s256 = None if binding is None else binding.x5t_s256
    if x5t_s256 is None:
        return ""
    certificates = certificates_of(scope)  # RFC 8705 3
    if not certificates:
        fix = "" if CERTIFICATES in scope else "; to accept certificates, pass client_certificates=FromTls()"
        return f"a token is bound to a certificate, and the request has no certificate{fix}"
    if base64url.encode(hashlib.sha256(certificates[0]).digest()) != x5t_s256:
        return "a token is bound to another certificate"
    return ""


def _find_outage(alternative: Alternative, evidence: _Evidence) -> KeySourceUnavailableError | None:
    """The outage that prevents the alternative from being satisfied; None if something else is missing, too."""
    unknown = None
    for name, scopes in alternative.schemes:
        identity = evidence.identities.get(name)
        if name in evidence.undecided:
            unknown = unknown or evidence.undecided[name]
        elif identity is None or not scopes <= identity.scopes:
            return None
    return unknown


def _lacking_scopes(identities: Mapping[str, Identity], met: Iterable[Alternative], what: str) -> AuthorizationError:
    """The rejection of an authenticated caller; ``met`` are the alternatives whose credentials came."""
    wanting: set[str] = set()
    lacking: dict[str, set[str]] = {}
    for alternative in met:
        for name, scopes in alternative.schemes:
            wanting |= scopes
            if not scopes <= identities[name].scopes:
                lacking.setdefault(name, set()).update(scopes)
    missing = {name: scopes - identities[name].scopes for name, scopes in lacking.items()}
    needed = [
        f"{name[:64]!a} needs {' '.join(sorted(scopes)[:_SHOWN])}" for name, scopes in [*missing.items()][:_SHOWN]
    ]
    hints = [  # for operators: claims that have the scopes, and that ``scopes_from`` does not name
        f"for {name!r}, the claim {where[0]!r} has some: write scopes_from={where[0]!r}"
        for name, scopes in missing.items()
        if (where := candidates(identities[name].claims, scopes))
    ]
    return AuthorizationError(
        f"the credentials lack scopes that {what} demands: {'; '.join([*needed, *hints])}",
        tuple(sorted(wanting)),
        {name: tuple(sorted(scopes)) for name, scopes in lacking.items()},
    )
