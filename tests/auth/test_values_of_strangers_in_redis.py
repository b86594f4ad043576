"""Servers and values that are not what this package wrote: no request ends with an error of its own."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_trust.auth import FailureLimits
from a2a_trust.auth.shared_failures import RedisFailures
from a2a_trust.auth.throttle import Throttle
from tests.databases import RedisServer

pytestmark = pytest.mark.anyio

PEER: dict[str, Any] = {"client": ("192.0.2.1", 1)}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("value", [b"x", b"", b"1.5", b"\xff", b"nan"])
async def test_a_counter_that_is_not_a_number(redis_server: RedisServer, redis_url: str, value: bytes) -> None:
    """The process goes on counting for itself."""
    shared = RedisFailures(redis_url, timeout=20)
    throttle = Throttle(FailureLimits(by_credential="2/minute", shared=shared))
    throttle.failed(PEER, ["ann"])
    await shared._writing.run(None, shared._write)
    with redis_server.client() as client:
        names = client.keys("a2a:failures:*")
        assert len(names) == 2
        for name in names:
            client.set(name, value)
    (await throttle.begin(PEER, ["ann"]))()
    assert throttle.failed(PEER, ["ann"]) is None
    assert throttle.failed(PEER, ["ann"]) is not None
    await shared.aclose()
