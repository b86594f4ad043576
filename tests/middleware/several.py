"""Several agents in one application, and cards that exist late: what the tests of them share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.middleware.protection import ProtectedAgent
from tests.middleware.agent import Message, grouped

STORE = MemoryApiKeys()
ALL = STORE.create(owner="ann", scopes=["read"]).text
"""A key that every agent here knows; each wants it in a header of its own."""


def card_of(prefix: str, **members: Any) -> dict[str, Any]:
    """The card of the agent below that prefix, which wants a key in the header ``X-`` and its last segment."""
    header = f"X-{prefix.rpartition('/')[2] or 'root'}"
    return {
        "name": prefix or "/",
        "supportedInterfaces": [
            {"url": f"http://agent.example{prefix}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": f"http://agent.example{prefix}/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        ],
        "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": header}}},
        "securityRequirements": [{"schemes": {"key": {"list": ["read"]}}}],
        "skills": [],
        **members,
    }


def verifiers() -> dict[str, Any]:
    return {"key": ApiKeyVerifier(STORE)}


def agent_at(prefix: str, **options: Any) -> ProtectedAgent:
    """The agent below that prefix; its options have their single names."""
    given = {"card": card_of(prefix), "verifiers": verifiers(), **grouped(options)}
    return ProtectedAgent(**given)


async def asked(app: Any, path: str, **scope: Any) -> list[Message]:
    """What the application sends for one request or handshake with this very scope."""
    received: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]
    if scope.get("type") == "websocket":
        received = [{"type": "websocket.connect"}]
    sent: list[Message] = []

    async def receive() -> Message:
        if not received:
            await anyio.sleep_forever()
        return received.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    usual = {"type": "http", "method": "GET", "scheme": "http", "query_string": b"", "headers": [], "root_path": ""}
    await app({**usual, "path": path, "raw_path": path.encode(), "extensions": {}, **scope}, receive, send)
    return sent


def judged_by(messages: list[Message]) -> str:
    """The header that the refusal asks for a key in, or the status or the code of another answer."""
    first = messages[0]
    if first["type"] == "websocket.close":
        return f"closed {first['code']}"
    challenges = b" ".join(value for name, value in first["headers"] if name == b"www-authenticate").decode()
    return challenges.partition(', name="')[2].rstrip('"') or str(first["status"])


class Lifespan:
    """A server's side of a lifespan: what the application has said, and its state."""

    def __init__(self) -> None:
        self.said: list[Message] = []
        self.state: dict[str, Any] = {}
        self.stop = anyio.Event()

    @property
    def kinds(self) -> list[str]:
        return [message["type"].removeprefix("lifespan.") for message in self.said]

    @property
    def failure(self) -> str:
        """The text with which the start failed."""
        (message,) = self.said
        assert message["type"] == "lifespan.startup.failed"
        return str(message["message"])


@asynccontextmanager
async def running(app: Any, **scope: Any) -> AsyncIterator[Lifespan]:
    """The application's lifespan runs while the block does, as a server runs it."""
    lifespan = Lifespan()
    answered, ended = anyio.Event(), anyio.Event()
    received: list[Message] = [{"type": "lifespan.startup"}]

    async def receive() -> Message:
        if not received:
            await lifespan.stop.wait()
            return {"type": "lifespan.shutdown"}
        return received.pop(0)

    async def send(message: Message) -> None:
        lifespan.said.append(message)
        answered.set()

    async def run() -> None:
        await app({"type": "lifespan", "asgi": {}, "state": lifespan.state, **scope}, receive, send)
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(60):
            await answered.wait()
        yield lifespan
        lifespan.stop.set()
        with anyio.fail_after(60):
            await ended.wait()
