"""An agent of a2a-sdk 0.2 or 0.3 behind ``protect``, with a store of tasks, and another caller who attaches a webhook.

Run by the interpreter of the server's environment, never imported by a test. The question has the recipe of the page;
the answer tells, without and with it, whether bob may set and get the webhooks of ann's task, and ann her own.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, unused-ignore"

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCard
from a2a.utils import new_task

from a2a_trust import ApiKeyVerifier, RequestRules, protect
from a2a_trust.auth import MemoryApiKeys
from a2a_trust.middleware import Webhooks

CARD = {
    "name": "Ledger",
    "description": "Books invoices.",
    "version": "1.0.0",
    "protocolVersion": "0.3.0",
    "url": "http://agent.example/",
    "capabilities": {"pushNotifications": True, "streaming": True},
    "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
    "security": [{"key": []}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [],
}
STORE = MemoryApiKeys()
KEYS = {name: STORE.create(owner=name).text for name in ("ann", "bob")}


class Waiting(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task or new_task(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, getattr(task, "context_id", None) or task.contextId)
        await updater.requires_input(final=True)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


async def outcome(tasks: Any, *, blocking: bool) -> dict[str, bool]:
    handler = DefaultRequestHandler(Waiting(), tasks, push_config_store=InMemoryPushNotificationConfigStore())
    app = protect(
        A2AStarletteApplication(AgentCard.model_validate(CARD), handler).build(),
        card=CARD,
        verifiers={"key": ApiKeyVerifier(STORE)},
        rules=RequestRules(webhooks=Webhooks()),
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:

        async def call(caller: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            answer: dict[str, Any] = (await http.post("/", json=body, headers={"X-API-Key": KEYS[caller]})).json()
            return answer

        said = {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
        sent = {"message": said, "configuration": {"acceptedOutputModes": [], "blocking": blocking}}
        task = (await call("ann", "message/send", sent))["result"]["id"]
        while "input-required" not in str(await call("ann", "tasks/get", {"id": task})):
            await asyncio.sleep(0.01)  # what goes on behind the answer
        webhook = {"taskId": task, "pushNotificationConfig": {"url": "https://8.8.8.8/"}}

        async def may(caller: str, verb: str, params: dict[str, Any]) -> bool:
            return "result" in await call(caller, f"tasks/pushNotificationConfig/{verb}", params)

        own = await may("ann", "set", webhook)
        return {"set": await may("bob", "set", webhook), "get": await may("bob", "get", {"id": task}), "own": own}


async def main() -> None:
    names: dict[str, Any] = {}
    exec(compile(json.load(sys.stdin)["recipe"], "docs/push.md", "exec"), names)
    found = {"plain": await outcome(InMemoryTaskStore(), blocking=True)}
    for blocking in (True, False):
        found[f"recipe, {blocking}"] = await outcome(names["TasksOfCallers"](), blocking=blocking)
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
