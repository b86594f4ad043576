"""M4: a guard for http lets websockets, and whatever a server invents next, go by.

Seen in headroom (#3281) and vllm (#38294).
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from a2a_trust.errors import ConfigurationError
from tests.middleware.agent import KEY, Agent, guarded, raw_exchange, uvicorn_serving
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def websocket_scope(*headers: tuple[bytes, bytes], **members: Any) -> dict[str, Any]:
    return {
        "type": "websocket",
        "scheme": "ws",
        "path": "/.well-known/agent-card.json",
        "raw_path": b"/.well-known/agent-card.json",
        "root_path": "",
        "query_string": b"",
        "headers": list(headers),
        "subprotocols": [],
        **members,
    }


async def messages(app: Any, scope: dict[str, Any]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


BAD: list[tuple[tuple[bytes, bytes], ...]] = [
    (),
    ((b"x-api-key", b"wrong"),),
    ((b"authorization", b"Bearer wrong"),),
    ((b"sec-websocket-protocol", b"bearer, " + KEY.encode()),),
    ((b"origin", b"http://agent.example"), (b"access-control-request-method", b"GET")),
]


@walk("headers", BAD)
async def test_a_websocket_is_refused_before_it_is_accepted(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    agent = Agent()
    app = guarded(agent, allow_cors_preflight=True)
    closed = await messages(app, websocket_scope(*headers, extensions={}))
    assert closed == [{"type": "websocket.close", "code": 1008, "reason": ""}]
    answered = await messages(app, websocket_scope(*headers, extensions={"websocket.http.response": {}}))
    assert [message["type"] for message in answered] == [
        "websocket.http.response.start",
        "websocket.http.response.body",
    ]
    assert answered[0]["status"] == 401
    assert agent.scopes == []


async def test_a_websocket_with_a_good_credential_passes_and_knows_its_caller() -> None:
    agent = Agent()
    sent = await messages(guarded(agent), websocket_scope((b"x-api-key", KEY.encode())))
    assert [message["type"] for message in sent] == ["websocket.accept", "websocket.send", "websocket.close"]
    assert sent[1]["text"] == "ann@api-keys"


@pytest.mark.parametrize("ws", ["wsproto"])
@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_a_real_server_answers_the_handshake_with_401(http: str, ws: str) -> None:
    agent = Agent()
    nonce = base64.b64encode(bytes(16)).decode()
    handshake = (
        "GET /rpc HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {nonce}\r\n"
    )
    async with uvicorn_serving(guarded(agent), http, ws=ws) as origin:
        status, answer = await raw_exchange(origin, f"{handshake}\r\n".encode(), until=b"}]}}")
        assert (status, agent.scopes) == (401, [])
        assert b'"code":-31401' in answer
        status, answer = await raw_exchange(origin, f"{handshake}X-API-Key: {KEY}\r\n\r\n".encode(), until=b"@api-keys")
        assert status == 101
        assert b"api-keys" in answer
    assert [scope["type"] for scope in agent.scopes] == ["websocket"]


@walk("kind", ["webtransport", "HTTP", "http2", "quic", "", "lifespan2", "websocket ", None, 1])
async def test_a_scope_of_an_unknown_type_is_refused_even_with_a_good_credential(kind: Any) -> None:
    agent = Agent()
    scope = websocket_scope((b"x-api-key", KEY.encode()), type=kind, method="GET")
    with pytest.raises(ConfigurationError, match="is not understood, so it is rejected"):
        await messages(guarded(agent), scope)
    assert agent.scopes == []


async def test_the_lifespan_is_passed_as_it_is() -> None:
    passed: list[Any] = []
    sent: list[Any] = []
    messages = [{"type": f"lifespan.{each}"} for each in ("startup.complete", "shutdown.complete", "shutdown.failed")]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        passed.extend((scope, receive))
        for message in messages:
            await send(message)

    async def receive() -> Any:
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "lifespan", "state": {}}
    await guarded(app)(scope, receive, send)
    assert passed[0] is scope
    assert passed[1:] == [receive]
    assert [*map(id, sent)] == [*map(id, messages)]
