"""What each store costs a request: in the process, in a file, in Redis and in PostgreSQL, on loopback."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from itertools import count
from pathlib import Path
from time import perf_counter

from a2a_trust.auth import (
    ApiKeyStore,
    MemoryApiKeys,
    PostgresApiKeys,
    PostgresProofMemory,
    ProofMemory,
    RedisApiKeys,
    RedisCounters,
    RedisProofMemory,
    RedisTokenCache,
    SqliteApiKeys,
    SqliteProofMemory,
    VolatileProofMemory,
)
from a2a_trust.auth.introspection import SharedAnswer, slot_of
from a2a_trust.auth.throttle import FailureLimits, Throttle
from benchmarks.rounds import Contender, Row, Timer
from benchmarks.setting import Setting
from tests.databases import PostgresServer, RedisServer, has_known_proofs_for_long, running_postgres, running_redis

__all__ = ["rows"]

_FEW, _MANY = 10_000, 1_000_000
#: Like keys of others, so that their digests are spread alike.
_FILL = """
INSERT INTO a2a_trust.api_key (id, digest, owner, scopes, created, expires, imported)
SELECT 'a2a_' || lpad(n::text, 12, '0'), sha256(n::text::bytea), 'owner ' || n, 'read', 1.8e9, 'infinity', true
FROM generate_series({first}, {last}) AS n
"""


def rows(setting: Setting) -> Iterator[Row]:
    """Proofs, look-ups of keys, failures and answers. No figure includes a disk that is slow or a network."""
    loop = asyncio.new_event_loop()
    with ExitStack() as stack:
        redis, postgres = stack.enter_context(running_redis()), stack.enter_context(running_postgres())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = postgres.database()
        has_known_proofs_for_long(postgres, database)
        redis.has_run_for_long()
        memories: dict[str, ProofMemory] = {
            "VolatileProofMemory": VolatileProofMemory(),
            "SqliteProofMemory": SqliteProofMemory(folder / "proofs.db", create=True, timeout=60),
            "RedisProofMemory": RedisProofMemory(redis.url, timeout=60),
            "PostgresProofMemory": PostgresProofMemory(database, timeout=60),
        }
        for at_once in (1, 64):
            yield Row(
                title=f"a DPoP proof in each memory, {at_once} at once",
                baseline="VolatileProofMemory",
                contenders=tuple(
                    Contender(name=name, timer=_timer(loop, _uses(memory, at_once), at_once))
                    for name, memory in memories.items()
                ),
                rounds=setting.rounds(40),
            )
        yield _look_ups(loop, setting, folder, redis, postgres)
        yield _of_password(loop, setting, redis)
        for each in memories.values():
            if isinstance(each, RedisProofMemory | PostgresProofMemory):
                loop.run_until_complete(each.aclose())
    loop.close()


def _timer(loop: asyncio.AbstractEventLoop, use: Callable[[], Awaitable[object]], at_once: int = 1) -> Timer:
    """Seconds for each of 128."""

    async def timed() -> float:
        start = perf_counter()
        for _ in range(128 // at_once):
            await asyncio.gather(*[use() for _ in range(at_once)]) if at_once > 1 else await use()
        return (perf_counter() - start) / 128

    return lambda: loop.run_until_complete(timed())


def _uses(memory: ProofMemory, at_once: int) -> Callable[[], Awaitable[object]]:
    numbers = count()

    async def use() -> None:
        number, now = next(numbers), time.time()
        if not await memory.first_use(f"key {number % 1_000}", f"{at_once} {number}", now=now, issued=now, window=60.0):
            raise AssertionError("a new proof counts as used")

    return use


def _look_ups(
    loop: asyncio.AbstractEventLoop,
    setting: Setting,
    folder: Path,
    redis: RedisServer,
    postgres: PostgresServer,
) -> Row:
    """Look-ups past the memory of a verifier, each of another key. A request whose key is in memory makes none."""
    few, many = postgres.database(), postgres.database()
    for url, number in ((few, _FEW), (many, _MANY)):
        postgres.sql(_FILL.format(first=1, last=number), url.rpartition("/")[2])
        postgres.sql("ANALYZE", url.rpartition("/")[2])
    small: dict[str, MemoryApiKeys | SqliteApiKeys | RedisApiKeys] = {
        "MemoryApiKeys": MemoryApiKeys(),
        "SqliteApiKeys": SqliteApiKeys(folder / "keys.db", create=True),
        "RedisApiKeys": RedisApiKeys(redis.url, create=True, timeout=60),
    }
    found: dict[str, Callable[[], Awaitable[object]]] = {}
    for name, store in small.items():
        found[name] = _found(store, [store.create(owner="ann").record.digest for _ in range(50)])
    for name, url, number in (("10,000", few, _FEW), ("1,000,000", many, _MANY)):
        digests = [sha256(str(each).encode()).digest() for each in range(1, number, number // 500)]
        found[f"PostgresApiKeys, {name} keys"] = _found(PostgresApiKeys(url, timeout=60), digests)
    return Row(
        title="a look-up of an API key in its store",
        baseline="MemoryApiKeys",
        contenders=tuple(Contender(name=name, timer=_timer(loop, use)) for name, use in found.items()),
        rounds=setting.rounds(40),
    )


def _found(store: ApiKeyStore, digests: list[bytes]) -> Callable[[], Awaitable[object]]:
    numbers = count()

    async def use() -> None:
        records = (await store.find((digests[next(numbers) % len(digests)],))).records
        if len(records) != 1:
            raise AssertionError("a key is not found")

    return use


def _of_password(loop: asyncio.AbstractEventLoop, setting: Setting, redis: RedisServer) -> Row:
    """What comes before a password is hashed, and what an opaque token costs that another replica asked about."""
    peer = {"client": ("192.0.2.1", 1)}
    answers, slot = RedisTokenCache(redis.url, secret=bytes(32)), slot_of(bytes(32), bytes(32))
    answer = {"active": True, "sub": "ann", "scope": "read", "token_type": "Bearer"}
    loop.run_until_complete(answers.keep(slot, SharedAnswer(time.time(), answer), 1_000))

    def limited(limits: FailureLimits) -> Callable[[], Awaitable[object]]:
        throttle = Throttle(limits)

        async def use() -> None:
            (await throttle.begin(peer, {"ann"}))()

        return use

    async def answered() -> None:
        if await answers.find(slot, first=True) is None:
            raise AssertionError("an answer is not found")

    shared = FailureLimits(shared=RedisCounters(redis.url))
    contenders = {
        "limits of this process": limited(FailureLimits()),
        "limits with RedisCounters": limited(shared),
        "an answer from RedisTokenCache": answered,
    }
    return Row(
        title="before a password is verified, and an answer about a token",
        baseline="limits of this process",
        contenders=tuple(Contender(name=name, timer=_timer(loop, use)) for name, use in contenders.items()),
        rounds=setting.rounds(40),
    )
