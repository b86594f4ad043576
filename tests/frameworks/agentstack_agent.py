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

from a2a_trust import FromApplication, protect
from tests.frameworks.guards import guard, serving

ORIGIN = os.environ["ORIGIN"]


@agent(name="echo", url=ORIGIN)
async def echo(message: Message) -> AsyncIterator[Artifact]:
    """Answers with what it heard."""
    yield Artifact(artifact_id="answer", parts=[Part(root=TextPart(text=f"heard {get_message_text(message)}"))])


contexts = InMemoryContextStore()
app = protect(
    create_app(echo(contexts.modify_dependencies), context_store=contexts),
    card=FromApplication(),
    # the application has its JSON-RPC interface, with a card of its own, mounted there
    serving=serving(card_paths=[f"/jsonrpc/.well-known/{name}" for name in ("agent-card.json", "agent.json")]),
    **guard("echoes", ORIGIN),
)
