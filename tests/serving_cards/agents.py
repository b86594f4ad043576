"""The same agent three times, in three frameworks, each protected by one call; its settings are in AGENT.

Run by a server in the environment of the SDK's server, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, unused-ignore"

from __future__ import annotations

import json
import os
from typing import Any, Final

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCard, Message, Part, Role
from fastapi import FastAPI
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust import CardServing, ExtendedCard
from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.principal import Principal
from a2a_trust.card.merge import merged_card
from a2a_trust.keys.ring_file import KeyRingFile
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect
from tests.serving_cards.agent_card import EXTENDED, GREETING, JSON_RPC, MARKER, REST, public_card

SETTINGS: Final[dict[str, Any]] = json.loads(os.environ["AGENT"])
CARD: Final = public_card(SETTINGS["url"])


class Greeter(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await event_queue.enqueue_event(Message(message_id="2", role=Role.ROLE_AGENT, parts=[Part(text=GREETING)]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None: ...


def sdk_agent() -> Starlette:
    """An agent as the SDK makes it, with an extended card of its own for anybody who asks."""
    card = ParseDict(CARD, AgentCard())
    handler = DefaultRequestHandler(
        agent_executor=Greeter(),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        extended_agent_card=ParseDict({**CARD, "description": MARKER}, AgentCard()),
    )
    return Starlette(
        routes=[
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, rpc_url=JSON_RPC, enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix=REST, enable_v0_3_compat=True),
        ]
    )


async def greet_by_json_rpc(request: Request) -> JSONResponse:
    call = await request.json()
    if call["method"] == "SendMessage":
        result: dict[str, Any] = {"message": message("parts")}
    else:
        part = {"kind": "text", "text": GREETING}
        result = {"kind": "message", "messageId": "2", "role": "agent", "parts": [part]}
    return JSONResponse({"jsonrpc": "2.0", "id": call["id"], "result": result})


async def greet(request: Request) -> JSONResponse:
    return JSONResponse({"message": message("content" if "/v1/" in request.url.path else "parts")})


def message(parts: str) -> dict[str, Any]:
    """As protobuf prints it; 0.3 has another name for the parts."""
    return {"messageId": "2", "role": "ROLE_AGENT", parts: [{"text": GREETING}]}


def starlette_agent() -> Starlette:
    routes = [
        Route(JSON_RPC, greet_by_json_rpc, methods=["POST"]),
        Route(f"{REST}/message:send", greet, methods=["POST"]),
        Route(f"{REST}/v1/message:send", greet, methods=["POST"]),
    ]
    return Starlette(routes=routes)


def fastapi_agent() -> FastAPI:
    agent = FastAPI()
    agent.post(JSON_RPC)(greet_by_json_rpc)
    agent.post(f"{REST}/message:send")(greet)
    agent.post(f"{REST}/v1/message:send")(greet)
    return agent


def protected(agent: Any) -> Any:
    keys = MemoryApiKeys()
    for owner, (text, scopes) in SETTINGS["keys"].items():
        keys.import_key(text, owner=owner, scopes=scopes)

    async def extended_card(caller: Principal, tenant: str) -> dict[str, Any]:
        owner = caller.identities[0][1].subject
        return {**CARD, "description": EXTENDED.format(owner=owner, tenant=tenant or "nobody")}

    return protect(
        agent,
        card=merged_card(CARD),
        verifiers={"key": ApiKeyVerifier(keys)},
        url=SETTINGS["url"],
        extended_card=ExtendedCard(extended_card, may_read=lambda caller: "extended" in caller.scopes),
        rules=RequestRules(may_use_tenant=lambda _caller, tenant: tenant == "acme", served_at=SETTINGS["served_at"]),
        serving=CardServing(
            signer=KeyRingFile(SETTINGS["ring"]), lifetime=3600, companion=True, max_age=SETTINGS["max_age"]
        ),
    )


bare = sdk_agent()
sdk = protected(sdk_agent())
starlette = protected(starlette_agent())
fastapi = protected(fastapi_agent())
