"""T5: the introspection endpoint says "active" of a refresh token or an ID token, and it passes for an access token.

RFC 7662 2.1 has servers answer for refresh tokens; npm oidc-provider and Canaille do.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from a2a_trust.auth import AccessTokenMark
from tests.auth.introspecting import active, introspecting, verifier_for
from tests.auth.test_jwt import claims, token
from tests.middleware.agent import CARD, Agent, guarded, verifiers
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


#: What is said of tokens that are active, and no access tokens.
OTHERS: dict[str, dict[str, Any]] = {
    "oidc-provider: a refresh token": {"token_type": ..., "aud": ...},
    "a refresh token for our audience": {"token_type": ...},
    "Hydra: a refresh token": {"token_use": "refresh_token"},
    "Keycloak: a refresh token": {"typ": "Refresh", "token_type": ...},
    "Keycloak: a refresh token with token_type": {"typ": "Refresh"},
    "Keycloak: an offline token": {"typ": "Offline", "token_type": ...},
    "Keycloak: an ID token": {"typ": "ID", "at_hash": "x"},
    "a refresh token by token_type": {"token_type": "refresh_token"},
    "PingAM: a refresh token": {"tokenName": "refresh_token"},
    "Casdoor: a refresh token": {"tokenType": "refresh-token"},
    "an ID token by its hash": {"at_hash": "x"},
    "an ID token of the hybrid flow": {"c_hash": "x"},
    "an ID token by s_hash": {"s_hash": "x"},
    "a logout token": {"events": {"http://schemas.openid.net/event/backchannel-logout": {}}},
    "Cognito: an ID token": {"token_use": "id"},
}
MARKED = {"marked_by": AccessTokenMark("scope"), "knows_access_tokens_only": True, "allow_missing_audience": True}


async def statuses(credentials: list[str], answers: dict[str, Any], **options: Any) -> list[int]:
    async with introspecting(**answers) as server:
        given = {**verifiers(), "oauth": verifier_for(server, **options)}
        transport = httpx.ASGITransport(guarded(Agent(), CARD, verifiers=given))
        async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
            return [
                (await http.post("/rpc", headers={"Authorization": f"Bearer {each}"})).status_code
                for each in credentials
            ]


@walk("kind", OTHERS)
async def test_an_active_token_of_another_kind_is_401(kind: str) -> None:
    answers = {"other": active(**OTHERS[kind]), "good": active()}
    assert await statuses(["other", "good"], answers) == [401, 200]


@walk("kind", [kind for kind, changes in OTHERS.items() if ... not in changes.values()])
async def test_an_operator_who_says_that_there_are_only_access_tokens_is_not_believed_against_the_answer(
    kind: str,
) -> None:
    assert await statuses(["other"], {"other": active(**OTHERS[kind])}, **MARKED) == [401]


@pytest.mark.parametrize("changes", [{"at_hash": "x"}, {"typ": "Refresh"}, {"token_use": "id"}, {"events": {}}])
async def test_a_jwt_that_says_what_it_is_gets_in_by_no_answer(changes: dict[str, Any]) -> None:
    """The server answers with the very words of an access token."""
    other, good = token(claims(**changes)), token(claims())
    assert await statuses([other, good], {other: active(), good: active()}) == [401, 200]
