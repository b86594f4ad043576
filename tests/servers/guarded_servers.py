"""A plain agent behind a card under all five servers, and requests to it as bytes."""

from __future__ import annotations

import json
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.servers.guarded_agent import AUDIENCE
from tests.servers.issuer import Issuer
from tests.servers.serving import ROOT, serving_under_all

__all__ = ["GROUPS", "GuardedServers", "guarded_servers"]

#: For fixtures: the quick tests start uvicorn only.
GROUPS: Final = [
    pytest.param(("uvicorn-h11", "uvicorn-httptools"), id="uvicorn"),
    pytest.param(("hypercorn", "granian", "daphne"), id="others", marks=pytest.mark.real),
]


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
    python, app = Path(sys.executable), "tests.servers.guarded_agent:app"
    with serving_under_all(python, app, ROOT, lambda _origin: environment, names) as origins:
        yield GuardedServers(origins, key, issuer.token(audience=AUDIENCE))
