"""The helpers for FastAPI: callers and skills as dependencies, and the card in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, WebSocket
from starlette.testclient import TestClient

from a2a_trust import ApiKeyVerifier, Principal, ProtectedAgent, RequestRules, principal_of, protect, protect_agents
from a2a_trust.auth import BasicVerifier, MemoryApiKeys, MemoryPasswords
from a2a_trust.errors import ConfigurationError
from a2a_trust.fastapi import Caller, openapi_security, requires_skill

KEYS = MemoryApiKeys()
KEY = {"X-API-Key": KEYS.create(owner="ann", scopes=["read"]).text}
ADMIN = {"X-Admin-Key": (ADMINS := MemoryApiKeys()).create(owner="root").text}
SCHEMES: dict[str, Any] = {
    "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
    "admin key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Admin-Key"}},
}
VERIFIERS = {"key": ApiKeyVerifier(KEYS), "admin key": ApiKeyVerifier(ADMINS, issuer="admins")}


def card(path: str = "/rpc", **members: Any) -> dict[str, Any]:
    interface = {"url": f"http://agent.example.com{path}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    skill = {"id": "delete", "securityRequirements": [{"schemes": {"admin key": {"list": []}}}]}
    required = [{"schemes": {"key": {"list": ["read"]}}}]
    return {
        "name": "agent", "supportedInterfaces": [interface], "securitySchemes": SCHEMES, "skills": [skill],
        "securityRequirements": required, **members,
    }  # fmt: skip


@pytest.fixture
def app() -> FastAPI:
    rules = RequestRules(handlers_check_skills=True, public_paths=["/healthz"])
    app = protect(FastAPI(), card=card(), verifiers=VERIFIERS, rules=rules)
    openapi_security(app)

    @app.get("/me")
    async def me(caller: Caller) -> str:
        return caller.id

    @app.get("/me-too")
    def me_too(caller: Annotated[Any, Depends(principal_of)]) -> str:
        return str(caller.id)

    @app.delete("/all", dependencies=[requires_skill("delete")])
    async def delete_all() -> str:
        return "deleted"

    @app.delete("/one")
    async def delete_one(caller: Annotated[Principal, requires_skill("delete")]) -> list[str]:
        return [caller.id, *(scheme for scheme, _ in caller.for_skills)]

    @app.get("/healthz")
    async def healthz() -> str:
        return "ok"

    @app.websocket("/ws")
    async def ws(websocket: WebSocket, caller: Caller) -> None:
        await websocket.accept()
        await websocket.send_text(caller.id)

    return app


def test_endpoints_get_the_caller_and_no_parameter(app: FastAPI) -> None:
    with TestClient(app) as http:
        for path in ("/me", "/me-too"):
            assert http.get(path, headers=KEY).json() == "ann@api-keys"
            assert http.get(path, params={"context": "x"}).status_code == 401
            assert "parameters" not in app.openapi()["paths"][path]["get"]
        with http.websocket_connect("/ws", headers=KEY) as websocket:
            assert websocket.receive_text() == "ann@api-keys"


def test_skills_are_dependencies(app: FastAPI) -> None:
    with TestClient(app) as http:
        for path in ("/all", "/one"):
            rejected = http.delete(path, headers=KEY)
            assert (rejected.status_code, 'name="X-Admin-Key"' in rejected.headers["WWW-Authenticate"]) == (401, True)
        assert http.delete("/all", headers=KEY | ADMIN).json() == "deleted"
        assert http.delete("/one", headers=KEY | ADMIN).json() == ["ann@api-keys", "admin key"]


def test_the_document_has_the_schemes_and_what_is_demanded(app: FastAPI) -> None:
    document = app.openapi()
    assert document["components"]["securitySchemes"] == {
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "admin_key": {"type": "apiKey", "in": "header", "name": "X-Admin-Key"},
    }
    for path, method in (("/me", "get"), ("/all", "delete")):
        assert document["paths"][path][method]["security"] == [{"key": ["read"]}]
    assert "security" not in document["paths"]["/healthz"]["get"]
    assert app.openapi() is document
    app.openapi_schema = None  # FastAPI makes it again
    assert app.openapi()["paths"]["/me"]["get"]["security"] == [{"key": ["read"]}]


def test_several_agents_have_their_own_schemes() -> None:
    agents = {
        f"/{name}": ProtectedAgent(
            card=card(f"/{name}/rpc", skills=[]),
            verifiers=VERIFIERS,
            rules=RequestRules(other_paths=[f"/{name}/page"]),
        )
        for name in ("one", "two")
    }
    app = protect_agents(FastAPI(), agents, unguarded_paths=["/page"])
    openapi_security(app)
    for path in ("/one/page", "/two/page", "/page"):
        app.get(path)(lambda: "page")
    paths = app.openapi()["paths"]
    assert [paths[path]["get"].get("security") for path in ("/one/page", "/two/page", "/page")] == [
        [{"one.key": ["read"]}], [{"two.key": ["read"]}], None,
    ]  # fmt: skip
    assert len(app.openapi()["components"]["securitySchemes"]) == 4


ALL: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "query": ({"type": "apiKey", "in": "query", "name": "key"}, {"type": "apiKey", "in": "query", "name": "key"}),
    "cookie": ({"type": "apiKey", "in": "cookie", "name": "key"}, {"type": "apiKey", "in": "cookie", "name": "key"}),
    "basic": ({"type": "http", "scheme": "Basic"}, {"type": "http", "scheme": "basic"}),
    "mtls": ({"type": "mutualTLS"}, {"type": "mutualTLS"}),
    "oauth": (
        {
            "type": "oauth2",
            "flows": {
                "clientCredentials": {"tokenUrl": "https://idp.example.com/token", "scopes": {"read": "Reads."}},
                "authorizationCode": {
                    "authorizationUrl": "https://idp.example.com/login",
                    "tokenUrl": "https://idp.example.com/token",
                    "refreshUrl": "https://idp.example.com/refresh",
                    "scopes": {},
                },
            },
        },
        {
            "type": "oauth2",
            "flows": {
                "clientCredentials": {"tokenUrl": "https://idp.example.com/token", "scopes": {"read": ""}},
                "authorizationCode": {
                    "authorizationUrl": "https://idp.example.com/login",
                    "tokenUrl": "https://idp.example.com/token",
                    "refreshUrl": "https://idp.example.com/refresh",
                    "scopes": {},
                },
            },
        },
    ),
}


@pytest.mark.parametrize("name", ALL)
def test_schemes_of_0_3_are_shown(name: str) -> None:
    declared, shown = ALL[name]
    old = {
        "name": "agent", "url": "http://agent.example.com/rpc", "protocolVersion": "0.3.0", "version": "1",
        "preferredTransport": "JSONRPC",
        "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}, name: declared},
        "security": [{"basic": []}],
    }  # fmt: skip
    app = protect(FastAPI(), card=old, verifiers={"basic": BasicVerifier(MemoryPasswords())})
    openapi_security(app)
    app.get("/page")(lambda: "page")
    assert app.openapi()["components"]["securitySchemes"][name] == shown


def test_an_application_without_a_guard_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="openapi_security: FastAPI is not protected"):
        openapi_security(FastAPI())


def test_without_a_guard_no_endpoint_has_a_caller() -> None:
    app = FastAPI()

    @app.get("/me")
    async def me(caller: Caller) -> str:
        return caller.id

    with TestClient(app) as http, pytest.raises(ConfigurationError, match="did not come through protect"):
        http.get("/me")
