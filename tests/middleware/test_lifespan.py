"""The lifespans of an application and of those that are mounted in it, run as one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from a2a_trust.middleware.application import FromApplication
from a2a_trust.middleware.lifespan import run_lifespans
from a2a_trust.middleware.protection import protect_agents
from tests.middleware.several import agent_at, asked, card_of, judged_by, running
from tests.middleware.test_protection import PATHS

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Told:
    """What happened, in its order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def app(self, name: str, kind: Any = Starlette, *, start: str = "", stop: str = "", **options: Any) -> Any:
        """An application that tells when it starts and stops; ``start`` and ``stop`` are errors that it raises then."""

        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[dict[str, Any]]:
            assert app is application
            self.events.append(f"{name} starts")
            if start:
                raise RuntimeError(start)
            yield {name: True}
            self.events.append(f"{name} stops")
            if stop:
                raise RuntimeError(stop)

        application = kind(lifespan=lifespan, **options)
        return application


def together(*apps: Any, started: Callable[[], Any] | None = None) -> Any:
    async def nothing() -> str:
        return ""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await run_lifespans(apps, scope, receive, send, started=started or nothing)

    return app


@pytest.mark.parametrize("kind", [Starlette, FastAPI])
async def test_they_start_in_their_order_end_in_the_other_and_share_a_state(kind: Any) -> None:
    told = Told()

    async def started() -> str:
        told.events.append("all have started")
        return ""

    apps = [told.app(name, kind) for name in ("one", "two", "three")]
    async with running(together(*apps, started=started)) as lifespan:
        assert lifespan.kinds == ["startup.complete"]
        assert lifespan.state == {"one": True, "two": True, "three": True}
        assert told.events == ["one starts", "two starts", "three starts", "all have started"]
    assert lifespan.kinds == ["startup.complete", "shutdown.complete"]
    assert told.events[4:] == ["three stops", "two stops", "one stops"]


async def test_one_that_fails_to_start_stops_those_before_it_and_starts_none_after_it() -> None:
    told = Told()
    apps = [told.app("one"), told.app("two", start="no database"), told.app("three")]
    async with running(together(*apps)) as lifespan:
        assert "no database" in lifespan.failure
    assert lifespan.kinds == ["startup.failed"]
    assert told.events == ["one starts", "two starts", "one stops"]


async def test_a_failure_after_the_start_stops_all() -> None:
    told = Told()

    async def started() -> str:
        return "no card"

    async with running(together(told.app("one"), told.app("two"), started=started)) as lifespan:
        assert lifespan.failure == "no card"
    assert told.events == ["one starts", "two starts", "two stops", "one stops"]


async def test_failures_to_stop_are_told_together() -> None:
    told = Told()
    apps = [told.app("one", stop="first"), told.app("two"), told.app("three", stop="third")]
    async with running(together(*apps)) as lifespan:
        assert lifespan.kinds == ["startup.complete"]
    assert lifespan.kinds == ["startup.complete", "shutdown.failed"]
    message = lifespan.said[1]["message"]
    assert message.index("third") < message.index("first")
    assert told.events[3:] == ["three stops", "two stops", "one stops"]


async def raising(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"


async def returning(scope: Any, receive: Any, send: Any) -> None:
    return


async def receiving(scope: Any, receive: Any, send: Any) -> None:
    assert (await receive())["type"] == "lifespan.startup"
    assert (await receive())["type"] == "lifespan.shutdown"


async def failing_without_words(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.failed"})


async def crashing_at_the_end(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    raise ValueError("at the end")


async def crashing_meanwhile(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await anyio.wait_all_tasks_blocked()  # till the server waits for the end
    raise ValueError("meanwhile")


async def failing_to_stop(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.failed"})


@pytest.mark.parametrize("without", [raising, returning])
async def test_an_application_without_a_lifespan_has_started_at_once(without: Any) -> None:
    told = Told()
    async with running(together(without, told.app("two"))) as lifespan:
        assert lifespan.kinds == ["startup.complete"]
        assert told.events == ["two starts"]
    assert lifespan.kinds == ["startup.complete", "shutdown.complete"]


async def test_failures_without_words_are_failures() -> None:
    told = Told()
    async with running(together(told.app("one"), failing_without_words)) as lifespan:
        assert lifespan.failure == "the application failed to start"
    assert told.events == ["one starts", "one stops"]
    for app, words in (
        (crashing_at_the_end, "ValueError: at the end"),
        (crashing_meanwhile, "ValueError: meanwhile"),
        (failing_to_stop, "the application failed to stop"),
    ):
        async with running(together(told.app("one"), app)) as lifespan:
            assert lifespan.kinds == ["startup.complete"]
        assert lifespan.kinds[1] == "shutdown.failed"
        assert words in lifespan.said[1]["message"]


async def test_one_that_has_said_that_it_stopped_is_not_waited_for() -> None:
    has_stopped = anyio.Event()

    async def first(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        has_stopped.set()
        await send({"type": "lifespan.shutdown.complete"})

    async def second(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        await has_stopped.wait()

    async with running(together(first, second)) as lifespan:
        assert lifespan.kinds == ["startup.complete"]
    assert lifespan.kinds == ["startup.complete", "shutdown.complete"]


async def test_a_server_that_gives_up_ends_them() -> None:
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            async with running(together(receiving)):
                raise AssertionError  # it never says that it has started

        tasks.start_soon(serve)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()


async def test_without_a_state_there_is_none() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None: ...

    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    await together(app)({"type": "lifespan"}, receive, send)
    assert seen == [{"type": "lifespan"}]


async def test_mounted_agents_start_and_their_cards_are_asked_for_after_that() -> None:
    told = Told()

    def sub(name: str) -> Any:
        async def card(request: Request) -> JSONResponse:
            told.events.append(f"{name} is asked")
            assert request.state.outer
            assert request.state.billing
            assert request.state.ops
            return JSONResponse(card_of(f"/{name}"))

        return told.app(name, routes=[Route(PATHS[0], card)])

    billing, ops = sub("billing"), sub("ops")
    outer = told.app("outer", routes=[Mount("/billing", billing), Mount("/ops", ops)])
    agents = {prefix: agent_at(prefix, card=FromApplication()) for prefix in ("/billing", "/ops")}
    app = protect_agents(outer, agents, lifespans=[billing, ops])
    async with running(app) as lifespan:
        assert lifespan.kinds == ["startup.complete"]
        assert judged_by(await asked(app, "/ops/rpc")) == "X-ops"
    starts = ["outer starts", "billing starts", "ops starts", "billing is asked", "ops is asked"]
    assert told.events == [*starts, "ops stops", "billing stops", "outer stops"]
