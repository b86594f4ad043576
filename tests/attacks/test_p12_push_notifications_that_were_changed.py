"""P12: A genuine push notification is aged, gets another body, or is taken to another webhook, task, or agent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.client.agents import OWNER
from tests.push.webhooks import NOW, TASK, URL, Webhook, card, delivery, trust
from tests.tables import walk

pytestmark = pytest.mark.anyio

OTHER = "other.example.com"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


CHANGED: list[dict[str, Any]] = [
    {"aud": f"{URL}/"},
    {"aud": URL.upper()},
    {"aud": "https://client.example.com/other"},
    {"aud": [URL]},
    {"aud": None},
    {"taskId": "task-2"},
    {"taskId": None},
    {"taskId": [TASK]},
    {"request_body_sha256": "0" * 64},
    {"request_body_sha256": None},
    {"iss": f"https://{OTHER}"},
    {"iss": None},
    {"iss": 1},
    {"iss": "not a url at all"},
    {"now": NOW - 60},
    {"now": NOW + 6},
    {"iat": None},
    {"exp": None},
    {"iat": "now"},
    {"exp": True},
    {"exp": int(NOW) + 61},
    {"iat": int(NOW) - 3000, "exp": int(NOW) + 30},
    {"nbf": NOW + 30},
    {"jti": None},
    {"jti": ""},
    {"jti": 1},
    {"jti": "x" * 513},
]


@walk("changed", CHANGED, ids=str)
async def test_a_signature_for_another_delivery_is_rejected(changed: dict[str, Any]) -> None:
    webhook = Webhook()
    assert await webhook.post(*delivery(webhook.register(), **changed)) in (400, 401)
    assert webhook.got == []
    assert await webhook.post(*delivery(webhook.register())) == 204


async def test_another_body_is_rejected_also_if_it_means_the_same() -> None:
    webhook = Webhook()
    body, headers = delivery(webhook.register())
    for swapped in (body + b"\n", body.replace(b'"status"', b'"Status"'), b'{"id": "task-1"}'):
        assert await webhook.post(swapped, headers) == 401
    assert webhook.got == []


async def test_the_registration_of_one_task_accepts_no_other() -> None:
    webhook = Webhook()
    token = webhook.register("task-2")
    assert await webhook.post(*delivery(token, task=TASK)) == 401
    webhook.register(TASK)
    assert await webhook.post(*delivery(token, task=TASK)) == 401
    assert webhook.got == []


TWO_TASKS: list[dict[str, Any]] = [
    {"id": TASK, "task": {"id": "task-2"}},
    {"id": TASK, "taskId": "task-2"},
    {"taskId": TASK, "task_id": "task-2"},
    {"statusUpdate": {"taskId": TASK}, "status_update": {"taskId": "task-2"}},
    {"statusUpdate": {"taskId": TASK, "task_id": "task-2"}},
    {"task": {"id": TASK}, "artifactUpdate": {"task_id": "task-2"}},
    {"message": {"taskId": "task-2"}, "task": {"id": TASK}},
    {"task": {"id": TASK, "taskId": 1}},
]


@walk("body", TWO_TASKS, ids=str)
async def test_a_body_that_two_readers_could_take_for_two_tasks_is_rejected(body: dict[str, Any]) -> None:
    for task in (TASK, "task-2", None):
        webhook = Webhook()
        sent = delivery(webhook.register(task), body=json.dumps(body).encode())
        assert await webhook.post(*sent) == 400
        assert webhook.got == []


async def test_another_agent_is_not_believed_for_this_registration() -> None:
    webhook = Webhook(trust(OWNER, host="*.example.com"))  # one key for both agents
    token = webhook.register()
    other = webhook.receiver.register(card(OTHER, webhook.trust), TASK)["token"]
    sent, of_other = delivery(token), delivery(other, iss=f"https://{OTHER}")
    mixed = {**of_other[1], "X-A2A-Notification-Token": token}
    assert await webhook.post(of_other[0], mixed) == 401
    assert await webhook.post(sent[0], {**sent[1], "X-A2A-Notification-Token": other}) == 401
    assert await webhook.post(*of_other) == 204
    assert [each.agent for each in webhook.got] == [OTHER]


async def test_two_agents_may_choose_the_same_token_id() -> None:
    webhook = Webhook(trust(OWNER, host="*.example.com"))
    other = webhook.receiver.register(card(OTHER, webhook.trust), TASK)["token"]
    assert await webhook.post(*delivery(other, iss=f"https://{OTHER}", jti="1")) == 204
    assert await webhook.post(*delivery(webhook.register(), jti="1")) == 204
    assert len(webhook.got) == 2
