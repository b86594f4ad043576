"""Whether an agent accepts a URL for push notifications that leads to itself. It creates one task, and cancels it.

Source: A2A 1.0.1 3.1.7, 4.3.1, 13.2; 0.3 7.5.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

from a2a_trust.card.operations import Operation
from a2a_trust.card.view import Interface
from a2a_trust.probe.answers import content_of
from a2a_trust.probe.requests import ProbeRequest, request_of
from a2a_trust.probe.rules import ProbeFinding, finding
from a2a_trust.probe.verdicts import Exchange

_LOOPBACK: Final = "http://127.0.0.1:9/"


async def push_to_loopback(
    interface: Interface, send: Callable[[ProbeRequest], Awaitable[Exchange]]
) -> list[ProbeFinding]:
    """The finding, if the agent accepts the URL for a new task. ``send`` sends with the given credential."""

    async def result(operation: Operation, task: str, params: dict[str, Any]) -> tuple[Any, str]:
        for request in request_of(interface, operation, task, params):
            exchange = await send(request)
            if exchange.answer is not None and exchange.answer.status < 300:
                body = content_of(exchange.answer)
                is_result = isinstance(body, dict) and "error" not in body
                return (body.get("result", body) if is_result else None), str(exchange)
        return None, ""

    is_1_0 = not interface.is_legacy
    part = {"text": "A security test; please ignore."} | ({} if is_1_0 else {"kind": "text"})
    message = {"messageId": str(uuid4()), "role": "ROLE_USER" if is_1_0 else "user", "parts": [part]}
    at_once = {"returnImmediately": True} if is_1_0 else {"blocking": False}
    params = {"message": message | ({} if is_1_0 else {"kind": "message"}), "configuration": at_once}
    made, _ = await result(Operation.SEND_MESSAGE, "", params)
    made = made.get("task", made) if isinstance(made, dict) else None
    if not isinstance(made, dict) or not isinstance(made.get("id"), str) or "status" not in made:
        return []  # the agent has answered with a message
    task, url = made["id"][:128], {"url": _LOOPBACK}
    config = {"taskId": task, **(url if is_1_0 else {"pushNotificationConfig": url})}
    accepted, proof = await result(Operation.CREATE_PUSH_CONFIG, task, config)
    await result(Operation.CANCEL_TASK, task, {"id": task})
    return [] if accepted is None else [finding("push-to-loopback", interface.pointer, proof)]
