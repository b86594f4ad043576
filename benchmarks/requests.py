"""A request through a guard: in this process, and under a real server by its processor time."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import orjson

from benchmarks.guards import GUARDS, app_of, credential_of, enforced, protected, protected_agents
from benchmarks.rounds import Contender, Row, Timer, calls_per_round
from benchmarks.setting import Setting
from benchmarks.tokens import LOOP

__all__ = ["rows_in_process", "rows_of_agents", "rows_of_calls", "rows_served"]

_ROOT: Final = Path(__file__).resolve().parent.parent
_HEADERS: Final = [
    (b"host", b"agent.example.com"),
    (b"user-agent", b"python-httpx/0.28.1"),
    (b"accept", b"*/*"),
    (b"accept-encoding", b"gzip, deflate"),
    (b"connection", b"keep-alive"),
    (b"content-type", b"application/json"),
]
_REQUESTS: Final = 400


def rows_in_process(setting: Setting) -> Iterator[Row]:
    """One call of the application with a ready scope: of an empty one, and of one with Starlette's router."""
    yield _around_nothing(setting)
    contenders = [
        contender for name in GUARDS for contender in setting.available(name, partial(_contender_in_process, name))
    ]
    yield Row(
        title="a request, in process",
        baseline="bare Starlette",
        contenders=tuple(contenders),
        rounds=setting.rounds(60),
    )


def _around_nothing(setting: Setting) -> Row:
    contenders = (
        Contender(name="empty", timer=_calling(_taking, b"", "/", method="GET")),
        Contender(
            name="a2a_trust CardEnforcementMiddleware",
            timer=_calling(enforced(_taking), b"", "/", method="GET"),
            at_most=7e-6,
        ),
        Contender(name="a2a_trust protect", timer=_calling(protected(_taking), b"", "/", method="GET"), at_most=9e-6),
    )
    return Row(
        title="a request to an empty application, in process, API key",
        baseline="empty",
        contenders=contenders,
        rounds=setting.rounds(60),
        notes=("the times count: at most 6 and 8 µs more than the empty application, which takes 1 µs",),
    )


def rows_of_calls(setting: Setting) -> Iterator[Row]:
    """A JSON-RPC call by POST, in process, to an application that takes the body and does nothing: by its size."""
    for (title, body), more in zip(_calls(), (12e-6, 20e-6, 40e-6, 8e-4, None), strict=True):
        contenders = (
            Contender(name="bare", timer=_calling(_taking, body)),
            Contender(
                name="a2a_trust protect, API key",
                timer=_calling(protected(_taking), body),
                at_most=None if more is None else 1e-6 + more,
            ),
            Contender(name="orjson.loads of the body alone", timer=_reading(body)),
        )
        yield Row(
            title=f"a call by POST, {title}",
            baseline="bare",
            contenders=contenders,
            rounds=setting.rounds(40),
            notes=("the times count, not the ratios: the application alone takes 1 µs",),
        )


def rows_of_agents(setting: Setting) -> Iterator[Row]:
    """The shortest call, to one of several agents."""
    _, body = next(_calls())
    several = [(count, protected_agents(_taking, count)) for count in (2, 100, 1_000)]
    contenders = [
        Contender(
            name=f"protect_agents, {count:,} agents", timer=_calling(app, body, f"/agent-{count - 1}/rpc"), target=1.2
        )
        for count, app in several
    ]
    yield Row(
        title="a call by POST, to one of several agents",
        baseline="protect",
        contenders=(Contender(name="protect", timer=_calling(protected(_taking), body)), *contenders),
        rounds=setting.rounds(40),
        notes=("the number of agents is to cost nothing",),
    )


def _call(*parts: Any) -> bytes:
    message = {"role": "ROLE_USER", "messageId": "9229e770-767c-417b-a0b0-f0741243c589", "parts": parts}
    request = {"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": {"message": message}}
    return json.dumps(request).encode()


def _calls() -> Iterator[tuple[str, bytes]]:
    text = _call({"text": "tell me a joke, please, and make it a good one: it has been a long day here"})
    yield f"{len(text)} B", text
    yield "20 kB of text", _call({"text": "Words of a long question. " * 770})
    yield "68 kB of text", _call({"text": "Words of a long question. " * 2_600})
    yield (
        "1 MB of data",
        _call({"data": {"rows": [{"id": n, "name": f"row {n}", "price": n / 7} for n in range(17_000)]}}),
    )
    yield "1 MB of a file", _call({"raw": "QUJD" * 262_144, "filename": "scan.pdf", "mediaType": "application/pdf"})


async def _taking(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def _reading(body: bytes) -> Timer:
    calls = 3 if len(body) > 100_000 else 200

    def timer() -> float:
        start = perf_counter()
        for _ in repeat(None, calls):
            orjson.loads(body)
        return (perf_counter() - start) / calls

    return timer


def _calling(app: Any, body: bytes, path: str = "/rpc", *, method: str = "POST") -> Timer:
    header, value = credential_of("a2a_trust protect, API key")
    headers = [*_HEADERS, (header.lower().encode(), value.encode())]
    statuses: set[int] = set()
    is_asked_again = asyncio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.add(message["status"])

    async def timed(calls: int) -> float:
        start = perf_counter()
        for _ in repeat(None, calls):
            messages = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive(messages: list[dict[str, Any]] = messages) -> Any:
                if not messages:
                    await is_asked_again.wait()  # no client goes away
                return messages.pop()

            await app(_scope(method, path, headers), receive, send)
        return (perf_counter() - start) / calls

    LOOP.run_until_complete(timed(3))
    calls = calls_per_round(LOOP.run_until_complete(timed(3)))
    if statuses != {200}:
        raise AssertionError(f"answers {statuses}")
    return lambda: LOOP.run_until_complete(timed(calls))


def _scope(method: str, path: str, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "server": ("agent.example.com", 80),
        "client": ("192.0.2.1", 50000),
        "scheme": "http",
        "method": method,
        "root_path": "",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "state": {},
    }


def _contender_in_process(name: str) -> Contender:
    return Contender(name=name, timer=_in_process(name))


def _in_process(name: str) -> Timer:
    app, (header, value) = app_of(name), credential_of(name)
    headers = [*_HEADERS, (header.lower().encode(), value.encode())]
    statuses: set[int] = set()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.add(message["status"])

    async def timed(calls: int) -> float:
        start = perf_counter()
        for _ in repeat(None, calls):
            await app(_scope("GET", "/", headers), receive, send)
        return (perf_counter() - start) / calls

    LOOP.run_until_complete(timed(3))  # what is made on the first call is not what a call takes
    calls = calls_per_round(LOOP.run_until_complete(timed(3)))
    if statuses != {200}:
        raise AssertionError(f"{name}: answers {statuses}")
    return lambda: LOOP.run_until_complete(timed(calls))


#: The peers that take a body, too.
_TAKES_BODIES: Final = ("bare Starlette", "a2a_trust protect, API key", "Starlette AuthenticationMiddleware, API key")


def rows_served(setting: Setting) -> Iterator[Row]:
    """Processor time of uvicorn per request over a connection that stays open."""
    text = _call({"text": "Words of a long question. " * 72})
    for title, body, names, target in (
        ("GET", b"", tuple(GUARDS), 1.4),
        (f"POST of {len(text):,} bytes", text, _TAKES_BODIES, 1.6),
    ):
        with ExitStack() as stack:
            contenders = [
                contender
                for name in names
                for contender in setting.available(name, partial(_contender_served, stack, name, body, target))
            ]
            yield Row(
                title=f"a request, processor time of uvicorn, {title}",
                baseline="bare Starlette",
                contenders=tuple(contenders),
                rounds=setting.rounds(40),
                notes=(f"httptools, {'uvloop' if find_spec('uvloop') else 'asyncio'}",),
            )


def _contender_served(stack: ExitStack, name: str, body: bytes, target: float) -> Contender:
    app_of(name)  # who has not got what it needs says so here
    port, process = stack.enter_context(_served(name))
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    return Contender(
        name=name,
        timer=_processor_time(name, connection, process.pid, body),
        target=target if name.startswith("a2a_trust") else None,
    )


@contextmanager
def _served(name: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "--http", "httptools", "--loop", "auto", "--log-level", "error"]
    process = subprocess.Popen(
        [*command, "--no-access-log", "--port", str(port), "--factory", "benchmarks.guards:served"],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "GUARD": name},
    )
    try:
        for _ in range(300):
            if process.poll() is not None:
                raise RuntimeError(f"{name}: the server has ended; its reason stands above")
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise RuntimeError(f"{name}: the server does not answer")
        yield port, process
    finally:
        process.terminate()
        process.wait()


def _processor_time(name: str, connection: socket.socket, pid: int, body: bytes) -> Timer:
    header, value = credential_of(name)
    lines = [
        "POST /rpc HTTP/1.1" if body else "GET / HTTP/1.1",
        *("Host: agent.example.com", "User-Agent: bench", "Accept: */*", f"{header}: {value}"),
        *(("Content-Type: application/json", f"Content-Length: {len(body)}") if body else ()),
    ]
    request = "\r\n".join([*lines, "", ""]).encode() + body
    clock = (~pid << 3) | 2  # Linux: the processor time of that process, all threads (clock_getcpuclockid)

    def timer() -> float:
        before = time.clock_gettime_ns(clock)
        for _ in range(_REQUESTS):
            connection.sendall(request)
            answer = connection.recv(65_536)
            while not answer.endswith(b"hello") and len(answer) < 1_000:
                answer += connection.recv(65_536)
            if not answer.startswith(b"HTTP/1.1 200") or not answer.endswith(b"hello"):
                raise AssertionError(f"{name}: {answer[:200]!r}")
        return (time.clock_gettime_ns(clock) - before) / 1e9 / _REQUESTS

    return timer
