"""Streams end with the credential of their caller, under real servers, with real frameworks, SDKs and their clients."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from a2a_trust import ApiKeyVerifier, RequestRules, protect
from a2a_trust.auth import IssuedApiKey, MemoryApiKeys
from a2a_trust.auth.record_table import SqliteApiKeys
from tests.middleware.agent import CARD, uvicorn_serving
from tests.servers.callers import FOLDER, Callers
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import serving_under_all
from tests.waiting import until

pytestmark = pytest.mark.anyio

SERVERS = ["h11", "httptools", pytest.param("hypercorn", marks=pytest.mark.real)]
EVENT = b"data: {}\n\n"
LAST_CHUNK = b"0\r\n\r\n"
HANDSHAKE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\n"
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Streams:
    """An application of FastAPI or Starlette with streams that never end by themselves."""

    def __init__(self, framework: str) -> None:
        self.ended: list[str] = []
        if framework == "fastapi":
            api = FastAPI()
            api.add_api_route("/events", self.events)
            api.add_api_route("/text", self.text)
            api.add_api_websocket_route("/chat", self.chat)
            self.app: Any = api
        else:
            routes = [Route("/events", self.events_of), Route("/text", self.text_of)]
            self.app = Starlette(routes=[*routes, WebSocketRoute("/chat", self.chat)])

    async def events(self) -> StreamingResponse:
        return StreamingResponse(self._endless("events", EVENT), media_type="text/event-stream")

    async def text(self) -> StreamingResponse:
        return StreamingResponse(self._endless("text", b"some"), media_type="text/plain")

    async def events_of(self, request: object) -> StreamingResponse:
        return await self.events()

    async def text_of(self, request: object) -> StreamingResponse:
        return await self.text()

    async def _endless(self, name: str, first: bytes) -> AsyncIterator[bytes]:
        try:
            yield first
            await asyncio.Event().wait()
        finally:
            self.ended.append(name)

    async def chat(self, websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text("hello")
        async for _ in websocket.iter_text():
            pass
        self.ended.append("chat")


@asynccontextmanager
async def serving(app: Any, server: str, **options: Any) -> AsyncIterator[str]:
    if server != "hypercorn":
        async with uvicorn_serving(app, server, **options) as origin:
            yield origin
        return
    listener, ended, config = socket.create_server(("127.0.0.1", 0)), asyncio.Event(), Config()
    port = listener.getsockname()[1]
    config.bind, config.graceful_timeout = [f"fd://{listener.detach()}"], 1.0  # hypercorn closes it
    running = asyncio.create_task(serve(app, config, shutdown_trigger=ended.wait))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        ended.set()
        await running


def agent(app: Any, store: MemoryApiKeys) -> Any:
    card = {**CARD, "securityRequirements": [{"schemes": {"key": {"list": ["read"]}}}]}
    rules = RequestRules(end_streams_with_credential=True)
    return protect(app, card=card, verifiers={"key": ApiKeyVerifier(store)}, rules=rules)


async def read_until_its_end(origin: str, path: str, key: IssuedApiKey, store: MemoryApiKeys, begin: bytes) -> bytes:
    """The answer of a request whose key is revoked when ``begin`` has come, until the server ends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(origin.rpartition(":")[2]))
    upgrade = HANDSHAKE if path == "/chat" else ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nX-API-Key: {key.text}\r\n{upgrade}\r\n".encode())
    answer = b""
    async with asyncio.timeout(60):
        while begin not in answer:
            answer += await reader.read(65_536) or b"the server has closed it too early" + begin
        store.revoke(key.record.key_id)
        while not answer.endswith(LAST_CHUNK) and b"\x88" not in answer:
            came = await reader.read(65_536)
            if not came:
                break
            answer += came
    writer.close()
    return answer


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
async def test_a_stream_ends_when_its_key_is_revoked(framework: str, server: str) -> None:
    streams, store = Streams(framework), MemoryApiKeys()
    keys = [store.create(owner="ann", scopes=["read"]) for _ in range(3)]
    async with serving(agent(streams.app, store), server) as origin:
        events, text, chat = await asyncio.gather(
            read_until_its_end(origin, "/events", keys[0], store, EVENT),
            read_until_its_end(origin, "/text", keys[1], store, b"some"),
            read_until_its_end(origin, "/chat", keys[2], store, b"hello"),
        )
        await until(lambda: sorted(streams.ended) == ["chat", "events", "text"])
    assert b'event: error\ndata: {"error":{"code":401,"status":"UNAUTHENTICATED"' in events
    assert events.endswith(LAST_CHUNK)
    assert text.endswith(b"some\r\n")  # the last chunk is missing, so clients see that it is not whole
    assert b"\x88\x02\x03\xf0" in chat  # close, 1008


# The SDKs

#: The server of each SDK, and who speaks to it: a client, its binding and its version of the protocol.
SPEAKERS = [
    ("1.3.0", "1.3.0", "JSONRPC", "1.0"),
    ("1.3.0", "1.3.0", "HTTP+JSON", "1.0"),
    ("1.3.0", "1.3.0", "JSONRPC", "0.3"),
    ("1.3.0", "0.3.26", "JSONRPC", "0.3"),
    ("0.3.26", "0.3.26", "JSONRPC", "0.3"),
]
APPS = {"1.3.0": "sdk_endless_hello_world", "0.3.26": "sdk_endless_agent_0_3"}
SCRIPTS = {"1.3.0": "sdk_client_1_3.py", "0.3.26": "sdk_client_0_3.py"}


@pytest.fixture(scope="module")
def endless(callers: Callers) -> Iterator[dict[str, list[str]]]:
    """The origins of an agent that answers forever, by the SDK of its server."""
    servers = {"1.3.0": ["uvicorn-h11", "uvicorn-httptools", "hypercorn"], "0.3.26": ["uvicorn-h11"]}
    with ExitStack() as stack:
        found = {}
        for sdk, module in APPS.items():
            app, python = f"tests.servers.{module}:app", python_of(f"server-{sdk}")
            origins = stack.enter_context(serving_under_all(python, app, FOLDER, callers.settings, servers[sdk]))
            found[sdk] = [*origins.values()]
        yield found


@pytest.mark.real
def test_clients_of_sdks_get_the_error_of_their_binding(endless: dict[str, list[str]], callers: Callers) -> None:
    store = SqliteApiKeys(callers.path)

    def question(origin: str, binding: str, version: str) -> dict[str, Any]:
        key = store.create(owner="ann", scopes=["read"])
        return {
            "url": origin,
            "binding": binding,
            "version": version,
            "streaming": True,
            "text": f"revoke {key.record.key_id}",
            "credentials": {"key": key.text},
            "headers": {"X-API-Key": key.text},
            "meanwhile": "not asked",
        }

    def answers(client: str) -> list[dict[str, Any]]:
        asked = [
            question(origin, binding, version)
            for server, speaker, binding, version in SPEAKERS
            for origin in endless[server]
            if speaker == client
        ]
        seen: list[dict[str, Any]] = answer_of(f"python-{client}", SCRIPTS[client], asked)
        return seen

    with ThreadPoolExecutor() as threads:
        seen = [each for answer in threads.map(answers, SCRIPTS) for each in answer]
    assert len(seen) == sum(len(endless[server]) for server, *_ in SPEAKERS)
    for each in seen:
        assert each["events"][-1] == "working", each
        assert "Authentication is required." in each["error"], each
