"""The stores of API keys, in a file and in databases: what is true of all of them, with real servers."""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from a2a_trust.auth.api_key.shared import PostgresApiKeys, RedisApiKeys
from a2a_trust.auth.api_key.verifier import ApiKeyStore, ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.record_table import SqliteApiKeys
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError, TrustError
from tests.auth.api_key.test_verifier import Clock
from tests.auth.test_jwt import NOW
from tests.databases import PostgresServer, RedisServer, line

pytestmark = pytest.mark.anyio

FOREIGN = "sk-live-0123456789abcdef0123456789"

Keys = SqliteApiKeys | PostgresApiKeys | RedisApiKeys


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass(frozen=True)
class Store:
    """A store, as an expression for programs, opened as often as wanted."""

    opened: str
    damage: Callable[[str], None]
    """Replaces the owner in the record of this id by one that no record may have."""

    def open(self) -> Keys:
        names = {"SqliteApiKeys": SqliteApiKeys, "PostgresApiKeys": PostgresApiKeys, "RedisApiKeys": RedisApiKeys}
        keys: Keys = eval(self.opened, names)
        return keys


def sqlite(request: pytest.FixtureRequest) -> Store:
    path = request.getfixturevalue("tmp_path") / "keys.db"
    SqliteApiKeys(path, create=True)

    def damage(key_id: str) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as hand:
            hand.execute("UPDATE api_key SET owner = '' WHERE id = ?", (key_id,))

    return Store(f"SqliteApiKeys({str(path)!r}, timeout=20)", damage)


def postgresql(request: pytest.FixtureRequest) -> Store:
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.database()

    def damage(key_id: str) -> None:
        server.sql(f"UPDATE a2a_trust.api_key SET owner = '' WHERE id = '{key_id}'", url.rpartition("/")[2])

    return Store(f"PostgresApiKeys({url!r}, timeout=20)", damage)


def redis(request: pytest.FixtureRequest) -> Store:
    server: RedisServer = request.getfixturevalue("redis_server")
    with server.client() as client:
        client.flushall()

    def damage(key_id: str) -> None:
        with server.client() as client:
            name = b"a2a:key:" + bytes.fromhex(client.hget("a2a:keys:ids", key_id).decode())
            client.set(name, client.get(name).replace(b'"ann"', b'""'))
            client.set("a2a:keys:revision", "by hand")

    return Store(f"RedisApiKeys({server.url!r}, create=True, timeout=20)", damage)


STORES = {"sqlite": sqlite, "postgres": postgresql, "redis": redis}


@pytest.fixture(params=["sqlite", *(pytest.param(name, marks=pytest.mark.real) for name in ("postgres", "redis"))])
def store(request: pytest.FixtureRequest) -> Store:
    return STORES[request.param](request)


@pytest.fixture
async def keys(store: Store) -> AsyncIterator[Keys]:
    opened = store.open()
    yield opened
    if not isinstance(opened, SqliteApiKeys):
        await opened.aclose()


async def is_accepted(verifier: ApiKeyVerifier, text: str) -> bool:
    try:
        await verifier.verify(text, NOW)
    except InvalidCredentialsError:
        return False
    return True


async def until(is_so: Callable[[], bool], keys: ApiKeyStore) -> None:
    """Look keys up until that is so; a machine that is busy may take longer for one than the store waits."""
    for _ in range(3_000):
        if is_so():
            return
        with suppress(KeySourceUnavailableError):
            await keys.find(())
        await asyncio.sleep(0.02)
    raise AssertionError("not in a minute")


async def found(keys: ApiKeyStore, *digests: bytes) -> list[str]:
    return sorted(record.owner for record in (await keys.find(digests)).records)


async def test_records_come_back_as_they_were(store: Store, keys: Keys) -> None:
    endless = keys.create(owner="älice & co", scopes=["write", "read"]).record
    ending = keys.create(owner="bob'; DROP TABLE api_key; --", expires=time.time() + 60, prefix="acme").record
    imported = keys.import_key(FOREIGN, owner="carol")
    assert store.open().records() == (endless, ending, imported)
    assert store.open().records(owner="carol") == (imported,)
    revoked = keys.revoke(ending.key_id)
    successor = keys.rotate(endless.key_id, overlap=timedelta(hours=1)).record
    old, second, _, newest = store.open().records()
    assert (second, newest) == (revoked, successor)
    assert old.replaced_by == successor.key_id
    assert old.expires < math.inf
    assert await found(keys, endless.digest, imported.digest, bytes(32)) == ["carol", "älice & co"]


async def test_a_verifier_accepts_and_rejects_by_the_store(keys: Keys) -> None:
    issued = keys.create(owner="ann", scopes=["read"])
    verifier = ApiKeyVerifier(keys, refresh=0.02)
    identity = await verifier.verify(issued.text, time.time())
    assert (identity.subject, *identity.scopes) == ("ann", "read")
    successor = keys.rotate(issued.record.key_id, overlap=timedelta(0))
    await asyncio.sleep(0.05)
    with pytest.raises(InvalidCredentialsError, match="expired"):
        await verifier.verify(issued.text, time.time())
    assert (await verifier.verify(successor.text, time.time())).subject == "ann"
    keys.take_back(successor)
    await asyncio.sleep(0.05)
    assert (await verifier.verify(issued.text, time.time())).subject == "ann"
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        await verifier.verify(successor.text, time.time())


async def test_a_time_may_be_an_int(keys: Keys) -> None:
    issued = keys.create(owner="ann", expires=int(time.time()) + 60)
    keys.import_key(FOREIGN, owner="bob", expires=int(time.time()) + 60)
    assert (await ApiKeyVerifier(keys).verify(issued.text, time.time())).subject == "ann"
    assert (keys.unreadable(), len(keys.records())) == ((), 2)


async def test_every_change_gives_a_new_revision_and_a_last_use_gives_none(keys: Keys) -> None:
    issued = keys.create(owner="ann")
    seen = [(await keys.find(())).revision]
    await keys.touch({issued.record.key_id: NOW})
    assert (await keys.find(())).revision == seen[0]
    for change in (
        lambda: keys.create(owner="bob"),
        lambda: keys.import_key(FOREIGN, owner="bob"),
        lambda: keys.rotate(issued.record.key_id, overlap=timedelta(1)),
        lambda: keys.revoke(issued.record.key_id),
    ):
        change()
        seen.append((await keys.find(())).revision)
    assert len(set(seen)) == 5


async def test_last_uses_only_grow(keys: Keys) -> None:
    ann, bob = (keys.create(owner=owner).record.key_id for owner in ("ann", "bob"))
    await keys.touch({ann: NOW, bob: NOW})
    await keys.touch({ann: NOW + 60, bob: NOW - 60, "a2a_000000000000": NOW})
    assert [record.last_used for record in keys.records()] == [NOW + 60, NOW]
    keys.revoke(ann)
    assert keys.records()[0].last_used == NOW + 60


async def test_a_damaged_record_keeps_out_no_other(store: Store, keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    damaged, good = keys.create(owner="ann"), keys.create(owner="bob")
    store.damage(damaged.record.key_id)
    with caplog.at_level(logging.WARNING):
        assert await found(keys, damaged.record.digest, good.record.digest) == ["bob"]
    assert "does not count" in caplog.text
    assert [record.owner for record in keys.records()] == ["bob"]
    ((name, why),) = keys.unreadable()
    assert name in (damaged.record.key_id, damaged.record.digest.hex())
    assert "owner" in why


async def test_what_cannot_be_changed_changes_nothing(keys: Keys) -> None:
    issued = keys.create(owner="ann")
    keys.rotate(issued.record.key_id, overlap=timedelta(1))
    keys.import_key(FOREIGN, owner="bob")
    before, revision = keys.records(), (await keys.find(())).revision
    for change in (
        lambda: keys.rotate(issued.record.key_id, overlap=timedelta(1)),
        lambda: keys.revoke("a2a_000000000000"),
        lambda: keys.import_key(FOREIGN, owner="carol"),
        lambda: keys.create(owner=""),
    ):
        with pytest.raises(ConfigurationError):
            change()
    assert (keys.records(), (await keys.find(())).revision) == (before, revision)


async def test_many_keys_are_added_and_revoked_all_or_none(keys: Keys) -> None:
    new = [MemoryApiKeys().create(owner=owner).record for owner in ("ann", "bob", "carol")]
    keys.add(new[:2])
    with pytest.raises(ConfigurationError, match="already"):
        keys.add([new[2], new[1]])
    with pytest.raises(ConfigurationError, match="number 2 of 2"):
        keys.revoke_all([new[0].key_id, new[2].key_id])
    assert [(record.owner, record.revoked) for record in keys.records()] == [("ann", None), ("bob", None)]
    keys.revoke_all(record.key_id for record in new[:2])
    assert None not in [record.revoked for record in keys.records()]


async def test_of_two_rotations_at_once_one_is_done(keys: Keys) -> None:
    """Each of a key of its own, in threads: two successors of one key would leave one that nobody knows of."""
    for _ in range(5):
        issued = keys.create(owner="ann")

        def rotate(key_id: str = issued.record.key_id) -> str:
            try:
                return keys.rotate(key_id, overlap=timedelta(1)).record.key_id
            except TrustError as error:
                return type(error).__name__

        with ThreadPoolExecutor(4) as threads:
            results = list(threads.map(lambda _: rotate(), range(4)))
        successors = [each for each in results if each.startswith("a2a_")]
        assert len(successors) == 1, results
        assert set(results) - {*successors} <= {"ConfigurationError", "KeySourceUnavailableError"}
        (old,) = [record for record in keys.records() if record.key_id == issued.record.key_id]
        assert old.replaced_by == successors[0]


async def test_other_processes_see_a_change(store: Store, keys: Keys) -> None:
    """The other process is made by a fork of one that used the store before."""
    program = f"""
import os, sys
from a2a_trust.auth import PostgresApiKeys, RedisApiKeys, SqliteApiKeys
keys = {store.opened}
keys.create(owner="parent")
child = os.fork()
keys.create(owner="child" if not child else "parent again")
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert sorted(record.owner for record in keys.records()) == ["child", "parent", "parent again"]


@pytest.mark.real
async def test_a_key_that_is_revoked_in_postgresql_is_rejected_at_once(postgres: PostgresServer) -> None:
    """A notification shortens the delay: without it the key would count for ten minutes."""
    url = postgres.database()
    keys = PostgresApiKeys(url, timeout=20)
    issued = keys.create(owner="ann")
    verifier = ApiKeyVerifier(keys, refresh=600, stale_if_error=600)
    try:
        await verifier.verify(issued.text, NOW)
        listens = "SELECT FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        await until(lambda: bool(postgres.sql(listens, url.rpartition("/")[2])), keys)
        await asyncio.sleep(0.1)
        await verifier.verify(issued.text, NOW)
        await asyncio.to_thread(PostgresApiKeys(url, timeout=20).revoke, issued.record.key_id)
        ends = time.monotonic() + 60
        while await is_accepted(verifier, issued.text):
            assert time.monotonic() < ends
            await asyncio.sleep(0.005)
    finally:
        await keys.aclose()


@pytest.mark.real
def test_a_change_in_redis_that_ignores_the_lock_undoes_the_other_one(redis_server: RedisServer) -> None:
    keys = RedisApiKeys(redis_server.url, create=True, timeout=20)
    before = keys.create(owner="ann").record

    def revoke() -> None:
        with keys._writing() as table, redis_server.client() as client:
            table.put(replace(before, revoked=1.0))
            client.set("a2a:keys:revision", "by a program without the lock")

    with pytest.raises(KeySourceUnavailableError, match="changed by another program at the same moment"):
        revoke()
    assert keys.records(owner="ann") == (before,)


@pytest.mark.real
async def test_a_line_for_notifications_that_dies_without_a_word_is_given_up(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next look-up opens another one; else revocations would take ``refresh`` seconds until the next restart."""
    monkeypatch.setattr("a2a_trust.base.databases.postgres._TRY_EVERY", 0.05)
    url = postgres.database()
    with line(postgres.port) as way:
        keys = PostgresApiKeys(url.replace(str(postgres.port), str(way.port)))
        told: list[int] = []
        keys.watch(lambda: told.append(1))
        await until(lambda: bool(told), keys)
        listening = keys._listening.running(None)
        assert listening is not None
        await asyncio.sleep(0.3)
        assert not listening.done()  # it is tried, and works
        way.is_dead = True
        await asyncio.wait_for(listening, 60)
        way.is_dead = False
        before = len(told)
        await until(lambda: len(told) > before, keys)
        before = len(told)
        await asyncio.to_thread(PostgresApiKeys(url, timeout=20).create, owner="ann")
        await until(lambda: len(told) > before, keys)
        await keys.aclose()


@pytest.mark.real
async def test_a_server_without_the_store_is_no_empty_store(redis_server: RedisServer) -> None:
    """After a failover to an empty server, keys are not unknown: nobody can tell."""
    keys, clock = RedisApiKeys(redis_server.url, create=True, timeout=20), Clock()
    issued = keys.create(owner="ann")
    verifier = ApiKeyVerifier(keys, refresh=1, stale_if_error=30, clock=clock)
    await verifier.verify(issued.text, NOW)
    with redis_server.client() as client:
        client.flushall()
    clock.at += 2
    assert (await verifier.verify(issued.text, NOW)).subject == "ann"
    clock.at += 40
    with pytest.raises(KeySourceUnavailableError):
        await verifier.verify(issued.text, NOW)
    with pytest.raises(KeySourceUnavailableError):
        await verifier.verify("unknown", NOW)
    with pytest.raises(KeySourceUnavailableError, match="the server is new, or lost its data"):
        RedisApiKeys(redis_server.url, timeout=20).create(owner="bob")
    await keys.aclose()


@pytest.mark.real
@pytest.mark.parametrize("value", [b"[" * 100_000, b"\xff", b"[NaN]", b"[]", b"null", b"", b"x" * 1_000_000])
async def test_a_value_of_redis_that_is_no_record_keeps_out_no_other(redis_server: RedisServer, value: bytes) -> None:
    with redis_server.client() as client:
        client.flushall()
        keys = RedisApiKeys(redis_server.url, create=True, timeout=20)
        broken, good = keys.create(owner="ann").record, keys.create(owner="bob").record
        client.set(b"a2a:key:" + broken.digest, value)
        assert (await keys.find((broken.digest, good.digest))).records == (good,)
        assert keys.records() == (good,)
        assert [key_id for key_id, _ in keys.unreadable()] == [broken.digest.hex()]
        for damaged in ("x", b"\xff"):
            client.hset("a2a:keys:ids", broken.key_id, damaged)
            with pytest.raises(ConfigurationError, match="a2a:keys:ids"):
                keys.records()
            with pytest.raises(ConfigurationError, match="a2a:keys:ids"):
                keys.revoke(broken.key_id)
        keys.revoke(good.key_id)
    await keys.aclose()


@pytest.mark.real
async def test_a_replica_of_redis_is_not_asked_for_keys(redis_server: RedisServer) -> None:
    """It goes on answering when its master is gone, with a key that was revoked there."""
    with redis_server.client() as client:
        client.flushall()
        keys = RedisApiKeys(redis_server.url, create=True, timeout=20)
        issued = keys.create(owner="ann")
        verifier = ApiKeyVerifier(keys, refresh=0.02, stale_if_error=0.04)
        assert (await verifier.verify(issued.text, time.time())).subject == "ann"
        client.replicaof("127.0.0.1", 1)  # as a failover does; open connections stay
        try:
            await asyncio.sleep(0.06)
            with pytest.raises(KeySourceUnavailableError):
                await verifier.verify(issued.text, time.time())
            with pytest.raises(KeySourceUnavailableError, match="it is a replica"):
                await keys.find((issued.record.digest,))
        finally:
            client.replicaof("NO", "ONE")
        await keys.find((issued.record.digest,))
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            with pytest.raises(KeySourceUnavailableError, match="maxmemory-policy noeviction"):
                await keys.find((issued.record.digest,))
        finally:
            client.config_set("maxmemory", "0")
            client.config_set("maxmemory-policy", "noeviction")
    await keys.aclose()


@pytest.mark.real
async def test_the_databases_hold_digests_and_no_key(
    postgres: PostgresServer,
    redis_server: RedisServer,
    tmp_path: Path,
) -> None:
    url = postgres.database()
    with redis_server.client() as client:
        client.flushall()
    for keys in (PostgresApiKeys(url, timeout=20), RedisApiKeys(redis_server.url, create=True, timeout=20)):
        issued = keys.create(owner="ann")
        keys.import_key(FOREIGN, owner="bob")
        if isinstance(keys, PostgresApiKeys):
            stored = repr(postgres.sql("SELECT * FROM a2a_trust.api_key", url.rpartition("/")[2]))
        else:
            with redis_server.client() as client:
                stored = repr([(name, client.get(name)) for name in client.scan_iter("a2a:key:*")])
        assert repr(issued.record.digest)[2:-1] in stored  # so what is looked for would be found
        for secret in (issued.text[17:49], issued.text[-6:], FOREIGN):
            assert secret not in stored
