"""N2: a stranger, or a caller, uses a service that the card does not name: another version, reflection, health.

The SDK's servers register several services in one server, and gRPC offers all of them.
"""

from __future__ import annotations

import logging

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from a2a_trust import RequestRules
from a2a_trust.errors import ConfigurationError
from a2a_trust.grpc import GrpcGuard
from tests.grpc_service import GOOD, SERVICE, Service, card, guarded, outcome, serving

pytestmark = pytest.mark.anyio
OLD = "a2a.v1.A2AService"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_version_that_the_card_does_not_name_is_not_there() -> None:
    own, other, strange = Service(), Service(), Service()
    handlers = own.handler(), other.handler(service=OLD), strange.handler(service="a2a.v9.A2AService")
    async with serving(guarded(), *handlers) as client:
        for service in (OLD, "a2a.v9.A2AService"):
            assert await outcome(client.method(service=service)) == "UNAUTHENTICATED"
            assert await outcome(client.method(service=service), [("x-api-key", GOOD)]) == "UNIMPLEMENTED"
        assert await outcome(client.method(), [("x-api-key", GOOD)]) == "OK"
        assert await outcome(client.method("Nothing")) == "UNIMPLEMENTED"
    assert (own.calls, other.calls, strange.calls) == (1, 0, 0)
    async with serving(guarded(card("0.3")), other.handler(service=OLD)) as client:
        assert await outcome(client.method(service=OLD), [("x-api-key", GOOD)]) == "OK"


async def test_reflection_and_health_are_guarded_unless_a_method_is_public() -> None:
    guard = guarded(guard=GrpcGuard(public_methods=["/grpc.health.v1.Health/Check"]))
    server = grpc.aio.server(interceptors=[guard])
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    reflection.enable_server_reflection([SERVICE], server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    listing = reflection_pb2.ServerReflectionRequest(list_services="")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        checks, info = health_pb2_grpc.HealthStub(channel), reflection_pb2_grpc.ServerReflectionStub(channel)
        assert await outcome(checks.Check, message=health_pb2.HealthCheckRequest()) == "OK"
        assert await outcome(checks.Watch, message=health_pb2.HealthCheckRequest()) == "UNAUTHENTICATED"
        with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
            await info.ServerReflectionInfo(iter([listing])).read()
        answer = await info.ServerReflectionInfo(iter([listing]), metadata=[("x-api-key", GOOD)]).read()
        assert answer.list_services_response.service[0].name == SERVICE
    await server.stop(None)


@pytest.mark.parametrize(
    "method", [f"/{SERVICE}/SendMessage", f"/{OLD}/Nothing", "/a.a2aService/Get", "Check", "/a/b/c"]
)
def test_no_method_of_a2a_is_public(method: str) -> None:
    with pytest.raises(ConfigurationError, match="public_methods"):
        GrpcGuard(public_methods=[method])


async def test_with_rules_about_tenants_other_services_must_be_named() -> None:
    """As over HTTP: they may name tenants in a way that no rule reads."""
    rules = RequestRules(may_use_tenant=lambda caller, tenant: False, other_paths=["/named.Service/SendMessage"])
    service = Service()
    handlers = service.handler(service="named.Service"), service.handler(service="other.Service")
    async with serving(guarded(rules=rules), *handlers) as client:
        assert await outcome(client.method(service="named.Service"), [("x-api-key", GOOD)]) == "OK"
        assert await outcome(client.method(service="other.Service"), [("x-api-key", GOOD)]) == "UNIMPLEMENTED"


async def test_calls_before_the_card_is_known_are_not_served(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    service = Service()
    async with serving(GrpcGuard(), service.handler()) as client:
        assert await outcome(client.method(), [("x-api-key", GOOD)]) == "UNAVAILABLE"
    assert service.calls == 0
