"""M2: paths that look like the public card's reach handlers that are not public.

Measured on a server of an SDK: prefixes, encodings, double slashes, parameters, other case, trailing slashes.
"""

from __future__ import annotations

import pytest

from tests.middleware.agent import Agent, guarded, raw_exchange, uvicorn_serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


CARD_PATH = "/.well-known/agent-card.json"

LOOKALIKES = [
    "/.well-known",
    "/.well-known/",
    "/.well-known/x",
    "/.well-known/agent",
    "/.well-known/agent-card.jso",
    "/.well-known/agent-card.json/",
    "/.well-known/agent-card.json/rpc",
    "/.well-known/agent-card.json/../../rpc",
    "/.well-known/agent-card.json/..%2f..%2frpc",
    "/.well-known/agent-card.json;x",
    "/.well-known/agent-card.json;/../rpc",
    "/.well-known/agent-card.json%00",
    "/.well-known/agent-card.json%20",
    "/.well-known/agent-card.json%3F",
    "/.well-known/agent-card.json%23",
    "/.well-known/agent-card%2ejson",
    "/.well-known%2fagent-card.json",
    "/%2ewell-known/agent-card.json",
    "/%2Ewell-known/agent-card.json",
    "%2f.well-known/agent-card.json",
    "/.well%2dknown/agent-card.json",
    "//.well-known/agent-card.json",
    "/.well-known//agent-card.json",
    "/./.well-known/agent-card.json",
    "/x/../.well-known/agent-card.json",
    "/x/.well-known/agent-card.json",
    "/v1/.well-known/agent-card.json",
    "/rpc?/.well-known/agent-card.json",
    "/rpc#/.well-known/agent-card.json",
    "/.Well-Known/agent-card.json",
    "/.well-known/Agent-Card.json",
    "/.well-known/agent-card.JSON",
    "/.well-known/agent_card.json",
    "/.well-known\\agent-card.json",
    "/.well-known/agent.json/",
    "/.well-known/extended-agent-card.json",
    "/.well-known/jwks.json",
    "/v1/card",
    "/extendedAgentCard",
    "/agent/authenticatedExtendedCard",
    "/",
]


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_only_the_exact_card_path_is_public(http: str) -> None:
    agent = Agent()
    async with uvicorn_serving(guarded(agent), http) as origin:
        for path in LOOKALIKES:
            for method in ("GET", "HEAD"):
                request = f"{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
                status, _ = await raw_exchange(origin, request.encode())
                assert status in (400, 401), path
        assert agent.scopes == []
        for path in (CARD_PATH, f"{CARD_PATH}?x=1", "/.well-known/agent.json"):
            status, _ = await raw_exchange(
                origin, f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()
            )
            assert status == 200


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_the_card_path_is_public_for_get_and_head_only(http: str) -> None:
    agent = Agent()
    methods = ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get", "Get", "GETX"]
    async with uvicorn_serving(guarded(agent), http) as origin:
        for method in methods:
            request = f"{method} {CARD_PATH} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            status, _ = await raw_exchange(origin, request.encode())
            assert status in (400, 401), method
            override = request.replace("Host: a", "Host: a\r\nX-HTTP-Method-Override: GET")
            assert (await raw_exchange(origin, override.encode()))[0] in (400, 401), method
    assert agent.scopes == []
