"""T11: somebody reads or writes the Redis in which replicas share answers about opaque tokens, or a replica asks under
other rules than the one that reads.

The attacker has the server: it makes, copies, changes, keeps and moves values, and knows all tokens of its own.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from a2a_trust.auth import RedisTokenCache
from a2a_trust.auth.introspection import IntrospectionVerifier
from a2a_trust.errors import InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.keys.sealed import Seal
from tests.auth.introspecting import CLIENT_SECRET, IntrospectionServer, active, introspecting, verifier_for
from tests.auth.test_jwt import NOW, Keys, b64
from tests.databases import RedisServer

pytestmark = [pytest.mark.anyio, pytest.mark.real]

SECRET = b"the secret of all the replicas.."
EVE, ANN = "token-of-eve", "token-of-ann"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def replica(
    server: IntrospectionServer, url: str, secret: bytes = SECRET, **options: Any
) -> AsyncIterator[IntrospectionVerifier]:
    cache = RedisTokenCache(url, secret=secret)
    try:
        yield verifier_for(server, shared=cache, **options)
    finally:
        await cache.aclose()


class Attacker:
    """Somebody with all rights to the server."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server

    def values(self) -> dict[bytes, bytes]:
        with self._server.client() as client:
            return {name: client.get(name) for name in client.keys("a2a:token:*")}

    def write(self, name: bytes, value: bytes) -> None:
        with self._server.client() as client:
            client.set(name, value)


@pytest.fixture
def attacker(redis_server: RedisServer, redis_url: str) -> Attacker:
    return Attacker(redis_server)


def value_of(answer: dict[str, Any], asked: float = NOW) -> bytes:
    return struct.pack(">d", asked) + json.dumps(answer).encode()


ROOT = active(sub="root", scope="read write admin")
#: What an attacker makes of a sealed value of its own, knowing its slot.
FORGERIES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "plain": lambda own, slot: value_of(ROOT),
    "plain JSON": lambda own, slot: json.dumps(ROOT).encode(),
    "of another secret": lambda own, slot: Seal(b"x" * 32, b"a2a_trust introspection 1").seal(value_of(ROOT), slot),
    "of no secret": lambda own, slot: Seal(b"", b"a2a_trust introspection 1").seal(value_of(ROOT), slot),
    "empty": lambda own, slot: b"",
    "a nonce": lambda own, slot: own[:12],
    "half a nonce": lambda own, slot: own[:5],
    "without a tag": lambda own, slot: own[:-16],
    "longer": lambda own, slot: own + b"x",
    "twice": lambda own, slot: own + own,
    "one bit of the nonce": lambda own, slot: bytes([own[0] ^ 1]) + own[1:],
    "one bit of the time": lambda own, slot: own[:12] + bytes([own[12] ^ 1]) + own[13:],
    "one bit of the claims": lambda own, slot: own[:60] + bytes([own[60] ^ 1]) + own[61:],
    "one bit of the tag": lambda own, slot: own[:-1] + bytes([own[-1] ^ 1]),
    "noise": lambda own, slot: os.urandom(500),
    "large": lambda own, slot: own + bytes(50_000_000),
}


@pytest.mark.parametrize("name", FORGERIES)
async def test_a_value_that_was_made_or_changed_is_a_miss(redis_url: str, attacker: Attacker, name: str) -> None:
    async with introspecting(**{EVE: active(sub="eve")}) as server:
        async with replica(server, redis_url) as one:
            await one.verify(EVE, NOW)
        ((slot, own),) = attacker.values().items()
        attacker.write(slot, FORGERIES[name](own, slot))
        async with replica(server, redis_url) as two:
            identity = await two.verify(EVE, NOW)
            assert identity.subject == "eve"
            assert identity.scopes == {"read", "write"}
        assert server.asked == [EVE, EVE]


async def test_no_more_than_an_answer_is_read(redis_url: str, attacker: Attacker, redis_server: RedisServer) -> None:
    """A value of 500 MB would take the memory of every replica."""
    async with introspecting(**{EVE: active(sub="eve")}) as server:
        async with replica(server, redis_url) as one:
            await one.verify(EVE, NOW)
        ((slot, own),) = attacker.values().items()
        attacker.write(slot, own + bytes(1_000_000))
        with redis_server.client() as client:
            before = client.info("stats")["total_net_output_bytes"]
        async with replica(server, redis_url) as two:
            await two.verify(EVE, NOW)
        with redis_server.client() as client:
            assert client.info("stats")["total_net_output_bytes"] - before < 100_000


async def test_the_answer_about_one_token_is_not_that_about_another(redis_url: str, attacker: Attacker) -> None:
    """The attacker wants the identity of ann for the token of eve, or for one that was never issued."""
    async with introspecting(**{EVE: active(sub="eve"), ANN: active(sub="ann")}) as server:
        async with replica(server, redis_url) as one:
            await one.verify(EVE, NOW)
            (of_eve,) = attacker.values()
            await one.verify(ANN, NOW)
        of_both = attacker.values()
        (of_ann,) = of_both.keys() - {of_eve}
        attacker.write(of_eve, of_both[of_ann])
        async with replica(server, redis_url) as two:
            assert (await two.verify(EVE, NOW)).subject == "eve"
        server.tokens.clear()
        attacker.write(of_eve, of_both[of_ann])
        async with replica(server, redis_url) as three:
            with pytest.raises(InvalidCredentialsError, match="not active"):
                await three.verify(EVE, NOW)


@pytest.mark.parametrize("part", ["header", "payload", "signature", "case"])
async def test_a_token_that_is_almost_the_same_is_another(redis_url: str, attacker: Attacker, part: str) -> None:
    """The answer about a valid JWT, which was never verified here, is none about one with a forged signature."""
    header, payload = b64(b'{"alg":"ES256"}'), b64(b'{"sub":"ann"}')
    real, forged = f"{header}.{payload}.c2lnbmF0dXJl", {
        "header": f"{b64(b'{}')}.{payload}.c2lnbmF0dXJl",
        "payload": f"{header}.{b64(b'[]')}.c2lnbmF0dXJl",
        "signature": f"{header}.{payload}.c2lnbmF0dXJm",
        "case": f"{header}.{payload}.C2lnbmF0dXJl",
    }[part]  # fmt: skip
    async with introspecting(**{real: active()}) as server:
        async with replica(server, redis_url) as one:
            await one.verify(real, NOW)
        async with replica(server, redis_url) as two:
            with pytest.raises(InvalidCredentialsError, match="not active"):
                await two.verify(forged, NOW)


async def test_an_answer_that_the_attacker_kept_ends_when_it_would_have(redis_url: str, attacker: Attacker) -> None:
    """After its revocation a token is accepted for no longer than without a shared cache, whoever keeps the value."""
    async with introspecting(**{EVE: active(sub="eve")}) as server:
        async with replica(server, redis_url) as one:
            await one.verify(EVE, NOW)
        ((slot, own),) = attacker.values().items()
        server.tokens.clear()
        for later in (30, 31, 3_000):
            attacker.write(slot, own)  # without an end
            async with replica(server, redis_url) as two:
                with pytest.raises(InvalidCredentialsError, match="not active"):
                    await two.verify(EVE, NOW + later)


async def test_an_answer_that_the_attacker_kept_does_not_outlive_its_token(redis_url: str, attacker: Attacker) -> None:
    async with introspecting(**{EVE: active(sub="eve", exp=int(NOW) + 7)}) as server:
        async with replica(server, redis_url) as one:
            await one.verify(EVE, NOW)
        ((slot, own),) = attacker.values().items()
        server.tokens.clear()
        attacker.write(slot, own)
        async with replica(server, redis_url) as two:
            await two.verify(EVE, NOW + 6)
            with pytest.raises(InvalidCredentialsError):
                await two.verify(EVE, NOW + 7)


async def test_who_reads_the_server_learns_nothing(redis_url: str, attacker: Attacker) -> None:
    echoing = active(sub="ann-smith", email="ann@example.com", token=ANN, deep={"again": [ANN]})
    async with introspecting(**{ANN: echoing}) as server, replica(server, redis_url) as one:
        await one.verify(ANN, NOW)
    ((name, value),) = attacker.values().items()
    for octets in (name, value):
        for word in (ANN, "ann-smith", "example", "sub", "active", "client_id", CLIENT_SECRET):
            assert word.encode() not in octets
    assert SECRET not in value


async def test_the_token_is_not_even_inside_the_seal(redis_url: str, attacker: Attacker) -> None:
    """Who learns the secret later reads claims, and gets no credentials."""
    echoing = active(token=ANN, deep={"again": [ANN]})
    async with introspecting(**{ANN: echoing}) as server, replica(server, redis_url) as one:
        await one.verify(ANN, NOW)
    ((slot, sealed),) = attacker.values().items()
    opened = Seal(SECRET, b"a2a_trust introspection 1").open(sealed, slot)
    assert opened is not None
    assert b'"sub":"ann"' in opened
    assert ANN.encode() not in opened


async def test_two_answers_have_no_octets_in_common(redis_url: str, attacker: Attacker) -> None:
    """A nonce that came twice would show the difference of two answers, and the key for forgeries."""
    seen: list[bytes] = []
    async with introspecting(**{ANN: active()}) as server:
        for number in range(20):
            async with replica(server, redis_url) as one:
                await one.verify(ANN, NOW + 100 * number)
            seen += attacker.values().values()
    assert len({each[:12] for each in seen}) == len({each[12:28] for each in seen}) == 20


async def test_an_unsigned_answer_is_none_for_a_replica_that_wants_signed_ones(redis_url: str) -> None:
    async with (
        introspecting(**{EVE: active(sub="eve")}) as server,
        replica(server, redis_url) as lax,
        replica(server, redis_url, signed_answers=Keys()) as strict,
    ):
        await lax.verify(EVE, NOW)
        with pytest.raises(KeySourceUnavailableError):
            await strict.verify(EVE, NOW)


@pytest.mark.parametrize(
    ("lax", "strict"),
    [
        ({"allow_missing_audience": True}, {}),
        ({"knows_access_tokens_only": True}, {}),
        ({}, {"binding": "required"}),
        ({}, {"scopes_from": "roles"}),
    ],
    ids=["audience", "kind", "binding", "scopes"],
)
async def test_a_reader_never_accepts_what_it_would_not_accept_of_the_issuer(
    redis_url: str, lax: dict[str, Any], strict: dict[str, Any]
) -> None:
    changes: dict[str, Any] = {"aud": ...} if "allow_missing_audience" in lax else {}
    changes |= {"token_type": ...} if "knows_access_tokens_only" in lax else {}
    async with (
        introspecting(**{EVE: active(**changes)}) as server,
        replica(server, redis_url, **lax) as one,
        replica(server, redis_url, **strict) as two,
    ):
        await one.verify_bound(EVE, NOW)
        if "scopes_from" in strict:
            assert (await two.verify_bound(EVE, NOW)).scopes == set()
            return
        with pytest.raises(InvalidCredentialsError):
            await two.verify_bound(EVE, NOW)


async def test_a_replica_with_another_secret_takes_nothing(redis_url: str) -> None:
    async with introspecting(**{EVE: active(sub="eve")}) as server:
        async with replica(server, redis_url) as one, replica(server, redis_url, b"y" * 32) as stranger:
            await one.verify(EVE, NOW)
            await stranger.verify(EVE, NOW)
        assert server.asked == [EVE, EVE]


async def test_forgeries_do_not_fill_the_log(
    redis_url: str, attacker: Attacker, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = {f"token{number}": active() for number in range(20)}
    async with introspecting(**tokens) as server:
        async with replica(server, redis_url) as one:
            for token in tokens:
                await one.verify(token, NOW)
        for slot in attacker.values():
            attacker.write(slot, b"forged by eve")
        async with replica(server, redis_url) as two:
            for token in tokens:
                await two.verify(token, NOW)
    told = [record for record in caplog.records if "not sealed with this secret" in record.message]
    assert len(told) == 1
    assert "eve" not in caplog.text
    assert "token1" not in caplog.text
