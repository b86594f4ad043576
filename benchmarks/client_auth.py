"""What authentication costs a client for each request, from the flow to the headers that are sent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from time import perf_counter
from typing import Any

import httpx

from a2a_trust import Origins, TrustedKey, TrustStore, generate_signer, sign_card, verify_card
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.client import ApiKey, CardAuth, ClientCredentials, ClientSecret, OAuthClient
from benchmarks.rounds import Contender, Row, Timer
from benchmarks.setting import Setting

__all__ = ["rows"]

_ORIGIN = "https://agent.example.com"
_CALLS = 500
_BASIC = "httpx.BasicAuth"


def rows(setting: Setting) -> Iterator[Row]:
    """A token that is remembered, and an API key, beside a user name and a password."""
    endpoint = HTTPServer(("127.0.0.1", 0), _TokenEndpoint)
    Thread(target=endpoint.serve_forever, daemon=True).start()
    login = f"http://127.0.0.1:{endpoint.server_port}"
    contenders = (
        (_BASIC, httpx.BasicAuth("orchestrator", "p" * 32), None),
        ("CardAuth with a remembered token", _card_auth(login, "login"), 2.0),
        ("CardAuth with an API key", _card_auth(login, "key"), 2.0),
    )
    yield Row(
        title="authentication of one request of a client",
        baseline=_BASIC,
        contenders=tuple(Contender(name=name, timer=_flows(auth), target=target) for name, auth, target in contenders),
        rounds=setting.rounds(60),
    )
    yield Row(
        title="one whole request of httpx.Client, without a network",
        baseline=_BASIC,
        contenders=tuple(Contender(name=name, timer=_requests(auth)) for name, auth, _ in contenders),
        rounds=setting.rounds(60),
    )
    endpoint.shutdown()
    endpoint.server_close()


class _TokenEndpoint(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.dumps({"access_token": "t" * 600, "token_type": "Bearer", "expires_in": 86_400}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def _card_auth(login: str, scheme: str) -> CardAuth:
    signer = generate_signer()
    card = {
        "name": "Ledger",
        "description": "Books invoices.",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": f"{_ORIGIN}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": False},
        "securitySchemes": {
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
            "login": {
                "oauth2SecurityScheme": {
                    "flows": {"clientCredentials": {"tokenUrl": f"{login}/token", "scopes": {"read": "Read"}}}
                }
            },
        },
        "securityRequirements": [{"schemes": {scheme: {"list": ["read"] if scheme == "login" else []}}}],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "ask", "name": "Ask", "description": "Answers.", "tags": ["ledger"]}],
    }
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("agent.example.com"))])
    signed = json.dumps(sign_card(card, signer, iat=int(time.time())).card).encode()
    client = OAuthClient(
        issuer=login,
        token_endpoint=f"{login}/token",
        client_id="orchestrator",
        authentication=ClientSecret("secret"),
        fetcher=Fetcher(private_origins=[login]),
    )
    return CardAuth(
        verify_card(signed, trust, origin=_ORIGIN),
        {
            "key": ApiKey("k" * 32, origins=[_ORIGIN]),
            "login": ClientCredentials(client, origins=[_ORIGIN], allowed_scopes=["read"]),
        },
        trust=trust,
    )


def _flows(auth: httpx.Auth) -> Timer:
    def timed() -> float:
        requests = [httpx.Request("POST", f"{_ORIGIN}/rpc", content=b"{}") for _ in range(_CALLS)]
        responses = [httpx.Response(200, request=request) for request in requests]
        start = perf_counter()
        for request, response in zip(requests, responses, strict=True):
            flow = auth.sync_auth_flow(request)
            sent = next(flow)
            lines = sent.headers.raw  # as a transport reads them
            try:
                flow.send(response)
            except StopIteration:
                continue
            raise AssertionError(f"a request with {len(lines)} headers is sent again")
        return (perf_counter() - start) / _CALLS

    return timed


def _requests(auth: httpx.Auth) -> Timer:
    http = httpx.Client(transport=_NoNetwork(), auth=auth)

    def timed() -> float:
        start = perf_counter()
        for _ in range(_CALLS // 5):
            http.post(f"{_ORIGIN}/rpc", content=b"{}")
        return (perf_counter() - start) / (_CALLS // 5)

    return timed


class _NoNetwork(httpx.BaseTransport):
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200 if len(request.headers.raw) > 5 else 500, stream=httpx.ByteStream(b"{}"))
