"""S23: an issuer signs tokens with a key that is trusted for cards, and the claims of one token are a card.

Measured here: ``typ: JWT`` was accepted for every key, so somebody who chooses the claims of a token made a verified
card of it. a2a-python signs with PyJWT, which writes that ``typ`` if its caller chooses none; so the trust entry must
name a2a-python.
"""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest

from a2a_trust import CardVerifier, Origins, TrustedKey, TrustStore
from a2a_trust.client import TrustOnFirstUse
from a2a_trust.errors import CardVerificationError, FailureReason
from a2a_trust.keys import LocalSigner, SigningTool
from a2a_trust.signing.signature import FORM_MARKERS
from tests.attacks.forgery import JSONObject, canonical, unb64
from tests.attacks.verifying import HOST, NOW, ORIGIN, refusal, verified
from tests.tables import walk

#: Claims of a token: ``skills`` is empty, so the signed bytes show that nothing was dropped.
CLAIMS: JSONObject = {
    "name": "Ledger agent",
    "description": "Pays invoices.",
    "version": "1.0.0",
    "supportedInterfaces": [{"url": f"https://{HOST}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [],
    "iss": "https://login.example.com",
    "sub": "alice",
    "exp": int(NOW) + 600,
}


def token_as_card(issuer: LocalSigner, claims: JSONObject, **header: Any) -> JSONObject:
    """The token of a real library, taken apart: its claims are the card."""
    ordered = _in_order(claims)
    token = jwt.encode(ordered, issuer.private_key, issuer.alg, headers={"kid": issuer.kid, **header})
    protected, _, signature = token.split(".")
    return {**ordered, "signatures": [{"protected": protected, "signature": signature}]}


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_order(value[name]) for name in sorted(value)}
    return [_in_order(item) for item in value] if isinstance(value, list) else value


def trusting(issuer: LocalSigner, signer: SigningTool | None) -> TrustStore:
    return TrustStore([TrustedKey(key=issuer.public_key, origins=Origins(HOST), signer=signer)])


@walk("typ", ["JWT", "jwt", "application/jwt"])
@walk("signer", [None, *[tool for tool in SigningTool if tool is not SigningTool.A2A_PYTHON]], ids=str)
def test_a_token_whose_claims_are_a_card_is_not_a_card(
    owner: LocalSigner, signer: SigningTool | None, typ: str
) -> None:
    card = token_as_card(owner, CLAIMS, typ=typ)
    trust = trusting(owner, signer)
    refusal(CardVerificationError, card, trust, FailureReason.MALFORMED, match="the header's typ is JWT")
    with pytest.raises(CardVerificationError):
        CardVerifier(trust, clock=lambda: NOW).verify(canonical(card), origin=ORIGIN)


@pytest.mark.parametrize("cty", FORM_MARKERS)
def test_a_token_with_our_mark_is_not_a_card(owner: LocalSigner, cty: str) -> None:
    card = token_as_card(owner, CLAIMS, cty=cty)
    for signer in (None, *SigningTool):
        with pytest.raises(CardVerificationError):
            verified(card, trusting(owner, signer))


def test_a_token_is_not_a_card_on_first_use_either(owner: LocalSigner) -> None:
    store = TrustOnFirstUse().trust_store([owner.public_key], ORIGIN, TrustStore([]))
    refusal(CardVerificationError, token_as_card(owner, CLAIMS), store, FailureReason.MALFORMED)


def test_another_key_of_a2a_python_under_the_same_kid_changes_nothing(owner: LocalSigner, mallory: LocalSigner) -> None:
    """The entry that names a2a-python is about its own key."""
    theirs = LocalSigner(mallory.private_key, kid=owner.kid)
    both = [*trusting(owner, SigningTool.WHOLE).keys, *trusting(theirs, SigningTool.A2A_PYTHON).keys]
    card = token_as_card(owner, CLAIMS)
    for keys in (both, both[::-1]):
        refusal(CardVerificationError, card, TrustStore(keys), FailureReason.MALFORMED)


def test_control_a_card_of_a2a_python_whose_caller_chose_no_typ_verifies(owner: LocalSigner) -> None:
    card = {name: value for name, value in CLAIMS.items() if name not in ("iss", "sub", "exp")}
    signed = token_as_card(owner, card)
    assert json.loads(unb64(signed["signatures"][0]["protected"]))["typ"] == "JWT"
    assert verified(signed, trusting(owner, SigningTool.A2A_PYTHON)).card == card
