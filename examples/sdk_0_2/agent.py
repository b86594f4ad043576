"""The hello world agent of a2a-sdk 0.2.16, with an extended card for known callers that anybody can read.

Nothing in this file knows of keys: neither card says who may call. ``protected.py`` beside it adds that.
``AGENT_URL`` is where the agent is called.
"""

from __future__ import annotations

import os
from uuid import uuid4

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Message, Part, Role, TextPart

URL = os.environ.get("AGENT_URL", "http://127.0.0.1:9999")


class HelloWorld(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        said = Part(root=TextPart(text=f"Hello World! You said: {context.get_user_input()}"))
        await event_queue.enqueue_event(Message(message_id=str(uuid4()), role=Role.agent, parts=[said]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError("it answers at once")


def skill(name: str, description: str) -> AgentSkill:
    return AgentSkill(id=name.lower(), name=name, description=description, tags=["hello"])


card = AgentCard(
    name="Hello World",
    description="Greets.",
    url=f"{URL}/",
    version="1.0.0",
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text"],
    default_output_modes=["text"],
    skills=[skill("Hello", "Says hello.")],
    supports_authenticated_extended_card=True,
)
extended_card = card.model_copy(
    update={
        "description": "Greets, and sings for known callers.",
        "skills": [*card.skills, skill("Song", "Sings hello.")],
    }
)
handler = DefaultRequestHandler(agent_executor=HelloWorld(), task_store=InMemoryTaskStore())
app = A2AStarletteApplication(agent_card=card, http_handler=handler, extended_agent_card=extended_card).build()
