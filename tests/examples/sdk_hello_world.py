"""Tests the example ``sdk_hello_world`` in memory; run by the interpreter of a2a-sdk 1.3.0."""

# mypy: disable-error-code="import-not-found, import-untyped, unused-ignore"

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest.mock import AsyncMock

import hello_world
from a2a.server.agent_execution import RequestContext
from a2a.server.routes import DefaultServerCallContextBuilder
from a2a.types import Message, Part, Role, SendMessageRequest, TaskState

from a2a_trust.testing import fake_principal, fake_request, memory_client

SAID = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}


async def executed() -> list[str]:
    """What the executor tells of a message."""
    message = Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text="hi")])
    call_context = DefaultServerCallContextBuilder().build(fake_request(fake_principal("ann")))
    queue = AsyncMock()
    await hello_world.HelloWorld().execute(RequestContext(call_context, SendMessageRequest(message=message)), queue)
    said = []
    for (event,), _ in queue.enqueue_event.await_args_list:
        if event.DESCRIPTOR.name == "TaskStatusUpdateEvent":
            said.append(TaskState.Name(event.status.state))
        elif event.DESCRIPTOR.name == "TaskArtifactUpdateEvent":
            said.append(event.artifact.parts[0].text)
        else:
            said.append(event.DESCRIPTOR.name)
    return said


async def asked(http: Any, key: str) -> list[Any]:
    """Status and answer of the agent."""
    answer = await http.post("/a2a/rest/message:send", json=SAID, headers={"A2A-Version": "1.0", "X-API-Key": key})
    text = answer.json()["task"]["artifacts"][0]["parts"][0]["text"] if answer.is_success else None
    return [answer.status_code, text]


async def main() -> dict[str, Any]:
    keys = hello_world.api_keys
    async with memory_client(hello_world.app, base_url=hello_world.URL) as http:
        return {
            "executor": await executed(),
            "by key": await asked(http, keys.create(owner="ann", scopes=["read"]).text),
            "without scope": await asked(http, keys.create(owner="ann").text),
            "made up": await asked(http, "a2a_guessed"),
        }


print(json.dumps(asyncio.run(main())))
