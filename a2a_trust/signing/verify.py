"""Verify a card: the caller gets exactly what was signed.

Not here: whether the requirements of the card are satisfied or wise, fetching of cards and keys, memory of earlier
cards. Source: A2A 8.4.3, RFC 7515 5.2.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from math import inf
from typing import Any

from a2a_trust import strict_json
from a2a_trust.card.ambiguity import read_unambiguous
from a2a_trust.card.view import interface_urls
from a2a_trust.errors import (
    ConfigurationError,
    MalformedError,
    PolicyNotMetError,
    SignatureFailure,
    UncoveredFieldsError,
)
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.origins import UnsafeAnyOrigin, host_of, interface_host, is_unencrypted
from a2a_trust.keys.policy import AnyKey, Policy, Threshold, is_thumbprint
from a2a_trust.keys.trust import TrustSource, TrustStore
from a2a_trust.net.addresses import is_this_machine
from a2a_trust.net.urls import read_url
from a2a_trust.signing.forms import UNVERIFIED_BY_PRUNING, Form, is_within, shown
from a2a_trust.signing.parties import counted_signatures
from a2a_trust.signing.verify_signature import VerifiedSignature, verify_signatures
from a2a_trust.strict_json import JSONObject
from a2a_trust.strict_json.jcs import canonicalize_received

__all__ = ["Coverage", "VerifiedCard", "seconds", "verify_card"]


class Coverage(Enum):
    """How much of the served card must be signed."""

    WHOLE_CARD = auto()
    """Every member; the rule unless another is given."""
    SIGNED_PART_ONLY = auto()
    """Return only what was signed, and drop the other members of the served card.

    This is for cards that SDKs signed in a form that drops members, by keys whose trust entry names that SDK. What is
    absent from ``VerifiedCard.card`` may have been dropped by the signer or removed later, security requirements too.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCard:
    """A card as far as its signatures cover it.

    ``payload`` are the bytes that were signed, ``card`` is what they say. ``key`` signed them in ``form``; ``keys``
    are all keys that the policy counted. ``dropped`` are JSON pointers of members of the served card that are not in
    ``card`` (the first 100). ``unverified`` is empty if the whole card is verified. Otherwise it has pointers (``*``
    stands for every index) of members that the form could have hidden: code that chooses credentials takes their
    absence as unknown, never as "no requirement". ``warnings`` are sentences for people. The card is verified from
    ``valid_from`` until just before ``valid_until`` (seconds since the epoch).
    """

    payload: bytes
    key: PublicKey
    keys: tuple[PublicKey, ...]
    form: Form
    origin: str | None
    """The host that the card is bound to, None when the proof is not bound to one."""
    dropped: tuple[str, ...]
    unverified: tuple[str, ...]
    warnings: tuple[str, ...]
    ignored: tuple[SignatureFailure, ...]
    """The other signatures of the card that do not count, and why."""
    valid_from: float
    valid_until: float
    issued: float | None
    """The earliest protected ``iat`` of the signatures by ``keys``; None when one of them has none."""
    on_first_use: bool
    """Whether nobody vouches for one of ``keys`` but the agent's own origin."""

    @property
    def card(self) -> JSONObject:
        """The card that was signed, parsed again from ``payload``: yours to change."""
        card: JSONObject = strict_json.parse_printed(self.payload)
        return card


def verify_card(
    document: bytes | Mapping[str, Any],
    trust: TrustSource,
    *,
    origin: str | UnsafeAnyOrigin,
    now: float | datetime | None = None,
    policy: Policy = AnyKey(),  # noqa: B008  frozen and without fields
    coverage: Coverage = Coverage.WHOLE_CARD,
) -> VerifiedCard:
    """Verify a card with the keys of ``trust``, or raise.

    ``document`` is the card as it was served: bytes, or an object that a JSON parser made of them (then members that
    were there twice are already lost). ``trust`` is a ``TrustStore``, or a ``TrustFile`` as it is now, with the key
    sets that its ``fetch`` has brought. ``origin`` is the URL or the host that the card was asked from. ``now`` is the
    moment that counts, an aware datetime or seconds since the epoch; without it, the clock's. ``policy`` is demanded
    beside what the store demands of the card's hosts.

    1. Check the arguments.
    2. Read the card strictly, and reject it if readers could read it differently.
    3. Verify every signature by itself.
    4. Count the signatures that the policies demand, of the caller and of the store: enough parties.
    5. Find what all counted signatures cover. A signature of a part shows neither the presence nor the absence of what
       its form drops.
    6. Reject members of the served card that are not covered, unless ``coverage`` drops them.

    MalformedError: the document is not a card that every reader reads alike. UnsignedCardError, UntrustedCardError,
    UncoveredFieldsError, CardVerificationError: it is not verified; ``failures`` tells why, signature by signature.
    ConfigurationError: the arguments. Source: A2A 8.4.3.
    """
    # 1.
    store = _checked_arguments(trust, policy, coverage)
    host, moment = _host_asked(origin), time.time() if now is None else seconds(now)
    # 2.
    served = read_unambiguous(document if isinstance(document, bytes) else _printed(document))
    # 3.
    verified, failures = verify_signatures(served, store, host, moment)
    # 4.
    counted = counted_signatures(verified, [policy, *_policies_of_store(store, host, served.card)], failures)
    # 5.
    common = _covered_by_all(counted, failures)
    # 6.
    is_whole = all(signature.is_whole for signature in counted)
    if not is_whole:
        _check_coverage(common, coverage, failures)
    return _result(common, counted, failures, host, is_whole=is_whole)


def _policies_of_store(trust: TrustStore, host: str | None, card: JSONObject) -> list[Policy]:
    """What the store demands of a card that was asked from that host and has its interfaces."""
    if not trust.policies:
        return []
    hosts = set() if host is None else {host}
    try:
        hosts |= {interface_host(url) for _, url in interface_urls(card)}
    except MalformedError:
        return [each.policy for each in trust.policies]  # of a host that nobody can tell: all that is demanded of any
    return [each.policy for each in trust.policies if any(map(each.origins.covers, hosts))]


def _covered_by_all(counted: list[VerifiedSignature], failures: tuple[SignatureFailure, ...]) -> VerifiedSignature:
    """The signature whose members every other one that counts covers, too; PolicyNotMetError when there is none.

    Two pruned forms of one card need not contain each other, so how much each drops decides nothing.
    """
    for signature in sorted(counted, key=_openness, reverse=True):
        if all(
            signature.projection.payload == other.projection.payload
            or is_within(signature.projection.members, other.projection.members)
            for other in counted
            if other is not signature
        ):
            return signature
    raise PolicyNotMetError("the parties that the policy demands have signed different parts of this card", failures)


def _openness(signature: VerifiedSignature) -> tuple[bool, int]:
    return signature.openness


def _check_coverage(common: VerifiedSignature, coverage: Coverage, failures: tuple[SignatureFailure, ...]) -> None:
    projection = common.projection
    if projection.uncovered and coverage is not Coverage.SIGNED_PART_ONLY:
        raise UncoveredFieldsError(
            f"members of the card are not in what was signed, in the form {projection.form}: "
            f"{shown(projection.uncovered)}",
            projection.uncovered,
            failures,
        )


def _result(
    common: VerifiedSignature,
    counted: list[VerifiedSignature],
    failures: tuple[SignatureFailure, ...],
    host: str | None,
    *,
    is_whole: bool,
) -> VerifiedCard:
    """What the signatures that count have verified together."""
    projection = common.projection
    issued = min([signature.issued for signature in counted])
    bound = host is not None and not any(isinstance(each.trusted.origins, UnsafeAnyOrigin) for each in counted)
    return VerifiedCard(
        payload=projection.payload,
        key=common.trusted.key,
        keys=tuple([signature.trusted.key for signature in sorted(counted, key=_openness)]),
        form=projection.form,
        origin=host if bound else None,
        dropped=projection.dropped,
        unverified=() if is_whole else UNVERIFIED_BY_PRUNING,
        warnings=_warnings(common, is_whole=is_whole, bound=bound),
        ignored=failures,
        valid_from=max([signature.valid_from for signature in counted]),
        valid_until=min([signature.valid_until for signature in counted]),
        issued=None if issued == -inf else issued,
        on_first_use=any(signature.trusted.on_first_use for signature in counted),
    )


def _warnings(common: VerifiedSignature, *, is_whole: bool, bound: bool) -> tuple[str, ...]:
    warnings = []
    if not bound:
        warnings.append("origin: not bound; the key may speak for every host, or the host of the card was not given")
    unencrypted = tuple(
        pointer for pointer, url in common.interfaces if is_unencrypted(url) and _leaves_this_machine(url)
    )
    if unencrypted:
        warnings.append(
            f"not encrypted: {shown(unencrypted)}; anybody on the way can read and change what is sent there, "
            "credentials too: call an interface whose URL is https, or have the agent served over TLS"
        )
    if not is_whole:
        warnings.append(
            f"signed in the form {common.projection.form}, which drops members: security requirements and schemes may "
            "have been removed, and nothing shows it"
        )
    return tuple(warnings)


def _leaves_this_machine(url: str) -> bool:
    try:
        return not is_this_machine(read_url(url).host)
    except MalformedError:
        return True


def _printed(document: Mapping[str, Any]) -> bytes:
    """The card as text, so that both ways in meet the same reader; what is not JSON is refused."""
    if not isinstance(document, Mapping):
        raise ConfigurationError(
            "verify_card: the first argument is the card, as the bytes that were served or as a dict, and this is "
            f"{type(document).__name__}; write verify_card(card, trust, origin=…, now=…)"
        )
    return canonicalize_received(dict(document))


def _checked_arguments(trust: TrustSource, policy: Policy, coverage: Coverage) -> TrustStore:
    """The keys that are trusted now, when the policy can be met with them."""
    if not callable(getattr(trust, "trust_store", None)):
        raise ConfigurationError(
            f"verify_card: the second argument is a TrustStore or a TrustFile, and this is {type(trust).__name__}; "
            "write verify_card(document, TrustFile('trust.toml'), origin=url), or TrustStore([TrustedKey(…)])"
        )
    store = trust.trust_store()
    if not isinstance(policy, Policy):
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


def _host_asked(origin: str | UnsafeAnyOrigin) -> str | None:
    try:
        return None if isinstance(origin, UnsafeAnyOrigin) else host_of(origin)
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
