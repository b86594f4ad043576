"""The push sender of the SDK, of 0.2, 0.3 or 1.x, with or without ``SignedPush``: what it is told to send, it sends.

The question has the registrations, the tasks to tell of, and the key of the agent; the answer is the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

import httpx
from a2a import types
from a2a.server.tasks import BasePushNotificationSender, InMemoryPushNotificationConfigStore

from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.keys.signer import LocalSigner
from a2a_trust.push.httpx import PushTransport, SignedPush

IS_OLD = hasattr(types, "PushNotificationConfig")


async def send(question: dict[str, Any]) -> None:
    store = InMemoryPushNotificationConfigStore()
    for task, config in question["registrations"]:
        if IS_OLD:
            await store.set_info(task, types.PushNotificationConfig(**config))
        else:
            from a2a.server.context import ServerCallContext

            await store.set_info(task, types.TaskPushNotificationConfig(**config), ServerCallContext())
    options: dict[str, Any] = {}
    if "key" in question:
        ring = KeyRing.begin(LocalSigner.from_jwk(question["key"]), 0.0)
        fetcher = Fetcher(private_origins=question["private_origins"])
        signed = SignedPush(ring, issuer=question["issuer"], configs=store)
        options = {"transport": PushTransport(fetcher), "auth": signed}
    async with httpx.AsyncClient(**options) as client:
        sender = BasePushNotificationSender(client, store)
        for task in question["tasks"]:
            if IS_OLD:
                status = types.TaskStatus(state=types.TaskState.working)
                await sender.send_notification(types.Task(id=task, context_id="c", contextId="c", status=status))
            else:
                status = types.TaskStatus(state=types.TaskState.TASK_STATE_WORKING)
                event = types.TaskStatusUpdateEvent(task_id=task, context_id="c", status=status)
                await sender.send_notification(task, event)


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    asyncio.run(send(json.load(sys.stdin)))
    print(json.dumps("sent"))


if __name__ == "__main__":
    main()
