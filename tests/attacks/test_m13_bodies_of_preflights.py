"""M13: OPTIONS with a body calls the agent without a credential, where preflights are let through.

Applications that look at no method read a call out of any body. Seen here with ``allow_cors_preflight=True``.
"""

from __future__ import annotations

import json

import pytest

from a2a_trust import RequestRules
from a2a_trust.middleware.protection import protect
from tests.middleware.agent import CALL, CARD, Agent, raw_exchange, uvicorn_serving, verifiers
from tests.tables import walk

pytestmark = pytest.mark.anyio

BODY = json.dumps(CALL).encode()
PREFLIGHT = b"Host: a\r\nOrigin: https://page.example\r\nAccess-Control-Request-Method: POST\r\nConnection: close\r\n"
SHAPES = {
    "plain": b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY),
    "chunked": b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    "long": b"Content-Length: %d\r\n\r\n%b" % (len(BODY) + 2_000_000, BODY + b" " * 2_000_000),
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@walk("http", ["h11", "httptools"])
@walk("path", [b"/rpc", b"/rest/message:send", b"/other"])
@walk("shape", SHAPES)
async def test_the_agent_reads_no_body_of_a_preflight(http: str, path: bytes, shape: str) -> None:
    agent = Agent()
    app = protect(agent, card=CARD, verifiers=verifiers(), rules=RequestRules(allow_cors_preflight=True))
    async with uvicorn_serving(app, http) as origin:
        status, answer = await raw_exchange(
            origin, b"OPTIONS " + path + b" HTTP/1.1\r\n" + PREFLIGHT + SHAPES[shape], until=b"}"
        )
    assert status == 200
    assert b'"read": 0' in answer
    (scope,) = agent.scopes
    told = {name for name, _ in scope["headers"]}
    assert not told & {b"content-length", b"transfer-encoding", b"content-type"}
    assert b"origin" in told


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_options_with_a_body_that_is_no_preflight_reaches_nothing(http: str) -> None:
    agent = Agent()
    app = protect(agent, card=CARD, verifiers=verifiers(), rules=RequestRules(allow_cors_preflight=True))
    async with uvicorn_serving(app, http) as origin:
        request = b"OPTIONS /rpc HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + SHAPES["plain"]
        status, _ = await raw_exchange(origin, request)
    assert (status, agent.scopes) == (401, [])
