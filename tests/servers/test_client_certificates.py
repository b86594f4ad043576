"""Servers that end TLS themselves tell the guard of the client's certificate: real certificates, real connections."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPResponse
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import httpx
import pytest
import uvicorn
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypercorn.config import Config

from a2a_trust import CertificateVerifier, FromTls, protect
from a2a_trust.certificates import AllIssued, ClientAuthority, FromUri
from a2a_trust.servers import connection, hypercorn
from a2a_trust.servers.uvicorn import H11Protocol, HttpToolsProtocol
from tests.certificates import SERVER, Authority, Leaf
from tests.middleware.agent import Agent
from tests.tables import walk

CARD: Final[dict[str, Any]] = {
    "name": "agent",
    "supportedInterfaces": [{"url": "https://localhost/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "securitySchemes": {"mtls": {"mtlsSecurityScheme": {}}},
    "securityRequirements": [{"schemes": {"mtls": {}}}],
    "skills": [],
}
ANN: Final = x509.UniformResourceIdentifier("spiffe://example.org/ann")
USER: Final = "spiffe://example.org/ann@x509:uri:partners"

#: How the servers run that tell of certificates: the protocol class of uvicorn, and whether on uvloop.
TELLING: Final[Mapping[str, tuple[Any, bool]]] = {
    "uvicorn-h11": (H11Protocol, False),
    "uvicorn-h11-uvloop": (H11Protocol, True),
    "uvicorn-httptools": (HttpToolsProtocol, False),
    "uvicorn-httptools-uvloop": (HttpToolsProtocol, True),
    "hypercorn": (hypercorn.serve, False),
    "hypercorn-uvloop": (hypercorn.serve, True),
}
SILENT: Final[Mapping[str, tuple[Any, bool]]] = {
    "plain-uvicorn-h11": ("h11", False),
    "plain-uvicorn-httptools": ("httptools", False),
}


@dataclass(frozen=True)
class Answer:
    """One answer, and the connection that it came by as the client saw it."""

    status: int
    said: dict[str, Any]
    challenges: list[str]
    version: str
    cipher: str
    session: ssl.SSLSession | None
    resumed: bool


class World:
    """An authority, the servers that trust it, and the clock of their agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root, self.other = Authority("Root"), Authority("Other")
        self.middle = Authority("Middle", self.root)
        self.server = Authority("Servers")
        dns = x509.DNSName("localhost")
        self.certificate, self.key = self.server.issue(dns, usage=SERVER).write(folder, "server")
        # TLS lets in who has a certificate of `other`; the verifier does not.
        self.taken = folder / "taken.pem"
        self.taken.write_bytes(self.root.pem + self.other.pem)
        trusted = folder / "trusted.pem"
        trusted.write_bytes(self.root.pem + self.middle.pem)
        self.ann = self.root.issue(ANN, subject="Ann")
        self.later = 0.0
        self.seen: list[Any] = []
        verifier = CertificateVerifier(
            ClientAuthority(name="partners", certificates=trusted, identity=FromUri("example.org"), allowed=AllIssued())
        )
        self.app = protect(
            self._inner,
            card=CARD,
            verifiers={"mtls": verifier},
            client_certificates=FromTls(),
            clock=lambda: time.time() + self.later,
        )
        self.ports: dict[str, int] = {}

    async def _inner(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope["extensions"]["tls"])
        await Agent()(scope, receive, send)

    def context(self, leaf: Leaf | None = None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.server.pem.decode())
        if leaf is not None:
            leaf.load_into(context, self.folder)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context

    @contextmanager
    def connected(
        self, server: str, context: ssl.SSLContext, session: ssl.SSLSession | None = None
    ) -> Iterator[ssl.SSLSocket]:
        plain = socket.create_connection(("127.0.0.1", self.ports[server]), timeout=10)
        with closing(plain), context.wrap_socket(plain, server_hostname="localhost", session=session) as tls:
            yield tls

    def ask(
        self, server: str, context: ssl.SSLContext, session: ssl.SSLSession | None = None, path: str = "/rpc"
    ) -> Answer:
        with self.connected(server, context, session) as tls:
            return request(tls, path)


def request(tls: ssl.SSLSocket, path: str = "/rpc", lines: str = "") -> Answer:
    tls.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
    with closing(HTTPResponse(tls)) as response:
        response.begin()
        body = response.read()
        cipher = tls.cipher()
        assert cipher is not None
        return Answer(
            status=response.status,
            said=json.loads(body),
            challenges=response.headers.get_all("www-authenticate", []),
            version=tls.version() or "",
            cipher=cipher[0],
            session=tls.session,  # after the first read: TLS 1.3 sends it by then
            resumed=bool(tls.session_reused),
        )


async def _uvicorn(app: Any, http: Any, world: World, listener: socket.socket, ended: asyncio.Event) -> None:
    tls = {
        "ssl_certfile": str(world.certificate),
        "ssl_keyfile": str(world.key),
        "ssl_ca_certs": str(world.taken),
        "ssl_cert_reqs": ssl.CERT_OPTIONAL,
        "timeout_keep_alive": 60,
    }
    server = uvicorn.Server(uvicorn.Config(app, http=http, lifespan="off", log_config=None, **tls))  # type: ignore[arg-type]
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await ended.wait()
    server.should_exit = True
    await serving


async def _hypercorn(app: Any, serve: Any, world: World, listener: socket.socket, ended: asyncio.Event) -> None:
    config = Config()
    config.keep_alive_timeout = 60
    config.bind, config.errorlog = [f"fd://{listener.detach()}"], None  # the server closes it
    config.certfile, config.keyfile, config.ca_certs = str(world.certificate), str(world.key), str(world.taken)
    config.verify_mode = ssl.CERT_OPTIONAL
    await serve(app, config, shutdown_trigger=ended.wait)


@contextmanager
def loop_in_thread(kinds: Mapping[str, Any], world: World, factory: Any) -> Iterator[None]:
    """The servers run in one event loop of that kind, in a thread, while the block does."""
    loop: asyncio.AbstractEventLoop = factory()
    # a handshake that a test has meant to fail is no error of the loop
    loop.set_exception_handler(lambda *_: None)
    ended = asyncio.Event()

    async def all_of_them() -> None:
        running = []
        for name, (kind, _) in kinds.items():
            listener = socket.create_server(("127.0.0.1", 0))
            world.ports[name] = listener.getsockname()[1]
            start = _hypercorn if kind is hypercorn.serve else _uvicorn
            running.append(start(world.app, kind, world, listener, ended))
        await asyncio.gather(*running)

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(all_of_them())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until = time.monotonic() + 60
        while not set(kinds) <= set(world.ports) and time.monotonic() < until:
            time.sleep(0.01)
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("tls"))
    on_asyncio = {name: how for name, how in {**TELLING, **SILENT}.items() if not how[1]}
    on_uvloop = {name: how for name, how in TELLING.items() if how[1]}
    with (
        loop_in_thread(on_asyncio, made, asyncio.new_event_loop),
        loop_in_thread(on_uvloop, made, uvloop.new_event_loop),
    ):
        yield made


@walk("server", TELLING)
@walk("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
def test_a_good_certificate_is_the_caller_in_every_request_and_in_a_resumed_session(
    world: World, server: str, version: ssl.TLSVersion
) -> None:
    context = world.context(world.ann, version)
    with world.connected(server, context) as tls:
        first, second = request(tls), request(tls)
    told = world.seen[-1]
    assert (first.status, first.said["user"], second.said["user"], first.resumed) == (200, USER, USER, False)
    assert told["client_cert_chain"] == (ssl.DER_cert_to_PEM_cert(world.ann.der),)
    assert told["client_cert_name"] == "CN=Ann"
    assert (told["server_cert"], told["client_cert_error"]) == (None, None)
    assert told["tls_version"] == version.value
    (number,) = (each["id"] & 0xFFFF for each in context.get_ciphers() if each["name"] == first.cipher)
    assert told["cipher_suite"] == number
    again = world.ask(server, context, second.session)
    assert (again.status, again.said["user"], again.resumed) == (200, USER, True)
    assert world.seen[-1]["client_cert_chain"][0] == ssl.DER_cert_to_PEM_cert(world.ann.der)


@walk("server", TELLING)
def test_a_certificate_that_ends_during_a_connection_or_a_session_is_good_no_more(world: World, server: str) -> None:
    context = world.context(world.ann)
    with world.connected(server, context) as tls:
        before = request(tls)
        world.later = timedelta(days=2).total_seconds()
        try:
            during = request(tls)
            resumed = world.ask(server, context, before.session)
        finally:
            world.later = 0.0
    assert (before.status, during.status, resumed.status, resumed.resumed) == (200, 401, 401, True)


@walk("server", TELLING)
def test_what_an_application_does_with_a_scope_stays_there(world: World, server: str) -> None:
    with world.connected(server, world.context(world.ann)) as tls:
        request(tls)
        world.seen[-1]["client_cert_name"] = "CN=Mallory"
        request(tls)
    assert world.seen[-1]["client_cert_name"] == "CN=Ann"


@walk("server", TELLING)
def test_who_shows_no_certificate_reads_the_card_and_nothing_else(world: World, server: str) -> None:
    context, reached = world.context(), len(world.seen)
    with world.connected(server, context) as tls:
        assert request(tls, "/.well-known/agent-card.json").said["name"] == "agent"
        assert request(tls).status == 401
        # a header proves nothing
        shown = base64.b64encode(world.ann.der).decode()
        assert request(tls, lines=f"Client-Cert: :{shown}:\r\nX-SSL-Client-Verify: SUCCESS\r\n").status == 401
    assert len(world.seen) == reached


@walk("server", TELLING)
def test_a_certificate_that_tls_takes_and_the_verifier_does_not_is_refused(world: World, server: str) -> None:
    assert world.ask(server, world.context(world.other.issue(ANN))).status == 401


@walk("server", TELLING)
@walk("wrong", ["authority", "expired", "usage"])
def test_a_certificate_that_tls_does_not_take_gets_no_answer(world: World, server: str, wrong: str) -> None:
    leaf = {
        "authority": lambda: Authority("Root").issue(ANN),
        "expired": lambda: world.root.issue(ANN, lifetime=timedelta(hours=-1)),
        "usage": lambda: world.root.issue(ANN, usage=SERVER),
    }[wrong]()
    # TLS 1.3 tells the client at its first read only, and a fast end may look like one of the connection
    with pytest.raises((ssl.SSLError, ConnectionError)):
        world.ask(server, world.context(leaf))


@walk("server", TELLING)
def test_a_certificate_below_an_intermediate_authority_is_told_leaf_first(world: World, server: str) -> None:
    leaf = world.middle.issue(ANN)
    assert world.ask(server, world.context(leaf)).said["user"] == USER
    sent = (ssl.DER_cert_to_PEM_cert(leaf.der), ssl.DER_cert_to_PEM_cert(leaf.above[0].public_bytes(Encoding.DER)))
    # Python's ssl tells of what is above the leaf since 3.13.
    assert world.seen[-1]["client_cert_chain"] == (sent if sys.version_info >= (3, 13) else sent[:1])


HANDSHAKE: Final = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\n"
)


@walk("server", TELLING)
def test_a_websocket_is_judged_by_the_certificate_of_its_connection(world: World, server: str) -> None:
    with world.connected(server, world.context()) as tls:
        assert request(tls, lines=HANDSHAKE).status == 401
    with world.connected(server, world.context(world.ann)) as tls:
        tls.sendall(f"GET /chat HTTP/1.1\r\nHost: localhost\r\n{HANDSHAKE}\r\n".encode())
        with closing(HTTPResponse(tls)) as response:
            response.begin()
            assert response.status == 101
            assert response.fp.read(2 + len(USER))[2:] == USER.encode()


@pytest.mark.parametrize("server", ["hypercorn", "hypercorn-uvloop"])
def test_all_requests_of_http_2_are_by_the_certificate_of_their_connection(world: World, server: str) -> None:
    url = f"https://localhost:{world.ports[server]}/rpc"
    with httpx.Client(http2=True, verify=world.context(world.ann), trust_env=False) as http:
        answers = [http.get(url) for _ in range(2)]
    assert [(each.http_version, each.json()["user"]) for each in answers] == [("HTTP/2", USER)] * 2
    with httpx.Client(http2=True, verify=world.context(), trust_env=False) as http:
        assert http.get(url).status_code == 401


def test_a_server_that_does_not_tell_is_503_and_the_log_says_how_to_run_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="a2a_trust"):
        answers = [world.ask(server, world.context(world.ann)) for server in SILENT]
    assert {answer.status for answer in answers} == {503}
    # One cause is one event: they all serve one agent.
    assert caplog.text.count("--http a2a_trust.servers.uvicorn:HttpToolsProtocol") == 1
    assert all("servers" not in json.dumps(answer.said) for answer in answers)


@pytest.mark.parametrize(("sent", "told"), [([b"leaf", b"above"], 2), ([b"above", b"leaf"], 1), ([], 1), (None, 1)])
def test_of_what_is_above_the_leaf_is_told_what_python_tells(sent: list[bytes] | None, told: int) -> None:
    """Python's ssl has the method since 3.13; whatever it says, the leaf is the one whose key TLS has proven."""
    stand_in = SimpleNamespace() if sent is None else SimpleNamespace(get_unverified_chain=lambda: sent)
    chain = connection._chain(cast("Any", stand_in), b"leaf")
    assert (chain[0], len(chain)) == (b"leaf", told)
