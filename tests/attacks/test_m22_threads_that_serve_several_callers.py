"""M22: a thread with the context of one caller's request works for others, and ``current_principal`` names the first.

Ann's request begins a worker in each way that an application may choose, and waits for a thread of its own meanwhile.
Python copies her context into the worker and its threads. Then Bob's jobs come. The defense: a thread is of a request
only if a task of that request waits for it, which the scopes that anyio gives it say.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
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


def work(request: Request) -> str:
    said = current()
    with acting_for(request):
        return f"{said} {current()}"


InThread = Callable[..., Awaitable[str]]


async def by_anyio(*work: Any) -> str:
    return await anyio.to_thread.run_sync(*work)


async def by_anyio_within_a_scope(*work: Any) -> str:
    with anyio.CancelScope():
        said: str = await anyio.to_thread.run_sync(*work)
    return said


async def by_anyio_and_perhaps_abandoned(*work: Any) -> str:
    return await anyio.to_thread.run_sync(*work, abandon_on_cancel=True)


async def by_anyio_in_a_group(*work: Any) -> str:
    said: list[str] = []

    async def inner() -> None:
        said.append(await anyio.to_thread.run_sync(*work))

    async with anyio.create_task_group() as group:
        group.start_soon(inner)
    return said[0]


async def by_anyio_in_a_group_of_asyncio(*work: Any) -> str:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(by_anyio(*work))
    return task.result()


async def by_asyncio(*work: Any) -> str:
    return await asyncio.to_thread(*work)


class Application:
    """``/first`` begins a worker, and waits in a thread until the end; ``/job`` is answered by the worker."""

    def __init__(self, begin: str, in_thread: InThread) -> None:
        self.is_begun, self.may_end = threading.Event(), threading.Event()
        self._begin, self._in_thread = getattr(self, begin), in_thread
        self._jobs: queue.SimpleQueue[tuple[Request, Callable[[str], object]] | None] = queue.SimpleQueue()
        self._tasks: list[asyncio.Task[None]] = []
        routes = [Route("/first", self.first), Route("/job", self.job)]
        self.app = guarded(Starlette(routes=routes, lifespan=self.lifespan), rules=GuardRules(), clock=lambda: 1.0)

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        with ThreadPoolExecutor(4) as self.pool:
            async with anyio.create_task_group() as self.group, asyncio.TaskGroup() as self.asyncio_group:
                yield
                self._jobs.put(None)

    async def first(self, request: Request) -> PlainTextResponse:
        await self._begin()
        return PlainTextResponse(await anyio.to_thread.run_sync(self.wait))

    def wait(self) -> str:
        self.is_begun.set()
        self.may_end.wait(60)
        return current()

    async def job(self, request: Request) -> PlainTextResponse:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[str] = loop.create_future()
        self._jobs.put((request, lambda said: loop.call_soon_threadsafe(result.set_result, said)))
        return PlainTextResponse(await result)

    def next_job(self) -> tuple[Request, Callable[[str], object]] | None:
        return self._jobs.get()

    async def serve(self) -> None:
        """Each job is done in a thread, and so is the wait for it."""
        waits = copy_context()
        while (
            job := await asyncio.get_running_loop().run_in_executor(self.pool, waits.run, self.next_job)
        ) is not None:
            job[1](await self._in_thread(work, job[0]))

    def serve_in_one_thread(self) -> None:
        while (job := self.next_job()) is not None:
            job[1](work(job[0]))

    async def a_task(self) -> None:
        self._tasks.append(asyncio.create_task(self.serve()))

    async def a_task_of_a_group_of_the_application(self) -> None:
        self.group.start_soon(self.serve)

    async def a_task_of_a_group_of_asyncio(self) -> None:
        self.asyncio_group.create_task(self.serve())

    async def a_started_task(self) -> None:
        async def started(*, task_status: TaskStatus[None]) -> None:
            task_status.started()
            await self.serve()

        await self.group.start(started)

    async def a_started_task_with_scopes_from_before(self) -> None:
        async def started(*, task_status: TaskStatus[None]) -> None:
            with anyio.CancelScope():
                assert await self._in_thread(current) in ("ann", "nobody")
                async with anyio.create_task_group() as inner:
                    inner.start_soon(self.serve)
                    task_status.started()

        with anyio.CancelScope():
            await self.group.start(started)

    async def a_thread_of_a_pool(self) -> None:
        self.pool.submit(copy_context().run, self.serve_in_one_thread)

    async def a_thread_of_asyncio(self) -> None:
        self._tasks.append(asyncio.create_task(asyncio.to_thread(self.serve_in_one_thread)))

    async def a_thread_that_a_thread_began(self) -> None:
        await anyio.to_thread.run_sync(lambda: self.pool.submit(copy_context().run, self.serve_in_one_thread))

    async def a_task_that_a_thread_began(self) -> None:
        def begin() -> None:
            anyio.from_thread.run_sync(self.group.start_soon, self.serve)

        await anyio.to_thread.run_sync(begin)


BEGINNINGS = [name for name in vars(Application) if name.startswith("a_")]
IN_THREADS = [each for name, each in sorted(globals().items()) if name.startswith("by_")]


@pytest.mark.parametrize("in_thread", IN_THREADS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("begin", BEGINNINGS)
async def test_a_thread_of_a_worker_is_of_no_caller(begin: str, in_thread: InThread) -> None:
    application = Application(begin, in_thread)
    async with (
        uvicorn_serving(application.app, "h11", lifespan="on") as origin,
        httpx.AsyncClient(base_url=origin, headers={"X-API-Key": KEY}, timeout=60) as ann,
        httpx.AsyncClient(base_url=origin, headers={"X-API-Key": BOBS_KEY}, timeout=60) as bob,
    ):
        first = asyncio.create_task(ann.get("/first"))
        while not application.is_begun.is_set():
            assert not first.done()
            await asyncio.sleep(0)
        try:
            assert [(await each.get("/job")).text for each in (bob, ann)] == ["nobody bob", "nobody ann"]
        finally:
            application.may_end.set()
        assert (await first).text == "ann"
