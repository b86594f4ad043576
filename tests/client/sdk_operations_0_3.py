"""Every operation of the client of a2a-sdk 0.3.26, through our transport, as ``sdk_operations_1_3.py`` has them."""

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
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
    TransportProtocol,
)

from a2a_trust import AsyncVerifyingTransport, Origins, TrustedKey, TrustStore
from a2a_trust.client import UnsafePassAnything
from a2a_trust.keys import read_jwks


async def said(events: AsyncIterator[Any]) -> str:
    return "".join([event.parts[0].root.text async for event in events])


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
    message = Message(message_id="1", role=Role.user, parts=[Part(root=TextPart(text="hi"))])
    async with httpx.AsyncClient(transport=transport, headers={"X-API-Key": "secret-key"}) as http:
        card = await A2ACardResolver(http, case["url"]).get_agent_card()

        def client(*, streaming: bool) -> Any:
            bindings = [TransportProtocol(case["binding"])]
            config = ClientConfig(httpx_client=http, streaming=streaming, supported_transports=bindings)
            return ClientFactory(config).create(card)

        plain, streaming = client(streaming=False), client(streaming=True)
        hook = PushNotificationConfig(id="c-1", url="https://hook.example.com")
        operations = {
            "send": said(plain.send_message(message)),
            "stream": said(streaming.send_message(message)),
            "get": plain.get_task(TaskQueryParams(id="t-1")),
            "cancel": plain.cancel_task(TaskIdParams(id="t-1")),
            "subscribe": said(streaming.resubscribe(TaskIdParams(id="t-1"))),
            "create config": plain.set_task_callback(
                TaskPushNotificationConfig(task_id="t-1", push_notification_config=hook)
            ),
            "get config": plain.get_task_callback(
                GetTaskPushNotificationConfigParams(id="t-1", push_notification_config_id="c-1")
            ),
            "extended card": plain.get_card(),
        }
        return {name: await outcome(call) for name, call in operations.items()}


async def main() -> None:
    print(json.dumps([await run(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    asyncio.run(main())
