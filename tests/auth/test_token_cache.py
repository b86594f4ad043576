"""Answers about opaque tokens that replicas share on a real Redis: one question, the same rules, misses in outages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from a2a_trust.auth import RedisTokenCache, introspection
from a2a_trust.auth.introspection import IntrospectionVerifier
from a2a_trust.auth.providers import keycloak_introspection, zitadel
from a2a_trust.base.databases import availability
from a2a_trust.client import ClientSecret
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError
from tests.auth.api_key.test_verifier import Clock
from tests.auth.introspecting import IntrospectionServer, active, introspecting, verifier_for
from tests.auth.test_jwt import NOW
from tests.auth.test_shared_counters import counting_trips
from tests.databases import RedisServer, temporary_folder
from tests.tables import walk

pytestmark = pytest.mark.anyio

SECRET = b"s" * 32


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server that the test may end."""
    with temporary_folder() as folder:
        server = RedisServer(folder)
        server.start()
        yield server
        server.kill()


@pytest.fixture(autouse=True)
def _patient_with_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer for a trip, or for a question, than requests wait."""
    monkeypatch.setattr(introspection, "REQUEST_SECONDS", 60.0)
    monkeypatch.setattr(introspection, "_ROUND_TRIP_SECONDS", 60.0)


@asynccontextmanager
async def replicas(
    server: IntrospectionServer, url: str, count: int = 2, *, secret: bytes = SECRET, **options: Any
) -> AsyncIterator[list[IntrospectionVerifier]]:
    caches = [RedisTokenCache(url, secret=secret) for _ in range(count)]
    try:
        yield [verifier_for(server, shared=cache, **options) for cache in caches]
    finally:
        for cache in caches:
            await cache.aclose()


def values(redis_server: RedisServer) -> dict[bytes, bytes]:
    with redis_server.client() as client:
        return {name: client.get(name) for name in client.keys("a2a:token:*")}


# Arguments


@walk("secret", [b"", b"s" * 31, "s" * 32, None, bytearray(32)])
def test_a_secret_has_32_bytes(secret: Any) -> None:
    with pytest.raises(ConfigurationError, match="the secret must be 32 bytes or more"):
        RedisTokenCache("redis://127.0.0.1/0", secret=secret)


async def test_a_cache_is_an_object_and_shows_no_secret() -> None:
    async with introspecting() as server:
        with pytest.raises(ConfigurationError, match=r"write shared=RedisTokenCache\("):
            verifier_for(server, shared="redis://127.0.0.1/0")
        cache = RedisTokenCache("redis://user:password@127.0.0.1/0", secret=SECRET)
        shown = repr(cache) + repr(verifier_for(server, shared=cache)) + repr(vars(cache)["_seal"])
    assert "password" not in shown
    assert "ssss" not in shown


def test_presets_that_ask_take_a_cache() -> None:
    cache = RedisTokenCache("redis://127.0.0.1/0", secret=SECRET)
    given: dict[str, Any] = {"client_id": "a", "authentication": ClientSecret("s"), "shared": cache}
    url = "https://idp.example"
    assert keycloak_introspection(url, "realm", audience="a", **given)._shared is cache
    assert zitadel(url, audience="a", **given)._shared is cache


# One question


class Dictionary:
    """As much of a Redis server and its client as a cache uses."""

    what = "dictionary"
    pause = availability.Pause()

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self._wanted: list[bytes] = []

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Dictionary]:
        yield self

    @asynccontextmanager
    async def pipeline(self, *, transaction: bool) -> AsyncIterator[Dictionary]:
        self._wanted.clear()
        yield self

    def getrange(self, slot: bytes, begin: int, end: int) -> None:
        self._wanted.append(slot)

    async def execute(self) -> list[bytes]:
        return [self.values.get(slot, b"") for slot in self._wanted]

    async def set(self, slot: bytes, value: bytes, *, px: int) -> None:
        self.values[slot] = value

    async def delete(self, slot: bytes) -> None:
        self.values.pop(slot, None)

    async def aclose(self) -> None:
        pass


async def test_replicas_share_answers_that_are_sealed_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """What verifiers make of a shared cache; the tests below have a real Redis."""
    redis = Dictionary()
    monkeypatch.setattr(introspection, "RedisServer", lambda *_, **__: redis)
    async with (
        introspecting(good=active()) as server,
        replicas(server, "redis://127.0.0.1/0", 4) as (one, two, three, four),
    ):
        for each in (one, two):
            assert (await each.verify("good", NOW)).subject == "ann"
        assert server.asked == ["good"]
        ((slot, value),) = redis.values.items()
        assert b"good" not in slot
        assert b"ann" not in value
        redis.values[slot] = value[:-1] + bytes([value[-1] ^ 1])  # whoever writes there forges nothing
        await three.verify("good", NOW)
        assert server.asked == ["good"] * 2
        four.forget("good")
        server.tokens.clear()
        with pytest.raises(InvalidCredentialsError):
            await four.verify("good", NOW)


@pytest.mark.real
async def test_replicas_ask_the_issuer_once(redis_url: str) -> None:
    async with (
        introspecting(good=active(more={"deep": [1, 1.5, "ü", None]})) as server,
        replicas(server, redis_url, 4) as verifiers,
    ):
        identities = [await each.verify("good", NOW + number) for number, each in enumerate(verifiers)]
        assert server.asked == ["good"]
        assert [each == identities[0] for each in identities] == [True] * 4
        assert identities[3].claims["more"]["deep"] == (1, 1.5, "ü", None)
        assert await verifiers[3].verify("good", NOW + 4) is identities[3]  # from its own memory now


@pytest.mark.real
async def test_many_callers_at_once_cost_one_look_up_and_one_question(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with introspecting(good=active()) as server, replicas(server, redis_url, 1) as (only,):
        found = 0
        real = RedisTokenCache.find

        async def counted(*args: Any, **named: Any) -> Any:
            nonlocal found
            found += 1
            return await real(*args, **named)

        monkeypatch.setattr(RedisTokenCache, "find", counted)
        await asyncio.gather(*(only.verify("good", NOW) for _ in range(100)))
        await only.verify("good", NOW)
        assert (found, server.asked) == (1, ["good"])


@pytest.mark.real
async def test_invalid_tokens_are_not_shared(redis_url: str, redis_server: RedisServer) -> None:
    async with introspecting(refresh=active(token_type="refresh")) as server:
        async with replicas(server, redis_url) as verifiers:
            for each in verifiers:
                for token in ("unknown", "refresh"):
                    with pytest.raises(InvalidCredentialsError):
                        await each.verify(token, NOW)
        assert len(server.asked) == 4
    assert values(redis_server) == {}


@pytest.mark.real
async def test_a_reader_applies_its_own_rules_to_an_answer(redis_url: str) -> None:
    """Of the verifiers of one configuration, one may be stricter about what is in an answer."""
    async with introspecting(good=active(token_type=...)) as server:
        async with (
            replicas(server, redis_url, 1, knows_access_tokens_only=True) as (lenient,),
            replicas(server, redis_url, 1) as (strict,),
        ):
            await lenient.verify("good", NOW)
            with pytest.raises(InvalidCredentialsError, match="nothing in the answer shows"):
                await strict.verify("good", NOW)
        assert server.asked == ["good", "good"]


@pytest.mark.real
@pytest.mark.parametrize(
    "other",
    [
        {"audience": "https://other.example"},
        {"audience": ["https://agent.example", "https://other.example"]},
        {"client_id": "other"},
        {"query": "?realm=other"},
    ],
)
async def test_verifiers_of_other_configurations_ask_for_themselves(redis_url: str, other: dict[str, Any]) -> None:
    everything = ["https://agent.example", "https://other.example"]
    async with introspecting(good=active(aud=everything)) as server, replicas(server, redis_url, 1) as (one,):
        await one.verify("good", NOW)
        cache = RedisTokenCache(redis_url, secret=SECRET)
        place: Any = SimpleNamespace(url=server.url + other.get("query", ""), port=server.port)
        options = {name: value for name, value in other.items() if name != "query"}
        await verifier_for(place, shared=cache, **options).verify("good", NOW)
        await cache.aclose()
        assert server.asked == ["good", "good"]


# Time


@pytest.mark.real
async def test_an_answer_counts_from_the_question_on_whoever_reads_it(redis_url: str) -> None:
    async with introspecting(good=active()) as server, replicas(server, redis_url, 4) as (one, two, three, four):
        await one.verify("good", NOW)
        await two.verify("good", NOW + 29)
        assert server.asked == ["good"]
        server.tokens.clear()
        await two.verify("good", NOW + 29.9)
        for each in (two, three):
            with pytest.raises(InvalidCredentialsError, match="not active"):
                await each.verify("good", NOW + 30)
        await four.verify("good", NOW + 29)


@pytest.mark.real
async def test_a_reader_that_remembers_shorter_reads_shorter(redis_url: str) -> None:
    async with (
        introspecting(good=active()) as server,
        replicas(server, redis_url, 1) as (one,),
        replicas(server, redis_url, 2, remember_for=5) as (two, three),
    ):
        await one.verify("good", NOW)
        await two.verify("good", NOW + 4)
        assert server.asked == ["good"]
        await three.verify("good", NOW + 5)
        assert server.asked == ["good"] * 2


@pytest.mark.real
async def test_without_a_time_to_remember_nothing_is_shared(redis_url: str, redis_server: RedisServer) -> None:
    async with introspecting(good=active()) as server, replicas(server, redis_url, remember_for=0) as verifiers:
        for each in verifiers:
            await each.verify("good", NOW)
        assert server.asked == ["good"] * 2
    assert values(redis_server) == {}


@pytest.mark.real
async def test_redis_drops_an_answer_in_time(redis_url: str, redis_server: RedisServer) -> None:
    async with (
        introspecting(good=active(), short=active(exp=int(NOW) + 9)) as server,
        replicas(server, redis_url, 1) as (only,),
    ):
        await only.verify("good", NOW)
        await only.verify("short", NOW)
    with redis_server.client() as client:
        rests = sorted(client.pttl(name) for name in values(redis_server))
    assert 8_000 < rests[0] <= 9_000
    assert 29_000 < rests[1] <= 30_000


@pytest.mark.real
@pytest.mark.parametrize("ahead", [-20.0, -10.0, 0.0, 10.0, 20.0])
async def test_clocks_of_replicas_may_differ_by_ten_seconds(redis_url: str, ahead: float) -> None:
    """The writer's clock is ahead. One that is far behind writes what soon ends, and never what lasts longer."""
    async with introspecting(good=active(iat=int(NOW) - 60)) as server, replicas(server, redis_url) as (one, two):
        await one.verify("good", NOW + ahead)
        await two.verify("good", NOW)
        assert server.asked == ["good"] * (2 if ahead > 10 else 1)
        server.tokens.clear()
        ends = NOW + (30 + ahead if ahead <= 10 else 30)
        await two.verify("good", ends - 0.1)
        with pytest.raises(InvalidCredentialsError):
            await two.verify("good", ends)


@pytest.mark.real
async def test_the_end_of_a_token_is_read_again(redis_url: str) -> None:
    async with introspecting(good=active(exp=int(NOW) + 5)) as server, replicas(server, redis_url) as (one, two):
        await one.verify("good", NOW)
        server.tokens.clear()
        with pytest.raises(InvalidCredentialsError):
            await two.verify("good", NOW + 5)
        assert server.asked == ["good"] * 2


# Forgetting


@pytest.mark.real
async def test_a_forgotten_token_is_asked_about_again_by_all_that_do_not_remember_it(
    redis_url: str, redis_server: RedisServer
) -> None:
    async with introspecting(good=active()) as server, replicas(server, redis_url) as (one, two):
        await one.verify("good", NOW)
        server.tokens.clear()
        one.forget("good")
        for each in (one, two):
            with pytest.raises(InvalidCredentialsError):
                await each.verify("good", NOW)
        assert server.asked == ["good"] * 3
    assert values(redis_server) == {}


@pytest.mark.real
async def test_a_forgotten_token_does_not_come_back_though_redis_still_has_it(
    redis_url: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with introspecting(good=active()) as server, replicas(server, redis_url) as (one, two):
        await two.verify("good", NOW)
        await one.verify("good", NOW)
        assert server.asked == ["good"]
        monkeypatch.setattr(RedisTokenCache, "forget", lambda *_: None)  # as in an outage
        one.forget("good")
        assert len(values(redis_server)) == 1
        server.tokens.clear()
        with pytest.raises(InvalidCredentialsError):
            await one.verify("good", NOW)


@pytest.mark.real
async def test_an_answer_of_before_is_not_shared_after_a_token_was_forgotten(
    redis_url: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with introspecting(good=active()) as server, replicas(server, redis_url, 1) as (only,):
        server.open.clear()
        before = asyncio.create_task(only.verify("good", NOW))
        async with asyncio.timeout(60):
            while not server.asked:
                await asyncio.sleep(0.005)
        only.forget("good")
        server.open.set()
        await before
        assert values(redis_server) == {}
        real = RedisTokenCache.keep

        async def late(*args: Any) -> None:
            only.forget("good")
            await asyncio.wait(args[0]._removing)  # it is removed before it is there
            await real(*args)

        monkeypatch.setattr(RedisTokenCache, "keep", late)
        await only.verify("good", NOW)
    assert values(redis_server) == {}


@pytest.mark.real
async def test_a_token_that_is_forgotten_while_it_is_looked_up_is_asked_about(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with introspecting(good=active()) as server, replicas(server, redis_url) as (one, two):
        await one.verify("good", NOW)
        real = RedisTokenCache.find

        async def slow(*args: Any, **named: Any) -> Any:
            found = await real(*args, **named)
            two.forget("good")  # revoked now
            server.tokens.clear()
            return found

        monkeypatch.setattr(RedisTokenCache, "find", slow)
        with pytest.raises(InvalidCredentialsError, match="not active"):
            await two.verify("good", NOW)


@pytest.mark.real
async def test_a_thread_without_an_event_loop_may_forget(own_redis: RedisServer) -> None:
    async with introspecting(good=active()) as server, replicas(server, own_redis.url) as (one, two):
        await one.verify("good", NOW)
        await asyncio.to_thread(one.forget, "good")
        assert values(own_redis) == {}
        own_redis.kill()
        await asyncio.to_thread(two.forget, "good")  # no error


# Outages


@pytest.mark.real
async def test_without_redis_each_replica_asks_the_issuer(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "_PAUSE_SECONDS", 0.2)
    tokens = [f"t{number}" for number in range(9)]
    async with (
        introspecting(**dict.fromkeys(tokens, active())) as server,
        replicas(server, own_redis.url) as (one, two),
    ):
        await one.verify("t0", NOW)
        own_redis.kill()
        for token in tokens[:6]:
            for each in (one, two):
                assert (await each.verify(token, NOW)).subject == "ann"
        assert server.asked.count("t0") == 2
        own_redis.start()
        await asyncio.sleep(0.25)
        await one.verify("t6", NOW)
        await two.verify("t6", NOW)
        assert server.asked.count("t6") == 1
    events = [record.__dict__["audit"]["event"] for record in caplog.records if record.name == "a2a_trust.audit"]
    assert events == ["store-lost"] * 2 + ["store-found"] * 2


@pytest.mark.real
async def test_a_frozen_redis_delays_one_request_and_then_none_for_a_second(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introspection, "_ROUND_TRIP_SECONDS", 2.0)
    clock = Clock()
    monkeypatch.setattr(availability, "time", SimpleNamespace(monotonic=clock))
    tokens = [f"t{number}" for number in range(60)]
    async with (
        introspecting(**dict.fromkeys(tokens, active())) as server,
        replicas(server, own_redis.url, 1) as (only,),
    ):
        await only.verify("t0", NOW)  # connects
        with own_redis.frozen(), counting_trips(monkeypatch) as trips:
            for token in tokens[1:30]:
                await only.verify(token, NOW)
            assert len(trips) == 1
            clock.at += 1
            await asyncio.gather(*(only.verify(token, NOW) for token in tokens[30:40]))
            assert len(trips) == 2


@pytest.mark.real
async def test_while_the_issuer_is_down_the_answers_of_other_replicas_count(redis_url: str) -> None:
    async with introspecting(good=active()) as server, replicas(server, redis_url, 3) as (one, two, three):
        await one.verify("good", NOW)
        server.failing = ("500 Oops", b"{}")
        for each in (two, three):
            for _ in range(2):
                with pytest.raises(KeySourceUnavailableError):
                    await each.verify("unknown", NOW)  # it does not ask for a second now
        assert (await two.verify("good", NOW + 20)).subject == "ann"
        with pytest.raises(KeySourceUnavailableError):
            await three.verify("good", NOW + 30)


@pytest.mark.real
async def test_an_emptied_redis_and_another_secret_are_misses(
    redis_url: str, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "a2a_trust.auth.introspection")
    async with introspecting(good=active()) as server, replicas(server, redis_url, 3) as (one, two, three):
        await one.verify("good", NOW)
        with redis_server.client() as client:
            client.flushall()
        await two.verify("good", NOW)
        assert server.asked == ["good"] * 2
        assert caplog.records == []
        async with replicas(server, redis_url, 1, secret=b"t" * 32) as (other,):
            await other.verify("good", NOW)
        assert server.asked == ["good"] * 3
        await three.verify("good", NOW)  # the value is that of the other now
        assert server.asked == ["good"] * 4
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "not sealed with this secret" in caplog.text


@pytest.mark.real
async def test_redis_may_drop_answers_to_make_room(redis_url: str, redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            async with introspecting(good=active()) as server, replicas(server, redis_url) as verifiers:
                for each in verifiers:
                    await each.verify("good", NOW)
            assert server.asked == ["good"]
        finally:
            client.config_set("maxmemory", "0")
            client.config_set("maxmemory-policy", "noeviction")


@pytest.mark.real
async def test_an_answer_that_is_too_large_is_not_shared(redis_url: str, redis_server: RedisServer) -> None:
    async with introspecting(good=active(more="x" * 70_000), fits=active(more="x" * 60_000)) as server:
        async with replicas(server, redis_url) as verifiers:
            for each in verifiers:
                await each.verify("good", NOW)
                await each.verify("fits", NOW)
        assert server.asked == ["good", "fits", "good"]
    assert len(values(redis_server)) == 1


@pytest.mark.real
def test_event_loops_one_after_the_other_share_a_cache(redis_url: str) -> None:
    cache = RedisTokenCache(redis_url, secret=SECRET)

    async def ask() -> list[str]:
        async with introspecting(good=active()) as server:
            server_url = "http://127.0.0.1:9/introspect"
            verifier = verifier_for(server, shared=cache)
            verifier._configuration = server_url.encode()  # the port differs
            try:
                await verifier.verify("good", NOW)
            finally:
                await cache.aclose()
            return server.asked

    assert [asyncio.run(ask()) for _ in range(2)] == [["good"], []]
