"""The client's own certificate: from files or memory, and another one while the client goes on."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from a2a_trust import ConfigurationError, MalformedError, generate_signer, load_private_key
from a2a_trust.client.certificates import CertificateFiles, CertificateInMemory, client_context
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.files import private_key_bytes
from tests.certificates import SERVER, Authority, Leaf

CA = Authority()
HERE = ["https://127.0.0.1"]


def client(name: str, issuer: Authority = CA, **options: Any) -> Leaf:
    return issuer.issue(x509.DNSName(name), **options)


class Names(BaseHTTPRequestHandler):
    """Answers with the name in the client's certificate, and the version of TLS."""

    disable_nagle_algorithm = True  # else each answer in two parts takes 40 ms
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        connection = self.connection
        assert isinstance(connection, ssl.SSLSocket)
        shown: Any = connection.getpeercert() or {}
        body = ",".join(value for _, value in shown.get("subjectAltName", ())).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("TLS", str(connection.version()))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority")
    (folder / "ca.pem").write_bytes(CA.pem)
    return folder


class Quiet(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are refused are meant."""


@pytest.fixture(scope="module")
def url(files: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue(x509.IPAddress(ip_address("127.0.0.1")), usage=SERVER).load_into(context, files)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(files / "ca.pem")
    server = Quiet(("127.0.0.1", 0), Names)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def of_files(folder: Path, leaf: Leaf) -> CertificateFiles:
    certificate, key = leaf.write(folder, "client")
    key.chmod(0o600)
    return CertificateFiles(certificate, key, origins=HERE)


def test_new_connections_show_the_renewed_certificate_and_open_ones_keep_theirs(
    tmp_path: Path, files: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = of_files(tmp_path, client("first"))
    with httpx.Client(verify=client_context(certificate, authorities=files / "ca.pem")) as http:
        assert http.get(url).text == "first"
        of_files(tmp_path, client("second"))
        assert http.get(url).text == "first"  # by the connection that is open
        with caplog.at_level(logging.INFO):
            assert http.get(url, headers={"Connection": "close"}).text == "first"
            assert [http.get(url, headers={"Connection": "close"}).text for _ in range(2)] == ["second", "second"]
    assert [record.levelname for record in caplog.records if record.name.startswith("a2a_trust")] == ["INFO"]


def test_asynchronous_clients_do_so_too(tmp_path: Path, files: Path, url: str) -> None:
    async def ask() -> list[str]:
        certificate = of_files(tmp_path, client("first"))
        context = client_context(certificate, authorities=files / "ca.pem")
        names = []
        async with httpx.AsyncClient(verify=context, headers={"Connection": "close"}) as http:
            for name in ("second", "third"):
                names.append((await http.get(url)).text)
                of_files(tmp_path, client(name))
            names.append((await http.get(url)).text)
        return names

    assert asyncio.run(ask()) == ["first", "second", "third"]


KEYS: dict[str, Callable[[], Any]] = {
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["TLS 1.2", "TLS 1.3"])
def test_only_the_newest_certificate_is_shown_also_when_its_key_is_of_another_kind(
    files: Path, url: str, version: ssl.TLSVersion
) -> None:
    leaves = {kind: client(kind, key=make()) for kind, make in KEYS.items()}
    certificate = CertificateInMemory(leaves["P-256"].pem, LocalSigner(leaves["P-256"].key), origins=HERE)  # type: ignore[arg-type]
    context = client_context(certificate, authorities=files / "ca.pem")
    context.minimum_version = context.maximum_version = version
    with httpx.Client(verify=context, headers={"Connection": "close"}) as http:
        for kind in ("P-256", "RSA", "P-256", "Ed25519", "P-384", "RSA", "Ed25519", "P-256"):
            certificate.replace(leaves[kind].pem, LocalSigner(leaves[kind].key))  # type: ignore[arg-type]
            response = http.get(url)
            assert (response.text, response.headers["TLS"]) == (kind, version.name.replace("_", "."))


def test_asynchronous_clients_show_only_the_newest_one_too(files: Path, url: str) -> None:
    async def ask() -> list[str]:
        certificate = CertificateInMemory(first.pem, first.key_pem, origins=HERE)
        context = client_context(certificate, authorities=files / "ca.pem")
        async with httpx.AsyncClient(verify=context, headers={"Connection": "close"}) as http:
            names = [(await http.get(url)).text]
            for leaf in (second, first):
                certificate.replace(leaf.pem, leaf.key_pem)
                names.append((await http.get(url)).text)
        return names

    first, second = client("P-256"), client("RSA", key=KEYS["RSA"]())
    assert asyncio.run(ask()) == ["P-256", "RSA", "P-256"]


def test_sockets_that_are_wrapped_before_they_connect_and_handshakes_that_wait_show_the_newest_one(
    files: Path, url: str
) -> None:
    address = url.removeprefix("https://").split(":")[0], int(url.rpartition(":")[2])
    first, second = client("first"), client("second", key=KEYS["RSA"]())
    certificate = CertificateInMemory(first.pem, first.key_pem, origins=HERE)
    context = client_context(certificate, authorities=files / "ca.pem")
    for at_once, leaf, name in ((True, second, b"second"), (False, first, b"first")):
        with context.wrap_socket(
            socket.socket(), do_handshake_on_connect=at_once, server_hostname=address[0]
        ) as connection:
            certificate.replace(leaf.pem, leaf.key_pem)
            connection.connect(address)
            if not at_once:
                connection.do_handshake()
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(1000), b""))
        assert answer.endswith(b"\r\n\r\n" + name)


def test_authorities_are_read_once_whatever_stands_in_their_comments(tmp_path: Path, url: str) -> None:
    first, second = client("first"), client("second")
    certificate = CertificateInMemory(first.pem, first.key_pem, origins=HERE)
    path = tmp_path / "ca.pem"
    path.write_bytes("# F\u0151tan\u00fas\u00edtv\u00e1ny\n".encode() + Authority().pem + b"# ours\n" + CA.pem)
    context = client_context(certificate, authorities=path)
    path.unlink()
    certificate.replace(second.pem, second.key_pem)
    assert httpx.get(url, verify=context).text == "second"


def test_a_chain_over_an_intermediate_authority_is_shown_whole(files: Path, url: str) -> None:
    leaf = client("below", Authority("Between", CA))
    context = client_context(CertificateInMemory(leaf.pem, leaf.key_pem, origins=HERE), authorities=files / "ca.pem")
    assert httpx.get(url, verify=context).text == "below"


def test_an_encrypted_key_is_opened_by_its_passphrase(tmp_path: Path, files: Path, url: str) -> None:
    leaf = client("first")
    chain, key = leaf.write(tmp_path, "client")
    key.write_bytes(private_key_bytes(load_key(leaf), passphrase="correct horse"))
    key.chmod(0o600)
    context = client_context(
        CertificateFiles(chain, key, passphrase="correct horse", origins=HERE), authorities=files / "ca.pem"
    )
    assert httpx.get(url, verify=context).text == "first"


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_an_encrypted_rsa_key_in_pem_needs_no_algorithm(tmp_path: Path, form: PrivateFormat) -> None:
    """As openssl writes it. Signatures of cards need its ``alg``, but TLS has algorithms of its own."""
    key = tmp_path / "client.key"
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key.write_bytes(made.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"correct horse")))
    key.chmod(0o600)
    chain = tmp_path / "client.pem"
    chain.write_bytes(b"")
    _, loaded = CertificateFiles(chain, key, passphrase="correct horse", origins=HERE).load()
    assert loaded.private_key.private_numbers() == made.private_numbers()  # type: ignore[union-attr]
    with pytest.raises(ConfigurationError, match="the passphrase is wrong"):
        CertificateFiles(chain, key, passphrase="another", origins=HERE).load()


def load_key(leaf: Leaf) -> LocalSigner:
    return LocalSigner(leaf.key)  # type: ignore[arg-type]  # P-256


def test_files_that_do_not_fit_yet_leave_the_last_certificate_until_they_do(
    tmp_path: Path, files: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = of_files(tmp_path, client("first"))
    context = client_context(certificate, authorities=files / "ca.pem")
    second = client("second")
    with httpx.Client(verify=context, headers={"Connection": "close"}) as http:
        (tmp_path / "client.pem").write_bytes(second.pem)
        with caplog.at_level(logging.ERROR):
            assert [http.get(url).text for _ in range(2)] == ["first", "first"]
        (tmp_path / "client.key").write_bytes(second.key_pem)
        assert http.get(url).text == "second"
        (tmp_path / "client.pem").unlink()
        assert http.get(url).text == "second"
    errors = [record.getMessage() for record in caplog.records if record.name.startswith("a2a_trust")]
    assert len(errors) == 2
    assert "client.pem" in errors[0]


def test_a_replacement_that_does_not_fit_is_refused_and_the_last_one_goes_on(files: Path, url: str) -> None:
    leaf, other = client("first"), client("second")
    certificate = CertificateInMemory(leaf.pem, leaf.key_pem, origins=HERE)
    context = client_context(certificate, authorities=files / "ca.pem")
    for chain, key in ((other.pem, leaf.key_pem), (b"", leaf.key_pem), (other.pem, b"nothing")):
        with pytest.raises((ConfigurationError, MalformedError)):
            certificate.replace(chain, key)
    assert httpx.get(url, verify=context).text == "first"


def test_servers_of_other_authorities_and_names_are_refused(
    tmp_path: Path, files: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf = client("first")
    certificate = CertificateInMemory(leaf.pem, leaf.key_pem, origins=HERE)
    (tmp_path / "other.pem").write_bytes(Authority().pem)
    for context, address in (
        (client_context(certificate, authorities=tmp_path / "other.pem"), url),
        (client_context(certificate), url),
        (client_context(certificate, authorities=files / "ca.pem"), url.replace("127.0.0.1", "localhost")),
    ):
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(address, verify=context)


def test_the_key_never_stands_in_a_file_unencrypted_and_no_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    leaf = client("first")
    seen: list[tuple[int, int, bytes]] = []
    load = ssl.SSLContext.load_cert_chain

    def look(context: ssl.SSLContext, path: Path, **options: Any) -> None:
        seen.append((path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777, path.read_bytes()))
        load(context, path, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", look)
    client_context(CertificateInMemory(leaf.pem, leaf.key_pem, origins=HERE))
    ((folder_mode, file_mode, content),) = seen
    assert (folder_mode, file_mode) == (0o700, 0o600)
    assert content.count(b"PRIVATE KEY") == content.count(b"ENCRYPTED PRIVATE KEY") == 2
    assert list(tmp_path.iterdir()) == []


def test_a_key_among_the_certificates_is_refused_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    leaf = client("first")
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", lambda *_, **__: pytest.fail("it was written"))
    with pytest.raises(ConfigurationError, match="the chain contains a private key"):
        client_context(CertificateInMemory(leaf.key_pem + leaf.pem, leaf.key_pem, origins=HERE))


def test_a_key_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    chain, key = client("first").write(tmp_path, "client")
    key.chmod(0o644)
    with pytest.raises(ConfigurationError, match="everybody can read"):
        client_context(CertificateFiles(chain, key, origins=HERE))


def test_what_cannot_be_read_is_told_at_the_start(tmp_path: Path) -> None:
    leaf = client("first")
    good = CertificateInMemory(leaf.pem, leaf.key_pem, origins=HERE)
    for content in (b"", b"nothing", CA.pem[:-60], CA.pem + CA.pem[:200] + b"\n-----END CERTIFICATE-----\n"):
        (tmp_path / "ca.pem").write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"ca\.pem"):
            client_context(good, authorities=tmp_path / "ca.pem")
    with pytest.raises(FileNotFoundError):
        client_context(good, authorities=tmp_path / "none.pem")
    with pytest.raises(FileNotFoundError):
        client_context(CertificateFiles(tmp_path / "none.pem", tmp_path / "none.key", origins=HERE))


def test_no_repr_and_no_error_has_the_key(tmp_path: Path) -> None:
    leaf, other = client("first"), generate_signer()
    secret = leaf.key_pem.splitlines()[1].decode()
    certificate = CertificateInMemory(leaf.pem, leaf.key_pem, origins=HERE)
    texts = [repr(certificate), str(certificate), repr(of_files(tmp_path, leaf))]
    with pytest.raises(ConfigurationError) as mismatch:
        certificate.replace(leaf.pem, other)
    with pytest.raises(MalformedError) as broken:
        certificate.replace(leaf.pem, leaf.key_pem[:-60])
    texts += [str(mismatch.value), str(broken.value)]
    assert not [text for text in texts if secret in text or secret[:16] in text]
    assert load_private_key(tmp_path / "client.key").kid == load_key(leaf).kid


def test_a_context_has_a_certificate_for_the_hosts_of_its_origins_only(files: Path) -> None:
    leaf = client("one")
    origins = ["https://Agent.example:8443", "https://[2001:db8::1]"]
    certificate = CertificateInMemory(leaf.pem, leaf.key_pem, origins=origins)
    context: Any = client_context(certificate, authorities=files / "ca.pem")
    shown = context.newest("agent.example")
    for host in ("AGENT.example", "2001:DB8::1"):
        assert context.newest(host) is shown
    without = context.newest("other.example")
    assert without is not shown
    for other in (None, "", "a.agent.example", "agent.example.", "agent.example:8443", "[2001:db8::1]", "2001:db8::2"):
        assert context.newest(other) is without
    assert shown.get_ca_certs() == without.get_ca_certs()


@pytest.mark.parametrize(
    "origins", [[], "https://agent.example", ["agent.example"], ["https://agent.example/a"], ["*"]]
)
def test_a_certificate_has_origins(origins: Any) -> None:
    with pytest.raises(ConfigurationError, match="origins"):
        CertificateInMemory(b"", generate_signer("ES256"), origins=origins)
    with pytest.raises(ConfigurationError, match="origins"):
        CertificateFiles("a.pem", "a.key", origins=origins)
