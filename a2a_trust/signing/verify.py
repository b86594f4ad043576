"""Verify a card: what you get is what was signed.

The steps, numbered as in ``verify_card``:

1. The gate: strict JSON, and a card that every reader reads alike.
2. Signatures: a list, not empty, bounded. Every one is judged alone, whatever the order; none can stop another.
3. One signature: its header, companion or not, a trusted key by ``kid`` and key type, this key's origins, validity,
   revocation and algorithm, ``exp`` and ``iat``, then the bytes of the forms that the key may speak in.
4. Origins: the hosts of all interfaces of what was signed are hosts that the key may speak for.
5. Policies, of the caller and of the trust store for the hosts of the card: enough different keys. What is returned is
   what all of those that count have signed.
6. Coverage: a form that drops members proves neither their absence nor their presence, and says so.

Not here: whether the requirements of the card are satisfied or wise, fetching of cards and keys, memory of earlier
cards. Source: A2A 8.4.3, RFC 7515 5.2.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

from a2a_trust import strict_json
from a2a_trust.card import interface_urls, is_legacy
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
from a2a_trust.keys.origins import Origins, UnsafeAnyOrigin, host_of
from a2a_trust.keys.policy import AnyKey, Policy
from a2a_trust.keys.trust import LOSSLESS_FORMS, Form, TrustedKey, TrustSource, TrustStore
from a2a_trust.signing.forms import UNPROVEN_BY_PRUNING, Projection, project, shown
from a2a_trust.signing.gate import check_card, is_simple
from a2a_trust.signing.jcs import canonicalize_received
from a2a_trust.signing.signature import Signature, parse_signature, signature_entries
from a2a_trust.strict_json import JSONObject

__all__ = ["CardVerifier", "SignedPartOnly", "VerifiedCard", "WholeCard", "verify_card"]

CLOCK_SKEW: Final = 60.0
"""How far in the future a protected ``iat`` may lie, in seconds."""

_REMEMBERED_BYTES: Final = 65_536  # larger documents are verified anew each time: they would fill the memory


@dataclass(frozen=True, slots=True)
class WholeCard:
    """Every member of the served card must be in what was signed; the rule unless another is given."""


@dataclass(frozen=True, slots=True)
class SignedPartOnly:
    """Take what was signed, and leave the other members of the served card away.

    For cards that SDKs signed in a form that drops members: ``VerifiedCard.card`` is free of everything unproven, but
    what is absent from it may only have been dropped, security requirements too.
    """


Coverage: TypeAlias = WholeCard | SignedPartOnly


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCard:
    """What a signature has proven about a card.

    ``payload`` are the bytes that were signed, ``card`` is what they say. ``key`` signed them in ``form``; ``keys``
    are all keys that the policy counted. ``dropped`` are JSON pointers of members of the served card that are not in
    ``card`` (the first 100). ``unproven`` are pointers (``*`` stands for every index) of members that the form could
    have hidden: code that chooses credentials takes their absence as unknown, never as "no requirement". ``warnings``
    are sentences for people. ``proven_until`` is the moment (seconds since the epoch) from which the proof no longer
    holds.
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
    trusted: TrustedKey
    projection: Projection
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
    # 1. The gate.
    if not isinstance(document, bytes):
        document = _printed(document)
    forms = _received(document)
    # 2. Every signature is judged alone.
    proofs: list[_Proof] = []
    failures: list[SignatureFailure] = []
    for index, entry in enumerate(signature_entries(forms.card)):
        kid = None
        try:
            signature = parse_signature(entry)
            kid = signature.kid
            proofs.append(_judge(signature, trust, host, moment, forms))
        except MalformedError as error:
            failures.append(_failure(index, kid, FailureReason.MALFORMED, str(error)))
        except _RefusedError as refusal:
            failures.append(_failure(index, kid, refusal.reason, refusal.detail))
    # 5. Enough different keys, those with the fullest coverage first; what all of them signed is what is proven.
    counted = _counted(proofs, policy, tuple(failures))
    for demanded in _policies(trust, host, forms.card) if trust.policies else ():
        counted += [proof for proof in _counted(proofs, demanded, tuple(failures)) if proof not in counted]
    counted.sort(key=_openness)
    weakest = counted[-1]
    # 6. Coverage.
    projection = weakest.projection
    lossy = projection.form.is_lossy
    if lossy and projection.dropped and not isinstance(coverage, SignedPartOnly):
        raise UncoveredFieldsError(
            f"members of the card are not in what was signed, in the form {projection.form}: "
            f"{shown(projection.dropped)}",
            projection.dropped,
            tuple(failures),
        )
    issued = min([proof.issued for proof in counted])
    bound = host is not None and not [True for proof in counted if isinstance(proof.trusted.origins, UnsafeAnyOrigin)]
    return VerifiedCard(
        payload=projection.payload,
        key=weakest.trusted.key,
        keys=tuple([proof.trusted.key for proof in counted]),
        form=projection.form,
        origin=host if bound else None,
        dropped=projection.dropped,
        unproven=UNPROVEN_BY_PRUNING if lossy else (),
        warnings=_warnings(projection, bound=bound),
        ignored=tuple(failures),
        proven_from=max([proof.proven_from for proof in counted]),
        proven_until=min([proof.proven_until for proof in counted]),
        issued=None if issued == -inf else issued,
        on_first_use=any(proof.trusted.on_first_use for proof in counted),
    )


def _received(document: bytes) -> _Forms:
    """The card in a document, read strictly and through the gate."""
    card, text = strict_json.read_members(document, what="card")
    if is_simple(card):
        return _Forms(card, single=True, plain=True)
    card, plain = strict_json.read_numbers(document, card, text, what="card")
    return _Forms(card, single=check_card(card), plain=plain)


def _judge(signature: Signature, trust: TrustStore, host: str | None, now: float, forms: _Forms) -> _Proof:
    """Steps 3 and 4: the proof that one signature gives, or _RefusedError."""
    if signature.is_companion:
        raise _RefusedError(FailureReason.COMPANION, "a companion for verifiers of a weaker form; it never counts here")
    trusted = _trusted_key(signature, trust, host)
    if trusted.revoked:
        raise _RefusedError(FailureReason.REVOKED_KEY, "the key is revoked")
    if not trusted.not_before <= now < trusted.not_after:
        raise _RefusedError(FailureReason.KEY_NOT_VALID_NOW, "the key is not valid at this time")
    issued, expires = signature.header.get("iat", -inf), signature.header.get("exp", inf)
    if now >= expires:
        raise _RefusedError(FailureReason.EXPIRED, "the signature has expired (protected exp)")
    if now < issued - CLOCK_SKEW:
        raise _RefusedError(FailureReason.NOT_YET_VALID, "the signature was made in the future (protected iat)")
    algorithm = algorithm_of(signature.alg)
    if algorithm is None or algorithm.name != trusted.key.alg:
        raise _RefusedError(FailureReason.WRONG_ALGORITHM, f"the header's alg is not {trusted.key.alg} of the key")
    projection = forms.signed_by(signature, trusted)
    for pointer, url in interface_urls(projection.members):
        _check_interface(pointer, url, trusted.origins)
    return _Proof(
        trusted=trusted,
        projection=projection,
        proven_from=max(trusted.not_before, issued - CLOCK_SKEW),
        proven_until=min(trusted.not_after, expires),
        issued=issued,  # without iat as old as can be: whoever chooses among signatures gains nothing by that one
    )


def _trusted_key(signature: Signature, trust: TrustStore, host: str | None) -> TrustedKey:
    """The one trusted key that the header names for this host."""
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
    if len(entries) > 1:
        jku = signature.header.get("jku")
        entries = tuple([entry for entry in entries if entry.source == jku]) if jku is not None else entries
    if len(entries) != 1:
        raise _RefusedError(FailureReason.AMBIGUOUS_KEY, f"several trusted {kty} keys have this kid")
    return entries[0]


def _check_interface(pointer: str, url: str, origins: Origins | UnsafeAnyOrigin) -> None:
    if isinstance(origins, UnsafeAnyOrigin):
        return
    try:
        host = host_of(url)
    except MalformedError as error:
        raise _RefusedError(FailureReason.WRONG_ORIGIN, f"{pointer}: {error}") from None
    if not origins.covers(host):
        raise _RefusedError(FailureReason.WRONG_ORIGIN, f"{pointer}: the key is not trusted for the host {host}")


class _Forms:
    """The forms of one card, made when they are first needed."""

    __slots__ = ("_made", "_plain", "_single", "card")

    def __init__(self, card: JSONObject, *, single: bool, plain: bool) -> None:
        self.card = card
        self._single = single
        self._plain = plain
        self._made: dict[Form, Projection] = {}

    def signed_by(self, signature: Signature, trusted: TrustedKey) -> Projection:
        """The form of the card that the key has signed: of several with equal bytes the one that proves least.

        Least, because a key that may speak in a form that drops members may have dropped some before the card was
        served: then the served card is exactly what was signed, and there is nothing to notice.
        """
        tried: list[bytes] = []
        for form in _WEAKEST_FIRST:
            if form not in trusted.forms or (form is Form.V0_3_PYTHON and not is_legacy(self.card)):
                continue
            projection = self._project(form)
            if projection.payload in tried:
                continue
            tried.append(projection.payload)
            try:
                verify_jws(
                    protected=signature.protected,
                    payload=projection.payload,
                    signature=signature.signature,
                    key=trusted.key,
                    header=signature.unprotected,
                )
            except InvalidSignatureError:
                continue
            return self._as_weak_as(projection, trusted)
        names = ", ".join(sorted(trusted.forms))
        raise _RefusedError(
            FailureReason.BAD_SIGNATURE,
            f"not by this key over this card (in the forms it may speak in: {names}); "
            "the card or the signature was changed, or was signed in another form",
        )

    def _as_weak_as(self, projection: Projection, trusted: TrustedKey) -> Projection:
        """The proof, or the pruned one when the key speaks in any lossy form and pruning changes nothing.

        Keys move from one SDK to the next: what looks whole may be all that another pruning left.
        """
        if projection.form.is_lossy or trusted.forms <= LOSSLESS_FORMS:
            return projection
        pruned = self._project(Form.V0_3_PYTHON if is_legacy(self.card) else Form.PRUNED)
        return pruned if pruned.payload == projection.payload else projection

    def _project(self, form: Form) -> Projection:
        made = self._made.get(form)
        if made is None:
            if self._single and form in (Form.SPEC, Form.PRUNED):
                # The gate found nothing that any form would drop.
                made = self._project(Form.SERVED)._replace(form=form)
            else:
                made = project(self.card, form, plain=self._plain)
            self._made[form] = made
        return made


#: SERVED before SPEC: they prove the same, and where their bytes are equal the plainer name is told.
_WEAKEST_FIRST: Final = (Form.V0_3_PYTHON, Form.PRUNED_LEGACY, Form.PRUNED, Form.SERVED, Form.SPEC)


def _counted(proofs: list[_Proof], policy: Policy, failures: tuple[SignatureFailure, ...]) -> list[_Proof]:
    """The proofs that the policy counts, fullest coverage first and latest first; raises when they are too few.

    Nobody signs the order of signatures: it must not decide which of them counts, and with it what is remembered.

    Where keys and kids overlap (one key under two kids, two under one) fewer may be counted than could be, never more.
    """
    if len(proofs) == 1 and isinstance(policy, AnyKey):
        return proofs
    counted: list[_Proof] = []
    for proof in sorted(proofs, key=lambda proof: (*_openness(proof), -proof.issued)):
        key = proof.trusted.key
        # Two signatures by one key are one, and so are two keys under one name.
        if any(key.thumbprint == other.trusted.key.thumbprint or key.kid == other.trusted.key.kid for other in counted):
            continue
        if isinstance(policy, AnyKey) or key.kid in policy.kids:
            counted.append(proof)
    needed = 1 if isinstance(policy, AnyKey) else policy.count
    counted = counted[:needed]
    if len(counted) < needed:
        if isinstance(policy, AnyKey):
            raise verification_error("no signature proves this card:", failures)
        message = f"{len(counted)} of the {needed} keys that the policy demands have signed this card:"
        raise PolicyNotMetError(message, failures) if proofs else verification_error(message, failures)
    return counted


def _policies(trust: TrustStore, host: str | None, card: JSONObject) -> list[Policy]:
    """What the store demands of a card that was asked from that host and has its interfaces."""
    hosts = set() if host is None else {host}
    try:
        hosts |= {host_of(url) for _, url in interface_urls(card)}
    except MalformedError:
        return [each.policy for each in trust.policies]  # of a host that nobody can tell: all that is demanded of any
    return [each.policy for each in trust.policies if any(map(each.origins.covers, hosts))]


def _openness(proof: _Proof) -> tuple[bool, int]:
    """How much a proof leaves open: the order in which proofs are preferred."""
    return (proof.projection.form.is_lossy, len(proof.projection.dropped))


def _warnings(projection: Projection, *, bound: bool) -> tuple[str, ...]:
    warnings = []
    if not bound:
        warnings.append("origin: not bound; the key may speak for every host, or the host of the card was not given")
    if projection.form.is_lossy:
        warnings.append(
            f"signed in the form {projection.form}, which drops members: "
            "security requirements and schemes are not proven, neither what is there nor what is absent"
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
        raise ConfigurationError("policy: write named(kid), all_of(kid, …) or n_of(count, kid, …)")
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


class CardVerifier:
    """Verifies cards of many agents and remembers what it has proven.

    Why this is a class: it holds a clock and a bounded memory. The memory maps the exact bytes of a document and its
    origin to the proof; a hit counts only within the times of the keys and the signatures, and while the trusted keys
    are the same.
    """

    def __init__(
        self,
        trust: TrustSource,
        *,
        clock: Callable[[], float],
        policy: Policy = AnyKey(),  # noqa: B008
        coverage: Coverage = WholeCard(),
        remember: int = 1024,
    ) -> None:
        """``clock`` gives seconds since the epoch (``time.time``); ``remember`` bounds the memory, in cards."""
        if remember < 0:
            raise ConfigurationError("CardVerifier: remember is a number of cards, 0 or more")
        self._trust, self._clock, self._policy, self._coverage = trust, clock, policy, coverage
        self._remember = remember
        if not callable(getattr(trust, "trust_store", None)):
            raise ConfigurationError("trust: write TrustFile('trust.toml'), or a TrustStore of keys")
        self._store = trust.trust_store()
        self._proven: OrderedDict[tuple[bytes, str | UnsafeAnyOrigin], VerifiedCard] = OrderedDict()

    def verify(self, document: bytes, *, origin: str | UnsafeAnyOrigin) -> VerifiedCard:
        """As ``verify_card``, now."""
        now = self._clock()
        store = self._trust.trust_store()
        if store is not self._store:
            self._store, self._proven = store, OrderedDict()
        memory = self._proven  # of this store: another thread may see the next one meanwhile
        asked = (document, origin)
        proven = memory.get(asked)
        if proven is not None and proven.proven_from <= now < proven.proven_until:
            return proven
        proven = verify_card(document, store, origin=origin, now=now, policy=self._policy, coverage=self._coverage)
        if len(document) <= _REMEMBERED_BYTES:
            memory[asked] = proven
        while len(memory) > self._remember:
            memory.popitem(last=False)
        return proven
