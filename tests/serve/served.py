"""A served agent in front of an upstream that records bytes, under each server, for tests."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import uvicorn
from hypercorn.config import Config

from a2a_trust.serve import ServedAgent
from a2a_trust.servers import hypercorn
from a2a_trust.servers.uvicorn import H11Protocol, HttpToolsProtocol
from tests.conftest import ROOT
from tests.servers.serving import free_port

__all__ = ["CARD", "SERVERS", "Upstream", "exchange", "serving", "upstream", "write"]

CARD: Final[dict[str, Any]] = json.loads((ROOT / "examples" / "serve" / "agent-card.json").read_text())
SERVERS: Final = ("uvicorn-h11", "uvicorn-httptools", "hypercorn")


class Upstream:
    """What the agent got, and what it answers; None: the head that it got, as text."""

    def __init__(self) -> None:
        self.port: int = 0
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.answer: bytes | None = None
        self.lost: asyncio.Event = asyncio.Event()
        self.asked: asyncio.Event = asyncio.Event()
        self.take: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] | None = None
        """In place of all else; reads the request, too."""
        self.go_on: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while self.take is None:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                self.bodies.append(await _body(reader, head.lower()))
                self.asked.set()
                if self.go_on is not None:
                    await self.go_on(reader, writer)
                    break
                plain = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(head), head)
                writer.write(plain if self.answer is None else self.answer)
                await writer.drain()
                if self.answer is not None:
                    break
            if self.take is not None:
                await self.take(reader, writer)
        self.lost.set()
        writer.close()


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    if b"transfer-encoding: chunked" in head:
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
        return body
    lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
    return await reader.readexactly(sum(lengths))


@asynccontextmanager
async def upstream() -> AsyncIterator[Upstream]:
    agent = Upstream()
    server = await asyncio.start_server(agent.serve, "127.0.0.1", 0)
    async with server:
        agent.port = server.sockets[0].getsockname()[1]
        yield agent


def write(folder: Path, port: int, more: str = "", *, limit: str = "100/minute", card: dict[str, Any] = CARD) -> Path:
    """The file of the agent, which is replaced whole."""
    (folder / "card.json").write_text(json.dumps(card))
    path, new = folder / "agent.toml", folder / "new"
    new.write_text(
        f'card = "card.json"\n{more}\n[upstream]\nurl = "http://127.0.0.1:{port}"\ntimeout = 60\n'
        f'[caller]\nplain = true\n[rules]\nfailures = {{ by_peer = "{limit}" }}\nother_paths = ["/page", "/up"]\n'
        '[verifiers.key]\ntype = "ApiKeyVerifier"\nstore = { type = "SqliteApiKeys", path = "keys.db" }\n'
    )
    new.replace(path)
    return path


@asynccontextmanager
async def serving(agent: ServedAgent, server: str = "uvicorn-h11") -> AsyncIterator[str]:
    """The agent serves under that server while the block runs; the URL."""
    port, stopped = free_port(), asyncio.Event()
    if server == "hypercorn":
        config = Config()
        config.bind, config.graceful_timeout, config.errorlog = [f"127.0.0.1:{port}"], 0.1, None
        running = asyncio.create_task(hypercorn.serve(agent, config, shutdown_trigger=stopped.wait))
    else:
        http: Any = H11Protocol if server == "uvicorn-h11" else HttpToolsProtocol
        options: Any = {"log_level": "critical", "lifespan": "on", "timeout_graceful_shutdown": 1}
        own = uvicorn.Server(uvicorn.Config(agent, port=port, http=http, **options))
        running = asyncio.create_task(own._serve())
    while not await _answers(port):
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        if server == "hypercorn":
            stopped.set()
        else:
            own.should_exit = True
        await running


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def exchange(url: str, request: bytes) -> bytes:
    """The beginning of what comes back on one connection, or nothing if the server closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(request)
    answer = b""
    with suppress(OSError, asyncio.IncompleteReadError):
        await writer.drain()
        reading = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
        done, _ = await asyncio.wait([reading], timeout=1)
        if not done:  # the server waits for more, which does not come
            writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        answer = await reading
    writer.close()
    return answer
