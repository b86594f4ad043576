"""A caller of the agent beside this file, with a webhook: it prints the notifications that the agent has signed.

Start it, where ``a2a-trust[client]``, ``a2a-sdk==1.3.0`` and ``uvicorn`` are installed, as examples/README.md says.
Settings, all from the environment: ``AGENT_URL`` where the agent is called, ``TRUST`` the trust file for its card,
``API_KEY`` the file with the key, ``WEBHOOK`` the URL of the webhook.
"""

from __future__ import annotations

import asyncio
import os
from urllib.parse import urlsplit

import uvicorn
from a2a.client import ClientConfig, create_client
from a2a.types import Message, Part, Role, SendMessageConfiguration, SendMessageRequest, TaskPushNotificationConfig

from a2a_trust import Fetcher, FetchOptions, TrustFile, async_fetch_card, verifying_client
from a2a_trust.client import ApiKey, SecretFile
from a2a_trust.push import PushNotification, PushReceiver

URL = os.environ.get("AGENT_URL", "http://127.0.0.1:9999")
WEBHOOK = os.environ.get("WEBHOOK", "http://127.0.0.1:9998/push")

done = asyncio.Event()


async def on_push(notification: PushNotification) -> None:
    body = notification.body
    print(f"from {notification.agent}: {', '.join(body)}")
    status = body.get("statusUpdate", {}).get("status", {})
    if status.get("state") == "TASK_STATE_COMPLETED":
        done.set()


async def main() -> None:
    trust = TrustFile(os.environ.get("TRUST", "trust.toml"))
    receiver = PushReceiver(on_push, url=WEBHOOK, trust=trust)
    port = urlsplit(WEBHOOK).port or 80
    server = uvicorn.Server(uvicorn.Config(receiver, port=port, lifespan="off", log_level="warning"))
    serving = asyncio.create_task(server.serve())
    card = await async_fetch_card(URL, trust, FetchOptions(fetcher=Fetcher(private_origins=[URL])))
    key = ApiKey(SecretFile(os.environ.get("API_KEY", "you.key")), origins=[URL])
    async with verifying_client(URL, trust=trust, credentials={"key": key}) as http:
        client = await create_client(URL, ClientConfig(httpx_client=http, streaming=False))
        request = SendMessageRequest(
            message=Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text="hi")]),
            configuration=SendMessageConfiguration(
                return_immediately=True,
                task_push_notification_config=TaskPushNotificationConfig(**receiver.register(card)),
            ),
        )
        async for _ in client.send_message(request):
            pass  # the task has begun; the rest comes to the webhook
        await asyncio.wait_for(done.wait(), 60)
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
