"""An agent of the a2a-sdk behind ``protect``, and a fuzzer that looks for a call that the guard and the SDK's own
parsers read differently: another operation, another tenant, another task.

Run by the interpreter of ``frameworks/``, never imported by a test: ``SEED COUNT`` are its arguments. It prints how
many calls the SDK alone reads otherwise because of a NUL in a name, how many reached which of its handlers through the
guard, and every call that was read in two ways.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, no-untyped-call, unreachable, unused-ignore"

import asyncio
import json
import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.utils.errors import TaskNotFoundError
from starlette.applications import Starlette

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier
from a2a_trust.card.merge import merged_card
from a2a_trust.card.operations import METHODS
from a2a_trust.card.schema import Generation
from a2a_trust.middleware.calls import call_of
from a2a_trust.middleware.options import RequestRules, UnsafeAnyWebhook
from a2a_trust.middleware.protection import protect
from tests.fuzz.fuzz_frameworks import CARD, KEY, REST, RPC, STORE

PLAIN: Final[dict[str, Any]] = {**CARD, "capabilities": {"streaming": True, "pushNotifications": True}}

Read = tuple[str, frozenset[str], str]
"""The operation, the tenants and the task of a call."""


class Recorder:
    """The last call, as the guard read it, and as the SDK handed it to a handler."""

    by_guard: Read | None
    by_sdk: Read | None
    asked: list[str]
    """The tenants that ``may_use_tenant`` was asked about."""

    async def of(self, app: Any, request: dict[str, Any]) -> Read | None:
        """The call as the SDK read it; None if no handler got it."""
        self.by_guard, self.by_sdk, self.asked = None, None, []
        await send(app, request)
        return self.by_sdk

    def may_use_tenant(self, _caller: Any, tenant: str) -> bool:
        self.asked.append(tenant)
        return tenant == "acme"

    def take(self, name: str, params: Any, context: Any) -> None:
        push = getattr(getattr(params, "configuration", None), "task_push_notification_config", None)
        tenants = (context.tenant, params.tenant, "" if push is None else push.tenant)
        is_about_task = not name.startswith(("on_message", "on_list_tasks", "on_get_extended"))
        task = (getattr(params, "task_id", "") or params.id) if is_about_task else ""
        if "push_notification" in name:  # there, ``id`` is that of the configuration
            task = params.task_id
        self.by_sdk = (name, frozenset(filter(None, tenants)), task)


OPERATIONS: Final = {
    "SendMessage": "on_message_send",
    "SendStreamingMessage": "on_message_send_stream",
    "GetTask": "on_get_task",
    "ListTasks": "on_list_tasks",
    "CancelTask": "on_cancel_task",
    "SubscribeToTask": "on_subscribe_to_task",
    "CreateTaskPushNotificationConfig": "on_create_task_push_notification_config",
    "GetTaskPushNotificationConfig": "on_get_task_push_notification_config",
    "ListTaskPushNotificationConfigs": "on_list_task_push_notification_configs",
    "DeleteTaskPushNotificationConfig": "on_delete_task_push_notification_config",
    "GetExtendedAgentCard": "on_get_extended_agent_card",
}


def handler_for(recorder: Recorder) -> Any:
    def one(name: str) -> Any:
        async def answer(_self: Any, params: Any, context: Any) -> Any:
            recorder.take(name, params, context)
            raise TaskNotFoundError

        async def stream(_self: Any, params: Any, context: Any) -> Any:
            recorder.take(name, params, context)
            raise TaskNotFoundError
            yield

        return stream if name in ("on_message_send_stream", "on_subscribe_to_task") else answer

    made: Any = type("Recording", (RequestHandler,), {name: one(name) for name in OPERATIONS.values()})
    return made()


def agents(recorder: Recorder) -> tuple[Any, Any]:
    """An application with the SDK's routes, and the same behind the guard."""
    handler = handler_for(recorder)
    bare = Starlette(
        routes=[
            *create_jsonrpc_routes(handler, rpc_url=RPC, enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix=REST, enable_v0_3_compat=True),
        ]
    )

    async def recorded(scope: Any, receive: Any, send: Any) -> None:
        call = call_of(scope)
        if call is not None and call.operation is not None:
            recorder.by_guard = (OPERATIONS[call.operation.value], call.tenants, call.task_id)
        await bare(scope, receive, send)

    guarded = protect(
        recorded,
        card=merged_card(PLAIN),
        verifiers={"key": ApiKeyVerifier(STORE)},
        rules=RequestRules(may_use_tenant=recorder.may_use_tenant, webhooks=UnsafeAnyWebhook()),
    )
    return bare, guarded


# Requests

INVISIBLE: Final = (
    "\0\x01\x1f\x7f\x80\x85\xad\u034f\u061c\u115f\u180e\u200b\u200d\u202e\u2028\u2060\ufe0f\ufeff\U000e0061"
)
LIKE: Final = {
    "k": "\u212a",
    "s": "\u017f",
    "i": "\u0131\u0130",
    "n": "\uff4e",
    "t": "\uff34",
    "d": "\u2146",
    "c": "\u0441",
}


def odd(pick: random.Random, name: str) -> str:
    """The name in another spelling, which some reader may take for it."""
    at = pick.randrange(len(name) + 1)
    likely = [char for char in name if char in LIKE]
    spelled: list[Callable[[], str]] = [
        lambda: name + "\0" + pick.choice(["", "x", name, "\0"]),
        lambda: name[:at] + pick.choice(INVISIBLE) + name[at:],
        lambda: name + pick.choice(INVISIBLE) + "x",
        lambda: pick.choice([name.upper(), name.title(), name.lower(), name.swapcase(), name.capitalize()]),
        lambda: name.replace(char := pick.choice(likely or ["x"]), pick.choice(LIKE.get(char, "x")), 1),
        lambda: pick.choice([f" {name}", f"{name} ", f"[{name}]", f"$.{name}", f"{name}[]", f"params.{name}"]),
        lambda: name + "\u0301" * pick.randrange(1, 4),
        lambda: name[:at] + pick.choice("_-") + name[at:],
        lambda: name + "\ud800",
    ]
    return (spelled[0] if pick.random() < 0.4 else pick.choice(spelled))()


def shaken(pick: random.Random, call: dict[str, Any]) -> dict[str, Any]:
    """The call with up to two more members, in odd spellings of names that are there, and with other values."""
    for _ in range(pick.choice([0, 1, 1, 2])):
        objects = [each for each in objects_in(call) if "jsonrpc" not in each or pick.random() < 0.2] or [call]
        within = pick.choice(objects[:2] if pick.random() < 0.6 else objects)
        pairs = [*within.items()]
        likely = [pair for pair in pairs if pair[0] in DECIDING]
        name, value = pick.choice(likely if likely and pick.random() < 0.7 else pairs)
        spelled = snake(name) if pick.random() < 0.1 else odd(pick, name)
        pairs.insert(pick.randrange(len(pairs) + 1), (spelled, other(pick, value)))
        within.clear()
        within.update(pair for pair in pairs if pair[0] != name or pick.random() < 0.7)
    return call


DECIDING: Final = {"tenant", "id", "taskId", "configuration", "taskPushNotificationConfig"}


def objects_in(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if value:
        yield value
    for name, each in value.items():
        if isinstance(each, dict) and name != "metadata":  # which stays free, as it is
            yield from objects_in(each)


def snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def other(pick: random.Random, value: Any) -> Any:
    if isinstance(value, str):
        return pick.choice(["victim", "victim", "", None])
    if isinstance(value, dict):
        return {name: other(pick, each) for name, each in value.items()}
    return value


def params_of(pick: random.Random, method: str) -> dict[str, Any]:
    part = {"text": "hi"} if method[0].isupper() else {"kind": "text", "text": "hi"}
    role = "ROLE_USER" if method[0].isupper() else "user"
    push = {"tenant": "acme", "id": "c", "taskId": "mine", "url": "https://a.example"}
    params: dict[str, Any] = {
        "tenant": "acme",
        "id": "mine",
        "taskId": "mine",
        "message": {"messageId": "1", "role": role, "parts": [part], "taskId": "mine"},
        "configuration": {"taskPushNotificationConfig": push, "pushNotificationConfig": push},
        "pushNotificationConfig": push,
        "pushNotificationConfigId": "c",
        "metadata": {"te\0nant": "free", "id\0": "free"},
    }
    dropped = pick.sample(["tenant", "configuration", "metadata"], pick.randrange(4))
    return {name: value for name, value in params.items() if name not in dropped}


ANSWERED: Final = [name for name, (of, _) in METHODS.items() if of is not Generation.V0_1 and name != "tasks/list"]
PATHS: Final = [
    ("POST", "/message:send"),
    ("POST", "/message:stream"),
    ("POST", "/tasks/mine/pushNotificationConfigs"),
    ("POST", "/v1/message:send"),
    ("POST", "/v1/tasks/mine/pushNotificationConfigs"),
    ("GET", "/tasks/mine"),
    ("GET", "/tasks"),
    ("GET", "/tasks/mine/pushNotificationConfigs"),
    ("POST", "/tasks/mine:cancel"),
]


def a_request(pick: random.Random) -> dict[str, Any]:
    """One request: a call whose members have odd twins."""
    if pick.random() < 0.6:
        method = pick.choice(ANSWERED)
        envelope = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params_of(pick, method)}
        version = "1.0" if method[0].isupper() else "0.3"
        return {"method": "POST", "path": RPC, "query": "", "version": version, "body": text(pick, envelope)}
    verb, path = pick.choice(PATHS)
    names = ["tenant", "id", "taskId", "contextId"]
    query = "&".join(
        f"{escaped(odd(pick, name) if pick.random() < 0.5 else name)}={pick.choice(['acme', 'victim'])}"
        for name in pick.sample(names, pick.randrange(3))
    )
    version = "0.3" if path.startswith("/v1/") else "1.0"
    params = params_of(pick, "x" if version == "0.3" else "X")
    if version == "0.3":
        params |= {"message": {"messageId": "1", "role": "ROLE_USER", "content": [{"text": "hi"}]}}
        params |= {"config": {"name": "n", "pushNotificationConfig": params["pushNotificationConfig"]}}
    prefix = pick.choice(["", "", "/acme"])
    body = text(pick, params) if verb == "POST" and not path.endswith(":cancel") else b""
    return {"method": verb, "path": f"{prefix}{REST}{path}", "query": query, "version": version, "body": body}


def text(pick: random.Random, call: dict[str, Any]) -> bytes:
    own = json.loads(json.dumps(call))  # no object in it is shared
    return json.dumps(shaken(pick, own), ensure_ascii=pick.random() < 0.6).encode("utf-8", "replace")


def escaped(name: str) -> str:
    return "".join(f"%{octet:02x}" for octet in name.encode("utf-8", "replace"))


async def send(app: Any, request: dict[str, Any]) -> None:
    path = request["path"]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request["method"],
        "path": path,
        "raw_path": path.encode(),
        "query_string": request["query"].encode(),
        "root_path": "",
        "headers": [
            (b"host", b"agent.example"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(request["body"])),
            (b"a2a-version", request["version"].encode()),
            (b"x-api-key", KEY.encode()),
        ],
        "client": ("192.0.2.1", 5),
        "server": ("agent.example", 80),
        "scheme": "http",
    }
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": request["body"], "more_body": False}]
    done = asyncio.Event()

    async def receive() -> Any:
        if messages:
            return messages.pop(0)
        await done.wait()
        return {"type": "http.disconnect"}

    async def sent(message: Any) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            done.set()

    with suppress(Exception):  # what breaks reaches no handler
        await asyncio.wait_for(app(scope, receive, sent), 60)


async def main(seed: int, count: int) -> None:
    recorder, pick = Recorder(), random.Random(seed)
    bare, guarded = agents(recorder)
    misled, reached = 0, dict.fromkeys(OPERATIONS.values(), 0)
    differently: list[Any] = []
    for _ in range(count):
        request = a_request(pick)
        if NUL in request["body"]:
            plain = {**request, "body": request["body"].replace(NUL, b"\\u0001")}
            misled += await recorder.of(bare, request) != await recorder.of(bare, plain)
        by_sdk = await recorder.of(guarded, request)
        if by_sdk is None:
            continue
        reached[by_sdk[0]] += 1
        by_guard = recorder.by_guard
        if not is_same(by_guard, by_sdk):
            readings = [shown(by_guard), shown(by_sdk)]
            differently.append([*readings, {**request, "body": request["body"].decode("latin-1")}])
    print(json.dumps({"misled": misled, "reached": reached, "differently": differently}, indent=1))
    sys.exit(bool(differently))


NUL: Final = b"\\u0000"


def shown(read: Read | None) -> list[Any] | None:
    return None if read is None else [read[0], sorted(read[1]), read[2]]


def is_same(by_guard: Read | None, by_sdk: Read) -> bool:
    """Whether the guard read what the SDK did. It may see tenants in members that the SDK does not look at."""
    return by_guard is not None and by_guard == (by_sdk[0], by_guard[1] | by_sdk[1], by_sdk[2])


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
