"""What this package makes of the card of an SDK, wherever it takes one; run in the environment of that SDK."""

from __future__ import annotations

from typing import Any

import httpx
from starlette.applications import Starlette

from a2a_trust import ApiKeyVerifier, ExtendedCard, generate_signer, lint_card, protect, sign_card
from a2a_trust.auth import MemoryApiKeys
from a2a_trust.auth.principal import Principal
from a2a_trust.base.strict_json import parse

__all__ = ["answers"]


async def answers(card: Any) -> dict[str, Any]:
    app = protect(Starlette(), card=card, verifiers={"key": ApiKeyVerifier(MemoryApiKeys())})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="https://agent.example") as http:
        served = (await http.get("/.well-known/agent-card.json")).json()
    signed = sign_card(card, generate_signer()).card
    signatures = signed.pop("signatures")
    provider = ExtendedCard(card).provider()
    assert provider is not None
    extended = await provider(Principal(identities=()), "")
    assert isinstance(extended, bytes)
    return {
        "served": served,
        "signed": signed,
        "signatures": len(signatures),
        "extended": parse(extended),
        "findings": [finding.rule for finding in lint_card(card)],
    }
