"""M21: what tests make callers with opens a guard, or a request carries a caller along."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from a2a_trust import ConfigurationError, RequestRules, current_principal, principal_of, protect
from a2a_trust.errors import NoCallerError
from a2a_trust.testing import as_caller, fake_principal, memory_client
from tests.middleware.agent import CARD, KEY, Agent, guarded, raw_exchange, uvicorn_serving, verifiers

pytestmark = pytest.mark.anyio

ROOT = fake_principal("root", scopes=["read", "admin"])
HERE = "http://agent.example"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def tell(request: Request) -> PlainTextResponse:
    names = {caller.display_name for caller in (principal_of(request), current_principal(), request.user)}
    return PlainTextResponse(" ".join(names))


def agent() -> Starlette:
    return Starlette(routes=[Route("/who", tell), Route("/healthz", tell)])


def protected(app: Any) -> Any:
    card = {**CARD, "securityRequirements": [{"schemes": {"key": {}}}]}
    rules = RequestRules(public_paths=["/healthz"])
    return protect(app, card=card, verifiers={"key": verifiers()["key"]}, rules=rules)


@pytest.mark.parametrize("app", [agent, Agent])
def test_what_is_protected_gets_no_caller(app: Callable[[], Any]) -> None:
    with pytest.raises(ConfigurationError, match="as_caller: the application is protected"):
        as_caller(protected(app()), ROOT)


def later(app: Any) -> Any:
    """The application gets its guard when it has its caller already."""
    outer = as_caller(app, ROOT)
    protected(app)
    return outer


HIDDEN: list[Callable[[Any], Any]] = [
    lambda app: as_caller(CORSMiddleware(protected(app)), ROOT),
    lambda app: as_caller(Starlette(routes=[Mount("/", protected(app))]), ROOT),
    lambda app: as_caller(guarded(app), ROOT),
    later,
]


@pytest.mark.parametrize("hide", HIDDEN)
async def test_a_guard_that_is_not_seen_judges_all_the_same(hide: Callable[[Any], Any]) -> None:
    async with memory_client(hide(agent()), base_url=HERE) as http:
        assert (await http.get("/who")).status_code == 401
        assert (await http.get("/who", headers={"X-API-Key": "a2a_guessed"})).status_code == 401
        assert (await http.get("/who", headers={"X-API-Key": KEY})).text == "ann@api-keys"


@pytest.mark.parametrize("path", ["/who", "/healthz"])
async def test_nobody_becomes_another_caller_behind_a_guard(path: str) -> None:
    app = protected(as_caller(agent(), ROOT))
    async with memory_client(app, base_url=HERE) as http:
        with pytest.raises(ConfigurationError, match="this request has come through a guard already"):
            await http.get(path, headers={"X-API-Key": KEY})


NAMES = ("user", "auth", "a2a_trust.principal", "state", "extensions", "scope")
VALUE = json.dumps({"identities": [["key", {"issuer": "api-keys", "subject": "root"}]]})


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_no_request_carries_a_caller_along(http: str) -> None:
    seen: list[Any] = []

    async def unguarded(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        with pytest.raises(ConfigurationError, match="did not come through protect"):
            principal_of(scope)
        with pytest.raises(NoCallerError, match="no request is being answered"):
            current_principal()
        await PlainTextResponse("nobody")(scope, receive, send)

    lines = "".join(f"{name}: {VALUE}\r\n" for name in NAMES) + f"Cookie: {'; '.join(f'{n}=root' for n in NAMES)}\r\n"
    target = "/" + "&".join(f"{name}=root" for name in NAMES).replace("user", "?user", 1)
    request = f"GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n".encode()
    async with uvicorn_serving(unguarded, http) as origin:
        status, said = await raw_exchange(origin, request)
        assert (status, said.endswith(b"nobody")) == (200, True)
    assert {"user", "auth", "a2a_trust.principal"}.isdisjoint(seen[0])
    async with uvicorn_serving(protected(agent()), http) as origin:
        assert (await raw_exchange(origin, request.replace(b"/?", b"/who?")))[0] == 401
