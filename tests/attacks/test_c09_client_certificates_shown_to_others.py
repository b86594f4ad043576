"""C9, over TLS: a client's certificate is shown to a server that no verified card has named.

The servers ask every client for a certificate, and note which one each request came with. A certificate shows who the
client is, so a server learns that by a connection alone, whatever the request has.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest
from cryptography import x509

from a2a_trust import AsyncVerifyingTransport, TrustStore, VerifyingTransport, generate_signer, verifying_client
from a2a_trust.certificates import CertificateFiles, client_context
from a2a_trust.client import UnsafePassAnything, UnverifiedCardError
from a2a_trust.errors import MissingCredentialsError
from tests.certificates import SERVER, Authority
from tests.client.agents import NEW, card_of, signed, trusting
from tests.tables import walk

HOST: Final = "127.0.0.1"
ALIAS: Final = "localhost"
CA: Final = Authority()
MALLORY: Final = generate_signer("ES256", kid="mallory")
WHO: Final = "client.example"
SCHEMES: Final = {
    "securitySchemes": {"mtls": {"mtlsSecurityScheme": {}}},
    "securityRequirements": [{"schemes": {"mtls": {}}}],
}


class Seen(NamedTuple):
    """A request: the name in the client's certificate, "" for none, and the connection that it came by."""

    path: str
    name: str
    connection: int
    is_resumed: bool


class Server:
    """``pages`` are cards and redirects by path; every other answer is ``{}``."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.pages: dict[str, bytes | str] = {}
        self.seen: list[Seen] = []

    def origin(self, host: str = HOST) -> str:
        return f"https://{host}:{self.port}"

    def names(self, path: str = "") -> list[str]:
        return [each.name for each in self.seen if path in ("", each.path)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority")
    (folder / "ca.pem").write_bytes(CA.pem)
    CA.issue(x509.DNSName(WHO)).write(folder, "client")[1].chmod(0o600)
    return folder


@contextmanager
def serving(folder: Path, demand: ssl.VerifyMode, version: ssl.TLSVersion) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else each answer in two parts takes 40 ms
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            tls: Any = self.connection
            names = [value for _, value in (tls.getpeercert() or {}).get("subjectAltName", ())]
            server.seen.append(Seen(self.path, "".join(names), self.client_address[1], bool(tls.session_reused)))
            page = server.pages.get(self.path.partition("?")[0], b"{}")
            self.send_response(200 if isinstance(page, bytes) else 307)
            if isinstance(page, str):
                self.send_header("Location", page)
            body = page if isinstance(page, bytes) else b""
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = respond  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    class Listening(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None: ...  # clients that have seen enough

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue(x509.IPAddress(ip_address(HOST)), x509.DNSName(ALIAS), usage=SERVER).load_into(context, folder)
    context.verify_mode = demand
    context.maximum_version = version
    context.load_verify_locations(folder / "ca.pem")
    with Listening((HOST, 0), Handler) as listening:
        server = Server(listening.server_port)
        listening.socket = context.wrap_socket(listening.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["TLS 1.2", "TLS 1.3"])
def version(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def agent(folder: Path, version: ssl.TLSVersion) -> Iterator[Server]:
    with serving(folder, ssl.CERT_OPTIONAL, version) as server:
        server.pages[NEW] = signed(card_of(server.origin(), **SCHEMES))
        yield server


@pytest.fixture
def thief(folder: Path, version: ssl.TLSVersion) -> Iterator[Server]:
    with serving(folder, ssl.CERT_OPTIONAL, version) as server:
        yield server


class Client:
    """One client for all requests of a test, of either kind, with its certificate for the agent's origin."""

    def __init__(self, kind: str, folder: Path, *origins: str, trust: Any = None, **options: Any) -> None:
        self._is_async, self._loop = kind == "async", asyncio.new_event_loop()
        certificate = CertificateFiles(folder / "client.pem", folder / "client.key", origins=origins)
        without = ssl.create_default_context(cafile=folder / "ca.pem")
        tls = client_context(certificate, authorities=folder / "ca.pem")
        trust = trusting(HOST) if trust is None else trust
        self.http: Any
        if self._is_async:
            of_origins: Any = dict.fromkeys(origins, httpx.AsyncHTTPTransport(verify=tls))
            inner: Any = httpx.AsyncHTTPTransport(verify=without)
            transport: Any = AsyncVerifyingTransport(inner, trust, mutual_tls=of_origins, **options)
            self.http = httpx.AsyncClient(transport=transport, follow_redirects=True)
        else:
            of_origins, inner = (
                dict.fromkeys(origins, httpx.HTTPTransport(verify=tls)),
                httpx.HTTPTransport(verify=without),
            )
            transport = VerifyingTransport(inner, trust, mutual_tls=of_origins, **options)
            self.http = httpx.Client(transport=transport, follow_redirects=True)

    def ask(self, method: str, url: str) -> httpx.Response:
        asked = self.http.request(method, url)
        answer: httpx.Response = self._loop.run_until_complete(asked) if self._is_async else asked
        return answer

    def close(self) -> None:
        if self._is_async:
            self._loop.run_until_complete(self.http.aclose())
        else:
            self.http.close()
        self._loop.close()


Make = Callable[..., Client]


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest, folder: Path) -> Iterator[Make]:
    made: list[Client] = []

    def make_client(*origins: str, **options: Any) -> Client:
        made.append(Client(request.param, folder, *origins, **options))
        return made[-1]

    yield make_client
    for client in made:
        client.close()


def test_only_requests_that_a_verified_card_permits_show_it(make: Make, agent: Server, thief: Server) -> None:
    """Connections stay open, and none is used for the other kind of request."""
    client = make(agent.origin(), also=[agent.origin(), thief.origin()])
    for _ in range(2):
        client.ask("GET", agent.origin() + NEW)
        client.ask("POST", f"{agent.origin()}/rpc")
        client.ask("GET", f"{agent.origin()}/rest/tasks")
        client.ask("GET", f"{agent.origin()}/elsewhere")  # in ``also``, and in no card
        client.ask("POST", f"{thief.origin()}/rpc")
    assert agent.names() == ["", WHO, WHO, ""] * 2
    assert thief.names() == ["", ""]
    for name in (WHO, ""):  # kept alive
        assert len({each.connection for each in agent.seen if each.name == name}) == 1
    assert not [each for each in agent.seen if each.is_resumed]


def test_the_search_for_a_card_does_not_show_it(make: Make, agent: Server) -> None:
    make(agent.origin()).ask("POST", f"{agent.origin()}/rpc")
    assert agent.names("/rpc") == [WHO]
    assert set(agent.names()[:-1]) == {""}


@walk("card", ["unsigned", "by a stranger", "none"])
def test_without_a_verified_card_no_server_sees_it(make: Make, agent: Server, card: str) -> None:
    document = card_of(agent.origin(), **SCHEMES)
    pages = {"unsigned": json.dumps(document).encode(), "by a stranger": signed(document, by=MALLORY), "none": b"[]"}
    agent.pages[NEW] = pages[card]
    client = make(agent.origin())
    for method, path in (("GET", NEW), ("POST", "/rpc")):
        with pytest.raises(UnverifiedCardError):
            client.ask(method, agent.origin() + path)
    anything = make(agent.origin(), also=UnsafePassAnything())
    anything.ask("POST", f"{agent.origin()}/rpc")
    assert set(agent.names()) == {""}


def test_a_redirect_does_not_take_it_along(make: Make, agent: Server, thief: Server) -> None:
    """The thief's own card is verified, too; its origin is none of the certificate's."""
    agent.pages["/rpc"] = f"{thief.origin(ALIAS)}/rpc"
    agent.pages["/rest/tasks"] = f"{agent.origin(ALIAS)}/rpc"
    thief.pages[NEW] = signed(card_of(thief.origin(ALIAS)))
    client = make(agent.origin(), trust=trusting(HOST, ALIAS), also=[agent.origin(ALIAS)])
    assert client.ask("POST", f"{agent.origin()}/rpc").status_code == 200
    client.ask("GET", f"{agent.origin()}/rest/tasks")
    assert set(thief.names()) == {""}
    assert agent.names("/rpc") == [WHO, ""]


def test_a_card_that_ends_or_is_revoked_takes_it_back(make: Make, agent: Server) -> None:
    class Trust:
        store = trusting(HOST)

        def trust_store(self) -> TrustStore:
            return self.store

    trust, now = Trust(), [0.0]

    client = make(agent.origin(), trust=trust, also=[agent.origin()], clock=lambda: time.time() + now[0])
    url = f"{agent.origin()}/rpc"
    client.ask("GET", agent.origin() + NEW)
    client.ask("POST", url)
    now[0] = 400.0  # the card is verified again
    client.ask("POST", url)
    trust.store = TrustStore([])
    client.ask("POST", url)
    assert agent.names("/rpc") == [WHO, WHO, ""]


def test_a_card_that_is_listed_may_be_behind_mutual_tls(make: Make, folder: Path, version: ssl.TLSVersion) -> None:
    """Only that URL: neither other cards of the origin, nor other methods."""
    with serving(folder, ssl.CERT_OPTIONAL, version) as agent:
        card = f"{agent.origin()}/cards/ledger.json"
        agent.pages |= dict.fromkeys(["/cards/ledger.json", NEW], signed(card_of(agent.origin(), **SCHEMES)))
        client = make(agent.origin(), cards={f"{agent.origin()}/rpc": card}, also=[card])
        client.ask("POST", card)
        client.ask("GET", agent.origin() + NEW)
        client.ask("GET", f"{card}?x=1")
        client.ask("GET", card)
        client.ask("POST", f"{agent.origin()}/rpc")
        assert agent.names() == ["", "", "", WHO, WHO]
    with serving(folder, ssl.CERT_REQUIRED, version) as agent:
        card = f"{agent.origin()}{NEW}"
        agent.pages[NEW] = signed(card_of(agent.origin(), **SCHEMES))
        client = make(agent.origin(), cards={f"{agent.origin()}/rpc": card})
        assert client.ask("POST", f"{agent.origin()}/rpc").status_code == 200
        assert agent.names() == [WHO, WHO]
        unlisted = make(agent.origin())
        with pytest.raises(UnverifiedCardError, match=r"demands the client's certificate, write cards=\{"):
            unlisted.ask("POST", f"{agent.origin()}/rpc")


def test_a_client_of_one_agent_shows_it_to_that_agent(folder: Path, agent: Server, thief: Server) -> None:
    async def asked(url: str, *origins: str, call: str = "") -> None:
        certificate = CertificateFiles(folder / "client.pem", folder / "client.key", origins=origins)
        http = verifying_client(
            url,
            trust=trusting(HOST, ALIAS),
            credentials={"mtls": certificate},
            also=[thief.origin()],
            authorities=folder / "ca.pem",
        )
        async with http:
            await http.post(f"{thief.origin()}/elsewhere")
            await http.post(call or f"{agent.origin()}/rpc")

    asyncio.run(asked(agent.origin(), agent.origin()))
    assert (agent.names(NEW), agent.names("/rpc")) == ([""], [WHO])
    asyncio.run(asked(agent.origin() + NEW, agent.origin()))  # the URL of the card is listed
    assert (agent.names(NEW), agent.names("/rpc")) == (["", WHO], [WHO] * 2)
    sent = len(agent.seen)
    with pytest.raises(httpx.RequestError) as caught:
        asyncio.run(asked(agent.origin(), thief.origin()))
    assert isinstance(caught.value.__cause__, MissingCredentialsError)
    assert set(agent.names()[sent:]) == {""}
    assert set(thief.names()) == {""}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_context_alone_shows_it_to_its_hosts(folder: Path, agent: Server, kind: str) -> None:
    """A connection knows the host only: no other port, and no URL."""
    certificate = CertificateFiles(folder / "client.pem", folder / "client.key", origins=[agent.origin()])
    context = client_context(certificate, authorities=folder / "ca.pem")

    async def asked() -> None:
        async with httpx.AsyncClient(verify=context) as http:
            for host in (HOST, ALIAS, HOST):
                await http.get(agent.origin(host))

    if kind == "async":
        asyncio.run(asked())
    else:
        with httpx.Client(verify=context) as http:
            for host in (HOST, ALIAS, HOST):
                http.get(agent.origin(host))
    assert agent.names() == [WHO, "", WHO]
