"""The sample card of A2A 0.2.9 on a2a-sdk 1.3.0: one ``protect`` guards JSON-RPC, HTTP+JSON and gRPC.

It serves the agent on this machine, calls it over each binding, and ends. ``TokenIssuer`` stands in for the provider
that the card names, so no network is needed. Run it where ``a2a-trust[server,grpc]``, ``httpx``, ``uvicorn`` and
``a2a-sdk[http-server,grpc]==1.3.0`` are installed: ``python examples/grpc/georoute.py``.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import grpc
import httpx
import uvicorn
from a2a.compat.v0_3 import a2a_v0_3_pb2, a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import DefaultGrpcServerCallContextBuilder
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCard, Role
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette

from a2a_trust import ExtendedCard, JwtVerifier, RequestRules, principal_of, protect
from a2a_trust.grpc import CallerContextBuilder, GrpcGuard
from a2a_trust.middleware import Webhooks
from a2a_trust.testing import TokenIssuer

PORT, GRPC_PORT = (int(os.environ.get(name, port)) for name, port in (("PORT", 9999), ("GRPC_PORT", 50051)))
URL = f"http://127.0.0.1:{PORT}"
SAMPLE = Path(__file__).with_name("sample-card.json").read_text()
card: dict[str, Any] = json.loads(
    SAMPLE.replace("https://georoute-agent.example.com/a2a/grpc", f"http://127.0.0.1:{GRPC_PORT}").replace(
        "https://georoute-agent.example.com", URL
    )
)
google = TokenIssuer("https://accounts.google.com")
#: As JSON-RPC of 0.3 has it, and as the protobuf of 0.3, which HTTP+JSON of the SDK shares.
MESSAGE = {"message": {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}}
PROTO = {"messageId": "1", "role": "ROLE_USER", "content": [{"text": "hi"}]}


class Planner(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = f"A route for {principal_of(context).label}"
        await event_queue.enqueue_event(new_text_message(text, role=Role.ROLE_AGENT))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


#: The SDK's handler for both generations; ``protect`` serves the card of 0.2.9.
known = ("name", "description", "version", "defaultInputModes", "defaultOutputModes", "skills")
interface = {"url": card["url"], "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}
about = {"capabilities": {"streaming": True}, "supportedInterfaces": [interface]}
described = ParseDict({name: card[name] for name in known} | about, AgentCard())
handler = DefaultRequestHandler(agent_executor=Planner(), task_store=InMemoryTaskStore(), agent_card=described)
guard = GrpcGuard()
app = protect(
    Starlette(
        routes=[
            *create_jsonrpc_routes(handler, rpc_url="/a2a/v1", enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix="/a2a/json", enable_v0_3_compat=True),
        ]
    ),
    card=card,
    verifiers={"google": JwtVerifier(google.keys(), issuer=google.url, audience=URL)},
    extended_card=ExtendedCard({**card, "description": "With private routes."}),
    rules=RequestRules(webhooks=Webhooks(hosts=["*.example.com"])),
    url=URL,
    grpc=guard,
)


async def serve_grpc() -> grpc.aio.Server:
    server = grpc.aio.server(interceptors=[guard])
    builder = CallerContextBuilder(DefaultGrpcServerCallContextBuilder())
    a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(CompatGrpcHandler(handler, builder), server)
    server.add_insecure_port(f"127.0.0.1:{GRPC_PORT}")  # on this machine only
    await server.start()
    return server


async def by_grpc(headers: dict[str, str]) -> str:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{GRPC_PORT}") as channel:
        send = a2a_v0_3_pb2_grpc.A2AServiceStub(channel).SendMessage
        asked = ParseDict({"request": PROTO}, a2a_v0_3_pb2.SendMessageRequest())
        try:
            answer = await send(asked, metadata=[(name.lower(), value) for name, value in headers.items()])
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return str(answer.msg.content[0].text)


async def call_all() -> None:
    scopes = ["openid", "profile", "email"]
    tokens = {
        "no token": None,
        "a token without the scope email": google.token("ann", audience=URL, scopes=scopes[:2]),
        "a good token": google.token("ann", audience=URL, scopes=scopes),
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": MESSAGE}
    async with httpx.AsyncClient(base_url=URL) as http:
        for name, token in tokens.items():
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            rpc = await http.post("/a2a/v1", json=body, headers=headers)
            rest = await http.post("/a2a/json/v1/message:send", json={"request": PROTO}, headers=headers)
            extended = await http.get("/a2a/json/v1/card", headers=headers)
            codes = f"JSON-RPC {rpc.status_code}, HTTP+JSON {rest.status_code}, extended card {extended.status_code}"
            print(f"{name}: {codes}, gRPC {await by_grpc(headers)}")


async def main() -> None:
    server = uvicorn.Server(uvicorn.Config(app, port=PORT, log_level="error"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    over_grpc = await serve_grpc()
    try:
        await call_all()
    finally:
        await over_grpc.stop(None)
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main())
