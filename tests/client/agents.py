"""Agents on this machine that answer over TLS as a test tells them to, their cards, and who is trusted."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final, NamedTuple

from a2a_trust import Origins, TrustedKey, TrustStore, generate_signer, sign_card
from a2a_trust.keys import LocalSigner, UnsafeAnyOrigin

__all__ = [
    "NEW",
    "OLD",
    "OWNER",
    "OWNER_TRUSTED",
    "Agent",
    "Asked",
    "Page",
    "card_of",
    "serving_agent",
    "signed",
    "trusting",
]

OWNER: Final = generate_signer("ES256", kid="owner")
OWNER_TRUSTED: Final = TrustStore([TrustedKey(key=OWNER.public_key, origins=UnsafeAnyOrigin())])

NEW: Final = "/.well-known/agent-card.json"
OLD: Final = "/.well-known/agent.json"


def card_of(origin: str, **members: Any) -> dict[str, Any]:
    """A card of 1.0 that one member says about, and that has a requirement worth stripping."""
    return {
        "name": "Ledger",
        "description": "Books invoices.",
        "version": "1.0.0",
        "supportedInterfaces": [
            {"url": f"{origin}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": f"{origin}/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        ],
        "capabilities": {"streaming": False, "extendedAgentCard": True},
        "securitySchemes": {
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
            "login": {
                "oauth2SecurityScheme": {
                    "flows": {
                        "clientCredentials": {"tokenUrl": "https://login.example.com/token", "scopes": {"read": "Read"}}
                    }
                }
            },
        },
        "securityRequirements": [{"schemes": {"key": {}}}],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "ask", "name": "Ask", "description": "Answers.", "tags": ["ledger"]}],
        **members,
    }


def signed(card: dict[str, Any], *, by: LocalSigner = OWNER, iat: float | None = None) -> bytes:
    return json.dumps(sign_card(card, by, iat=int(time.time()) if iat is None else iat, companion=True).card).encode()


def trusting(*hosts: str, key: LocalSigner = OWNER) -> TrustStore:
    return TrustStore([TrustedKey(key=key.public_key, origins=Origins(*hosts))])


@dataclass(frozen=True, kw_only=True)
class Page:
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Agent:
    """``pages`` are by path: a page, a card alone, or what makes a page of a request; other paths are 404."""

    port: int
    pages: dict[str, Page | bytes | Callable[[Asked], Page]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def origin(self, host: str = "agent.test") -> str:
        return f"https://{host}:{self.port}"

    def paths(self) -> list[str]:
        return [each.path for each in self.asked]

    def answer(self, asked: Asked) -> Page:
        self.asked.append(asked)
        page = self.pages.get(asked.path.partition("?")[0].replace("%6F", "o"), Page(status=404))
        if callable(page):
            page = page(asked)
        return page if isinstance(page, Page) else Page(body=page)


@contextmanager
def serving_agent(tls: ssl.SSLContext | None, address: str = "127.0.0.1", port: int = 0) -> Iterator[Agent]:
    """An agent that answers while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else each answer in two parts takes 40 ms
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            page = agent.answer(Asked(self.command, self.path, headers, body))
            self.send_response(page.status)
            given = {"Content-Type": "application/json", "Content-Length": str(len(page.body)), **page.headers}
            for name, value in given.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD" and page.status != 304:
                self.wfile.write(page.body)

        do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = do_OPTIONS = respond  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None: ...  # a client that has seen enough

    with Server((address, port), Handler) as server:
        agent = Agent(server.server_address[1])
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield agent
        finally:
            server.shutdown()
            thread.join()
