"""N3: the message of a call names a tenant that the caller may not use, is too large, or is decoded for a stranger."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_trust import RequestRules
from a2a_trust.middleware import UnsafeAnyWebhook, Webhooks
from tests.grpc_service import GOOD, POOR, Service, card, guarded, outcome, request, serving
from tests.middleware.test_webhooks import webhooks

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


RULES = RequestRules(may_use_tenant=lambda caller, tenant: tenant == "acme", max_body=2_000)


def push(**members: str) -> dict[str, Any]:
    return {"task_push_notification_config": {"url": "https://a.example", **members}}


async def test_every_tenant_in_a_message_is_checked() -> None:
    service = Service()
    async with serving(guarded(rules=RULES), service.handler()) as client:
        for method in (client.method(), client.method("SendStreamingMessage")):
            for members, expected in (
                ({"tenant": "acme"}, "OK"),
                ({"tenant": "other"}, "PERMISSION_DENIED"),
                ({"configuration": push(tenant="other")}, "PERMISSION_DENIED"),
                ({"tenant": "acme", "configuration": push(tenant="other")}, "INVALID_ARGUMENT"),
                ({"tenant": "acme", "configuration": push(tenant="acme")}, "FAILED_PRECONDITION"),  # no push
            ):
                assert await outcome(method, [("x-api-key", GOOD)], request(**members)) == expected, members
    assert service.calls == 2
    async with serving(guarded(), service.handler()) as client:
        assert await outcome(client.method(), [("x-api-key", GOOD)], request(tenant="acme")) == "PERMISSION_DENIED"


async def test_a_webhook_in_a_message_is_checked() -> None:
    service, promising = Service(), {**card(), "capabilities": {"pushNotifications": True}}
    for rule, url, expected in (
        (Webhooks(), "https://127.0.0.1/", "INVALID_ARGUMENT"),
        (Webhooks(hosts=["hooks.example.com"]), "https://other.example.com/", "INVALID_ARGUMENT"),
        (UnsafeAnyWebhook(), "https://127.0.0.1/", "OK"),
    ):
        guard = guarded(promising, rules=RequestRules(webhooks=rule))
        async with serving(guard, service.handler()) as client:
            asked = request(configuration={"task_push_notification_config": {"url": url}})
            assert await outcome(client.method(), [("x-api-key", GOOD)], asked) == expected
    assert service.calls == 1


async def test_ten_messages_register_webhooks_for_one_task() -> None:
    service, promising = Service(), {**card(), "capabilities": {"pushNotifications": True}}
    names = {"hooks.example.com": ["8.8.8.8"]}
    guard = guarded(promising, rules=RequestRules(webhooks=webhooks(names)))
    async with serving(guard, service.handler()) as client:
        config = {"task_push_notification_config": {"url": "https://hooks.example.com/"}}
        message = {"message_id": "1", "task_id": "t1", "parts": [{"text": "hi"}]}
        asked = request(message=message, configuration=config)
        codes = [await outcome(client.method(), [("x-api-key", GOOD)], asked) for _ in range(11)]
    assert codes == [*["OK"] * 10, "INVALID_ARGUMENT"]


async def test_a_message_is_decoded_for_callers_only_and_up_to_a_limit() -> None:
    service = Service()
    large = request(message={"parts": [{"text": "x" * 2_000}]})
    async with serving(guarded(rules=RULES), service.handler()) as client:
        for metadata in ([], [("x-api-key", "guessed")], [("x-api-key", POOR)]):
            assert await outcome(client.method(), metadata, large) in ("UNAUTHENTICATED", "PERMISSION_DENIED")
        assert await outcome(client.method(), [("x-api-key", GOOD)], large) == "RESOURCE_EXHAUSTED"
        assert service.decoded == 0
        assert await outcome(client.method(), [("x-api-key", GOOD)]) == "OK"
    assert service.decoded == 1


async def test_bytes_that_are_no_message_are_rejected() -> None:
    service = Service()
    async with serving(guarded(), service.handler()) as client:
        method = client.channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
        assert await outcome(method, [("x-api-key", GOOD)], b"\x0a\xff") == "INVALID_ARGUMENT"
    assert service.calls == 0


async def test_the_skill_of_a_call_is_found_in_the_whole_message() -> None:
    seen: list[tuple[Any, bytes]] = []
    rules = RequestRules(skill_of=lambda call, body: seen.append((call.operation, body)))
    async with serving(guarded(rules=rules), Service().handler()) as client:
        assert await outcome(client.method(), [("x-api-key", GOOD)]) == "OK"
    assert seen == [("SendMessage", b'{"message": {"messageId": "1", "parts": [{"text": "hi"}]}}')]
