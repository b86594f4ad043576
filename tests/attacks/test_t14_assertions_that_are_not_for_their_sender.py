"""T14: an identity assertion (ID-JAG) is stolen, used again, taken to another server, widened, or used as a token.

The server is the ``AuthorizationServer`` of ``a2a_trust.testing``, which readers try chains of agents with.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from a2a_trust.auth import JwtVerifier, SeveralIssuers, TokenProfile
from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.keys import base64url
from a2a_trust.testing import AuthorizationServer
from tests.tables import walk
from tests.testing.test_authorization_server import (
    ARCHIVE,
    HOME,
    PARTNER,
    PLANNER,
    RESEARCHER,
    SECRETS,
    exchange,
    for_jag,
    jag_of,
    post,
    redeem,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def assertion(**more: Any) -> str:
    return await jag_of(PLANNER, HOME.token("ann", audience=PLANNER, scopes=["read", "write"]), scope="read", **more)


async def error_of(server: AuthorizationServer, client: str, form: dict[str, str]) -> tuple[int, str]:
    answer = await post(server, client, form)
    return answer.status_code, answer.json().get("error", "")


def altered(text: str, **changes: Any) -> str:
    """The token with other claims, and the signature of the old ones."""
    header, claims, signature = text.split(".")
    changed = {**json.loads(base64url.decode(claims, "claims")), **changes}
    return f"{header}.{base64url.encode(json.dumps(changed).encode())}.{signature}"


async def test_a_stolen_assertion_is_worth_nothing_to_another_client() -> None:
    stolen = await assertion()
    assert await error_of(PARTNER, RESEARCHER, redeem(stolen)) == (400, "invalid_grant")
    assert await error_of(PARTNER, "https://thief.test", redeem(stolen)) == (401, "invalid_client")
    assert await error_of(PARTNER, PLANNER, redeem(stolen)) == (200, "")


async def test_a_token_of_a_caller_is_exchanged_only_by_the_agent_that_it_is_for() -> None:
    stolen = HOME.token("ann", audience=PLANNER, scopes=["read"])
    assert await error_of(HOME, RESEARCHER, for_jag(stolen)) == (400, "invalid_grant")
    assert await error_of(HOME, RESEARCHER, exchange(stolen, resource=ARCHIVE)) == (400, "invalid_grant")


async def test_an_assertion_for_another_server_is_rejected() -> None:
    elsewhere = AuthorizationServer("https://third.test", clients=SECRETS, trusted=HOME)
    assert await error_of(elsewhere, PLANNER, redeem(await assertion())) == (400, "invalid_grant")
    other = await assertion(audience=elsewhere.url)
    assert await error_of(PARTNER, PLANNER, redeem(other)) == (400, "invalid_grant")
    assert await error_of(PARTNER, PLANNER, redeem(altered(other, aud=PARTNER.url))) == (400, "invalid_grant")
    both = HOME._signed("oauth-id-jag+jwt", {**_claims_of(other), "aud": [PARTNER.url, elsewhere.url]})
    assert await error_of(PARTNER, PLANNER, redeem(both)) == (400, "invalid_grant")


def _claims_of(text: str) -> dict[str, Any]:
    claims: dict[str, Any] = json.loads(base64url.decode(text.split(".")[1], "claims"))
    return claims


async def test_a_replayed_assertion_is_rejected() -> None:
    text = await assertion()
    assert [await error_of(PARTNER, PLANNER, redeem(text)) for _ in range(3)] == [
        (200, ""),
        *[(400, "invalid_grant")] * 2,
    ]
    without = HOME._signed("oauth-id-jag+jwt", {**_claims_of(text), "jti": None})
    assert await error_of(PARTNER, PLANNER, redeem(without)) == (400, "invalid_grant")


async def test_a_widened_scope_is_rejected_at_each_step() -> None:
    token = HOME.token("ann", audience=PLANNER, scopes=["read"])
    assert await error_of(HOME, PLANNER, for_jag(token, scope="read write")) == (400, "invalid_scope")
    assert await error_of(HOME, PLANNER, exchange(token, resource=ARCHIVE, scope="write")) == (400, "invalid_scope")
    assert await error_of(PARTNER, PLANNER, redeem(await assertion(), scope="read write")) == (400, "invalid_scope")
    assert await error_of(PARTNER, PLANNER, redeem(altered(await assertion(), scope="admin"))) == (400, "invalid_grant")


async def test_an_assertion_of_an_issuer_that_is_not_trusted_is_rejected() -> None:
    forger = AuthorizationServer(HOME.url, clients=SECRETS)
    forged = forger._signed("oauth-id-jag+jwt", _claims_of(await assertion()))
    assert await error_of(PARTNER, PLANNER, redeem(forged)) == (400, "invalid_grant")
    own = PARTNER._signed("oauth-id-jag+jwt", {**_claims_of(await assertion()), "iss": PARTNER.url})
    assert await error_of(PARTNER, PLANNER, redeem(own)) == (400, "invalid_grant")


async def test_an_expired_assertion_is_rejected() -> None:
    old = HOME._signed("oauth-id-jag+jwt", {**_claims_of(await assertion()), "exp": int(time.time()) - 1})
    assert await error_of(PARTNER, PLANNER, redeem(old)) == (400, "invalid_grant")


async def test_other_tokens_are_no_assertions() -> None:
    for text in (
        HOME.token("ann", audience=PARTNER.url, client_id=PLANNER, resource=ARCHIVE),
        HOME.id_token("ann", client=PARTNER.url),
    ):
        assert await error_of(PARTNER, PLANNER, redeem(text)) == (400, "invalid_grant")


@walk("typ", ["oauth-id-jag+jwt", "application/oauth-id-jag+jwt", "OAUTH-ID-JAG+JWT"])
@walk("profile", [TokenProfile.RFC9068, TokenProfile.PLAIN_JWT, [*TokenProfile]])
async def test_an_assertion_is_no_access_token_of_an_agent(typ: str, profile: Any) -> None:
    text = HOME._signed(typ, {**_claims_of(await assertion()), "aud": ARCHIVE})
    verifier = JwtVerifier(HOME.keys(), issuer=HOME.url, audience=ARCHIVE, profile=profile)
    for judge in (verifier, SeveralIssuers([verifier, PARTNER.verifier(ARCHIVE)])):
        with pytest.raises(InvalidCredentialsError, match="typ is not"):
            await judge.verify(text, time.time())
