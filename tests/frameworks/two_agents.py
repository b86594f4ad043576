"""Two agents of the a2a-sdk in one application, once on FastAPI and once on Starlette; the settings are in AGENTS.

The ledger stands in the application's own routes, below a prefix. The vault is an application of its own, mounted, and
opens in its lifespan. Run by a server in the environment of the SDK's server, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, unused-ignore"

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import (
    add_a2a_routes_to_fastapi,
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCard, Message, Part, Role
from fastapi import FastAPI
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route

from a2a_trust import (
    ApiKeyVerifier,
    CardSecurity,
    CardServing,
    ExtendedCard,
    Fetcher,
    FromApplication,
    JwtVerifier,
    OpenIdKeys,
    ProtectedAgent,
    RequestRules,
    SqliteApiKeys,
    load_private_key,
    protect_agents,
)
from a2a_trust.auth import FailureLimits

SETTINGS: Final[dict[str, Any]] = json.loads(os.environ["AGENTS"])
#: All callers of the tests are one peer, which fails more often than one may.
PATIENT: Final = FailureLimits(by_credential="100000/minute", by_peer="100000/minute")
URL, ISSUER = SETTINGS["url"], SETTINGS["issuer"]
FOLDER: Final = Path(SETTINGS["folder"])

API_KEY: Final = {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
CREDENTIALS_FLOW: Final = {"tokenUrl": f"{ISSUER}/token", "scopes": {"admin": "Open the vault."}}
LOGIN: Final = {"oauth2SecurityScheme": {"flows": {"clientCredentials": CREDENTIALS_FLOW}}}


class Teller(AgentExecutor):
    """Says which agent it belongs to, and whether its lifespan runs."""

    def __init__(self, name: str) -> None:
        self.name, self.state = name, "closed"

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        said = Part(text=f"from the {self.name}, {self.state}")
        await event_queue.enqueue_event(Message(message_id="2", role=Role.ROLE_AGENT, parts=[said]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None: ...


def card_of(name: str, **members: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"The public card of the {name}.",
        "version": "1.0.0",
        "supportedInterfaces": [
            {"url": f"{URL}/{name}/{path}", "protocolBinding": binding, "protocolVersion": "1.0"}
            for binding, path in (("JSONRPC", "rpc"), ("HTTP+JSON", "rest"))
        ],
        "capabilities": {"streaming": True, "extendedAgentCard": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "tell", "name": "Tell", "description": "Tells its name.", "tags": ["test"]}],
        **members,
    }


def extended(card: dict[str, Any]) -> dict[str, Any]:
    return {**card, "description": f"The extended card of the {card['name']}."}


def routes_of(teller: Teller, card: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The routes that the SDK has for an agent, below a prefix."""
    handler = DefaultRequestHandler(
        agent_executor=teller,
        task_store=InMemoryTaskStore(),
        agent_card=ParseDict(card, AgentCard()),
        extended_agent_card=ParseDict(extended(card), AgentCard()),
    )
    card_url = f"{prefix}/.well-known/agent-card.json"
    return {
        "agent_card_routes": create_agent_card_routes(ParseDict(card, AgentCard()), card_url=card_url),
        "jsonrpc_routes": create_jsonrpc_routes(handler, rpc_url=f"{prefix}/rpc"),
        "rest_routes": create_rest_routes(handler, path_prefix=f"{prefix}/rest"),
    }


LEDGER_CARD: Final = card_of(
    "ledger",
    securitySchemes={"key": API_KEY},
    securityRequirements=[{"schemes": {"key": {"list": ["read"]}}}],
)
VAULT_CARD: Final = card_of("vault")  # says nothing of credentials: protect_agents adds that
LEDGER: Final = routes_of(Teller("ledger"), LEDGER_CARD, "/ledger")
VAULT_TELLER: Final = Teller("vault")
VAULT: Final = routes_of(VAULT_TELLER, VAULT_CARD, "")


@asynccontextmanager
async def house(_app: Any) -> AsyncIterator[dict[str, str]]:
    yield {"house": "built"}


@asynccontextmanager
async def vault(_app: Any) -> AsyncIterator[dict[str, str]]:
    VAULT_TELLER.state = "open"
    yield {"door": "oiled"}
    (FOLDER / "closed").write_text("The lifespan of the vault has ended.")


async def state_of_the_vault(request: Request) -> JSONResponse:
    return JSONResponse({"house": request.state.house, "door": request.state.door})


async def health(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("well")


def protected(application: Any, mounted: Any) -> Any:
    """Both agents behind their cards; each has a key of its own that signs them."""

    def serving(name: str) -> CardServing:
        return CardServing(signer=load_private_key(FOLDER / f"{name}.key"), lifetime=3600)

    def api_keys(name: str) -> ApiKeyVerifier:
        return ApiKeyVerifier(SqliteApiKeys(SETTINGS["stores"][name]))

    tokens = OpenIdKeys(ISSUER, Fetcher(private_origins=[ISSUER], timeout=60))
    return protect_agents(
        application,
        {
            "/ledger": ProtectedAgent(
                card=LEDGER_CARD,
                verifiers={"key": api_keys("ledger")},
                url=f"{URL}/ledger",
                serving=serving("ledger"),
                extended_card=ExtendedCard(extended(LEDGER_CARD)),
                rules=RequestRules(failures=PATIENT),
            ),
            "/vault": ProtectedAgent(
                card=FromApplication(),
                verifiers={
                    "key": api_keys("vault"),
                    "login": JwtVerifier(tokens, issuer=ISSUER, audience=f"{URL}/vault"),
                },
                url=f"{URL}/vault",
                security=CardSecurity(
                    schemes={"key": API_KEY, "login": LOGIN},
                    requirements=[
                        {"schemes": {"login": {"list": ["admin"]}}},
                        {"schemes": {"key": {"list": ["admin"]}}},
                    ],
                ),
                serving=serving("vault"),
                extended_card=ExtendedCard(FromApplication()),
                rules=RequestRules(other_paths=["/vault/state"], failures=PATIENT),
            ),
        },
        unguarded_paths=["/healthz"],
        lifespans=[mounted],
    )


def on_fastapi() -> Any:
    mounted = FastAPI(lifespan=vault)
    add_a2a_routes_to_fastapi(mounted, **VAULT)
    mounted.get("/state")(state_of_the_vault)
    application = FastAPI(lifespan=house)
    # Before the ledger: the SDK's routes for tenants begin with any name.
    application.mount("/vault", mounted)
    application.get("/healthz")(health)
    add_a2a_routes_to_fastapi(application, **LEDGER)
    return protected(application, mounted)


def on_starlette() -> Any:
    routes = [route for some in VAULT.values() for route in some]
    mounted = Starlette(routes=[Route("/state", state_of_the_vault), *routes], lifespan=vault)
    ledger = [route for some in LEDGER.values() for route in some]
    application = Starlette(routes=[Mount("/vault", app=mounted), Route("/healthz", health), *ledger], lifespan=house)
    return protected(application, mounted)
