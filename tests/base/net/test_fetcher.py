"""The fetcher to the network, against real servers on loopback."""

from __future__ import annotations

import asyncio
import gc
import gzip
import ipaddress
import socket
import ssl
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust.base.net.fetcher import Fetched, Fetcher, FormAnswer
from a2a_trust.errors import ConfigurationError, FetchError
from tests import certificates
from tests.tables import walk
from tests.waiting import settled

pytestmark = pytest.mark.anyio

MODIFIED = "Sat, 21 Nov 2026 10:00:00 GMT"

Script = Callable[[asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Server:
    """A web server on loopback that records every request head and answers by its script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections = 0
        self.requests: list[bytes] = []
        self.port = 0
        self.answering = set[asyncio.Task[None] | None]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.answering.add(asyncio.current_task())
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            await self.script(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has seen enough
        finally:
            writer.close()


def answer(
    body: bytes = b'{"keys": []}',
    *headers: str,
    status: str = "200 OK",
    content_type: str = "Content-Type: application/json",
) -> Script:
    lines = [f"HTTP/1.1 {status}", content_type, f"Content-Length: {len(body)}", *headers]

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join([*filter(None, lines), "", ""]).encode() + body)
        await writer.drain()

    return script


@asynccontextmanager
async def serving(
    script: Script, *, address: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    server = Server(script)
    listening = await asyncio.start_server(server.serve, address, port, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in filter(None, server.answering):
            task.cancel()
        await settled()
        await asyncio.sleep(0.01 if tls else 0)  # broken handshakes have no task; their sockets close on their own


def fetcher_for(server: Server, *, timeout: float = 60.0, max_bytes: int = 1000) -> Fetcher:
    return Fetcher(private_origins=[f"http://127.0.0.1:{server.port}"], timeout=timeout, max_bytes=max_bytes)


async def fetched(script: Script) -> Fetched:
    async with serving(script) as server:
        return await fetcher_for(server).fetch(f"http://127.0.0.1:{server.port}/jwks", configured=True)


class Names:
    """A resolver whose answers are written down; each name is led through its list, the last answer stays."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self.answers = {name.replace("_", "."): list(lists) for name, lists in answers.items()}
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.answers:
            raise OSError(host)
        lists = self.answers[host]
        return lists.pop(0) if len(lists) > 1 else lists[0]


class Authority:
    """A throw-away certificate authority, whose certificates Python 3.13 accepts too (RFC 5280 to the letter)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authority = certificates.Authority()
        self.certificate = self._authority.certificate

    def server(self, *hosts: str) -> ssl.SSLContext:
        """TLS for a server of these hosts."""
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        leaf = self._authority.issue(*names, usage=None)  # programs of other tests show it as a client's, too
        path = self.folder / "server.pem"
        path.write_bytes(leaf.key_pem + leaf.pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def client(self) -> ssl.SSLContext:
        """TLS for a client that trusts this authority alone."""
        return ssl.create_default_context(cadata=self.certificate.public_bytes(Encoding.PEM).decode())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


async def test_a_document_comes_as_it_was_sent() -> None:
    async with serving(answer(b'{"a": 1}')) as server:
        result = await fetcher_for(server).fetch(f"http://127.0.0.1:{server.port}/a/b?c=d", configured=True)
    assert result == Fetched(body=b'{"a": 1}', max_age=None)
    (request,) = server.requests
    assert request.startswith(b"GET /a/b?c=d HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{server.port}\r\n".encode() in request
    assert b"Accept-Encoding: identity\r\n" in request
    assert b"cookie" not in request.lower()


@walk(
    "content_type",
    [
        "application/json",
        "Application/JSON ; charset=utf-8",
        "application/jwk-set+json",
        "application/a2a+json",
    ],
)
async def test_types_of_json_are_taken(content_type: str) -> None:
    assert (await fetched(answer(content_type=f"Content-Type: {content_type}"))).body == b'{"keys": []}'


@walk(
    "content_type",
    [
        "",
        "Content-Type: text/html",
        "Content-Type: application/jsonp",
        "Content-Type: text/json",
        "Content-Type: application/json\r\nContent-Type: text/html",
    ],
)
async def test_other_types_are_refused(content_type: str) -> None:
    with pytest.raises(FetchError, match="not of type application/json"):
        await fetched(answer(content_type=content_type))


@walk(
    ("headers", "max_age"),
    [
        ([], None),
        (["Cache-Control: public"], None),
        (["Cache-Control: public, max-age=600, must-revalidate"], 600),
        (['Cache-Control: Max-Age="600"'], 600),
        (["Cache-Control: max-age=600", "Age: 100"], 500),
        (["Cache-Control: max-age=600", "Age: 1000"], 0),
        (["Cache-Control: max-age=600", "Cache-Control: no-store"], 0),
        (["Cache-Control: no-cache, max-age=600"], 0),
        (["Cache-Control: max-age=600, max-age=60"], 60),
        (["Cache-Control: max-age=-1"], 0),
        (["Cache-Control: max-age=soon"], 0),
        (["Cache-Control: max-age"], 0),
        ([f"Cache-Control: max-age={'9' * 5000}"], 2**31),
    ],
)
async def test_how_long_it_is_fresh(headers: list[str], max_age: float | None) -> None:
    assert (await fetched(answer(b"{}", *headers))).max_age == max_age


@walk(
    ("headers", "etag", "last_modified"),
    [
        ([], None, None),
        (['ETag: "a b"'], None, None),
        (['ETag: "a"', f"Last-Modified: {MODIFIED}"], '"a"', MODIFIED),
        (['ETag: W/""'], 'W/""', None),
        (["ETag: a", "Last-Modified: now"], None, None),
        ([f'ETag: "{"a" * 513}"'], None, None),
        (['ETag: "a"', 'ETag: "b"'], None, None),
        (['ETag: "a"', "Cache-Control: max-age=60, no-store"], None, None),
        (['ETag: "a"', "Cache-Control: no-cache"], '"a"', None),
        (['ETag: "a"', "Vary: Accept, *"], None, None),
    ],
)
async def test_by_what_it_can_be_asked_for_again(
    headers: list[str], etag: str | None, last_modified: str | None
) -> None:
    result = await fetched(answer(b"{}", *headers))
    assert (result.etag, result.last_modified) == (etag, last_modified)


@pytest.mark.parametrize(
    ("known", "header"),
    [
        (Fetched(body=b"1", max_age=5, etag='"a"', last_modified=MODIFIED), b'If-None-Match: "a"'),
        (Fetched(body=b"1", max_age=5, last_modified=MODIFIED), f"If-Modified-Since: {MODIFIED}".encode()),
    ],
)
async def test_an_unchanged_document_is_the_known_one_as_fresh_as_is_said_now(known: Fetched, header: bytes) -> None:
    for lines, max_age, etag in (
        ([], 5, known.etag),
        (["Cache-Control: max-age=7"], 7, known.etag),
        (["Cache-Control: no-cache"], 0, known.etag),
        (["Cache-Control: no-store"], 0, None),
    ):
        script = answer(b"", *lines, status="304 Not Modified", content_type="")
        async with serving(script) as server:
            url = f"http://127.0.0.1:{server.port}/"
            result = await fetcher_for(server).fetch(url, configured=True, known=known)
        assert header in server.requests[0].split(b"\r\n")
        assert (result.body, result.max_age, result.etag) == (b"1", max_age, etag)


async def test_a_changed_document_is_the_new_one() -> None:
    known = Fetched(body=b"1", max_age=5, etag='"a"')
    async with serving(answer(b"2", 'ETag: "b"')) as server:
        result = await fetcher_for(server).fetch(f"http://127.0.0.1:{server.port}/", configured=True, known=known)
    assert result == Fetched(body=b"2", max_age=None, etag='"b"')


@pytest.mark.parametrize("known", [None, Fetched(body=b"1", max_age=5)])
async def test_unchanged_since_nothing_is_no_answer(known: Fetched | None) -> None:
    async with serving(answer(b"", status="304 Not Modified", content_type="")) as server:
        with pytest.raises(FetchError, match="status 304, not 200") as caught:
            await fetcher_for(server).fetch(f"http://127.0.0.1:{server.port}/", configured=True, known=known)
    assert caught.value.status == 304


async def test_what_the_caller_gives_is_sent() -> None:
    async with serving(answer()) as server:
        url = f"http://127.0.0.1:{server.port}/"
        await fetcher_for(server).fetch(url, configured=True, headers={"X-API-Key": "a b"}, content=b'{"a": 1}')
    (request,) = server.requests
    assert request.startswith(b"POST / HTTP/1.1\r\n")
    assert {b"X-API-Key: a b", b"Content-Length: 8", b"Content-Type: application/json"} <= set(request.split(b"\r\n"))


@walk("status", ["201 Created", "204 No Content", "404 Not Found", "503 Busy", "206 Partial"])
async def test_any_status_but_200_is_refused(status: str) -> None:
    with pytest.raises(FetchError, match=f"status {status[:3]}, not 200"):
        await fetched(answer(status=status))


async def test_exactly_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    assert len((await fetched(answer(b"1" * 1000))).body) == 1000
    with pytest.raises(FetchError, match="more than 1000 bytes"):
        await fetched(answer(b"1" * 1001))


async def test_what_never_ends_is_cut_at_the_limit() -> None:
    sent = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while sent < 50_000_000:
            writer.write(b" " * 10_000)
            sent += 10_000
            await writer.drain()

    with pytest.raises(FetchError, match="more than 1000 bytes"):
        await fetched(endless)
    assert sent < 50_000_000


@walk("encoding", ["gzip", "br", "identity, gzip"])
async def test_compressed_answers_are_refused_unread(encoding: str) -> None:
    bomb = gzip.compress(b" " * 500_000)
    assert len(bomb) < 1000
    with pytest.raises(FetchError, match="compressed"):
        await fetched(answer(bomb, f"Content-Encoding: {encoding}"))


async def test_bytes_that_claim_no_compression_stay_as_they_came() -> None:
    bomb = gzip.compress(b" " * 500_000)
    assert (await fetched(answer(bomb))).body == bomb


@walk("at", ["head", "body", "silence", "continue"])
async def test_slow_drips_end_at_the_time_limit(at: str) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        if at == "body":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        for _ in range(4_000):  # longer than the default limit
            if at != "silence":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" if at == "continue" else b"H" if at == "head" else b" ")
                await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(drip) as server:
        with pytest.raises(FetchError, match=r"within 0\.1 seconds"):
            await fetcher_for(server, timeout=0.1).fetch(f"http://127.0.0.1:{server.port}/", configured=True)


async def test_a_connection_that_is_given_up_in_the_handshake_is_closed(authority: Authority) -> None:
    async with serving(answer()) as server:  # takes the handshake for a request and waits for more
        origin = f"https://127.0.0.1:{server.port}"
        fetcher = Fetcher(private_origins=[origin], ssl_context=authority.client(), timeout=0.05)
        with warnings.catch_warnings(record=True, action="always") as caught:
            with pytest.raises(FetchError, match="no complete answer"):
                await fetcher.fetch(f"{origin}/", configured=True)
            gc.collect()
    assert [str(warning.message) for warning in caught] == []


async def test_a_resolver_that_never_answers_ends_at_the_time_limit() -> None:
    class Silence:
        async def resolve(self, host: str, port: int) -> Sequence[str]:
            await asyncio.Event().wait()
            raise AssertionError

    with pytest.raises(FetchError, match=r"within 0\.05 seconds"):
        await Fetcher(timeout=0.05, resolver=Silence()).fetch("https://a.example/", configured=False)


def test_name_servers_that_never_answer_hold_up_nothing_but_the_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    answering = threading.Event()
    asked = []

    def silent(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        answering.wait()
        raise OSError("no such name")

    async def many() -> list[BaseException | Fetched]:
        fetcher = Fetcher(timeout=0.2)
        urls = [f"https://{index}.tarpit.example/" for index in range(100)]
        answers = await asyncio.gather(*(fetcher.fetch(url, configured=False) for url in urls), return_exceptions=True)
        assert await asyncio.to_thread(lambda: "the program's own threads are free")
        return answers

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    try:
        answers = asyncio.run(many())  # does not end while a thread of the loop's own waits
        assert not answering.is_set()
    finally:
        answering.set()
    assert {type(answer) for answer in answers} == {FetchError}
    assert len(asked) == 64  # the others were refused
    assert sum("within 0.2 seconds" in str(answer) for answer in answers) == 64


async def test_a_server_that_hangs_up_or_speaks_no_http_is_a_fetch_error_without_its_words() -> None:
    async def hang_up(writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def nonsense(writer: asyncio.StreamWriter) -> None:
        writer.write(b"SECRET nonsense\r\n\r\n")
        await writer.drain()

    async def short(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\nSECRET")
        await writer.drain()

    for script in (hang_up, nonsense, short):
        with pytest.raises(FetchError, match="cannot be reached, or does not speak correct HTTP") as caught:
            await fetched(script)
        assert "SECRET" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


async def test_a_closed_port_is_a_fetch_error() -> None:
    async with serving(answer()) as server:
        pass
    with pytest.raises(FetchError, match="cannot be reached"):
        await fetcher_for(server).fetch(f"http://127.0.0.1:{server.port}/", configured=True)


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answer(b'"proxy"')) as proxy, serving(answer(b'"server"')) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        result = await fetcher_for(server).fetch(f"http://127.0.0.1:{server.port}/", configured=True)
    assert (result.body, proxy.connections) == (b'"server"', 0)


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    async with serving(answer()) as server:
        origin = f"http://localhost:{server.port}"
        fetcher = Fetcher(
            timeout=60, private_origins=[origin], resolver=Names(localhost=[["::1", "127.0.0.9", "127.0.0.1"]])
        )
        assert (await fetcher.fetch(f"{origin}/", configured=True)).body == b'{"keys": []}'


async def test_tls_is_verified_for_the_name_while_the_address_is_the_checked_one(authority: Authority) -> None:
    tls, asked = authority.server("idp.test"), list[str | None]()
    tls.sni_callback = lambda _socket, name, _context: asked.append(name)
    async with serving(answer(b"1"), tls=tls) as server:
        origin = f"https://idp.test:{server.port}"
        fetcher = Fetcher(
            timeout=60,
            private_origins=[origin],
            ssl_context=authority.client(),
            resolver=Names(idp_test=[["127.0.0.1"]]),
        )
        assert (await fetcher.fetch(f"{origin}/", configured=True)).body == b"1"
    assert asked == ["idp.test"]
    assert f"Host: idp.test:{server.port}\r\n".encode() in server.requests[0]


async def test_tls_is_verified_for_an_address_literal_too(authority: Authority) -> None:
    async with serving(answer(b"1"), tls=authority.server("127.0.0.1")) as server:
        origin = f"https://127.0.0.1:{server.port}"
        fetcher = Fetcher(private_origins=[origin], ssl_context=authority.client(), timeout=60)
        assert (await fetcher.fetch(f"{origin}/", configured=True)).body == b"1"


@pytest.mark.parametrize("case", ["other name", "unknown authority"])
async def test_a_wrong_certificate_is_refused_before_anything_is_asked(authority: Authority, case: str) -> None:
    async with serving(answer(), tls=authority.server("other.test", "127.0.0.1")) as server:
        name = "other.test" if case == "unknown authority" else "idp.test"
        origin = f"https://{name}:{server.port}"
        fetcher = Fetcher(
            timeout=60,
            private_origins=[origin],
            ssl_context=None if case == "unknown authority" else authority.client(),
            resolver=Names(idp_test=[["127.0.0.1"]], other_test=[["127.0.0.1"]]),
        )
        with pytest.raises(FetchError, match="its certificate is rejected"):
            await fetcher.fetch(f"{origin}/", configured=True)
    assert server.requests == []


def test_a_context_that_does_not_verify_is_refused() -> None:
    nothing, no_name = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.create_default_context()
    nothing.check_hostname = False
    nothing.verify_mode = ssl.CERT_NONE
    no_name.check_hostname = False
    for context in (nothing, no_name):
        with pytest.raises(ConfigurationError, match="does not verify"):
            Fetcher(ssl_context=context)


@walk("timeout", [0.0, -1.0, float("inf"), float("nan")])
def test_no_value_switches_the_time_limit_off(timeout: float) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        Fetcher(timeout=timeout)


def test_no_value_switches_the_byte_limit_off() -> None:
    with pytest.raises(ConfigurationError, match="max_bytes"):
        Fetcher(max_bytes=0)


@walk(
    ("origin", "words"),
    [
        ("idp.internal", "ambiguous"),
        ("https://idp.internal/", "write only the origin: https://idp.internal"),
        ("https://idp.internal/jwks", "write only the origin"),
        ("https://user@idp.internal", "ambiguous"),
        ("https://*.internal", "ambiguous"),
        ("http://idp.internal", "http is for this machine only"),
        ("http://10.0.0.1", "http is for this machine only"),
        ("http://0.0.0.0:80", "never allowed"),
        ("https://169.254.169.254", "never allowed"),
        ("https://100.100.100.200", "never allowed"),
        ("https://168.63.129.16", "never allowed"),
        ("https://[fd00:ec2::254]", "never allowed"),
        ("https://[::ffff:127.0.0.1]", "never allowed"),
        ("file:///etc/passwd", "ambiguous"),
        ("ftp://127.0.0.1", "is not fetched"),
    ],
)
def test_private_origins_are_checked_at_the_start(origin: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words.replace(".", r"\.")):
        Fetcher(private_origins=[origin])


async def test_a_loader_refuses_its_url_at_once_and_loads_later() -> None:
    async with serving(answer(b"1", "Cache-Control: max-age=7")) as server:
        url = f"http://127.0.0.1:{server.port}/"
        with pytest.raises(FetchError, match="only https"):
            fetcher_for(server).loader(url, configured=False)
        assert await fetcher_for(server).loader(url, configured=True)() == (b"1", 7)


# Forms

JWT = "application/token-introspection+jwt"


async def posted(script: Script, *, answer_type: str = "") -> tuple[FormAnswer, bytes]:
    async with serving(script) as server:
        answered = await fetcher_for(server).post_form(
            f"http://127.0.0.1:{server.port}/x", b"a=b", answer_type=answer_type
        )
        return answered, server.requests[0]


async def test_an_answer_of_another_type_than_json_is_accepted_where_it_was_asked_for() -> None:
    answered, asked = await posted(
        answer(b"a.b.c", content_type=f"Content-Type: {JWT}; charset=utf-8"), answer_type=JWT
    )
    assert (answered.status, answered.body) == (200, b"a.b.c")
    assert asked.lower().count(b"\r\naccept: ") == 1
    assert f"\r\nAccept: {JWT}\r\n".encode() in asked


@walk("came", ["application/json", "application/jwt", f"{JWT}x", "application/x+jwt", "text/html"])
async def test_an_answer_of_another_type_than_was_asked_for_is_refused(came: str) -> None:
    with pytest.raises(FetchError, match=r"\(status 200\) is not of type application/token-introspection") as caught:
        await posted(answer(b"{}", content_type=f"Content-Type: {came}"), answer_type=JWT)
    assert caught.value.status == 200
    with pytest.raises(FetchError, match="not of type application/json"):
        await posted(answer(b"a.b.c", content_type=f"Content-Type: {JWT}"))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("Retry-After: 7", 7.0),
        ("Retry-After: 0", 0.0),
        ("Retry-After: soon", 0.0),
        ("Retry-After: -7", 0.0),
        ("Retry-After: Thu, 01 Jan 1970 00:02:00 GMT", 60.0),
        ("Retry-After: Thu, 99 Foo 1970 00:02:00 GMT", 0.0),
        ("X-Other: 7", None),
    ],
)
async def test_the_error_says_when_the_server_wants_to_be_asked_again(
    monkeypatch: pytest.MonkeyPatch, header: str, seconds: float | None
) -> None:
    monkeypatch.setattr("a2a_trust.base.net.fetcher.time", lambda: 60.0)
    with pytest.raises(FetchError) as caught:
        await posted(answer(b"slow down", status=f"429 Too Many Requests\r\n{header}"))
    assert (caught.value.status, caught.value.retry_after) == (429, seconds)


@pytest.mark.parametrize("options", [{}, {"answer_type": JWT}])
async def test_a_refusal_is_json_whatever_was_asked_for(options: dict[str, str]) -> None:
    refusal, _ = await posted(answer(b"{}", status="401 No"), **options)
    assert refusal.status == 401
    with pytest.raises(FetchError) as caught:
        await posted(answer(b"<html>", status="401 No", content_type="Content-Type: text/html"), **options)
    assert caught.value.status == 401
