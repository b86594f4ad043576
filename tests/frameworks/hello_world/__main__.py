"""An agent in the structure of the a2a project's own sample (a2a-samples, python, helloworld) on a2a-sdk 1.3.0.

It knows nothing of a2a-trust: neither of its cards says who may call. The test adds three lines, and runs both.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, unused-ignore"

from __future__ import annotations

import os

import uvicorn
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from agent_executor import Greeter
from starlette.applications import Starlette

if __name__ == "__main__":
    port = int(os.environ.get("PORT", "9999"))
    greet = AgentSkill(id="greet", name="Greet", description="Greets everybody.", tags=["greeting"])
    sing = AgentSkill(id="sing", name="Sing", description="Sings for known callers.", tags=["greeting", "extended"])
    public_card = AgentCard(
        name="Greeter",
        description="The public card.",
        version="1.0.0",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        capabilities=AgentCapabilities(streaming=True, extended_agent_card=True),
        # Without a version of the protocol, as in the sample.
        supported_interfaces=[AgentInterface(protocol_binding="JSONRPC", url=f"http://127.0.0.1:{port}")],
        skills=[greet],
    )
    extended_card = AgentCard(
        name="Greeter for known callers",
        description="The extended card.",
        version="1.0.1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        capabilities=AgentCapabilities(streaming=True, extended_agent_card=True),
        supported_interfaces=[AgentInterface(protocol_binding="JSONRPC", url=f"http://127.0.0.1:{port}")],
        skills=[greet, sing],
    )
    request_handler = DefaultRequestHandler(
        agent_executor=Greeter(),
        task_store=InMemoryTaskStore(),
        agent_card=public_card,
        extended_agent_card=extended_card,
    )
    routes = []
    routes.extend(create_agent_card_routes(public_card))
    routes.extend(create_jsonrpc_routes(request_handler, "/"))
    app = Starlette(routes=routes)
    uvicorn.run(app, host="127.0.0.1", port=port)
