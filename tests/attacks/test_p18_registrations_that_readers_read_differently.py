"""P18: a registration is written so that the SDK reads a URL that the guard does not see.

protobuf's reader takes two spellings of each member, and ends a name at its first NUL. Go's takes any case, and the
last of two members with one name. ``sdk_reading_webhooks.py`` shows what the reader of a2a-sdk 1.3.0 takes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.middleware.test_webhooks import agent, ask, code, webhooks
from tests.servers.environments import answer_of
from tests.servers.serving import ROOT
from tests.tables import walk

SCRIPT = Path(__file__).resolve().parent / "sdk_reading_webhooks.py"
MESSAGE = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
GOOD, BAD = '"https://8.8.8.8/"', '"https://127.0.0.1/"'
CREATE, SEND = "/rest/tasks/7/pushNotificationConfigs", "/rest/message:send"
HOOK = "taskPushNotificationConfig"
SNAKE = "task_push_notification_config"


def send(configuration: str) -> tuple[str, str]:
    return SEND, f'{{"message": {json.dumps(MESSAGE)}, {configuration}}}'


def rpc(path: str, body: str) -> tuple[str, str]:
    method = "SendMessage" if path == SEND else "CreateTaskPushNotificationConfig"
    params = body if path == SEND else body.replace("{", '{"taskId": "7", ', 1)
    return "/rpc", f'{{"jsonrpc": "2.0", "id": 1, "method": "{method}", "params": {params}}}'


#: Path and body of REST. The SDK's reader finds the bad URL in each of these.
READ_BY_SDK = {
    "in its place": (CREATE, f'{{"url": {BAD}}}'),
    "escaped": (CREATE, f'{{"\\u0075rl": {BAD}}}'),
    "with a NUL": (CREATE, f'{{"url": {GOOD}, "url\\u0000": {BAD}}}'),
    "only with a NUL": (CREATE, f'{{"url\\u0000x": {BAD}}}'),
    "its characters escaped": (CREATE, f'{{"url": {BAD.replace("/", chr(92) + "/")}}}'),
    "in a message": send(f'"configuration": {{"{HOOK}": {{"url": {BAD}}}}}'),
    "in snake case": send(f'"configuration": {{"{SNAKE}": {{"url": {BAD}}}}}'),
    "in both spellings": send(f'"configuration": {{"{HOOK}": {{"url": {GOOD}}}, "{SNAKE}": {{"url": {BAD}}}}}'),
    "in a configuration with a NUL": send(f'"configuration\\u0000": {{"{HOOK}": {{"url": {BAD}}}}}'),
    "beside the one of 0.3": (CREATE, f'{{"url": {BAD}, "pushNotificationConfig": {{"url": {GOOD}}}}}'),
    "before a decoy": send(f'"configuration": {{"{HOOK}": {{"url": {BAD}}}, "acceptedOutputModes": []}}'),
}
#: Only other readers find it.
READ_BY_OTHERS = {
    "twice": (CREATE, f'{{"url": {GOOD}, "url": {BAD}}}'),
    "twice, escaped": (CREATE, f'{{"url": {GOOD}, "\\u0075rl": {BAD}}}'),
    "in a member with a NUL": send(f'"configuration": {{"{HOOK}\\u0000": {{"url": {BAD}}}}}'),
    "twice in a message": send(f'"configuration": {{"{HOOK}": {{"url": {GOOD}, "url": {BAD}}}}}'),
    "in two configurations": send(
        f'"configuration": {{"{HOOK}": {{"url": {GOOD}}}}}, "configuration": {{"{HOOK}": {{"url": {BAD}}}}}'
    ),
    "in capitals": (CREATE, f'{{"url": {GOOD}, "URL": {BAD}}}'),
    "in title case": (CREATE, f'{{"url": {GOOD}, "Url": {BAD}}}'),
    "full width": (CREATE, f'{{"url": {GOOD}, "\uff55rl": {BAD}}}'),
    "capitals of a member": send(f'"configuration": {{"TaskPushNotificationConfig": {{"url": {BAD}}}}}'),
    "capitals of the configuration": send(f'"Configuration": {{"{HOOK}": {{"url": {BAD}}}}}'),
    "a list": (CREATE, f'{{"url": [{BAD}]}}'),
    "a list of configurations": send(f'"configuration": {{"{HOOK}": [{{"url": {BAD}}}]}}'),
    "a text that is JSON": send(f'"configuration": {{"pushNotificationConfig": {json.dumps(f"url={BAD}")}}}'),
    "both generations": send(
        f'"configuration": {{"{HOOK}": {{"url": {GOOD}}}, "pushNotificationConfig": {{"url": {BAD}}}}}'
    ),
    "within the one of 0.3": (CREATE, f'{{"url": {GOOD}, "config": {{"pushNotificationConfig": {{"url": {BAD}}}}}}}'),
}
ALL = {**READ_BY_SDK, **READ_BY_OTHERS}


@walk("how", ALL)
def test_it_is_judged_or_rejected(how: str) -> None:
    app, behind = agent(webhooks())
    for path, body in (ALL[how], rpc(*ALL[how])):
        assert code(ask(app, (path, body))[0])[1] is not None
    assert behind.paths == []


@walk("how", ["in its place", "in a message", "in snake case", "before a decoy"])
def test_control_a_good_url_in_the_same_place_is_accepted(how: str) -> None:
    app, behind = agent(webhooks())
    path, body = ALL[how]
    for place, text in ((path, body), rpc(path, body)):
        assert code(ask(app, (place, text.replace(BAD, GOOD)))[0]) == (200, None)
    assert len(behind.paths) == 2


@pytest.mark.real
def test_the_sdk_alone_reads_it() -> None:
    asked = [body for _, body in READ_BY_SDK.values()]
    kinds = ["create" if path == CREATE else "send" for path, _ in READ_BY_SDK.values()]
    found: Any = answer_of("server-1.3.0", str(SCRIPT), [*zip(kinds, asked, strict=True)], PYTHONPATH=str(ROOT))
    read = dict(zip(READ_BY_SDK, found, strict=True))
    assert read == dict.fromkeys(READ_BY_SDK, json.loads(BAD))
