"""The protocol classes on the lowest uvicorn that the extra admits, as a process: what they tell is what is true."""

from __future__ import annotations

import base64
import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPResponse
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509

from tests.certificates import SERVER, Authority
from tests.servers.environments import python_of
from tests.servers.serving import ROOT, free_port, serving

pytestmark = pytest.mark.real

LOWEST = "0.36.0"
ANN = x509.UniformResourceIdentifier("spiffe://example.org/ann")
CALLER = "spiffe://example.org/ann@x509:uri:partners"
HANDSHAKE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\n"
)


class Running(NamedTuple):
    """A server that runs, and connections to it, with the certificate of ann or without one."""

    port: int
    folder: Path
    server: Authority
    root: Authority

    def asks(self, version: ssl.TLSVersion, request: str, *, is_ann: bool) -> tuple[int, bytes]:
        """Status and body; of a websocket, its first message."""
        context = ssl.create_default_context(cadata=self.server.pem.decode())
        context.minimum_version = context.maximum_version = version
        if is_ann:
            self.root.issue(ANN).load_into(context, self.folder)
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        with closing(plain), context.wrap_socket(plain, server_hostname="localhost") as tls:
            tls.sendall(request.encode())
            with closing(HTTPResponse(tls)) as response:
                response.begin()
                if response.status != 101:
                    return response.status, response.read()
                _, length = response.fp.read(2)
                if length == 126:
                    length = int.from_bytes(response.fp.read(2), "big")
                return response.status, response.fp.read(length)


@pytest.fixture(scope="module", params=["H11Protocol", "HttpToolsProtocol"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("tls")
    root, server = Authority("Root"), Authority("Servers")
    certificate, key = server.issue(x509.DNSName("localhost"), usage=SERVER).write(folder, "server")
    trusted = folder / "trusted.pem"
    trusted.write_bytes(root.pem)
    port = free_port()
    command = [str(python_of(f"uvicorn-{LOWEST}")), "-m", "uvicorn", "tests.servers.certified_agent:app"]
    options = {
        "port": str(port),
        "http": f"a2a_trust.servers.uvicorn:{request.param}",
        "ws": "wsproto",
        "forwarded-allow-ips": "*",
        "ssl-certfile": str(certificate),
        "ssl-keyfile": str(key),
        "ssl-ca-certs": str(trusted),
        "ssl-cert-reqs": "1",
        "ssl-ciphers": "DEFAULT",  # its own choice has none that clients of TLS 1.2 take today
    }
    command += [word for name, value in options.items() for word in (f"--{name}", value)]
    with serving(command, f"https://localhost:{port}", {"AUTHORITY": str(trusted)}, ROOT):
        yield Running(port, folder, server, root)


def check(said: bytes) -> None:
    told = json.loads(said)
    assert (told["caller"], told["peer"], told["server"]) == (CALLER, "127.0.0.1", LOWEST)


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda v: v.name)


@VERSIONS
def test_a_request_is_from_the_certificate_and_the_peer_of_its_connection(
    running: Running, version: ssl.TLSVersion
) -> None:
    request = "GET /docs HTTP/1.1\r\nHost: localhost\r\n\r\n"
    status, said = running.asks(version, request, is_ann=True)
    assert status == 200
    check(said)
    assert running.asks(version, request, is_ann=False)[0] == 401


@VERSIONS
def test_so_is_a_websocket(running: Running, version: ssl.TLSVersion) -> None:
    request = f"GET /chat HTTP/1.1\r\nHost: localhost\r\n{HANDSHAKE}\r\n"
    status, said = running.asks(version, request, is_ann=True)
    assert status == 101
    check(said)
    assert running.asks(version, request, is_ann=False)[0] == 401


def test_trailers_that_come_with_the_head_are_no_headers(running: Running) -> None:
    head = "POST /docs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    status, said = running.asks(ssl.TLSVersion.TLSv1_3, f"{head}0\r\nX-Trailer: 1\r\n\r\n", is_ann=True)
    assert status == 200
    assert "x-trailer" not in json.loads(said)["headers"]


def test_the_peer_is_that_of_the_socket_whatever_uvicorn_takes_for_the_client(running: Running) -> None:
    request = "GET /peer HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n"
    told = json.loads(running.asks(ssl.TLSVersion.TLSv1_3, request, is_ann=False)[1])
    assert (told["peer"], told["client"]) == ("127.0.0.1", "203.0.113.9")


def test_it_is_the_lowest_that_the_extra_admits() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert set(re.findall(r'"uvicorn>=([\d.]+)"', text)) == {LOWEST.removesuffix(".0")}
