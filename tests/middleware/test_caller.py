"""Who is calling: by the request, by the a2a-sdk's contexts, and by where the code runs."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from importlib.metadata import version
from types import SimpleNamespace
from typing import Annotated, Any

import anyio
import anyio.from_thread
import anyio.to_thread
import httpx
import hypercorn.asyncio
import pytest
from anyio.abc import TaskStatus
from fastapi import BackgroundTasks, Depends, FastAPI, Request
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from a2a_trust.auth.principal import Anonymous, Identity, Principal, SubjectToken
from a2a_trust.errors import ConfigurationError, MissingCredentialsError, NoCallerError
from a2a_trust.middleware.caller import (
    CallerCredentials,
    Running,
    acting_for,
    current_principal,
    principal_of,
    set_public,
    subject_token_of,
)
from a2a_trust.middleware.door import CardEnforcementMiddleware
from a2a_trust.middleware.options import GuardRules
from a2a_trust.middleware.protection import ProtectedAgent, protect_agents
from tests.middleware.agent import CARD, KEY, STORE, uvicorn_serving, verifiers
from tests.tables import walk
from tests.waiting import until

pytestmark = pytest.mark.anyio

ANN = Principal(identities=(("key", Identity(issuer="api-keys", subject="ann")),))
BOB = Principal(identities=(("key", Identity(issuer="api-keys", subject="bob")),))
BOBS_KEY = STORE.create(owner="bob", scopes=["read"]).text


def current() -> str:
    """Who it is, or why that is not known."""
    try:
        return current_principal().label
    except NoCallerError as error:
        return str(error).partition(":")[2].partition(",")[0].strip()


def guarded(app: Any) -> Any:
    return CardEnforcementMiddleware(app, card=CARD, verifiers=verifiers(), rules=GuardRules(public_paths=["/open"]))


def served(handler: Callable[[Any], Any], **options: Any) -> Any:
    return guarded(Starlette(routes=[Route("/{rest:path}", handler, methods=["GET", "POST"])], **options))


async def answers(app: Any, path: str = "/x", key: str = KEY) -> Any:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
        response = await http.get(path, headers={"X-API-Key": key})
        return response.json()


IN_ANOTHER_TASK = "this code does not run in the task of the request"
ENDED = "the request that this code belongs to has ended"


async def test_a_handler_knows_who_is_calling() -> None:
    async def handler(request: Request) -> JSONResponse:
        assert current_principal() is principal_of(request) is principal_of(request.scope)
        await asyncio.sleep(0)
        return JSONResponse(current())

    assert (
        await asyncio.gather(*(answers(served(handler), key=key) for key in (KEY, BOBS_KEY) * 5))
        == [
            "ann",
            "bob",
        ]
        * 5
    )


async def test_outside_of_requests_nobody_is_calling() -> None:
    with pytest.raises(NoCallerError, match=r"no request is being answered here.*acting_for"):
        current_principal()


async def test_so_it_is_below_a_middleware_that_starts_a_task_of_its_own() -> None:
    async def dispatch(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    async def handler(request: Request) -> JSONResponse:
        return JSONResponse(current())

    layers = [Middleware(BaseHTTPMiddleware, dispatch=dispatch)] * 3
    assert await answers(served(handler, middleware=layers)) == "ann"


async def test_a_streamed_answer_knows_who_is_calling() -> None:
    async def events() -> AsyncIterator[str]:
        for part in ('["', current(), '"]'):
            await asyncio.sleep(0)
            yield part

    async def handler(request: Request) -> StreamingResponse:
        return StreamingResponse(events())

    assert await answers(served(handler)) == ["ann"]


async def test_a_websocket_knows_who_is_calling() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(current())

    scope = {"type": "websocket", "path": "/x", "headers": [(b"x-api-key", KEY.encode())], "query_string": b""}
    await guarded(app)(scope, None, None)
    assert seen == ["ann"]


async def in_task() -> str:
    await asyncio.sleep(0)
    return current()


async def in_thread(**options: Any) -> str:
    return await anyio.to_thread.run_sync(current, **options)


async def test_other_tasks_and_threads_raise_although_they_see_the_request() -> None:
    async def handler(request: Request) -> JSONResponse:
        loop, context = asyncio.get_running_loop(), copy_context()
        with ThreadPoolExecutor(1) as pool:
            outside = [
                await asyncio.create_task(in_task()),
                *await asyncio.gather(in_task(), in_thread()),
                await asyncio.ensure_future(in_thread()),
                await asyncio.wait_for(asyncio.create_task(in_task()), 60),
                await asyncio.shield(in_task()),
                await asyncio.to_thread(current),
                await loop.run_in_executor(pool, context.run, current),
                await anyio.to_thread.run_sync(lambda: pool.submit(copy_context().run, current).result()),
                await anyio.to_thread.run_sync(lambda: asyncio.run(in_task())),
                await anyio.to_thread.run_sync(anyio.from_thread.run, in_task),
                await anyio.to_thread.run_sync(anyio.from_thread.run_sync, current),
            ]
        return JSONResponse([*outside, current()])

    assert await answers(served(handler)) == [IN_ANOTHER_TASK] * 12 + ["ann"]


async def test_a_thread_that_the_request_waits_for_is_of_its_caller() -> None:
    async def handler(request: Request) -> JSONResponse:
        inside = [
            await in_thread(),
            await in_thread(abandon_on_cancel=True),
            await in_thread(limiter=anyio.CapacityLimiter(1)),
            await run_in_threadpool(current),
            *[each async for each in iterate_in_threadpool(current() for _ in range(2))],
        ]
        with anyio.CancelScope(), anyio.CancelScope():
            inside += [await in_thread(), await in_thread(abandon_on_cancel=True)]
        with acting_for(BOB):
            inside += [await in_thread(), await asyncio.to_thread(current)]
        return JSONResponse(inside)

    assert await answers(served(handler)) == ["ann"] * 8 + ["bob"] * 2


async def test_a_task_of_a_group_and_its_thread_are_of_the_requests_caller() -> None:
    async def both(said: list[str]) -> None:
        said += [current(), await in_thread(), await in_thread(abandon_on_cancel=True)]
        said.append(await asyncio.create_task(in_task()))

    async def in_asyncio(said: list[str]) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(both(said)).add_done_callback(print)

    async def in_anyio(said: list[str]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(both, said)

    async def handler(request: Request) -> JSONResponse:
        said: list[str] = []
        await in_asyncio(said)
        await in_anyio(said)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(in_asyncio(said))
        async with anyio.create_task_group() as group:
            group.start_soon(in_anyio, said)
        return JSONResponse(said)

    assert await answers(served(handler)) == (["ann"] * 3 + [IN_ANOTHER_TASK]) * 4


async def test_groups_of_both_kinds_may_be_within_each_other() -> None:
    said: list[str] = []

    async def below(depth: int) -> None:
        said.append(current())
        if depth % 2:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(below(depth - 1))
        elif depth:
            async with anyio.create_task_group() as group:
                group.start_soon(below, depth - 1)

    async def handler(request: Request) -> JSONResponse:
        await below(5)
        return JSONResponse(current())

    assert await answers(served(handler)) == "ann"
    assert said == ["ann"] * 6


async def test_a_task_in_a_group_of_the_application_is_of_no_caller() -> None:
    async def handler(request: Request) -> JSONResponse:
        return JSONResponse([await outer.create_task(in_task()), await outer.create_task(in_thread())])

    async with asyncio.TaskGroup() as outer:
        assert await asyncio.create_task(answers(served(handler))) == [IN_ANOTHER_TASK] * 2


async def test_time_limits_run_in_the_request_itself() -> None:
    async def handler(request: Request) -> JSONResponse:
        async with asyncio.timeout(60):
            said = [await in_task()]
        with anyio.fail_after(60):
            said += [await in_task(), await in_thread()]
        return JSONResponse([*said, await asyncio.wait_for(in_task(), 60)])

    # Python 3.11 runs the coroutine in a task of its own, which cannot be told from one that was passed to wait_for.
    waited = "ann" if sys.version_info >= (3, 12) else IN_ANOTHER_TASK
    assert await answers(served(handler)) == ["ann"] * 3 + [waited]


async def test_a_thread_that_goes_on_after_the_request_is_of_no_caller() -> None:
    loop, may_look = asyncio.get_running_loop(), threading.Event()
    said: asyncio.Future[str] = loop.create_future()

    def work(give_up: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(give_up)
        may_look.wait(60)
        loop.call_soon_threadsafe(said.set_result, current())

    async def handler(request: Request) -> JSONResponse:
        with anyio.CancelScope() as scope:
            await anyio.to_thread.run_sync(work, scope.cancel, abandon_on_cancel=True)
        return JSONResponse(current())

    assert await answers(served(handler)) == "ann"
    may_look.set()
    assert await said == ENDED


async def test_a_callback_of_the_event_loop_raises_too() -> None:
    async def handler(request: Request) -> JSONResponse:
        said: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: said.set_result(current()))
        return JSONResponse(await said)

    assert await answers(served(handler)) == IN_ANOTHER_TASK


async def test_a_worker_that_a_request_started_is_no_part_of_a_later_one() -> None:
    """So a2a-sdk 1.0.0 runs the messages of all callers of a task: in a task that the first request started."""
    jobs: asyncio.Queue[asyncio.Future[str]] = asyncio.Queue()
    workers: list[asyncio.Task[None]] = []
    may_end = asyncio.Event()

    async def work() -> None:
        while True:
            (await jobs.get()).set_result(current())

    async def handler(request: Request) -> JSONResponse:
        if not workers:
            workers.append(asyncio.create_task(work()))
        if request.url.path == "/open-ended":
            await may_end.wait()
        result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        await jobs.put(result)
        return JSONResponse(await result)

    app = served(handler)
    first = asyncio.create_task(answers(app, "/open-ended"))
    while not workers:
        await asyncio.sleep(0)
    assert await answers(app, key=BOBS_KEY) == IN_ANOTHER_TASK
    may_end.set()
    assert await first == IN_ANOTHER_TASK
    assert await answers(app, key=BOBS_KEY) == ENDED
    workers[0].cancel()


async def test_a_task_that_outlives_its_request_raises() -> None:
    tasks: list[asyncio.Task[str]] = []
    go_on = asyncio.Event()

    async def later() -> str:
        await go_on.wait()
        return current()

    async def handler(request: Request) -> JSONResponse:
        tasks.append(asyncio.create_task(later()))
        return JSONResponse(current())

    assert await answers(served(handler)) == "ann"
    go_on.set()
    assert await tasks[0] == ENDED


async def test_a_request_within_a_request_is_of_its_own_caller() -> None:
    async def inner_handler(request: Request) -> JSONResponse:
        return JSONResponse(current())

    inner = served(inner_handler)

    async def handler(request: Request) -> JSONResponse:
        within = [await answers(inner, key=BOBS_KEY), await answers(inner, "/open")]
        return JSONResponse([*within, current()])

    assert await answers(served(handler)) == ["bob", ENDED, "ann"]


async def test_a_failing_handler_leaves_nobody_behind() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await answers(guarded(app))
    assert current() == "no request is being answered here; call it in a handler behind protect()"


async def test_a_block_says_whose_work_its_tasks_and_threads_do() -> None:
    async def task() -> str:
        return current()

    async def handler(request: Request) -> JSONResponse:
        with acting_for(request) as caller:
            assert caller is principal_of(request)
            inside = await asyncio.gather(task(), asyncio.create_task(task()), asyncio.to_thread(current))
        return JSONResponse([*inside, current()])

    assert await answers(served(handler)) == ["ann"] * 4


async def test_a_block_ends_for_everything_that_it_started() -> None:
    go_on = asyncio.Event()

    async def later() -> str:
        await go_on.wait()
        return current()

    started: list[asyncio.Task[str]] = []

    def fail() -> None:
        with acting_for(BOB):
            started.append(asyncio.create_task(later()))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    go_on.set()
    assert await started[0] == ENDED
    with acting_for(ANN):
        with acting_for(BOB):
            assert current_principal() is BOB
        assert current_principal() is ANN


def test_a_block_is_good_without_an_event_loop() -> None:
    with acting_for(Anonymous(id="anonymous:1")):
        assert current() == "anonymous"


seen: list[str] = []


def with_end() -> Iterator[str]:
    yield current()
    seen.append(current())


def fastapi_application() -> FastAPI:
    """Everything of an application of FastAPI that is not async, and so runs in threads."""
    app = FastAPI()

    @app.get("/x")
    def endpoint(
        of_dependency: Annotated[str, Depends(current)],
        of_generator: Annotated[str, Depends(with_end)],
        later: BackgroundTasks,
    ) -> list[str]:
        later.add_task(lambda: seen.append(current()))
        return [current(), of_dependency, of_generator]

    @app.get("/stream")
    def stream() -> StreamingResponse:
        return StreamingResponse(part for part in ('["', current(), '"]'))

    @app.get("/error")
    def error() -> None:
        raise LookupError

    @app.exception_handler(LookupError)
    def handle(request: Request, error: LookupError) -> JSONResponse:
        return JSONResponse([current()])

    app.add_route("/starlette", lambda request: JSONResponse([current()]))
    return app


@asynccontextmanager
async def hypercorn_serving(app: Any) -> AsyncIterator[str]:
    listener, ended, config = socket.create_server(("127.0.0.1", 0)), asyncio.Event(), Config()
    host, port = listener.getsockname()
    config.bind, config.errorlog = [f"fd://{listener.detach()}"], None  # the server closes it
    serving = asyncio.create_task(hypercorn.asyncio.serve(app, config, shutdown_trigger=ended.wait))
    try:
        yield f"http://{host}:{port}"
    finally:
        ended.set()
        await serving


SERVERS: dict[str, Callable[[Any], Any]] = {
    "hypercorn": hypercorn_serving,
    "httptools": lambda app: uvicorn_serving(app, "httptools"),
    "h11": lambda app: uvicorn_serving(app, "h11"),
}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("layers", [0, 1, 3])
async def test_what_is_not_async_runs_in_threads_of_its_request(layers: int, server: str) -> None:
    app = fastapi_application()
    for _ in range(layers):  # each begins a task of its own

        @app.middleware("http")
        async def layer(request: Request, call_next: Any) -> Any:
            return await call_next(request)

    app = guarded(app)
    async with SERVERS[server](app) as origin, httpx.AsyncClient(base_url=origin, timeout=60) as http:
        for name, key in (("ann", KEY), ("bob", BOBS_KEY)) * 2:
            for path, parts in PATHS.items():
                seen.clear()
                assert (await http.get(path, headers={"X-API-Key": key})).json() == [name] * parts, path
                async with asyncio.timeout(60):
                    while len(seen) < (2 if path == "/x" else 0):
                        await asyncio.sleep(0)
                assert seen == [name] * len(seen), path


PATHS = {"/x": 3, "/stream": 1, "/error": 1, "/starlette": 1}
"""How many times an answer has its caller."""


async def test_a_middleware_outside_of_the_guard_may_start_a_task_for_it() -> None:
    """Before anyio 4.14, the only scopes in such a task are those of the middleware, which say nothing of a request."""

    async def dispatch(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    app = BaseHTTPMiddleware(guarded(fastapi_application()), dispatch=dispatch)
    is_old = tuple(map(int, version("anyio").split(".")[:2])) < (4, 14)
    assert await answers(app, "/starlette") == [IN_ANOTHER_TASK if is_old else "ann"]


# What the guard has written, in whatever a handler has; tests/frameworks has the real contexts of the a2a-sdk


async def nothing(*_: Any) -> Any: ...


def contexts(auth: object, **more: Any) -> dict[str, Any]:
    """All that handlers have of a request with those credentials."""
    scope = {"type": "http", "headers": [], "auth": auth, **more}
    call_context = SimpleNamespace(state={"auth": auth, "headers": {}}, user=None)
    return {
        "scope": scope,
        "Starlette": StarletteRequest(scope),
        "FastAPI": Request(scope),
        "websocket": WebSocket({**scope, "type": "websocket"}, nothing, nothing),
        "another framework": SimpleNamespace(scope=scope, state=SimpleNamespace(auth="mine")),
        "ServerCallContext": call_context,
        "RequestContext": SimpleNamespace(call_context=call_context, state="of the application"),
    }


KINDS = pytest.mark.parametrize("kind", contexts(None))


@KINDS
@walk("caller", [ANN, Anonymous()])
def test_the_caller_is_found_in_whatever_a_handler_has(kind: str, caller: Principal | Anonymous) -> None:
    context = contexts(CallerCredentials(caller))[kind]
    assert principal_of(context) is caller
    with acting_for(context):
        assert current_principal() is caller


@KINDS
def test_a_public_path_is_nobodys_although_an_outer_guard_has_asked(kind: str) -> None:
    scope: dict[str, Any] = {}
    set_public(scope)
    if "Context" not in kind:
        with pytest.raises(ConfigurationError, match="its path is public"):
            principal_of(contexts(CallerCredentials(ANN), **scope)[kind])


NOT_OURS: list[Any] = [None, "x", ["read"], {"caller": ANN}, 7, ANN, AuthCredentials(["read"])]


@KINDS
@walk("auth", NOT_OURS)
def test_what_no_guard_has_written_is_nobodys(kind: str, auth: object) -> None:
    context = contexts(auth, user=ANN, **{"a2a_trust.principal": "ann"})[kind]
    with pytest.raises(ConfigurationError, match=r"principal_of: this request did not come through protect"):
        principal_of(context)
    with pytest.raises(ConfigurationError, match="subject_token_of: this request did not come through protect"):
        subject_token_of(context)
    with pytest.raises(ConfigurationError, match="acting_for"), acting_for(context):
        raise AssertionError
    with pytest.raises(NoCallerError, match="no request"):
        current_principal()


@walk("context", [None, "x", object(), {}, [], SimpleNamespace(call_context=None)])
def test_what_is_no_context_of_a_request_is_refused(context: Any) -> None:
    for find in (principal_of, subject_token_of):
        with pytest.raises(ConfigurationError, match="pass the request, its scope, or the context that the a2a-sdk"):
            find(context)


@KINDS
def test_the_token_of_a_request_is_found_in_whatever_a_handler_has(kind: str) -> None:
    token = SubjectToken("secret", issuer="https://login.example", subject="ann", expires_at=17.5)
    auth, other = CallerCredentials(ANN), CallerCredentials(ANN)
    auth.keep(token)
    other.keep(None)
    assert subject_token_of(contexts(auth)[kind]) is token
    with pytest.raises(MissingCredentialsError, match="this caller has no access token"):
        subject_token_of(contexts(other)[kind])
    with pytest.raises(ConfigurationError, match=r"pass rules=RequestRules\(keep_subject_token=True\)"):
        subject_token_of(contexts(CallerCredentials(ANN))[kind])


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_know_the_caller_and_not_the_token(copied: Callable[[CallerCredentials], CallerCredentials]) -> None:
    auth = CallerCredentials(ANN)
    auth.keep(SubjectToken("secret", issuer="https://login.example", subject="ann", expires_at=17.5))
    copy_of_it = copied(auth)
    assert (copy_of_it.caller, copy_of_it.scopes) == (ANN, [])
    with pytest.raises(ConfigurationError, match="no token is kept"):
        subject_token_of({"auth": copy_of_it})
    assert "ann" not in repr(auth)


# What stays of a request


async def test_nothing_is_kept_of_requests_before() -> None:
    """uvicorn carries the context of one request on to the next of the connection, and its timers for the pause between
    two requests keep it for some seconds."""
    async with uvicorn_serving(guarded(Starlette(routes=[Route("/x", whoami, methods=["POST"])])), "h11") as origin:
        gc.collect()
        before = [each for each in gc.get_objects() if isinstance(each, Running)]  # of other tests
        host, port = origin.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        line = f"POST /x HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\nContent-Length: 2\r\n\r\n{{}}"
        writer.write(line.encode() * 100)
        answered = b""
        while answered.count(b"HTTP/1.1 200") < 100:
            answered += await reader.read(65536)

        def kept() -> int:
            gc.collect()
            return sum(isinstance(each, Running) for each in gc.get_objects()) - len(before)

        try:
            await until(lambda: kept() < 10)
        finally:
            writer.close()


async def whoami(request: Request) -> JSONResponse:
    return JSONResponse(current())


async def test_an_unguarded_path_of_several_agents_is_of_no_caller() -> None:
    """A request of another application of this process, or the next one of the connection, may run in its context."""
    app = Starlette(routes=[Route("/free", whoami), Mount("/a", Starlette(routes=[Route("/rpc", whoami)]))])
    interface = {"url": "http://agent.example/a/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    agent = ProtectedAgent(card={**CARD, "supportedInterfaces": [interface]}, verifiers=verifiers())
    protect_agents(app, {"/a": agent}, unguarded_paths=["/free"])
    with acting_for(ANN):
        assert await answers(app, "/free") == ENDED
    assert await answers(app, "/free") == ENDED


async def test_a_task_far_below_the_request_is_of_its_caller() -> None:
    said: list[str] = []

    async def below(depth: int) -> None:
        if depth:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(below, depth - 1)
        else:
            said.extend(current() for _ in range(2))

    async def handler(request: Request) -> JSONResponse:
        await below(4)
        return JSONResponse(current())

    assert await answers(served(handler)) == "ann"
    assert said == ["ann"] * 2


async def test_a_worker_of_a_group_outside_the_request_is_of_its_caller_until_it_has_started() -> None:
    said: list[str] = []

    async def worker(go_on: anyio.Event, *, task_status: TaskStatus[None]) -> None:
        said.extend(current() for _ in range(2))
        task_status.started()
        said.append(current())
        await go_on.wait()
        said.append(current())

    async def handler(request: Request) -> JSONResponse:
        await outer.start(worker, ended)
        return JSONResponse(current())

    ended = anyio.Event()
    async with anyio.create_task_group() as outer:
        assert await asyncio.create_task(answers(served(handler))) == "ann"
        ended.set()
    assert said == ["ann", "ann", IN_ANOTHER_TASK, ENDED]


def test_a_block_says_what_it_takes() -> None:
    with pytest.raises(ConfigurationError, match="acting_for: this request did not come through protect"):
        acting_for("ann")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="acting_for: this request"):

        @acting_for  # type: ignore[arg-type]
        def handler() -> None: ...
