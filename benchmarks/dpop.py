"""Access tokens that are bound to a key: what the proof in each request takes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import repeat
from time import perf_counter
from typing import Any, Final

from a2a_trust.auth import DPoP, JwtVerifier
from a2a_trust.keys import base64url
from a2a_trust.keys.jws import signing_input
from a2a_trust.middleware import CardEnforcementMiddleware
from benchmarks.peers import Peers
from benchmarks.rounds import Contender, Row, Timer, repeated
from benchmarks.setting import Setting
from benchmarks.tokens import AUDIENCE, ISSUER, LOOP, OneKey

__all__ = ["rows"]

_PROOFS: Final = 64
_CARD: Final[dict[str, Any]] = {
    "name": "Bench",
    "supportedInterfaces": [{"url": f"{AUDIENCE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "securitySchemes": {"oauth": {"oauth2SecurityScheme": {"flows": {}}}},
    "securityRequirements": [{"schemes": {"oauth": {"list": ["invoices:read"]}}}],
}


def rows(setting: Setting) -> Iterator[Row]:
    """A request with a token that was verified before; with DPoP, each has a new proof."""
    peers = setting.es256
    data = signing_input("eyJhbGciOiJFUzI1NiJ9", b"{}" * 150)
    raw_verify = peers.raw_verifier(peers.signer.sign(data))
    yield Row(
        title="a request with a known token, ES256",
        baseline="cryptography verify (floor)",
        contenders=(
            Contender(name="cryptography verify (floor)", timer=repeated(lambda: raw_verify(data))),
            Contender(name="a2a_trust, Authorization: Bearer", timer=_requests(peers, bound=False)),
            Contender(name="a2a_trust, Authorization: DPoP", timer=_requests(peers, bound=True), target=2.0),
        ),
        rounds=setting.rounds(60),
        notes=("DPoP may take 2.0 more than Bearer",),
    )


def _signed(peers: Peers, header: dict[str, Any], claims: dict[str, Any]) -> str:
    data = signing_input(base64url.encode(json.dumps(header).encode()), json.dumps(claims).encode())
    return f"{data.decode()}.{base64url.encode(peers.signer.sign(data))}"


def _requests(peers: Peers, *, bound: bool) -> Timer:
    key, alg, now = peers.signer.public_key, peers.signer.alg, int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "248289761001", "iat": now - 10, "exp": now + 86_400}
    claims |= {"client_id": "s6BhdRkqt3", "jti": "dbe39bf3a3ba4238", "scope": "invoices:read invoices:write"}
    claims |= {"cnf": {"jkt": key.thumbprint}} if bound else {}
    token = _signed(peers, {"alg": alg, "typ": "at+jwt", "kid": peers.signer.kid}, claims)
    app = CardEnforcementMiddleware(
        _taking,
        card=_CARD,
        verifiers={"oauth": JwtVerifier(OneKey(key), issuer=ISSUER, audience=AUDIENCE)},
        dpop=DPoP(url=AUDIENCE),
    )
    numbers = iter(range(1_000_000_000))
    statuses: set[int] = set()

    def headers() -> list[tuple[bytes, bytes]]:
        lines = [(b"host", b"agent.example.com"), (b"user-agent", b"bench"), (b"accept", b"*/*")]
        lines.append((b"authorization", f"{'DPoP' if bound else 'Bearer'} {token}".encode()))
        if bound:
            proof = {
                "jti": f"{next(numbers)}-4238a513f51d",
                "htm": "GET",
                "htu": f"{AUDIENCE}/",
                "iat": int(time.time()),
            }
            proof["ath"] = base64url.encode(sha256(token.encode()).digest())
            jwk = {name: value for name, value in key.to_jwk().items() if name in ("kty", "crv", "x", "y")}
            lines.append((b"dpop", _signed(peers, {"typ": "dpop+jwt", "alg": alg, "jwk": jwk}, proof).encode()))
        return lines

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.add(message["status"])

    async def timed(scopes: list[dict[str, Any]]) -> float:
        start = perf_counter()
        for scope in scopes:
            await app(scope, receive, send)
        return (perf_counter() - start) / len(scopes)

    def timer() -> float:
        seconds = LOOP.run_until_complete(timed([_scope(headers()) for _ in repeat(None, _PROOFS)]))
        if statuses != {200}:
            raise AssertionError(f"answers {statuses}")
        return seconds

    timer()
    return timer


def _scope(headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "server": ("agent.example.com", 443),
        "client": ("192.0.2.1", 50000),
        "scheme": "https",
        "method": "GET",
        "root_path": "",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "headers": headers,
        "state": {},
    }


async def _taking(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})
