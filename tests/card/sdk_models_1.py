"""The card of a2a-sdk 1.x as it serves it, and as this package takes it.

Its input is a list of folders, with this package and what that needs.
Run by the interpreter of that SDK's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx

sys.path += json.load(sys.stdin)

from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    APIKeySecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from starlette.applications import Starlette
from starlette.responses import JSONResponse

from tests.card.sdk_answers import answers


def card(*versions: str) -> AgentCard:
    return AgentCard(
        name="Hello World",
        description="Greets.",
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="hello", name="Hello", description="Says hello.", tags=["hello"])],
        supported_interfaces=[
            AgentInterface(protocol_binding=binding, protocol_version=version, url=f"https://agent.example/{path}")
            for binding, path in (("JSONRPC", "rpc"), ("HTTP+JSON", "rest"))
            for version in versions
        ],
        security_schemes={
            "key": SecurityScheme(api_key_security_scheme=APIKeySecurityScheme(location="header", name="X-API-Key"))
        },
        security_requirements=[SecurityRequirement(schemes={"key": StringList(list=[])})],
    )


async def served(model: AgentCard) -> Any:
    try:
        from a2a.server.routes import create_agent_card_routes
    except ModuleNotFoundError:  # 1.0 wants gRPC for its routes; this is all that they do
        return json.loads(bytes(JSONResponse(agent_card_to_dict(model)).body))
    transport = httpx.ASGITransport(app=Starlette(routes=create_agent_card_routes(model)))
    async with httpx.AsyncClient(transport=transport, base_url="https://agent.example") as http:
        return (await http.get("/.well-known/agent-card.json")).json()


async def main() -> None:
    models = {"1.0": card("1.0"), "1.0 and 0.3": card("1.0", "0.3")}
    print(json.dumps({name: {"sdk": await served(model), **await answers(model)} for name, model in models.items()}))


asyncio.run(main())
