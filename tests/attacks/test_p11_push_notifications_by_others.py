"""P11: A push notification is forged by somebody who knows the token of the registration, but has no key of the
agent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_trust import Origins, TrustedKey, TrustStore, generate_signer, verify_card
from a2a_trust.client import TrustOnFirstUse
from a2a_trust.keys import base64url
from a2a_trust.keys.jwk import public_key_from_jwk
from tests.client.agents import OWNER, card_of, signed, trusting
from tests.push.webhooks import AGENT, HOST, NOW, Webhook, delivery, trust
from tests.tables import walk

pytestmark = pytest.mark.anyio

EVIL = generate_signer("ES256", kid="owner")  # the kid of the agent's own key
JWK = EVIL.public_key.to_jwk()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


FORGED: list[dict[str, Any]] = [
    {"by": EVIL},
    {"by": EVIL, "h_jwk": JWK},
    {"by": EVIL, "h_jku": f"{AGENT}/.well-known/jwks.json"},
    {"by": EVIL, "h_kid": "evil"},
    {"by": EVIL, "h_kid": None},
    {"by": OWNER, "h_kid": None},
    {"by": OWNER, "h_typ": "JWT"},
    {"by": OWNER, "h_typ": None},
    {"by": OWNER, "h_typ": "a2a-caller+jwt"},
    {"by": OWNER, "h_alg": "ES384"},
    {"by": OWNER, "h_alg": "none"},
    {"by": OWNER, "h_alg": "HS256"},
    {"by": OWNER, "h_crit": ["b64"]},
]


@walk("forged", FORGED, ids=str)
async def test_a_forged_notification_is_rejected(forged: dict[str, Any]) -> None:
    webhook = Webhook()
    assert await webhook.post(*delivery(webhook.register(), **forged)) in (400, 401)
    assert webhook.got == []


@walk("jwt", ["", ".", "..", "a.b.c", "e30.e30."], ids=str)
async def test_a_token_alone_is_not_enough(jwt: str) -> None:
    webhook = Webhook()
    body, headers = delivery(webhook.register())
    genuine = headers["Authorization"]
    for value in (jwt, f"Bearer {jwt}", genuine.rpartition(".")[0] + ".", genuine.removeprefix("Bearer ")):
        assert await webhook.post(body, {**headers, "Authorization": value}) in (400, 401)
    assert webhook.got == []


async def test_a_stranger_without_the_token_of_a_registration_is_rejected() -> None:
    webhook = Webhook()
    body, headers = delivery(webhook.register())
    for token in ("", "guessed", headers["Authorization"][7:]):
        assert await webhook.post(body, {**headers, "X-A2A-Notification-Token": token}) == 401
    del headers["X-A2A-Notification-Token"]
    assert await webhook.post(body, headers) == 401
    assert webhook.got == []


async def test_headers_that_come_twice_are_rejected() -> None:
    webhook = Webhook()
    body, headers = delivery(webhook.register())
    for name in ("X-A2A-Notification-Token", "A2A-Notification-Token", "Authorization"):
        assert await webhook.post(body, [*headers.items(), (name, headers.get(name, "other"))]) == 401
    assert webhook.got == []


async def test_a_key_counts_only_while_it_is_trusted_for_the_agent() -> None:
    webhook = Webhook()
    token = webhook.register()
    limits: dict[str, TrustStore] = {
        "revoked": trust(OWNER, revoked=["owner"]),
        "of another host": trust(OWNER, host="other.example.com"),
        "none": TrustStore([]),
    }
    for name, store in limits.items():
        webhook.trust = store
        assert await webhook.post(*delivery(token)) == 401, name
    jwk = {**OWNER.public_key.to_jwk(), "exp": NOW}
    webhook.trust = TrustStore([TrustedKey(key=public_key_from_jwk(jwk), origins=Origins(HOST))])
    assert await webhook.post(*delivery(token)) == 401
    webhook.trust = trusting(HOST)
    assert await webhook.post(*delivery(token)) == 204


async def test_a_key_of_first_use_counts_while_the_card_still_verifies() -> None:
    nobody = TrustStore([])
    believed = TrustOnFirstUse().trust_store([OWNER.public_key, EVIL.public_key], AGENT, nobody)
    verified = verify_card(signed(card_of(AGENT), iat=NOW - 10), believed, origin=AGENT, now=NOW)
    assert verified.on_first_use
    webhook = Webhook(nobody)
    token = webhook.register(verified=verified)
    assert await webhook.post(*delivery(token)) == 204
    assert await webhook.post(*delivery(token, by=EVIL)) == 401
    webhook.trust = TrustStore([], revoked=[OWNER.public_key.thumbprint])
    assert await webhook.post(*delivery(token, jti="2")) == 401
    webhook.trust = trust(EVIL)  # the operator has an entry for the host by now, with another key
    assert await webhook.post(*delivery(token, jti="3")) == 401
    assert await webhook.post(*delivery(token, jti="4", by=EVIL)) == 401  # the card is not by this key
    assert len(webhook.got) == 1


async def test_claims_that_are_no_object_are_rejected() -> None:
    webhook = Webhook()
    body, headers = delivery(webhook.register())
    header = headers["Authorization"][7:].partition(".")[0]
    claims: Any
    for claims in ([], "x", None, {"iss": 1}):
        signed_part = f"{header}.{base64url.encode(json.dumps(claims).encode())}"
        jwt = f"{signed_part}.{base64url.encode(OWNER.sign(signed_part.encode()))}"
        assert await webhook.post(body, headers | {"Authorization": f"Bearer {jwt}"}) in (400, 401)
    assert webhook.got == []
