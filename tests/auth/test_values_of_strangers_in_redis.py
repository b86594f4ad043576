"""Servers and values that are not what this package wrote: no request ends with an error of its own."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from a2a_trust.auth import FailureLimits, RedisCounters, RedisProofMemory
from a2a_trust.auth.throttle import Throttle
from a2a_trust.base.databases.availability import DatabaseUrl
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError
from tests.databases import RedisServer
from tests.tables import walk

pytestmark = pytest.mark.anyio

PEER: dict[str, Any] = {"client": ("192.0.2.1", 1)}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.real
@pytest.mark.parametrize("value", [b"x", b"", b"1.5", b"\xff", b"nan"])
async def test_a_counter_that_is_not_a_number(redis_server: RedisServer, redis_url: str, value: bytes) -> None:
    """The process goes on counting for itself."""
    shared = RedisCounters(redis_url)
    throttle = Throttle(FailureLimits(by_credential="2/minute", shared=shared))
    await throttle.count_failure(PEER, ["ann"])
    with redis_server.client() as client:
        names = client.keys("a2a:failures:*")
        assert len(names) == 2
        for name in names:
            client.set(name, value)
    (await throttle.begin(PEER, ["ann"]))()
    assert await throttle.count_failure(PEER, ["ann"]) is None
    assert await throttle.count_failure(PEER, ["ann"]) is not None
    await shared.aclose()


@walk("answer", [b"$-1\r\n", b"*-1\r\n", b":1\r\n", b"%1\r\n+a\r\n+b\r\n", b"HTTP/1.1 400 Bad\r\n\r\n"])
async def test_what_answers_is_no_redis(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while await reader.read(1_000):
                writer.write(answer * 50)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        memory = RedisProofMemory(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0", timeout=20)
        for _ in range(3):
            with pytest.raises(KeySourceUnavailableError, match="cannot be used now"):
                await memory.first_use("key", "1", now=time.time(), issued=time.time(), window=60)
        await memory.aclose()


@walk("end", ["/abc", "/0/1", "/-1", "?db=x", "?db=", "/²"])
def test_a_url_of_no_database_of_redis(end: str) -> None:
    """The library takes a path that is not a number for database 0, and fails on the option at the first request."""
    with pytest.raises(ConfigurationError, match="write its number"):
        DatabaseUrl.redis(f"redis://127.0.0.1:6379{end}")
