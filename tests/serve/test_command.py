"""``a2a-sign serve`` as an operator runs it: TLS, HTTP/2, unix sockets, log, end, and mistakes in its file."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest
from cryptography import x509

from a2a_trust.auth import SqliteApiKeys
from a2a_trust.cli.main import main
from a2a_trust.serve.configuration import read_configuration
from tests.certificates import SERVER, Authority
from tests.conftest import ROOT
from tests.examples.waiting import until
from tests.servers.issuer import issuing
from tests.servers.serving import free_port

SIGN = str(Path(sys.executable).with_name("a2a-sign"))
CARD: dict[str, Any] = json.loads((ROOT / "examples" / "serve" / "agent-card.json").read_text())


@contextmanager
def upstream(delay: threading.Event | None = None, asked: threading.Event | None = None) -> Iterator[int]:
    """An agent that answers every request with the head that it got: after ``delay``. ``asked``: a request came."""
    came = asked or threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection:
            head = connection.recv(65_536)
            came.set()
            if delay is not None:
                delay.wait(60)
            start = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(head)
            connection.sendall(start + head)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def write(folder: Path, address: str, agent: int, more: str = "", *, card: dict[str, Any] = CARD) -> Path:
    (folder / "card.json").write_text(json.dumps(card))
    path = folder / "agent.toml"
    path.write_text(
        f'card = "card.json"\n{more}\n[upstream]\nurl = "http://127.0.0.1:{agent}"\n[listen]\naddress = "{address}"\n'
        'stop_within = 20\n[verifiers.key]\ntype = "ApiKeyVerifier"\n'
        'store = { type = "SqliteApiKeys", path = "keys.db" }\n'
    )
    return path


@pytest.fixture
def key(tmp_path: Path) -> str:
    return SqliteApiKeys(tmp_path / "keys.db", create=True).create(owner="ann").text


@contextmanager
def serving(path: Path) -> Iterator[subprocess.Popen[str]]:
    """The command runs while the block does; its log is in ``serve.log``."""
    with (path.parent / "serve.log").open("w") as log:
        process = subprocess.Popen([SIGN, "serve", path.name], cwd=path.parent, stderr=log, text=True)
    try:
        until(lambda: process.poll() is not None or "Running on" in (path.parent / "serve.log").read_text())
        assert process.poll() is None, (path.parent / "serve.log").read_text()
        yield process
    finally:
        process.terminate()
        process.wait(60)


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "serve.log").read_text().splitlines()]


@pytest.mark.real
def test_tls_with_http_2_and_a_certificate_that_is_renewed(tmp_path: Path, key: str) -> None:
    authority = Authority()
    authority.issue(x509.DNSName("localhost"), usage=SERVER).write(tmp_path, "server")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    port = free_port()
    card = {**CARD, "supportedInterfaces": [{**CARD["supportedInterfaces"][0], "url": f"https://localhost:{port}/rpc"}]}
    with upstream() as agent:
        path = write(tmp_path, f"127.0.0.1:{port}", agent, card=card)
        text = path.read_text()
        path.write_text(text.replace("[listen]", '[listen]\ncertificate = "server.pem"\nkey = "server.key"'))
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

        def shown() -> bytes | None:
            with (
                socket.create_connection(("127.0.0.1", port)) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as tls,
            ):
                return tls.getpeercert(binary_form=True)

        with serving(path):
            for http2 in (False, True):
                with httpcore.ConnectionPool(ssl_context=context, http1=not http2, http2=http2) as pool:
                    answer = pool.request("GET", f"https://localhost:{port}/page", headers={"X-API-Key": key})
                    assert answer.status == 200
                    assert answer.extensions["http_version"] == (b"HTTP/2" if http2 else b"HTTP/1.1")
                    assert answer.content.startswith(b"GET /page HTTP/1.1\r\n")
                    assert b"x-forwarded-proto: https\r\n" in answer.content.lower()
            first = shown()
            authority.issue(x509.DNSName("localhost"), usage=SERVER).write(tmp_path, "server")
            until(lambda: shown() != first)


@pytest.mark.real
def test_it_listens_at_a_unix_socket(tmp_path: Path, key: str) -> None:
    with upstream() as agent:
        path = write(tmp_path, f"unix:{tmp_path}/guard.sock", agent)
        with serving(path), httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "guard.sock"))) as client:
            assert client.get("http://localhost:8080/page").status_code == 401
            answer = client.get("http://localhost:8080/page", headers={"X-API-Key": key})
            assert answer.status_code == 200
            assert key not in answer.text
            assert "x-forwarded-for: \r\n" in answer.text.lower()


@pytest.mark.real
def test_the_log_is_json_and_has_the_events(tmp_path: Path, key: str) -> None:
    port = free_port()
    with upstream() as agent:
        path = write(tmp_path, f"127.0.0.1:{port}", agent)
        with serving(path):
            assert httpx.get(f"http://127.0.0.1:{port}/page").status_code == 401
            assert httpx.get(f"http://127.0.0.1:{port}/page", headers={"X-API-Key": "wrong"}).status_code == 401
            until(lambda: len(log_of(tmp_path)) >= 3)
    events = [line["audit"] for line in log_of(tmp_path) if "audit" in line]
    assert {event["reason"] for event in events} == {"missing-credentials", "invalid-credentials"}
    assert all({"time", "level", "logger", "message"} <= set(line) for line in log_of(tmp_path))


@pytest.mark.real
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_that_runs_ends_before_the_process_does(number: int, tmp_path: Path, key: str) -> None:
    port, delay, asked, answers = free_port(), threading.Event(), threading.Event(), list[int]()
    with upstream(delay, asked) as agent:
        path = write(tmp_path, f"127.0.0.1:{port}", agent)

        def ask() -> None:
            url = f"http://127.0.0.1:{port}/page"
            answers.append(httpx.get(url, headers={"X-API-Key": key}, timeout=60).status_code)

        with serving(path) as process:
            asking = threading.Thread(target=ask)
            asking.start()
            asked.wait(60)
            process.send_signal(number)
            until(lambda: not accepts(port))
            delay.set()
            asking.join(60)
            assert process.wait(60) == 0
    assert answers == [200]


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


WRONG = [
    ('[listen]\naddress = "127.0.0.1:1"', '[listen]\ncertificate = "a.pem"', "listen: write certificate and key"),
    ('path = "keys.db"', 'path = "other.db"', "other.db"),
    ("[verifiers.key]", "[verifiers.token]", "token"),
    ('card = "card.json"', 'card = "other.json"', "other.json"),
    ('store = {', 'storage = {', "verifiers.key.store: missing"),
    ("[upstream]", '[caller]\nkeys = "ring.json"\n[upstream]', "tokens need the agent's url"),
]  # fmt: skip


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize(("right", "wrong", "message"), WRONG)
def test_nothing_starts_with_a_mistake(
    right: str, wrong: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "127.0.0.1:1", 9)
    assert right in path.read_text()
    path.write_text(path.read_text().replace(right, wrong))
    assert main(["keys", "create", str(tmp_path / "ring.json")]) == 0
    assert main(["serve", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_a_key_with_another_use_does_not_sign_callers(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", "create", str(tmp_path / "ring.json")]) == 0
    more = '[caller]\nkeys = "ring.json"\n[serving]\nsigner = { type = "KeyRingFile", path = "ring.json" }'
    path = write(tmp_path, "127.0.0.1:1", 9, f'url = "http://localhost:8080"\n{more}')
    assert main(["serve", "--check", str(path)]) == 2
    assert "caller.keys: one of its keys has another use" in capsys.readouterr().err


def test_a_file_for_every_card_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a verifier for every scheme; only its values have to be completed."""
    schemes = {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        "basic": {"httpAuthSecurityScheme": {"scheme": "Basic"}},
        "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}},
        "odd name.ö": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://idp.example.com/.well-known/x"}},
        "mtls": {"mtlsSecurityScheme": {}},
        "unused": {"httpAuthSecurityScheme": {"scheme": "digest"}},
    }
    card = {
        **CARD,
        "capabilities": {"extendedAgentCard": True, "pushNotifications": True},
        "supportedInterfaces": [{**CARD["supportedInterfaces"][0], "tenant": "acme"}],
        "securitySchemes": schemes,
        "securityRequirements": [{"schemes": {name: {"list": []}}} for name in schemes if name != "unused"],
    }
    (tmp_path / "card.json").write_text(json.dumps(card))
    assert main(["serve", "--init", str(tmp_path / "card.json")]) == 0
    path = tmp_path / "agent.toml"
    path.write_text(capsys.readouterr().out)
    configuration = read_configuration(path)
    assert set(configuration.verifiers) == set(schemes) - {"unused"}
    assert configuration.client_certificates is not None
    assert configuration.extended_card is not None
    assert configuration.rules.webhooks.type == "Webhooks"


def test_check_fetches_the_key_sets(tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    card = {
        **CARD,
        "securitySchemes": {**CARD["securitySchemes"], "login": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
    }
    card["securityRequirements"] = [{"schemes": {"key": {}}}, {"schemes": {"login": {}}}]
    with issuing() as issuer:
        path = write(tmp_path, "127.0.0.1:1", 9, card=card)
        fetcher = f'{{ private_origins = ["{issuer.url}"] }}'
        keys = f'{{ type = "OpenIdKeys", issuer = "{issuer.url}", fetcher = {fetcher} }}'
        path.write_text(
            f'{path.read_text()}[verifiers.login]\ntype = "JwtVerifier"\nkeys = {keys}\nissuer = "{issuer.url}"\n'
            'audience = "https://agent.example.com"\n'
        )
        assert main(["serve", "--check", str(path)]) == 0
        assert f"{issuer.url}: 1 keys\n" in capsys.readouterr().out
    assert main(["serve", "--check", str(path)]) == 6
    assert f"{issuer.url}: unreachable" in capsys.readouterr().err
