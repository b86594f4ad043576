"""N1: a call has its credential twice, as binary metadata, with underscores or beside a forged one.

Readers of metadata differ in which entry they use, and gateways decode binary ones. The guard reads exactly one text.
"""

from __future__ import annotations

import pytest

from tests.grpc_service import GOOD, POOR, Service, guarded, outcome, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_only_one_text_is_a_credential() -> None:
    service = Service()
    async with serving(guarded(), service.handler()) as client:
        for method in (client.method(), client.method("SendStreamingMessage")):
            for metadata, expected in (
                ([("x-api-key", GOOD), ("x-api-key", GOOD)], "UNAUTHENTICATED"),
                ([("x-api-key", GOOD), ("x-api-key", POOR)], "UNAUTHENTICATED"),
                ([("x-api-key", GOOD), ("x_api_key", POOR)], "UNAUTHENTICATED"),
                ([("x_api_key", GOOD)], "UNAUTHENTICATED"),
                ([("x-api-key-bin", GOOD.encode())], "INVALID_ARGUMENT"),
                ([("x_api_key-bin", GOOD.encode())], "INVALID_ARGUMENT"),
                ([("x-api-key", GOOD), ("x-api-key-bin", b"x")], "INVALID_ARGUMENT"),
                ([("x-api-key", GOOD), ("authorization-bin", b"Bearer x")], "INVALID_ARGUMENT"),
                ([("x-api-key", GOOD), ("authorization", "Bearer x")], "OK"),  # no scheme of the card
            ):
                assert await outcome(method, metadata) == expected, metadata
    assert service.calls == 2


async def test_the_application_does_not_see_the_credential() -> None:
    service = Service()
    async with serving(guarded(), service.handler()) as client:
        metadata = [("x-api-key", GOOD), ("x-trace", "1"), ("trace-bin", b"1")]
        assert await outcome(client.method(), metadata) == "OK"
        seen = dict(service.context.invocation_metadata())
        assert seen.keys() == {"user-agent", "x-trace", "trace-bin"}
        assert service.caller == "ann@api-keys"
