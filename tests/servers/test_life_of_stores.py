"""Stores with connections end with the lifespan of real servers, are lost and found, and serve several applications."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from a2a_trust import ApiKeyVerifier, DPoP, JwtVerifier, RequestRules, protect
from a2a_trust.auth import (
    FailureLimits,
    PostgresApiKeys,
    PostgresProofMemory,
    RedisApiKeys,
    RedisCounters,
    RedisProofMemory,
)
from a2a_trust.middleware import readiness
from tests.auth.test_jwt import EC, ISSUER, Keys
from tests.databases import PostgresServer, RedisServer
from tests.middleware.agent import CARD
from tests.servers.test_ended_streams import serving
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.real]

URL = "http://agent.example"
SERVERS = ["h11", "hypercorn"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class World:
    """A store of keys, a memory of proofs and counters in one server, and how many connections it has from us."""

    def __init__(self, keys: Any, proofs: Any, counters: Any, connections: Callable[[], int]) -> None:
        self.keys, self.proofs, self.counters, self.connections = keys, proofs, counters, connections
        self.key = keys.create(owner="ann", scopes=["read"]).text

    def agent(self, **options: Any) -> Any:
        api = FastAPI(**options)
        api.add_api_route("/hi", lambda: "hi")
        card = {**CARD, "securityRequirements": [{"schemes": {"key": {"list": ["read"]}}}]}
        rules = RequestRules(failures=FailureLimits(shared=self.counters), readiness_path="/readyz")
        given = {"key": ApiKeyVerifier(self.keys)}
        return protect(api, card=card, verifiers=given, rules=rules)


@pytest.fixture(params=["redis", "postgres"])
def world(request: pytest.FixtureRequest) -> World:
    redis: RedisServer = request.getfixturevalue("redis_server")
    redis_url: str = request.getfixturevalue("redis_url")
    if request.param == "redis":
        own = {each["id"] for each in redis.client().client_list()}

        def clients() -> int:
            with redis.client() as client:
                return len([each for each in client.client_list() if each["id"] not in own]) - 1

        keys = RedisApiKeys(redis_url, create=True, timeout=20)
        return World(keys, RedisProofMemory(redis_url, timeout=20), RedisCounters(redis_url), clients)
    server: PostgresServer = request.getfixturevalue("postgres")
    url: str = request.getfixturevalue("postgres_url")
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'a2a-trust'"
    keys_there = PostgresApiKeys(url, timeout=20)
    made = World(keys_there, PostgresProofMemory(url, timeout=20), None, lambda: int(server.sql(query)[0][0]))
    ours = made.connections()  # of the key that was made
    made.connections = lambda: int(server.sql(query)[0][0]) - ours
    return made


@asynccontextmanager
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
        yield client


@pytest.mark.parametrize("server", SERVERS)
async def test_connections_end_with_the_lifespan_and_another_application_goes_on(world: World, server: str) -> None:
    headers = {"X-API-Key": world.key}
    async with http() as client, AsyncExitStack() as second:
        other = await second.enter_async_context(serving(world.agent(), server, lifespan="on"))
        async with serving(world.agent(), server, lifespan="on") as origin:
            for each in (origin, other):
                assert (await client.get(f"{each}/hi", headers=headers)).status_code == 200
                assert (await client.get(f"{each}/hi", headers={"X-API-Key": "wrong"})).status_code == 401
            assert world.connections() > 0
        assert (await client.get(f"{other}/hi", headers=headers)).status_code == 200
        assert (await client.get(f"{other}/hi", headers={"X-API-Key": "other"})).status_code == 401
        assert (await client.get(f"{other}/readyz")).text == "ready"
        await second.aclose()
    await until(lambda: world.connections() <= 0)


async def test_a_store_is_closed_by_its_block_and_opens_again(world: World) -> None:
    async with world.keys as keys, world.proofs as proofs:
        for attempt in ("1", "2"):
            await keys.find((bytes(32),))
            now = time.time()
            await proofs_settled(proofs, attempt, now)
            await keys.aclose()
            await proofs.aclose()
    await until(lambda: world.connections() <= 0)


async def proofs_settled(proofs: Any, jti: str, now: float) -> None:
    """A new memory knows nothing of what was used before, so it may reject a first use for a while."""
    await asyncio.gather(proofs.first_use("jkt", jti, now=now, issued=now, window=1.0), return_exceptions=True)


async def test_a_memory_of_proofs_is_lost_and_found_without_requests(redis_server: RedisServer, redis_url: str) -> None:
    memory = RedisProofMemory(redis_url)
    card = {**CARD, "securityRequirements": [{"schemes": {"oauth": {"list": ["read"]}}}]}
    verifier = JwtVerifier(Keys(EC), issuer=ISSUER, audience=URL)
    app = protect(FastAPI(), card=card, verifiers={"oauth": verifier}, dpop=DPoP(url=URL, memory=memory))
    assert readiness(app).ready
    redis_server.kill()
    try:
        await proofs_settled(memory, "1", time.time())
        found = readiness(app)
        assert (found.ready, [*found.problems]) == (False, ["scheme 'oauth'"])
        assert not readiness(app).ready
    finally:
        await asyncio.to_thread(redis_server.start)
    await until(lambda: readiness(app).ready)
    await memory.aclose()
