"""M23: an application is reached on a way that its guard does not stand in.

Seen with tools that look for applications in a module: ``fastapi run`` serves the first ``FastAPI`` instance, which was
the one without the guard; and with middleware that is added later, and answers before the guard is asked.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from a2a_trust.auth.record_table import SqliteApiKeys
from a2a_trust.middleware.application import FromApplication
from a2a_trust.middleware.protection import protect
from tests.middleware.agent import CARD, KEY, verifiers

pytestmark = pytest.mark.anyio

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
GOOD = {"X-API-Key": KEY}
OPTIONS: dict[str, Any] = {"card": CARD, "verifiers": verifiers()}


async def secret(*_: Any) -> PlainTextResponse:
    return PlainTextResponse("secret")


class Hasty:
    """A middleware that answers by itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await PlainTextResponse("secret")(scope, receive, send)


def routes() -> list[Route]:
    return [Route(path, secret, methods=["GET", "POST"]) for path in ("/", "/rpc", "/.well-known/agent-card.json")]


def starlette() -> Starlette:
    return Starlette(routes=routes())


def fastapi() -> FastAPI:
    app = FastAPI()
    app.router.routes.extend(routes())
    return app


kinds = pytest.mark.parametrize("make", [starlette, fastapi])


async def leaks(app: ASGIApp, **headers: str) -> list[str]:
    """The requests that get the secret."""
    found = []
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
        for method in ("GET", "POST", "HEAD", "OPTIONS"):
            for path in ("/", "/rpc", "/docs", "/nowhere", "/.well-known/agent-card.json"):
                response = await http.request(method, path, headers=headers)
                if "secret" in response.text or response.status_code not in (200, 401, 404, 405):
                    found.append(f"{method} {path}: {response.status_code}")
    return found


async def test_no_application_in_the_file_of_the_readme_is_without_its_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    SqliteApiKeys("keys.db", create=True)
    (agent,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "protect(" in block]
    names: dict[str, Any] = {}
    exec(agent, names)
    found = [each for each in names.values() if isinstance(each, Starlette)]
    assert found
    for app in found:
        app.router.routes.extend(routes())
        assert await leaks(app) == []


@kinds
async def test_middleware_that_is_added_later_does_not_answer_first(make: Any) -> None:
    app = make()
    inner = app
    protect(app, **OPTIONS)
    app.add_middleware(Hasty)
    assert await leaks(inner) == []
    assert await leaks(app, **GOOD)  # and is there


@kinds
async def test_no_tool_takes_the_guard_out(make: Any) -> None:
    """As OpenTelemetry's FastAPIInstrumentor takes out what it has put in, and what came later, too."""
    app = make()
    build, seen = app.build_middleware_stack, []

    def build_with_the_tool() -> ASGIApp:
        own = build()

        async def tool(scope: Scope, receive: Receive, send: Send) -> None:
            seen.append(scope["path"])
            await own(scope, receive, send)

        return tool

    app.build_middleware_stack = build_with_the_tool
    protect(app, **OPTIONS)
    assert await leaks(app) == []
    app.middleware_stack = build()
    assert await leaks(app) == []
    del app.build_middleware_stack
    app.middleware_stack = None
    assert await leaks(app) == []
    app.build_middleware_stack = build_with_the_tool
    app.middleware_stack = None
    assert await leaks(app) == []
    assert seen == []
    assert await leaks(app, **GOOD)
    assert seen


@kinds
async def test_a_mounted_application_has_its_guard(make: Any) -> None:
    assert await leaks(Starlette(routes=[Mount("/", protect(make(), **OPTIONS))])) == []


async def test_a_subclass_that_answers_first_is_guarded() -> None:
    class Own(FastAPI):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await PlainTextResponse("secret")(scope, receive, send)

    assert await leaks(protect(Own(), **OPTIONS)) == []


@kinds
async def test_until_a_late_card_is_there_nothing_is_served(make: Any) -> None:
    app = protect(make(), card=FromApplication(), verifiers=verifiers())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
        for path in ("/", "/rpc", "/.well-known/agent-card.json"):
            response = await http.get(path, headers=GOOD)
            assert (response.status_code, "secret" in response.text) == (503, False)
