"""Tables of older and newer releases, servers that start before their database, and disks that are full."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from a2a_trust.auth import PostgresApiKeys, PostgresProofMemory
from a2a_trust.base.databases import postgres as migrations
from a2a_trust.base.databases.postgres import Migrated, migrate
from a2a_trust.base.databases.schema import MIGRATIONS, VERSION, Migration
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError
from tests.databases import PostgresServer, ended, has_known_proofs_for_long, running_postgres, temporary_folder
from tests.faults.folders import TMPFS, small_disk
from tests.faults.processes import SECONDS, started
from tests.faults.replicas import Load, proof_now, replicas, token_now

pytestmark = pytest.mark.anyio

TOKEN = token_now()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def command(*arguments: str) -> tuple[int, str]:
    """The exit code and the output of ``a2a-sign database``."""
    done = subprocess.run(
        [sys.executable, "-m", "a2a_trust", "database", *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def of_version(postgres: PostgresServer, url: str, version: int, works_from: int) -> None:
    postgres.sql(
        f"UPDATE a2a_trust.schema_version SET version = {version}, works_from = {works_from}", url.rpartition("/")[2]
    )


def test_a_command_makes_the_tables_once(postgres: PostgresServer) -> None:
    url = postgres.database(tables=False)
    assert command("check", url)[0] == 1
    assert command("migrate", url)[0] == 0
    key = PostgresApiKeys(url, timeout=60).create(owner="ann").record
    code, text = command("migrate", "--json", url)
    assert (code, json.loads(text)["before"], json.loads(text)["version"]) == (0, VERSION, VERSION)
    assert command("check", url)[0] == 0
    assert PostgresApiKeys(url, timeout=60).records() == (key,)


def test_several_commands_at_once_make_the_tables_once(postgres: PostgresServer) -> None:
    url = postgres.database(tables=False)
    migrating = [sys.executable, "-m", "a2a_trust", "database", "migrate", url]
    with ExitStack() as stack:
        running = [stack.enter_context(started(migrating, stdout=subprocess.DEVNULL)) for _ in range(4)]
        assert [each.wait(SECONDS) for each in running] == [0] * 4
    assert [tuple(row) for row in postgres.sql("SELECT * FROM a2a_trust.schema_version", url.rpartition("/")[2])] == [
        (VERSION, 1)
    ]


def test_a_migration_that_fails_changes_nothing(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres.database()
    broken = Migration("CREATE TABLE a2a_trust.more (); SELECT no_such_function();", works_from=1)
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, broken))
    with pytest.raises(KeySourceUnavailableError, match="no_such_function"):
        migrate(url, unavailable=KeySourceUnavailableError, timeout=60)
    name = url.rpartition("/")[2]
    assert not postgres.sql("SELECT FROM pg_tables WHERE schemaname = 'a2a_trust' AND tablename = 'more'", name)
    assert tuple(postgres.sql("SELECT * FROM a2a_trust.schema_version", name)[0]) == (VERSION, 1)


async def test_during_an_upgrade_both_releases_work_if_the_tables_allow_it(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next release adds a column; this one works with its tables, and does not undo it."""
    url = postgres.database()
    added = Migration("ALTER TABLE a2a_trust.api_key ADD COLUMN note text NOT NULL DEFAULT ''", works_from=1)
    with monkeypatch.context() as next_release:
        next_release.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, added))
        next_release.setattr(migrations, "VERSION", VERSION + 1)
        assert migrate(url, unavailable=KeySourceUnavailableError, timeout=60) == Migrated(VERSION, VERSION + 1)
    keys = PostgresApiKeys(url, timeout=60)
    issued = keys.create(owner="ann")
    assert (await keys.find((issued.record.digest,))).records == (issued.record,)
    await keys.aclose()
    assert migrate(url, unavailable=KeySourceUnavailableError, timeout=60) == Migrated(VERSION + 1, VERSION + 1)
    assert command("check", url)[0] == 0


@pytest.mark.parametrize(
    ("version", "works_from", "says"),
    [
        (VERSION + 1, VERSION + 1, "of a newer release"),
        (VERSION - 1, 1, "of an older release; run: a2a-sign database migrate postgresql://"),
        (0, 0, "of an older release; run: a2a-sign database migrate postgresql://"),
    ],
)
async def test_tables_of_another_release_are_not_used(
    postgres: PostgresServer, version: int, works_from: int, says: str
) -> None:
    url = postgres.database()
    of_version(postgres, url, version, works_from)
    keys, proofs = PostgresApiKeys(url, timeout=60), PostgresProofMemory(url, timeout=60)
    with pytest.raises(KeySourceUnavailableError, match=says):
        await keys.find(())
    with pytest.raises(KeySourceUnavailableError, match=says):
        await proofs.first_use("key", "1", now=time.time(), issued=time.time(), window=60)
    with pytest.raises(KeySourceUnavailableError, match=says):
        keys.create(owner="ann")
    if version > VERSION:
        code, text = command("migrate", url)
        assert (code, "install the newer release" in text) == (2, True)
        with pytest.raises(ConfigurationError):
            migrate(url, unavailable=KeySourceUnavailableError, timeout=60)
    of_version(postgres, url, VERSION, 1)
    assert (await keys.find(())).records == ()  # without a restart
    await keys.aclose()
    await proofs.aclose()


async def test_replicas_start_before_their_database(tmp_path: Path) -> None:
    with running_postgres() as server:
        url = server.database()
        has_known_proofs_for_long(server, url)
        key = PostgresApiKeys(url, timeout=60).create(owner="ann").text
        server.kill()
        with replicas(tmp_path, proofs=url, keys=url) as (replica,):
            load = Load([replica.origin], TOKEN, key)
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                assert [await load.ask(client, replica.origin, used) for used in (proof_now(TOKEN), "")] == [503, 503]
                server.start()
                await load.accepted(client, replica.origin)


@TMPFS
async def test_a_full_disk_of_postgresql(tmp_path: Path) -> None:
    """It may end the server; what it said to have remembered is there again when there is room."""
    with (
        temporary_folder() as folder,
        small_disk(folder / "disk", "96m") as disk,
        ended(PostgresServer(disk.path)) as server,
    ):
        server.make()
        server.start("-c", "min_wal_size=32MB", "-c", "max_wal_size=32MB")
        url = server.database()
        has_known_proofs_for_long(server, url)
        key = PostgresApiKeys(url, timeout=60).create(owner="ann").text
        with replicas(tmp_path, proofs=url, keys=url) as (replica,):
            load = Load([replica.origin], TOKEN, key)
            async with load.running():
                await load.sees("proof", 200, 20)
                await load.sees("key", 200, 20)
                disk.fill()
                server.sql_ignored("CREATE TABLE full_disk AS SELECT repeat('x', 1000) FROM generate_series(1, 100000)")
                await load.sees("proof", 503, 4)
                disk.empty()
                server.kill()
                server.start()
                await load.sees("proof", 200, 20)
            assert set(load.statuses["proof"]) <= {200, 503}
            assert set(load.statuses["key"]) <= {200, 503}
            assert set(await load.replay()) == {401}
