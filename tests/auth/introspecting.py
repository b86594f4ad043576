"""An authorization server that is asked about tokens (RFC 7662), on this machine, and verifiers that ask it."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

from a2a_trust.auth.introspection import IntrospectionVerifier
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.client import ClientSecret
from tests.auth.test_jwt import AUDIENCE, ISSUER, NOW

__all__ = [
    "CLIENT_ID",
    "CLIENT_SECRET",
    "CUT",
    "HANG",
    "IntrospectionServer",
    "active",
    "introspecting",
    "verifier_for",
]

CLIENT_ID = "agent"
#: How long a verifier waits for an answer, unless a test says otherwise.
SECONDS = 60.0
CUT, HANG = ("", b"cut"), ("", b"hang")
CLIENT_SECRET = "secret-of-the-agent"


def active(**changes: Any) -> dict[str, Any]:
    """What the server says about a good access token, changed; ``...`` takes a member away."""
    answer = {
        "active": True,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "client_id": "app",
        "scope": "read write",
        "token_type": "Bearer",
        "iat": int(NOW),
        "exp": int(NOW) + 3600,
        **changes,
    }
    return {name: value for name, value in answer.items() if value is not ...}


class IntrospectionServer:
    """It knows the tokens of ``tokens`` and the credentials of one client, and records what it was asked.

    ``failing`` has the status and the body of every answer, or of those about the tokens of ``poison``; with CUT the
    connection ends without an answer, with HANG there is none. While ``open`` is not set, no answer comes.
    """

    def __init__(self) -> None:
        self.tokens: dict[str, Any] = {}
        self.asked: list[str] = []
        self.forms: list[dict[str, list[str]]] = []
        self.heads: list[str] = []
        self.failing: tuple[str, bytes] | None = None
        self.poison: frozenset[str] = frozenset()
        #: The client's secret, where it is to be checked.
        self.secret = ""
        self.content_type = "application/json"
        self.answer: Callable[[dict[str, Any]], bytes] = lambda members: json.dumps(members).encode()
        self.open = asyncio.Event()
        self.open.set()
        self.busy = self.busiest = 0
        self.port = 0
        self._serving = set[asyncio.Task[Any] | None]()
        self._listening: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/introspect"

    async def start(self) -> None:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._listening is not None
        self._listening.close()
        for task in filter(None, self._serving):
            task.cancel()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(head.lower().partition("content-length: ")[2].split("\r\n")[0])
            form = parse_qs((await reader.readexactly(length)).decode(), strict_parsing=True, keep_blank_values=True)
            self.heads.append(head)
            self.forms.append(form)
            self.asked += form["token"]
            await self.open.wait()
            status, body = self._answered(form["token"][0])
            if (status, body) == HANG:
                await asyncio.Event().wait()
            if (status, body) == CUT:
                return
            content_type = self.content_type if status.startswith("200") else "application/json"
            lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "", ""]
            writer.write("\r\n".join(lines).encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.busy -= 1
            writer.close()

    def _answered(self, token: str) -> tuple[str, bytes]:
        basic = b64encode(f"{CLIENT_ID}:{self.secret}".encode()).decode()
        if self.secret and f"authorization: basic {basic}".lower() not in self.heads[-1].lower():
            return "401 Unauthorized", b'{"error":"invalid_client"}'
        if self.failing is not None and (not self.poison or token in self.poison):
            return self.failing
        return "200 OK", self.answer(self.tokens.get(token, {"active": False}))


@asynccontextmanager
async def introspecting(**tokens: Any) -> AsyncIterator[IntrospectionServer]:
    """The server, with what it says about some tokens."""
    server = IntrospectionServer()
    server.tokens |= tokens
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def verifier_for(server: IntrospectionServer, *, timeout: float | None = None, **options: Any) -> IntrospectionVerifier:
    given = {
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "client_id": CLIENT_ID,
        "authentication": ClientSecret(CLIENT_SECRET),
        "fetcher": Fetcher(private_origins=[f"http://127.0.0.1:{server.port}"], timeout=timeout or SECONDS),
        **options,
    }
    return IntrospectionVerifier(server.url, **given)
