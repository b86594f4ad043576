"""D2: a database that replicas share forgets used proofs, and somebody sends one of them again.

It is restarted, replaced or emptied, drops keys to make room, or runs by another clock. Each time the answer is 503
until no forgotten proof can be valid any more: an unreachable or an empty memory is never a memory without replays.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import asyncpg  # type: ignore[import-untyped]
import pytest

from a2a_trust.auth import PostgresProofMemory, ProofMemory, RedisProofMemory
from a2a_trust.auth.proofs import shared
from a2a_trust.auth.proofs.memory import MAX_WINDOW
from a2a_trust.auth.proofs.shared import SKEW, State, Use
from a2a_trust.errors import KeySourceUnavailableError, TooManyRequestsError
from tests.databases import (
    PostgresServer,
    RedisServer,
    eventually,
    has_known_proofs_for_long,
    installed,
    line,
    temporary_folder,
)
from tests.tables import walk

pytestmark = pytest.mark.anyio

WINDOW = 60.0

Memory = RedisProofMemory | PostgresProofMemory


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def memories(kind: type[Memory], url: str, count: int = 1) -> AsyncIterator[list[Memory]]:
    """As of so many replicas."""
    made = [kind(url, timeout=5) for _ in range(count)]  # which a busy machine needs at times
    try:
        yield made
    finally:
        for each in made:
            await each.aclose()


async def use(memory: ProofMemory, jti: str, *, ahead: float = 0.0, iat: float = 0.0) -> bool:
    """A proof of ``iat`` seconds from now, at a replica whose clock is so many seconds ahead."""
    now = time.time()
    return await memory.first_use("key", jti, now=now + ahead, issued=now + iat, window=WINDOW)


async def refused(memory: ProofMemory, jti: str, why: str) -> None:
    with pytest.raises(KeySourceUnavailableError, match=why):
        await use(memory, jti)


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server that the test may end."""
    with temporary_folder() as folder:
        server = RedisServer(folder, keeps=True)
        server.start()
        yield server
        server.kill()


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server that the test may end."""
    with temporary_folder() as folder:
        server = PostgresServer(folder)
        server.make()
        server.start("-c", "wal_level=replica", "-c", "max_wal_senders=2")
        yield server
        server.kill()


@pytest.mark.real
async def test_a_redis_that_was_emptied_or_restarted(own_redis: RedisServer) -> None:
    async with memories(RedisProofMemory, own_redis.url, 3) as (one, two, three):
        await refused(one, "1", "it is new, was restarted")
        own_redis.has_run_for_long()
        assert await use(one, "2")
        assert not await use(two, "2")
        with own_redis.client() as client:
            client.flushall()  # as a failover to a replica that got nothing yet
        for _ in range(2):
            await refused(three, "2", "it is new, was restarted")
            await refused(three, "new", "it is new, was restarted")
        own_redis.has_run_for_long()
        assert await use(one, "3")
        own_redis.kill()  # the last writes may be lost, and those before are there
        await refused(two, "3", "cannot be used now")
        own_redis.start()
        await refused(two, "3", "it is new, was restarted")
        await refused(two, "new", "it is new, was restarted")


@pytest.mark.real
async def test_redis_counts_again_when_no_forgotten_proof_can_be_valid(
    redis_server: RedisServer, redis_url: str
) -> None:
    async with memories(RedisProofMemory, redis_url) as (memory,):
        with redis_server.client() as client:
            client.hset("a2a:proofs", "since", repr(time.time() - WINDOW - 2 * SKEW + 2))
        await refused(memory, "early", "proofs count again from")
        assert await use(memory, "late", iat=3)


@pytest.mark.real
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
async def test_a_redis_that_drops_keys_to_make_room(redis_server: RedisServer, redis_url: str, policy: str) -> None:
    with redis_server.client() as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", policy)
        try:
            async with memories(RedisProofMemory, redis_url) as (memory,):
                await refused(memory, "1", "maxmemory-policy noeviction")
                await refused(memory, "1", "maxmemory-policy noeviction")  # also by the same connections
                client.config_set("maxmemory-policy", "noeviction")
                assert await use(memory, "1")
        finally:
            client.config_set("maxmemory", "0")
            client.config_set("maxmemory-policy", "noeviction")


@pytest.mark.real
async def test_a_redis_that_begins_to_drop_keys(redis_server: RedisServer, redis_url: str) -> None:
    """Open connections notice it, too."""
    async with memories(RedisProofMemory, redis_url) as (memory,):
        assert await use(memory, "1")
        with redis_server.client() as client:
            client.config_set("maxmemory", "100mb")
            client.config_set("maxmemory-policy", "allkeys-lru")
            try:
                await refused(memory, "2", "maxmemory-policy noeviction")
            finally:
                client.config_set("maxmemory", "0")
                client.config_set("maxmemory-policy", "noeviction")
        assert await use(memory, "3")


@pytest.mark.real
async def test_a_full_redis(redis_server: RedisServer, redis_url: str) -> None:
    async with memories(RedisProofMemory, redis_url) as (memory,):
        assert await use(memory, "1")
        with redis_server.client() as client:
            client.config_set("maxmemory", "1mb")
            try:
                await refused(memory, "2", "its memory is full")
                await refused(memory, "3", "its memory is full")
            finally:
                client.config_set("maxmemory", "0")
        assert await use(memory, "2")
        assert not await use(memory, "1")


@pytest.mark.real
async def test_a_standby_that_takes_the_place_of_postgresql(own_postgres: PostgresServer) -> None:
    """It may lack the last proofs; a standby is another timeline once it is the server."""
    url = own_postgres.database()
    has_known_proofs_for_long(own_postgres, url)
    async with memories(PostgresProofMemory, url) as (memory,):
        assert await use(memory, "1")
        with temporary_folder() as folder:
            standby = PostgresServer(folder)
            copy = installed("pg_basebackup", "postgresql", "/usr/lib/postgresql/15/bin")
            subprocess.run([copy, "-D", standby.data, "-d", own_postgres.url(), "-R", "-c", "fast"], check=True)
            shutil.chown(standby.data, "postgres")
            for each in standby.data.rglob("*"):
                shutil.chown(each, "postgres")
            own_postgres.kill()
            standby.port = own_postgres.port
            standby.start()
            try:
                await refused(memory, "0", "cannot be used now")  # it cannot be written to yet
                standby.sql("SELECT pg_promote()")
                for jti in ("0", "new"):
                    await refused(memory, jti, "took the place of another")
            finally:
                standby.kill()


@pytest.mark.real
async def test_a_postgresql_without_its_tables(postgres: PostgresServer) -> None:
    url = postgres.database()
    name = url.rpartition("/")[2]
    async with memories(PostgresProofMemory, url) as (memory,):
        await refused(memory, "1", "it is new")
        postgres.sql("TRUNCATE a2a_trust.proof, a2a_trust.proof_store", name)
        await refused(memory, "1", "it is new")
        postgres.sql("DROP SCHEMA a2a_trust CASCADE", name)
        await refused(memory, "1", "run: a2a-sign database migrate")


@pytest.mark.real
@pytest.mark.parametrize("how", ["truncated", "restored", "database"])
async def test_a_postgresql_whose_proofs_were_replaced_by_hand(
    postgres: PostgresServer, postgres_url: str, how: str
) -> None:
    """The server is the same, and what it says about itself was restored with the table, or was not touched."""
    name = postgres_url.rpartition("/")[2]
    if how == "database":
        postgres.sql(f"CREATE DATABASE {name}_copy TEMPLATE {name}")
    async with memories(PostgresProofMemory, postgres_url, 2) as (one, two):
        assert await use(one, "1")
        assert not await use(two, "1")
        if how == "truncated":
            postgres.sql("TRUNCATE a2a_trust.proof", name)
        elif how == "restored":
            postgres.sql("CREATE TABLE a2a_trust.copy (LIKE a2a_trust.proof INCLUDING ALL)", name)
            postgres.sql("DROP TABLE a2a_trust.proof", name)
            postgres.sql("ALTER TABLE a2a_trust.copy RENAME TO proof", name)
        else:
            postgres.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
            eventually(lambda: postgres.sql(f"ALTER DATABASE {name} RENAME TO {name}_old"))
            postgres.sql(f"ALTER DATABASE {name}_copy RENAME TO {name}")
        three = PostgresProofMemory(postgres_url, timeout=5)
        await refused(three, "1", "it is new")
        await refused(two, "new", "it is new")
        await three.aclose()


@pytest.mark.real
async def test_a_proof_that_is_dropped_at_the_moment_of_its_replay(postgres: PostgresServer, postgres_url: str) -> None:
    """Its row is in what the statement sees, and gone when it inserts: the old row counts, whatever the new attempt."""
    name = postgres_url.rpartition("/")[2]
    one, two = (PostgresProofMemory(postgres_url, timeout=10) for _ in range(2))
    dropping = await asyncpg.connect(postgres_url)
    for number in range(12):  # each attempt is a random number, and one in two is above the one before
        assert await use(one, str(number))
        transaction = dropping.transaction()
        await transaction.start()
        await dropping.execute("DELETE FROM a2a_trust.proof")
        again = asyncio.create_task(use(two, str(number)))
        waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%added AS%'"
        for _ in range(500):
            if await asyncio.to_thread(postgres.sql, waits, name):
                break
            await asyncio.sleep(0.01)
        await transaction.commit()
        assert not await again
    await dropping.close()
    await one.aclose()
    await two.aclose()


@pytest.mark.real
@pytest.mark.parametrize("ahead", [-11.0, 11.0, 3_600.0])
async def test_replicas_whose_clocks_differ_too_much(redis_url: str, postgres_url: str, ahead: float) -> None:
    for kind, url in ((RedisProofMemory, redis_url), (PostgresProofMemory, postgres_url)):
        async with memories(kind, url) as (memory,):
            with pytest.raises(KeySourceUnavailableError, match="differ by"):
                await use(memory, "1", ahead=ahead, iat=ahead)
            assert await use(memory, "2", ahead=ahead / abs(ahead) * 9)


@walk("first", [-SKEW, 0.0, SKEW])
@walk("then", [-SKEW, 0.0, SKEW])
@walk("iat", [-WINDOW, 0.0, WINDOW])
def test_a_proof_is_kept_for_longer_than_any_replica_accepts_it(first: float, then: float, iat: float) -> None:
    """By the clock of the database: used at 0 by one replica, and sent again to another one."""
    used = Use(digest=b"", attempt=b"", now=first, issued=first + iat, window=WINDOW, until=0)
    accepted_until = used.issued + WINDOW - then
    assert used.ends >= accepted_until
    # After a loss at 0, those that were accepted before are refused: `since` is 0.
    assert used.issued <= 0 + WINDOW + 2 * SKEW


@pytest.mark.real
async def test_a_holder_of_one_token_cannot_fill_the_database(redis_url: str) -> None:
    memory = RedisProofMemory(redis_url, capacity=64, timeout=5)
    for number in range(4):
        assert await use(memory, str(number))
    with pytest.raises(TooManyRequestsError):
        await use(memory, "more")
    await memory.aclose()


def lose_first_answer(memory: Memory) -> list[int]:
    """The database does what it is asked the first time, and nobody hears of it; how often that happened."""
    remember, lost = memory._remember, list[int]()

    async def losing(uses: tuple[Use, ...]) -> object:
        answer = await remember(uses)
        if not lost:
            lost.append(1)
            raise KeySourceUnavailableError("the answer was lost")
        return answer

    memory._remember = losing  # type: ignore[method-assign, assignment]
    return lost


@pytest.mark.real
async def test_a_command_that_is_sent_again_is_no_replay_and_a_request_is(
    redis_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the first command is lost, after the database has remembered the proof."""
    monkeypatch.setattr(shared, "_IN_TIME", 60)
    for kind, url in ((RedisProofMemory, redis_url), (PostgresProofMemory, postgres_url)):
        async with memories(kind, url, 2) as (one, two):
            lost = lose_first_answer(one)
            assert await use(one, "1")
            assert lost
            assert not await use(one, "1")
            assert not await use(two, "1")


@pytest.mark.real
async def test_a_replay_whose_first_answer_is_lost_is_still_a_replay(
    redis_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that is sent again must not find its own attempt in the place of the first one."""
    monkeypatch.setattr(shared, "_IN_TIME", 60)
    for kind, url in ((RedisProofMemory, redis_url), (PostgresProofMemory, postgres_url)):
        async with memories(kind, url, 2) as (one, two):
            assert await use(one, "1")
            lose_first_answer(two)
            assert not await use(two, "1")


@pytest.mark.real
async def test_of_proofs_that_replicas_get_at_once_each_is_accepted_once(redis_url: str, postgres_url: str) -> None:
    for kind, url in ((RedisProofMemory, redis_url), (PostgresProofMemory, postgres_url)):
        async with memories(kind, url, 4) as replicas:
            uses = [use(memory, str(number)) for number in range(100) for memory in replicas]
            assert sum(await asyncio.gather(*uses)) == 100


class Later(RedisProofMemory):
    """The clock of the server is that of the requests."""

    async def _remember(self, uses: tuple[Use, ...]) -> tuple[State, Mapping[bytes, bytes]]:
        state, first = await super()._remember(uses)
        return state._replace(at=uses[0].now), first


@pytest.mark.real
async def test_a_window_that_grew_while_nobody_asked_brings_no_used_proof_back(
    redis_server: RedisServer, redis_url: str
) -> None:
    """Redis drops a proof by itself: not before the largest window has passed."""
    before, after, now = Later(redis_url), Later(redis_url), time.time()
    assert await before.first_use("key", "1", now=now, issued=now, window=1)
    with redis_server.client() as client:
        (name,) = client.keys("a2a:proof:*")
        assert client.pexpiretime(name) == int((now + MAX_WINDOW + 2 * SKEW) * 1_000)
    assert not await after.first_use("key", "1", now=now + 40, issued=now, window=300)
    assert await after.first_use("key", "2", now=now + 40, issued=now + 40, window=300)
    await before.aclose()
    await after.aclose()


@pytest.mark.real
async def test_the_first_server_comes_back_without_the_proofs_of_the_second(own_redis: RedisServer) -> None:
    """As with an address that moves to another server for a moment, and back."""
    own_redis.has_run_for_long()
    with temporary_folder() as folder:
        second = RedisServer(folder)
        second.start()
        try:
            second.has_run_for_long()
            with line(own_redis.port) as address:
                async with memories(RedisProofMemory, f"redis://127.0.0.1:{address.port}/0", 2) as (one, two):
                    assert await use(one, "1")
                    assert not await use(two, "1")
                    address._to = second.port
                    address.cut()
                    for memory in (one, two):
                        await refused(memory, "new", "took the place of another")
                    second.has_run_for_long()  # later
                    assert await use(one, "2")
                    address._to = own_redis.port
                    address.cut()
                    await refused(two, "2", "took the place of another")
                    await refused(one, "3", "took the place of another")
        finally:
            second.kill()


@pytest.mark.real
@walk("field", ["since", "dropped", "server"])
@walk("value", [b"nan", b"x", b"\xff", b""])
async def test_what_redis_says_about_itself_is_damaged(
    redis_server: RedisServer, redis_url: str, field: str, value: bytes
) -> None:
    with redis_server.client() as client:
        client.hset("a2a:proofs", field, value)
        async with memories(RedisProofMemory, redis_url) as (memory,):
            await refused(memory, "1", "it is new")
            found = client.hgetall("a2a:proofs")
        assert float(found[b"since"]) == pytest.approx(time.time(), abs=10)
        assert float(found[b"dropped"]) < time.time()
        assert found[b"server"].decode() == client.info("server")["run_id"]


@pytest.mark.real
@pytest.mark.parametrize("column", ["since", "dropped"])
async def test_what_postgresql_says_about_itself_is_damaged(
    postgres: PostgresServer, postgres_url: str, column: str
) -> None:
    name = postgres_url.rpartition("/")[2]
    postgres.sql(f"UPDATE a2a_trust.proof_store SET {column} = 'NaN'", name)
    async with memories(PostgresProofMemory, postgres_url) as (memory,):
        await refused(memory, "1", "it is new")
        ((since, dropped),) = postgres.sql("SELECT since, dropped FROM a2a_trust.proof_store", name)
        assert since == pytest.approx(time.time(), abs=10)
        assert dropped < time.time()


@pytest.mark.real
async def test_a_crowd_before_a_slow_database_waits_for_twice_the_limit_at_most(
    redis_server: RedisServer, redis_url: str
) -> None:
    with line(redis_server.port) as slow:
        async with memories(RedisProofMemory, f"redis://127.0.0.1:{slow.port}/0") as (memory,):
            assert await use(memory, "first")
            memory._patience = 0.5
            slow.delay = 0.15

            async def one(number: int) -> object:
                try:
                    return await memory.first_use(
                        f"key {number}", "1", now=time.time(), issued=time.time(), window=WINDOW
                    )
                except KeySourceUnavailableError as error:
                    return str(error)

            answers = await asyncio.gather(*map(one, range(1_000)))
            assert {each for each in answers if each is not True} == {
                f"the memory of DPoP proofs in redis://127.0.0.1:{slow.port}/0: too many proofs wait for it"
            }
            slow.delay = 0.0
            assert await use(memory, "after")  # those who left are in nobody's way
    with redis_server.client() as client:
        assert len(client.keys("a2a:proof:*")) < 700


@pytest.mark.real
async def test_a_request_that_is_cancelled_leaves_no_room_taken(redis_url: str) -> None:
    memory = RedisProofMemory(redis_url, capacity=16, timeout=5)
    for number in range(50):
        task = asyncio.create_task(use(memory, f"cancelled {number}"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert await use(memory, "1")
    await memory.aclose()
