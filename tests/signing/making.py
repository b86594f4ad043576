"""Signatures made by hand, as other programs and attackers make them, and trust in their keys."""

from __future__ import annotations

import json
from typing import Any

from a2a_trust.keys import base64url
from a2a_trust.keys.jws import signing_input
from a2a_trust.keys.origins import Origins, UnsafeAnyOrigin
from a2a_trust.keys.policy import is_thumbprint
from a2a_trust.keys.signer import Signer
from a2a_trust.keys.trust import SigningTool, TrustedKey, TrustStore
from a2a_trust.signing.forms import Form, project
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
