"""P15: The webhook of one caller never answers, answers without end, or takes every connection, so that the
notifications of others come late or never."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import httpx
import pytest

from a2a_trust import Fetcher, FetchError
from a2a_trust.push import PushTransport, delivery
from tests.base.net.test_fetcher import answer, serving
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def never(writer: asyncio.StreamWriter) -> None:
    await asyncio.Future()


async def test_slow_webhooks_delay_no_delivery_to_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_AT_ONCE", 8)
    async with serving(never) as slow, serving(answer(), address="127.0.0.2") as quick:
        origins = [f"http://127.0.0.1:{slow.port}", f"http://127.0.0.2:{quick.port}"]
        transport = PushTransport(Fetcher(private_origins=origins, timeout=2.0))
        async with httpx.AsyncClient(transport=transport) as client:
            waiting = [asyncio.create_task(client.post(f"{origins[0]}/", content=b"{}")) for _ in range(50)]
            await until(lambda: slow.connections == 4)
            came = await client.post(f"{origins[1]}/", content=b"{}")
            assert came.status_code == 200
            assert slow.connections == 4
            assert not any(each.done() for each in waiting)
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(each) for each in outcomes} == {FetchError}


async def test_an_answer_without_end_is_dropped_after_64_kb() -> None:
    written = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()
            written += 65_536

    async with serving(endless) as server:
        origin = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(transport=PushTransport(Fetcher(private_origins=[origin]))) as client:
            came = await client.post(f"{origin}/", content=b"{}")
    assert (came.status_code, came.content) == (200, b"")
    assert written < 20_000_000  # what the buffers of both sides hold


async def test_names_that_are_never_found_use_up_no_look_up_of_other_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as of key sets. A look-up cannot be interrupted, so it goes on when its delivery has ended."""
    ended = threading.Event()
    found = socket.getaddrinfo

    def look_up(host: str, *arguments: Any, **options: Any) -> Any:
        if host.endswith(".evil.example.com"):
            ended.wait(30)
            raise OSError
        return found(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(delivery, "_SECONDS", 0.3)
    try:
        async with httpx.AsyncClient(transport=PushTransport()) as client, serving(answer()) as keys:
            urls = [f"https://{number}.evil.example.com/" for number in range(150)]
            outcomes = await asyncio.gather(*[client.post(url, content=b"") for url in urls], return_exceptions=True)
            assert {type(each) for each in outcomes} == {FetchError}
            origin = f"http://localhost:{keys.port}"
            await Fetcher(private_origins=[origin]).fetch(origin, configured=True)
    finally:
        ended.set()
