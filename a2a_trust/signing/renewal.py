"""Whether a card has to be signed again: signing changes something in it, moments and the bytes of signatures aside.

The card is compared with itself as signed now, so every choice of signing counts, whatever it will be: the keys, their
algorithms, the companions, ``jku``, and what normalising drops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from a2a_trust.dates import date_of
from a2a_trust.errors import InvalidSignatureError, MalformedError, SigningError
from a2a_trust.keys.jws import verify_jws
from a2a_trust.keys.signer import Signer
from a2a_trust.signing.forms import project, shown
from a2a_trust.signing.sign import SignedCard, check_own_work
from a2a_trust.signing.signature import Signature, parse_signature
from a2a_trust.strict_json import JSON, JSONObject
from a2a_trust.strict_json.jcs import canonicalize

__all__ = ["reason_to_sign"]


def reason_to_sign(
    document: bytes, card: JSONObject, signed: SignedCard, signers: Sequence[Signer], *, now: float, until: float
) -> str | None:
    """Why ``card``, which ``document`` says, has to be signed again, in words for people; None when it need not be.

    ``signed`` is the card as ``sign_card`` signs it now. Each of its signatures by ``signers`` has to be in ``card``
    too: by the same key, with the same protected header, over the card as it is. Only their moments may differ:
    ``exp`` has to lie after ``until`` (seconds since the epoch), and no later than it would now. All other members,
    and the signatures of others, have to be as signing leaves them.
    """
    if signed.normalised:
        return f"signing drops {shown(signed.normalised)}"
    old, kept = _split(card.get("signatures"), signers)
    new, _ = _split(signed.card["signatures"], signers)
    if len(kept) + len(new) != len(_listed(signed.card["signatures"])) or signed.discarded:
        return "signing removes entries of signatures"
    for wanted in new:
        found = [each for each in old if _without_moments(each) == _without_moments(wanted)]
        if not found:
            return _missing(wanted, old)
        if len(found) > 1:
            return f"{wanted.kid} has signed it twice in the same way"
        if reason := _outdated(found[0], wanted, signed, signers, until):
            return reason
    if len(old) != len(new):
        return f"it has signatures by {', '.join(sorted({each.kid for each in old}))} that signing removes"
    try:
        check_own_work(document, signed.payload, signers, now)
    except SigningError as error:
        return str(error)
    return None


def _split(entries: JSON, signers: Sequence[Signer]) -> tuple[list[Signature], list[JSON]]:
    """The signatures that name these signers, and the other entries."""
    kids, ours, others = {signer.kid for signer in signers}, list[Signature](), list[JSON]()
    for entry in _listed(entries):
        try:
            signature = parse_signature(entry)
        except MalformedError:
            signature = None
        if signature is not None and signature.kid in kids:
            ours.append(signature)
        else:
            others.append(entry)
    return ours, others


def _listed(entries: JSON) -> list[JSON]:
    return entries if type(entries) is list else []


def _without_moments(signature: Signature) -> tuple[bytes, bool, bool]:
    header: dict[str, Any] = {name: value for name, value in signature.header.items() if name not in ("iat", "exp")}
    return canonicalize(header), "iat" in signature.header, signature.unprotected is None


def _missing(wanted: Signature, old: list[Signature]) -> str:
    if not any(each.kid == wanted.kid for each in old):
        return f"not signed by {wanted.kid}"
    if wanted.is_companion:
        return f"the companion signature by {wanted.kid} is missing"
    return f"{wanted.kid} has signed it in another way than is asked for now"


def _outdated(
    signature: Signature, wanted: Signature, signed: SignedCard, signers: Sequence[Signer], until: float
) -> str | None:
    """Why a signature does not count as the wanted one, whose header it has."""
    payload = signed.payload
    if signed.companion is not None and wanted.is_companion:
        payload = project(signed.card, signed.companion).payload
    key = next(signer.public_key for signer in signers if signer.kid == signature.kid)
    try:
        verify_jws(protected=signature.protected, payload=payload, signature=signature.signature, key=key)
    except (InvalidSignatureError, MalformedError):
        return f"its signature by {signature.kid} is wrong: the card was changed since, or the key is another one"
    end = _end(signature.header)
    if end <= until:
        return f"the signature by {signature.kid} ends at {date_of(end)}"
    if end > _end(wanted.header):
        return (
            f"the signature by {signature.kid} ends {'never' if end == inf else f'at {date_of(end)}'}, later than asked"
        )
    return None


def _end(header: Mapping[str, Any]) -> float:
    return float(header.get("exp", inf))
