"""Verify a card: the caller gets exactly what was signed.

The steps, numbered as in ``verify_card``:

1. The gate: strict JSON, and a card that every reader reads alike.
2. Every signature by itself, whatever the order; none can stop another. Companions never count. Each trusted key that
   the header names is tried: its origins, validity, revocation and algorithm, ``exp``, ``nbf`` and ``iat``, then the
   bytes. A marked signature is checked in its own form, an unmarked one in every form, weakest first. The hosts of all
   interfaces of what was signed are hosts that the key may speak for. An interface of another scheme than those of
   ``interface_host`` is rejected; one that is not encrypted causes a warning.
3. Whole or not: a proof is whole if the mark, the trust entry, or the signed bytes show it. Any other proof counts only
   if the trust entry names an SDK that signs so.
4. Policies, of the caller and of the trust store for the hosts of the card: enough parties.
5. The result is what all proofs that count have signed. A proof that is not whole proves neither the presence nor the
   absence of what its form drops: members of the served card that are not in it are refused, and the rest is named.

Not here: whether the requirements of the card are satisfied or wise, fetching of cards and keys, memory of earlier
cards. Source: A2A 8.4.3, RFC 7515 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

from a2a_trust import strict_json
from a2a_trust.card.ambiguity import check_card, is_simple
from a2a_trust.card.view import interface_urls, is_legacy
from a2a_trust.errors import (
    ConfigurationError,
    FailureReason,
    InvalidSignatureError,
    MalformedError,
    PolicyNotMetError,
    SignatureFailure,
    UncoveredFieldsError,
    verification_error,
)
from a2a_trust.keys.algorithms import algorithm_of
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.jws import verify_jws
from a2a_trust.keys.origins import (
    Origins,
    UnsafeAnyOrigin,
    host_of,
    interface_host,
    interface_scheme,
    is_unencrypted,
)
from a2a_trust.keys.policy import AnyKey, Policy, Threshold, is_thumbprint
from a2a_trust.keys.trust import SigningTool, TrustedKey, TrustStore
from a2a_trust.signing.forms import UNPROVEN_BY_PRUNING, Form, Projection, is_within, project, shown
from a2a_trust.signing.signature import Signature, parse_signature, signature_entries
from a2a_trust.strict_json import JSONObject
from a2a_trust.strict_json.jcs import canonicalize_received

__all__ = ["Coverage", "SignedPartOnly", "VerifiedCard", "WholeCard", "verify_card"]

CLOCK_SKEW: Final = 60.0
"""How far in the future a protected ``iat`` or ``nbf`` may lie, in seconds."""


@dataclass(frozen=True, slots=True)
class WholeCard:
    """Every member of the served card must be in what was signed; the rule unless another is given."""


@dataclass(frozen=True, slots=True)
class SignedPartOnly:
    """Return only what was signed, and drop the other members of the served card.

    This is for cards that SDKs signed in a form that drops members, by keys whose trust entry names that SDK. What is
    absent from ``VerifiedCard.card`` may have been dropped by the signer or removed later, security requirements too.
    """


Coverage: TypeAlias = WholeCard | SignedPartOnly


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCard:
    """What a signature has proven about a card.

    ``payload`` are the bytes that were signed, ``card`` is what they say. ``key`` signed them in ``form``; ``keys``
    are all keys that the policy counted. ``dropped`` are JSON pointers of members of the served card that are not in
    ``card`` (the first 100). ``unproven`` is empty if the whole card is proven. Otherwise it has pointers (``*`` stands
    for every index) of members that the form could have hidden: code that chooses credentials takes their absence as
    unknown, never as "no requirement". ``warnings`` are sentences for people. The proof holds from ``proven_from``
    until just before ``proven_until`` (seconds since the epoch).
    """

    payload: bytes
    key: PublicKey
    keys: tuple[PublicKey, ...]
    form: Form
    origin: str | None
    """The host that the card is bound to, None when the proof is not bound to one."""
    dropped: tuple[str, ...]
    unproven: tuple[str, ...]
    warnings: tuple[str, ...]
    ignored: tuple[SignatureFailure, ...]
    """The other signatures of the card that do not count, and why."""
    proven_from: float
    proven_until: float
    issued: float | None
    """The earliest protected ``iat`` of the signatures by ``keys``; None when one of them has none."""
    on_first_use: bool
    """Whether nobody vouches for one of ``keys`` but the agent's own origin."""

    @property
    def card(self) -> JSONObject:
        """The card that was signed, parsed anew from ``payload``: yours to change."""
        card: JSONObject = strict_json.parse_printed(self.payload)
        return card


class _Proof(NamedTuple):
    signature: int
    """The place of the signature in the card: one signature is by one party, whatever keys it verifies with."""
    trusted: TrustedKey
    projection: Projection
    is_whole: bool
    proven_from: float
    proven_until: float
    issued: float


class _RefusedError(Exception):
    def __init__(self, reason: FailureReason, detail: str) -> None:
        self.reason, self.detail = reason, detail


def verify_card(
    document: bytes | Mapping[str, Any],
    trust: TrustStore,
    *,
    origin: str | UnsafeAnyOrigin,
    now: float | datetime,
    policy: Policy = AnyKey(),  # noqa: B008  frozen and without fields
    coverage: Coverage = WholeCard(),
) -> VerifiedCard:
    """Prove a card with the keys of ``trust``, or raise.

    ``document`` is the card as it was served: bytes, or an object that a JSON parser made of them (then members that
    were there twice are already lost). ``origin`` is the URL or the host that the card was asked from; ``now`` is the
    moment that counts, aware datetime or seconds since the epoch. ``policy`` is demanded beside what the store demands
    of the card's hosts.

    MalformedError: the document is not a card that every reader reads alike. UnsignedCardError, UntrustedCardError,
    UncoveredFieldsError, CardVerificationError: it is not proven; ``failures`` tells why, signature by signature.
    ConfigurationError: the arguments. Source: A2A 8.4.3.
    """
    _check_arguments(trust, policy, coverage)
    moment = seconds(now)
    host = None if isinstance(origin, UnsafeAnyOrigin) else _host_asked(origin)
    _check_parties(policy, trust)
    # 1. The gate.
    forms = _received(document if isinstance(document, bytes) else _printed(document))
    # 2. and 3. Every signature by itself.
    proofs, failures = _judged(forms, trust, host, moment)
    # 4. Policies.
    counted = _counted(proofs, policy, failures)
    for demanded in _policies(trust, host, forms.card) if trust.policies else ():
        counted += [proof for proof in _counted(proofs, demanded, failures) if proof not in counted]
    # 5. What all of them signed.
    return _result(counted, failures, host, coverage)


def _result(
    counted: list[_Proof], failures: tuple[SignatureFailure, ...], host: str | None, coverage: Coverage
) -> VerifiedCard:
    """What the proofs that count have proven together; UncoveredFieldsError when that is less than was served."""
    common, is_whole = _common(counted, failures), all(proof.is_whole for proof in counted)
    projection = common.projection
    if not is_whole and projection.uncovered and not isinstance(coverage, SignedPartOnly):
        raise UncoveredFieldsError(
            f"members of the card are not in what was signed, in the form {projection.form}: "
            f"{shown(projection.uncovered)}",
            projection.uncovered,
            failures,
        )
    issued = min([proof.issued for proof in counted])
    bound = host is not None and not any(isinstance(proof.trusted.origins, UnsafeAnyOrigin) for proof in counted)
    return VerifiedCard(
        payload=projection.payload,
        key=common.trusted.key,
        keys=tuple([proof.trusted.key for proof in sorted(counted, key=_openness)]),
        form=projection.form,
        origin=host if bound else None,
        dropped=projection.dropped,
        unproven=() if is_whole else UNPROVEN_BY_PRUNING,
        warnings=_warnings(projection, is_whole=is_whole, bound=bound),
        ignored=failures,
        proven_from=max([proof.proven_from for proof in counted]),
        proven_until=min([proof.proven_until for proof in counted]),
        issued=None if issued == -inf else issued,
        on_first_use=any(proof.trusted.on_first_use for proof in counted),
    )


def _common(counted: list[_Proof], failures: tuple[SignatureFailure, ...]) -> _Proof:
    """The proof whose members every other proof that counts has signed, too; PolicyNotMetError when there is none.

    Two pruned forms of one card need not contain each other, so how much each drops decides nothing.
    """
    for proof in sorted(counted, key=_openness, reverse=True):
        if all(
            proof.projection.payload == other.projection.payload
            or is_within(proof.projection.members, other.projection.members)
            for other in counted
            if other is not proof
        ):
            return proof
    raise PolicyNotMetError("the parties that the policy demands have signed different parts of this card", failures)


def _check_parties(policy: Policy, trust: TrustStore) -> None:
    """Refuse a policy that names a party which cannot be one: a kid, or a name that no trust entry has."""
    for party in policy.parties if isinstance(policy, Threshold) else ():
        if party not in trust.names and not is_thumbprint(party):
            raise ConfigurationError(
                f"policy: no trust entry has the name {ascii(party)[:80]}; a policy names trust entries "
                '(TrustedKey(name="…"), name = "…" in a trust file) or keys by thumbprint, never by kid'
            )


def _received(document: bytes) -> _Forms:
    """The card in a document, read strictly and through the gate."""
    card, text = strict_json.read_members(document, what="card")
    if is_simple(card):
        return _Forms(card, single=True, plain=True)
    card, plain = strict_json.read_numbers(document, card, text, what="card")
    return _Forms(card, single=check_card(card), plain=plain)


def _judged(
    forms: _Forms, trust: TrustStore, host: str | None, now: float
) -> tuple[list[_Proof], tuple[SignatureFailure, ...]]:
    """Steps 2 and 3: the proofs that the signatures give, and why the others give none."""
    proofs: list[_Proof] = []
    failures: list[SignatureFailure] = []
    for index, entry in enumerate(signature_entries(forms.card)):
        kid = None
        try:
            signature = parse_signature(entry)
            kid = signature.kid
            proofs += _judge(index, signature, trust, host, now, forms)
        except MalformedError as error:
            failures.append(_failure(index, kid, FailureReason.MALFORMED, str(error)))
        except _RefusedError as refusal:
            failures.append(_failure(index, kid, refusal.reason, refusal.detail))
    return proofs, tuple(failures)


def _judge(
    index: int, signature: Signature, trust: TrustStore, host: str | None, now: float, forms: _Forms
) -> list[_Proof]:
    """The proofs that one signature gives, one for each trust entry of its key; _RefusedError when it gives none.

    Several parties may have published keys under one kid. The signature says which of these keys made it.
    """
    if signature.is_companion:
        raise _RefusedError(FailureReason.COMPANION, "a companion for verifiers of a weaker form; it never counts here")
    proofs: list[_Proof] = []
    refusals: list[tuple[FailureReason, str]] = []  # not the exceptions, whose frames would hold the card
    for trusted in _trusted_keys(signature, trust, host):
        try:
            proofs.append(_prove(index, signature, trusted, now, forms))
        except _RefusedError as refusal:
            refusals.append((refusal.reason, refusal.detail))
    if not proofs:
        raise _RefusedError(*min(refusals, key=lambda refusal: _LEAST_TELLING.get(refusal[0], 1)))
    return proofs


#: Of several refusals that of the key which made the signature is told, not those of others under its kid.
_LEAST_TELLING: Final = {FailureReason.PARTIAL: 0, FailureReason.BAD_SIGNATURE: 2}


def _prove(index: int, signature: Signature, trusted: TrustedKey, now: float, forms: _Forms) -> _Proof:
    """The proof that a signature gives by one trusted key, or _RefusedError."""
    if trusted.revoked:
        raise _RefusedError(FailureReason.REVOKED_KEY, "the key is revoked")
    if not trusted.not_before <= now < trusted.not_after:
        raise _RefusedError(FailureReason.KEY_NOT_VALID_NOW, f"the key is not valid now: {trusted.state(now)}")
    issued, expires = signature.header.get("iat", -inf), signature.header.get("exp", inf)
    starts = max(issued, signature.header.get("nbf", -inf))
    if now >= expires:
        raise _RefusedError(FailureReason.EXPIRED, "the signature has expired (protected exp)")
    if now < starts - CLOCK_SKEW:
        raise _RefusedError(FailureReason.NOT_YET_VALID, "the signature begins in the future (protected iat or nbf)")
    algorithm = algorithm_of(signature.alg)
    if algorithm is None or algorithm.name != trusted.key.alg:
        raise _RefusedError(FailureReason.WRONG_ALGORITHM, f"the header's alg is not {trusted.key.alg} of the key")
    projection, is_whole = _weigh(forms.signed_by(signature, trusted.key), signature.mark, trusted.signer)
    for pointer, url in interface_urls(projection.members):
        _check_interface(pointer, url, trusted.origins)
    return _Proof(
        signature=index,
        trusted=trusted,
        projection=projection,
        is_whole=is_whole,
        proven_from=max(trusted.not_before, starts - CLOCK_SKEW),
        proven_until=min(trusted.not_after, expires),
        issued=issued,  # without iat as old as can be: choosing that signature among several gains nothing
    )


_FORMS_OF: Final[Mapping[SigningTool | None, tuple[Form, ...]]] = {
    SigningTool.A2A_PYTHON: (Form.V0_3_PYTHON, Form.PRUNED_LEGACY, Form.PRUNED),
    SigningTool.A2A_JS: (Form.PRUNED,),
}
"""The pruned forms of each SDK, weakest first."""


def _weigh(fits: Mapping[Form, Projection], mark: Form | None, signer: SigningTool | None) -> tuple[Projection, bool]:
    """What was signed, and whether it is the whole card; _RefusedError when the trust entry does not allow a part.

    ``fits`` are the forms of the card that the signature fits.
    """
    if mark is not None:
        return fits[mark], True
    full = fits.get(Form.SERVED) or fits.get(Form.SPEC)
    if full is not None and (
        signer is SigningTool.WHOLE or (signer is not SigningTool.A2A_TRUST and full.shows_whole())
    ):
        return full, True
    for form in _FORMS_OF.get(signer, ()):
        if form in fits:
            return fits[form], False
    if full is not None and signer in _FORMS_OF:
        # A newer SDK may know members that are unknown here, and prune the others all the same.
        return replace(full, form=Form.PRUNED), False
    raise _RefusedError(FailureReason.PARTIAL, _why_partial(fits, signer))


def _why_partial(fits: Mapping[Form, Projection], signer: SigningTool | None) -> str:
    if signer is SigningTool.A2A_TRUST:
        return 'a good signature without our mark; the key is trusted for marked ones only (signer "a2a-trust")'
    if signer is not None:
        return f"a good signature in the form {next(iter(fits))}, which is not one of its signer {signer}"
    return (
        "a good signature, but nothing shows that it covers the whole card: what SDKs drop before they sign can be "
        'removed unnoticed. Accept that by the signer of the trust entry: "a2a-python" or "a2a-js"; or write "whole" '
        "if the key's owner signs complete cards"
    )


def _trusted_keys(signature: Signature, trust: TrustStore, host: str | None) -> tuple[TrustedKey, ...]:
    """The trusted keys that the header names for this host, at least one. ``jku`` decides nothing."""
    algorithm = algorithm_of(signature.alg)
    if algorithm is None:
        # The name of a trusted key with an algorithm that no key is for is an attack; any other is a stranger's.
        if trust.knows(signature.kid):
            raise _RefusedError(FailureReason.WRONG_ALGORITHM, "the header's alg is not one that cards are signed with")
        raise _RefusedError(FailureReason.UNKNOWN_KEY, "no trusted key has this kid")
    kty = algorithm.kty
    entries = trust.named(signature.kid, kty)
    if not entries:
        raise _RefusedError(FailureReason.UNKNOWN_KEY, f"no trusted {kty} key has this kid")
    if host is not None:
        entries = tuple([entry for entry in entries if entry.origins.covers(host)])
        if not entries:
            raise _RefusedError(FailureReason.WRONG_ORIGIN, f"the key is not trusted for {host}")
    return entries


def _check_interface(pointer: str, url: str, origins: Origins | UnsafeAnyOrigin) -> None:
    try:
        # A key for any host needs no host to be compared with, but no name server in its place either.
        host = interface_scheme(url) if isinstance(origins, UnsafeAnyOrigin) else interface_host(url)
    except MalformedError as error:
        raise _RefusedError(FailureReason.WRONG_ORIGIN, f"{pointer}: {error}") from None
    if not origins.covers(host):
        raise _RefusedError(FailureReason.WRONG_ORIGIN, f"{pointer}: the key is not trusted for the host {host}")


class _Forms:
    """The forms of one card, made when they are first needed."""

    __slots__ = ("_fits", "_made", "_plain", "_single", "card")

    def __init__(self, card: JSONObject, *, single: bool, plain: bool) -> None:
        self.card = card
        self._single = single
        self._plain = plain
        self._made: dict[Form, Projection] = {}
        #: Several entries may trust one key: its signature is checked once.
        self._fits: dict[tuple[str, str, str], dict[Form, Projection]] = {}

    def signed_by(self, signature: Signature, key: PublicKey) -> dict[Form, Projection]:
        """The forms of the card that the key signed: that of the mark, or all that have the bytes of the weakest.

        The weakest first, because a signer that drops members may have dropped some before the card was served: then
        the served card is exactly what was signed, and nothing shows it.
        """
        asked = (signature.protected, signature.signature, key.thumbprint)
        fits = self._fits.get(asked)
        if fits is None:
            fits = self._fits[asked] = self._fitting(signature, key)
        if not fits:
            raise _RefusedError(
                FailureReason.BAD_SIGNATURE,
                "not by this key over this card"
                + (" in any form" if signature.mark is None else f" in the form {signature.mark}, which it names")
                + "; the card or the signature was changed",
            )
        return fits

    def _fitting(self, signature: Signature, key: PublicKey) -> dict[Form, Projection]:
        forms = _WEAKEST_FIRST if signature.mark is None else (signature.mark,)
        tried: list[bytes] = []
        for form in forms:
            if form is Form.V0_3_PYTHON and not is_legacy(self.card):
                continue
            payload = self._project(form).payload
            if payload in tried:
                continue
            tried.append(payload)
            if _is_by(key, signature, payload):
                return {each: self._project(each) for each in forms if self._project(each).payload == payload}
        return {}

    def _project(self, form: Form) -> Projection:
        made = self._made.get(form)
        if made is None:
            if self._single and form in (Form.SPEC, Form.PRUNED):
                # The gate found nothing that any form would drop.
                made = replace(self._project(Form.SERVED), form=form)
            else:
                made = project(self.card, form, plain=self._plain)
            self._made[form] = made
        return made


#: SERVED before SPEC: they prove the same, and where their bytes are equal the plainer name is told.
_WEAKEST_FIRST: Final = (Form.V0_3_PYTHON, Form.PRUNED_LEGACY, Form.PRUNED, Form.SERVED, Form.SPEC)


def _is_by(key: PublicKey, signature: Signature, payload: bytes) -> bool:
    try:
        verify_jws(
            protected=signature.protected,
            payload=payload,
            signature=signature.signature,
            key=key,
            header=signature.unprotected,
        )
    except InvalidSignatureError:
        return False
    return True


def _counted(proofs: list[_Proof], policy: Policy, failures: tuple[SignatureFailure, ...]) -> list[_Proof]:
    """The proofs that the policy counts, fullest coverage first and latest first; raises when they are too few.

    Nobody signs the order of signatures: it must not decide which of them counts, and with it what is remembered.
    """
    best_first = sorted(proofs, key=_preference)
    if isinstance(policy, AnyKey):
        if not best_first:
            raise verification_error("no signature proves this card:", failures)
        return best_first[:1]
    counted = _one_of_each_party(best_first, policy)[: policy.count]
    if len(counted) < policy.count:
        message = f"{len(counted)} of the {policy.count} parties that the policy demands have signed this card:"
        raise PolicyNotMetError(message, failures) if proofs else verification_error(message, failures)
    return counted


def _one_of_each_party(proofs: list[_Proof], policy: Threshold) -> list[_Proof]:
    """As many proofs as can be had of different parties by different keys and signatures, best first.

    A key may stand in the entries of several parties, and several keys may verify one signature: all of these count for
    one party, so that the most parties are satisfied (a maximum matching, by augmenting paths).
    """
    offers: dict[str, list[_Proof]] = {}
    for proof in proofs:
        party = policy.party_of(proof.trusted.key.thumbprint, proof.trusted.name)
        if party is not None:
            offers.setdefault(party, []).append(proof)
    group_of = _groups([proof for offered in offers.values() for proof in offered])
    taken: dict[int, tuple[str, _Proof]] = {}  # group -> the party that it counts for

    def satisfy(party: str, seen: set[int]) -> bool:
        for proof in offers[party]:
            group = group_of[proof.signature]
            if group not in seen:
                seen.add(group)
                if group not in taken or satisfy(taken[group][0], seen):
                    taken[group] = (party, proof)
                    return True
        return False

    for party in offers:
        satisfy(party, set())
    # Keys of one entry are one party, unless the policy names each by thumbprint.
    named = {party for party, proof in taken.values() if party == proof.trusted.key.thumbprint}
    spent = {proof.trusted.name for proof in proofs if proof.trusted.key.thumbprint in named}
    chosen = [proof for party, proof in taken.values() if party in named or party not in spent]
    return sorted(chosen, key=_preference)


def _groups(proofs: list[_Proof]) -> dict[int, int]:
    """For every signature the first of those that are connected with it by a key."""
    first: dict[int, int] = {}
    by_key: dict[str, int] = {}
    for proof in sorted(proofs, key=lambda proof: proof.signature):
        group = first.setdefault(proof.signature, proof.signature)
        other = by_key.setdefault(proof.trusted.key.thumbprint, group)
        if other != group:  # the key has made an earlier signature: both groups are one
            first = {each: other if held == group else held for each, held in first.items()}
            by_key = {each: other if held == group else held for each, held in by_key.items()}
    return first


def _policies(trust: TrustStore, host: str | None, card: JSONObject) -> list[Policy]:
    """What the store demands of a card that was asked from that host and has its interfaces."""
    hosts = set() if host is None else {host}
    try:
        hosts |= {interface_host(url) for _, url in interface_urls(card)}
    except MalformedError:
        return [each.policy for each in trust.policies]  # of a host that nobody can tell: all that is demanded of any
    return [each.policy for each in trust.policies if any(map(each.origins.covers, hosts))]


def _openness(proof: _Proof) -> tuple[bool, int]:
    """How much a proof leaves open: the order in which proofs are preferred."""
    return (not proof.is_whole, len(proof.projection.dropped))


def _preference(proof: _Proof) -> tuple[bool, int, float]:
    return (*_openness(proof), -proof.issued)


def _warnings(projection: Projection, *, is_whole: bool, bound: bool) -> tuple[str, ...]:
    warnings = []
    if not bound:
        warnings.append("origin: not bound; the key may speak for every host, or the host of the card was not given")
    unencrypted = tuple(pointer for pointer, url in interface_urls(projection.members) if is_unencrypted(url))
    if unencrypted:
        warnings.append(
            f"not encrypted: {shown(unencrypted)}; anybody on the way can read and change what is sent there, "
            "credentials too: call an interface whose URL is https, or have the agent served over TLS"
        )
    if not is_whole:
        warnings.append(
            f"signed in the form {projection.form}, which drops members: security requirements and schemes may "
            "have been removed, and nothing shows it"
        )
    return tuple(warnings)


def _failure(index: int, kid: str | None, reason: FailureReason, detail: str) -> SignatureFailure:
    shown = None if kid is None else ascii(kid[:64])[1:-1]
    return SignatureFailure(index=index, kid=shown, reason=reason, detail=detail)


def _printed(document: Mapping[str, Any]) -> bytes:
    """The card as text, so that both ways in meet the same reader; what is not JSON is refused."""
    if not isinstance(document, Mapping):
        raise ConfigurationError(
            "verify_card: the first argument is the card, as the bytes that were served or as a dict, and this is "
            f"{type(document).__name__}; write verify_card(card, trust, origin=…, now=…)"
        )
    return canonicalize_received(dict(document))


def _check_arguments(trust: TrustStore, policy: Policy, coverage: Coverage) -> None:
    if not isinstance(trust, TrustStore):
        raise ConfigurationError(
            f"verify_card: the second argument is a TrustStore, and this is {type(trust).__name__}; "
            "write verify_card(card, trust, …), and of a TrustFile pass trust_file.trust_store()"
        )
    if not isinstance(policy, Policy):
        raise ConfigurationError(
            'policy: write named("bank"), all_of("bank", "auditor") or n_of(2, …), with the names of trust entries'
        )
    if not isinstance(coverage, Coverage):
        raise ConfigurationError("coverage: write WholeCard() or SignedPartOnly(), with parentheses")


def _host_asked(origin: str) -> str:
    try:
        return host_of(origin)
    except (MalformedError, TypeError):
        raise ConfigurationError(
            'origin: write the URL or the host that the card was asked from, as in origin="https://agent.example.com", '
            "or UnsafeAnyOrigin() when that is not known"
        ) from None


def seconds(now: float | datetime) -> float:
    """A moment as seconds since the epoch; ConfigurationError for a datetime that does not know its time zone."""
    if isinstance(now, datetime):
        if now.tzinfo is None:
            raise ConfigurationError("a datetime without time zone; write datetime.now(timezone.utc)")
        return now.timestamp()
    return float(now)
