"""The card of a2a-sdk 0.2 or 0.3 as it serves it, and as this package takes it: see ``sdk_models_1.py``."""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx

sys.path += json.load(sys.stdin)

from a2a.server.apps import A2AStarletteApplication
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentSkill,
    APIKeySecurityScheme,
    In,
    SecurityScheme,
)

from tests.card.sdk_answers import answers

CARD = AgentCard(
    name="Hello World",
    description="Greets.",
    url="https://agent.example/rpc",
    version="1.0.0",
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="hello", name="Hello", description="Says hello.", tags=["hello"])],
    security_schemes={"key": SecurityScheme(root=APIKeySecurityScheme(in_=In.header, name="X-API-Key"))},
    security=[{"key": []}],
)


async def served() -> Any:
    app = A2AStarletteApplication(agent_card=CARD, http_handler=None).build()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="https://agent.example") as http:
        return (await http.get("/.well-known/agent.json")).json()


async def main() -> None:
    print(json.dumps({"0.3": {"sdk": await served(), **await answers(CARD)}}))


asyncio.run(main())
