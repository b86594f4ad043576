"""A calendar and a mailbox: two agents that tell each user what is theirs. ``orchestrator.py`` calls both.

Both take the tokens of one authorization server, each for an audience of its own: a token for one agent is worth
nothing at the other. Settings, all from the environment: ``ISSUER`` the authorization server, ``TOKEN_URL`` its token
endpoint, ``TOKEN_TYPE`` is ``JWT`` where that is the ``typ`` of its access tokens (Keycloak, Entra ID),
``PRIVATE_ORIGINS`` its origin where that is a private one, ``CARD_KEY`` the key that signs the cards, ``CALENDAR_URL``
and ``MAIL_URL`` where the agents are called.
"""

from __future__ import annotations

import os
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from a2a_trust import CardServing, Fetcher, JwtVerifier, load_private_key, principal_of, protect
from a2a_trust.auth import OAuth2Keys, TokenProfile

__all__ = ["CALENDAR_URL", "ISSUER", "MAIL_URL", "TOKEN_URL", "calendar", "card_of", "fetcher", "mail", "protection"]

ISSUER = os.environ.get("ISSUER", "https://login.example.com")
TOKEN_URL = os.environ.get("TOKEN_URL", f"{ISSUER}/token")
TOKEN_TYPE = os.environ.get("TOKEN_TYPE", TokenProfile.RFC9068)
CALENDAR_URL = os.environ.get("CALENDAR_URL", "http://127.0.0.1:8101")
MAIL_URL = os.environ.get("MAIL_URL", "http://127.0.0.1:8102")
APPOINTMENTS = {"alice": "dentist at 10", "bob": "flight at 7"}
LETTERS = {"alice": "two from the bank", "bob": "one from Alice"}

fetcher = Fetcher(private_origins=os.environ.get("PRIVATE_ORIGINS", "").split())


def card_of(name: str, description: str, url: str) -> dict[str, Any]:
    """A card that demands a token of the user with the scope "read"."""
    flow = {
        "authorizationUrl": f"{ISSUER}/authorization",
        "tokenUrl": TOKEN_URL,
        "scopes": {"read": "Read what is yours."},
    }
    return {
        "name": name,
        "description": description,
        "version": "1.0.0",
        "supportedInterfaces": [{"url": f"{url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "read", "name": name, "description": description, "tags": ["personal"]}],
        "securitySchemes": {"login": {"oauth2SecurityScheme": {"flows": {"authorizationCode": flow}}}},
        "securityRequirements": [{"schemes": {"login": {"list": ["read"]}}}],
    }


def protection(audience: str) -> dict[str, Any]:
    """Arguments of ``protect``: who may call an agent with that audience, and who signs its card."""
    keys = OAuth2Keys(ISSUER, fetcher)
    login = JwtVerifier(keys, issuer=ISSUER, audience=audience, profile=TokenProfile(TOKEN_TYPE))
    return {
        "verifiers": {"login": login},
        "serving": CardServing(signer=load_private_key(os.environ["CARD_KEY"]), lifetime=3600),
    }


def agent(name: str, url: str, audience: str, belongings: dict[str, str]) -> ASGIApp:
    """An agent that answers SendMessage with what belongs to the user of the token."""

    async def rpc(request: Request) -> JSONResponse:
        login = principal_of(request.scope).by_scheme("login")
        user = login.subject if login else "nobody"
        text = f"{name} of {user}: {belongings.get(user, 'nothing')}"
        message = {"messageId": str(uuid4()), "role": "ROLE_AGENT", "parts": [{"text": text}]}
        return JSONResponse({"jsonrpc": "2.0", "id": (await request.json())["id"], "result": {"message": message}})

    inner = Starlette(routes=[Route("/rpc", rpc, methods=["POST"])])
    return protect(inner, card=card_of(name, f"Reads your {name}.", url), url=url, **protection(audience))


def calendar() -> ASGIApp:
    return agent("calendar", CALENDAR_URL, "https://calendar.example", APPOINTMENTS)


def mail() -> ASGIApp:
    return agent("mail", MAIL_URL, "https://mail.example", LETTERS)
