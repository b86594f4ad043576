"""Whether a card has to be signed again.

It is signed now, and compared with the result, except for moments and the bytes of signatures. So every choice of
signing counts: keys, algorithms, companions, ``jku``, dropped members.

Only --if-needed and --check import this: verification with the trust store takes 4 % of `a2a-sign card.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Final

from a2a_trust.base.dates import CLOCK_SKEW, date_of
from a2a_trust.base.strict_json import JSON, JSONObject
from a2a_trust.base.strict_json.jcs import canonicalize
from a2a_trust.card.ambiguity import Reader, UnambiguousCard, read_quickly
from a2a_trust.errors import InvalidSignatureError, MalformedError
from a2a_trust.keys.jws import signing_input, verify_signed
from a2a_trust.keys.signer import Signer
from a2a_trust.keys.trust.origins import UnsafeAnyOrigin
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.signing.forms import project, shorten
from a2a_trust.signing.sign import SignedCard, signature_in
from a2a_trust.signing.signature import Signature
from a2a_trust.signing.verify_signature import verify_signatures

_MEMBERS: Final = frozenset({"protected", "signature"})
"""The members of an entry that ``sign_card`` makes. Others are not signed, and signing again removes them."""


def reason_to_sign(
    document: bytes,
    card: JSONObject,
    signed: SignedCard,
    signers: Sequence[Signer],
    *,
    now: float,
    until: float,
    read: Reader = read_quickly,
) -> str | None:
    """The reason for which ``card`` has to be signed again, for people; None if it need not be signed.

    ``document`` is the text of ``card``, and ``signed`` is the result of ``sign_card`` now. Each signature by
    ``signers`` in ``signed`` must be in ``card``, too: by the same key, with the same protected header, over this
    card. Only the moments may differ: ``exp`` must be after ``until`` (seconds since the epoch), and not later than in
    ``signed``, apart from a clock that is slow. All other members, and the signatures of others, must be equal in both.
    """
    if signed.normalized:
        return f"signing drops {shorten(signed.normalized)}"
    old, kept = _split(card.get("signatures"), signers)
    new, others = _split(signed.card["signatures"], signers)
    if len(kept) != len(others) or signed.discarded:
        return "signing removes entries of signatures"
    for wanted in new:
        found = [each for each in old if _without_moments(each) == _without_moments(wanted)]
        if not found:
            return _why_missing(wanted, old)
        if reason := _why_outdated(found[0], wanted, signed, signers, until):
            return reason
    if signed.withheld_for and any(each.is_companion for each in old):
        return (
            f"it has a companion signature that does not protect {', '.join(signed.withheld_for)}; signing removes it, "
            "or keeps it with --companion"
        )
    if len(old) != len(new):
        return f"it has signatures by {', '.join(sorted({each.kid for each in old}))} that signing removes"
    return _why_unverified(read(document), signed.payload, signers, now)


def _why_unverified(served: UnambiguousCard, payload: bytes, signers: Sequence[Signer], now: float) -> str | None:
    """The reason for which readers do not find this ``payload``, signed by each signer; None if they do."""
    trust = TrustStore(TrustedKey(key=signer.public_key, origins=UnsafeAnyOrigin()) for signer in signers)
    verified, failures = verify_signatures(served, trust, None, now)
    for signer in signers:
        thumbprint = signer.public_key.thumbprint
        if payload not in [each.projection.payload for each in verified if each.trusted.key.thumbprint == thumbprint]:
            return f"the signed card does not verify: {shorten(map(str, failures), '; ') or 'it was changed'}"
    return None


def _split(entries: JSON, signers: Sequence[Signer]) -> tuple[list[Signature], list[JSON]]:
    """The signatures that name these signers, as they make them, and the other entries."""
    kids, ours, others = {signer.kid for signer in signers}, list[Signature](), list[JSON]()
    for entry in entries if type(entries) is list else ():
        signature = signature_in(entry)
        if signature is not None and signature.kid in kids and type(entry) is dict and entry.keys() == _MEMBERS:
            ours.append(signature)
        else:
            others.append(entry)
    return ours, others


def _without_moments(signature: Signature) -> tuple[bytes, bool]:
    header: dict[str, Any] = {name: value for name, value in signature.header.items() if name not in ("iat", "exp")}
    return canonicalize(header), "iat" in signature.header


def _why_missing(wanted: Signature, old: list[Signature]) -> str:
    if not any(each.kid == wanted.kid for each in old):
        return f"not signed by {wanted.kid}"
    if wanted.is_companion:
        return f"the companion signature by {wanted.kid} is missing"
    return f"its signature by {wanted.kid} has other settings than the ones asked for now"


def _why_outdated(
    signature: Signature, wanted: Signature, signed: SignedCard, signers: Sequence[Signer], until: float
) -> str | None:
    """The reason for which a signature with the header of the wanted one is not that signature; None if it is."""
    payload = signed.payload
    if signed.companion is not None and wanted.is_companion:
        payload = project(signed.card, signed.companion).payload
    key = next(signer.public_key for signer in signers if signer.kid == signature.kid)
    try:
        verify_signed(signature.header, signature.signature, signing_input(signature.protected, payload), key)
    except (InvalidSignatureError, MalformedError):
        return (
            f"its signature by {signature.kid} is wrong: the card was changed after signing, or the key is another one"
        )
    end = signature.header.get("exp", inf)
    if end <= until:
        return f"its signature by {signature.kid} expires at {date_of(end)}"
    if end > wanted.header.get("exp", inf) + CLOCK_SKEW:
        when = "never expires" if end == inf else f"expires at {date_of(end)}"
        return f"its signature by {signature.kid} {when}, later than asked"
    return None
