"""Whether an agent accepts a URL for push notifications that leads to itself. It creates one task, and cancels it.

Source: A2A 1.0.1 3.1.7, 4.3.1, 13.2; 0.3 7.5.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

from a2a_trust.card.operations import ROUTES, Binding, Operation
from a2a_trust.card.view import Interface
from a2a_trust.net.fetcher import AnyAnswer
from a2a_trust.probe.answers import Kind, content_of, read
from a2a_trust.probe.requests import ProbeRequest, call, method_of, route
from a2a_trust.probe.rules import ProbeFinding, finding

_LOOPBACK: Final = "http://127.0.0.1:9/"
_Send = Callable[[ProbeRequest], Awaitable[AnyAnswer | None]]


async def push_to_loopback(interface: Interface, send: _Send) -> list[ProbeFinding]:
    """The finding, if the agent accepts the URL for a new task. ``send`` sends with the given credential."""
    is_1_0 = not interface.is_legacy
    part = {"text": "A security test; please ignore."} | ({} if is_1_0 else {"kind": "text"})
    message = {"messageId": str(uuid4()), "role": "ROLE_USER" if is_1_0 else "user", "parts": [part]}
    at_once = {"returnImmediately": True} if is_1_0 else {"blocking": False}
    params = {"message": message if is_1_0 else {**message, "kind": "message"}, "configuration": at_once}
    task = _task_of(await _sent(interface, Operation.SEND_MESSAGE, "", params, send))
    if not task:
        return []
    push = (
        {"taskId": task, "url": _LOOPBACK} if is_1_0 else {"taskId": task, "pushNotificationConfig": {"url": _LOOPBACK}}
    )
    request = _request(interface, Operation.CREATE_PUSH_CONFIG, task, push)
    answer = None if request is None else await send(request)
    await _sent(interface, Operation.CANCEL_TASK, task, {"id": task}, send)
    if request is None or answer is None:
        return []
    reading = read(request, answer)
    if reading.kind is not Kind.ANSWERED or answer.status >= 300 or "error" in reading.text:
        return []
    return [
        finding(
            "push-to-loopback", interface.pointer, f"{_LOOPBACK} is accepted", f"{request.operation}: {reading.text}"
        )
    ]


async def _sent(interface: Interface, operation: Operation, task: str, params: dict[str, Any], send: _Send) -> Any:
    request = _request(interface, operation, task, params)
    answer = None if request is None else await send(request)
    return None if answer is None else content_of(answer)


def _request(interface: Interface, operation: Operation, task: str, params: dict[str, Any]) -> ProbeRequest | None:
    if interface.binding == Binding.JSONRPC:
        method = method_of(interface.generation, operation)
        return None if method is None else call(interface, operation, method, params)
    routes = [each for each in ROUTES[interface.generation] if each.operation is operation]
    return route(interface, routes[0], task, json.dumps(params).encode()) if routes else None


def _task_of(body: Any) -> str:
    """The id of the new task in an answer of either binding; "" if there is none."""
    for name in ("result", "task"):
        if isinstance(body, dict) and isinstance(body.get(name), dict):
            body = body[name]
    is_task = isinstance(body, dict) and isinstance(body.get("id"), str) and "status" in body
    return body["id"][:128] if is_task else ""
