"""Databases that are killed, frozen, cut off, slow, full, replaced or changed, under load.

In all of them: no used proof and no revoked key is accepted, no request gets 500, and nobody gets 401 for a fault.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from a2a_trust.auth import PostgresApiKeys, RedisApiKeys
from tests.databases import Line, PostgresServer, RedisServer, has_known_proofs_for_long, line, running_postgres
from tests.faults.replicas import Load, Replica, proof_now, replicas, token_now

pytestmark = pytest.mark.anyio

TOKEN = token_now()
STALE = 3.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Setting:
    """Two replicas, the database that they share, and the line between."""

    server: RedisServer | PostgresServer
    line: Line
    agents: list[Replica]
    keys: RedisApiKeys | PostgresApiKeys
    load: Load
    revoked: str

    async def run(self, seconds: float) -> None:
        await self.load.run(seconds)

    @property
    def statuses(self) -> dict[str, set[int]]:
        return {kind: set(counted) for kind, counted in self.load.statuses.items()}

    def events(self) -> list[str]:
        """The changes of state that the replicas logged, in order, of each replica."""
        return [
            text.split()[0] if text.startswith("lost ") else "found"
            for each in self.agents
            for text in each.audit().splitlines()
            if text.startswith("lost the memory of DPoP") or ("DPoP proofs" in text and text.endswith(" is back"))
        ]

    async def check(self) -> None:
        """Nothing wrong was accepted, and the replicas work again."""
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            for origin in self.load.origins * 2:
                for _ in range(400):
                    statuses = [await self.load.ask(client, origin, used) for used in (proof_now(TOKEN), "")]
                    if statuses == [200, 200]:
                        break
                    assert set(statuses) <= {200, 503}, statuses
                    await asyncio.sleep(0.05)
                assert statuses == [200, 200]
                denied = Load([origin], TOKEN, self.revoked)
                assert await answered(denied, client, origin, "") == 401
        assert self.load.used
        assert set(await self.load.replay()) == {401}
        assert self.statuses["proof"] <= {200, 503}
        assert self.statuses["key"] <= {200, 503}
        assert "missing" not in self.load.retry_after


async def answered(load: Load, client: httpx.AsyncClient, origin: str, used: str) -> int:
    """The first status that is not 503: a machine that is busy may take longer than a replica waits."""
    for _ in range(200):
        status = await load.ask(client, origin, used)
        if status != 503:
            break
        await asyncio.sleep(0.05)
    return status


@contextmanager
def setting(folder: Path, server: RedisServer | PostgresServer, url: str, **more: str) -> Iterator[Setting]:
    """``url`` is that of the store, which is reached by a line."""
    with line(server.port) as between:
        reached = url.replace(f":{server.port}/", f":{between.port}/")
        keys = (
            RedisApiKeys(url, create=True, timeout=20) if url.startswith("redis") else PostgresApiKeys(url, timeout=20)
        )
        good, revoked = keys.create(owner="ann"), keys.create(owner="bob")
        keys.revoke(revoked.record.key_id)
        with replicas(folder, proofs=reached, keys=reached, workers=(1, 1), more=more) as agents:
            load = Load([each.origin for each in agents], TOKEN, good.text)
            yield Setting(server, between, agents, keys, load, revoked.text)


@pytest.fixture(scope="module", params=["redis", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    """The setting of the tests that leave their server as it was."""
    folder = tmp_path_factory.mktemp("replicas")
    if request.param == "redis":
        redis: RedisServer = request.getfixturevalue("redis_server")
        redis.has_run_for_long()
        with setting(folder, redis, redis.url, REPLICA_STALE=str(STALE)) as made:
            yield made
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        url = postgres.database()
        has_known_proofs_for_long(postgres, url)
        with setting(folder, postgres, url, REPLICA_STALE=str(STALE)) as made:
            yield made


@pytest.fixture
def loaded(shared: Setting) -> Setting:
    """The setting, with a load that has seen nothing yet."""
    shared.load = Load(shared.load.origins, TOKEN, shared.load.key)
    for each in shared.agents:
        each.log.write_bytes(b"")
    return shared


async def test_a_frozen_database_delays_requests_by_its_time_limit(loaded: Setting) -> None:
    async def freeze() -> None:
        await asyncio.sleep(0.5)
        with loaded.server.frozen():
            await asyncio.sleep(1.5)

    await asyncio.gather(loaded.run(3), freeze())
    await loaded.check()
    assert 503 in loaded.statuses["proof"]
    answers = loaded.load.statuses["key"]  # the last answer counts for three seconds
    assert answers[503] < answers[200] / 10
    assert loaded.load.slowest < 5  # twice the limit of a quarter of a second, and a busy machine
    events = loaded.events()
    assert len(events) >= 4  # of two replicas
    assert events == ["lost", "found"] * (len(events) // 2)


async def test_connections_that_are_cut_in_the_middle_of_commands_make_no_replay(loaded: Setting) -> None:
    """A command whose answer was lost is sent once more, with the same attempt."""

    async def cut() -> None:
        for _ in range(30):
            await asyncio.sleep(0.05)
            await asyncio.to_thread(loaded.line.cut)

    await asyncio.gather(loaded.run(2), cut())
    await loaded.check()
    assert loaded.load.statuses["proof"][200]


async def test_a_line_that_is_slow_or_dead_is_as_a_frozen_database(loaded: Setting) -> None:
    async def slow() -> None:
        await asyncio.sleep(0.3)
        loaded.line.delay = 0.03
        await asyncio.sleep(0.7)
        loaded.line.delay = 0.5
        await asyncio.sleep(0.7)
        loaded.line.delay, loaded.line.is_dead = 0.0, True
        await asyncio.sleep(0.7)
        loaded.line.is_dead = False
        await asyncio.to_thread(loaded.line.cut)

    await asyncio.gather(loaded.run(3), slow())
    await loaded.check()
    assert 503 in loaded.statuses["proof"]
    assert loaded.load.slowest < 5


async def test_keys_count_for_the_stated_time_after_the_database_was_lost(loaded: Setting) -> None:
    await loaded.run(0.5)
    loaded.line.is_dead = True
    begun = asyncio.get_running_loop().time()
    last_accepted = begun
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        while asyncio.get_running_loop().time() < begun + STALE + 2:
            statuses = [await loaded.load.ask(client, origin, "") for origin in loaded.load.origins]
            assert set(statuses) <= {200, 503}
            if 200 in statuses:
                last_accepted = asyncio.get_running_loop().time()
            await asyncio.sleep(0.05)
        assert statuses == [503, 503]
        assert STALE - 2 < last_accepted - begun < STALE + 1
    loaded.line.is_dead = False
    await asyncio.to_thread(loaded.line.cut)
    await loaded.check()


async def test_postgresql_that_is_killed_keeps_all_proofs(tmp_path: Path) -> None:
    with running_postgres() as server:
        url = server.database()
        has_known_proofs_for_long(server, url)
        with setting(tmp_path / "replicas", server, url) as made:

            async def kill() -> None:
                for _ in range(2):
                    await asyncio.sleep(0.7)
                    await asyncio.to_thread(server.kill)
                    await asyncio.sleep(0.3)
                    await asyncio.to_thread(server.start)

            await asyncio.gather(made.run(4), kill())
            await made.check()
            assert 503 in made.statuses["proof"]
            assert made.statuses["key"] == {200}
