"""M31: one verifier object serves two schemes of a card, and what it knows from one scheme counts for the other.

A caller that was here before is answered from memory. Its key comes first in a header, which only programs attach, and
then in a cookie, which browsers attach; or the second scheme demands more scopes than the key has.
"""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier
from tests.middleware.agent import CALL, CARD, KEY, STORE, Agent, guarded

pytestmark = pytest.mark.anyio

IN_HEADER, IN_COOKIE, IN_LOGIN = {"X-API-Key": KEY}, {"Cookie": f"sid={KEY}"}, {"X-Login": KEY}
FOREIGN = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def protected(agent: Agent, **scopes: list[str]) -> Any:
    """The agent behind one verifier of API keys, for each of these schemes alone, with its scopes."""
    card = {
        **CARD,
        "securitySchemes": {
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
            "sid": {"apiKeySecurityScheme": {"location": "cookie", "name": "sid"}},
            "login": {"apiKeySecurityScheme": {"location": "header", "name": "X-Login"}},
        },
        "securityRequirements": [{"schemes": {name: {"list": of_one}}} for name, of_one in scopes.items()],
    }
    verifier = ApiKeyVerifier(STORE)
    return guarded(agent, card, verifiers=dict.fromkeys(scopes, verifier), clock=time.time)


async def statuses(app: Any, *requests: dict[str, str]) -> list[int]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
        return [(await http.post("/rpc", json=CALL, headers=headers)).status_code for headers in requests]


async def test_a_page_of_another_site_cannot_use_the_cookie_of_a_caller_who_sent_a_header() -> None:
    agent = Agent()
    app = protected(agent, key=["read"], sid=["read"])
    assert await statuses(app, IN_HEADER, IN_HEADER, {**IN_COOKIE, **FOREIGN}) == [200, 200, 403]
    assert await statuses(app, IN_COOKIE, IN_COOKIE, {**IN_HEADER, **FOREIGN}) == [200, 200, 200]
    assert len(agent.scopes) == 5


@pytest.mark.parametrize("first", [IN_HEADER, IN_LOGIN])
async def test_each_scheme_demands_its_own_scopes(first: dict[str, str]) -> None:
    app = protected(Agent(), key=["read"], login=["read", "admin"])
    found = await statuses(app, first, IN_HEADER, IN_HEADER, IN_LOGIN, IN_LOGIN)
    assert found[1:] == [200, 200, 403, 403]


async def test_the_caller_is_one_owner_and_names_the_scheme_that_admitted_it() -> None:
    agent = Agent()
    requests = [IN_HEADER, IN_HEADER, IN_LOGIN, IN_COOKIE] * 2
    assert await statuses(protected(agent, key=[], login=[], sid=[]), *requests) == [200] * 8
    names = ["key", "key", "login", "sid"] * 2
    assert [scope["user"].id for scope in agent.scopes] == ["ann@api-keys"] * 8
    assert [scope["user"].identities[0][0] for scope in agent.scopes] == names
