"""M26: the name of a member, which the guard does not know, is ``tenant`` or ``id`` to the SDK's reader.

To protobuf's reader in Python (upb), a name ends at its first NUL: ``{"tenant\\u0000": "victim"}`` names a tenant. Seen
here with a2a-sdk 1.3.0: a caller acted for any tenant, with ``may_use_tenant`` asked about a decoy or not at all, and
for the task ``victims`` while ``call_of`` said ``mine``. ``tests/fuzz/fuzz_readers.py`` looks for more of this kind.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.servers.environments import answer_of
from tests.servers.serving import ROOT
from tests.tables import walk

SCRIPT = Path(__file__).resolve().parent / "sdk_reading_names.py"
RPC, REST = "/a2a/rpc", "/a2a/rest"
MESSAGE = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
PUSH = {"tenant": "victim", "url": "https://a.example"}


def rpc(method: str, params: Any, odd: str = "") -> dict[str, Any]:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    body = json.dumps({f"{name}\0" if name == odd else name: value for name, value in call.items()})
    return {"method": "POST", "path": RPC, "query": "", "version": "1.0", "body": body}


def rest(body: Any, query: str = "") -> dict[str, Any]:
    path = f"{REST}/message:send"
    return {"method": "POST", "path": path, "query": query, "version": "1.0", "body": json.dumps(body)}


READ_BY_SDK: dict[str, dict[str, Any]] = {
    "a tenant": rpc("ListTasks", {"tenant\0": "victim"}),
    "a tenant, with a tail": rpc("ListTasks", {"tenant\0x": "victim"}),
    "a tenant beside a decoy": rpc("GetTask", {"tenant": "acme", "tenant\0": "victim", "id": "mine"}),
    "a task": rpc("GetTask", {"id": "mine", "id\0": "victims"}),
    "a task to cancel": rpc("CancelTask", {"id": "mine", "id\0": "victims"}),
    "the task of a configuration": rpc("GetTaskPushNotificationConfig", {"taskId": "mine", "task_id\0": "victims"}),
    "a configuration": rpc(
        "SendMessage", {"message": MESSAGE, "configuration\0": {"taskPushNotificationConfig": PUSH}}
    ),
    "a nested configuration": rest({"message": MESSAGE, "configuration": {"task_push_notification_config\0": PUSH}}),
    "a nested tenant": rest(
        {"message": MESSAGE, "configuration": {"taskPushNotificationConfig": {"tenant\0": "victim"}}}
    ),
    "a tenant in REST": rest({"tenant": "acme", "tenant\0": "victim", "message": MESSAGE}),
}
ODD: dict[str, dict[str, Any]] = {
    **{
        f"tenant as {name!a}": rpc("ListTasks", {name: "victim"})
        for name in ("\0tenant", "te\0nant", "tenant\x1f", "tenant\x7f", "ten\u200bant", "Tenant", "TENANT", "tenant ")
    },
    **{f"{name} of the request": rpc("ListTasks", {}, odd=name) for name in ("id", "method", "params")},
    "the task of a message": rpc("SendMessage", {"message": {**MESSAGE, "taskId": "mine", "taskId\0": "victims"}}),
    "an unknown name": rpc("ListTasks", {"x\0": 1}),
    "the query": rest({"message": MESSAGE}, "tenant%00=victim"),
    "the query, with a tail": rest({"message": MESSAGE}, "tenant%00x=victim"),
}
FREE = {"tenant\0": "free", "id\x1f": {"Tenant": "free", "ten\u200bant": "free"}}
VALID: dict[str, dict[str, Any]] = {
    "data of users": rpc(
        "SendMessage",
        {"tenant": "acme", "metadata": FREE, "message": {**MESSAGE, "metadata": FREE, "parts": [{"data": FREE}]}},
    ),
    "an unknown member": rest({"message": MESSAGE, "größe": 1, "x-acme": 2}),
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    asked = {**READ_BY_SDK, **ODD, **VALID}
    answers = answer_of("server-1.3.0", str(SCRIPT), [*asked.values()], PYTHONPATH=str(ROOT))
    return dict(zip(asked, answers, strict=True))


@pytest.mark.real
@walk("what", READ_BY_SDK)
def test_the_sdk_alone_reads_it(found: Any, what: str) -> None:
    _, tenants, task = found[what]["bare"]["by_sdk"]
    assert tenants == ["victim"] or task == "victims" or tenants == ["acme", "victim"]


@pytest.mark.real
@walk("what", [*READ_BY_SDK, *ODD])
def test_a_name_that_a_reader_could_take_for_another_is_refused(found: Any, what: str) -> None:
    guarded = found[what]["guarded"]
    assert (guarded["by_guard"], guarded["by_sdk"], guarded["asked"]) == (None, None, [])


@pytest.mark.real
@pytest.mark.parametrize("what", VALID)
def test_data_of_users_and_unknown_members_stay_free(found: Any, what: str) -> None:
    guarded = found[what]["guarded"]
    assert guarded["by_sdk"] == guarded["by_guard"] == found[what]["bare"]["by_sdk"]
    assert guarded["by_sdk"] is not None
