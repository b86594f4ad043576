"""The client of a2a-sdk 0.2.16 at work, as ``sdk_client_1_3.py`` runs that of 1.3.0; it speaks JSON-RPC only."""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from a2a.client import A2ACardResolver, A2AClient, A2AClientError, ClientCallContext
from a2a.client.auth import AuthInterceptor, InMemoryContextCredentialStore
from a2a.types import (
    GetTaskRequest,
    MessageSendParams,
    SendMessageRequest,
    SendStreamingMessageRequest,
    TaskArtifactUpdateEvent,
    TaskQueryParams,
)

#: Few enough that a stream is read before its task is done.
AT_ONCE = asyncio.Semaphore(8)


async def run(case: dict[str, Any]) -> dict[str, Any]:
    statuses: list[int] = []

    async def note(response: httpx.Response) -> None:
        statuses.append(response.status_code)

    async with AT_ONCE, httpx.AsyncClient(timeout=60, verify=False) as http:
        card = await A2ACardResolver(http, case["url"]).get_agent_card()
        http.event_hooks["response"] = [note]
        credentials = InMemoryContextCredentialStore()
        for scheme, value in case["credentials"].items():
            await credentials.set_credentials("session", scheme, value)
        client = A2AClient(http, agent_card=card, interceptors=[AuthInterceptor(credentials)])
        context = ClientCallContext(state={"sessionId": "session"})
        said = {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": case["text"]}]}
        params = MessageSendParams.model_validate({"message": said})
        seen: dict[str, Any] = {"error": None, "events": [], "answer": "", "meanwhile": None}
        try:
            if case["streaming"]:
                request = SendStreamingMessageRequest(id="1", params=params)
                async for answer in client.send_message_streaming(request, context=context):
                    await take(answer.root.result, seen, client, context)
            else:
                answer = await client.send_message(SendMessageRequest(id="1", params=params), context=context)
                await take(answer.root.result, seen, client, context)
        except A2AClientError as error:
            seen["error"] = str(error)
    return {**seen, "statuses": statuses}


async def take(event: Any, seen: dict[str, Any], client: Any, context: Any) -> None:
    if isinstance(event, TaskArtifactUpdateEvent):
        seen["events"].append("artifact")
        artifacts = [event.artifact]
    else:
        seen["events"].append(event.status.state.value)
        artifacts = getattr(event, "artifacts", None) or []
    seen["answer"] += "".join(part.root.text for artifact in artifacts for part in artifact.parts)
    if seen["events"][-1] == "working":
        request = GetTaskRequest(id="2", params=TaskQueryParams(id=event.task_id))
        found = await client.get_task(request, context=context)
        seen["meanwhile"] = found.root.result.status.state.value


async def main() -> None:
    print(json.dumps(await asyncio.gather(*map(run, json.load(sys.stdin)))))


if __name__ == "__main__":
    asyncio.run(main())
