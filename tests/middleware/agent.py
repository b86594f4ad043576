"""An agent behind the guard, for the tests of this folder and of the attacks: it tells what reached it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import unquote

import uvicorn

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.middleware.door import CardEnforcementMiddleware
from a2a_trust.middleware.options import GuardRules, RequestRules
from a2a_trust.middleware.protection import CardServing
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SCHEMES: dict[str, Any] = {
    "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
    "oauth": {"oauth2SecurityScheme": {"flows": {}}},
}

CARD: dict[str, Any] = {
    "name": "agent",
    "supportedInterfaces": [
        {"url": "http://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "http://agent.example/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
    ],
    "securitySchemes": SCHEMES,
    "securityRequirements": [{"schemes": {"key": {"list": ["read"]}}}, {"schemes": {"oauth": {"list": ["read"]}}}],
    "skills": [],
}

CALL: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}
"""A valid request of JSON-RPC."""

STORE = MemoryApiKeys()
KEY = STORE.create(owner="ann", scopes=["read"]).text
POOR_KEY = STORE.create(owner="bob").text


def verifiers() -> dict[str, Any]:
    return {"key": ApiKeyVerifier(STORE), "oauth": JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)}


@dataclass
class Agent:
    """An ASGI application without opinions: it serves every path, and remembers the scopes that it saw."""

    scopes: list[Scope] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] == "lifespan":
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.send", "text": scope["user"].display_name})
            await send({"type": "websocket.close", "code": 1000})
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = b""
        more = True
        while more:
            message = await receive()
            read += message.get("body", b"")
            more = message.get("more_body", False)
        caller = dict(scope["headers"]).get(b"a2a-caller-id", b"").decode("latin-1")  # behind a reverse proxy
        user = getattr(scope.get("user"), "display_name", unquote(caller) or None)
        said = {"path": scope["path"], "read": len(read), "user": user}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(said).encode(), "more_body": False})

    @property
    def paths(self) -> list[str]:
        """The paths of the requests that reached the agent."""
        return [scope["path"] for scope in self.scopes if scope["type"] != "lifespan"]


alone = Agent()
"""The agent without a guard, for a process of its own."""


def guarded(app: Any, card: dict[str, Any] | None = None, **options: Any) -> CardEnforcementMiddleware:
    given = {"verifiers": verifiers(), "clock": lambda: NOW, **grouped(options, GuardRules)}
    return CardEnforcementMiddleware(app, card=CARD if card is None else card, **given)


def grouped(options: Mapping[str, Any], rules: type[GuardRules] = RequestRules) -> dict[str, Any]:
    """Options by their single names, in the groups that ``protect`` takes."""
    rest = dict(options)
    for group, kind in (("rules", rules), ("serving", CardServing)):
        members = {each.name: rest.pop(each.name) for each in fields(kind) if each.name in rest}
        if members:
            rest[group] = kind(**members)
    return rest


@asynccontextmanager
async def uvicorn_serving(app: Any, http: str, **options: Any) -> AsyncIterator[str]:
    """A real uvicorn with that HTTP parser on this machine: its origin.

    It keeps idle connections for longer than clients do: else, after a pause of five seconds, it closes one while a
    client sends its next request there.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    # asyncio does this where a socket names its protocol. Without it, an answer waits 40 ms for the client to
    # acknowledge its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(
        app, http=http, log_level="critical", timeout_keep_alive=60, **{"lifespan": "off", **options}
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        if serving.done():
            break
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listener.close()


async def raw_exchange(origin: str, request: bytes, until: bytes | None = None) -> tuple[int, bytes]:
    """Send the very bytes and read until the server closes or those bytes come: status and all that came."""
    port = int(origin.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        answer = b""
        while until is None or until not in answer:
            read = await asyncio.wait_for(reader.read(65_536), 60)
            if not read:
                break
            answer += read
    finally:
        writer.close()
    return int(answer.split(b" ", 2)[1]), answer
