"""M8: tokens whose answers name no ``sub`` are named by another claim, and a client that calls itself like a user owns
the user's tasks.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import httpx
import pytest

from a2a_trust.auth import IntrospectionVerifier, JwtVerifier
from a2a_trust.client import ClientSecret
from a2a_trust.errors import ConfigurationError
from tests.auth.introspecting import active, introspecting, verifier_for
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, Keys
from tests.middleware.agent import CARD, Agent, guarded, verifiers

pytestmark = pytest.mark.anyio

NAMES = ("ann", "ann@https://issuer.example", "ann#username", f"ann@{ISSUER}#username", "#client_id", "username")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_no_two_of_sub_username_and_client_id_are_one_caller() -> None:
    absent: dict[str, Any] = {"sub": ..., "username": ..., "client_id": ...}
    answers = {
        f"t{number}": active(**{**absent, claim: name})
        for number, (claim, name) in enumerate(product(("sub", "username", "client_id"), NAMES))
    }
    async with introspecting(**answers) as server:
        given = {**verifiers(), "oauth": verifier_for(server)}
        transport = httpx.ASGITransport(guarded(Agent(), CARD, verifiers=given))
        async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
            users = {
                (await http.post("/rpc", headers={"Authorization": f"Bearer {each}"})).json()["user"]
                for each in answers
            }
    assert len(users) == len(answers)


@pytest.mark.parametrize("issuer", [f"{ISSUER}#username", f"{ISSUER}#client_id", f"{ISSUER}#"])
def test_no_issuer_is_called_like_the_users_of_another(issuer: str) -> None:
    with pytest.raises(ConfigurationError, match="without a fragment"):
        JwtVerifier(Keys(EC), issuer=issuer, audience=AUDIENCE)
    with pytest.raises(ConfigurationError, match="without a fragment"):
        IntrospectionVerifier(
            f"{ISSUER}/introspect",
            issuer=issuer,
            audience=AUDIENCE,
            client_id="agent",
            authentication=ClientSecret("secret"),
        )
