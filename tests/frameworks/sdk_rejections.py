"""An agent of a2a-sdk 0.3 or 1.x behind ``protect``, one of whose parts rejects the caller, as ``X-Where`` says.

``X-How``: "skill" (``require_skill``), "reject" (``reject_caller``), "unknown" (a skill that the card does not have).
It answers both bindings. Run by the interpreter of that SDK's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Task, TaskState, TaskStatus
from starlette.requests import Request

from a2a_trust import ApiKeyVerifier, RequestRules, SqliteApiKeys, protect
from a2a_trust.errors import AuthorizationError
from a2a_trust.middleware import Decision, StateChange, reject_caller, require_skill

IS_0_3 = version("a2a-sdk").startswith("0.3.")
PORT = int(os.environ["PORT"])
URL = f"http://127.0.0.1:{PORT}"


def reject(where: str, headers: Any, context: Any) -> None:
    if headers.get("x-where") != where:
        return
    if headers["x-how"] == "reject":
        reject_caller(context, AuthorizationError("only its owner may do this"))
    require_skill(context, "unknown" if headers["x-how"] == "unknown" else "pay")


class Executor(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.call_context is not None
        if context.current_task is None:
            state = TaskState.submitted if IS_0_3 else TaskState.TASK_STATE_SUBMITTED
            new = Task(id=context.task_id, context_id=context.context_id, status=TaskStatus(state=state))
            await event_queue.enqueue_event(new)
        reject("executor", context.call_context.state["headers"], context)
        await TaskUpdater(event_queue, context.task_id, context.context_id).complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


class Handler(DefaultRequestHandler):
    async def on_message_send(self, params: Any, context: ServerCallContext) -> Any:
        reject("handler", context.state["headers"], context)
        return await super().on_message_send(params, context)


def agent() -> Any:
    common: dict[str, Any] = {
        "name": "Rejects",
        "description": "Rejects its callers.",
        "version": "1",
        "capabilities": AgentCapabilities(streaming=True),
        "default_input_modes": ["text/plain"],
        "default_output_modes": ["text/plain"],
        "skills": [AgentSkill(id="pay", name="Pay", description="Pays.", tags=["x"])],
    }
    if IS_0_3:
        from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
        from a2a.server.apps.jsonrpc import DefaultCallContextBuilder

        class Builder(DefaultCallContextBuilder):
            def build(self, request: Request) -> ServerCallContext:
                reject("builder", request.headers, request)
                return super().build(request)

        card = AgentCard(url=f"{URL}/rpc", **common)
        handler = Handler(agent_executor=Executor(), task_store=InMemoryTaskStore())
        rest = A2ARESTFastAPIApplication(agent_card=card, http_handler=handler, context_builder=Builder())
        app = rest.build(rpc_url="/rest")
        A2AStarletteApplication(agent_card=card, http_handler=handler, context_builder=Builder()).add_routes_to_app(
            app, rpc_url="/rpc"
        )
        return app
    from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
    from a2a.server.routes.common import DefaultServerCallContextBuilder
    from starlette.applications import Starlette

    class BuilderOf1(DefaultServerCallContextBuilder):
        def build(self, request: Request) -> ServerCallContext:
            reject("builder", request.headers, request)
            return super().build(request)

    handler = Handler(agent_executor=Executor(), task_store=InMemoryTaskStore(), agent_card=AgentCard(**common))
    builder = BuilderOf1()
    rpc = create_jsonrpc_routes(handler, rpc_url="/rpc", context_builder=builder)
    return Starlette(routes=[*rpc, *create_rest_routes(handler, path_prefix="/rest", context_builder=builder)])


def card() -> dict[str, Any]:
    card = {"name": "Rejects", "description": "Rejects its callers.", "version": "1"}
    skill = {"id": "pay", "name": "Pay", "description": "Pays.", "tags": ["x"]}
    if IS_0_3:
        schemes: Any = {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
        return {
            **card,
            "protocolVersion": "0.3.0",
            "url": f"{URL}/rpc",
            "additionalInterfaces": [{"url": f"{URL}/rest", "transport": "HTTP+JSON"}],
            "securitySchemes": schemes,
            "security": [{"key": []}],
            "skills": [{**skill, "security": [{"key": ["pay"]}]}],
        }
    schemes = {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}}
    return {
        **card,
        "supportedInterfaces": [
            {"url": f"{URL}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": f"{URL}/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        ],
        "securitySchemes": schemes,
        "securityRequirements": [{"schemes": {"key": {}}}],
        "skills": [{**skill, "securityRequirements": [{"schemes": {"key": {"list": ["pay"]}}}]}],
    }


class Noting:
    """An observer that writes what it gets into a file, one decision a line."""

    def on_decision(self, decision: Decision) -> None:
        with Path("decisions.jsonl").open("a") as file:
            known = decision.reason, decision.schemes, decision.binding, decision.operation, decision.is_second
            file.write(f"{json.dumps(known)}\n")

    def on_change(self, change: StateChange) -> None:
        raise AssertionError(change)


app = protect(
    agent(),
    card=card(),
    verifiers={"key": ApiKeyVerifier(SqliteApiKeys(os.environ["API_KEYS"]))},
    rules=RequestRules(handlers_check_skills=True),
    observer=Noting(),
)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
