"""Signatures made by hand, as other programs and attackers make them, and trust in their keys."""

from __future__ import annotations

import json
from typing import Any

from a2a_trust.keys import base64url
from a2a_trust.keys.jws import signing_input
from a2a_trust.keys.origins import Origins, UnsafeAnyOrigin
from a2a_trust.keys.signer import Signer
from a2a_trust.keys.trust import Form, TrustedKey, TrustStore
from a2a_trust.signing.forms import project
from tests.signing.cards import Card

ANYWHERE = UnsafeAnyOrigin()


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


def trusted(signer: Signer, *hosts: str, **rest: Any) -> TrustedKey:
    return TrustedKey(key=signer.public_key, origins=Origins(*hosts) if hosts else ANYWHERE, **rest)


def trust_in(*signers: Signer) -> TrustStore:
    return TrustStore(map(trusted, signers))


def header_of(signature: Card) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(base64url.decode(signature["protected"], "protected"))
    return header


def served(card: Card) -> bytes:
    """The card as a server sends it."""
    return json.dumps(card, indent=1, ensure_ascii=False).encode()
