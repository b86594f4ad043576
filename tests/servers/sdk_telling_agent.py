"""An agent of a2a-sdk 0.3 or 1.x behind ``protect``, which tells what its executor knows of its callers at ``/seen``.

Its settings are in TELLING. Run by the interpreter of that SDK's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pickle
import sys
from typing import Any

sys.path += json.loads(os.environ["TELLING"])["folders"]

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Task, TaskState, TaskStatus
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust import ApiKeyVerifier, JwtVerifier, RequestRules, TrustError, protect
from a2a_trust.auth import MemoryApiKeys
from a2a_trust.keys import JwksCache
from a2a_trust.middleware import subject_token_of

SETTINGS = json.loads(os.environ["TELLING"])
SEEN: dict[str, Any] = {}
"""What was seen, by the ids of the messages."""

IS_0_3 = SETTINGS["card"].get("protocolVersion") == "0.3.0"


def token_of(context: Any) -> Any:
    try:
        token = subject_token_of(context)
    except TrustError as error:
        return [error.code, str(error)]
    digest = hashlib.sha256(token.reveal().encode()).hexdigest()
    return {"digest": digest, "issuer": token.issuer, "subject": token.subject, "expires_at": token.expires_at}


def seen(context: RequestContext) -> dict[str, Any]:
    call_context = context.call_context
    auth, kept = call_context.state["auth"], [token_of(context), token_of(call_context)]
    return {
        "tokens": kept,
        "names": sorted(call_context.state["headers"]),
        "texts": [
            *map(repr, (context, vars(context), call_context, call_context.state, auth, vars(auth))),
            pickle.dumps([auth, call_context.state]).decode("latin-1"),
        ],
    }


class Telling(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await asyncio.sleep(0.2)  # until the other callers of a test are here, too
        SEEN[context.message.message_id] = seen(context)
        if context.current_task is None:
            state = TaskState.submitted if IS_0_3 else TaskState.TASK_STATE_SUBMITTED
            new = Task(id=context.task_id, context_id=context.context_id, status=TaskStatus(state=state))
            await event_queue.enqueue_event(new)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.requires_input(**({"final": True} if IS_0_3 else {}))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def tell(request: Request) -> JSONResponse:
    return JSONResponse({**SEEN, "request": token_of(request)})


def agent() -> Starlette:
    common: dict[str, Any] = {
        "name": "Telling",
        "description": "Tells.",
        "version": "1",
        "capabilities": AgentCapabilities(),
        "default_input_modes": ["text/plain"],
        "default_output_modes": ["text/plain"],
        "skills": [AgentSkill(id="tell", name="Tell", description="Tells.", tags=["x"])],
    }
    routes = [Route("/seen", tell)]
    if IS_0_3:
        from a2a.server.apps import A2AStarletteApplication

        card = AgentCard(url=SETTINGS["card"]["url"], **common)
        handler = DefaultRequestHandler(agent_executor=Telling(), task_store=InMemoryTaskStore())
        app: Starlette = A2AStarletteApplication(agent_card=card, http_handler=handler).build(
            rpc_url="/rpc", routes=routes
        )
        return app
    from a2a.server.routes import create_jsonrpc_routes

    handler = DefaultRequestHandler(
        agent_executor=Telling(),
        task_store=InMemoryTaskStore(owner_resolver=lambda context: "everybody"),  # callers share their tasks
        agent_card=AgentCard(**common),
    )
    return Starlette(routes=[*routes, *create_jsonrpc_routes(handler, rpc_url="/rpc")])


async def keys() -> tuple[bytes, float | None]:
    return SETTINGS["jwks"].encode(), None


store = MemoryApiKeys()
store.import_key(SETTINGS["key"], owner="ann")
app = protect(
    agent(),
    card=SETTINGS["card"],
    verifiers={
        "key": ApiKeyVerifier(store),
        "login": JwtVerifier(JwksCache(keys), issuer=SETTINGS["issuer"], audience=SETTINGS["audience"]),
    },
    rules=RequestRules(**SETTINGS["rules"]),
)
uvicorn.run(app, host="127.0.0.1", port=SETTINGS["port"], log_level="debug")
