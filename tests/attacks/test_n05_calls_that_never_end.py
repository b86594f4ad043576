"""N5: callers cancel streams, make a thousand calls at once, or let a stream outlive their credential.

The long form has the number of the issue: 10,000 cancelled streams.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from contextlib import suppress
from typing import Any

import grpc
import pytest

from a2a_trust import RequestRules
from tests.grpc_service import GOOD, STORE, Service, guarded, outcome, request, serving
from tests.waiting import settled, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def cancel(method: Any, count: int) -> None:
    for _ in range(count):
        call = method(request(), metadata=[("x-api-key", GOOD)])
        await call.read()
        call.cancel()


async def cancelled_streams(count: int) -> tuple[int, int]:
    """How much memory grew after a tenth of the streams, and how many generators did not end."""
    service = Service()
    async with serving(guarded(), service.handler()) as client:
        await cancel(client.method("SendStreamingMessage"), count // 10)
        await until(lambda: service.calls == service.ended)
        gc.collect()
        tracemalloc.start()
        await cancel(client.method("SendStreamingMessage"), count - count // 10)
        await until(lambda: service.calls == service.ended)
        await settled()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return grown, service.calls - service.ended


async def test_a_cancelled_stream_ends_in_its_call_and_knows_its_caller() -> None:
    """The collector of garbage would end it later, in a task of its own."""
    service = Service()
    async with serving(guarded(), service.handler()) as client:
        await cancel(client.method("SendStreamingMessage"), 20)
        await until(lambda: service.calls == service.ended)
    assert (service.ended, service.ended_for) == (20, 20)


async def test_cancelled_streams_leave_nothing() -> None:
    grown, running = await cancelled_streams(300)
    assert grown < 300_000
    assert running == 0


@pytest.mark.long
async def test_ten_thousand_cancelled_streams_leave_nothing() -> None:
    grown, running = await cancelled_streams(10_000)
    assert grown < 1_000_000
    assert running == 0


async def test_a_thousand_calls_at_once_are_decided_each_for_its_own_caller() -> None:
    async def slow(_: Any) -> None:
        await asyncio.sleep(0.05)

    service = Service(slow)
    async with serving(guarded(), service.handler()) as client:
        good, bad = [("x-api-key", GOOD)], [("x-api-key", "guessed")]
        codes = await asyncio.gather(*(outcome(client.method(), good if n % 2 else bad) for n in range(1_000)))
    assert codes[1::2] == ["OK"] * 500
    assert set(codes[::2]) <= {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED"}  # guesses are throttled
    assert service.calls == 500


async def test_a_stream_ends_with_the_credential_of_its_caller() -> None:
    service = Service()
    key = STORE.create(owner="eve", scopes=["read"])
    guard = guarded(rules=RequestRules(end_streams_with_credential=True))
    async with serving(guard, service.handler()) as client:
        call = client.method("SendStreamingMessage")(request(), metadata=[("x-api-key", key.text)])
        await call.read()
        STORE.revoke(key.record.key_id)
        async with asyncio.timeout(20):
            with suppress(grpc.aio.AioRpcError):
                while True:
                    await call.read()
            assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
    await settled()
    assert service.ended == 1
