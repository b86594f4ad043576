"""Clients that send a part of a body, or all of it, and go away: by FIN, by RST, and through three parsers of HTTP.

Seen here: while a verifier waited for the network, 300 clients that had gone away left 300 tasks behind, and under
hypercorn 300 MB, for as long as the wait. While an application streamed, every body stayed in memory until the end.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

import h2.connection
import pytest

from tests.faults.uploading_agent import KEY
from tests.servers.serving import ROOT, SERVERS, free_port, serving

SIZE: Final = 1_000_000
WAYS: Final = ("uvicorn-h11", "uvicorn-httptools", "hypercorn", "hypercorn-h2")
BODY: Final = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"x": "x" * SIZE}}).encode()


class Agent(NamedTuple):
    """The agent in its process, and how clients speak to it."""

    way: str
    port: int

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/state", timeout=60) as answer:
            state: dict[str, Any] = json.load(answer)
        return state

    def wait_for(self, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The state as soon as it is so, or that of a minute later."""
        until = time.monotonic() + 60
        while not is_so(state := self.state()) and time.monotonic() < until:
            time.sleep(0.1)
        return state

    def upload(self, body: bytes) -> socket.socket:
        """A client that has sent so much of the body as the server takes, and waits."""
        client = socket.create_connection(("127.0.0.1", self.port))
        if self.way == "hypercorn-h2":
            client.sendall(_by_h2(body))
            return client
        head = (
            f"POST /rpc HTTP/1.1\r\nHost: agent.example\r\nX-API-Key: {KEY}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
        ).encode()
        client.setblocking(False)
        rest = memoryview(head + body)
        while rest and select.select([], [client], [], 1)[1]:
            rest = rest[client.send(rest) :]
        client.setblocking(True)
        return client


def _by_h2(body: bytes) -> bytes:
    """A request of HTTP/2 with so much of the body as may be sent before the server asks for more."""
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    headers = {
        ":method": "POST",
        ":path": "/rpc",
        ":scheme": "http",
        ":authority": "agent.example",
        "x-api-key": KEY,
        "content-type": "application/json",
        "content-length": str(len(BODY)),
    }
    connection.send_headers(1, list(headers.items()))
    rest = body[: connection.local_flow_control_window(1)]
    while rest:
        connection.send_data(1, rest[: connection.max_outbound_frame_size])
        rest = rest[connection.max_outbound_frame_size :]
    sent: bytes = connection.data_to_send()
    return sent


def go(client: socket.socket, *, at_once: bool) -> None:
    """Close by RST (``at_once``) or by FIN."""
    if at_once:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@contextmanager
def agent_that_waits(way: str, where: str) -> Iterator[Agent]:
    port = free_port()
    command = [sys.executable, "-m", *SERVERS[way.removesuffix("-h2")]("tests.faults.uploading_agent:app", port)]
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as silent:
        settings = {"WAIT": where, "SILENT": str(silent.getsockname()[1])}
        with serving(command, f"http://127.0.0.1:{port}/state", settings, ROOT):
            yield Agent(way, port)


@pytest.fixture
def count(is_long: bool) -> int:
    """How many clients come at once."""
    return 300 if is_long else 40


@pytest.mark.parametrize("where", ["", "verifier"], ids=["body", "verifier"])
@pytest.mark.parametrize("way", WAYS)
def test_clients_that_go_away_leave_no_task_and_no_bytes(way: str, where: str, count: int) -> None:
    """Some have sent nothing of the body, some a byte, most of them all but the last byte, or what is read ahead."""
    most = 50_000 if where else len(BODY) - 1
    with agent_that_waits(way, where) as agent:
        before = agent.state()
        clients = [agent.upload(BODY[:sent]) for sent in [0, 1, *[most] * (count - 2)]]
        waiting = agent.wait_for(lambda state: state["inside"] == count)
        assert waiting["inside"] == count
        for number, client in enumerate(clients):
            go(client, at_once=bool(number % 2))
        after = agent.wait_for(lambda state: not state["inside"] and state["tasks"] <= before["tasks"] + 2)
    print(f"\n{way}: waiting {_shown(waiting)}; gone {_shown(after)}")
    assert after["inside"] == 0
    assert after["tasks"] <= before["tasks"] + 2
    assert after["bytes"] - before["bytes"] < count * SIZE / 5
    assert after["logged"] == []


@pytest.mark.parametrize("way", WAYS[:3])
def test_a_body_that_the_application_has_taken_is_kept_by_nobody(way: str, count: int) -> None:
    with agent_that_waits(way, "application") as agent, ExitStack() as stack:
        before = agent.state()
        for _ in range(count):
            stack.enter_context(agent.upload(BODY))
        during = agent.wait_for(
            lambda state: state["inside"] == count and state["bytes"] - before["bytes"] < count * SIZE / 5
        )
    print(f"\n{way}: streaming {_shown(during)}")
    assert during["inside"] == count
    assert during["bytes"] - before["bytes"] < count * SIZE / 5


def _shown(state: dict[str, Any]) -> str:
    return f"{state['inside']} requests, {state['tasks']} tasks, {state['bytes'] / 1e6:.0f} MB"
