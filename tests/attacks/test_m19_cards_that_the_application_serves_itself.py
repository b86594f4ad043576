"""M19: the application's own card, which nobody signed, or its own extended card, reaches a reader.

Whoever reads it at another path, in another spelling or by another method gets rules that are not enforced, and a card
that a proxy in between can change. The defenses: paths of no interface must be named, no unguarded path ends like that
of a card, and the endpoint for extended cards stands between the application and its callers.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, Final

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from a2a_trust.auth.principal import Principal
from a2a_trust.card.merge import CardSecurity
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.middleware.application import FromApplication
from a2a_trust.middleware.card import CardReaders
from a2a_trust.middleware.extended_card import ExtendedCard
from a2a_trust.middleware.protection import CardServing, ProtectedAgent, protect, protect_agents
from tests.middleware.agent import CARD, KEY, grouped, raw_exchange, uvicorn_serving, verifiers
from tests.middleware.several import card_of
from tests.middleware.test_protection import PATHS
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


MARK: Final = b"made by the application"
SCHEMES: Final = {"key": CARD["securitySchemes"]["key"]}
SECURITY: Final = CardSecurity(schemes=SCHEMES, requirements=[{"schemes": {"key": {"list": []}}}])
VERIFIERS: Final = {"key": verifiers()["key"]}


def bare(prefix: str, **members: Any) -> dict[str, Any]:
    """A card as frameworks generate it: without schemes and requirements."""
    card = card_of(prefix, description=MARK.decode(), **members)
    return {name: value for name, value in card.items() if not name.startswith("security")}


def application(kind: str, *, promises: bool = False) -> Any:
    """Two agents with cards of their own, at the well-known paths and at one more."""
    capabilities = {"capabilities": {"extendedAgentCard": True}} if promises else {}
    mounts: list[Mount] = []
    for prefix in ("/billing", "/ops"):

        async def card(request: Request, prefix: str = prefix) -> JSONResponse:
            return JSONResponse(bare(prefix, **capabilities))

        async def rpc(request: Request, prefix: str = prefix) -> JSONResponse:
            call = await request.json()
            return JSONResponse({"jsonrpc": "2.0", "id": call["id"], "result": bare(prefix, **capabilities)})

        extended = ("/rest/extendedAgentCard", "/rest/v1/card", "/rest/{tenant}/extendedAgentCard")
        routes = [Route(path, card) for path in (*PATHS, "/card.json", *extended)]
        mounts.append(Mount(prefix, Starlette(routes=[*routes, Route("/rpc", rpc, methods=["POST"])])))

    async def of_the_root(request: Request) -> JSONResponse:
        return JSONResponse(bare(f"/{request.query_params.get('id', 'billing')}"))

    routes_of_all: list[Mount | Route] = [
        *mounts,
        *(Route(path, of_the_root) for path in (*PATHS, "/static/agent-card.json")),
    ]
    if kind == "fastapi":
        app = FastAPI(openapi_url=None)
        app.router.routes.extend(routes_of_all)
        return app
    return Starlette(routes=routes_of_all)


def guarded(app: Any, *, readers: CardReaders = CardReaders.EVERYBODY, **options: Any) -> Any:
    agents = {}
    for prefix in ("/billing", "/ops"):
        serving = CardServing(signer=generate_signer(), readers=readers, card_paths=[f"{prefix}/further/card.json"])
        given: dict[str, Any] = {"card": FromApplication(), "verifiers": VERIFIERS, "security": SECURITY, **options}
        agents[prefix] = ProtectedAgent(**grouped(given), serving=serving)
    return protect_agents(
        app,
        agents,
        card_of=lambda query: f"/{query['id']}",
        unguarded_paths=["/.well-known/", "/static/", "/docs"],
    )


def spellings(path: str) -> list[str]:
    """Other targets that lead a router to the path, or could."""
    folder, _, name = path.rpartition("/")
    encoded = "".join(f"%{ord(char):02x}" for char in name)
    return [
        *(path, f"{path}/", f"/{path}", f"{folder}//{name}", f"{folder}/./{name}", f"{folder}/x/../{name}"),
        *(f"{folder}/{encoded}", f"{folder}%2f{name}", path.replace(".", "%2e"), path.replace(".", "%252e")),
        *(
            f"{folder}/{name.upper()}",
            path.upper(),
            f"{path};x",
            f"{path}%00",
            f"{path}%20",
            f"{path}%0a",
            f"{path}%3fx",
        ),
        *(
            f"{path}?",
            f"{path}?x=1",
            f"{path}?id=ops&id=billing",
            f"{path}?id=none",
            f"{path}#x",
            f"/x{path}",
            f"/static{path}",
        ),
        *(f"http://agent.example{path}", f"{path.replace('/', chr(92))}", f"{folder}/{name}{chr(92)}"),
    ]


PLACES: Final = [
    *(f"{prefix}{path}" for prefix in ("", "/billing", "/ops") for path in (*PATHS, "/card.json")),
    *("/static/agent-card.json", "/static/../.well-known/agent-card.json", "/billing/../.well-known/agent.json"),
    *("/billing/further/card.json", "/docs/../billing/card.json", "/.well-known/../billing/card.json"),
]


async def send(origin: str, method: str, target: str, *lines: str, body: bytes = b"") -> tuple[int, bytes, bytes]:
    """The status, all lines of the head, and the body."""
    head = "".join(f"{line}\r\n" for line in ("Host: agent.example", "Connection: close", *lines))
    sized = f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n" if body else ""
    request = f"{method} {target} HTTP/1.1\r\n{head}{sized}\r\n".encode() + body
    status, answer = await raw_exchange(origin, request)
    top, _, rest = answer.partition(b"\r\n\r\n")
    return status, top, rest


HINTS: Final = [("A2A-Version: 0.3",), ("X-Original-URL: /billing/card.json",)]


def assert_signed(target: str, body: bytes) -> None:
    if MARK in body:
        card = json.loads(body)
        card = card.get("result", card)
        assert card.get("signatures"), target
        header = card["signatures"][0]["protected"]
        assert b"kid" in base64.urlsafe_b64decode(f"{header}==")


@pytest.mark.parametrize(("kind", "http"), [("starlette", "h11"), ("fastapi", "httptools")])
@pytest.mark.parametrize("caller", [(), (f"X-API-Key: {KEY}",)])
async def test_no_path_and_no_spelling_leads_to_a_card_without_signature(
    kind: str, http: str, caller: tuple[str, ...]
) -> None:
    app = guarded(application(kind))
    async with uvicorn_serving(app, http, lifespan="on") as origin:
        for place in PLACES:
            for target in spellings(place):
                for lines in ((), *HINTS) if kind == "starlette" else ((),):
                    _, _, body = await send(origin, "GET", target, *caller, *lines)
                    assert_signed(target, body)
        for path in (f"/billing{PATHS[0]}", "/billing/further/card.json", f"{PATHS[0]}?id=billing"):
            status, _, body = await send(origin, "GET", path)
            assert (status, MARK in body) == (200, True)


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_cards_for_callers_are_read_by_no_stranger(http: str) -> None:
    app = guarded(application("starlette"), readers=CardReaders.CALLERS)
    async with uvicorn_serving(app, http, lifespan="on") as origin:
        for place in PLACES:
            for target in spellings(place):
                for method in ("GET", "POST"):
                    assert MARK not in (await send(origin, method, target))[2], target
        _, _, body = await send(origin, "GET", f"{PATHS[0]}?id=ops", f"X-API-Key: {KEY}")
        assert_signed("its own", body)
        assert MARK in body


async def test_one_agent_alone_shows_strangers_its_signed_card_only() -> None:
    for card in (FromApplication(), FromApplication("/card.json")):
        serving = CardServing(signer=generate_signer(), card_paths=["/billing/agent-card.json"])
        inner = application("starlette").routes[0].app  # the application of one agent
        app = protect(inner, card=card, verifiers=VERIFIERS, security=SECURITY, serving=serving)
        async with uvicorn_serving(app, "h11", lifespan="on") as origin:
            for path in (*PATHS, "/card.json", "/billing/agent-card.json"):
                for target in spellings(path):
                    for method in ("GET", "HEAD", "POST"):
                        assert_signed(target, (await send(origin, method, target))[2])
            assert MARK in (await send(origin, "GET", PATHS[0]))[2]


@walk(
    "entry",
    [*PATHS, "/x/agent-card.json", "/Agent.JSON", "/x;y/agent.json", "/static/AGENT-CARD.json", "/billing/card.json"],
)
def test_no_entry_of_unguarded_paths_is_a_card(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="unguarded_paths"):
        protect_agents(
            application("starlette"),
            {"/billing": ProtectedAgent(card=card_of("/billing"), verifiers=VERIFIERS)},
            unguarded_paths=[entry],
        )


EXTENDED_NAMES: Final = [
    *("/billing/rest/extendedAgentCard", "/billing/rest/v1/card", "/billing/rest/acme/extendedAgentCard"),
    *("/billing/agent/authenticatedExtendedCard", "/billing/rest/agent/authenticatedExtendedCard"),
]


def calls() -> list[bytes]:
    methods = ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard", "agent\\u002fgetAuthenticatedExtendedCard")
    return [f'{{"jsonrpc":"2.0","id":1,"method":"{method}"}}'.encode() for method in methods]


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_its_extended_card_is_for_callers_and_signed(http: str) -> None:
    asked: list[Principal] = []

    def may_read(caller: Principal) -> bool:
        asked.append(caller)
        return True

    source = ExtendedCard(FromApplication(), may_read=may_read)
    app = guarded(application("starlette", promises=True), extended_card=source)
    async with uvicorn_serving(app, http, lifespan="on") as origin:
        for name in EXTENDED_NAMES:
            for target in spellings(name):
                for lines in ((), ("X-API-Key: wrong",), ("Authorization: Bearer x",)):
                    for method in ("GET", "HEAD", "POST"):
                        assert MARK not in (await send(origin, method, target, *lines))[2], target
        for body in calls():
            for target in ("/billing/rpc", "/billing/rpc/", "//billing/rpc", "/billing/RPC"):
                assert MARK not in (await send(origin, "POST", target, body=body))[2], (target, body)
        assert asked == []
        found = 0
        good = f"X-API-Key: {KEY}"
        for name in EXTENDED_NAMES:
            for target in spellings(name):
                _, _, body = await send(origin, "GET", target, good)
                assert_signed(target, body)
                found += MARK in body
        for body in calls():
            for target in ("/billing/rpc", "/billing/rpc/", "//billing/rpc", "/billing/RPC"):
                _, _, answer = await send(origin, "POST", target, good, body=body)
                assert_signed(target, answer)
                found += MARK in answer
        assert found >= 5
        assert len(asked) >= found


async def test_its_extended_card_is_not_asked_for_where_may_read_says_no() -> None:
    reached: list[str] = []
    inner = application("starlette", promises=True)

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            reached.append(scope["path"])
        await inner(scope, receive, send)

    app = guarded(counted, extended_card=ExtendedCard(FromApplication(), may_read=lambda caller: False))
    async with uvicorn_serving(app, "h11", lifespan="on") as origin:
        reached.clear()
        good = f"X-API-Key: {KEY}"
        answers = await asyncio.gather(
            *(send(origin, "GET", name, good) for name in EXTENDED_NAMES),
            *(send(origin, "POST", "/billing/rpc", good, body=body) for body in calls()),
        )
        assert not any(MARK in body for *_, body in answers)
    assert reached == []
