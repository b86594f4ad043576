"""Signatures made by hand, as other programs and attackers make them, trust in their keys, and what comes of both."""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_trust.errors import CardVerificationError, FailureReason
from a2a_trust.keys import base64url
from a2a_trust.keys.jws import signing_input
from a2a_trust.keys.signer import Signer
from a2a_trust.keys.trust.origins import Origins, UnsafeAnyOrigin
from a2a_trust.keys.trust.policy import is_thumbprint
from a2a_trust.keys.trust.store import SigningTool, TrustedKey, TrustStore
from a2a_trust.signing.forms import Form, project
from a2a_trust.signing.verify import VerifiedCard, verify_card
from tests.signing.cards import Card

ANYWHERE = UnsafeAnyOrigin()
NOW = 1_800_000_000.0


def header_text(header: object) -> str:
    return base64url.encode(json.dumps(header).encode())


def entry(signer: Signer, payload: bytes, **header: Any) -> Card:
    """One entry of ``signatures``; ``header`` adds to the protected header or replaces its members."""
    protected = header_text({"alg": signer.alg, "kid": signer.kid, "typ": "JOSE", **header})
    return {"protected": protected, "signature": base64url.encode(signer.sign(signing_input(protected, payload)))}


def signed_in(card: Card, form: Form, *signers: Signer, **header: Any) -> Card:
    """The card as it is, signed by each signer in one form and without a look at what is in it."""
    payload = project(card, form).payload
    return {**card, "signatures": [entry(signer, payload, **header) for signer in signers]}


def trusted(owner: Signer, /, *hosts: str, **rest: Any) -> TrustedKey:
    """Trust in a key whose owner signs complete cards, as the party of its kid, unless ``rest`` says otherwise."""
    name = None if is_thumbprint(owner.kid) else owner.kid
    members = {"signer": SigningTool.WHOLE, "name": name, **rest}
    return TrustedKey(key=owner.public_key, origins=Origins(*hosts) if hosts else ANYWHERE, **members)


def trust_in(*signers: Signer) -> TrustStore:
    return TrustStore(map(trusted, signers))


def header_of(signature: Card) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(base64url.decode(signature["protected"], "protected"))
    return header


def served(card: Card) -> bytes:
    """The card as a server sends it."""
    return json.dumps(card, indent=1, ensure_ascii=False).encode()


def verify(card: Card | bytes, trust: TrustStore, **rest: Any) -> VerifiedCard:
    """The card as ``verify_card`` gives it at NOW, from anywhere unless ``rest`` says otherwise."""
    document = card if isinstance(card, bytes) else served(card)
    return verify_card(document, trust, **{"origin": ANYWHERE, "now": NOW, **rest})


def reasons(card: Card | bytes, trust: TrustStore, **rest: Any) -> list[FailureReason]:
    """Why each signature of a card that is not verified does not count."""
    with pytest.raises(CardVerificationError) as error:
        verify(card, trust, **rest)
    return [failure.reason for failure in error.value.failures]
