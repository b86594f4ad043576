"""The guard of a gRPC server: what it rejects at start, the rejections by handlers, and what the trailers say."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from a2a_trust import ExtendedCard, RequestRules
from a2a_trust.auth import ApiKeyVerifier, DPoP, JwtVerifier
from a2a_trust.errors import AuthorizationError, ConfigurationError
from a2a_trust.grpc import GrpcGuard
from a2a_trust.middleware import FromApplication, reject_caller
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, Keys
from tests.grpc_service import GOOD, POOR, SERVICE, STORE, Service, card, guarded, outcome, request, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def with_key(location: str, name: str) -> dict[str, Any]:
    return card(securitySchemes={"key": {"apiKeySecurityScheme": {"location": location, "name": name}}})


TOKENS = card(securitySchemes={"key": {"openIdConnectSecurityScheme": {"openIdConnectUrl": f"{ISSUER}/.well-known/x"}}})
HTTP_ONLY = card(
    supportedInterfaces=[{"url": "https://a.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
)
WITH_EXTENDED = card(capabilities={"extendedAgentCard": True})


@pytest.mark.parametrize(
    ("given", "options", "why"),
    [
        (with_key("query", "k"), {}, "query parameter k, which calls of gRPC do not have"),
        (with_key("cookie", "k"), {}, "cookie k, which calls of gRPC do not have"),
        (with_key("header", "x-key-bin"), {}, "which calls of gRPC do not have"),
        (HTTP_ONLY, {}, "no interface of gRPC"),
        (WITH_EXTENDED, {"extended_card": ExtendedCard(FromApplication())}, "ExtendedCard"),
    ],
)
def test_what_grpc_does_not_have_is_an_error_at_start(given: Any, options: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        guarded(given, **options)


def test_dpop_is_an_error_at_start() -> None:
    tokens = JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)
    with pytest.raises(ConfigurationError, match="dpop: proofs are for URLs"):
        guarded(TOKENS, verifiers={"key": tokens}, dpop=DPoP(url="https://agent.example"), url="https://agent.example")


def test_a_guard_is_for_one_agent() -> None:
    guard = guarded()
    with pytest.raises(ConfigurationError, match="another agent"):
        guarded(guard=guard)


def test_without_a_guard_an_interface_of_grpc_is_an_error() -> None:
    from starlette.applications import Starlette

    from a2a_trust import protect

    with pytest.raises(ConfigurationError, match="unguarded"):
        protect(Starlette(), card=card(), verifiers={"key": ApiKeyVerifier(STORE)})


async def test_a_rejection_has_a_status_a_reason_and_challenges() -> None:
    async with serving(guarded(), Service().handler()) as client:
        for metadata, code, reason in (
            ([], "UNAUTHENTICATED", "UNAUTHENTICATED"),
            ([("x-api-key", POOR)], "PERMISSION_DENIED", "UNAUTHORIZED"),
        ):
            for name in ("SendMessage", "SendStreamingMessage"):
                call = client.method(name)(request(), metadata=metadata)
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await (call.read() if "Streaming" in name else call)
                assert raised.value.code().name == code
                status, info = rpc_status.from_call(raised.value), error_details_pb2.ErrorInfo()
                assert status.details[0].Unpack(info)
                assert (info.reason, info.domain) == (reason, "a2a-protocol.org")
                trailers = [value for name, value in raised.value.trailing_metadata() if name == "www-authenticate"]
                assert trailers == ['ApiKey in="header", name="X-API-Key"']


async def test_handlers_reject_their_callers() -> None:
    async def raises(_: Any) -> None:
        raise AuthorizationError("no")

    async def rejects(context: Any) -> None:
        reject_caller(context, AuthorizationError("no"))

    async def rejects_in_a_framework(context: Any) -> None:
        try:
            reject_caller(context, AuthorizationError("no"))
        except Exception:  # noqa: BLE001  as a2a-sdk does
            await context.abort(grpc.StatusCode.INTERNAL, "failed")

    async def fails(_: Any) -> None:
        raise ValueError("a bug")

    for handler, expected in (
        (raises, "PERMISSION_DENIED"),
        (rejects, "PERMISSION_DENIED"),
        (rejects_in_a_framework, "PERMISSION_DENIED"),
        (fails, "UNKNOWN"),
    ):
        async with serving(guarded(), Service(handler).handler()) as client:
            assert await outcome(client.method(), [("x-api-key", GOOD)]) == expected


async def test_methods_that_are_not_async_are_not_served() -> None:
    def send(message: Any, context: Any) -> Any:
        return message

    handler = grpc.unary_unary_rpc_method_handler(send, request().FromString, lambda sent: sent.SerializeToString())
    async with serving(guarded(), grpc.method_handlers_generic_handler(SERVICE, {"SendMessage": handler})) as client:
        assert await outcome(client.method()) == "UNAUTHENTICATED"
        assert await outcome(client.method(), [("x-api-key", GOOD)]) == "UNIMPLEMENTED"


@pytest.mark.parametrize(("module", "extra"), [("grpc", "server,grpc"), ("client.grpc", "client,grpc")])
def test_without_the_extra_the_modules_say_what_to_install(module: str, extra: str) -> None:
    program = f"import sys; sys.modules['grpc'] = None; import a2a_trust.{module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert f'needs gRPC: pip install "./a2a-trust[{extra}]"' in done.stderr.splitlines()[-1]


async def test_rules_of_the_sdk_hold_for_the_guard_of_an_http_agent_too() -> None:
    """One ``protect`` guards both: the path of gRPC is none of the application's."""
    rules = RequestRules(max_body=10)
    async with serving(guarded(rules=rules, guard=GrpcGuard()), Service().handler()) as client:
        assert await outcome(client.method(), [("x-api-key", GOOD)]) == "RESOURCE_EXHAUSTED"
