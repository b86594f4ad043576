"""The webhook: what it accepts by each proof, and what its handler gets."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import ConfigurationError, TrustedKey, TrustStore, generate_signer, verify_card
from a2a_trust.auth import SqliteProofMemory
from a2a_trust.auth.proofs.memory import VolatileProofMemory
from a2a_trust.errors import KeySourceUnavailableError
from a2a_trust.keys import UnsafeAnyOrigin
from a2a_trust.push import PushProof, UnsafeTokenOnly
from tests.client.agents import OWNER, card_of, signed
from tests.push.webhooks import AGENT, HOST, NOW, TASK, URL, Webhook, card, delivery, trust
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


BODIES: list[dict[str, Any]] = [
    {"id": TASK, "kind": "task", "contextId": "c", "status": {"state": "working"}},
    {"kind": "status-update", "taskId": TASK, "status": {}},
    {"task": {"id": TASK}},
    {"statusUpdate": {"taskId": TASK}},
    {"status_update": {"task_id": TASK}},
    {"artifactUpdate": {"taskId": TASK}},
    {"artifact_update": {"task_id": TASK, "taskId": TASK}},
    {"message": {"messageId": "m", "taskId": TASK}, "task": None},
]


@walk("body", BODIES, ids=str)
async def test_a_signed_notification_reaches_the_handler(body: dict[str, Any]) -> None:
    webhook = Webhook()
    sent, headers = delivery(webhook.register(), body=json.dumps(body).encode())
    assert await webhook.post(sent, headers) == 204
    (got,) = webhook.got
    assert (got.agent, got.task, got.body) == (HOST, TASK, body)


async def test_a_signature_may_have_a_header_of_its_own() -> None:
    webhook = Webhook()
    body, headers = delivery(webhook.register())
    headers["A2A-Push-Signature"] = headers.pop("Authorization").removeprefix("Bearer ")
    headers["A2A-Notification-Token"] = headers.pop("X-A2A-Notification-Token")
    assert await webhook.post(body, headers | {"Authorization": "Basic YTpi"}) == 204


async def test_what_is_registered_shows_how_to_sign() -> None:
    webhook = Webhook()
    config = webhook.receiver.register(card())
    assert config == {"url": URL, "token": config["token"], "authentication": {"scheme": "Bearer"}}
    assert len(config["token"]) == 43
    old = card_of(AGENT)
    old = {**old, "protocolVersion": "0.3.0", "url": f"{AGENT}/rpc", "preferredTransport": "JSONRPC"}
    del old["supportedInterfaces"], old["securityRequirements"], old["securitySchemes"]
    verified = verify_card(signed(old, iat=NOW - 10), webhook.trust, origin=AGENT, now=NOW)
    config = webhook.receiver.register(verified, proof=PushProof.CREDENTIALS)
    assert config["authentication"] == {"schemes": ["Bearer"], "credentials": config["authentication"]["credentials"]}
    assert "token" not in config


async def test_the_first_notification_names_the_task_that_the_agent_chose() -> None:
    webhook = Webhook()
    token = webhook.register(None)
    assert await webhook.post(*delivery(token, task="chosen", taskId="other")) == 401
    assert await webhook.post(*delivery(token, task="chosen")) == 204
    assert await webhook.post(*delivery(token, task="another")) == 401
    assert [each.task for each in webhook.got] == ["chosen"]


async def test_credentials_are_compared_whole() -> None:
    webhook = Webhook()
    secret = webhook.register(proof=PushProof.CREDENTIALS)
    body = b'{"id": "task-1"}'
    for value, status in {
        f"Bearer {secret}": 204,
        f"bearer {secret}": 204,
        f"Basic {secret}": 401,
        f"Bearer {secret}x": 401,
        f"Bearer {secret[:-1]}": 401,
        "Bearer": 401,
    }.items():
        assert await webhook.post(body, {"Authorization": value}) == status, value
    assert await webhook.post(body, {"X-A2A-Notification-Token": secret}) == 401
    assert await webhook.post(b'{"id": "task-2"}', {"Authorization": f"Bearer {secret}"}) == 401


async def test_only_a_token_is_enough_only_where_it_was_asked_for() -> None:
    webhook = Webhook()
    body, token = b'{"id": "task-1"}', webhook.register(proof=UnsafeTokenOnly())
    assert await webhook.post(body, {"X-A2A-Notification-Token": token}) == 204
    assert await webhook.post(body, {"Authorization": f"Bearer {token}"}) == 401
    assert await webhook.post(body, {"X-A2A-Notification-Token": webhook.register()}) == 401
    unknown: Any = "signed"
    assert await webhook.post(body, {"X-A2A-Notification-Token": webhook.register(proof=unknown)}) == 401


async def test_a_registration_ends_and_is_made_again() -> None:
    webhook = Webhook()
    token = webhook.register()
    webhook.receiver.forget(token)
    assert await webhook.post(*delivery(token)) == 401
    assert webhook.receiver.register(card(), TASK, secret=token)["token"] == token
    assert await webhook.post(*delivery(token)) == 204
    assert webhook.receiver.register(card(), secret="")["token"]


REQUESTS: list[tuple[int, dict[str, Any]]] = [
    (405, {"method": "GET"}),
    (405, {"method": "OPTIONS"}),
    (400, {"body": b"{"}),
    (400, {"body": b"[]"}),
    (400, {"body": b"{}"}),
    (400, {"body": b'{"id": 1}'}),
    (400, {"body": b'{"id": ""}'}),
    (400, {"body": b'{"id": "task-1", "id": "task-1"}'}),
    (400, {"body": b'{"id": "task-1", "x": "%s"}' % (b"x" * 1_048_576)}),
]


@walk("request_", REQUESTS, ids=lambda each: f"{each[0]} {str(each[1])[:40]}")
async def test_a_request_that_is_no_notification_is_rejected(request_: tuple[int, dict[str, Any]]) -> None:
    webhook = Webhook()
    status, changed = request_
    body, headers = delivery(webhook.register())
    method = {"method": changed["method"]} if "method" in changed else {}
    assert await webhook.post(changed.get("body", body), headers, **method) == status
    assert webhook.got == []


async def test_a_body_that_ends_early_reaches_no_handler() -> None:
    webhook = Webhook()
    _, headers = delivery(webhook.register())
    messages = iter([{"type": "http.request", "body": b'{"id"', "more_body": True}, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    lines = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await webhook.receiver({"type": "http", "method": "POST", "headers": lines}, receive, send)
    assert sent[0]["status"] == 400


async def test_other_scopes_are_not_served() -> None:
    webhook = Webhook()
    with pytest.raises(ConfigurationError, match="http only"):
        await webhook.receiver({"type": "websocket"}, asyncio.sleep, asyncio.sleep)  # type: ignore[arg-type]


async def test_a_handler_that_fails_gets_the_next_attempt(caplog: pytest.LogCaptureFixture) -> None:
    webhook = Webhook()
    token = webhook.register()
    webhook.fails = True
    assert await webhook.post(*delivery(token)) == 500
    assert "the program failed" in caplog.text
    webhook.fails = False
    assert await webhook.post(*delivery(token)) == 204
    assert webhook.got == []
    assert await webhook.post(*delivery(token, jti="2")) == 204
    assert len(webhook.got) == 1


async def test_secrets_are_in_no_log_and_strangers_do_not_fill_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "a2a_trust")
    webhook = Webhook()
    token = webhook.register()
    assert await webhook.post(*delivery("guessed")) == 401
    assert "a2a_trust" not in caplog.text
    body, headers = delivery(token, aud="https://elsewhere.example.com")
    assert await webhook.post(body, headers) == 401
    assert "aud is of another delivery" in caplog.text
    assert token not in caplog.text + repr(webhook.receiver.__dict__)
    assert headers["Authorization"][7:] not in caplog.text


async def test_a_full_memory_rejects(tmp_path: Path) -> None:
    webhook = Webhook(memory=VolatileProofMemory(capacity=1))
    token = webhook.register()
    assert await webhook.post(*delivery(token)) == 204
    assert await webhook.post(*delivery(token, jti="2")) == 429
    path = tmp_path / "proofs.db"
    shared = [Webhook(memory=SqliteProofMemory(path, create=not path.exists())) for _ in range(2)]
    for each in shared:
        each.now = time.time()
    sent = [delivery(each.register(), now=each.now, jti="one") for each in shared]
    assert [await each.post(*one) for each, one in zip(shared, sent, strict=True)] == [204, 204]
    assert [len(each.got) for each in shared] == [1, 0]


async def test_the_key_ring_rotates_between_two_notifications() -> None:
    new = generate_signer("ES256", kid="new")
    webhook = Webhook()
    token = webhook.register()
    assert await webhook.post(*delivery(token)) == 204
    assert await webhook.post(*delivery(token, by=new)) == 401
    webhook.trust = trust(OWNER, new)
    assert await webhook.post(*delivery(token, by=new)) == 204
    webhook.trust = trust(new)  # the card that was registered is by the old one
    assert await webhook.post(*delivery(token, by=new, jti="3")) == 204
    assert await webhook.post(*delivery(token, jti="4")) == 401
    assert len(webhook.got) == 3


class Published(Webhook):
    """Its trusted keys are on the network: ``trust`` has them when they were fetched."""

    published: TrustStore | None = None

    async def fetch(self, origin: str | None = None) -> TrustStore:
        assert origin == HOST
        if self.published is None:
            raise KeySourceUnavailableError("unreachable")
        self.trust = self.published
        return self.published


async def test_key_sets_on_the_network_are_fetched_again_if_they_are_too_old() -> None:
    new = generate_signer("ES256", kid="new")
    webhook = Published()
    token = webhook.register()
    assert await webhook.post(*delivery(token)) == 204  # the known keys are enough
    webhook.published = trust(new)
    assert await webhook.post(*delivery(token, by=new)) == 204
    assert await webhook.post(*delivery(token, jti="2")) == 401


def test_the_card_must_be_bound_to_a_host() -> None:
    webhook = Webhook()
    anywhere = TrustStore([TrustedKey(key=OWNER.public_key, origins=UnsafeAnyOrigin())])
    with pytest.raises(ConfigurationError, match="origin="):
        webhook.receiver.register(card(trust=anywhere))
