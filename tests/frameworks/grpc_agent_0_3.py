"""An agent of a2a-sdk 0.3.26 on gRPC, and every method of it: it prints method and credential -> code."""

from __future__ import annotations

import asyncio
import json

import grpc
from a2a.grpc import a2a_pb2, a2a_pb2_grpc
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.request_handlers.grpc_handler import DefaultCallContextBuilder
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCard
from a2a.utils import new_agent_text_message
from starlette.applications import Starlette

from a2a_trust import protect
from a2a_trust.auth import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.grpc import CallerContextBuilder, GrpcGuard

CARD = {
    "protocolVersion": "0.3.0",
    "name": "Greeter",
    "description": "Greets its callers.",
    "url": "https://agent.example/a2a/grpc",
    "preferredTransport": "GRPC",
    "version": "1.0.0",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [],
    "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
    "security": [{"key": []}],
}
STORE = MemoryApiKeys()
CREDENTIALS = {
    "good": [("x-api-key", STORE.create(owner="ann").text)],
    "guessed": [("x-api-key", "guessed")],
    "nothing": [],
}


class Greeter(AgentExecutor):  # type: ignore[misc]
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await event_queue.enqueue_event(new_agent_text_message(context.call_context.user.user_name))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


async def main() -> None:
    guard = GrpcGuard()
    protect(Starlette(), card=CARD, verifiers={"key": ApiKeyVerifier(STORE)}, grpc=guard)
    server = grpc.aio.server(interceptors=[guard])
    handler = DefaultRequestHandler(agent_executor=Greeter(), task_store=InMemoryTaskStore())
    builder = CallerContextBuilder(DefaultCallContextBuilder())
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(AgentCard(**CARD), handler, builder), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    codes = {}
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        for method in a2a_pb2.DESCRIPTOR.services_by_name["A2AService"].methods:
            request = getattr(a2a_pb2, method.input_type.name)()
            if method.name.startswith("Send"):
                request.request.message_id, request.request.role = "1", a2a_pb2.ROLE_USER
                request.request.content.add(text="hi")
            for name, metadata in CREDENTIALS.items():
                call = getattr(stub, method.name)(request, metadata=metadata, timeout=20)
                try:
                    answer = await (call.read() if method.server_streaming else call)
                    content = answer.msg.content if hasattr(answer, "msg") else ()
                    codes[f"{method.name} {name}"] = " ".join(["OK", *(part.text for part in content)])
                except grpc.aio.AioRpcError as error:
                    codes[f"{method.name} {name}"] = error.code().name
    await server.stop(0)
    print(json.dumps(codes))


asyncio.run(main())
