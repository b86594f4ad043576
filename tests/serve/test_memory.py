"""Long streams and large bodies pass through ``a2a-sign serve`` in bounded memory, at the pace of their reader."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from a2a_trust.auth import SqliteApiKeys
from tests.serve.served import Upstream, upstream, write
from tests.servers.serving import free_port

SIGN = str(Path(sys.executable).with_name("a2a-sign"))
#: Above a process that has served one request.
MOST_KB = 30 * 1024
EVENTS = 10_000
MEGABYTES = 100
_MB = 1024 * 1024


@asynccontextmanager
async def served(folder: Path, agent: Upstream) -> AsyncIterator[tuple[httpx.AsyncClient, int]]:
    """A client of the proxy, and the proxy's process."""
    key = SqliteApiKeys(folder / "keys.db", create=True).create(owner="ann").text
    port = free_port()
    path = write(folder, agent.port)
    path.write_text(path.read_text() + f'[listen]\naddress = "127.0.0.1:{port}"\n')
    process = await asyncio.create_subprocess_exec(SIGN, "serve", str(path), stderr=asyncio.subprocess.DEVNULL)
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers={"X-API-Key": key}, timeout=120, trust_env=False
        ) as http:
            async with asyncio.timeout(60):
                while True:
                    try:
                        assert (await http.get("/page")).status_code == 200
                        break
                    except httpx.ConnectError:
                        await asyncio.sleep(0.05)
            yield http, process.pid
    finally:
        process.terminate()
        await process.wait()


async def stalled(count: Callable[[], int]) -> int:
    """The count, when it does not grow any more."""
    before = -1
    while before < count():
        before = count()
        await asyncio.sleep(0.5)
    return before


def highest(pid: int) -> int:
    """The most memory that the process has had, in kB."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])


def run(folder: Path, test: Callable[[httpx.AsyncClient, Upstream], Awaitable[None]]) -> None:
    async def running() -> None:
        async with upstream() as agent:
            agent.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            await served_by(agent)

    async def served_by(agent: Upstream) -> None:
        async with served(folder, agent) as (http, pid):
            before = highest(pid)
            await test(http, agent)
            assert highest(pid) - before < MOST_KB

    asyncio.run(running())


def test_ten_thousand_events(tmp_path: Path) -> None:
    async def test(http: httpx.AsyncClient, agent: Upstream) -> None:
        async def stream(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for number in range(EVENTS):
                event = b"data: %d %s\n\n" % (number, b"x" * 1000)
                writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                await writer.drain()
            writer.write(b"0\r\n\r\n")

        agent.go_on = stream
        async with http.stream("GET", "/page") as answer:
            numbers = [int(line.split()[1]) async for line in answer.aiter_lines() if line]
        assert numbers == [*range(EVENTS)]

    run(tmp_path, test)


@pytest.mark.parametrize("waits", [False, True])
def test_a_large_answer_waits_for_its_reader(waits: bool, tmp_path: Path) -> None:
    async def test(http: httpx.AsyncClient, agent: Upstream) -> None:
        sent = 0

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MEGABYTES * _MB))
            for _megabyte in range(MEGABYTES):
                writer.write(bytes(_MB))
                await writer.drain()
                sent += 1

        agent.go_on = answer
        got = 0
        async with http.stream("GET", "/page") as response:
            if waits:  # what is on its way fills the buffers of the sockets
                assert await stalled(lambda: sent) < MEGABYTES // 2
            async for chunk in response.aiter_bytes():
                got += len(chunk)
        assert got == MEGABYTES * _MB

    run(tmp_path, test)


def test_a_large_body_waits_for_the_agent(tmp_path: Path) -> None:
    async def test(http: httpx.AsyncClient, agent: Upstream) -> None:
        got = sent = 0

        async def body() -> AsyncIterator[bytes]:
            nonlocal sent
            for _ in range(MEGABYTES):
                yield bytes(_MB)
                sent += 1

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal got
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"transfer-encoding: chunked" in head.lower()
            assert await stalled(lambda: sent) < MEGABYTES // 2
            last = b""
            while not last.endswith(b"\r\n0\r\n\r\n"):
                read = await reader.read(65_536)
                got += len(read)
                last = last[-16:] + read
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

        agent.take = take
        assert (await http.post("/page", content=body())).status_code == 204
        assert got > MEGABYTES * _MB

    run(tmp_path, test)
