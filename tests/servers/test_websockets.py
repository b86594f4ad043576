"""Websockets under five servers: refused in the handshake, before anything is accepted, and the server lives on."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPResponse

import pytest

from tests.servers.guarded_servers import GROUPS, GuardedServers, guarded_servers
from tests.tables import walk

HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\n"
)


@pytest.fixture(scope="module", params=GROUPS)
def servers(request: pytest.FixtureRequest) -> Iterator[GuardedServers]:
    with guarded_servers(*request.param) as running:
        yield running


def shake(origin: str, path: str, line: str) -> tuple[int, str, bytes]:
    """Status, challenges and the first bytes that follow the headers."""
    host, port = origin.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(f"{HANDSHAKE.format(path=path)}{line}\r\n\r\n".encode())
        with closing(HTTPResponse(connection)) as response:
            response.begin()
            after = response.fp.read(14) if response.status == 101 else response.read()
            return response.status, response.headers.get("www-authenticate", ""), after


@walk("path", ["/rpc", "/.well-known/agent-card.json", "/"])
@walk("line", ["X-Other: 1", "X-API-Key: other", "Authorization: Bearer other"])
def test_a_websocket_without_a_good_credential_is_refused(servers: GuardedServers, path: str, line: str) -> None:
    for server, origin in servers.origins.items():
        for _ in range(2):
            status, challenges, _ = shake(origin, path, line)
            # daphne knows no other answer than 403 to a handshake.
            assert (server, status) == (server, 403 if server == "daphne" else 401)
            assert server == "daphne" or challenges.startswith('ApiKey in="header", name="X-API-Key", Bearer'), server
    answers = servers.answers("Connection: close", target="/.well-known/agent-card.json")
    assert {name: status for name, (status, _) in answers.items()} == dict.fromkeys(servers.origins, 200)


def test_a_websocket_with_a_good_credential_is_accepted(servers: GuardedServers) -> None:
    for server, origin in servers.origins.items():
        status, _, frame = shake(origin, "/chat", f"X-API-Key: {servers.key}")
        assert (server, status, frame) == (server, 101, b"\x81\x0cann@api-keys")
        assert shake(origin, "/rpc", f"X-API-Key: {servers.key}")[0] == 403, server  # JSON-RPC comes by POST
