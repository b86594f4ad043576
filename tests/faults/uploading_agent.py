"""A protected agent for a server's own process: it says at /state what the process holds, and what was logged.

``WAIT`` is where requests wait: nowhere (""), in a verifier whose service never answers at the port ``SILENT``, or in
the application, which takes the body and then streams without an end.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import tracemalloc
from typing import Any, Final

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.principal import Identity
from a2a_trust.middleware.protection import protect
from tests.middleware.agent import Agent

KEY: Final = "k" * 48
CARD: Final[dict[str, Any]] = {
    "name": "agent",
    "supportedInterfaces": [
        {"url": "http://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
    ],
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
    "securityRequirements": [{"schemes": {"key": {}}}],
    "skills": [],
}


class Silent:
    """A service on the network that takes connections and never answers."""

    async def verify(self, credential: str, now: float) -> Identity:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["SILENT"]))
        try:
            await reader.readexactly(1)
        finally:
            writer.close()
        raise AssertionError("it never answers")


class Streaming(Agent):
    """It takes the body, keeps nothing of it, and answers no more than a stream that has nothing to say."""

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


class Watching:
    """The agent, and the state of its process."""

    def __init__(self, app: Any) -> None:
        self.app, self.inside, self.logged = app, 0, list[str]()
        tracemalloc.start()
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self.logged.append(record.getMessage())  # type: ignore[method-assign]
        for name in ("", "uvicorn.error", "hypercorn.error"):
            logging.getLogger(name).addHandler(handler)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["path"] == "/state":
            await self._answer(send)
            return
        self.inside += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.inside -= 1

    async def _answer(self, send: Any) -> None:
        gc.collect()
        state = {
            "inside": self.inside,
            "tasks": len(asyncio.all_tasks()),
            "bytes": tracemalloc.get_traced_memory()[0],
            "logged": self.logged,
        }
        body = json.dumps(state).encode()
        headers = [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def agent() -> Any:
    keys = MemoryApiKeys()
    keys.import_key(KEY, owner="ann")
    verifier = Silent() if os.environ["WAIT"] == "verifier" else ApiKeyVerifier(keys)
    return Watching(protect(Streaming(), card=CARD, verifiers={"key": verifier}))


if "WAIT" in os.environ:
    app = agent()
