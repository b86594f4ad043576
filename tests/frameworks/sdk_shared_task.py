"""An agent of a2a-sdk 0.3 or 1.x behind ``protect``: ``/seen`` says whom each part of it takes for the caller.

Each call names itself in ``X-Call``. A call that names itself "unread" gets more than the buffers on its way can hold,
one that names itself "works" goes on until it is cancelled. ``STORE`` says which task store it has: "shared" between
callers, "own" that of docs/frameworks/a2a-sdk.md for 0.3, or the SDK's. Run by the interpreter of that SDK's own
environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Any

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, Task, TaskState, TaskStatus
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust import (
    ApiKeyVerifier,
    Principal,
    SqliteApiKeys,
    TrustError,
    acting_for,
    current_principal,
    principal_of,
    protect,
)

IS_0_3 = version("a2a-sdk").startswith("0.3.")
PORT = int(os.environ["PORT"])
URL = f"http://127.0.0.1:{PORT}/rpc"
FLOOD, PIECES = "x" * 1_000_000, 16

SEEN: list[dict[str, Any]] = []


def name(caller: Callable[[], Any]) -> str:
    try:
        found = caller()
    except TrustError as error:
        return type(error).__name__
    assert isinstance(found, Principal)
    return found.display_name


async def name_in_task() -> str:
    return name(current_principal)


def call_of(context: ServerCallContext) -> str:
    return str(context.state["headers"]["x-call"])


def note(place: str, context: ServerCallContext) -> None:
    of_context, current = name(lambda: principal_of(context)), name(current_principal)
    SEEN.append({"place": place, "call": call_of(context), "principal_of": [of_context], "current": [current]})


async def note_all(place: str, context: RequestContext) -> str:
    """Write down who the caller is in the eyes of each function; which call it is."""
    own = context.call_context
    if own is None:  # cancel in 0.3.26: the SDK says nothing of the caller, so only the request can
        by_context, by_place = name(lambda: principal_of(context)), name(current_principal)
        SEEN.append({"place": place, "principal_of": [by_context], "current": [by_place]})
        return ""
    seen: dict[str, Any] = {
        "place": place,
        "call": call_of(own),
        "task": [context.task_id, context.context_id],
        "principal_of": [name(lambda: principal_of(context)), name(lambda: principal_of(own))],
        "current": [
            name(current_principal),
            await asyncio.create_task(name_in_task()),
            await asyncio.to_thread(name, current_principal),
            await to_thread.run_sync(name, current_principal),
        ],
    }
    with acting_for(context):
        await asyncio.sleep(0.05)  # other calls run meanwhile
        thread = asyncio.to_thread(name, current_principal)
        seen["acting"] = [name(current_principal), await asyncio.create_task(name_in_task()), await thread]
    seen["current"] += [name(current_principal)]
    SEEN.append(seen)
    return str(seen["call"])


class Executor(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        call = await note_all("execute", context)
        if context.current_task is None:
            state = TaskState.submitted if IS_0_3 else TaskState.TASK_STATE_SUBMITTED
            new = Task(id=context.task_id, context_id=context.context_id, status=TaskStatus(state=state))
            await event_queue.enqueue_event(new)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if "unread" in call:
            part = Part.model_validate({"kind": "text", "text": FLOOD}) if IS_0_3 else Part(text=FLOOD)
            for _ in range(PIECES):
                await updater.add_artifact([part], artifact_id="flood")
        while "works" in call:
            await updater.start_work()
            await asyncio.sleep(0.1)
        await updater.requires_input(**({"final": True} if IS_0_3 else {}))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await note_all("cancel", context)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class Store(InMemoryTaskStore):
    """Where the requests and the tasks that the SDK starts itself meet."""

    async def get(self, task_id: str, context: ServerCallContext | None = None) -> Task | None:
        if context is not None:
            note("store", context)
        return await super().get(task_id, context)


class Handler(DefaultRequestHandler):
    """Streams run in the request, also those of another caller's task."""

    async def on_subscribe_to_task(self, params: Any, context: ServerCallContext) -> AsyncIterator[Any]:
        async for event in super().on_subscribe_to_task(params, context):
            note("subscription", context)
            yield event

    async def on_resubscribe_to_task(self, params: Any, context: ServerCallContext) -> AsyncIterator[Any]:
        async for event in super().on_resubscribe_to_task(params, context):
            note("subscription", context)
            yield event


async def tell(request: Request) -> JSONResponse:
    return JSONResponse(SEEN)


def store() -> Any:
    if os.environ.get("STORE") == "own":
        from tests.frameworks.guide import run_page

        names: dict[str, Any] = {}
        run_page("a2a-sdk", names, 2)
        return names["OwnTasks"]()
    if os.environ.get("STORE") == "shared" and not IS_0_3:  # those of 0.3 do not separate callers
        return Store(owner_resolver=lambda context: "everybody")
    return Store()


def agent() -> Starlette:
    common: dict[str, Any] = {
        "name": "Shared",
        "description": "Shares its tasks.",
        "version": "1",
        "capabilities": AgentCapabilities(streaming=True),
        "default_input_modes": ["text/plain"],
        "default_output_modes": ["text/plain"],
        "skills": [AgentSkill(id="share", name="Share", description="Shares.", tags=["x"])],
    }
    routes = [Route("/seen", tell)]
    if IS_0_3:
        from a2a.server.apps import A2AStarletteApplication

        handler = Handler(agent_executor=Executor(), task_store=store())
        made = A2AStarletteApplication(agent_card=AgentCard(url=URL, **common), http_handler=handler)
        app: Starlette = made.build(rpc_url="/rpc", routes=routes)
        return app
    from a2a.server.routes import create_jsonrpc_routes

    handler = Handler(agent_executor=Executor(), task_store=store(), agent_card=AgentCard(**common))
    return Starlette(routes=[*routes, *create_jsonrpc_routes(handler, rpc_url="/rpc")])


def card() -> dict[str, Any]:
    card = {"name": "Shared", "description": "Shares its tasks.", "version": "1", "skills": []}
    if IS_0_3:
        schemes: Any = {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
        return {**card, "protocolVersion": "0.3.0", "url": URL, "securitySchemes": schemes, "security": [{"key": []}]}
    interface = {"url": URL, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    schemes = {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}}
    demands: list[dict[str, Any]] = [{"schemes": {"key": {}}}]
    return {**card, "supportedInterfaces": [interface], "securitySchemes": schemes, "securityRequirements": demands}


app = protect(agent(), card=card(), verifiers={"key": ApiKeyVerifier(SqliteApiKeys(os.environ["API_KEYS"]))})

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
