"""Where things are: by the URLs in the card and in the signature, whatever is in front of the application."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from a2a_trust import generate_signer
from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.keys.jwk import read_jwks
from a2a_trust.middleware.extended_card import ExtendedCard
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import CardServing, protect
from tests.tables import walk

pytestmark = pytest.mark.anyio

STORE = MemoryApiKeys()
CREDENTIAL = {"X-API-Key": STORE.create(owner="ann").text}
SIGNER = generate_signer("ES256")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def reached(request: Request) -> PlainTextResponse:
    return PlainTextResponse("the application")


async def no_card(caller: Any, tenant: str) -> None:
    """The source of an extended card that nobody has."""


def agent(*urls: str, url: str | None = None, **options: Any) -> Any:
    """An agent whose card names those URLs for JSON-RPC, with an application that answers everything."""
    card = {
        "name": "agent",
        "supportedInterfaces": [{"url": each, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"} for each in urls],
        "capabilities": {"extendedAgentCard": True},
        "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
        "securityRequirements": [{"schemes": {"key": {}}}],
        "skills": [],
    }
    application = Starlette(routes=[Route("/{path:path}", reached, methods=["GET", "POST"])])
    options = {"extended_card": ExtendedCard(no_card), **options}
    return protect(application, card=card, verifiers={"key": ApiKeyVerifier(STORE)}, url=url, **options)


async def ask(app: Any, method: str, url: str, **request: Any) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as http:
        return await http.request(method, url, **request)


@walk("url", ["https://agent.example", "https://agent.example/team/", "https://agent.example/a/b"])
@walk("is_mounted", [False, True])
async def test_the_key_set_is_where_the_signature_says(url: str, is_mounted: bool) -> None:
    app = agent(f"{url.rstrip('/')}/rpc", url=url, serving=CardServing(signer=SIGNER))
    path = urlsplit(url).path.rstrip("/")
    if is_mounted:
        app = Starlette(routes=[Mount(path or "/", app=app)])
    card_url = f"https://agent.example{path if is_mounted else ''}/.well-known/agent-card.json"
    signatures = (await ask(app, "GET", card_url)).json()["signatures"]
    (jku,) = {json.loads(base64.urlsafe_b64decode(each["protected"] + "=="))["jku"] for each in signatures}
    jwks = await ask(app, "GET", jku)
    assert (jwks.status_code, read_jwks(jwks.content).keys) == (200, (SIGNER.public_key,))


@walk(
    ("named", "served_at", "path"),
    [
        ("https://agent.example/rpc", None, "/rpc"),
        ("https://agent.example/rpc/", None, "/rpc/"),
        ("https://agent.example/caf%C3%A9/r%70c", None, "/caf%C3%A9/rpc"),
        ("https://agent.example", None, "/"),
        ("https://agent.example/team/rpc", "/rpc", "/rpc"),
        ("https://agent.example/team/rpc", "/", "/"),
    ],
)
async def test_calls_are_known_at_the_path_of_the_url_or_where_it_is_said(
    named: str, served_at: str | None, path: str
) -> None:
    rules = RequestRules(served_at={} if served_at is None else {named: served_at})
    call = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}
    answer = await ask(agent(named, rules=rules), "POST", f"http://inner{path}", json=call, headers=CREDENTIAL)
    assert answer.json()["error"]["code"] == -32007
    call["method"] = "SendMessage"
    answer = await ask(agent(named, rules=rules), "POST", f"http://inner{path}", json=call, headers=CREDENTIAL)
    assert answer.text == "the application"
    if served_at is not None:  # not guessed
        answer = await ask(agent(named), "POST", f"http://inner{path}", json=call, headers=CREDENTIAL)
        assert answer.status_code == 404


@walk("path", ["/rpc%0A", "/extendedAgentCard%0A", "/%0A", "/a%0Ab"])
@walk("method", ["GET", "POST"])
async def test_a_path_with_a_newline_is_refused(method: str, path: str) -> None:
    app = agent("https://agent.example/rpc")
    answer = await ask(app, method, f"http://inner{path}", headers=CREDENTIAL)
    assert answer.status_code == 400
    assert (await ask(app, method, f"http://inner{path}")).status_code == 401
