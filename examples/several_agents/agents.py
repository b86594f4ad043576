"""A shop of two agents in one FastAPI application, each behind its own card. ``orchestrator.py`` buys there.

The catalog admits callers with the scope ``catalog:read``, the order desk those with ``orders:write``. Both read one
store of API keys. One key signs both cards, since clients of this shop trust both alike; agents that are not one
shop's need a key each. The catalog is a route of the application; the order desk is mounted,
with a lifespan of its own.

Settings, all from the environment: ``SHOP_URL`` where the shop is called, ``API_KEYS`` a store made by
``a2a-sign api-key create``, ``CARD_KEY`` the key that signs the cards.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from fastapi import FastAPI, Request

from a2a_trust import (
    ApiKeyVerifier,
    CardServing,
    ProtectedAgent,
    SqliteApiKeys,
    load_private_key,
    principal_of,
    protect_agents,
)

URL = os.environ.get("SHOP_URL", "http://127.0.0.1:8000")
PRICES = {"lamp": 30, "chair": 80}


@asynccontextmanager
async def open_book(order_desk: FastAPI) -> AsyncIterator[None]:
    order_desk.state.book = []  # a real shop opens its database here
    yield


# The agents, which know nothing of credentials.
shop, order_desk = FastAPI(), FastAPI(lifespan=open_book)
shop.mount("/orders", order_desk)


@shop.get("/healthz")
def health() -> dict[str, str]:
    return {"status": "ok"}


@shop.post("/catalog/rpc")
def price(call: dict[str, Any]) -> dict[str, Any]:
    goods = text_of(call)
    return answer(call, f"A {goods} costs {PRICES[goods]}." if goods in PRICES else f"There is no {goods}.")


@order_desk.post("/rpc")
def order(call: dict[str, Any], request: Request) -> dict[str, Any]:
    book = request.app.state.book
    book.append((principal_of(request.scope).id, text_of(call)))
    return answer(call, f"Order {len(book)}: a {text_of(call)}.")


def text_of(call: dict[str, Any]) -> str:
    return "".join(part["text"] for part in call["params"]["message"]["parts"])


def answer(call: dict[str, Any], text: str) -> dict[str, Any]:
    message = {"messageId": str(uuid4()), "role": "ROLE_AGENT", "parts": [{"text": text}]}
    return {"jsonrpc": "2.0", "id": call["id"], "result": {"message": message}}


# The agents end here. Their cards say who may call:
def card_of(name: str, description: str, scope: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "version": "1.0.0",
        "supportedInterfaces": [{"url": f"{URL}/{name}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": name, "name": name, "description": description, "tags": ["shop"]}],
        "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
        "securityRequirements": [{"schemes": {"key": {"list": [scope]}}}],
    }


api_keys = ApiKeyVerifier(SqliteApiKeys(os.environ.get("API_KEYS", "keys.db")))
serving = CardServing(signer=load_private_key(os.environ.get("CARD_KEY", "card.key")), lifetime=3600)


def protected(card: dict[str, Any]) -> ProtectedAgent:
    return ProtectedAgent(card=card, verifiers={"key": api_keys}, url=f"{URL}/{card['name']}", serving=serving)


# And this makes the cards true. Each path belongs to one agent, or to nobody:
app = protect_agents(
    shop,
    {
        "/catalog": protected(card_of("catalog", "Tells prices.", "catalog:read")),
        "/orders": protected(card_of("orders", "Takes orders.", "orders:write")),
    },
    unguarded_paths=["/healthz"],
    lifespans=[order_desk],  # FastAPI runs no lifespan of what is mounted
)
