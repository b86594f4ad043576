"""A plain agent behind a card under all five servers and behind the reverse proxy, and requests to it as bytes."""

from __future__ import annotations

import json
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import pytest

from a2a_trust.auth import SqliteApiKeys
from tests.servers.guarded_agent import AUDIENCE, CARD
from tests.servers.issuer import Issuer
from tests.servers.serving import ROOT, SERVERS, free_port, serving, serving_under_all

__all__ = ["GROUPS", "PROXY", "SHELLS", "GuardedServers", "guarded_servers"]

PROXY: Final = "serve"
_FILE: Final = """
card = "card.json"
[upstream]
url = "{upstream}"
[listen]
address = "{address}"
[caller]
plain = true
[rules]
other_paths = ["/other"]
failures = {{ by_credential = "100000/minute", by_peer = "100000/minute" }}
[verifiers.oauth]
type = "JwtVerifier"
keys = {{ type = "JwksFile", path = "keys.json" }}
issuer = "{issuer}"
audience = "{audience}"
"""
_KEY: Final = """[verifiers.{scheme}]
type = "ApiKeyVerifier"
store = {{ type = "SqliteApiKeys", path = "keys.db" }}
"""

#: For fixtures: the quick tests start uvicorn only.
GROUPS: Final = [
    pytest.param(("uvicorn-h11", "uvicorn-httptools"), id="uvicorn"),
    pytest.param(("hypercorn", "granian", "daphne"), id="others", marks=pytest.mark.real),
]
#: The same, and ``a2a-sign serve`` in front of the agent.
SHELLS: Final = [*GROUPS, pytest.param((PROXY,), id=PROXY, marks=pytest.mark.real)]


class GuardedServers(NamedTuple):
    """Origins by the servers' names, and credentials that are good at all of them."""

    origins: dict[str, str]
    key: str
    token: str

    def lines(self, template: str) -> str:
        """Header lines or a target with the good credentials in the places of {key}, {key_a}{key_b} and {token}."""
        return template.format(key=self.key, key_a=self.key[:20], key_b=self.key[20:], token=self.token)

    def answers(self, lines: str, target: str = "/rpc", method: str = "GET") -> dict[str, tuple[int, bytes]]:
        """What each server answers to these very bytes: status and body."""
        request = f"{method} {target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n".encode("latin-1")
        return {name: _answer(origin, request) for name, origin in self.origins.items()}


def _answer(origin: str, request: bytes) -> tuple[int, bytes]:
    host, port = origin.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(request)
        with closing(HTTPResponse(connection)) as response:
            response.begin()
            return response.status, response.read()


@contextmanager
def guarded_servers(*names: str, **settings: str) -> Iterator[GuardedServers]:
    """All servers, or those of ``names``, run while the block does; ``settings`` come into their environment."""
    issuer, key = Issuer("https://issuer.example"), secrets.token_hex(24)
    given = {"key": key, "issuer": issuer.url, "jwks": issuer.documents()["/jwks"].decode()}
    environment = {"GUARDED": json.dumps(given), **settings}
    if names == (PROXY,):
        with _behind_proxy(issuer, key) as origin:
            yield GuardedServers({PROXY: origin}, key, issuer.token(audience=AUDIENCE))
        return
    python, app = Path(sys.executable), "tests.servers.guarded_agent:app"
    with serving_under_all(python, app, ROOT, lambda _origin: environment, names) as origins:
        yield GuardedServers(origins, key, issuer.token(audience=AUDIENCE))


@contextmanager
def _behind_proxy(issuer: Issuer, key: str) -> Iterator[str]:
    upstream, address = free_port(), f"127.0.0.1:{free_port()}"
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        SqliteApiKeys(folder / "keys.db", create=True).import_key(key, owner="ann")
        (folder / "card.json").write_text(json.dumps(CARD))
        (folder / "keys.json").write_bytes(issuer.documents()["/jwks"])
        url = f"http://127.0.0.1:{upstream}"
        text = _FILE.format(upstream=url, address=address, issuer=issuer.url, audience=AUDIENCE)
        text += "".join(_KEY.format(scheme=scheme) for scheme in ("key", "session", "url"))
        (folder / "agent.toml").write_text(text)
        agent = [sys.executable, "-m", *SERVERS["uvicorn-h11"]("tests.middleware.agent:alone", upstream)]
        stack.enter_context(serving(agent, url, {}, ROOT))
        sign = [str(Path(sys.executable).with_name("a2a-sign")), "serve", "agent.toml"]
        stack.enter_context(serving(sign, f"http://{address}", {}, folder))
        yield f"http://{address}"
