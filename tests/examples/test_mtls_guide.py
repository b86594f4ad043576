"""docs/mtls.md and its three parts are true: the commands make an authority, an agent and a call; the Python runs."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from starlette.applications import Starlette

from a2a_trust import proxies
from a2a_trust.certificates import CertificateFiles, client_context
from a2a_trust.errors import InvalidCredentialsError
from tests.certificates import Authority
from tests.docs.newcomer import commands_of
from tests.docs.pages import PAGES
from tests.examples.waiting import until
from tests.servers.serving import free_port
from tests.tiers import missing

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGES[f"docs/{page}.md"], re.DOTALL)


FIRST, BOUND = blocks("mtls")
(PROXY,), (CHECK,), (CLIENT, _) = (blocks(f"mtls-{part}") for part in ("proxies", "callers", "clients"))
((COMMANDS,), (CHECKED,)) = blocks("mtls", "console"), blocks("mtls-callers", "text")
ID = "spiffe://example.org/agents/invoices"


def run(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


@contextmanager
def running(command: str, folder: Path, url: str) -> Iterator[None]:
    """The agent serves while the block runs."""
    words = [sys.executable, "-m", *command.removesuffix("&").split()]
    with subprocess.Popen(words, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        try:
            until(lambda: process.poll() is not None or answers(folder, url))
            yield
        finally:
            process.terminate()


def answers(folder: Path, url: str) -> bool:
    try:
        stranger(folder, url)
    except httpx.TransportError:
        return False
    return True


def stranger(folder: Path, url: str) -> httpx.Response:
    return httpx.get(url, verify=ssl.create_default_context(cafile=str(folder / "ca.pem")))


def ask(folder: Path, name: str, url: str) -> httpx.Response:
    certificate = CertificateFiles(folder / f"{name}.pem", folder / f"{name}.key", origins=["https://localhost"])
    return httpx.get(url, verify=client_context(certificate, authorities=folder / "ca.pem"))


@pytest.mark.real
def test_the_commands_lead_from_an_authority_to_a_call_and_to_its_end(tmp_path: Path) -> None:
    origin = f"https://localhost:{free_port()}"
    here = COMMANDS.replace("examples/", f"{ROOT}/examples/").replace("8443", origin[-5:].strip(":"))
    steps = commands_of(here)
    new, server, client, uvicorn, curl, call, revoke = (command.replace("\\\n", " ") for command, _ in steps)
    shown = [printed for _, printed in steps if printed]
    if shutil.which("curl") is None:
        missing("curl", "real-proxies")
    call = f"{call} {origin}/"
    for line in (new, server, client):
        run(line, tmp_path)
    authority = new.removesuffix(" new")
    run(f"{authority} client other spiffe://example.org/agents/other", tmp_path)
    with running(uvicorn, tmp_path, origin):
        assert [run(curl, tmp_path), run(call, tmp_path)] == shown == [f"hello {ID}\n"] * 2
        assert stranger(tmp_path, f"{origin}/.well-known/agent-card.json").status_code == 200
        assert stranger(tmp_path, origin).status_code == 401
        assert ask(tmp_path, "other", origin).status_code == 401
        run(f"{authority} client again {ID}", tmp_path)
        run(revoke, tmp_path)
        until(lambda: ask(tmp_path, "invoices", origin).status_code == 401)  # the agent looks at the list every second
        assert ask(tmp_path, "again", origin).text == f"hello {ID}\n"
        run(f"{authority} list", tmp_path)
        assert ask(tmp_path, "invoices", origin).status_code == 401


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the files that the guide's Python names."""
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "trust.toml").write_text("version = 1\n")
    (tmp_path / "ca.crl").write_bytes(authority.revoke().public_bytes(Encoding.PEM))
    _, key = authority.issue(x509.UniformResourceIdentifier(ID)).write(tmp_path, "invoices")
    key.chmod(0o600)
    _, other = authority.issue(x509.UniformResourceIdentifier(f"{ID}/2")).write(tmp_path, "other")
    other.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def card(name: str, scheme: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "Invoice Agent",
        "description": "Books invoices.",
        "version": "1.0.0",
        "supportedInterfaces": [
            {"url": "https://agent.example.com/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "securitySchemes": {name: scheme},
        "securityRequirements": [{"schemes": {name: {"list": []}}}],
    }


def chain(path: Path) -> tuple[bytes, ...]:
    return tuple(each.public_bytes(Encoding.DER) for each in x509.load_pem_x509_certificates(path.read_bytes()))


def test_the_first_lines_let_in_whom_they_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"agent": Starlette(), "card": card("certificate", {"mtlsSecurityScheme": {}})}
    exec(FIRST, names)
    verified = names["callers"].verify(chain(here / "invoices.pem"), time.time())
    identity = asyncio.run(verified)
    assert (identity.issuer, identity.subject) == ("x509:uri:example", ID)
    exec(CHECK, names)
    assert capsys.readouterr().out == CHECKED
    with pytest.raises(InvalidCredentialsError, match="not allowed to call"):
        asyncio.run(names["callers"].verify(chain(here / "other.pem"), time.time()))


def test_the_lines_for_proxies_and_clients_run(here: Path) -> None:
    for block in (PROXY, CLIENT):
        exec(block, {})
    forms = re.findall(r"`(\w+)\(\)`", PAGES["docs/mtls-proxies.md"].partition("\n## nginx\n")[2])
    assert set(forms) == {"Nginx", "HAProxy", "Apache", "Caddy", "Envoy", "Traefik", "AwsAlb", "Rfc9440"}
    assert set(forms) <= set(dir(proxies))


def test_the_lines_for_bound_tokens_make_an_agent() -> None:
    login = {
        "openIdConnectSecurityScheme": {
            "openIdConnectUrl": "https://login.example.com/.well-known/openid-configuration"
        }
    }
    names: dict[str, Any] = {"agent": Starlette(), "card_with_login": card("login", login)}
    exec(BOUND, names)

    async def ask_without() -> int:
        transport = httpx.ASGITransport(app=names["app"])
        async with httpx.AsyncClient(transport=transport, base_url="https://agent.example.com") as http:
            return (await http.get("/")).status_code

    assert asyncio.run(ask_without()) in (401, 503)
