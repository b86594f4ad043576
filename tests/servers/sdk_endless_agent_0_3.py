"""An agent of a2a-sdk 0.3.26 that works forever, and revokes the key that a message names while it streams its answer.

Run by a server in the environment of that SDK's server, and never imported by a test.
"""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

import asyncio
import os
from typing import Any

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Task, TaskState, TaskStatus

from a2a_trust import ApiKeyVerifier, RequestRules, SqliteApiKeys, protect

STORE = SqliteApiKeys(os.environ["API_KEYS"])


class Endless(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        state = TaskStatus(state=TaskState.submitted)
        await event_queue.enqueue_event(Task(id=context.task_id, context_id=context.context_id, status=state))
        await TaskUpdater(event_queue, context.task_id, context.context_id).start_work()
        await asyncio.sleep(1)  # the event before is on its way
        await asyncio.to_thread(STORE.revoke, context.get_user_input().removeprefix("revoke "))
        await asyncio.Event().wait()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


common: dict[str, Any] = {
    "name": "Endless",
    "description": "Works forever.",
    "version": "1",
    "url": os.environ["AGENT_URL"],
    "capabilities": AgentCapabilities(streaming=True),
    "default_input_modes": ["text/plain"],
    "default_output_modes": ["text/plain"],
    "skills": [AgentSkill(id="work", name="Work", description="Works.", tags=["x"])],
    "security_schemes": {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
    "security": [{"key": []}],
}
card = AgentCard(**common)
handler = DefaultRequestHandler(agent_executor=Endless(), task_store=InMemoryTaskStore())
app = protect(
    A2AStarletteApplication(agent_card=card, http_handler=handler).build(),
    card=card,
    verifiers={"key": ApiKeyVerifier(STORE)},
    rules=RequestRules(end_streams_with_credential=True),
)
