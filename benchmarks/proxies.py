"""In front of agents in any language: a request through the reverse proxy, and the answer to a proxy that asks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import repeat
from time import process_time
from typing import Any, Final

import httpx

from a2a_trust.auth.certificate.from_proxy import ProxySecret
from a2a_trust.serve.forward_auth import ForwardAuth
from a2a_trust.serve.proxy import ReverseProxy
from benchmarks.guards import CARD, _verifiers, credential_of, protected
from benchmarks.requests import _HEADERS, _calls, _scope
from benchmarks.rounds import Contender, Row, Timer
from benchmarks.setting import Setting
from benchmarks.tokens import LOOP

__all__ = ["rows"]

_CALLS: Final = 50
#: An agent without opinions, which costs as little as it can.
_AGENT: Final = """
import asyncio

class Agent(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.left = transport, 0

    def data_received(self, data):
        if not self.left:
            head, _, data = data.partition(b"\\r\\n\\r\\n")
            self.left = int(head.lower().partition(b"content-length: ")[2].partition(b"\\r\\n")[0])
        self.left -= len(data)
        if not self.left:
            self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}")

async def main():
    server = await asyncio.get_running_loop().create_server(Agent, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


def rows(setting: Setting) -> Iterator[Row]:
    """Processor time of this process; the agent has its own."""
    _, body = next(_calls())
    with _agent() as url:
        ours = ReverseProxy(url, timeout=60, connections=10, tokens=None, plain=True)
        contenders = (
            Contender(name="a bare proxy on httpx", timer=_timer(protected(_Bare(url)), body)),
            Contender(name="a2a_trust ReverseProxy", timer=_timer(protected(ours), body), target=1.5),
        )
        yield Row(
            title="a call through a reverse proxy with the guard in front, processor time",
            baseline="a bare proxy on httpx",
            contenders=contenders,
            rounds=setting.rounds(40),
        )
    secret = "s" * 32
    asked = ForwardAuth(
        "nginx",  # type: ignore[arg-type]
        peers=ProxySecret(secret=secret),
        card=CARD,
        verifiers=_verifiers(),
        agent_checks=["tenants"],
    )
    asking = [
        (b"x-original-uri", b"/rpc"),
        (b"x-original-method", b"POST"),
        (b"x-forwarded-for", b"192.0.2.1"),
        (b"x-proxy-secret", secret.encode()),
    ]
    yield Row(
        title="an answer to a proxy that asks, processor time",
        baseline="protect",
        contenders=(
            Contender(name="protect", timer=_timer(protected(_nothing), body)),
            Contender(name="a2a_trust ForwardAuth", timer=_timer(asked, b"", asking), target=1.2),
        ),
        rounds=setting.rounds(40),
    )


async def _nothing(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class _Bare:
    """What people write first: no limits, no rules for headers, no care for clients that leave."""

    def __init__(self, url: str) -> None:
        self._url, self._client = url, httpx.AsyncClient(trust_env=False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = self._client.build_request(
            scope["method"], self._url + scope["path"], headers=scope["headers"], content=self._body(receive)
        )
        answer = await self._client.send(request, stream=True)
        await send({"type": "http.response.start", "status": answer.status_code, "headers": answer.headers.raw})
        async for chunk in answer.aiter_raw():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        await answer.aclose()

    async def _body(self, receive: Any) -> AsyncIterator[bytes]:
        while True:
            message = await receive()
            yield message["body"]
            if not message.get("more_body", False):
                return


@contextmanager
def _agent() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-c", _AGENT], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()


def _timer(app: Any, body: bytes, more: list[tuple[bytes, bytes]] | None = None) -> Timer:
    header, value = credential_of("a2a_trust protect, API key")
    headers = [*_HEADERS, (header.lower().encode(), value.encode()), *(more or ())]
    if body:
        headers.append((b"content-length", b"%d" % len(body)))
    statuses: set[int] = set()
    is_gone = asyncio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.add(message["status"])

    async def timed() -> float:
        start = process_time()
        for _ in repeat(None, _CALLS):
            messages = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive(messages: list[dict[str, Any]] = messages) -> Any:
                if not messages:
                    await is_gone.wait()
                return messages.pop()

            await app(_scope("GET" if more else "POST", "/" if more else "/rpc", headers), receive, send)
        return (process_time() - start) / _CALLS

    LOOP.run_until_complete(timed())
    if statuses != {200}:
        raise AssertionError(f"answers {statuses}")
    return lambda: LOOP.run_until_complete(timed())
