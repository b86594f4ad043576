"""Handlers in tests know a fake caller in every way in which they know a real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.authentication import requires
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from a2a_trust import ConfigurationError, acting_for, current_principal, principal_of
from a2a_trust.auth import Anonymous
from a2a_trust.errors import NoCallerError
from a2a_trust.testing import as_caller, fake_principal, fake_request, memory_client

pytestmark = pytest.mark.anyio

ANN = fake_principal("ann", scopes=["read"])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_a_fake_principal_has_the_identity_of_one_credential() -> None:
    caller = fake_principal("bob", scheme="login", issuer="https://idp.test", scopes=["read"], claims={"groups": ["x"]})
    assert caller.display_name == "bob@https://idp.test"
    assert caller.scopes == {"read"}
    login = caller.by_scheme("login")
    assert login is not None
    assert (login.subject, login.claims["groups"]) == ("bob", ("x",))
    assert fake_principal().display_name == "ann@api-keys"
    with acting_for(caller):
        assert current_principal() is caller


async def seen(request: Request) -> JSONResponse:
    """All the ways in which a handler may ask who is calling."""
    callers = [principal_of(request), principal_of(request.scope), current_principal(), request.user]
    return JSONResponse([sorted({caller.display_name for caller in callers}), sorted(request.auth.scopes)])


@requires("admin")
async def admin(request: Request) -> JSONResponse:
    return JSONResponse("administered")


def agent() -> Starlette:
    return Starlette(routes=[Route("/", seen), Route("/admin", admin)])


@pytest.mark.parametrize("caller", [ANN, Anonymous()])
async def test_a_handler_knows_the_caller_in_every_way(caller: Any) -> None:
    async with memory_client(as_caller(agent(), caller)) as http:
        assert (await http.get("/")).json() == [[caller.display_name], sorted(caller.scopes)]


async def test_one_application_is_tested_with_several_callers_side_by_side() -> None:
    application, statuses = agent(), []
    for scope in ("read", "admin"):
        async with memory_client(as_caller(application, fake_principal(scopes=[scope]))) as http:
            statuses.append((await http.get("/admin")).status_code)
    assert statuses == [403, 200]


async def test_the_handlers_of_fastapi_know_it_too() -> None:
    app = FastAPI()

    @app.get("/")
    def sync_handler(request: Request) -> str:  # in a thread
        return principal_of(request).display_name

    async with memory_client(as_caller(app, ANN)) as http:
        assert (await http.get("/")).json() == "ann@api-keys"


async def test_a_websocket_is_from_the_caller() -> None:
    async def tell(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text(principal_of(websocket).display_name + current_principal().display_name)

    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/", "root_path": "", "query_string": b"", "headers": []}
    await as_caller(Starlette(routes=[WebSocketRoute("/", tell)]), ANN)(scope, receive, send)
    assert sent[1]["text"] == 2 * "ann@api-keys"
    assert "user" not in scope


async def test_after_the_request_nobody_is_calling() -> None:
    async with memory_client(as_caller(agent(), ANN)) as http:
        await http.get("/")
    with pytest.raises(NoCallerError, match="no request is being answered here"):
        current_principal()


async def test_the_lifespan_is_that_of_the_application() -> None:
    asked: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.extend((scope, receive, send))

    scope: dict[str, Any] = {"type": "lifespan", "state": {}}
    await as_caller(app, ANN)(scope, app, app)  # type: ignore[arg-type]
    assert asked == [scope, app, app]
    assert asked[0] is scope


async def test_a_handler_is_called_as_a_function() -> None:
    request = fake_request(ANN, path="/x")
    assert (principal_of(request), request.user, request.url.path) == (ANN, ANN, "/x")
    assert (request.auth.scopes, [*request.headers], request.method) == (["read"], [], "GET")
    assert (await admin_status(request), await admin_status(fake_request(fake_principal(scopes=["admin"])))) == (
        403,
        200,
    )


async def admin_status(request: Request) -> int:
    try:
        return int((await admin(request)).status_code)
    except HTTPException as refused:
        return refused.status_code


NAME: Any = "ann"
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: as_caller(agent(), NAME), r"str is not a caller; write fake_principal\('ann'\)"),
    (lambda: fake_request(NAME), r"str is not a caller; write fake_principal\('ann'\)"),
    (lambda: as_caller(NAME, ANN), "app: str is not an ASGI application"),
    (lambda: fake_principal(scopes="read"), r"scopes=\['read'\]"),
    (lambda: fake_principal(claims={"x": object()}), "claims: x is of the type object"),
]


@pytest.mark.parametrize(("call", "said"), WRONG)
def test_what_is_easily_mistaken_is_told(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        call()
