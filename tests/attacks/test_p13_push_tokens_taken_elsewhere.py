"""P13: A caller registers a webhook URL that is the audience of another service, and uses the agent's token there; or
tokens of other kinds are used at a webhook.

The keys of the agent are the same everywhere, as if the agent were also an issuer of access tokens, and a proxy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import JwtVerifier, Origins, Principal, TrustedKey, TrustStore, verify_card
from a2a_trust.auth import Identity, JwksFile, TokenProfile
from a2a_trust.auth.jwt import IdTokenVerifier, read_token
from a2a_trust.errors import CardVerificationError, InvalidCredentialsError
from a2a_trust.keys import SigningTool, publish_jwks
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.keys.signer import sign_jwt
from a2a_trust.push.token import TYPE, push_token
from a2a_trust.serve import verify_caller_token
from a2a_trust.serve.caller_token import CallerTokens
from a2a_trust.signing import Coverage
from tests.attacks.forgery import canonical, entry, served
from tests.client.agents import OWNER, card_of
from tests.push.webhooks import AGENT, HOST, NOW, TASK, URL, Webhook, delivery
from tests.tables import walk

pytestmark = pytest.mark.anyio

SERVICE = "https://other-service.example.com"
BODY = b'{"id": "task-1"}'
CARD = {**card_of(AGENT), "skills": []}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def pushed(url: str, body: bytes = BODY) -> str:
    """The token that the agent sends to a webhook that a caller has chosen."""
    return push_token(OWNER, issuer=AGENT, url=url, task=TASK, body=body, now=NOW)


@walk("profile", [TokenProfile.RFC9068, TokenProfile.PLAIN_JWT, [*TokenProfile]], ids=str)
async def test_it_is_no_access_token_of_the_service_at_that_url(profile: Any, tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(publish_jwks([OWNER.public_key])))
    verifier = JwtVerifier(JwksFile(path), issuer=AGENT, audience=SERVICE, profile=profile)
    with pytest.raises(InvalidCredentialsError, match="typ is not"):
        await verifier.verify_bound(pushed(SERVICE), NOW)
    with pytest.raises(InvalidCredentialsError, match="typ is not"):
        await IdTokenVerifier(JwksFile(path), issuer=AGENT, audience=SERVICE).verify_bound(pushed(SERVICE), NOW)


async def test_it_names_no_caller_to_an_agent_behind_a_proxy() -> None:
    with pytest.raises(InvalidCredentialsError, match="not by this proxy"):
        verify_caller_token(pushed(SERVICE), [OWNER.public_key], issuer=AGENT, audience=SERVICE, now=NOW)


@walk("signer", [None, *SigningTool], ids=str)
async def test_it_signs_no_card(signer: SigningTool | None) -> None:
    """Its claims are the card here, which no sender writes."""
    key = TrustedKey(key=OWNER.public_key, origins=Origins(HOST), signer=signer)
    for typ, accepted in (("JOSE", signer is not SigningTool.A2A_TRUST), (TYPE, False), ("application/" + TYPE, False)):
        protected = {"alg": OWNER.alg, "kid": OWNER.kid, "typ": typ}
        card = served(CARD, entry(protected, canonical(CARD), OWNER.sign))
        if accepted:
            verify_card(card, TrustStore([key]), origin=AGENT, now=NOW, coverage=Coverage.SIGNED_PART_ONLY)
            continue
        with pytest.raises(CardVerificationError):
            verify_card(card, TrustStore([key]), origin=AGENT, now=NOW, coverage=Coverage.SIGNED_PART_ONLY)


async def test_no_other_token_counts_at_a_webhook() -> None:
    webhook = Webhook()
    body, headers = delivery(webhook.register(), body=BODY)
    identity = Identity(issuer="api-keys", subject="ann", scopes=frozenset())
    tokens = CallerTokens(KeyRing.begin(OWNER, 0.0), issuer=AGENT, audience=URL)
    claims = json.loads(read_token(headers["Authorization"].removeprefix("Bearer ")).payload)
    for jwt in (
        tokens.token(Principal(identities=(("key", identity),)), NOW),
        *(
            sign_jwt({"typ": typ, "alg": OWNER.alg, "kid": OWNER.kid}, {**claims, "sub": "ann"}, OWNER)
            for typ in ("at+jwt", "JWT", "a2a-caller+jwt", "dpop+jwt", "JOSE", "a2a-push", "a2a-push+jwt2", "")
        ),
    ):
        assert await webhook.post(body, headers | {"Authorization": f"Bearer {jwt}"}) == 401
    assert webhook.got == []
    assert await webhook.post(body, headers) == 204
