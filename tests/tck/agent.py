"""The agent that the conformance kit asks, bare and protected: one application, with and without ``protect``.

The kit says by the start of a message's id what the agent shall do with it. Run by a server in the environment of the
SDK's server, never imported by a test; the settings are in AGENT.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, unused-ignore"

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, Final

import httpx
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import AgentCard, Message, Part, Role, Task, TaskState, TaskStatus
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette

from a2a_trust import CardServing, ExtendedCard, RequestRules, generate_signer
from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.card.merge import merged_card
from a2a_trust.keys.trust.jwks_cache import JwksCache
from a2a_trust.middleware import UnsafeAnyWebhook
from a2a_trust.middleware.protection import protect

SETTINGS: Final[dict[str, Any]] = json.loads(os.environ["AGENT"])
LEGACY: Final = "0.3" in SETTINGS["versions"]
REST: Final = "/a2a/rest"
_SECONDS_OF_A_LONG_TASK: Final = 4

_TEXT: Final = {"text": "Generated text content"}
_FILE: Final = {"filename": "output.txt", "mediaType": "text/plain"}
_PARTS: Final[dict[str, dict[str, Any]]] = {
    "tck-artifact-text": _TEXT,
    "tck-artifact-file": {"raw": "dGNr", **_FILE},
    "tck-artifact-file-url": {"url": "https://example.com/output.txt", **_FILE},
    "tck-artifact-data": {"data": {"key": "value", "count": 42}},
    "tck-stream-001": _TEXT,
    "tck-stream-003": _TEXT,
    "tck-stream-ordering-001": _TEXT,
    "tck-stream-artifact-text": _TEXT,
    "tck-stream-artifact-file": {"raw": "dGNr", **_FILE},
}
"""What a task comes to, by the start of the id of the message that asks for it."""


class Scripted(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        asked = context.message.message_id
        if asked.startswith("tck-message-response"):
            answer = Message(message_id="answer", role=Role.ROLE_AGENT, parts=[Part(text="Direct message response")])
            await event_queue.enqueue_event(answer)
            return
        known = context.current_task
        # A message may name its task alone: the context is the task's then, and not the one that the SDK makes up.
        updater = TaskUpdater(event_queue, context.task_id, known.context_id if known else context.context_id)
        if known is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            task = Task(id=context.task_id, context_id=context.context_id, status=status, history=[context.message])
            await event_queue.enqueue_event(task)
        if asked.startswith("tck-input-required"):
            await updater.requires_input()
            return
        if asked.startswith("tck-reject-task"):
            await updater.reject()
            return
        if asked.startswith("tck-stream-"):
            await updater.start_work()
        if asked.startswith("test-resubscribe-message-id"):
            await updater.start_work()
            await asyncio.sleep(_SECONDS_OF_A_LONG_TASK)
        elif asked.startswith("tck-stream-artifact-chunked"):
            await updater.add_artifact([Part(text="chunk-1 ")], artifact_id="chunked", append=False, last_chunk=False)
            await updater.add_artifact([Part(text="chunk-2")], artifact_id="chunked", append=True, last_chunk=True)
        else:
            start = max((start for start in _PARTS if asked.startswith(start)), key=len, default=None)
            if start is not None:
                await updater.add_artifact([ParseDict(_PARTS[start], Part())])
        await updater.complete(updater.new_agent_message([Part(text="Hello from TCK")]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def the_card() -> dict[str, Any]:
    """Demands an API key or an access token. A bare server of the SDK serves the same, and demands nothing."""
    return {
        "name": "Conformance",
        "description": "Does what the conformance kit asks for.",
        "version": "1.0.0",
        "supportedInterfaces": [
            {"url": SETTINGS["url"] + path, "protocolBinding": binding, "protocolVersion": version}
            for binding, path in (("JSONRPC", ""), ("HTTP+JSON", REST))
            for version in SETTINGS["versions"]
        ],
        "capabilities": SETTINGS["capabilities"],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "tck", "name": "TCK", "description": "Does as the kit asks.", "tags": ["tck"]}],
        "securitySchemes": {
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
            "login": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
        },
        "securityRequirements": [{"schemes": {"key": {"list": ["read"]}}}, {"schemes": {"login": {"list": ["read"]}}}],
    }


def sdk_agent() -> Starlette:
    """The agent as the SDK makes it."""
    card = ParseDict(CARD, AgentCard())
    configurations = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=Scripted(),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        extended_agent_card=ParseDict(EXTENDED, AgentCard()),
        push_config_store=configurations,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), configurations),
    )
    return Starlette(
        routes=[
            *create_agent_card_routes(card, cache_control="public, max-age=300"),
            *create_rest_routes(handler, path_prefix=REST, enable_v0_3_compat=LEGACY),
            *create_jsonrpc_routes(handler, rpc_url="/", enable_v0_3_compat=LEGACY),
        ]
    )


def protected(agent: Starlette) -> Any:
    keys = MemoryApiKeys()
    keys.import_key(SETTINGS["key"], owner="ann", scopes=["read"])

    async def keys_of_the_issuer() -> tuple[bytes, float | None]:
        return SETTINGS["jwks"].encode(), None

    return protect(
        agent,
        card=merged_card(CARD) if LEGACY else CARD,
        verifiers={
            "key": ApiKeyVerifier(keys),
            "login": JwtVerifier(JwksCache(keys_of_the_issuer), issuer=SETTINGS["issuer"], audience=SETTINGS["url"]),
        },
        url=SETTINGS["url"],
        extended_card=ExtendedCard(EXTENDED) if SETTINGS["capabilities"].get("extendedAgentCard") else None,
        rules=RequestRules(webhooks=UnsafeAnyWebhook()),
        serving=CardServing(signer=generate_signer("ES256"), lifetime=3600),
    )


CARD: Final = the_card()
EXTENDED: Final = {**CARD, "description": "Does more for callers it knows."}
bare = sdk_agent()
wrapped = protected(sdk_agent())
