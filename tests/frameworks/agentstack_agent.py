"""An agent of agentstack behind ``protect``.

``Server().run()`` shows its application to nobody. ``create_app``, which it calls, makes the same application.
``ORIGIN`` is where it is called. Run by a server of agentstack's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, untyped-decorator, unused-ignore"

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from a2a.types import Artifact, Message, Part, TextPart
from a2a.utils.message import get_message_text
from agentstack_sdk.server.agent import agent
from agentstack_sdk.server.app import create_app
from agentstack_sdk.server.store.memory_context_store import InMemoryContextStore

from tests.frameworks.guide import names_for, run_lines

ORIGIN = os.environ["ORIGIN"]


@agent(name="echo", url=ORIGIN)
async def echo(message: Message) -> AsyncIterator[Artifact]:
    """Answers with what it heard."""
    yield Artifact(artifact_id="answer", parts=[Part(root=TextPart(text=f"heard {get_message_text(message)}"))])


contexts = InMemoryContextStore()
own = {"agent": echo(contexts.modify_dependencies), "contexts": contexts, "create_app": create_app}
names = {**names_for("echoes", ORIGIN), **own}
run_lines("agentstack", names)
app = names["app"]
