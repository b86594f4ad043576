"""M18: several agents share an application, and a request to one is judged by the card of another.

The attacker is a good caller of one agent, and writes the other's path so that the guard and the router disagree. The
applications are real ones: mounted, with a prefix that only they know of, and with a middleware that tidies paths, as
proxies and frameworks do. The defenses: the longest prefix behind the root path, and 404 for a path that a lenient
router, or one that takes a prefix off, finds at another agent.
"""

from __future__ import annotations

import asyncio
import base64
import posixpath
from typing import Any, Final
from unicodedata import normalize
from urllib.parse import unquote

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.middleware.card import CardReaders
from a2a_trust.middleware.protection import ProtectedAgent, protect_agents
from tests.middleware.agent import grouped, raw_exchange, uvicorn_serving
from tests.middleware.several import card_of
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


STORES: Final = {name: MemoryApiKeys() for name in ("ops", "billing", "root")}
KEYS: Final = {name: store.create(owner=name, scopes=["read"]).text for name, store in STORES.items()}
METHODS: Final = ["GET", "HEAD", "POST", "OPTIONS"]

#: Targets that somebody could take for a path of the agent at /billing.
SPELLINGS: Final = [
    *("/billing/rpc", "/billing", "/billing/", "/billing/rest/tasks", "/billing/.well-known/agent-card.json/"),
    *("/Billing/rpc", "/BILLING/rpc", "//billing/rpc", "///billing//rpc", "/./billing/rpc", "/billing/./rpc"),
    *("/ops/../billing/rpc", "/ops/files/../../billing/rpc", "/ops/./../billing/rpc", "/ops//..//billing/rpc"),
    *("/ops/%2e%2e/billing/rpc", "/ops/.%2e/billing/rpc", "/ops/..%2fbilling/rpc", "/ops%2f..%2fbilling%2frpc"),
    *("/ops/%252e%252e/billing/rpc", "/ops/files/%2e%2e/%2e%2e/billing/rpc", "/ops/files/..%252f..%252fbilling/rpc"),
    *("/ops/..;/billing/rpc", "/ops;/../billing/rpc", "/ops/..;x=1/billing/rpc", "/billing;/rpc", "/billing;x=y/rpc"),
    *("/ops/..\\billing/rpc", "/ops\\..\\billing\\rpc", "/ops/%5c..%5cbilling/rpc", "/ops/files/..%5c..%5cbilling/rpc"),
    *("/%62illing/rpc", "/bil%6cing/rpc", "/%2562illing/rpc", "/billing%2frpc", "/billing%252frpc", "%2fbilling/rpc"),
    *("/billing%00/rpc", "/billing%20/rpc", "/%20billing/rpc", "/billing%0a/rpc", "/billing/rpc%0a", "/billing%09/rpc"),
    *("/billing?/ops/rpc", "/billing/rpc?x=/ops/rpc", "/ops/../billing/rpc?", "/billing/rpc#/ops/rpc"),
    *("http://agent.example/billing/rpc", "http://ops/billing/rpc", "/ops/http://agent.example/billing/rpc"),
    *("/%EF%BD%82illing/rpc", "/ops%EF%BC%8F..%EF%BC%8Fbilling/rpc", "/%F0%9D%90%9Billing/rpc", "/bill%C4%B1ng/rpc"),
    *("/ops/billing/rpc", "/ops/files/billing/rpc", "/x/billing/rpc", "/api/billing/rpc", "/api/v1/billing/rpc"),
    *("/ops/api/billing/rpc", "/files/../billing/rpc", "/files/billing/rpc", "/files/api/billing/rpc", "/"),
]


class Reached:
    """The application's handlers, and who reached them: the agent, and the caller's name."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []

    def of(self, name: str) -> list[Any]:
        def told(scope: Any) -> None:
            self.requests.append((name, getattr(scope.get("user"), "display_name", "a stranger")))

        async def answer(request: Request) -> PlainTextResponse:
            told(request.scope)
            return PlainTextResponse(f"for callers of {name}")

        async def accept(websocket: WebSocket) -> None:
            told(websocket.scope)
            await websocket.accept()
            await websocket.close()

        return [Route("/{rest:path}", answer, methods=METHODS), WebSocketRoute("/{rest:path}", accept)]

    def mounted(self) -> Starlette:
        mounts = [Mount(f"/{name}", Starlette(routes=self.of(name))) for name in ("ops", "billing")]
        return Starlette(routes=[*mounts, *self.of("root")])

    def fastapi(self) -> FastAPI:
        app = FastAPI(openapi_url=None)
        for name in ("ops", "billing"):
            sub = FastAPI(openapi_url=None)
            sub.router.routes.extend(self.of(name))
            app.mount(f"/{name}", sub)
        app.router.routes.extend(self.of("root"))
        return app

    def with_its_own_prefix(self) -> FastAPI:
        app = self.fastapi()
        app.root_path = "/api"  # as FastAPI(root_path="/api"): only this application knows of it
        return app

    def tidied(self) -> Any:
        """Behind a middleware that tidies paths before they are routed."""
        inner = self.mounted()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if "path" in scope:
                plain = normalize("NFKC", unquote(scope["path"])).casefold().replace("\\", "/")
                segments = [segment.partition(";")[0].strip() for segment in plain.split("/")]
                scope = {**scope, "path": posixpath.normpath(f"/{'/'.join(segments)}").replace("//", "/")}
            await inner(scope, receive, send)

        return app


KINDS: Final = ["mounted", "fastapi", "with_its_own_prefix", "tidied"]


def agent(name: str, **options: Any) -> ProtectedAgent:
    prefix = "" if name == "root" else f"/{name}"
    scheme = {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}}
    given = {
        "card": card_of(prefix, securitySchemes=scheme),
        "verifiers": {"key": ApiKeyVerifier(STORES[name])},
        "other_paths": [f"{prefix}/files/"],
        **options,
    }
    return ProtectedAgent(**grouped(given))


def guarded(app: Any, *, has_root: bool, **ops: Any) -> Any:
    agents = {"/ops": agent("ops", **ops), "/billing": agent("billing")}
    if has_root:
        return protect_agents(app, {**agents, "/": agent("root", other_paths=["/files/", "/api/", "/x/"])})
    return protect_agents(app, agents, unguarded_paths=["/files/", "/api/", "/x/"])


async def send(origin: str, method: str, target: str, *lines: str) -> tuple[int, bytes]:
    head = "".join(f"{line}\r\n" for line in ("Host: agent.example", "Connection: close", *lines))
    return await raw_exchange(origin, f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode())


@walk(
    ("kind", "http"),
    [
        ("mounted", "h11"),
        ("fastapi", "httptools"),
        ("with_its_own_prefix", "h11"),
        ("tidied", "h11"),
        ("tidied", "httptools"),
    ],
)
@walk("has_root", [True, False])
async def test_no_spelling_leads_a_caller_to_an_agent_that_does_not_know_him(
    kind: str, http: str, *, has_root: bool
) -> None:
    reached = Reached()
    app = guarded(getattr(reached, kind)(), has_root=has_root)
    intruders = ["ops", "root"] if has_root else ["ops"]
    async with uvicorn_serving(app, http) as origin:
        for target in SPELLINGS:
            for name in intruders:
                for method in METHODS:
                    _, answer = await send(origin, method, target, f"X-API-Key: {KEYS[name]}")
                    assert b"for callers of billing" not in answer, (name, method, target)
            _, answer = await send(origin, "GET", target)
            assert b"for callers of billing" not in answer, target
        assert [each for each in reached.requests if each[0] == "billing"] == []
        for name in intruders:  # and they are no strangers at home
            home = "/files/1" if name == "root" else f"/{name}/files/1"
            assert (await send(origin, "GET", home, f"X-API-Key: {KEYS[name]}"))[0] == 200
        _, answer = await send(origin, "GET", "/billing/rest/tasks", f"X-API-Key: {KEYS['billing']}")
        assert answer.endswith(b"for callers of billing")


@pytest.mark.parametrize(("root", "http"), [("/api", "h11"), ("/ops", "httptools"), ("/billing", "h11")])
async def test_no_root_path_of_the_server_leads_there(root: str, http: str) -> None:
    reached = Reached()
    async with uvicorn_serving(guarded(reached.mounted(), has_root=True), http, root_path=root) as origin:
        for target in [*SPELLINGS, *(f"{root}{spelling}" for spelling in SPELLINGS if spelling.startswith("/"))]:
            for name in ("ops", "root"):
                _, answer = await send(origin, "GET", target, f"X-API-Key: {KEYS[name]}")
                assert b"for callers of billing" not in answer, (name, target)
        assert [each for each in reached.requests if each[0] == "billing"] == []
        _, answer = await send(origin, "GET", "/billing/files/1", f"X-API-Key: {KEYS['billing']}")
        assert answer.endswith(b"for callers of billing")


@pytest.mark.parametrize(("kind", "http"), [("mounted", "h11"), ("tidied", "httptools")])
async def test_no_websocket_leads_there(kind: str, http: str) -> None:
    nonce = base64.b64encode(bytes(16)).decode()
    shake = ("Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {nonce}")
    reached = Reached()
    async with uvicorn_serving(guarded(getattr(reached, kind)(), has_root=False), http, ws="wsproto") as origin:

        async def handshake(target: str, name: str) -> int:
            head = "".join(f"{line}\r\n" for line in (*shake, "Connection: Upgrade", f"X-API-Key: {KEYS[name]}"))
            request = f"GET {target} HTTP/1.1\r\nHost: agent.example\r\n{head}\r\n"
            return (await raw_exchange(origin, request.encode(), until=b"\r\n\r\n"))[0]

        for target in SPELLINGS:
            await handshake(target, "ops")
        assert [each for each in reached.requests if each[0] == "billing"] == []
        assert await handshake("/ops/files/live", "ops") == 101
        assert reached.requests[-1][0] == "ops"


@pytest.mark.parametrize("kind", KINDS)
async def test_preflights_that_one_agent_lets_pass_are_for_that_agent_alone(kind: str) -> None:
    reached = Reached()
    app = guarded(getattr(reached, kind)(), has_root=False, allow_cors_preflight=True)
    preflight = ("Origin: https://page.example", "Access-Control-Request-Method: POST")
    async with uvicorn_serving(app, "h11") as origin:
        for target in SPELLINGS:
            await send(origin, "OPTIONS", target, *preflight)
        assert [each for each in reached.requests if each[0] == "billing"] == []
        await send(origin, "OPTIONS", "/ops/files/1", *preflight)
        assert reached.requests[-1] == ("ops", "a stranger")


@pytest.mark.parametrize("location", ["query", "cookie"])
async def test_a_key_in_a_query_or_a_cookie_is_for_its_agent_alone(location: str) -> None:
    scheme = {"key": {"apiKeySecurityScheme": {"location": location, "name": "key"}}}
    agents = {
        f"/{name}": agent(
            name,
            card=card_of(f"/{name}", securitySchemes=scheme, description=f"for callers of {name}"),
            readers=CardReaders.CALLERS,
        )
        for name in ("ops", "billing")
    }
    reached = Reached()
    app = protect_agents(reached.mounted(), agents, card_of=lambda query: f"/{query['id']}")
    async with uvicorn_serving(app, "h11") as origin:

        async def read(path: str, query: str, key: str) -> bytes:
            if location == "cookie":
                return (await send(origin, "GET", f"{path}?{query}", f"Cookie: key={key}"))[1]
            return (await send(origin, "GET", f"{path}?{query}&key={key}"))[1]

        path = "/.well-known/agent-card.json"
        for query in (
            "id=billing",
            "id=billing&id=ops",
            "id=ops&id=billing",
            "id=%62illing",
            "id=billing%00",
            "ID=billing",
        ):
            assert b"for callers of billing" not in await read(path, query, KEYS["ops"]), query
        for spelling in (f"/billing{path}", "/billing/rest/tasks", "/ops/../billing/rest/tasks"):
            assert b"for callers of billing" not in await read(spelling, "", KEYS["ops"])
        assert b"for callers of ops" in await read(path, "id=ops", KEYS["ops"])
        assert b"for callers of billing" in await read(path, "id=billing", KEYS["billing"])
    assert reached.requests == []


async def test_agents_that_are_called_at_once_keep_their_callers() -> None:
    reached = Reached()
    async with uvicorn_serving(guarded(reached.mounted(), has_root=True), "h11") as origin:

        async def call(name: str, other: str) -> tuple[int, bytes]:
            return await send(origin, "GET", f"/{other}/files/1", f"X-API-Key: {KEYS[name]}")

        pairs = [(name, other) for name in ("ops", "billing") for other in ("ops", "billing")] * 10
        answers = await asyncio.gather(*(call(*pair) for pair in pairs))
    for (name, other), (status, answer) in zip(pairs, answers, strict=True):
        assert (status == 200, f"for callers of {other}".encode() in answer) == (name == other, name == other)
    assert {name in user for name, user in reached.requests} == {True}
