"""T9, T7: an authorization server that is asked about tokens goes down, or somebody sends the one token that it fails
on: callers by other schemes are refused, good tokens are 401, or somebody is let in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from a2a_trust.auth import SeveralIssuers
from a2a_trust.auth.jwt import JwtVerifier
from tests.auth.introspecting import CUT, HANG, IntrospectionServer, active, introspecting, verifier_for
from tests.auth.test_jwt import AUDIENCE, EC, Keys, claims, token
from tests.middleware.agent import CARD, KEY, Agent, guarded, verifiers
from tests.tables import walk

pytestmark = pytest.mark.anyio

OTHER = "https://other.example"
FAILURES = [
    ("500 Oops", b"{}"),
    ("401 No", b'{"error": "invalid_client"}'),
    ("403 No", b'{"error": "access_denied"}'),
    ("400 Bad", b'{"error": "invalid_request"}'),
    ("200 OK", b"<html>"),
    ("200 OK", b'{"active": 1}'),
    ("302 Found", b""),
    CUT,
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def world(
    timeout: float | None = None, /, **tokens: Any
) -> AsyncIterator[tuple[IntrospectionServer, httpx.AsyncClient, Agent]]:
    """A server, and an agent for its opaque tokens, for the JWTs of another issuer, for API keys and for anybody."""
    card = {**CARD, "securityRequirements": [*CARD["securityRequirements"], {}]}
    jwts = JwtVerifier(Keys(EC), issuer=OTHER, audience=AUDIENCE)
    async with introspecting(**tokens) as server:
        agent = Agent()
        given = {**verifiers(), "oauth": SeveralIssuers([verifier_for(server, timeout=timeout), jwts])}
        app = guarded(agent, card, verifiers=given, allow_anonymous=True)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
            yield server, http, agent


async def status(http: httpx.AsyncClient, credential: str) -> int:
    return (await http.post("/rpc", headers={"Authorization": f"Bearer {credential}"})).status_code


@walk("failing", FAILURES)
async def test_an_outage_is_503_for_unknown_tokens_and_nothing_for_all_others(failing: tuple[str, bytes]) -> None:
    async with world(known=active()) as (server, http, agent):
        assert await status(http, "known") == 200
        server.failing = failing
        agent.scopes.clear()
        assert [await status(http, each) for each in ("good", "junk", "a.b.c")] == [503, 503, 503]
        assert agent.paths == []  # nobody was taken for an anonymous caller
        assert await status(http, "known") == 200
        assert await status(http, token(claims(iss=OTHER))) == 200
        both = await http.post("/rpc", headers={"Authorization": "Bearer junk", "X-API-Key": KEY})
        assert (await http.post("/rpc", headers={"X-API-Key": KEY})).status_code == both.status_code == 200


async def test_the_tokens_of_one_issuer_are_not_sent_to_another() -> None:
    async with world() as (server, http, _):
        assert await status(http, token(claims(iss=OTHER))) == 200
        assert await status(http, token(claims(iss="https://third.example"))) == 401
        assert server.asked == []


@walk("failing", FAILURES)
async def test_a_token_that_the_server_fails_on_is_no_outage_for_good_ones(failing: tuple[str, bytes]) -> None:
    """Else one such token in a second would keep out every token that is not remembered."""
    good = [f"good-{number}" for number in range(10)]
    async with world(**dict.fromkeys(good, active())) as (server, http, _):
        server.failing, server.poison = failing, frozenset({"poison"})
        for each in good:
            assert await status(http, "poison") in (401, 503)
            assert await status(http, each) == 200


async def test_a_token_for_which_no_answer_comes_is_no_outage_for_good_ones() -> None:
    """As behind a firewall that drops what it takes for an attack: a token may hold ``/../../etc/passwd``."""
    async with world(3.0, **dict.fromkeys(["good-1", "good-2"], active())) as (server, http, _):
        server.failing, server.poison = HANG, frozenset({"/../../etc/passwd"})
        for each in ("good-1", "good-2"):
            assert await status(http, "/../../etc/passwd") == 503
            assert await status(http, each) == 200


async def test_a_stranger_who_is_there_first_after_an_outage_does_not_prolong_it() -> None:
    async with world(good=active()) as (server, http, _):
        server.failing = "500 Oops", b"{}"
        assert await status(http, "good") == 503
        server.poison = frozenset({"poison"})  # for all others it works again
        statuses = []
        for _ in range(12):
            await status(http, "poison")
            statuses.append(await status(http, "good"))
            if statuses[-1] == 200:
                break
            await asyncio.sleep(0.2)
        assert statuses[-1] == 200
        assert len(statuses) <= 7
