"""M1: a Host header with a path in it makes the guard see another path than the router.

Seen in Starlette (CVE-2026-48710) and LiteLLM (CVE-2026-49468).
"""

from __future__ import annotations

import pytest

from tests.middleware.agent import KEY, Agent, guarded, raw_exchange, uvicorn_serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


HOSTS = [
    "agent.example/.well-known/agent-card.json?",
    "agent.example/.well-known/agent-card.json#",
    "/.well-known/agent-card.json",
    "agent.example:80/.well-known/agent.json?x=",
    "x@agent.example/.well-known/agent-card.json",
    "[::1]/.well-known/agent-card.json",
    "localhost",
    "127.0.0.1",
    "",
]
FORWARDED = [
    "X-Forwarded-Host: agent.example/.well-known/agent-card.json?",
    "X-Forwarded-Prefix: /.well-known/agent-card.json",
    "X-Forwarded-Path: /.well-known/agent-card.json",
    "X-Original-URL: /.well-known/agent-card.json",
    "X-Rewrite-URL: /.well-known/agent-card.json",
    "X-Script-Name: /rpc",
    "X-HTTP-Method-Override: GET",
    "X-Forwarded-For: 127.0.0.1",
    "X-Forwarded-User: ann",
    "Remote-User: ann",
    "Forwarded: for=127.0.0.1;host=agent.example",
]


@pytest.mark.parametrize("http", ["h11", "httptools"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_neither_host_nor_forwarded_headers_open_a_path(http: str, method: str) -> None:
    agent = Agent()
    lines = [f"Host: {host}" for host in HOSTS] + [f"Host: a\r\n{header}" for header in FORWARDED]
    async with uvicorn_serving(guarded(agent), http) as origin:
        for line in lines:
            request = f"{method} /rpc HTTP/1.1\r\n{line}\r\nConnection: close\r\n\r\n"
            status, _ = await raw_exchange(origin, request.encode())
            assert status in (400, 401), line
            allowed = f"{method} /rpc HTTP/1.1\r\nX-API-Key: {KEY}\r\n{line}\r\nConnection: close\r\n\r\n"
            status, _ = await raw_exchange(origin, allowed.encode())
            assert status in (200, 400), line
    assert set(agent.paths) == {"/rpc"}


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_an_absolute_target_opens_no_path(http: str) -> None:
    agent = Agent()
    targets = [
        "http://agent.example/rpc",
        "http://agent.example/.well-known/agent-card.json/../../rpc",
        "http://x/.well-known/agent-card.json@agent.example/rpc",
        "//agent.example/.well-known/agent-card.json",
        "*",
    ]
    async with uvicorn_serving(guarded(agent), http) as origin:
        for target in targets:
            request = f"GET {target} HTTP/1.1\r\nHost: agent.example\r\nConnection: close\r\n\r\n"
            status, _ = await raw_exchange(origin, request.encode())
            assert status in (400, 401), target
    assert agent.scopes == []
