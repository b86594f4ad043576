"""The sample card of the specification 0.2.9, whole: one ``protect`` guards its three bindings."""

from __future__ import annotations

from typing import Any, Final

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust import ExtendedCard, RequestRules, principal_of, protect
from a2a_trust.auth import JwtVerifier
from a2a_trust.grpc import GrpcGuard
from a2a_trust.middleware import Webhooks
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, claims, token
from tests.grpc_service import Service, outcome, serving

pytestmark = pytest.mark.anyio
HOST: Final = "https://georoute-agent.example.com/a2a"
CARD: Final[dict[str, Any]] = {
    "protocolVersion": "0.2.9",
    "name": "GeoSpatial Route Planner Agent",
    "description": "Provides advanced route planning, traffic analysis, and custom map generation services.",
    "url": f"{HOST}/v1",
    "preferredTransport": "JSONRPC",
    "additionalInterfaces": [
        {"url": f"{HOST}/v1", "transport": "JSONRPC"},
        {"url": f"{HOST}/grpc", "transport": "GRPC"},
        {"url": f"{HOST}/json", "transport": "HTTP+JSON"},
    ],
    "provider": {"organization": "Example Geo Services Inc.", "url": "https://www.examplegeoservices.com"},
    "version": "1.2.0",
    "capabilities": {"streaming": True, "pushNotifications": True, "stateTransitionHistory": False},
    "securitySchemes": {
        "google": {
            "type": "openIdConnect",
            "openIdConnectUrl": "https://accounts.google.com/.well-known/openid-configuration",
        }
    },
    "security": [{"google": ["openid", "profile", "email"]}],
    "defaultInputModes": ["application/json", "text/plain"],
    "defaultOutputModes": ["application/json", "image/png"],
    "skills": [
        {
            "id": "route-optimizer-traffic",
            "name": "Traffic-Aware Route Optimizer",
            "description": "Calculates the optimal driving route.",
            "tags": ["maps", "routing"],
        }
    ],
    "supportsAuthenticatedExtendedCard": True,
}
MESSAGE: Final = {"message": {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def answer(request: Request) -> JSONResponse:
    return JSONResponse({"caller": principal_of(request).id})


async def test_the_sample_card_runs_whole() -> None:
    guard = GrpcGuard()
    paths = ("/a2a/v1", "/a2a/json/v1/message:send")
    app = protect(
        Starlette(routes=[Route(path, answer, methods=["POST"]) for path in paths]),
        card=CARD,
        verifiers={"google": JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)},
        extended_card=ExtendedCard({**CARD, "name": "For callers"}),
        rules=RequestRules(webhooks=Webhooks(hosts=["*.example.com"])),
        grpc=guard,
        clock=lambda: NOW,
    )
    right = token(claims(scope="openid profile email"))
    tokens = {"": 401, token(claims(scope="openid")): 403, right: 200}
    call = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": MESSAGE}
    service = Service()
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="https://georoute-agent.example.com")
    async with serving(guard, service.handler(service="a2a.v1.A2AService")) as client, http:
        for given, status in tokens.items():
            headers = {"authorization": f"Bearer {given}"} if given else {}
            for path, body in zip(paths, (call, MESSAGE), strict=True):
                assert (await http.post(path, json=body, headers=headers)).status_code == status, path
            code = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 200: "OK"}[status]
            for name in ("SendMessage", "SendStreamingMessage"):
                assert await outcome(client.method(name, "a2a.v1.A2AService"), [*headers.items()]) == code
            extended = await http.get("/a2a/json/v1/card", headers=headers)
            assert (extended.status_code, extended.json().get("name")) == (
                status,
                "For callers" if status == 200 else None,
            )
        card = (await http.get("/.well-known/agent-card.json")).json()
        assert card["additionalInterfaces"][1]["transport"] == "GRPC"
    assert service.calls == 2
