"""The requests of a probe to one interface: each operation that changes nothing, as its generation names it.

The rules:

1. The task does not exist, so nothing is canceled, and no stream begins. ``SendMessage`` and ``SendStreamingMessage``
   come without a message, so no task begins.
2. Operations that write (``CreateTaskPushNotificationConfig`` …) are left out.
3. The extended card is requested by its names in all generations, at the interface and beside it.

This module only computes values. Source: A2A 1.0.1 5.3, 9.4, 11.3; 0.3 3.2.3, 7; 0.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote

from a2a_trust.card.operations import (
    EXTENDED_CARD_0_2,
    EXTENDED_CARD_METHODS,
    EXTENDED_CARD_PATHS,
    METHODS,
    ROUTES,
    Binding,
    Operation,
    Route,
)
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import Interface

UNKNOWN: Final = "UnknownOperation"
"""The name of the operation that does not exist."""
SENDING: Final = (Operation.SEND_MESSAGE, Operation.SEND_STREAMING_MESSAGE)
HARMLESS: Final = (
    *SENDING,
    Operation.GET_TASK,
    Operation.LIST_TASKS,
    Operation.CANCEL_TASK,
    Operation.SUBSCRIBE_TO_TASK,
    Operation.GET_PUSH_CONFIG,
    Operation.LIST_PUSH_CONFIGS,
    Operation.GET_EXTENDED_CARD,
)
#: A site that no browser shows (RFC 6761 6.4).
OTHER_SITE: Final = "https://probe.invalid"
_IN_0_1: Final = ("tasks/get", "tasks/cancel", "tasks/resubscribe")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeRequest:
    """A request without credentials. ``is_other_name``: it names the extended card as other generations do."""

    operation: str
    binding: Binding
    method: str
    url: str
    content: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    is_other_name: bool = False


def requests_of(interface: Interface, task: str) -> tuple[ProbeRequest, ...]:
    """The requests to an interface of JSON-RPC or HTTP+JSON; ``task`` is the id of a task that does not exist."""
    named = _calls(interface, task) if interface.binding == Binding.JSONRPC else _routes(interface, task)
    return (*named, *_other_names(interface))


def preflight(interface: Interface) -> ProbeRequest:
    """The request of a browser before a page of another site may call the interface with a credential."""
    headers = {
        "Origin": OTHER_SITE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    return ProbeRequest(
        operation="preflight", binding=Binding(interface.binding), method="OPTIONS", url=interface.url, headers=headers
    )


def call(interface: Interface, operation: str, method: str, params: Mapping[str, Any]) -> ProbeRequest:
    """A call of JSON-RPC."""
    named = {**params, "tenant": interface.tenant} if interface.tenant else params
    body = {"jsonrpc": "2.0", "id": "probe", "method": method, "params": named}
    return ProbeRequest(
        operation=operation,
        binding=Binding.JSONRPC,
        method="POST",
        url=interface.url,
        content=json.dumps(body).encode(),
        headers=_version(interface),
    )


def method_of(generation: Generation, operation: Operation) -> str | None:
    """The method of JSON-RPC for an operation; None: this generation has none."""
    names = [name for name, known in METHODS.items() if known == (generation, operation)]
    if generation is Generation.V0_1:
        names += [name for name in _IN_0_1 if METHODS[name][1] is operation]
    return names[0] if names else None


def _version(interface: Interface) -> dict[str, str]:
    return {} if interface.is_legacy else {"A2A-Version": "1.0"}


def _calls(interface: Interface, task: str) -> Iterator[ProbeRequest]:
    generation = interface.generation
    for operation in HARMLESS:
        method = method_of(generation, operation)
        if method is not None:
            yield call(interface, operation, method, _params(generation, operation, task))
    if interface.is_legacy:  # some servers have each method at a path of its own
        at_path = replace(interface, url=f"{interface.url.rstrip('/')}/tasks/get")
        yield call(at_path, Operation.GET_TASK, "tasks/get", {"id": task})
    yield call(interface, UNKNOWN, "ProbeUnknown" if generation is Generation.V1_0 else "probe/unknown", {})


def _params(generation: Generation, operation: Operation, task: str) -> dict[str, str]:
    is_1_0 = generation is Generation.V1_0
    match operation:
        case Operation.GET_PUSH_CONFIG if is_1_0:
            return {"taskId": task, "id": task}
        case Operation.LIST_PUSH_CONFIGS if is_1_0:
            return {"taskId": task}
        case Operation.LIST_TASKS | Operation.GET_EXTENDED_CARD:
            return {}
    return {} if operation in SENDING and generation is not Generation.V0_1 else {"id": task}


def route(interface: Interface, named: Route, task: str, content: bytes | None) -> ProbeRequest:
    """A request of HTTP+JSON."""
    tenant = f"/{quote(interface.tenant, safe='')}" if interface.tenant else ""
    path = named.template.replace("{task}", quote(task, safe="")).replace("{config}", quote(task, safe=""))
    return ProbeRequest(
        operation=named.operation,
        binding=Binding.HTTP_JSON,
        method=named.methods[0],
        url=f"{interface.url.rstrip('/')}{tenant}{path}",
        content=content,
        headers=_version(interface),
    )


def _routes(interface: Interface, task: str) -> Iterator[ProbeRequest]:
    for each in ROUTES[interface.generation]:
        if each.operation in HARMLESS:
            yield route(interface, each, task, b"{}" if each.methods[0] == "POST" else None)
    yield ProbeRequest(
        operation=UNKNOWN,
        binding=Binding.HTTP_JSON,
        method="GET",
        url=f"{interface.url.rstrip('/')}/probeUnknown",
        headers=_version(interface),
    )


def _other_names(interface: Interface) -> Iterator[ProbeRequest]:
    """The extended card under its other names. Rule 3."""
    base = interface.url.partition("?")[0].rstrip("/")
    if interface.binding == Binding.JSONRPC:
        for generation, method in EXTENDED_CARD_METHODS.items():
            if generation is not interface.generation:
                yield replace(call(interface, Operation.GET_EXTENDED_CARD, method, {}), is_other_name=True)
    bases = [base, base.rpartition("/")[0]] if base.count("/") > 2 else [base]
    own = {each.template for each in ROUTES[interface.generation]} if interface.binding == Binding.HTTP_JSON else set()
    for place in bases:
        for path in (*EXTENDED_CARD_PATHS.values(), EXTENDED_CARD_0_2):
            if place != base or path not in own:
                named = Route(Operation.GET_EXTENDED_CARD, ("GET",), path)
                at = replace(interface, url=place, tenant="")
                yield replace(route(at, named, "", None), is_other_name=True)
