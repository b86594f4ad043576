"""M9: a credential that is written twice, joined or oddly is read in one way by the guard and in another by a proxy.

Measured under real servers. What is in the body never changes a decision: it is not read.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.auth.test_jwt import token
from tests.middleware.agent import KEY, Agent, guarded, raw_exchange, uvicorn_serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


GOOD = token()

ODD = [
    f"Authorization: Bearer {GOOD}\r\nAuthorization: Bearer {GOOD}",
    f"Authorization: Bearer {GOOD}\r\nAuthorization: Bearer other",
    f"Authorization: Bearer other\r\nAuthorization: Bearer {GOOD}",
    f"Authorization: Basic YTpi\r\nAuthorization: Bearer {GOOD}",
    f"authorization: Bearer {GOOD}\r\nAUTHORIZATION: Bearer {GOOD}",
    f"Authorization: Bearer {GOOD}\r\nAuthorization:",
    f"Authorization: Bearer {GOOD}, Bearer {GOOD}",
    f"Authorization: Bearer {GOOD}, Basic YTpi",
    f"Authorization: Bearer {GOOD},",
    f"Authorization: Bearer  {GOOD}",
    f"Authorization: Bearer\t{GOOD}",
    f"Authorization: Bearer{GOOD}",
    f"Authorization: {GOOD}",
    f'Authorization: Bearer "{GOOD}"',
    f"Authorization: Bearer {GOOD} x",
    f"Authorization: Bearer token={GOOD}",
    f"Authorization : Bearer {GOOD}",
    f"Proxy-Authorization: Bearer {GOOD}",
    f"X-API-Key: {KEY}\r\nX-API-Key: {KEY}",
    f"X-API-Key: {KEY}\r\nX-API-Key: other",
    f"X-API-Key: {KEY}\r\nx_api_key: other",
    f"X_API_KEY: {KEY}",
    f"X-API_Key: {KEY}",
    f"X-API-Key: {KEY}, {KEY}",
    f"X-API-Key: {KEY},",
    f'X-API-Key: "{KEY}"',
    f"X-API-Key: Bearer {KEY}",
    f"X-API-Key: {KEY}\x00",
    f"X-API-Key: {KEY[:20]} {KEY[20:]}",
    f"X-API-Key: {KEY}\r\nX-API-Key:",
    f"X-API-Key: {KEY}\r\nAuthorization: Bearer other",
    "X-API-Key:",
]
PLAIN = [
    f"Authorization: Bearer {GOOD}",
    f"authorization: bearer {GOOD}",
    f"AUTHORIZATION:   BEARER {GOOD}  ",
    f"X-API-Key: {KEY}",
    f"x-api-key:{KEY}",
    f"X-Api-Key: \t {KEY} \t",
]


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_odd_writings_are_refused_and_plain_ones_are_not(http: str) -> None:
    agent = Agent()
    async with uvicorn_serving(guarded(agent), http) as origin:
        for lines in ODD:
            request = f"POST /rpc HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n\r\n"
            status, _ = await raw_exchange(origin, request.encode())
            assert status in (400, 401), lines
        assert agent.scopes == []
        for lines in PLAIN:
            request = f"POST /rpc HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n\r\n"
            assert (await raw_exchange(origin, request.encode()))[0] == 200, lines


CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask"})

BODIES = [
    CALL.encode(),
    CALL.encode("utf-16"),
    CALL.encode("utf-32"),
    b"\xef\xbb\xbf" + CALL.encode(),
    b'{"method":"GetExtendedAgentCard","method":"GetTask","id":1}',
    b'{"m\\u0065thod":"GetTask"}',
    b"[" + CALL.encode() + b"]",
    b"\xff\x00",
    b"[" * 10_000,
    b"",
]


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_no_body_changes_a_decision(http: str) -> None:
    agent = Agent()
    async with uvicorn_serving(guarded(agent), http) as origin:
        for body in BODIES:
            for line, status in (("X-API-Key: wrong", 401), ("X-Nothing: 1", 401), (f"X-API-Key: {KEY}", 200)):
                head = f"POST /rpc HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{line}\r\n"
                length = f"Content-Length: {len(body)}\r\n\r\n"
                found, answer = await raw_exchange(origin, f"{head}{length}".encode() + body)
                assert found == status
                if status == 200:
                    assert f'"read": {len(body)}'.encode() in answer
    assert len(agent.scopes) == len(BODIES)


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_trailers_reach_nobody(http: str) -> None:
    """Seen in uvicorn 0.54 on httptools: trailers are put into the headers after the request was let in."""
    agent = Agent()
    async with uvicorn_serving(guarded(agent), http) as origin:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(origin.rpartition(":")[2]))
        head = f"POST /rpc HTTP/1.1\r\nHost: agent.example\r\nX-API-Key: {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode() + b"2\r\n{}\r\n")
        while not agent.scopes:
            await asyncio.sleep(0.005)
        writer.write(b"0\r\nX-API-Key: other\r\nX-User: admin\r\nAuthorization: Bearer forged\r\n\r\n")
        answer = await asyncio.wait_for(reader.readuntil(b"}"), 60)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200")
    names = [name for name, _ in agent.scopes[0]["headers"]]
    assert names == [b"host", b"transfer-encoding"]
