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
from tests.faults.replicas import STALE, Load, Replica, replicas, token_now

pytestmark = pytest.mark.anyio

TOKEN = token_now()


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

    async def accepted(self) -> None:
        """Wait until both replicas work."""
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            for origin in self.load.origins:
                await self.load.accepted(client, origin)

    async def check(self) -> None:
        """Nothing wrong was accepted, and the replicas work again."""
        await self.accepted()
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            for origin in self.load.origins:
                assert await Load([origin], TOKEN, self.revoked).settled(client, origin, "") == 401
        assert self.load.used
        assert set(await self.load.replay()) == {401}
        assert self.statuses["proof"] <= {200, 503}
        assert self.statuses["key"] <= {200, 503}
        assert "missing" not in self.load.retry_after


@contextmanager
def setting(folder: Path, server: RedisServer | PostgresServer, url: str) -> Iterator[Setting]:
    """``url`` is that of the store, which is reached by a line."""
    with line(server.port) as between:
        reached = url.replace(f":{server.port}/", f":{between.port}/")
        keys = (
            RedisApiKeys(url, create=True, timeout=60) if url.startswith("redis") else PostgresApiKeys(url, timeout=60)
        )
        good, revoked = keys.create(owner="ann"), keys.create(owner="bob")
        keys.revoke(revoked.record.key_id)
        with replicas(folder, proofs=reached, keys=reached, workers=(1, 1)) as agents:
            load = Load([each.origin for each in agents], TOKEN, good.text)
            yield Setting(server, between, agents, keys, load, revoked.text)


@pytest.fixture(scope="module", params=["redis", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    """The setting of the tests that leave their server as it was."""
    folder = tmp_path_factory.mktemp("replicas")
    if request.param == "redis":
        redis: RedisServer = request.getfixturevalue("redis_server")
        redis.has_run_for_long()
        with setting(folder, redis, redis.url) as made:
            yield made
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        url = postgres.database()
        has_known_proofs_for_long(postgres, url)
        with setting(folder, postgres, url) as made:
            yield made


@pytest.fixture
async def loaded(shared: Setting) -> Setting:
    """The setting, whose replicas work, with a load that has seen nothing yet."""
    await shared.accepted()
    shared.load = Load(shared.load.origins, TOKEN, shared.load.key)
    for each in shared.agents:
        each.log.write_bytes(b"")
    return shared


async def test_a_frozen_database_delays_requests_by_its_time_limit(loaded: Setting) -> None:
    """Each caller gets answers while it is frozen. The last answer about a key counts, that about a proof does not."""
    load = loaded.load
    async with load.running():
        await load.sees("proof", 200, 20)
        with loaded.server.frozen():
            await load.sees("proof", 503, 4)
            await load.sees("key", 200, 20)
            await load.answers_all()
        await load.sees("proof", 200, 20)
    await loaded.check()
    assert loaded.statuses["key"] == {200}
    events = loaded.events()
    assert len(events) >= 4  # of two replicas
    assert events == ["lost", "found"] * (len(events) // 2)


async def test_connections_that_are_cut_in_the_middle_of_commands_make_no_replay(loaded: Setting) -> None:
    """A command whose answer was lost is sent once more, with the same attempt."""
    async with loaded.load.running():
        for _ in range(30):
            await loaded.load.sees("proof", 200, 3)
            await asyncio.to_thread(loaded.line.cut)
    await loaded.check()


async def test_a_line_that_is_slow_or_dead_is_as_a_frozen_database(loaded: Setting) -> None:
    load = loaded.load
    async with load.running():
        loaded.line.delay = 0.03
        await load.sees("key", 200, 20)
        loaded.line.delay = 0.5  # twice the time limit
        await load.sees("proof", 503, 4)
        await load.answers_all()
        loaded.line.delay, loaded.line.is_dead = 0.0, True
        await load.sees("proof", 503, 4)
        await load.answers_all()
        loaded.line.is_dead = False
        await asyncio.to_thread(loaded.line.cut)
        await load.sees("proof", 200, 20)
    await loaded.check()
    assert loaded.statuses["key"] == {200}


async def test_keys_count_for_the_stated_time_after_the_database_was_lost(loaded: Setting) -> None:
    load, passed = loaded.load, 0.0

    async def statuses_after(seconds: float) -> set[int]:
        nonlocal passed
        passed += seconds
        for each in loaded.agents:
            each.put_clock("monotonic", passed)
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            return {await load.ask(client, origin, "") for _ in range(10) for origin in load.origins}

    async with load.running():
        await load.sees("proof", 200)  # as long as the line works
    loaded.line.is_dead = True
    assert await statuses_after(0.0) == {200}
    assert await statuses_after(STALE - 600) == {200}
    assert await statuses_after(600.0) == {503}
    loaded.line.is_dead = False
    await asyncio.to_thread(loaded.line.cut)
    await loaded.check()


async def test_postgresql_that_is_killed_keeps_all_proofs(tmp_path: Path) -> None:
    with running_postgres() as server:
        url = server.database()
        has_known_proofs_for_long(server, url)
        with setting(tmp_path / "replicas", server, url) as made:
            await made.accepted()
            async with made.load.running():
                for _ in range(2):
                    await made.load.sees("proof", 200, 20)
                    await asyncio.to_thread(server.kill)
                    await made.load.sees("proof", 503, 4)
                    await asyncio.to_thread(server.start)
                await made.load.sees("proof", 200, 20)
            await made.check()
            assert made.statuses["key"] == {200}
