"""An agent of a2a-sdk 1.3.0 on gRPC, with the services of 1.0 and 0.3, and every call of the matrix at it.

It runs in the environment of the SDK. ``FOLDER`` has the certificates. It prints call -> credential -> code, in JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import grpc
from a2a.compat.v0_3 import a2a_v0_3_pb2, a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.request_handlers.grpc_handler import DefaultGrpcServerCallContextBuilder
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.protobuf.json_format import MessageToDict, ParseDict
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from starlette.applications import Starlette

from a2a_trust import ExtendedCard, RequestRules, principal_of, protect
from a2a_trust.auth import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.certificates import CertificateVerifier, ClientAuthority, FromTls, FromUri, OnlyIdentities
from a2a_trust.grpc import CallerContextBuilder, GrpcGuard

STORE = MemoryApiKeys()
GOOD = STORE.create(owner="ann", scopes=["read"]).text
POOR = STORE.create(owner="bob").text
FOLDER = Path(os.environ["FOLDER"])
SEEN: list[str] = []


class Echo(AgentExecutor):  # type: ignore[misc]
    """Says who calls, by the SDK's user and by the guard, and which metadata the application sees."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        call = context.call_context
        metadata = [name for name, _ in call.state["grpc_context"].invocation_metadata()]
        SEEN.append(json.dumps([call.user.user_name, principal_of(call).id, principal_of(context).id, metadata]))
        await event_queue.enqueue_event(new_text_message(f"hello {call.user.user_name}", role=a2a_pb2.ROLE_AGENT))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def card_of(url: str, *schemes: str) -> dict[str, Any]:
    every = {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        "cert": {"mtlsSecurityScheme": {}},
    }
    scopes = {"key": {"list": ["read"]}, "cert": {}}
    return {
        "name": "Echo",
        "description": "Says who calls.",
        "version": "1.0.0",
        "capabilities": {"streaming": True, "extendedAgentCard": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "echo", "name": "Echo", "description": "Says who calls.", "tags": ["echo"]}],
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "GRPC", "protocolVersion": version} for version in ("1.0", "0.3")
        ],
        "securitySchemes": {name: every[name] for name in schemes},
        "securityRequirements": [{"schemes": {name: scopes[name] for name in schemes}}],
    }


async def serve(card: dict[str, Any], verifiers: dict[str, Any], tls: Any = None) -> tuple[grpc.aio.Server, int]:
    guard = GrpcGuard(public_methods=["/grpc.health.v1.Health/Check"])
    rules = RequestRules(
        may_use_tenant=lambda caller, tenant: tenant == "acme",
        max_body=100_000,
        other_paths=["/grpc.reflection.v1alpha.ServerReflection/"],
    )
    extended = ExtendedCard({**card, "name": "Echo, extended"})
    options: dict[str, Any] = {"client_certificates": FromTls()} if tls else {}
    protect(Starlette(), card=card, verifiers=verifiers, rules=rules, extended_card=extended, grpc=guard, **options)
    server = grpc.aio.server(interceptors=[guard])
    handler = DefaultRequestHandler(
        agent_executor=Echo(), task_store=InMemoryTaskStore(), agent_card=ParseDict(card, a2a_pb2.AgentCard())
    )
    builder = CallerContextBuilder(DefaultGrpcServerCallContextBuilder())
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler, builder), server)
    a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(CompatGrpcHandler(handler, builder), server)
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    reflection.enable_server_reflection(["lf.a2a.v1.A2AService"], server)
    port = server.add_secure_port("localhost:0", tls) if tls else server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


def message(**members: Any) -> a2a_pb2.SendMessageRequest:
    sent = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    return ParseDict({"message": sent, **members}, a2a_pb2.SendMessageRequest())


def calls_of(channel: grpc.aio.Channel) -> dict[str, tuple[Any, Any]]:
    """Every method of both versions, and other services, with a request."""
    calls: dict[str, tuple[Any, Any]] = {}
    for name, stub, module in (
        ("1.0", a2a_pb2_grpc.A2AServiceStub(channel), a2a_pb2),
        ("0.3", a2a_v0_3_pb2_grpc.A2AServiceStub(channel), a2a_v0_3_pb2),
    ):
        for method in module.DESCRIPTOR.services_by_name["A2AService"].methods:
            kind = getattr(module, method.input_type.name)
            calls[f"{name} {method.name}"] = getattr(stub, method.name), kind()
    calls["1.0 SendMessage"] = calls["1.0 SendMessage"][0], message()
    calls["1.0 SendStreamingMessage"] = calls["1.0 SendStreamingMessage"][0], message()
    sent = ParseDict(
        {"message": {"messageId": "1", "role": "ROLE_USER", "content": [{"text": "hi"}]}},
        a2a_v0_3_pb2.SendMessageRequest(),
    )
    for method in ("SendMessage", "SendStreamingMessage"):
        calls[f"0.3 {method}"] = calls[f"0.3 {method}"][0], sent
    health_stub = health_pb2_grpc.HealthStub(channel)
    calls["health"] = health_stub.Check, health_pb2.HealthCheckRequest()
    calls["watch"] = health_stub.Watch, health_pb2.HealthCheckRequest()
    listing = reflection_pb2.ServerReflectionRequest(list_services="")
    calls["reflection"] = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo, listing
    calls["own tenant"] = calls["1.0 SendMessage"][0], message(tenant="acme")
    calls["other tenant"] = calls["1.0 SendMessage"][0], message(tenant="other")
    calls["tenant of a push configuration"] = (
        calls["1.0 SendMessage"][0],
        message(configuration={"taskPushNotificationConfig": {"tenant": "other", "url": "https://a.example"}}),
    )
    calls["large"] = calls["1.0 SendMessage"][0], message(metadata={"a": "x" * 100_000})
    unknown = channel.unary_unary("/lf.a2a.v1.A2AService/Nothing", lambda sent: sent.SerializeToString())
    calls["unknown method"] = unknown, message()
    return calls


async def code_of(method: Any, request: Any, metadata: Any) -> str:
    """The code, and for rejections the reason and the challenges."""
    try:
        if isinstance(method, grpc.aio.StreamStreamMultiCallable):
            call = method(iter([request]), metadata=metadata)
            async for _ in call:
                break
            call.cancel()
        elif isinstance(method, grpc.aio.UnaryStreamMultiCallable):
            async for _ in (call := method(request, metadata=metadata, timeout=20)):
                break
            call.cancel()
        else:
            await method(request, metadata=metadata, timeout=20)
    except grpc.aio.AioRpcError as error:
        status = rpc_status.from_call(error)
        reasons = ""
        for detail in status.details if status is not None else ():
            reasons += " " + MessageToDict(detail).get("reason", "")
        challenges = [value for name, value in error.trailing_metadata() or () if name == "www-authenticate"]
        return f"{error.code().name}{reasons} {' '.join(challenges)}".strip()
    return "OK"


CREDENTIALS: dict[str, list[tuple[str, Any]]] = {
    "nothing": [],
    "guessed": [("x-api-key", "a2a_guessed")],
    "poor": [("x-api-key", POOR)],
    "good": [("x-api-key", GOOD)],
    "twice": [("x-api-key", GOOD), ("x-api-key", GOOD)],
    "binary": [("x-api-key-bin", GOOD.encode())],
    "underscores": [("x_api_key", GOOD)],
    "good and underscores": [("x-api-key", GOOD), ("x_api_key", "a2a_guessed")],
}


async def main() -> None:
    server, port = await serve(card_of("127.0.0.1:1", "key"), {"key": ApiKeyVerifier(STORE)})
    found: dict[str, dict[str, str]] = {}
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for name, (method, request) in calls_of(channel).items():
            found[name] = {each: await code_of(method, request, sent) for each, sent in CREDENTIALS.items()}
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        extended = await stub.GetExtendedAgentCard(a2a_pb2.GetExtendedAgentCardRequest(), metadata=CREDENTIALS["good"])
        old = await a2a_v0_3_pb2_grpc.A2AServiceStub(channel).GetAgentCard(
            a2a_v0_3_pb2.GetAgentCardRequest(), metadata=CREDENTIALS["good"]
        )
    await server.stop(0)
    tls = grpc.ssl_server_credentials(
        [((FOLDER / "server.key").read_bytes(), (FOLDER / "server.pem").read_bytes())],
        (FOLDER / "ca.pem").read_bytes(),
        require_client_auth=True,
    )
    judge = CertificateVerifier(
        ClientAuthority(
            name="house",
            certificates=FOLDER / "ca.pem",
            identity=FromUri("a.example"),
            allowed=OnlyIdentities({"spiffe://a.example/ann"}),
        )
    )
    server, port = await serve(
        card_of("localhost:1", "key", "cert"), {"key": ApiKeyVerifier(STORE), "cert": judge}, tls
    )
    for who in ("", "client", "other"):
        key, chain = ((FOLDER / f"{who}{end}").read_bytes() if who else None for end in (".key", ".pem"))
        credentials = grpc.ssl_channel_credentials((FOLDER / "ca.pem").read_bytes(), key, chain)
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
            for name, (method, request) in calls_of(channel).items():
                if name in ("1.0 SendMessage", "1.0 SendStreamingMessage", "0.3 SendMessage"):
                    row = found.setdefault(f"TLS {name}", {})
                    for each in ("nothing", "good"):
                        row[f"{who or 'no certificate'} {each}"] = await code_of(method, request, CREDENTIALS[each])
    await server.stop(0)
    schemes = [old.security_schemes["key"].WhichOneof("scheme"), [*old.security[0].schemes["key"].list]]
    print(json.dumps({"codes": found, "seen": sorted(set(SEEN)), "extended": [extended.name, old.name, schemes]}))


asyncio.run(main())
