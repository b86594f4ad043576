"""The hello world of a framework, whose card demands an API key: as it is, or behind ``protect``.

``FRAMEWORK`` names a function of this file, ``AGENT_URL`` is where the agent is called, and ``API_KEYS`` a store of
keys if ``protect`` enforces the card. Without a store the framework's own card gets the demand, and no one looks at it.
Run by a server in the framework's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, unused-ignore"

from __future__ import annotations

import json
import os
from typing import Any, Final
from uuid import uuid4

from a2a_trust import (
    ApiKeyVerifier,
    CardSecurity,
    ExtendedCard,
    FromApplication,
    ProtectedAgent,
    SqliteApiKeys,
    protect,
    protect_agents,
)

URL: Final = os.environ["AGENT_URL"]
KEY: Final = {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
SECURITY: Final = CardSecurity(schemes={"key": KEY}, requirements=[{"schemes": {"key": {"list": []}}}])


class Demanding:
    """The application, whose card says that callers need a key."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].endswith(
            (".well-known/agent-card.json", ".well-known/agent.json")
        ):
            await self.app(scope, receive, send)
            return
        messages: list[Any] = []

        async def keep(message: Any) -> None:
            messages.append(message)

        await self.app(scope, receive, keep)
        status = messages[0]["status"]
        body = b"".join(message.get("body", b"") for message in messages[1:])
        if status == 200:
            body = json.dumps(SECURITY.added_to(json.loads(body))).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def sdk_1() -> Any:
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
    from a2a.server.tasks import InMemoryTaskStore
    from a2a.types import AgentCard, Message, Part, Role
    from google.protobuf.json_format import ParseDict
    from starlette.applications import Starlette

    class Greeter(AgentExecutor):
        async def execute(self, context: Any, event_queue: Any) -> None:
            said = Message(message_id=str(uuid4()), role=Role.ROLE_AGENT, parts=[Part(text="Hello")])
            await event_queue.enqueue_event(said)

        async def cancel(self, context: Any, event_queue: Any) -> None: ...

    interfaces = [
        {"url": f"{URL}{path}", "protocolBinding": binding, "protocolVersion": "1.0"}
        for binding, path in (("JSONRPC", "/rpc"), ("HTTP+JSON", "/rest"))
    ]
    skill = {"id": "greet", "name": "Greet", "description": "Greets.", "tags": ["hello"]}
    card = ParseDict(
        {
            "name": "Hello World",
            "description": "Greets.",
            "version": "1.0.0",
            "supportedInterfaces": interfaces,
            "capabilities": {"streaming": True, "extendedAgentCard": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [skill],
        },
        AgentCard(),
    )
    handler = DefaultRequestHandler(
        agent_executor=Greeter(), task_store=InMemoryTaskStore(), agent_card=card, extended_agent_card=card
    )
    routes = [create_agent_card_routes(card), create_jsonrpc_routes(handler, "/rpc")]
    routes.append(create_rest_routes(handler, path_prefix="/rest"))
    return Starlette(routes=[each for some in routes for each in some])


def sdk_0() -> Any:
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.apps import A2AStarletteApplication
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.tasks import InMemoryTaskStore
    from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Message, Part, Role, TextPart

    class Greeter(AgentExecutor):
        async def execute(self, context: Any, event_queue: Any) -> None:
            said = Part(root=TextPart(text="Hello"))
            await event_queue.enqueue_event(Message(message_id=str(uuid4()), role=Role.agent, parts=[said]))

        async def cancel(self, context: Any, event_queue: Any) -> None: ...

    card = AgentCard(
        name="Hello World",
        description="Greets.",
        url=f"{URL}/",
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text"],
        default_output_modes=["text"],
        skills=[AgentSkill(id="greet", name="Greet", description="Greets.", tags=["hello"])],
        supports_authenticated_extended_card=True,
    )
    handler = DefaultRequestHandler(agent_executor=Greeter(), task_store=InMemoryTaskStore())
    return A2AStarletteApplication(agent_card=card, http_handler=handler, extended_agent_card=card).build()


def python_a2a() -> Any:
    from a2wsgi import WSGIMiddleware
    from python_a2a import A2AServer
    from python_a2a.server.http import create_flask_app

    return WSGIMiddleware(create_flask_app(A2AServer(name="Hello World", description="Greets.", url=URL)))


def fasta2a() -> Any:
    from fasta2a import FastA2A
    from fasta2a.broker import InMemoryBroker
    from fasta2a.pydantic_ai import AgentWorker, worker_lifespan
    from fasta2a.storage import InMemoryStorage
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    storage, broker, agent = InMemoryStorage(), InMemoryBroker(), Agent(TestModel(), name="hello")
    worker = AgentWorker(agent=agent, broker=broker, storage=storage)
    return FastA2A(
        storage=storage, broker=broker, url=URL, lifespan=lambda app: worker_lifespan(app, worker=worker, agent=agent)
    )


def google_adk() -> Any:
    from urllib.parse import urlsplit

    from google.adk.a2a.utils.agent_to_a2a import to_a2a
    from google.adk.agents import Agent

    at = urlsplit(URL)
    agent = Agent(name="hello", model="gemini-2.5-flash", description="Greets.", instruction="Greet.")
    return to_a2a(agent, protocol=at.scheme, host=at.hostname or "", port=at.port or 80)


def agno() -> Any:
    from agno.agent import Agent
    from agno.os import AgentOS

    from tests.frameworks.agno_model import model

    return AgentOS(agents=[Agent(id="hello", name="hello", model=model)], a2a_interface=True).get_app()


def application() -> Any:
    name = os.environ["FRAMEWORK"]
    app = globals()[name]()
    if "API_KEYS" not in os.environ:
        return Demanding(app)
    keys: Any = {"key": ApiKeyVerifier(SqliteApiKeys(os.environ["API_KEYS"]))}
    path = "/.well-known/agent.json" if "CARD_OF_0_2" in os.environ else "/.well-known/agent-card.json"
    if name == "agno":
        agent = ProtectedAgent(card=FromApplication(), security=SECURITY, verifiers=keys, url=f"{URL}/a2a/agents/hello")
        return protect_agents(app, {"/a2a/agents/hello": agent})
    extended: dict[str, Any] = {"extended_card": ExtendedCard(FromApplication())} if name.startswith("sdk") else {}
    return protect(app, card=FromApplication(path), security=SECURITY, verifiers=keys, url=URL, **extended)


app = application()
