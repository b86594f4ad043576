"""The client of a2a-sdk 1.3.0 at work: reads cases as JSON from its input, runs them all at once, writes what it saw.

Run by the interpreter of that SDK's own environment, never imported by a test. Every client gets its credentials as
the SDK's users give them: by scheme name, to the SDK's own interceptor, which reads the card.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from a2a.client import A2ACardResolver, AuthInterceptor, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.auth import InMemoryContextCredentialStore
from a2a.client.errors import A2AClientError
from a2a.types import GetTaskRequest, Message, Part, Role, SendMessageRequest, TaskState

#: Few enough that a stream is read before its task is done.
AT_ONCE = asyncio.Semaphore(8)


async def run(case: dict[str, Any]) -> dict[str, Any]:
    statuses: list[int] = []

    async def note(response: httpx.Response) -> None:
        statuses.append(response.status_code)

    async with AT_ONCE, httpx.AsyncClient(timeout=60, verify=False) as http:
        card = await A2ACardResolver(http, case["url"]).get_agent_card()
        http.event_hooks["response"] = [note]
        chosen = [item for item in card.supported_interfaces if item.protocol_version == case["version"]]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(chosen)
        config = ClientConfig(
            streaming=case["streaming"], httpx_client=http, supported_protocol_bindings=[case["binding"]]
        )
        credentials = InMemoryContextCredentialStore()
        for scheme, value in case["credentials"].items():
            await credentials.set_credentials("session", scheme, value)
        client = ClientFactory(config).create(card, [AuthInterceptor(credentials)])
        context = ClientCallContext(state={"sessionId": "session"})
        said = Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text=case["text"])])
        seen: dict[str, Any] = {"error": None, "events": [], "answer": "", "meanwhile": case.get("meanwhile")}
        try:
            async for event in client.send_message(SendMessageRequest(message=said), context=context):
                await take(event, seen, client, context)
        except A2AClientError as error:
            seen["error"] = str(error)
    return {**seen, "statuses": statuses}


async def take(event: Any, seen: dict[str, Any], client: Any, context: Any) -> None:
    kind = event.WhichOneof("payload")
    state = ""
    if kind == "task":
        state, artifacts, task = event.task.status.state, event.task.artifacts, event.task.id
    elif kind == "status_update":
        state, artifacts, task = event.status_update.status.state, [], event.status_update.task_id
    else:
        artifacts = [event.artifact_update.artifact]
    seen["answer"] += "".join(part.text for artifact in artifacts for part in artifact.parts)
    seen["events"].append(TaskState.Name(state).removeprefix("TASK_STATE_").lower() if state else "artifact")
    if state == TaskState.TASK_STATE_WORKING and seen["meanwhile"] is None:
        found = await client.get_task(GetTaskRequest(id=task), context=context)
        seen["meanwhile"] = TaskState.Name(found.status.state).removeprefix("TASK_STATE_").lower()


async def main() -> None:
    print(json.dumps(await asyncio.gather(*map(run, json.load(sys.stdin)))))


if __name__ == "__main__":
    asyncio.run(main())
