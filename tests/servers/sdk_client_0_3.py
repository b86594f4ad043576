"""The client of a2a-sdk 0.3.26 at work, as ``sdk_client_1_3.py`` runs that of 1.3.0."""

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
from a2a.types import Message, Part, Role, Task, TaskQueryParams, TaskStatusUpdateEvent, TextPart, TransportProtocol

#: Few enough that a stream is read before its task is done.
AT_ONCE = asyncio.Semaphore(8)


async def run(case: dict[str, Any]) -> dict[str, Any]:
    statuses: list[int] = []

    async def note(response: httpx.Response) -> None:
        statuses.append(response.status_code)

    async with AT_ONCE, httpx.AsyncClient(timeout=60, verify=False) as http:
        card = await A2ACardResolver(http, case["url"]).get_agent_card()
        http.event_hooks["response"] = [note]
        config = ClientConfig(
            streaming=case["streaming"],
            httpx_client=http,
            supported_transports=[TransportProtocol(case["binding"])],
        )
        credentials = InMemoryContextCredentialStore()
        for scheme, value in case["credentials"].items():
            await credentials.set_credentials("session", scheme, value)
        client = ClientFactory(config).create(card, interceptors=[AuthInterceptor(credentials)])
        # The HTTP+JSON transport of this version never asks its interceptors; its users give headers.
        headers = case["headers"] if case["binding"] == "HTTP+JSON" else {}
        context = ClientCallContext(state={"sessionId": "session", "http_kwargs": {"headers": headers}})
        said = Message(message_id="1", role=Role.user, parts=[Part(root=TextPart(text=case["text"]))])
        seen: dict[str, Any] = {"error": None, "events": [], "answer": "", "meanwhile": case.get("meanwhile")}
        try:
            async for task, update in client.send_message(said, context=context):
                await take(task, update, seen, client, context)
        except A2AClientError as error:
            seen["error"] = str(error)
    return {**seen, "statuses": statuses}


async def take(task: Task, update: Any, seen: dict[str, Any], client: Any, context: Any) -> None:
    state = None
    if update is None or isinstance(update, TaskStatusUpdateEvent):
        state = task.status.state
        seen["events"].append(state.value)
        artifacts = (task.artifacts or []) if update is None else []
    else:
        seen["events"].append("artifact")
        artifacts = [update.artifact]
    seen["answer"] += "".join(part.root.text for artifact in artifacts for part in artifact.parts)
    if state is not None and state.value == "working" and seen["meanwhile"] is None:
        found = await client.get_task(TaskQueryParams(id=task.id), context=context)
        seen["meanwhile"] = found.status.state.value


async def main() -> None:
    print(json.dumps(await asyncio.gather(*map(run, json.load(sys.stdin)))))


if __name__ == "__main__":
    asyncio.run(main())
