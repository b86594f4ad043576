"""The hello world agent of a2a-sdk 1.3.0 behind its card: API key or OpenID Connect.

Start it, where ``a2a-trust[server]``, ``a2a-sdk[http-server]==1.3.0``, ``fastapi`` and ``uvicorn`` are installed::

    python examples/sdk_hello_world/hello_world.py

It prints an API key for this run, and the call to make with it. Everything up to ``new_agent``
is an agent as the SDK's own sample wires it: JSON-RPC and HTTP+JSON, protocol 1.0 and 0.3, on one server. Its card has
always declared who may call; the one line with ``protect`` is what makes it true.

Settings, all from the environment: ``AGENT_URL`` where the agent is called, ``API_KEYS`` a store made by
``a2a-sign api-key create``, ``ISSUER`` the OpenID provider, ``AUDIENCE`` what it calls this agent in access tokens,
``PRIVATE_ORIGINS`` the provider's origin where that is a private one.
"""

from __future__ import annotations

import asyncio
import os
from urllib.parse import urlsplit

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import (
    add_a2a_routes_to_fastapi,
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    APIKeySecurityScheme,
    OpenIdConnectSecurityScheme,
    Part,
    SecurityRequirement,
    SecurityScheme,
    StringList,
    Task,
    TaskState,
    TaskStatus,
)
from fastapi import FastAPI

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.discovery import OpenIdKeys
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.record_table import SqliteApiKeys
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.middleware.protection import protect

URL = os.environ.get("AGENT_URL", "http://127.0.0.1:41241")
ISSUER = os.environ.get("ISSUER", "https://login.example.com")
AUDIENCE = os.environ.get("AUDIENCE", URL)


class HelloWorld(AgentExecutor):
    """Says that it works, thinks for a second, and answers."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = Task(
            id=context.task_id,
            context_id=context.context_id,
            status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
            history=[context.message],
        )
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work(updater.new_agent_message([Part(text="Thinking…")]))
        await asyncio.sleep(1)
        answer = f"Hello World! You said: {context.get_user_input()}"
        await updater.add_artifact([Part(text=answer)], name="response", last_chunk=True)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def demand(scheme: str, *scopes: str) -> SecurityRequirement:
    return SecurityRequirement(schemes={scheme: StringList(list=scopes)})


card = AgentCard(
    name="Hello World",
    description="Greets every caller that its card allows.",
    version="1.0.0",
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="hello", name="Hello", description="Says hello.", tags=["hello"])],
    supported_interfaces=[
        AgentInterface(protocol_binding=binding, protocol_version=version, url=URL + path)
        for binding, path in (("JSONRPC", "/a2a/jsonrpc"), ("HTTP+JSON", "/a2a/rest"))
        for version in ("1.0", "0.3")
    ],
    security_schemes={
        "key": SecurityScheme(api_key_security_scheme=APIKeySecurityScheme(location="header", name="X-API-Key")),
        "login": SecurityScheme(
            open_id_connect_security_scheme=OpenIdConnectSecurityScheme(
                open_id_connect_url=f"{ISSUER}/.well-known/openid-configuration"
            )
        ),
    },
    security_requirements=[demand("key", "read"), demand("login", "read")],
)

handler = DefaultRequestHandler(agent_executor=HelloWorld(), task_store=InMemoryTaskStore(), agent_card=card)


def new_agent() -> FastAPI:
    agent = FastAPI()
    add_a2a_routes_to_fastapi(
        agent,
        agent_card_routes=[
            *create_agent_card_routes(card),
            *create_agent_card_routes(card, card_url="/.well-known/agent.json"),  # where clients of 0.2 look
        ],
        jsonrpc_routes=create_jsonrpc_routes(handler, rpc_url="/a2a/jsonrpc", enable_v0_3_compat=True),
        rest_routes=create_rest_routes(handler, path_prefix="/a2a/rest", enable_v0_3_compat=True),
    )
    return agent


# The agent ends here. Who proves the two schemes of its card:
if "API_KEYS" in os.environ:
    api_keys: MemoryApiKeys | SqliteApiKeys = SqliteApiKeys(os.environ["API_KEYS"])
else:
    api_keys = MemoryApiKeys()
fetcher = Fetcher(private_origins=os.environ.get("PRIVATE_ORIGINS", "").split())
verifiers = {
    "key": ApiKeyVerifier(api_keys),
    "login": JwtVerifier(OpenIdKeys(ISSUER, fetcher), issuer=ISSUER, audience=AUDIENCE),
}

# And the line that makes the card true:
app = protect(new_agent(), card=card, verifiers=verifiers)


def main() -> None:
    if isinstance(api_keys, MemoryApiKeys):
        key = api_keys.create(owner="you", scopes=["read"]).text
        print(f"""\
Served with this key, refused without it:

curl -N {URL}/a2a/rest/message:stream -H 'X-API-Key: {key}' \\
    -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' \\
    -d '{{"message": {{"messageId": "1", "role": "ROLE_USER", "parts": [{{"text": "hi"}}]}}}}'
""")
    address = urlsplit(URL)
    uvicorn.run(app, host=address.hostname or "127.0.0.1", port=address.port or 80)


if __name__ == "__main__":
    main()
