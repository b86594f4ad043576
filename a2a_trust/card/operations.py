"""The operations of A2A: how requests name them, in each generation and binding.

The tables are data. They hold everything that the specification's text, ``a2a.proto`` and the released SDKs have; where
these disagree, all of them (``:subscribe`` is GET in the one and POST in the other). A test compares them with the
SDKs. Sources: A2A 1.0.1 5.3, 9.1, 11.1; A2A 0.3.0 3.2.3, 3.5.6; A2A 0.1 and 0.2.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias
from unicodedata import normalize
from urllib.parse import unquote

from a2a_trust.card.schema import Generation


class Binding(StrEnum):
    """The protocol binding of an interface, as cards name it (A2A 5)."""

    JSONRPC = "JSONRPC"
    HTTP_JSON = "HTTP+JSON"
    GRPC = "GRPC"


class Operation(StrEnum):
    """An operation, by its name in ``a2a.proto``."""

    SEND_MESSAGE = "SendMessage"
    SEND_STREAMING_MESSAGE = "SendStreamingMessage"
    GET_TASK = "GetTask"
    LIST_TASKS = "ListTasks"
    CANCEL_TASK = "CancelTask"
    SUBSCRIBE_TO_TASK = "SubscribeToTask"
    CREATE_PUSH_CONFIG = "CreateTaskPushNotificationConfig"
    GET_PUSH_CONFIG = "GetTaskPushNotificationConfig"
    LIST_PUSH_CONFIGS = "ListTaskPushNotificationConfigs"
    DELETE_PUSH_CONFIG = "DeleteTaskPushNotificationConfig"
    GET_EXTENDED_CARD = "GetExtendedAgentCard"


class Route(NamedTuple):
    """How HTTP+JSON names an operation: by one of the methods, at a path below the interface's own."""

    operation: Operation
    methods: tuple[str, ...]
    template: str


def path_expression(template: str) -> str:
    """The regular expression of the paths of a route."""
    return re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template))


EXTENDED_CARD_PATHS: Final = {Generation.V1_0: "/extendedAgentCard", Generation.V0_3: "/v1/card"}
"""Where HTTP+JSON has the extended card, by GET, below the interface's own path."""

EXTENDED_CARD_0_2: Final = "/agent/authenticatedExtendedCard"
"""Where 0.2 has the extended card, by GET, beside the interface of either binding."""

EXTENDED_CARD_METHODS: Final = {
    Generation.V1_0: Operation.GET_EXTENDED_CARD.value,
    Generation.V0_3: "agent/getAuthenticatedExtendedCard",
}
"""The methods of JSON-RPC that ask for the extended card."""

_SHARED: Final = (
    Route(Operation.SEND_MESSAGE, ("POST",), "/message:send"),
    Route(Operation.SEND_STREAMING_MESSAGE, ("POST",), "/message:stream"),
    Route(Operation.CANCEL_TASK, ("POST",), "/tasks/{task}:cancel"),
    Route(Operation.SUBSCRIBE_TO_TASK, ("GET", "POST"), "/tasks/{task}:subscribe"),
    Route(Operation.GET_TASK, ("GET",), "/tasks/{task}"),
    Route(Operation.LIST_TASKS, ("GET",), "/tasks"),
    Route(Operation.GET_PUSH_CONFIG, ("GET",), "/tasks/{task}/pushNotificationConfigs/{config}"),
    Route(Operation.DELETE_PUSH_CONFIG, ("DELETE",), "/tasks/{task}/pushNotificationConfigs/{config}"),
    Route(Operation.CREATE_PUSH_CONFIG, ("POST",), "/tasks/{task}/pushNotificationConfigs"),
    Route(Operation.LIST_PUSH_CONFIGS, ("GET",), "/tasks/{task}/pushNotificationConfigs"),
)

ROUTES: Final[dict[Generation, tuple[Route, ...]]] = {
    Generation.V1_0: (*_SHARED, Route(Operation.GET_EXTENDED_CARD, ("GET",), EXTENDED_CARD_PATHS[Generation.V1_0])),
    Generation.V0_3: (
        *(Route(route.operation, route.methods, f"/v1{route.template}") for route in _SHARED),
        Route(Operation.GET_EXTENDED_CARD, ("GET",), EXTENDED_CARD_PATHS[Generation.V0_3]),
    ),
    Generation.V0_1: (
        Route(Operation.SEND_MESSAGE, ("POST",), "/tasks/send"),
        Route(Operation.SEND_STREAMING_MESSAGE, ("POST",), "/tasks/sendSubscribe"),
        Route(Operation.GET_TASK, ("GET",), "/tasks/{task}"),
    ),
}
"""The routes of HTTP+JSON. Routes of 1.0 may have a tenant's segment too: where the specification has it, behind the
interface's own path, and where a2a-sdk has it, before that path. HEAD is understood wherever GET is."""

ABSENT_BESIDE_1_0: Final = frozenset({Operation.LIST_TASKS, Operation.DELETE_PUSH_CONFIG})
"""The routes that a server of both generations has only in 1.0: there ``/v1/tasks`` names the tenant ``v1`` of 1.0."""

METHODS: Final[dict[str, tuple[Generation, Operation]]] = {
    **{operation.value: (Generation.V1_0, operation) for operation in Operation},
    "message/send": (Generation.V0_3, Operation.SEND_MESSAGE),
    "message/stream": (Generation.V0_3, Operation.SEND_STREAMING_MESSAGE),
    "tasks/get": (Generation.V0_3, Operation.GET_TASK),
    "tasks/list": (Generation.V0_3, Operation.LIST_TASKS),
    "tasks/cancel": (Generation.V0_3, Operation.CANCEL_TASK),
    "tasks/resubscribe": (Generation.V0_3, Operation.SUBSCRIBE_TO_TASK),
    "tasks/pushNotificationConfig/set": (Generation.V0_3, Operation.CREATE_PUSH_CONFIG),
    "tasks/pushNotificationConfig/get": (Generation.V0_3, Operation.GET_PUSH_CONFIG),
    "tasks/pushNotificationConfig/list": (Generation.V0_3, Operation.LIST_PUSH_CONFIGS),
    "tasks/pushNotificationConfig/delete": (Generation.V0_3, Operation.DELETE_PUSH_CONFIG),
    EXTENDED_CARD_METHODS[Generation.V0_3]: (Generation.V0_3, Operation.GET_EXTENDED_CARD),
    "tasks/send": (Generation.V0_1, Operation.SEND_MESSAGE),
    "tasks/sendSubscribe": (Generation.V0_1, Operation.SEND_STREAMING_MESSAGE),
    "tasks/pushNotification/set": (Generation.V0_1, Operation.CREATE_PUSH_CONFIG),
    "tasks/pushNotification/get": (Generation.V0_1, Operation.GET_PUSH_CONFIG),
}
"""The methods of JSON-RPC."""

_GRPC_0_3: Final = {
    Operation.SUBSCRIBE_TO_TASK: "TaskSubscription",
    Operation.LIST_PUSH_CONFIGS: "ListTaskPushNotificationConfig",
    Operation.GET_EXTENDED_CARD: "GetAgentCard",
}
GRPC_METHODS: Final[dict[str, tuple[Generation, Operation]]] = {
    **{f"/lf.a2a.v1.A2AService/{each}": (Generation.V1_0, each) for each in Operation},
    **{f"/a2a.v1.A2AService/{_GRPC_0_3.get(each, each)}": (Generation.V0_3, each) for each in Operation},
}
"""The methods of gRPC, as paths."""


class Named(StrEnum):
    """The kind of a text in a call that rules need."""

    TENANT = "tenant"
    WEBHOOK = "webhook"
    TASK = "task"


NamingFields: TypeAlias = "dict[str, NamingFields | Named]"

PUSH_CONFIG: Final[NamingFields] = {"tenant": Named.TENANT, "url": Named.WEBHOOK}
#: A message may register a webhook for its task.
MESSAGE: Final[NamingFields] = {"taskId": Named.TASK, "task_id": Named.TASK}
_OF_0_3: Final[NamingFields] = {
    "pushNotificationConfig": PUSH_CONFIG,
    "push_notification_config": PUSH_CONFIG,
    "pushNotification": PUSH_CONFIG,
    "push_notification": PUSH_CONFIG,
}
NAMING: Final[NamingFields] = {
    "tenant": Named.TENANT,
    "url": Named.WEBHOOK,  # of 1.0, where the parameters are the configuration
    # Readers of protobuf know both spellings of a member.
    "configuration": {
        "taskPushNotificationConfig": PUSH_CONFIG,
        "task_push_notification_config": PUSH_CONFIG,
        **_OF_0_3,
    },
    "message": MESSAGE,
    "request": MESSAGE,  # the message, as protobuf spells it in 0.3
    "config": {**PUSH_CONFIG, **_OF_0_3},
    **_OF_0_3,
}
"""The objects in the parameters of an operation that can name a tenant, a task or a webhook: for each member what it
names, or the members within it."""

_LONGEST_NAME: Final = 64
"""More characters than a name of A2A has, in a body or as a method."""
_PLAIN_PATH: Final = re.compile(r"(?:/[a-z0-9_~:-][a-z0-9._~:-]*)+")
_LONGEST_ODD_PATH: Final = 1024
_MOST_ODD: Final = 64
"""How many escapes, and how many different characters beyond ASCII, a path may have once it is decoded."""
_ASCII: Final = frozenset(map(chr, range(128)))


def fold_name(name: str) -> str:
    """A printable name as the most lenient reader compares it: without case, blanks and compatible characters.

    Of a name that is none of A2A in any reading, only the beginning is folded: the names of A2A are short and in ASCII,
    and no two characters together become one in ASCII.
    """
    name = name.replace(" ", "")
    if name.isascii():
        return name.lower()
    folded = ""
    for char in name:
        folded += char.lower() if char.isascii() else normalize("NFKC", char).casefold()
        if not folded.isascii() or len(folded) > _LONGEST_NAME:
            break
    return folded


def is_foldable(path: str) -> bool:
    """Whether the path may be folded, which is done before its caller is known: each escape, and each of the different
    characters beyond ASCII, takes a microsecond."""
    if path.isascii() and "%" not in path:
        return True
    if len(path) > _LONGEST_ODD_PATH or path.count("%") > _MOST_ODD:
        return False
    return len({*unquote(path)} - _ASCII) <= _MOST_ODD


def fold_path(path: str) -> str:
    """The path as the most lenient router reads it: decoded again, without case, parameters, empty and dot segments.

    Characters are decomposed one by one. To normalize a text takes time with the square of its combining characters.
    """
    if _PLAIN_PATH.fullmatch(path):
        return path
    plain = unquote(path).casefold()
    if not plain.isascii():
        folds = {char: normalize("NFKD", normalize("NFKC", char).casefold()) for char in {*plain}}
        plain = "".join(map(folds.__getitem__, plain))
    parts = re.sub(";[^/]*", "", plain.replace("\\", "/")).split("/")
    names = [name for name in map(str.strip, parts) if name not in ("", ".")]
    segments: list[str] = []
    for name in names if ".." in names else ():
        if name == "..":
            del segments[-1:]
        else:
            segments.append(name)
    return "/" + "/".join(segments if ".." in names else names)


_TEMPLATES: Final = (*(route.template for routes in ROUTES.values() for route in routes), EXTENDED_CARD_0_2)
_OPERATION_AT_THE_END: Final = re.compile(
    rf"(?:{'|'.join(dict.fromkeys(path_expression(template.casefold()) for template in _TEMPLATES))})\Z"
)


def ends_like_operation(path: str) -> bool:
    """Whether the path ends as a path of HTTP+JSON does, in any generation and any spelling."""
    return _OPERATION_AT_THE_END.search(fold_path(path)) is not None


def path_of_interface(path: str) -> str:
    """The part of a path before the operation at its end: the path of the interface, if it names no tenant."""
    return _OPERATION_AT_THE_END.split(fold_path(path))[0] or "/"
