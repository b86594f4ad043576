"""The service of A2A 1.0 on gRPC, with the fields of the specification that the tests use, and a guarded server of it.

The descriptors are made here, because only a2a-sdk publishes them in Python; its own service is tested in its own
environment (tests/frameworks/test_grpc.py).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from starlette.applications import Starlette

from a2a_trust import RequestRules, current_principal, protect
from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.errors import NoCallerError
from a2a_trust.grpc import GrpcGuard

__all__ = ["GOOD", "POOR", "SERVICE", "STORE", "Service", "card", "guarded", "outcome", "request", "serving"]

STORE: Final = MemoryApiKeys()
GOOD: Final = STORE.create(owner="ann", scopes=["read"]).text
POOR: Final = STORE.create(owner="bob").text
SERVICE: Final = "lf.a2a.v1.A2AService"
_MESSAGES: Final[dict[str, dict[str, Any]]] = {
    "Part": {"text": 1},
    "Message": {"message_id": 1, "context_id": 2, "task_id": 3, "parts": (5, "Part")},
    "TaskPushNotificationConfig": {"tenant": 1, "id": 2, "task_id": 3, "url": 4},
    "SendMessageConfiguration": {"task_push_notification_config": (2, "TaskPushNotificationConfig")},
    "SendMessageRequest": {"tenant": 1, "message": (2, "Message"), "configuration": (3, "SendMessageConfiguration")},
}


def _make_messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="a2a_of_tests.proto", package="lf.a2a.v1", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number in fields.items():
            if isinstance(number, int):
                message.field.add(name=field, number=number, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
            else:
                label = kinds.LABEL_REPEATED if field == "parts" else kinds.LABEL_OPTIONAL
                kind = f".lf.a2a.v1.{number[1]}"
                message.field.add(name=field, number=number[0], type=kinds.TYPE_MESSAGE, type_name=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"lf.a2a.v1.{name}")) for name in _MESSAGES
    }


_KINDS: Final = _make_messages()


def request(**fields: Any) -> Any:
    return _KINDS["SendMessageRequest"](**{"message": {"message_id": "1", "parts": [{"text": "hi"}]}, **fields})


class Service:
    """The application: it counts calls, and keeps the context and the caller of the last one.

    ``ended`` are the streams that ended, ``ended_for``: those that knew their caller then.
    """

    def __init__(self, fails: Callable[[Any], Any] | None = None) -> None:
        self.calls = self.ended = self.ended_for = self.decoded = 0
        self.context: Any = None
        self.caller = ""
        self._fails = fails

    async def send(self, message: Any, context: Any) -> Any:
        self.calls, self.context, self.caller = self.calls + 1, context, current_principal().id
        if self._fails is not None:
            await self._fails(context)
        return message

    async def stream(self, message: Any, context: Any) -> AsyncIterator[Any]:
        self.calls += 1
        try:
            while True:
                yield message
        finally:
            self.ended += 1
            with suppress(NoCallerError):
                self.ended_for += current_principal().id != ""

    def read(self, data: bytes) -> Any:
        self.decoded += 1
        return _KINDS["SendMessageRequest"].FromString(data)

    def handler(self, *, service: str = SERVICE) -> grpc.GenericRpcHandler:
        def write(message: Any) -> bytes:
            data: bytes = message.SerializeToString()
            return data

        methods = {
            "SendMessage": grpc.unary_unary_rpc_method_handler(self.send, self.read, write),
            "SendStreamingMessage": grpc.unary_stream_rpc_method_handler(self.stream, self.read, write),
        }
        handler: grpc.GenericRpcHandler = grpc.method_handlers_generic_handler(service, methods)
        return handler


def card(*versions: str, **members: Any) -> dict[str, Any]:
    """A card that demands an API key with a scope."""
    return {
        "name": "Echo",
        "description": "Answers with the message.",
        "version": "1.0.0",
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        "supportedInterfaces": [
            {"url": "https://agent.example:443", "protocolBinding": "GRPC", "protocolVersion": version}
            for version in versions or ("1.0",)
        ],
        "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
        "securityRequirements": [{"schemes": {"key": {"list": ["read"]}}}],
        **members,
    }


def guarded(given: Any = None, guard: GrpcGuard | None = None, **options: Any) -> GrpcGuard:
    guard = guard or GrpcGuard()
    options = {"verifiers": {"key": ApiKeyVerifier(STORE)}, "rules": RequestRules(), **options}
    protect(Starlette(), card=given or card(), grpc=guard, **options)
    return guard


class Client(NamedTuple):
    channel: grpc.aio.Channel
    port: int

    def method(self, name: str = "SendMessage", service: str = SERVICE) -> Any:
        kind = self.channel.unary_stream if "Streaming" in name else self.channel.unary_unary
        return kind(
            f"/{service}/{name}", lambda sent: sent.SerializeToString(), _KINDS["SendMessageRequest"].FromString
        )


@asynccontextmanager
async def serving(
    guard: GrpcGuard, *handlers: grpc.GenericRpcHandler, address: str = "127.0.0.1:0"
) -> AsyncIterator[Client]:
    server = grpc.aio.server(interceptors=[guard])
    server.add_generic_rpc_handlers(handlers)
    port = server.add_insecure_port(address)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(
            address.replace(":0", f":{port}") if address.endswith(":0") else address
        ) as channel:
            yield Client(channel, port)
    finally:
        await server.stop(None)
        del server  # its end needs the loop, and gRPC has one queue of events for all loops
        gc.collect()
        await asyncio.sleep(0.05)


async def outcome(method: Any, metadata: Sequence[tuple[str, Any]] = (), message: Any = None) -> str:
    """The name of the code of a call."""
    call = method(request() if message is None else message, metadata=tuple(metadata), timeout=20)
    try:
        if isinstance(call, grpc.aio.UnaryStreamCall):
            await call.read()
            call.cancel()
            return "OK"
        await call
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"
