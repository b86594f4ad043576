"""M22: a worker that one caller's request began works for other callers, and ``current_principal`` names the first one.

The application has a task group for all of its life. The first request awaits ``group.start(worker)``, so until
``task_status.started()`` the worker is a task of that request; afterwards it is a task of the application. The first
caller keeps its request open, by not reading the answer, while the worker answers others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
from anyio.abc import TaskStatus
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from a2a_trust.errors import NoCallerError
from a2a_trust.middleware.caller import acting_for, current_principal
from a2a_trust.middleware.options import GuardRules
from tests.middleware.agent import KEY, STORE, guarded, uvicorn_serving

pytestmark = pytest.mark.anyio

BOBS_KEY = STORE.create(owner="bob", scopes=["read"]).text


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def current() -> str:
    try:
        return current_principal().label
    except NoCallerError:
        return "nobody"


class Application:
    """``/first`` begins the worker and then does not end; ``/job`` is answered by the worker."""

    def __init__(self, *, has_inner_task: bool) -> None:
        self.before: list[str] = []
        self.is_begun, self.may_end = asyncio.Event(), asyncio.Event()
        self._jobs: asyncio.Queue[tuple[Request, asyncio.Future[str]]] = asyncio.Queue()
        self._has_inner_task = has_inner_task
        routes = [Route("/first", self.first), Route("/job", self.job)]
        self.app = guarded(Starlette(routes=routes, lifespan=self.lifespan), rules=GuardRules(), clock=lambda: 1.0)

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        async with anyio.create_task_group() as self.group:
            yield
            self.group.cancel_scope.cancel()

    async def first(self, request: Request) -> PlainTextResponse:
        await self.group.start(self.worker)
        self.is_begun.set()
        await self.may_end.wait()
        return PlainTextResponse(current())

    async def job(self, request: Request) -> PlainTextResponse:
        result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait((request, result))
        return PlainTextResponse(await result)

    async def worker(self, *, task_status: TaskStatus[None]) -> None:
        self.before.append(current())
        if not self._has_inner_task:
            task_status.started()
            await self.serve()
        async with anyio.create_task_group() as inner:
            asked = anyio.Event()
            inner.start_soon(self.serve, asked)
            await asked.wait()
            task_status.started()

    async def serve(self, asked: anyio.Event | None = None) -> None:
        if asked is not None:
            self.before.append(current())
            asked.set()
        while True:
            request, result = await self._jobs.get()
            said = current()
            with acting_for(request):
                result.set_result(f"{said} {current()}")


@pytest.mark.parametrize("has_inner_task", [False, True])
async def test_a_worker_is_of_no_caller_once_it_has_started(has_inner_task: bool) -> None:
    application = Application(has_inner_task=has_inner_task)
    async with (
        uvicorn_serving(application.app, "h11", lifespan="on") as origin,
        httpx.AsyncClient(base_url=origin, headers={"X-API-Key": KEY}, timeout=60) as ann,
        httpx.AsyncClient(base_url=origin, headers={"X-API-Key": BOBS_KEY}, timeout=60) as bob,
    ):
        first = asyncio.create_task(ann.get("/first"))
        await application.is_begun.wait()
        try:
            assert application.before == ["ann"] * (1 + has_inner_task), "the request waits for it until then"
            assert [(await each.get("/job")).text for each in (bob, ann)] == ["nobody bob", "nobody ann"]
        finally:
            application.may_end.set()
        assert (await first).text == "ann"
