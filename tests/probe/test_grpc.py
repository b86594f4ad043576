"""The probe of interfaces of gRPC, at real servers: one that is guarded, and one that is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from a2a_trust import Fetcher
from a2a_trust.base.net.fetcher import AnyAnswer
from a2a_trust.client import ApiKey
from a2a_trust.errors import FetchError
from a2a_trust.probe import ProbeOptions, ProbeReport, Verdict, async_probe_agent
from a2a_trust.probe.grpc import ask
from tests.grpc_service import GOOD, Service, card, guarded
from tests.grpc_service import serving as serving_grpc
from tests.probe.agents import serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Open(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpcio has no types
    """It guards nothing."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        return await continuation(handler_call_details)


class Bare(Service):
    """An application that asks nobody who calls."""

    async def send(self, message: Any, context: Any) -> Any:
        self.calls += 1
        if not message.message.message_id:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "message is required")
        return message


@asynccontextmanager
async def probed(guard: Any, service: Service, key: str | None = GOOD, **options: Any) -> AsyncIterator[ProbeReport]:
    async with serving_grpc(guard, service.handler()) as client:
        url = f"http://127.0.0.1:{client.port}"
        interface = {"url": f"127.0.0.1:{client.port}", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
        given = {**card(), "capabilities": {"streaming": True}, "supportedInterfaces": [interface]}
        with serving() as served:
            served.agent.card = given
            fetcher = Fetcher(private_origins=[served.url, url])
            credentials = {} if key is None else {"key": ApiKey(key, origins=[url])}
            settings = {"origins": [url], "fetcher": fetcher, "credentials": credentials, **options}
            yield await async_probe_agent(served.url, ProbeOptions(**settings))


async def test_a_guarded_server_enforces_its_card() -> None:
    service = Service()
    async with probed(guarded(), service) as report:
        assert [each.verdict for each in report.requirements] == [Verdict.ENFORCED], report
    assert service.calls > 0  # by the good key
    async with probed(guarded(), Service(), key=None) as report:
        assert [each.verdict for each in report.requirements] == [Verdict.ENFORCED], report


async def test_a_server_without_a_guard_is_open() -> None:
    async with probed(Open(), Bare()) as report:
        assert report.verdict is Verdict.NOT_ENFORCED
        assert any("SendMessage with no credential" in line for each in report.requirements for line in each.proof)


async def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.probe.probing.find_spec", lambda name: None)
    async with probed(guarded(), Service()) as report:
        assert [each.reason for each in report.requirements] == ["not asked: gRPC needs the extra grpc"]


async def test_only_allowed_addresses_are_called() -> None:
    for url in ("http://127.0.0.1:9/s/M", "https://127.0.0.1:9/s/M", "https://10.0.0.1/s/M"):
        with pytest.raises(FetchError):
            await ask(url, {}, Fetcher(), configured=True)


async def test_a_server_that_is_not_there_is_unclear() -> None:
    answer = await ask("http://127.0.0.1:9/s/M", {}, Fetcher(private_origins=["http://127.0.0.1:9"]), configured=True)
    assert isinstance(answer, AnyAnswer)
    assert answer.status == 503
