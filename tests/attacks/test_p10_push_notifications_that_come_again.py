"""P10: A push notification that was seen on the way is sent again, to the same webhook or to another process of it."""

from __future__ import annotations

import pytest

from a2a_trust.auth import VolatileProofMemory
from tests.push.webhooks import NOW, Webhook, card, delivery

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_used_notification_calls_no_handler_again() -> None:
    webhook = Webhook()
    seen = delivery(webhook.register())
    for _ in range(3):
        assert await webhook.post(*seen) == 204
    assert len(webhook.got) == 1


async def test_its_token_in_the_other_header_is_the_same_one() -> None:
    webhook = Webhook()
    body, headers = delivery(webhook.register())
    assert await webhook.post(body, headers) == 204
    jwt = headers.pop("Authorization").removeprefix("Bearer ")
    assert await webhook.post(body, headers | {"A2A-Push-Signature": jwt}) == 204
    assert len(webhook.got) == 1


async def test_processes_that_share_a_memory_accept_it_once() -> None:
    memory = VolatileProofMemory()
    one, other = Webhook(memory=memory), Webhook(memory=memory)
    seen = delivery(one.register())
    other.receiver.register(card(), secret=seen[1]["X-A2A-Notification-Token"])
    assert [await each.post(*seen) for each in (one, other)] == [204, 204]
    assert (len(one.got), len(other.got)) == (1, 0)


async def test_a_notification_that_was_rejected_uses_no_token_up() -> None:
    webhook = Webhook()
    body, headers = delivery(webhook.register())
    assert await webhook.post(body + b" ", headers) == 401
    assert await webhook.post(body, headers) == 204
    assert len(webhook.got) == 1


async def test_it_ends_after_a_minute_even_if_the_memory_forgets() -> None:
    webhook = Webhook()
    seen = delivery(webhook.register())
    webhook.now = NOW + 60
    assert await webhook.post(*seen) == 401
