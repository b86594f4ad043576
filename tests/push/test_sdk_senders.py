"""The senders of released SDKs notify a webhook: unsigned as they are, and signed with one transport and one auth."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from a2a_trust.keys.jwk import private_key_to_jwk
from a2a_trust.push import PushProof, UnsafeTokenOnly
from tests.client.agents import OWNER
from tests.push.webhooks import AGENT, Webhook, card, serving
from tests.servers.environments import answer_of, answer_of_node
from tests.servers.serving import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.real]

SCRIPT = Path(__file__).resolve().parent / "sdk_sender.py"
PYTHON = ("server-0.2.16", "server-0.3.26", "server-1.3.0")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def notified(environment: str, webhook: Webhook, tasks: list[str], registrations: Any, **more: Any) -> None:
    """The SDK of that environment tells of the tasks, of which it has these registrations."""
    question = {"registrations": registrations, "tasks": tasks, **more}
    if environment.startswith("js"):
        script = SCRIPT.with_name("js_sender.mjs")
        answered = await asyncio.to_thread(answer_of_node, environment, script, question)
    else:
        answered = await asyncio.to_thread(answer_of, environment, str(SCRIPT), question, PYTHONPATH=str(ROOT))
    assert answered == "sent"


def config_of(webhook: Webhook, environment: str, task: str, **options: Any) -> dict[str, Any]:
    """The configuration, as the SDK of that environment spells it: the card here is one of 1.0."""
    config = webhook.receiver.register(card(), task, **options)
    given = config["authentication"]
    if environment < "server-1" and not environment.startswith("js"):
        config["authentication"] = {"schemes": [given.pop("scheme")], **given}
    return config


@pytest.mark.parametrize("environment", PYTHON)
async def test_the_sdk_sends_signed_notifications_with_one_transport_and_one_auth(environment: str) -> None:
    async with serving() as webhook:
        origin = webhook.url.removesuffix("/push")
        key = private_key_to_jwk(OWNER.private_key, alg=OWNER.alg, kid=OWNER.kid)
        signed = {"key": key, "issuer": AGENT, "private_origins": [origin]}
        registrations = [
            *((task, config_of(webhook, environment, task)) for task in ("one", "other")),
            ("third", config_of(webhook, environment, "third", proof=PushProof.CREDENTIALS)),
            ("third", config_of(webhook, environment, "third", proof=UnsafeTokenOnly()) | {"id": "2"}),
        ]
        await notified(environment, webhook, ["one", "other", "one", "third"], registrations, **signed)
        assert [each.task for each in webhook.got] == ["one", "other", "one", "third", "third"]


@pytest.mark.parametrize("environment", [*PYTHON, "js-1.3.0"])
async def test_an_sdk_that_does_not_sign_is_accepted_only_by_a_lesser_proof(environment: str) -> None:
    async with serving() as webhook:
        registrations = [
            ("signed", config_of(webhook, environment, "signed")),
            ("token", config_of(webhook, environment, "token", proof=UnsafeTokenOnly())),
            ("credentials", config_of(webhook, environment, "credentials", proof=PushProof.CREDENTIALS)),
        ]
        await notified(environment, webhook, ["signed", "token", "credentials"], registrations)
        sends_credentials = environment in ("server-1.3.0", "js-1.3.0")
        assert [each.task for each in webhook.got] == ["token", "credentials"][: 1 + sends_credentials]
