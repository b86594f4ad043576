"""The key ring of an agent rotates between notifications, from files at both ends, over loopback."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from a2a_trust import Fetcher, KeyRingFile, TrustFile, publish_jwks, verify_card
from a2a_trust.keys.ring_file import save_key_ring, update_key_ring
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.push import PushTransport, SignedPush
from tests.client.agents import OWNER, card_of, signed
from tests.push.test_delivery import Config, Store
from tests.push.webhooks import AGENT, HOST, NOW, TASK, serving
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_notifications_go_on_over_a_rotation_and_end_with_a_revocation(tmp_path: Path) -> None:
    save_key_ring(tmp_path / "ring.json", KeyRing.begin(OWNER, NOW))
    ring = KeyRingFile(tmp_path / "ring.json")

    def publish(now: float, more: str = "") -> None:
        (tmp_path / "keys.json").write_text(json.dumps(publish_jwks(ring.published(now))))
        entry = '[[trust]]\norigins = ["agent.example.com"]\nkeys = "keys.json"\n'
        (tmp_path / "trust.toml").write_text(f"version = 1\n{entry}{more}")

    publish(NOW)
    async with serving(TrustFile(tmp_path / "trust.toml")) as webhook:
        webhook.now = NOW
        card = verify_card(signed(card_of(AGENT), iat=NOW - 10), webhook.trust, origin=AGENT, now=NOW)
        config = webhook.receiver.register(card, TASK)
        auth = SignedPush(
            ring, issuer=AGENT, configs=Store(Config(config["url"], config["token"])), clock=lambda: webhook.now
        )
        transport = PushTransport(Fetcher(private_origins=[webhook.url.removesuffix("/push")]))
        headers = {"X-A2A-Notification-Token": config["token"]}
        async with httpx.AsyncClient(transport=transport, auth=auth, headers=headers) as client:

            async def status() -> int:
                return (await client.post(webhook.url, json={"id": TASK})).status_code

            assert await status() == 204
            update_key_ring(tmp_path / "ring.json", lambda each: each.rotate(NOW, overlap=60))
            publish(NOW, "# with the next key")
            await until(lambda: len(webhook.trust.trust_store().keys) == 2)
            assert await status() == 204
            webhook.now = NOW + 61
            new = ring.signer(webhook.now).kid
            assert new != OWNER.kid
            assert await status() == 204
            publish(webhook.now, f'[[revoked]]\nkid = "{new}"\n')
            await until(lambda: any(each.revoked for each in webhook.trust.trust_store().keys))
            assert await status() == 401
        assert [each.agent for each in webhook.got] == [HOST] * 3
