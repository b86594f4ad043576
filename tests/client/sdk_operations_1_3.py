"""Every operation of the client of a2a-sdk 1.3.0, through our transport.

It reads cases as JSON from its input and writes what came of each. Run by the interpreter of that SDK's own
environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)

from a2a_trust import AsyncVerifyingTransport, Origins, TrustedKey, TrustStore
from a2a_trust.client import UnsafePassAnything
from a2a_trust.keys import read_jwks


async def said(events: AsyncIterator[Any]) -> str:
    return "".join([event.message.parts[0].text async for event in events])


async def outcome(call: Any) -> str:
    """What the operation comes to: what was said, or the names of the errors."""
    try:
        answer = await call
    except Exception as error:  # noqa: BLE001  those of the SDK
        names: list[str] = []
        link: BaseException | None = error
        while link is not None:
            names.append(type(link).__name__)
            link = link.__cause__
        return " < ".join(names)
    return answer if isinstance(answer, str) else type(answer).__name__


async def run(case: dict[str, Any]) -> dict[str, str]:
    keys = read_jwks(json.dumps(case["keys"]).encode()).keys
    transport = AsyncVerifyingTransport(
        httpx.AsyncHTTPTransport(verify=ssl.create_default_context(cadata=case["ca"])),
        TrustStore(TrustedKey(key=key, origins=Origins(case["host"])) for key in keys),
        also=() if case["strict"] else UnsafePassAnything(),
    )
    message = Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text="hi")])
    async with httpx.AsyncClient(transport=transport, headers={"X-API-Key": "secret-key"}) as http:
        card = await A2ACardResolver(http, case["url"]).get_agent_card()

        def client(*, streaming: bool) -> Any:
            config = ClientConfig(httpx_client=http, streaming=streaming, supported_protocol_bindings=[case["binding"]])
            return ClientFactory(config).create(card)

        plain, streaming = client(streaming=False), client(streaming=True)
        task = {"tenant": case["tenant"], "task_id": "t-1"}
        config = TaskPushNotificationConfig(**task, id="c-1", url="https://hook.example.com")
        sent = SendMessageRequest(message=message, tenant=case["tenant"])
        named = {"tenant": case["tenant"], "id": "t-1"}
        operations = {
            "send": said(plain.send_message(sent)),
            "stream": said(streaming.send_message(sent)),
            "get": plain.get_task(GetTaskRequest(**named)),
            "list": plain.list_tasks(ListTasksRequest(tenant=case["tenant"])),
            "cancel": plain.cancel_task(CancelTaskRequest(**named)),
            "subscribe": said(streaming.subscribe(SubscribeToTaskRequest(**named))),
            "create config": plain.create_task_push_notification_config(config),
            "get config": plain.get_task_push_notification_config(
                GetTaskPushNotificationConfigRequest(**task, id="c-1")
            ),
            "list configs": plain.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(**task)),
            "delete config": plain.delete_task_push_notification_config(
                DeleteTaskPushNotificationConfigRequest(**task, id="c-1")
            ),
            "extended card": plain.get_extended_agent_card(GetExtendedAgentCardRequest(tenant=case["tenant"])),
        }
        return {name: await outcome(call) for name, call in operations.items()}


async def main() -> None:
    print(json.dumps([await run(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    asyncio.run(main())
