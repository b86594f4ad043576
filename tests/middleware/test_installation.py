"""Where a guard stands: inside applications of Starlette and FastAPI, around others."""

from __future__ import annotations

from copy import copy
from functools import update_wrapper
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware.application import FromApplication
from a2a_trust.middleware.door import is_protected
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import ProtectedAgent, protect, protect_agents
from tests.middleware.agent import CALL, CARD, KEY, Agent, verifiers

pytestmark = pytest.mark.anyio

GOOD = {"X-API-Key": KEY}
OPTIONS: dict[str, Any] = {"card": CARD, "verifiers": verifiers()}


class Seen:
    """A middleware that remembers the paths that it sees."""

    def __init__(self, app: ASGIApp, paths: list[str]) -> None:
        self._app, self._paths = app, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._paths.append(scope.get("path", scope["type"]))
        await self._app(scope, receive, send)


async def rpc(request: Request) -> JSONResponse:
    return JSONResponse({"user": request.user.label, "app": request.app.state.name})


def starlette(**options: Any) -> Starlette:
    app = Starlette(routes=[Route("/rpc", rpc, methods=["POST"], name="rpc")], **options)
    app.state.name = "starlette"
    return app


def fastapi(**options: Any) -> FastAPI:
    app = FastAPI(**options)
    app.add_api_route("/rpc", rpc, methods=["POST"], name="rpc")
    app.state.name = "fastapi"
    return app


async def statuses(app: ASGIApp, *paths: str, headers: dict[str, str] | None = None) -> list[int]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
        return [(await http.post(path, json=CALL, headers=headers)).status_code for path in paths or ("/rpc",)]


@pytest.mark.parametrize("make", [starlette, fastapi])
async def test_the_application_stays_the_object_that_it_was(make: Any) -> None:
    app = make()
    assert protect(app, **OPTIONS) is app
    assert is_protected(app)
    assert (app.url_path_for("rpc"), app.state.name) == ("/rpc", make.__name__)
    assert await statuses(app) == [401]
    assert await statuses(app, headers=GOOD) == [200]


@pytest.mark.parametrize("make", [starlette, fastapi])
async def test_the_guard_is_outside_of_all_middleware(make: Any) -> None:
    before: list[str] = []
    after: list[str] = []
    app = protect(make(middleware=[Middleware(Seen, before)]), **OPTIONS)
    app.add_middleware(Seen, after)
    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    app.router.routes.append(Route("/added", rpc, methods=["POST"]))
    assert await statuses(app, "/rpc", "/added", "/nowhere") == [401] * 3
    assert before == after == []
    assert await statuses(app, "/rpc", "/added", "/nowhere", headers=GOOD) == [200, 200, 404]
    assert before == after == ["/rpc", "/added", "/nowhere"]
    with pytest.raises(RuntimeError, match="Cannot add middleware"):
        app.add_middleware(Seen, after)


async def test_fastapis_own_pages_are_behind_it() -> None:
    app = protect(fastapi(), **OPTIONS)
    assert "/rpc" in app.openapi()["paths"]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
        for path in ("/docs", "/openapi.json", "/redoc"):
            assert (await http.get(path)).status_code == 401
            assert (await http.get(path, headers=GOOD)).status_code == 200


async def test_a_root_path_that_only_fastapi_knows_opens_nothing() -> None:
    """The guard comes before FastAPI sets it; a proxy that takes the prefix off has to be told of."""
    url = "http://agent.example/api/rpc"
    card = {
        **CARD,
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    }
    for rules, status in ((RequestRules(), 404), (RequestRules(served_at={url: "/rpc"}), 200)):
        app = fastapi()
        app.root_path = "/api"  # as FastAPI(root_path=…) does, which warns
        protect(app, **{**OPTIONS, "card": card}, rules=rules)
        assert await statuses(app, "/rpc", "/api/rpc", "/x/rpc") == [401] * 3
        assert (await statuses(app, headers=GOOD)) == [status]


async def test_the_applications_own_card_is_asked_for_inside() -> None:
    app = starlette()
    app.router.routes.append(Route("/.well-known/agent-card.json", lambda _: JSONResponse(CARD)))
    protect(app, card=FromApplication(), verifiers=verifiers(), url="http://agent.example")
    assert await statuses(app) == [401]
    assert await statuses(app, headers=GOOD) == [200]


async def test_several_agents_are_guarded_inside_too() -> None:
    interface = {"url": "http://agent.example/a/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    agent = ProtectedAgent(card={**CARD, "supportedInterfaces": [interface]}, verifiers=verifiers())
    app = Starlette(routes=[Mount("/a", starlette())])
    assert protect_agents(app, {"/a": agent}) is app
    assert await statuses(app, "/a/rpc", "/b") == [401, 404]
    assert await statuses(app, "/a/rpc", headers=GOOD) == [200]


class Hasty(FastAPI):
    """It answers before its middleware, and says that it is FastAPI's own function."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse("hasty")(scope, receive, send)

    update_wrapper(__call__, FastAPI.__call__)


async def test_an_application_with_a_call_of_its_own_is_guarded_too() -> None:
    app: Any = Hasty()
    assert protect(app, **OPTIONS) is app
    assert await statuses(app) == [401]
    assert await statuses(app, headers=GOOD) == [200]


@pytest.mark.parametrize("make", [starlette, fastapi])
async def test_a_tool_that_replaces_what_the_class_does_sees_admitted_requests_without_credentials(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make()
    kind, seen = type(app), []
    own = kind.__call__

    async def traced(self: Any, scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(dict(scope["headers"]))
        await own(self, scope, receive, send)

    protect(app, **OPTIONS)
    monkeypatch.setattr(kind, "__call__", traced)
    assert await statuses(app) == [401]
    assert seen == []
    assert await statuses(app, headers=GOOD) == [200]
    assert [headers.get(b"x-api-key") for headers in seen] == [None]


@pytest.mark.parametrize("make", [starlette, fastapi])
def test_its_class_is_still_what_it_was(make: Any) -> None:
    app = make()
    before = type(app)
    protect(app, **OPTIONS)
    assert isinstance(app, before)
    assert (type(app).__name__, type(app).__module__) == (before.__name__, before.__module__)
    assert not is_protected(make())


async def test_a_wrapper_has_the_public_attributes_of_the_application_only() -> None:
    agent = Agent()
    guarded: Any = protect(agent, **OPTIONS)
    assert guarded.scopes is agent.scopes
    assert await statuses(guarded) == [401]
    with pytest.raises(AttributeError, match="nothing_here"):
        guarded.nothing_here  # noqa: B018
    for private in ("_answer", "__wrapped__"):
        with pytest.raises(AttributeError, match="has no public attribute"):
            getattr(guarded, private)
    with pytest.raises(AttributeError):
        guarded.scopes = []


@pytest.mark.parametrize("make", [starlette, fastapi, Agent])
def test_an_application_has_one_guard(make: Any) -> None:
    guarded: ASGIApp = protect(make(), **OPTIONS)
    agents = {"/a": ProtectedAgent(**OPTIONS)}
    with pytest.raises(ConfigurationError, match=r"it is protected already; for several agents .* protect_agents"):
        protect(guarded, **OPTIONS)
    with pytest.raises(ConfigurationError, match="it is protected already"):
        protect_agents(guarded, agents)


async def test_one_that_served_before_can_be_protected() -> None:
    app = starlette()
    assert await statuses(app, "/nowhere") == [404]
    protect(app, **OPTIONS)
    assert await statuses(app, "/nowhere", "/rpc") == [401, 401]


async def test_what_does_not_start_is_left_as_it_was() -> None:
    app = starlette()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="verifiers"):
            protect(app, card=CARD, verifiers={})
    assert not is_protected(app)
    assert protect(app, **OPTIONS) is app
    assert await statuses(app) == [401]


# In a list of middleware


@pytest.mark.parametrize("make", [starlette, fastapi])
async def test_in_a_list_of_middleware_it_guards_what_comes_behind_it(make: Any) -> None:
    behind: list[str] = []
    in_front: list[str] = []
    app = make(middleware=[Middleware(protect, **OPTIONS), Middleware(Seen, behind)])
    app.add_middleware(Seen, in_front)  # as the documents warn
    assert await statuses(app) == [401]
    assert (in_front, behind) == (["/rpc"], [])
    assert await statuses(app, headers=GOOD) == [200]
    assert (in_front, behind) == (["/rpc"] * 2, ["/rpc"])


def test_the_type_of_a_wrapper_says_so() -> None:
    assert type(protect(Agent(), **OPTIONS)).__name__ == "ProtectedApplication"


@pytest.mark.parametrize("make", [starlette, Agent])
async def test_what_calls_the_class_of_the_application_meets_the_guard(make: Any) -> None:
    """Tools that patch a class call its ``__call__`` with the object."""
    app = protect(make(), **OPTIONS)

    async def by_its_class(scope: Scope, receive: Receive, send: Send) -> None:
        await type(app).__call__(app, scope, receive, send)

    assert await statuses(by_its_class) == [401]
    assert await statuses(by_its_class, headers=GOOD) == [200]


async def test_a_copy_of_a_wrapper_is_guarded_too() -> None:
    app = copy(protect(Agent(), **OPTIONS))
    assert is_protected(app)
    assert await statuses(app) == [401]
    assert await statuses(app, headers=GOOD) == [200]


# Event loops


@pytest.mark.parametrize("kind", ["http", "websocket", "lifespan"])
@pytest.mark.parametrize("make", [starlette, Agent])
def test_another_event_loop_than_that_of_asyncio_is_refused(make: Any, kind: str) -> None:
    """As under trio: the coroutine runs, and asyncio has no running loop."""
    prefixed = {
        **CARD,
        "supportedInterfaces": [{**CARD["supportedInterfaces"][0], "url": "http://agent.example/a/rpc"}],
    }
    several = {"/a": ProtectedAgent(**{**OPTIONS, "card": prefixed})}

    async def unused(*_: Any) -> Any:
        raise AssertionError

    for app in (protect(make(), **OPTIONS), protect_agents(make(), several)):
        with pytest.raises(
            ConfigurationError, match="another event loop than asyncio's, such as trio; run the agent and"
        ):
            app({"type": kind, "path": "/rpc", "headers": []}, unused, unused).send(None)
