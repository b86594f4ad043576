"""T11: somebody who can read and write the Redis of several replicas forges, copies, keeps or reads answers there.

An identity comes only from the issuer's own answer about this token to a client with these rules.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from a2a_trust.auth import RedisAnswers
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError
from tests.auth.introspecting import active, introspecting, verifier_for
from tests.auth.test_jwt import NOW
from tests.databases import RedisServer

pytestmark = pytest.mark.anyio

SECRET = b"s" * 32


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def answers(redis_url: str) -> AsyncIterator[list[RedisAnswers]]:
    """As two replicas have them, and one with another secret."""
    made = [RedisAnswers(redis_url, secret=secret) for secret in (SECRET, SECRET, b"t" * 32)]
    yield made
    for each in made:
        await each.aclose()


@asynccontextmanager
async def replicas(answers: list[RedisAnswers], **tokens: Any) -> AsyncIterator[list[Any]]:
    """A server that knows these tokens, and a verifier for each memory."""
    async with introspecting(**tokens) as server:
        yield [server, *[verifier_for(server, shared=each) for each in answers]]


def stored(redis_server: RedisServer) -> dict[bytes, bytes]:
    with redis_server.client() as client:
        return {name: client.get(name) for name in client.scan_iter("a2a:token:*")}


async def test_one_replica_asks_and_the_others_know(redis_server: RedisServer, answers: list[RedisAnswers]) -> None:
    async with replicas(answers[:2], good=active(), bad={"active": False}) as (server, one, two):
        first = await one.verify("good", NOW)
        assert await two.verify("good", NOW + 20) == first
        assert server.asked == ["good"]
        for verifier in (one, two):
            with pytest.raises(InvalidCredentialsError):
                await verifier.verify("bad", NOW)
        assert server.asked == ["good", "bad", "bad"]
        (name,) = stored(redis_server)
        with redis_server.client() as client:
            assert 0 < client.pttl(name) <= 30_000


async def test_a_shared_answer_counts_no_longer_than_one_that_a_replica_got(answers: list[RedisAnswers]) -> None:
    """The time is that of the answer, not that of the replica that finds it."""
    async with replicas(answers[:2], good=active(), short=active(exp=int(NOW) + 5)) as (server, one, two):
        await one.verify("good", NOW)
        await one.verify("short", NOW)
        server.tokens["good"] = {"active": False}
        await two.verify("good", NOW + 29)
        with pytest.raises(InvalidCredentialsError):
            await two.verify("good", NOW + 30)
        with pytest.raises(InvalidCredentialsError, match="expired"):
            await two.verify("short", NOW + 6)


@pytest.mark.parametrize("later", [-11.0, 31.0])
async def test_an_answer_of_another_time_is_a_miss(answers: list[RedisAnswers], later: float) -> None:
    async with replicas(answers[:2], good=active(iat=int(NOW) - 999)) as (server, one, two):
        await one.verify("good", NOW)
        await two.verify("good", NOW + later)
        assert server.asked == ["good", "good"]


async def test_nothing_in_redis_can_be_read_there(redis_server: RedisServer, answers: list[RedisAnswers]) -> None:
    async with replicas(answers[:1], good=active(sub="ann-the-subject", email="ann@example.com")) as (_, one):
        await one.verify("good", NOW)
    everything = b"".join([*stored(redis_server).keys(), *stored(redis_server).values()])
    assert len(everything) > 100
    assert not [each for each in (b"good", b"ann-the-subject", b"ann@example", b"issuer") if each in everything]


async def test_what_is_forged_copied_or_changed_there_is_a_miss(
    redis_server: RedisServer, answers: list[RedisAnswers]
) -> None:
    tokens = {"mine": active(sub="eve"), "theirs": active(sub="ann")}
    async with replicas(answers[:1], **tokens) as (_, one):
        await one.verify("mine", NOW)
        (eves,) = stored(redis_server)
        await one.verify("theirs", NOW)
        (anns,) = stored(redis_server).keys() - {eves}
    sealed = stored(redis_server)
    forged = json.dumps({"answer": active(sub="ann"), "at": NOW}).encode()
    changes = [sealed[anns], forged, b"", sealed[eves][:-1], bytes(12) + sealed[eves][12:], sealed[eves] + b"0"]
    for change in changes:
        with redis_server.client() as client:
            client.set(eves, change)
        async with replicas(answers[1:2], **tokens) as (server, two):
            assert (await two.verify("mine", NOW)).subject == "eve"
            assert server.asked == ["mine"]


async def test_replicas_with_other_rules_or_another_secret_share_nothing(answers: list[RedisAnswers]) -> None:
    async with replicas([answers[0], answers[2]], good=active()) as (server, one, stranger):
        await one.verify("good", NOW)
        await stranger.verify("good", NOW)
        assert server.asked == ["good", "good"]
        other = verifier_for(server, shared=answers[1], issuer="https://other.example")
        with pytest.raises(InvalidCredentialsError):
            await other.verify("good", NOW)
        assert server.asked == ["good", "good", "good"]


async def test_a_shared_answer_is_judged_by_the_rules_of_the_one_who_reads_it(answers: list[RedisAnswers]) -> None:
    async with replicas(answers[:1], good=active(aud="https://one.example")) as (server, _):
        one = verifier_for(server, shared=answers[0], audience="https://one.example")
        two = verifier_for(server, shared=answers[1], audience="https://two.example")
        await one.verify("good", NOW)
        with pytest.raises(InvalidCredentialsError, match="audience"):
            await two.verify("good", NOW)


async def test_a_token_that_is_forgotten_is_asked_about_again(
    redis_server: RedisServer, answers: list[RedisAnswers]
) -> None:
    async with replicas(answers[:1], good=active()) as (server, one):
        await one.verify("good", NOW)
        one.forget("good")
        for _ in range(100):
            if not stored(redis_server):
                break
            await asyncio.sleep(0.02)
        server.tokens["good"] = {"active": False}
        with pytest.raises(InvalidCredentialsError, match="not active"):
            await one.verify("good", NOW)


async def test_while_redis_is_down_each_replica_asks_for_itself(
    redis_server: RedisServer, answers: list[RedisAnswers]
) -> None:
    tokens = {f"token{number}": active() for number in range(20)}
    async with replicas(answers[:1], **tokens) as (server, one):
        with redis_server.frozen():
            begun = time.monotonic()
            await one.verify("token0", NOW)
            first = time.monotonic() - begun
            for name in tokens:
                await one.verify(name, NOW)
            assert len(server.asked) == 20
            assert time.monotonic() - begun < first + 1.0  # one wait for Redis, and not twenty
            assert first > 0.2


def test_a_short_secret_is_refused(redis_url: str) -> None:
    with pytest.raises(ConfigurationError, match="RedisAnswers: the secret must be 32 bytes or more") as caught:
        RedisAnswers(redis_url, secret=b"too short to be one")
    assert "too short" not in str(caught.value)
