"""A webhook whose clock is set by tests, and the deliveries of an agent to it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Final

import httpx
import uvicorn

from a2a_trust import TrustStore, VerifiedCard, verify_card
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.signer import sign_jwt
from a2a_trust.keys.trust.store import TrustSource
from a2a_trust.push import PushNotification, PushProof, PushReceiver, UnsafeTokenOnly
from a2a_trust.push.token import TYPE
from tests.client.agents import OWNER, card_of, signed, trusting
from tests.servers.serving import free_port

__all__ = ["AGENT", "HOST", "NOW", "TASK", "URL", "Webhook", "card", "delivery", "serving", "trust"]

NOW: Final = 1_800_000_000.0
HOST: Final = "agent.example.com"
AGENT: Final = f"https://{HOST}"
URL: Final = "https://client.example.com/push"
TASK: Final = "task-1"


class Webhook:
    """A receiver that notes what its handler gets. ``trust`` may be replaced, and ``now`` set."""

    def __init__(self, trust: TrustSource | None = None, *, url: str = URL, **options: Any) -> None:
        self.trust: TrustSource = trusting(HOST) if trust is None else trust
        self.now, self.url = NOW, url
        self.got: list[PushNotification] = []
        self.fails = False
        self.receiver = PushReceiver(self._take, url=url, trust=self, clock=lambda: self.now, **options)

    def trust_store(self) -> TrustStore:
        return self.trust.trust_store()

    async def _take(self, notification: PushNotification) -> None:
        if self.fails:
            raise RuntimeError("the program failed")
        self.got.append(notification)

    def register(
        self,
        task: str | None = TASK,
        proof: PushProof | UnsafeTokenOnly = PushProof.SIGNED,
        verified: VerifiedCard | None = None,
    ) -> str:
        """The secret of a new registration."""
        config = self.receiver.register(card() if verified is None else verified, task, proof=proof)
        return str(config.get("token") or config["authentication"]["credentials"])

    async def post(self, body: bytes, headers: Any, **request: Any) -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.receiver)) as client:
            answer = await client.request(request.pop("method", "POST"), URL, content=body, headers=headers, **request)
        assert answer.content == b""
        return answer.status_code


def card(host: str = HOST, trust: TrustSource | None = None) -> VerifiedCard:
    document = signed(card_of(f"https://{host}"), iat=NOW - 10)
    return verify_card(document, trust or trusting(host), origin=f"https://{host}", now=NOW)


def trust(*keys: LocalSigner, host: str = HOST, **limits: Any) -> TrustStore:
    return TrustStore([each for key in keys for each in trusting(host, key=key).keys], **limits)


def delivery(
    token: str, *, task: str = TASK, by: Any = OWNER, now: float = NOW, body: bytes | None = None, **changed: Any
) -> tuple[bytes, dict[str, str]]:
    """Body and headers as an agent sends them. ``changed``: other claims (None: none), or headers of the JWT if they
    begin with ``h_``."""
    content = json.dumps({"task": {"id": task, "status": {}}}).encode() if body is None else body
    claims = {
        "iss": AGENT,
        "aud": URL,
        "iat": int(now),
        "exp": int(now) + 60,
        "jti": sha256(f"{content!r} {by.kid} {now} {changed}".encode()).hexdigest(),
        "taskId": task,
        "request_body_sha256": sha256(content).hexdigest(),
    }
    header = {"typ": TYPE, "alg": by.alg, "kid": by.kid}
    header |= {name[2:]: value for name, value in changed.items() if name.startswith("h_")}
    claims |= {name: value for name, value in changed.items() if not name.startswith("h_")}
    jwt = sign_jwt(header, {name: value for name, value in claims.items() if value is not None}, by)
    return content, {"X-A2A-Notification-Token": token, "Authorization": f"Bearer {jwt}"}


@asynccontextmanager
async def serving(trust: TrustSource | None = None, **options: Any) -> AsyncIterator[Webhook]:
    """A webhook under uvicorn, at the path /push, with the clock of now."""
    port = free_port()
    webhook = Webhook(trust, url=f"http://127.0.0.1:{port}/push", **options)
    webhook.now = time.time()
    server = uvicorn.Server(uvicorn.Config(webhook.receiver, port=port, lifespan="off", log_config=None))
    running = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        yield webhook
    finally:
        server.should_exit = True
        await running
