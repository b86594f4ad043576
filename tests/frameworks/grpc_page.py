"""Runs the blocks of docs/grpc.md with a2a-sdk 1.3.0 over TLS. ``FOLDER`` has the certificates, ``PAGE`` is the page.

It prints what the SDK's client gets with a wrong key and with the right one.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import socket
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from a2a.helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import a2a_pb2
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette

from a2a_trust import TrustStore, generate_signer, sign_card, verify_card
from a2a_trust.auth import MemoryApiKeys
from a2a_trust.keys import Origins, TrustedKey

FOLDER = Path(os.environ["FOLDER"])
STORE = MemoryApiKeys()


class Greeter(AgentExecutor):  # type: ignore[misc]
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await event_queue.enqueue_event(new_text_message(f"hello {context.call_context.user.user_name}"))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def card_at(port: int) -> dict[str, Any]:
    return {
        "name": "Greeter",
        "description": "Greets its callers.",
        "version": "1.0.0",
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "hello", "name": "Hello", "description": "Says hello.", "tags": ["hello"]}],
        "supportedInterfaces": [
            {"url": f"https://localhost:{port}/a2a/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
        ],
        "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
        "securityRequirements": [{"schemes": {"key": {"list": ["read"]}}}],
    }


async def main() -> None:
    server, client = re.findall(r"```python\n(.*?)```", Path(os.environ["PAGE"]).read_text(), re.DOTALL)
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    card, signer = card_at(port), generate_signer()
    agent_card = ParseDict(card, a2a_pb2.AgentCard())
    chain, tls_key = (FOLDER / "server.pem").read_bytes(), (FOLDER / "server.key").read_bytes()
    names: dict[str, Any] = {"card": card, "app": Starlette(), "key": tls_key, "chain": chain, "STORE": STORE}
    exec(server.replace('SqliteApiKeys("keys.db")', "STORE").replace("[::]:443", f"localhost:{port}"), names)
    handler = DefaultRequestHandler(agent_executor=Greeter(), task_store=InMemoryTaskStore(), agent_card=agent_card)
    task = asyncio.create_task(names["serve_grpc"](handler))
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("localhost"))])
    verified = verify_card(sign_card(card, signer).card, trust, origin="https://localhost")
    client = client.replace('TrustFile("trust.toml")', "given_trust").replace(
        'fetch_card("https://agent.example.com", trust)', "verified"
    )
    client = client.replace("https://agent.example.com", f"https://localhost:{port}")
    client = client.replace("trust=trust)", "trust=trust, authorities=authorities)")
    found = []
    for key in ("wrong", STORE.create(owner="ann", scopes=["read"]).text):
        given: dict[str, Any] = {"key": key, "verified": verified, "given_trust": trust, "agent_card": agent_card}
        given["authorities"] = FOLDER / "ca.pem"
        exec(client, given)
        printed = io.StringIO()
        try:
            with redirect_stdout(printed):
                await given["say"]("hi")
            found.append(printed.getvalue())
        except Exception as error:  # noqa: BLE001
            found.append(str(error))
    task.cancel()
    print(json.dumps(found))


asyncio.run(main())
