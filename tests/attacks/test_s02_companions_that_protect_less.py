"""S2, the signer's side: a companion is marked as one, its note names what it leaves open, and it never counts here.

The attacker deletes the full signature and serves exactly what the companion is over, so that nothing looks stripped.
"""

from __future__ import annotations

import copy
import json

import pytest

from a2a_trust import TrustStore, sign_card
from a2a_trust.errors import CardVerificationError, FailureReason, UntrustedCardError
from a2a_trust.keys import LocalSigner
from a2a_trust.signing import Form, SignedCard
from a2a_trust.signing.forms import project
from a2a_trust.signing.signature import content_type, parse_signature
from tests.attacks.forgery import JSONObject, without_signatures
from tests.attacks.verifying import HOST, refusal, verified

BAD, COMPANION = FailureReason.BAD_SIGNATURE, FailureReason.COMPANION

OLD: JSONObject = {
    "protocolVersion": "0.3.0",
    "name": "Old agent",
    "description": "Reads invoices",
    "url": f"https://{HOST}/a2a",
    "preferredTransport": "JSONRPC",
    "version": "1.0.0",
    "capabilities": {"streaming": True},
    "securitySchemes": {
        "oauth": {"type": "openIdConnect", "openIdConnectUrl": "https://id.example.com/"},
        "tls": {"type": "mutualTLS"},
    },
    "security": [{"oauth": ["read"], "tls": []}, {"tls": []}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "S", "description": "Reads", "tags": ["t"]}],
}


@pytest.fixture(params=["1.0", "0.3"])
def signed(request: pytest.FixtureRequest, card: JSONObject, owner: LocalSigner) -> SignedCard:
    made = sign_card(card if request.param == "1.0" else OLD, owner, companion=True, exp=4e9)
    assert made.companion is (Form.PRUNED if request.param == "1.0" else Form.V0_3_PYTHON)
    return made


def test_the_companion_alone_is_served_over_what_it_protects(signed: SignedCard, trust: TrustStore) -> None:
    assert signed.companion is not None
    full, companion = signed.card["signatures"]
    stripped = project(signed.card, signed.companion).members
    assert stripped != without_signatures(signed.card)
    refusal(UntrustedCardError, json.dumps({**stripped, "signatures": [companion]}).encode(), trust, COMPANION)
    refusal(
        CardVerificationError, json.dumps({**stripped, "signatures": [full, companion]}).encode(), trust, BAD, COMPANION
    )
    refusal(UntrustedCardError, json.dumps({**signed.card, "signatures": [companion]}).encode(), trust, COMPANION)
    assert verified(json.dumps({**signed.card, "signatures": [full]}).encode(), trust).unverified == ()


def test_every_signature_is_marked_in_what_is_signed(signed: SignedCard, owner: LocalSigner) -> None:
    full, companion = (parse_signature(entry) for entry in signed.card["signatures"])
    assert signed.companion is not None
    assert full.marker is (Form.SPEC if signed.companion is Form.PRUNED else Form.SERVED)
    assert companion.header["cty"] == content_type(signed.companion)
    assert (full.is_companion, companion.is_companion) == (False, True)


def test_every_removal_that_the_companion_does_not_see_is_in_the_note(signed: SignedCard) -> None:
    assert signed.companion is not None
    payload = project(signed.card, signed.companion).payload
    (note,) = signed.notes
    for pointer in signed.left_open:
        changed = copy.deepcopy(signed.card)
        holder: object = changed
        *way, last = [int(step) if step.isdigit() else step for step in pointer.split("/")[1:]]
        for step in way:
            holder = holder[step]  # type: ignore[index]
        del holder[last]  # type: ignore[attr-defined]
        assert project(changed, signed.companion).payload == payload
        assert pointer in note
    requirements = [
        pointer for pointer in signed.left_open if "ecurityRequirements" in pointer or "/security/" in pointer
    ]
    assert requirements
    assert f"(without them clients send no credentials): {requirements[0]}" in note


@pytest.mark.parametrize("member", ["url", "security", "securitySchemes"])
def test_the_companion_of_a_card_of_0_3_protects_what_the_pruned_form_forgets(owner: LocalSigner, member: str) -> None:
    signed = sign_card(OLD, owner, companion=True)
    changed = {name: value for name, value in signed.card.items() if name != member}
    assert signed.companion is Form.V0_3_PYTHON
    assert project(changed, signed.companion).payload != project(signed.card, signed.companion).payload


def test_without_a_companion_there_is_nothing_to_strip(card: JSONObject, owner: LocalSigner) -> None:
    signed = sign_card(card, owner, companion=False)
    assert [parse_signature(entry).is_companion for entry in signed.card["signatures"]] == [False]
    assert signed.left_open == ()
