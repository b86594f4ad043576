"""Real proxies as processes in front of the agent of ``proxied_agent``, and requests to them as bytes, over TLS."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.servers.environments import python_of
from tests.servers.serving import ROOT, free_port
from tests.tiers import missing

__all__ = ["PROXIES", "Answer", "ProxiedAgent", "Proxy", "ask", "program_of", "proxied_agent", "running_proxy"]

_HERE: Final = Path(__file__).resolve().parent
_START_SECONDS: Final = 300
_END_SECONDS: Final = 60

PROXIES: Final[Mapping[str, str]] = {
    "nginx": "nginx.conf",
    "haproxy": "haproxy.cfg",
    "apache": "apache.conf",
    "caddy": "Caddyfile",
    "envoy": "envoy.yaml",
}
"""The proxies, and their settings in the folder ``proxies``: @PAGE@ in them is the block of docs/mtls-proxies.md."""

_ON_PAGE: Final[Mapping[str, tuple[str, dict[str, str]]]] = {
    "nginx": (
        "nginx",
        {
            "listen 443": "listen 127.0.0.1:@STRICT_PORT@",
            "server.pem": "@SERVER@",
            "server.key": "@SERVER_KEY@",
            "clients-ca.pem": "@AUTHORITY@",
            "127.0.0.1:8000": "@AGENT@",
        },
    ),
    "haproxy": (
        "haproxy",
        {
            "bind :443": "bind 127.0.0.1:@STRICT_PORT@",
            "server.both.pem": "@SERVER_BOTH@",
            "clients-ca.pem": "@AUTHORITY@",
        },
    ),
    "apache": ("apache", {"clients-ca.pem": '"@AUTHORITY@"', "127.0.0.1:8000": "@AGENT@"}),
    "caddy": (
        "caddyfile",
        {
            "https://agent.example {": "https://localhost:@STRICT_PORT@ {\n\tbind 127.0.0.1",
            "tls {": "tls @SERVER@ @SERVER_KEY@ {",
            "clients-ca.pem": "@AUTHORITY@",
            "127.0.0.1:8000": "@AGENT@",
        },
    ),
    "envoy": ("yaml", {}),
}
"""The language of the block, and what stands in the place of its addresses and files here."""

_COMMANDS: Final[Mapping[str, list[str]]] = {
    "nginx": ["nginx", "-p", "{folder}", "-e", "stderr", "-c", "{settings}"],
    "haproxy": ["haproxy", "-db", "-f", "{settings}"],
    "apache": ["apache2", "-DFOREGROUND", "-f", "{settings}"],
    "caddy": ["caddy", "run", "--config", "{settings}", "--adapter", "caddyfile"],
    "envoy": ["envoy", "-c", "{settings}", "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error"],
}


@dataclass(frozen=True)
class ProxiedAgent:
    """Where the agent listens: recording peers (by each parser), not recording them, and at a unix socket."""

    port: int
    h11_port: int
    plain_port: int
    socket: Path
    secret: str


@dataclass(frozen=True)
class Proxy:
    """The ports of a proxy; ``lax`` is where it passes bad certificates on."""

    name: str
    strict: int
    lax: int
    unix: int
    secret: int


@dataclass(frozen=True)
class Answer:
    """What came back; ``status`` is None when the proxy refused the connection."""

    status: int | None
    said: dict[str, Any]
    session: ssl.SSLSession | None = None
    was_resumed: bool = False


@contextmanager
def proxied_agent(authority: Path, folder: Path) -> Iterator[ProxiedAgent]:
    """The agent runs, and believes certificates of that authority, while the block does."""
    agent = ProxiedAgent(free_port(), free_port(), free_port(), folder / "agent.sock", "of-the-proxy-" + "0" * 32)
    settings = {name: str(getattr(agent, name)) for name in ("port", "h11_port", "plain_port", "socket", "secret")}
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "FORWARDED_ALLOW_IPS": "*"}
    environment["PROXIED"] = json.dumps({**settings, "authority": str(authority)})
    command = [sys.executable, "-m", "tests.real.proxied_agent"]
    with _running(command, environment, ROOT, (agent.port, agent.h11_port, agent.plain_port)):
        yield agent


@contextmanager
def running_proxy(name: str, agent: ProxiedAgent, certificates: Mapping[str, Path], folder: Path) -> Iterator[Proxy]:
    """The proxy runs in front of the agent while the block does.

    ``certificates`` has the files that the settings name: AUTHORITY, SERVER (its certificate), SERVER_KEY and
    SERVER_BOTH.
    """
    program = program_of(name)
    proxy = Proxy(name, free_port(), free_port(), free_port(), free_port())
    values = {
        **certificates,
        "AGENT": f"127.0.0.1:{agent.port}",
        "AGENT_PORT": agent.port,
        "SOCKET": agent.socket,
        "SECRET": agent.secret,
        "FOLDER": folder,
        "MODULES": "/usr/lib/apache2/modules",
        **{f"{port.upper()}_PORT": getattr(proxy, port) for port in ("strict", "lax", "unix", "secret")},
        # Those that were started by root want to be somebody else, who has to reach the socket of the agent.
        "NGINX_USER": "user root;" if os.geteuid() == 0 else "",
        "APACHE_USER": "User www-data\nGroup www-data" if os.geteuid() == 0 else "",
    }
    text = (_HERE / "proxies" / PROXIES[name]).read_text(encoding="utf-8").replace("@PAGE@", _on_page(name))
    for word, value in values.items():
        text = text.replace(f"@{word}@", str(value))
    settings = folder / PROXIES[name]
    settings.write_text(text, encoding="utf-8")
    command = [part.format(folder=folder, settings=settings) for part in _COMMANDS[name][1:]]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    with _running([program, *command], environment, folder, (proxy.strict, proxy.lax)):
        yield proxy


def _on_page(name: str) -> str:
    """The settings of the proxy as docs/mtls-proxies.md shows them, for the addresses and files of this test."""
    language, places = _ON_PAGE[name]
    page = (ROOT / "docs" / "mtls-proxies.md").read_text(encoding="utf-8")
    (block, *_) = re.findall(rf"(?ms)^```{language}\n(.*?)^```$", page)
    for written, here in places.items():
        assert written in block, f"docs/mtls-proxies.md has no {written!r} for {name}"
        block = block.replace(written, here)
    return textwrap.indent(block, " " * 16) if language == "yaml" else block


def program_of(name: str) -> str:
    if name == "envoy":
        python = python_of("envoy-1.40.0", _HERE)
        return str(next(python.parents[1].glob("lib/*/site-packages/envoy/_bin/envoy")))
    found = shutil.which(_COMMANDS[name][0], path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if found is None:
        missing(name, "real-proxies")
    return found


@contextmanager
def _running(command: list[str], environment: dict[str, str], folder: Path, ports: tuple[int, ...]) -> Iterator[None]:
    with ExitStack() as stack:
        said = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
        )
        stack.callback(_end, process)
        until = time.monotonic() + _START_SECONDS
        while not all(map(_accepts, ports)):
            if process.poll() is not None or time.monotonic() > until:
                said.seek(0)
                raise AssertionError(f"{' '.join(command)} does not serve:\n{said.read()[-4000:]}")
            time.sleep(0.02)
        yield


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def ask(
    port: int,
    path: str,
    *lines: str,
    body: str | None = None,
    tls: ssl.SSLContext | None = None,
    session: ssl.SSLSession | None = None,
    from_address: str = "127.0.0.1",
) -> Answer:
    """GET, or POST with that chunked body, with exactly these header lines.

    Over TLS it shows the context's certificate; without, it goes to the agent in plain text.
    """
    more = [] if any(line.lower().startswith("connection:") for line in lines) else ["Connection: close"]
    if body is not None:
        more.append("Transfer-Encoding: chunked")
    method = "GET" if body is None else "POST"
    text = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, *more, "", body or ""])
    request = text.encode("latin-1")
    got = b""
    try:
        with ExitStack() as stack:
            connection: socket.socket = stack.enter_context(
                socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(from_address, 0))
            )
            over_tls = None
            if tls is not None:
                over_tls = stack.enter_context(
                    tls.wrap_socket(connection, server_hostname="localhost", session=session)
                )
                connection = over_tls
            connection.sendall(request)
            while read := connection.recv(65_536):
                got += read
            head, _, content = got.partition(b"\r\n\r\n")
            said = content[content.find(b"{") : content.rfind(b"}") + 1]  # some answer in chunks
            status = int(head.split(b" ", 2)[1])
            if over_tls is None:
                return Answer(status, json.loads(said or b"{}"))
            resumed = bool(over_tls.session_reused)
            return Answer(status, json.loads(said) if said.startswith(b'{"') else {}, over_tls.session, resumed)
    except (ssl.SSLError, ConnectionError):
        return Answer(None, {})
