"""Verify a card: the caller gets exactly the members that were signed (A2A 8.4.3, RFC 7515 5.2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from functools import partial
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from a2a_trust.base import strict_json
from a2a_trust.base.dates import date_of, seconds
from a2a_trust.base.net.addresses import is_this_machine
from a2a_trust.base.net.urls import read_url
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.base.strict_json.jcs import canonicalize_received
from a2a_trust.base.workers import on_all_cores
from a2a_trust.card.ambiguity import Reader, UnambiguousCard, read_quickly
from a2a_trust.card.given import read_given
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    MalformedError,
    PolicyNotMetError,
    SignatureFailure,
    TrustError,
    UncoveredFieldsError,
    verification_error,
    with_option,
)
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.trust.origins import OriginFromCard, UnsafeAnyOrigin, host_of, interface_host, is_unencrypted
from a2a_trust.keys.trust.policy import AnyKey, Policy, Threshold, is_thumbprint
from a2a_trust.keys.trust.store import TrustSource, TrustStore, check_trust_source
from a2a_trust.signing.forms import UNVERIFIED_BY_PRUNING, Form, is_within, shorten
from a2a_trust.signing.verify_signature import VerifiedSignature, verify_signatures

if TYPE_CHECKING:
    from a2a_trust.base.cache import BoundedCache

Document: TypeAlias = bytes | Path | Mapping[str, Any]
Origin: TypeAlias = str | UnsafeAnyOrigin | OriginFromCard

_OPENNESS: Final = attrgetter("openness")


class Coverage(Enum):
    """How much of the served card must be signed."""

    WHOLE_CARD = auto()
    """Every member. This is the default."""
    SIGNED_PART_ONLY = auto()
    """Return only the signed members, and drop the other members of the served card.

    This is for cards that SDKs signed in a form that drops members, with keys whose trust entry names the SDK. A member
    that is absent from ``VerifiedCard.card`` may have been dropped by the signer or removed later, even a security
    requirement.
    """


class _Served:
    """The document, the host and the demands of a verification. Its repr shows no members that are not signed."""

    __slots__ = ("coverage", "document", "origin", "policy")

    def __init__(self, document: bytes, origin: str | UnsafeAnyOrigin, policy: Policy, coverage: Coverage) -> None:
        self.document, self.origin, self.policy, self.coverage = document, origin, policy, coverage


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCard:
    """A verified card: the members that its signatures cover.

    - ``card``: the signed card, a new dict. ``payload``: its bytes, which were signed.
    - ``key``: the key that signed ``payload``. ``form``: the canonical form in which it signed.
    - ``keys``: all keys whose signatures the policy counted.
    - ``dropped``: JSON pointers of members of the served card that are not in ``card`` (the first 100).
    - ``unverified``: empty if the whole card is verified. Otherwise JSON pointers (``*`` is every index) of members
      that the form may have hidden. Code that chooses credentials must read their absence as unknown, never as "no
      requirement".
    - ``warnings``: sentences for people.
    - ``valid_from``, ``valid_until``: the card is verified from the first moment until just before the second one
      (seconds since the epoch).
    """

    payload: bytes
    key: PublicKey
    keys: tuple[PublicKey, ...]
    form: Form
    origin: str | None
    """The host that the card is bound to; None if the verification is not bound to a host."""
    dropped: tuple[str, ...]
    unverified: tuple[str, ...]
    warnings: tuple[str, ...]
    ignored: tuple[SignatureFailure, ...]
    """The other signatures of the card, which do not count, and why."""
    valid_from: float
    valid_until: float
    issued: float | None
    """The earliest protected ``iat`` of the signatures by ``keys``; None if one of them has no ``iat``."""
    on_first_use: bool
    """Whether one of ``keys`` is trusted on first use only: it comes from the agent's own origin."""
    _served: _Served = field(repr=False, compare=False)

    @property
    def card(self) -> JSONObject:
        """The signed card, parsed from ``payload`` on every access. You may change it."""
        card: JSONObject = strict_json.parse_printed(self.payload)
        return card

    def verified_again(self, trust: TrustSource, *, now: float | datetime | None = None) -> VerifiedCard:
        """The same document, verified for the same host, policy and coverage by the keys that are trusted now.

        Errors as of ``verify_card``. CardVerificationError: these keys verify another part of the document.
        """
        served = self._served
        again = verify_card(
            served.document, trust, origin=served.origin, now=now, policy=served.policy, coverage=served.coverage
        )
        if (again.payload, again.unverified) != (self.payload, self.unverified):
            raise CardVerificationError("the keys that are trusted now verify another part of the card")
        return again


def verify_card(
    document: Document,
    trust: TrustSource,
    *,
    origin: Origin,
    now: float | datetime | None = None,
    policy: Policy = AnyKey(),  # noqa: B008  frozen and without fields
    coverage: Coverage = Coverage.WHOLE_CARD,
) -> VerifiedCard:
    """Verify a card with trusted keys. Returns the verified card, or raises.

    - ``document``: the card as it was served, as bytes, ``Path("card.json")`` or a dict. Pass the bytes if you have
      them: a parsed dict has already lost members that occur twice.
    - ``trust``: a ``TrustStore`` or a ``TrustFile``. A ``TrustFile`` verifies with the key sets that its ``fetch``
      fetched last.
    - ``origin``: the URL or host from which the card was fetched; ``OriginFromCard()`` if that is not known.
    - ``now``: the moment of the verification, an aware datetime or seconds since the epoch. Default: the current time.
    - ``policy``: a policy that the card must satisfy, in addition to the policies of the trust store.
    - ``coverage``: how much of the card must be signed.

    1. Check the arguments.
    2. Read the card strictly, and reject it if readers could read it differently.
    3. Verify every signature by itself.
    4. Count the signatures that the policies demand, of the caller and of the store: enough parties.
    5. Find the members that all counted signatures cover. A signature of a part proves neither the presence nor the
       absence of members that its form drops.
    6. Reject members of the served card that are not covered, unless ``coverage`` drops them.

    Errors:

    - MalformedError: the document is not a card, or two readers could read it differently.
    - CardVerificationError and its subclasses, such as UnsignedCardError, UntrustedCardError and UncoveredFieldsError:
      the card is not verified. ``failures`` has the reason for each signature.
    - ConfigurationError: an argument is wrong.
    """
    # 1.
    store, moment = check_arguments(trust, policy, coverage), time.time() if now is None else seconds(now)
    return verify_document(text_of(document), store, origin, moment, policy=policy, coverage=coverage)


def verify_document(
    document: bytes,
    store: TrustStore,
    origin: Origin,
    now: float,
    *,
    policy: Policy = AnyKey(),  # noqa: B008
    coverage: Coverage = Coverage.WHOLE_CARD,
    read: Reader = read_quickly,
) -> VerifiedCard:
    """Steps 2 to 6 of ``verify_card``."""
    # 2. and 3.
    served, host, verified, failures = verify_each(document, store, origin, now, read)
    # 4.
    counted = count_signatures(verified, [policy, *_policies_of_store(store, host, served.interfaces)], failures)
    # 5.
    common = _covered_by_all(counted, failures)
    # 6.
    projection = common.projection
    if projection.uncovered and coverage is not Coverage.SIGNED_PART_ONLY:
        raise UncoveredFieldsError(
            f"the signature, in the form {projection.form}, does not cover these members of the card: "
            f"{shorten(projection.uncovered)}",
            projection.uncovered,
            failures,
        )
    given = _Served(document, UnsafeAnyOrigin() if host is None else host, policy, coverage)
    return _result(common, counted, failures, host, given)


def verify_each(
    document: bytes, store: TrustStore, origin: Origin, now: float, read: Reader
) -> tuple[UnambiguousCard, str | None, list[VerifiedSignature], tuple[SignatureFailure, ...]]:
    """Steps 2 and 3 of ``verify_card``, without policies; the errors are the same.

    Returns the card, the host that it must belong to, its verified signatures, and why the others are not verified.
    """
    host = _host_of_origin(origin)
    served = read(document)
    if isinstance(origin, OriginFromCard):
        host = _host_of_card(served.interfaces)
    return served, host, *verify_signatures(served, store, host, now)


def _policies_of_store(trust: TrustStore, host: str | None, interfaces: list[tuple[str, str]]) -> list[Policy]:
    """The policies of the store for a card from that host with these interfaces."""
    if not trust.policies:
        return []
    hosts = set() if host is None else {host}
    try:
        hosts |= {interface_host(url) for _, url in interfaces}
    except MalformedError:
        return [each.policy for each in trust.policies]  # the hosts are unknown, so all policies apply
    return [each.policy for each in trust.policies if any(map(each.origins.covers, hosts))]


def _covered_by_all(counted: list[VerifiedSignature], failures: tuple[SignatureFailure, ...]) -> VerifiedSignature:
    """The signature whose members all other counted signatures cover, too; PolicyNotMetError if there is no such one.

    The number of dropped members does not decide, because of two pruned forms of a card neither may contain the other.
    """
    if len(counted) == 1:
        return counted[0]
    for signature in sorted(counted, key=_OPENNESS, reverse=True):
        if all(
            signature.projection.payload == other.projection.payload
            or is_within(signature.projection.members, other.projection.members)
            for other in counted
            if other is not signature
        ):
            return signature
    raise PolicyNotMetError(
        "the parties that the policy requires have signed different parts of this card; let them sign the whole card",
        failures,
    )


def _result(
    common: VerifiedSignature,
    counted: list[VerifiedSignature],
    failures: tuple[SignatureFailure, ...],
    host: str | None,
    served: _Served,
) -> VerifiedCard:
    projection, bound, is_whole, on_first_use = common.projection, host is not None, True, False
    valid_from, valid_until, issued = -inf, inf, inf
    for each in counted:
        bound = bound and not isinstance(each.trusted.origins, UnsafeAnyOrigin)
        is_whole, on_first_use = is_whole and each.is_whole, on_first_use or each.trusted.on_first_use
        valid_from, valid_until = max(valid_from, each.valid_from), min(valid_until, each.valid_until)
        issued = min(issued, each.issued)
    return VerifiedCard(
        payload=projection.payload,
        key=common.trusted.key,
        keys=tuple([each.trusted.key for each in sorted(counted, key=_OPENNESS)]),
        form=projection.form,
        origin=host if bound else None,
        dropped=projection.dropped,
        unverified=() if is_whole else UNVERIFIED_BY_PRUNING,
        warnings=_warnings(common, is_whole=is_whole, bound=bound),
        ignored=failures,
        valid_from=valid_from,
        valid_until=valid_until,
        issued=None if issued == -inf else issued,
        on_first_use=on_first_use,
        _served=served,
    )


def _warnings(common: VerifiedSignature, *, is_whole: bool, bound: bool) -> tuple[str, ...]:
    warnings = []
    if not bound:
        warnings.append("origin: not bound; the key is trusted for every host, or the host of the card was not given")
    if unencrypted := [
        pointer for pointer, url in common.interfaces if is_unencrypted(url) and not is_this_machine(read_url(url).host)
    ]:
        warnings.append(
            f"not encrypted: {shorten(unencrypted)}; anybody on the network path can read and change requests and "
            "credentials: call an interface with an https URL, or ask the operator to serve the agent over TLS"
        )
    if not is_whole:
        warnings.append(
            f"signed in the form {common.projection.form}, which drops members: security requirements and schemes may "
            "have been removed without a trace"
        )
    return tuple(warnings)


def verify_cards(
    cards: Iterable[tuple[Document, Origin]],
    trust: TrustSource,
    *,
    now: float | datetime | None = None,
    policy: Policy = AnyKey(),  # noqa: B008  frozen and without fields
    coverage: Coverage = Coverage.WHOLE_CARD,
    workers: int | None = None,
) -> Iterator[VerifiedCard | TrustError]:
    """Verify many cards, each for its own origin. Yields the verified card, or the error, for each card in order.

    - ``cards``: pairs of a document and its origin, as ``verify_card`` takes them. They may come from a generator:
      only some chunks of them are in memory.
    - ``trust``: as it is now. A ``TrustFile`` that changes later changes nothing in this run.
    - ``now``: the moment of all verifications. Default: the time of the call.
    - ``policy``, ``coverage``: as for ``verify_card``.
    - ``workers``: the number of processes. Default: one for each usable core. With 1, or up to 250 cards, all is
      done in this process.

    An error in place of a card is what ``verify_card`` raises. A worker is a fork. On systems without ``fork``, and in
    a program with threads, this process verifies all cards itself.

    ConfigurationError: an argument is wrong. OSError: a worker process was killed.
    """
    store = check_arguments(trust, policy, coverage)
    moment = time.time() if now is None else seconds(now)

    def verify(card: tuple[Document, Origin]) -> VerifiedCard | TrustError:
        document, origin = card
        try:
            return verify_card(document, store, origin=origin, now=moment, policy=policy, coverage=coverage)
        except TrustError as error:
            return error

    return on_all_cores(verify, cards, workers)


def text_of(document: Document) -> bytes:
    """The card as text, so that all documents go through the same reader; values that are not JSON are rejected."""
    if isinstance(document, bytes):
        return document
    if not isinstance(document, Mapping | Path):
        raise ConfigurationError(
            "verify_card: the first argument must be the card, as the bytes that were served, as a Path or as a dict, "
            f"and is {type(document).__name__}; write verify_card(card, trust, origin=…)"
        )
    given = read_given(document)
    return given if isinstance(given, bytes) else canonicalize_received(dict(given))


def check_arguments(trust: TrustSource, policy: Policy, coverage: Coverage) -> TrustStore:
    """The keys that are trusted now. ConfigurationError: an argument is wrong, or the policy names unknown parties."""
    check_trust_source(
        trust,
        f"verify_card: the second argument must be a TrustStore or a TrustFile, and is {type(trust).__name__}; "
        "write verify_card(document, TrustFile('trust.toml'), origin=url), or TrustStore([TrustedKey(…)])",
    )
    store = trust.trust_store()
    if not isinstance(policy, (AnyKey, Threshold)):
        raise ConfigurationError(
            'policy: write named("bank"), all_of("bank", "auditor") or n_of(2, …), with the names of trust entries'
        )
    if not isinstance(coverage, Coverage):
        raise ConfigurationError("coverage: write Coverage.WHOLE_CARD or Coverage.SIGNED_PART_ONLY")
    for party in policy.parties if isinstance(policy, Threshold) else ():
        if party not in store.names and not is_thumbprint(party):
            raise ConfigurationError(
                f"policy: no trust entry has the name {ascii(party)[:80]}; a policy names trust entries "
                '(TrustedKey(name="…"), name = "…" in a trust file) or keys by thumbprint, never by kid'
            )
    return store


def _host_of_origin(origin: Origin) -> str | None:
    try:
        return None if isinstance(origin, (UnsafeAnyOrigin, OriginFromCard)) else host_of(origin)
    except (MalformedError, TypeError):
        raise ConfigurationError(
            'origin: write the URL or host from which the card was fetched, as in origin="https://agent.example.com", '
            "or OriginFromCard() if that is not known"
        ) from None


def _host_of_card(urls: list[tuple[str, str]]) -> str:
    """The host of the first interface; MalformedError if there is no interface, or its URL has no clear host."""
    if not urls:
        text = "card: no interface, so no host can be read from it; if it is an Agent Card, "
        raise with_option(
            MalformedError(f'{text}write origin="https://…" instead of OriginFromCard()'),
            f"{text}write --origin URL instead of --origin-from-card",
        )
    return interface_host(urls[0][1])


_MAX_CACHED_BYTES: Final = 65_536
"""The largest document that is cached: larger ones would fill the memory."""

_Cache: TypeAlias = "BoundedCache[tuple[bytes, str | OriginFromCard] | tuple[bytes], VerifiedCard]"
"""The key is the document and its origin, or only the document if it may come from any host."""


class CardVerifier:
    """Verify cards of many agents, with a cache of verified cards.

    The cache maps the exact bytes of a document, and its origin, to the verified card. An entry is used only while the
    keys and signatures are valid, and only while the trusted keys have not changed.
    """

    def __init__(
        self,
        trust: TrustSource,
        *,
        clock: Callable[[], float] = time.time,
        policy: Policy = AnyKey(),  # noqa: B008
        coverage: Coverage = Coverage.WHOLE_CARD,
        remember: int = 1024,
    ) -> None:
        """``trust``, ``policy`` and ``coverage`` are as for ``verify_card``.

        ``clock`` returns seconds since the epoch. ``remember`` is the largest number of cards in the cache.
        """
        if type(remember) is not int or remember < 0:
            raise ConfigurationError(f"CardVerifier: remember={remember!r} must be a number of cards, 0 or more")
        self._trust, self._clock, self._policy, self._coverage = trust, clock, policy, coverage
        check_trust_source(trust, "CardVerifier: trust must be TrustFile('trust.toml'), or a TrustStore of keys")
        from a2a_trust.base.cache import BoundedCache  # it imports asyncio, which one card does not need

        self._new_cache: Callable[[], _Cache] = partial(BoundedCache, max_entries=remember)
        #: The trusted keys and the cards that they verified: one value, so that all threads see both together.
        self._verified: tuple[TrustStore, _Cache] = trust.trust_store(), self._new_cache()

    def verify(self, document: Document, *, origin: Origin) -> VerifiedCard:
        """Verify a card at the current time. Arguments and errors are as for ``verify_card``.

        Bytes that are in the cache are not read again; a dict is written as text each time, and a file is read.
        """
        if not isinstance(document, bytes):
            document = text_of(document)
        now = self._clock()
        store = self._trust.trust_store()
        last, cache = self._verified
        if store is not last:
            cache = self._new_cache()
            self._verified = store, cache
        # The comparison of types comes first: isinstance only would make a hit 12 % slower.
        asked = (document, origin) if type(origin) is str or not isinstance(origin, UnsafeAnyOrigin) else (document,)
        entry = cache.entry(asked)
        if entry is not None and entry[1] <= now < entry[2]:
            return entry[0]
        verified = verify_card(document, store, origin=origin, now=now, policy=self._policy, coverage=self._coverage)
        if len(document) <= _MAX_CACHED_BYTES:
            cache.put(asked, verified, since=verified.valid_from, until=verified.valid_until)
        return verified


def count_signatures(
    verified: list[VerifiedSignature], policies: list[Policy], failures: tuple[SignatureFailure, ...]
) -> list[VerifiedSignature]:
    """The signatures that the policies count, at least one for each policy.

    ``failures`` go into the error. PolicyNotMetError: trusted keys have signed, but not enough parties.
    CardVerificationError: no signature counts.
    """
    best_first = verified if len(verified) == 1 else sorted(verified, key=_preference)
    counted: list[VerifiedSignature] = []
    for policy in policies:
        if isinstance(policy, AnyKey):
            chosen, needed, text = best_first[:1], 1, "no signature verifies this card:"
        else:
            chosen, needed = _one_of_each_party(best_first, policy)[: policy.count], policy.count
            text = f"only {len(chosen)} of the {needed} parties that the policy requires have signed this card:"
        if len(chosen) < needed:
            raise PolicyNotMetError(text, failures) if best_first else verification_error(text, failures)
        counted += [each for each in chosen if each not in counted]
    return counted


def _preference(signature: VerifiedSignature) -> tuple[bool, int, float]:
    """The fullest coverage first, then the latest. The order in the card is not signed, so it must not decide which
    signature counts, and with it the entry in the card memory."""
    return (*signature.openness, -signature.issued)


def _one_of_each_party(signatures: list[VerifiedSignature], policy: Threshold) -> list[VerifiedSignature]:
    """The largest possible number of signatures by different parties, keys and signatures, best first.

    A key may be in the entries of several parties, and several keys may verify one signature. All of these belong to
    one party, chosen so that the most parties are satisfied (a maximum matching, by augmenting paths).
    """
    offers = [
        (party, signature)
        for signature in signatures
        if (party := policy.party_of(signature.trusted.key.thumbprint, signature.trusted.name)) is not None
    ]
    group_of = _groups([signature for _, signature in offers])
    taken: dict[int, tuple[str, VerifiedSignature]] = {}  # group -> its party

    def satisfy(party: str, seen: set[int]) -> bool:
        for other, signature in offers:
            group = group_of[signature.position]
            if other == party and group not in seen:
                seen.add(group)
                if group not in taken or satisfy(taken[group][0], seen):
                    taken[group] = (party, signature)
                    return True
        return False

    for party in dict(offers):
        satisfy(party, set())
    # Keys of one entry are one party, unless the policy names each by thumbprint.
    named = {party for party, signature in taken.values() if party == signature.trusted.key.thumbprint}
    spent = {signature.trusted.name for signature in signatures if signature.trusted.key.thumbprint in named}
    chosen = [signature for party, signature in taken.values() if party not in spent - named]
    return sorted(chosen, key=_preference)


def _groups(signatures: list[VerifiedSignature]) -> dict[int, int]:
    """Position of each signature -> position of the first signature that keys connect with it."""
    first: dict[int, int] = {}
    by_key: dict[str, int] = {}
    for signature in sorted(signatures, key=lambda signature: signature.position):
        group = first.setdefault(signature.position, signature.position)
        other = by_key.setdefault(signature.trusted.key.thumbprint, group)
        if other != group:  # the key has made an earlier signature, so the two groups become one
            first = {each: other if held == group else held for each, held in first.items()}
            by_key = {each: other if held == group else held for each, held in by_key.items()}
    return first


def report_of_verified(verified: VerifiedCard) -> JSONObject:
    """The members of a report on a verified card, without the card, as plain JSON types."""
    return {
        "kid": verified.key.kid,
        "alg": verified.key.alg,
        "thumbprint": verified.key.thumbprint,
        "form": verified.form,
        "origin": verified.origin,
        "on_first_use": verified.on_first_use,
        "valid_until": None if verified.valid_until == inf else date_of(verified.valid_until),
        "dropped": list(verified.dropped),
        "unverified": list(verified.unverified),
        "warnings": list(verified.warnings),
        "ignored": [_report_of_signature(failure) for failure in verified.ignored],
    }


def report_of_error(error: TrustError, message: str) -> dict[str, Any]:
    """The members of a report on a card that is not verified, as plain JSON types."""
    report: dict[str, Any] = {"code": error.code, "message": message}
    if isinstance(error, CardVerificationError):
        report |= {"message": error.message, "failures": [_report_of_signature(failure) for failure in error.failures]}
    if isinstance(error, UncoveredFieldsError):
        report["pointers"] = list(error.pointers)
    return report


def _report_of_signature(failure: SignatureFailure) -> dict[str, Any]:
    return {"index": failure.index, "kid": failure.kid, "reason": failure.reason, "detail": failure.detail}
