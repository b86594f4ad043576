"""S26: a card has its requirements where the guard reads them, and the program's model of the card does not.

Cards with members of two generations are real: three of the real cards have ``security`` beside
``supportedInterfaces``. A program that reads ``model.security_requirements`` takes them for open.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from a2a_trust import Origins, TrustedKey, TrustStore, VerifiedCard, generate_signer, sign_card, verify_card
from a2a_trust.card.merge import merged_card
from a2a_trust.card.models import AgentCard, AgentCard03, model_of
from a2a_trust.card.view import read_card
from tests.tables import walk

OWNER = generate_signer("ES256", kid="owner")
ORIGIN = "https://agent.example.com"
KEY_1_0 = {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}}
KEY_0_3 = {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
OF_1_0: list[dict[str, Any]] = [{"schemes": {"key": {"list": []}}}]
OF_0_3: list[dict[str, Any]] = [{"key": []}]
NEW = {"supportedInterfaces": [{"url": f"{ORIGIN}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]}
OLD = {"url": f"{ORIGIN}/rpc", "protocolVersion": "0.3.0"}


def card_of(**members: Any) -> dict[str, Any]:
    texts = {"name": "Ledger", "description": "Books.", "version": "1", "capabilities": {}}
    modes = {"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]}
    return {**texts, **modes, "skills": [skill()], **members}


def skill(**members: Any) -> dict[str, Any]:
    return {"id": "pay", "name": "Pay", "description": "Pays.", "tags": ["money"], **members}


def verified(card: dict[str, Any]) -> VerifiedCard:
    trust = TrustStore([TrustedKey(key=OWNER.public_key, origins=Origins("agent.example.com"))])
    return verify_card(sign_card(card, OWNER).card, trust, origin=ORIGIN)


HIDDEN = {
    "security in 1.0": card_of(**NEW, securitySchemes=KEY_1_0, security=OF_0_3),
    "securityRequirements in 0.3": card_of(**OLD, securitySchemes=KEY_0_3, securityRequirements=OF_1_0),
    "security in a skill of 1.0": card_of(**NEW, securitySchemes=KEY_1_0, skills=[skill(security=OF_0_3)]),
    "securityRequirements in a skill of 0.3": card_of(
        **OLD, securitySchemes=KEY_0_3, skills=[skill(securityRequirements=OF_1_0)]
    ),
    "a skill of a merged card": card_of(
        **NEW,
        url=f"{ORIGIN}/rpc",
        securitySchemes=KEY_1_0,
        securityRequirements=OF_1_0,
        security=OF_0_3,
        skills=[skill(), skill(id="refund", security=OF_0_3)],
    ),
    "a scheme of 0.3 in 1.0": card_of(**NEW, securitySchemes=KEY_0_3, securityRequirements=OF_1_0),
    "a scheme of 1.0 in 0.3": card_of(**OLD, securitySchemes=KEY_1_0, security=OF_0_3),
    "authentication in 1.0": card_of(**NEW, authentication={"schemes": ["key"]}),
}


@walk("place", HIDDEN)
def test_a_model_never_shows_less_than_the_guard_enforces(place: str) -> None:
    card = verified(HIDDEN[place])
    view = read_card(card.card)
    assert view.requirements or any(each.requirements for each in view.skills)  # control: the guard reads it
    with pytest.raises(ValidationError, match="which this model does not show"):
        model_of(card.card)
    for model in (AgentCard, AgentCard03):
        with pytest.raises(ValidationError):
            model.model_validate(card.card)


def test_control_requirements_in_the_members_of_the_generation_are_shown() -> None:
    for card in (
        card_of(**NEW, securitySchemes=KEY_1_0, securityRequirements=OF_1_0),
        merged_card(card_of(**NEW, securitySchemes=KEY_1_0, securityRequirements=OF_1_0)),
    ):
        model = model_of(verified(card).card)
        assert isinstance(model, AgentCard)
        assert model.security_requirements
    old = model_of(verified(card_of(**OLD, securitySchemes=KEY_0_3, security=OF_0_3)).card)
    assert isinstance(old, AgentCard03)
    assert old.security == OF_0_3
    oldest = model_of(verified(card_of(url=f"{ORIGIN}/rpc", authentication={"schemes": ["key"]})).card)
    assert isinstance(oldest, AgentCard03)
    assert oldest.authentication is not None
    assert oldest.authentication.schemes == ["key"]
