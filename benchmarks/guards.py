"""One small application behind different guards, by name; each lets the same caller in by a key or a token."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from a2a_trust.auth.api_key.verifier import ApiKeyRecord, ApiKeyVerifier, MemoryApiKeys, key_id_of
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.keys.jwk import public_key_from_jwk
from a2a_trust.middleware.door import CardEnforcementMiddleware as CardMiddleware
from a2a_trust.middleware.protection import ProtectedAgent, protect, protect_agents
from benchmarks.peers import Peers
from benchmarks.tokens import AUDIENCE, ISSUER, OneKey, token_of

__all__ = ["GUARDS", "app_of", "credential_of", "enforced", "protected", "protected_agents", "served"]

CARD: Final[dict[str, Any]] = {
    "name": "Bench",
    "supportedInterfaces": [
        {"url": "http://agent.example.com/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        "oauth": {"oauth2SecurityScheme": {"flows": {}}},
    },
    "securityRequirements": [
        {"schemes": {"key": {"list": ["invoices:read"]}}},
        {"schemes": {"oauth": {"list": ["invoices:read"]}}},
    ],
}

_SCOPE: Final = "invoices:read"

# The processes of the servers inherit what the first process has made.
if "BENCH_TOKEN" not in os.environ:
    _peers = Peers.with_new_key("ES256")
    os.environ["BENCH_TOKEN"] = token_of(_peers)
    os.environ["BENCH_JWK"] = json.dumps(_peers.signer.public_key.to_jwk())
    os.environ["BENCH_KEY"] = MemoryApiKeys().create(owner="ann").text
TOKEN: Final = os.environ["BENCH_TOKEN"]
KEY: Final = os.environ["BENCH_KEY"]
PUBLIC: Final = public_key_from_jwk(json.loads(os.environ["BENCH_JWK"]))


async def hello(request: Request) -> PlainTextResponse:  # noqa: ARG001
    return PlainTextResponse("hello")


async def call(request: Request) -> PlainTextResponse:
    await request.body()
    return PlainTextResponse("hello")


_ROUTES: Final = [Route("/", hello), Route("/rpc", call, methods=["POST"])]


def bare() -> Any:
    return Starlette(routes=_ROUTES)


def _verifiers() -> dict[str, Any]:
    record = ApiKeyRecord(
        key_id=key_id_of(KEY), digest=sha256(KEY.encode()).digest(), owner="ann", scopes=frozenset({_SCOPE}), created=0
    )
    return {
        "key": ApiKeyVerifier(MemoryApiKeys([record])),
        "oauth": JwtVerifier(OneKey(PUBLIC), issuer=ISSUER, audience=AUDIENCE),
    }


def ours() -> Any:
    return enforced(bare())


def enforced(app: Any) -> Any:
    return CardMiddleware(app, card=CARD, verifiers=_verifiers())


def protected(app: Any, **options: Any) -> Any:
    return protect(app, **{"card": CARD, "verifiers": _verifiers(), **options})


def protected_agents(app: Any, count: int) -> Any:
    """So many agents, each with the one interface ``/agent-N/rpc``."""

    def card(prefix: str) -> dict[str, Any]:
        interfaces = [
            {**each, "url": each["url"].replace("/rpc", f"{prefix}/rpc")} for each in CARD["supportedInterfaces"]
        ]
        return {**CARD, "supportedInterfaces": interfaces}

    prefixes = [f"/agent-{number}" for number in range(count)]
    return protect_agents(
        app, {prefix: ProtectedAgent(card=card(prefix), verifiers=_verifiers()) for prefix in prefixes}
    )


def all_of_ours() -> Any:
    return protected(bare())


_KNOWN: Final = {sha256(KEY.encode()).digest(): "ann"}


class ByKey(AuthenticationBackend):
    """The check that is as good as ours for one key, without a card."""

    async def authenticate(self, conn: Any) -> tuple[AuthCredentials, SimpleUser] | None:
        owner = _KNOWN.get(sha256(conn.headers.get("x-api-key", "").encode()).digest())
        return None if owner is None else (AuthCredentials([_SCOPE]), SimpleUser(owner))


def starlettes() -> Any:
    return Starlette(routes=_ROUTES, middleware=[Middleware(AuthenticationMiddleware, backend=ByKey())])


class ByBase(BaseHTTPMiddleware):
    async def dispatch(self, request: Any, call_next: Any) -> Any:
        owner = _KNOWN.get(sha256(request.headers.get("x-api-key", "").encode()).digest())
        if owner is None:
            return PlainTextResponse("", 401)
        request.state.owner = owner
        return await call_next(request)


def by_base() -> Any:
    return Starlette(routes=[Route("/", hello)], middleware=[Middleware(ByBase)])


def fastapis() -> Any:
    import jwt
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

    key, required = jwt.PyJWK(PUBLIC.to_jwk()), ["exp", "iss", "aud", "sub"]

    def claims(found: HTTPAuthorizationCredentials = Depends(HTTPBearer())) -> Any:  # noqa: B008
        try:
            return jwt.decode(
                found.credentials, key, ["ES256"], {"require": required}, audience=AUDIENCE, issuer=ISSUER
            )
        except jwt.InvalidTokenError:
            raise HTTPException(401) from None

    app = FastAPI()

    @app.get("/", response_class=PlainTextResponse)
    async def root(found: dict[str, Any] = Depends(claims)) -> str:  # noqa: ARG001, B008
        return "hello"

    return app


def mcps() -> Any:
    from fastmcp.server.auth.providers.jwt import JWTVerifier
    from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware

    verifier = JWTVerifier(public_key=PUBLIC.to_pem().decode(), issuer=ISSUER, audience=AUDIENCE, algorithm="ES256")
    return AuthenticationMiddleware(RequireAuthMiddleware(bare(), [_SCOPE]), backend=BearerAuthBackend(verifier))


_API_KEY: Final = ("X-API-Key", KEY)
_BEARER: Final = ("Authorization", f"Bearer {TOKEN}")

GUARDS: Final[dict[str, tuple[Callable[[], Any], tuple[str, str]]]] = {
    "bare Starlette": (bare, _API_KEY),
    "a2a_trust CardEnforcementMiddleware, API key": (ours, _API_KEY),
    "a2a_trust CardEnforcementMiddleware, known token": (ours, _BEARER),
    "a2a_trust protect, API key": (all_of_ours, _API_KEY),
    "Starlette AuthenticationMiddleware, API key": (starlettes, _API_KEY),
    "BaseHTTPMiddleware, API key": (by_base, _API_KEY),
    "FastAPI dependency, PyJWT": (fastapis, _BEARER),
    "mcp middleware, FastMCP JWTVerifier": (mcps, _BEARER),
}
"""Name -> what makes the application, and the credential that a request to it carries."""


def app_of(name: str) -> Any:
    """The application behind the guard of that name."""
    return GUARDS[name][0]()


def credential_of(name: str) -> tuple[str, str]:
    """Header and value."""
    return GUARDS[name][1]


def served() -> Any:
    """For a server: the one that the environment names."""
    return app_of(os.environ["GUARD"])
