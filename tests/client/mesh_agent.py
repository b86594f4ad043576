"""A protected agent of a service mesh, for a server's own process; its settings are in MESH_AGENT.

``SendStreamingMessage`` sends one event, and the last one when ``SendMessage`` was called.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from a2a_trust import ApiKeyVerifier, CardServing, protect
from a2a_trust.auth import MemoryApiKeys
from a2a_trust.keys.files import read_private_key


class Agent:
    def __init__(self) -> None:
        self.told = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message.get("more_body", False)
        is_stream = json.loads(body)["method"] == "SendStreamingMessage"
        headers = [
            (b"content-type", b"text/event-stream" if is_stream else b"application/json"),
            (b"set-cookie", b"seen=yes"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if is_stream:
            await send({"type": "http.response.body", "body": b"data: first\n\n", "more_body": True})
            await self.told.wait()
            await send({"type": "http.response.body", "body": b"data: last\n\n"})
            return
        self.told.set()
        hosts = [value.decode() for name, value in scope["headers"] if name == b"host"]
        await send({"type": "http.response.body", "body": json.dumps({"hosts": hosts}).encode()})


def guarded(settings: dict[str, Any]) -> Any:
    store = MemoryApiKeys()
    store.import_key(settings["key"], owner="ann")
    serving = CardServing(signer=read_private_key(settings["signer"].encode(), kid="owner"))
    return protect(Agent(), card=settings["card"], serving=serving, verifiers={"key": ApiKeyVerifier(store)})


if "MESH_AGENT" in os.environ:
    app = guarded(json.loads(os.environ["MESH_AGENT"]))
