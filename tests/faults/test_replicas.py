"""Replicas that decide alike: 4 worker processes and 2 more servers, with one Redis and one PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from a2a_trust import Origins, TrustedKey, TrustStore, verify_card
from a2a_trust.auth import PostgresApiKeys
from a2a_trust.keys import KeyRing, update_key_ring
from a2a_trust.keys.jwk import read_jwks
from tests.databases import PostgresServer, RedisServer, has_known_proofs_for_long
from tests.faults.processes import until
from tests.faults.replicas import REFRESH, Load, Replica, proof_now, replicas, token_now

pytestmark = pytest.mark.anyio

TOKEN = token_now()
PATIENT = {"REPLICA_TIMEOUT": "60"}
"""A busy machine may take longer than a quarter of a second; nothing is lost in these tests."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def store(postgres: PostgresServer) -> PostgresApiKeys:
    url = postgres.database()
    has_known_proofs_for_long(postgres, url)
    return PostgresApiKeys(url, timeout=60)


@pytest.fixture(scope="module")
def agents(
    tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer, store: PostgresApiKeys
) -> Iterator[list[Replica]]:
    redis_server.has_run_for_long()
    folder = tmp_path_factory.mktemp("replicas")
    ring = folder / "ring.json"
    subprocess.run([sys.executable, "-m", "a2a_trust", "keys", "create", ring], check=True, stdout=subprocess.DEVNULL)
    url = store._server.url.text
    with replicas(folder, proofs=redis_server.url, keys=url, workers=(4, 1, 1), ring=ring, more=PATIENT) as started:
        yield started


async def raced(origins: list[str], proofs: list[str]) -> list[list[int]]:
    """For each proof the answers of the replicas that got it at the same moment."""
    load = Load(origins, TOKEN, "")
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        return [await asyncio.gather(*[load.ask(client, origin, used) for origin in origins]) for used in proofs]


async def test_of_racing_tries_one_for_each_proof_is_accepted(agents: list[Replica], is_long: bool) -> None:
    """Two for the four workers, which share a port, and one for each of the others."""
    workers, *others = [each.origin for each in agents]
    proofs = [proof_now(TOKEN) for _ in range(500 if is_long else 100)]
    answers = await raced([workers, *others, workers], proofs)
    assert Counter(map(tuple, map(sorted, answers))) == {(200, 401, 401, 401): len(proofs)}
    load = Load([each.origin for each in agents], TOKEN, "", used=proofs[:100])
    assert await load.replay() == {401: 100}


async def test_the_same_with_postgresql(tmp_path: Path, postgres: PostgresServer, postgres_url: str) -> None:
    with replicas(tmp_path, proofs=postgres_url, keys=postgres_url, workers=(1, 1), more=PATIENT) as started:
        answers = await raced([each.origin for each in started] * 2, [proof_now(TOKEN) for _ in range(100)])
    assert Counter(map(tuple, map(sorted, answers))) == {(200, 401, 401, 401): 100}


async def test_every_replica_knows_a_revoked_key_within_the_stated_delay(
    agents: list[Replica], store: PostgresApiKeys
) -> None:
    """The ``refresh`` of the replicas, by their clocks. With notifications it takes milliseconds."""
    issued = await asyncio.to_thread(store.create, owner="ann")
    origins = [each.origin for each in agents]
    load = Load(origins, TOKEN, issued.text)
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        for _ in range(40):  # each worker of the first gets some
            assert [await load.ask(client, origin, "") for origin in origins] == [200, 200, 200]
        await asyncio.to_thread(store.revoke, issued.record.key_id)
        for each in agents:
            each.put_clock("monotonic", REFRESH)
        for _ in range(30):
            statuses = await asyncio.gather(*[load.ask(client, origin, "") for origin in origins * 3])
            assert set(statuses) <= {401, 429}  # after 100 rejections in a minute


@dataclass
class Watch:
    """The time of the replicas, and of those who verify their cards."""

    agents: list[Replica]
    passed: float = 0.0

    def now(self) -> float:
        return time.time() + self.passed

    def put(self, passed: float) -> None:
        self.passed = passed
        for each in self.agents:
            each.put_clock("wall", passed)


@pytest.fixture
def watch(agents: list[Replica]) -> Iterator[Watch]:
    watch = Watch(agents)
    yield watch
    watch.put(0.0)


async def test_a_rotation_under_load_loses_no_request(agents: list[Replica], watch: Watch) -> None:
    """The ring is changed on one machine and copied to the others, one after the other, within the overlap.

    Verifiers keep the key set of one replica for five minutes, as its max-age says here, and fetch cards from all.
    """
    overlap, max_age = 3_600.0, 300.0
    first, *others = [each.folder / "ring.json" for each in agents]
    outcome: Counter[int] = Counter()
    seen: set[str] = set()
    is_over = False

    async def verifier(client: httpx.AsyncClient, number: int) -> None:
        order, trust, fetched = random.Random(number), TrustStore([]), 0.0
        while not is_over:
            if watch.now() - fetched > max_age:
                fetched = watch.now()
                trust = await fetched_trust(client, order.choice(agents).origin)
            answer = await client.get(f"{order.choice(agents).origin}/.well-known/agent-card.json")
            assert answer.status_code == 200
            verified = verify_card(answer.content, trust, origin="https://agent.example", now=watch.now())
            seen.update(key.kid for key in verified.keys)
            outcome[number] += 1
            await asyncio.sleep(0.01)

    async def works() -> None:
        """Each process looks at its ring once per second; then each verifier has verified some cards."""
        await asyncio.sleep(1.1)
        enough = {number: outcome[number] + 10 for number in range(4)}
        await until(lambda: all(outcome[each] >= count for each, count in enough.items()), f"{enough}: {outcome}")

    async with httpx.AsyncClient(trust_env=False, timeout=60) as client, asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(verifier(client, number))
        await asyncio.to_thread(update_key_ring, first, lambda ring: rotated(ring, overlap))
        await works()
        for turn, each in enumerate(others, 1):
            watch.put(turn * overlap / 4)
            shutil.copy2(first, each.with_suffix(".new"))
            each.with_suffix(".new").replace(each)
            await works()
        assert len(seen) == 1
        watch.put(overlap * 3 / 4)
        await works()
        watch.put(overlap)
        await until(lambda: len(seen) == 2, "a card with the new key")
        await works()
        is_over = True


def rotated(ring: KeyRing, overlap: float) -> KeyRing:
    return ring.rotate(time.time(), overlap=overlap, keep=3_600)


async def fetched_trust(client: httpx.AsyncClient, origin: str) -> TrustStore:
    document = (await client.get(f"{origin}/.well-known/jwks.json")).content
    keys = read_jwks(document).keys
    assert keys, json.loads(document)
    return TrustStore(TrustedKey(key=key, origins=Origins("agent.example")) for key in keys)
