"""T9: with two issuers, an outage or a storm at one refuses good tokens of the other; and junk from a stranger keeps a
rotated key out.

Measured here: one junk token in a second turned good tokens of a new key into 401 for 30 seconds; tokens of b fetched
the keys of a, and got 503 while a was down. The issuers here are real servers that count who comes.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from a2a_trust import generate_signer
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.trust.jwks_cache import JwksCache
from tests.auth.test_jwt import AUDIENCE, NOW, b64, claims, token
from tests.base.net.test_fetcher import Server, answer, fetcher_for, serving
from tests.middleware.agent import CARD, KEY, Agent, guarded, verifiers

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


A, B = "https://a.example", "https://b.example"
SIGNERS = {A: generate_signer("ES256", kid="a-1"), B: generate_signer("ES256", kid="b-1")}
NEXT = generate_signer("ES256", kid="a-2")
STRANGER = generate_signer("ES256", kid="stranger")

TWO_ISSUERS: dict[str, Any] = {
    **CARD,
    "securitySchemes": {
        "key": CARD["securitySchemes"]["key"],
        "a": {"oauth2SecurityScheme": {"flows": {}}},
        "b": {"oauth2SecurityScheme": {"flows": {}}},
    },
    "securityRequirements": [{"schemes": {name: {"list": ["read"]}}} for name in ("a", "b", "key")],
}


def published(*signers: LocalSigner) -> bytes:
    return json.dumps({"keys": [signer.public_key.to_jwk() for signer in signers]}).encode()


DOWN = answer(b"{}", status="503 Busy")


class World:
    """Two issuers, one agent for the callers of both, and the time by which keys grow old."""

    def __init__(self, a: Server, b: Server) -> None:
        self.a, self.b, self.now, self.names = a, b, 0.0, 0
        given = {"key": verifiers()["key"], "a": self.verifier(A, a), "b": self.verifier(B, b)}
        self.agent = Agent()
        transport = httpx.ASGITransport(guarded(self.agent, TWO_ISSUERS, verifiers=given))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://agent.example")

    def verifier(self, issuer: str, server: Server) -> JwtVerifier:
        load = fetcher_for(server).loader(f"http://127.0.0.1:{server.port}/jwks", configured=True)
        return JwtVerifier(JwksCache(load, clock=lambda: self.now), issuer=issuer, audience=AUDIENCE)

    async def called(self, credential: str, **headers: str) -> httpx.Response:
        carried = {"Authorization": f"Bearer {credential}", **headers}
        return await self.http.post("/rpc", headers=carried)

    async def status(self, credential: str, **headers: str) -> int:
        return (await self.called(credential, **headers)).status_code

    def junk(self, issuer: str, **header: Any) -> str:
        """A token of nobody's that says it is the issuer's, by a key that nobody has heard of."""
        self.names += 1
        return token(claims(iss=issuer), signer=STRANGER, **{"kid": f"invented-{self.names}", **header})


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with serving(answer(published(SIGNERS[A]))) as a, serving(answer(published(SIGNERS[B]))) as b:
        yield World(a, b)


def good(issuer: str, signer: LocalSigner | None = None, **changes: Any) -> str:
    return token(claims(iss=issuer, **changes), signer=signer or SIGNERS[issuer])


@pytest.mark.parametrize(("down", "up"), [(A, B), (B, A)])
async def test_an_outage_of_one_issuer_changes_nothing_for_callers_of_the_other(down: str, up: str) -> None:
    async with world() as there:
        {A: there.a, B: there.b}[down].script = DOWN
        for number in range(5):
            assert await there.status(good(up, jti=str(number))) == 200
            assert await there.status(good(down, jti=str(number))) == 503
        answered = await there.called(good(down))
        assert (answered.status_code, answered.headers["retry-after"]) == (503, "5")


async def test_tokens_of_one_issuer_and_of_none_make_no_fetch_of_the_others_keys() -> None:
    async with world() as there:
        for number in range(20):
            assert await there.status(good(B, jti=str(number))) == 200
        foreign = [
            there.junk("https://c.example"),
            good(A).replace(".", "", 1),
            "opaque",
            f"{b64(b'{}')}.{b64(b'{}')}.x",
        ]
        foreign += [token(claims(iss=iss), signer=STRANGER) for iss in (..., None, 1, [A], {"iss": A}, A + "/", "")]
        for credential in foreign:
            assert await there.status(credential) == 401
        assert (there.a.connections, there.b.connections) == (0, 1)


async def test_a_storm_at_one_issuer_changes_nothing_for_callers_of_the_other() -> None:
    async with world() as there:
        for number in range(60):
            there.now = number / 4
            assert await there.status(there.junk(A)) in (401, 503)
            assert await there.status(good(B, jti=str(number))) == 200
            assert await there.status(good(A, jti=str(number))) == 200
        assert there.b.connections == 1
        assert there.a.connections <= 1 + 5 + 15 // 5
        # The budget of b is whole: a key that b has just published is known at once.
        new = generate_signer("ES256", kid="b-2")
        there.b.script = answer(published(SIGNERS[B], new))
        assert await there.status(good(B, new)) == 200


@pytest.mark.parametrize("junk_in_a_second", [1, 4, 20])
async def test_junk_delays_a_rotated_key_by_five_seconds_at_most_and_with_503_only(junk_in_a_second: int) -> None:
    async with world() as there:
        assert await there.status(good(A)) == 200
        for number in range(40 * junk_in_a_second):
            there.now = number / junk_in_a_second
            assert await there.status(there.junk(A)) in (401, 503)
        there.a.script = answer(published(SIGNERS[A], NEXT))
        rotated, answers = there.now, []
        for number in range(6 * junk_in_a_second):
            there.now = rotated + number / junk_in_a_second
            answered = await there.called(good(A, NEXT))
            answers.append(answered.status_code)
            assert answered.status_code == 200 or answered.headers["retry-after"] == "5"
            assert await there.status(there.junk(A)) in (401, 503)
        assert set(answers) <= {200, 503}
        assert set(answers[5 * junk_in_a_second :]) == {200}
        assert answers == sorted(answers, reverse=True)  # once it is known it stays known


async def test_whoever_guesses_the_name_of_the_next_key_does_not_keep_it_out() -> None:
    async with world() as there:
        assert await there.status(good(A)) == 200
        assert await there.status(there.junk(A, kid="a-2")) == 401
        there.a.script = answer(published(SIGNERS[A], NEXT))
        assert await there.status(good(A, NEXT)) == 200


async def test_with_the_budget_spent_only_tokens_that_could_be_good_are_503() -> None:
    async with world() as there:
        assert await there.status(good(A)) == 200
        assert [await there.status(there.junk(A)) for _ in range(6)] == [401] * 5 + [503]
        fetched = there.a.connections
        assert await there.status(there.junk(A)) == 503
        could_not_be_good = [
            there.junk("https://c.example"),
            there.junk(A, typ="JWT"),
            there.junk(A, alg="HS256"),
            there.junk(A, alg="none"),
            token(claims(iss=A, aud="https://other.example"), signer=STRANGER),
            token(claims(iss=A, exp=NOW), signer=STRANGER),
            token(claims(iss=A, nonce="n"), signer=STRANGER),
            "opaque",
        ]
        for credential in could_not_be_good:
            assert await there.status(credential) == 401
        assert there.a.connections == fetched


async def test_an_outage_matters_only_where_nothing_else_lets_the_caller_in() -> None:
    async with world() as there:
        there.a.script = DOWN
        assert await there.status(good(A), **{"X-API-Key": KEY}) == 200
        assert await there.status(good(A), **{"X-API-Key": "wrong" * 8}) == 401  # an invalid credential, whatever else
        assert await there.status(good(A)) == 503
        assert len(there.agent.scopes) == 1


async def test_two_verifiers_of_one_issuer_are_both_tried_and_one_that_is_down_does_not_stop_the_other() -> None:
    async with world() as there:
        there.a.script = DOWN
        given = {"key": verifiers()["key"], "a": there.verifier(B, there.a), "b": there.verifier(B, there.b)}
        transport = httpx.ASGITransport(guarded(there.agent, TWO_ISSUERS, verifiers=given))
        there.http = httpx.AsyncClient(transport=transport, base_url="http://agent.example")
        assert await there.status(good(B)) == 200
        assert there.a.connections == 1
