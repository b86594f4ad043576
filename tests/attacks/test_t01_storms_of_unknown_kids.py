"""T1: tokens with invented key names make the server ask its identity provider again and again, and may even make it
forget the keys that it has.

Seen in PyJWT (CVE-2026-48524). The identity provider here is a real server that counts who comes.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from a2a_trust import generate_signer
from a2a_trust.errors import InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.trust.jwks_cache import JwksCache
from tests.base.net.test_fetcher import Server, answer, fetcher_for, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def signer() -> LocalSigner:
    return generate_signer("ES256", kid="good")


def published(*signers: LocalSigner) -> bytes:
    return json.dumps({"keys": [signer.public_key.to_jwk() for signer in signers]}).encode()


#: What callers are told of names that nobody knows: that there is no such key, or that nobody can tell now.
UNKNOWN = {InvalidCredentialsError, KeySourceUnavailableError}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def cache_of(server: Server, clock: Clock) -> JwksCache:
    load = fetcher_for(server).loader(f"http://127.0.0.1:{server.port}/jwks", configured=True)
    return JwksCache(load, clock=clock)


async def storm(cache: JwksCache, names: range) -> set[type]:
    callers = [cache.key(f"invented-{name}", "EC") for name in names]
    return {type(result) for result in await asyncio.gather(*callers, return_exceptions=True)}


async def test_many_invented_names_at_once_make_two_fetches_and_lose_no_key(signer: LocalSigner) -> None:
    async with serving(answer(published(signer))) as server:
        cache = cache_of(server, Clock())
        assert await cache.key("good", "EC") == signer.public_key
        assert await storm(cache, range(200)) == {InvalidCredentialsError}
        # Those who came while the first was under way need one that was begun after they came.
        assert server.connections == 3
        assert await cache.key("good", "EC") == signer.public_key
        assert server.connections == 3


async def test_a_storm_that_lasts_makes_one_fetch_in_five_seconds(signer: LocalSigner) -> None:
    async with serving(answer(published(signer), "Cache-Control: max-age=86400")) as server:
        clock = Clock()
        cache = cache_of(server, clock)
        await cache.key("good", "EC")
        for second in range(300):
            clock.now = float(second)
            assert await storm(cache, range(second * 10, second * 10 + 10)) <= UNKNOWN
            assert await cache.key("good", "EC") == signer.public_key
        assert server.connections == 1 + 5 + 299 // 5


async def test_a_storm_at_a_cold_start_makes_no_more_fetches(signer: LocalSigner) -> None:
    async with serving(answer(published(signer))) as server:
        cache = cache_of(server, Clock())
        assert await storm(cache, range(200)) == {InvalidCredentialsError}
        assert server.connections in (1, 2)


async def test_a_storm_while_the_source_is_down_neither_floods_it_nor_loses_a_key(signer: LocalSigner) -> None:
    async with serving(answer(published(signer))) as server:
        clock = Clock()
        cache = cache_of(server, clock)
        await cache.key("good", "EC")
        server.script = answer(b"{}", status="503 Busy")
        for second in range(60):
            clock.now = float(second)
            assert await storm(cache, range(second * 10, second * 10 + 10)) == {KeySourceUnavailableError}
            assert await cache.key("good", "EC") == signer.public_key
        assert server.connections == 1 + 6  # at seconds 0, 1, 3, 7, 15 and 31


async def test_a_rotation_in_the_middle_of_a_storm_is_found_within_five_seconds(signer: LocalSigner) -> None:
    new = generate_signer("ES256", kid="new")
    async with serving(answer(published(signer))) as server:
        clock = Clock()
        cache = cache_of(server, clock)
        for number in range(10):
            await storm(cache, range(number * 100, number * 100 + 100))
        server.script = answer(published(signer, new))
        with pytest.raises(KeySourceUnavailableError):
            await cache.key("new", "EC")
        clock.now = 5.0
        await storm(cache, range(10_000, 10_100))
        assert await cache.key("new", "EC") == new.public_key
