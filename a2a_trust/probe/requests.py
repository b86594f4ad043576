"""The requests of a probe to one interface: each operation that changes nothing, as its generation names it.

The task does not exist, so nothing is canceled, and no stream begins. ``SendMessage`` and ``SendStreamingMessage`` come
without a message, so no task begins. Operations that write (``CreateTaskPushNotificationConfig`` …) are left out. This
module only computes values. Source: A2A 1.0.1 5.3, 9.4, 11.3; 0.3 3.2.3, 7; 0.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote

from a2a_trust.card import operations
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import Interface

UNKNOWN: Final = "UnknownOperation"
"""The name of the operation that does not exist."""
PREFLIGHT: Final = "preflight"
SENDING: Final = (Operation.SEND_MESSAGE, Operation.SEND_STREAMING_MESSAGE)
_WRITING: Final = (Operation.CREATE_PUSH_CONFIG, Operation.DELETE_PUSH_CONFIG)
HARMLESS: Final = (*SENDING, *(each for each in Operation if each not in (*SENDING, *_WRITING)))
#: A site that no browser shows (RFC 6761 6.4).
OTHER_SITE: Final = "https://probe.invalid"
_IN_0_1: Final = ("tasks/get", "tasks/cancel", "tasks/resubscribe")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeRequest:
    """A request without credentials. ``is_other``: it names the extended card as other generations do, or is the
    request of a browser before a page of another site may call the interface. It is sent without a credential only."""

    operation: str
    binding: Binding
    method: str
    url: str
    content: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    is_other: bool = False


def requests_of(interface: Interface, task: str) -> Iterator[ProbeRequest]:
    """The requests to an interface of JSON-RPC or HTTP+JSON; ``task`` is the id of a task that does not exist."""
    generation, is_rpc = interface.generation, interface.binding == Binding.JSONRPC
    for operation in HARMLESS:
        yield from request_of(interface, operation, task, _params(generation, operation, task))
    if is_rpc and interface.is_legacy:  # some servers have each method at a path of its own
        at_path = replace(interface, url=f"{interface.url.rstrip('/')}/tasks/get")
        yield _call(at_path, Operation.GET_TASK, "tasks/get", {"id": task})
    if is_rpc:
        yield _call(interface, UNKNOWN, "ProbeUnknown" if generation is Generation.V1_0 else "probe/unknown", {})
    else:
        yield _request(interface, UNKNOWN, "GET", "/probeUnknown")
    yield from (replace(each, is_other=True) for each in _other_names(interface))
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, content-type"}
    plain = _request(interface, PREFLIGHT, "OPTIONS", "")
    yield replace(plain, url=interface.url, headers={"Origin": OTHER_SITE, **asked}, is_other=True)


def request_of(
    interface: Interface, operation: Operation, task: str, params: Mapping[str, Any]
) -> Iterator[ProbeRequest]:
    """The request for an operation; nothing, if the generation has none."""
    generation = interface.generation
    if interface.binding == Binding.JSONRPC:
        names = [name for name, known in operations.METHODS.items() if known == (generation, operation)]
        if generation is Generation.V0_1:
            names += [name for name in _IN_0_1 if operations.METHODS[name][1] is operation]
        yield from (_call(interface, operation, name, params) for name in names[:1])
        return
    for route in [each for each in operations.ROUTES[generation] if each.operation is operation][:1]:
        method, path = route.methods[0], re.sub(r"{\w+}", quote(task, safe=""), route.template)
        yield _request(interface, operation, method, path, json.dumps(params).encode() if method == "POST" else None)


def _request(
    interface: Interface, operation: str, method: str, path: str, content: bytes | None = None
) -> ProbeRequest:
    tenant = f"/{quote(interface.tenant, safe='')}" if interface.tenant and path else ""
    return ProbeRequest(
        operation=operation,
        binding=Binding.HTTP_JSON,
        method=method,
        url=f"{interface.url.rstrip('/')}{tenant}{path}",
        content=content,
        headers={} if interface.is_legacy else {"A2A-Version": "1.0"},
    )


def _call(interface: Interface, operation: str, method: str, params: Mapping[str, Any]) -> ProbeRequest:
    named = {**params, "tenant": interface.tenant} if interface.tenant else params
    body = {"jsonrpc": "2.0", "id": "probe", "method": method, "params": named}
    request = _request(interface, operation, "POST", "", json.dumps(body).encode())
    return replace(request, binding=Binding.JSONRPC, url=interface.url)


def _params(generation: Generation, operation: Operation, task: str) -> dict[str, str]:
    is_empty = operation in (Operation.LIST_TASKS, Operation.GET_EXTENDED_CARD)
    if is_empty or (operation in SENDING and generation is not Generation.V0_1):
        return {}
    if generation is Generation.V1_0 and operation in (Operation.GET_PUSH_CONFIG, Operation.LIST_PUSH_CONFIGS):
        return {"taskId": task} | ({"id": task} if operation is Operation.GET_PUSH_CONFIG else {})
    return {"id": task}


def _other_names(interface: Interface) -> Iterator[ProbeRequest]:
    """The extended card by its names in all generations, at the interface and beside it."""
    own = [each.template for each in operations.ROUTES[interface.generation]]
    if interface.binding == Binding.JSONRPC:
        own = []
        for generation, method in operations.EXTENDED_CARD_METHODS.items():
            if generation is not interface.generation:
                yield _call(interface, Operation.GET_EXTENDED_CARD, method, {})
    base = interface.url.partition("?")[0].rstrip("/")
    for place in [base, base.rpartition("/")[0]] if base.count("/") > 2 else [base]:
        for path in (*operations.EXTENDED_CARD_PATHS.values(), operations.EXTENDED_CARD_0_2):
            if place != base or path not in own:
                yield _request(replace(interface, url=place, tenant=""), Operation.GET_EXTENDED_CARD, "GET", path)
