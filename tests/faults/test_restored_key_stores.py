"""A store that was restored from a copy, beside what the lost one left: SQLite would read that into the copy."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier
from a2a_trust.auth.proofs.sqlite import SqliteProofMemory
from a2a_trust.auth.record_table import SqliteApiKeys
from a2a_trust.client.memory_store import SqliteCardMemory
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError
from tests.auth.api_key.test_verifier import NOW, Clock
from tests.cli.conftest import COMMAND
from tests.faults.processes import started
from tests.faults.stores import beside, hot_journal, mv_of, way_out


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "our keys.db"


def with_log(path: Path, change: str) -> None:
    """Change the store in the mode with a log, and leave the change in the log, as a process does that is killed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(change)
        for suffix in ("", "-wal"):
            shutil.copy(beside(path, suffix), beside(path.with_name("kept"), suffix))
    for suffix in ("", "-wal"):
        beside(path.with_name("kept"), suffix).replace(beside(path, suffix))


def test_a_copy_beside_the_log_of_the_lost_store_is_refused_with_the_way_out(path: Path) -> None:
    store = SqliteApiKeys(path, create=True)
    issued = store.create(owner="alice")
    store.revoke(issued.record.key_id)
    shutil.copy(path, path.with_name("copy.db"))
    with_log(path, "UPDATE api_key SET revoked = NULL")
    path.with_name("copy.db").replace(path)
    before = path.read_bytes(), beside(path, "-wal").read_bytes()
    with pytest.raises(ConfigurationError, match="belongs to another file") as caught:
        SqliteApiKeys(path)
    listed = subprocess.run([COMMAND, "api-key", "list", "--store", path], capture_output=True, text=True, check=False)
    assert (listed.returncode, "move it away: mv" in listed.stderr) == (2, True)
    for use in (store.records, lambda: store.create(owner="bob"), lambda: asyncio.run(store.find(()))):
        with pytest.raises(ConfigurationError, match="belongs to another file"):
            use()
    assert (path.read_bytes(), beside(path, "-wal").read_bytes()) == before
    mv_of(str(caught.value))
    assert [record.revoked is not None for record in SqliteApiKeys(path).records()] == [True]


def test_the_journal_of_a_process_that_was_killed_is_the_stores_own(path: Path, is_long: bool) -> None:
    """Its change never was: the next who opens the store undoes it."""
    store = SqliteApiKeys(path, create=True)
    issued = [store.create(owner="alice").record for _ in range(20)]
    for _ in range(50 if is_long else 3):
        asyncio.run(store.find(()))  # over a connection that is open during the kill
        journal = hot_journal(path)
        found = asyncio.run(store.find((issued[0].digest,)))
        assert not journal.exists()
        assert {record.owner.rstrip("x") for record in found.records} == {"alice"}
        owners = {record.owner for record in store.records()}
        assert len(owners) == 1, "a change is whole or was not"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("UPDATE api_key SET owner = 'alice'")
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_store_with_a_write_ahead_log_is_refused_with_the_way_back(path: Path) -> None:
    store = SqliteApiKeys(path, create=True)
    issued = store.create(owner="alice")
    with_log(path, "UPDATE api_key SET revoked = 1.0")
    with pytest.raises(ConfigurationError, match=r"readers cannot open without writing; if it was restored") as caught:
        SqliteApiKeys(path)
    command = way_out(str(caught.value), word="sqlite3")
    assert command[1] == str(path)
    with closing(sqlite3.connect(command[1])) as shell:
        shell.execute(command[2])
    (kept,) = SqliteApiKeys(path).records()
    assert (kept.key_id, kept.revoked) == (issued.record.key_id, 1.0)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_server_whose_store_is_restored_wrongly_goes_on_for_the_stated_time(path: Path) -> None:
    async def served() -> None:
        store, clock = SqliteApiKeys(path, create=True), Clock()
        issued = store.create(owner="alice")
        verifier = ApiKeyVerifier(store, refresh=2.0, stale_if_error=30.0, clock=clock)
        assert (await verifier.verify(issued.text, NOW)).subject == "alice"
        shutil.copy(path, path.with_name("copy.db"))
        with_log(path, "UPDATE api_key SET revoked = 1.0")
        path.with_name("copy.db").replace(path)
        clock.at += 29.9
        assert (await verifier.verify(issued.text, NOW)).subject == "alice"
        clock.at += 0.1
        with pytest.raises(KeySourceUnavailableError):
            await verifier.verify(issued.text, NOW)
        beside(path, "-wal").unlink()
        clock.at += 1
        assert (await verifier.verify(issued.text, NOW)).subject == "alice"
        store.revoke(issued.record.key_id)
        clock.at += 2
        with pytest.raises(InvalidCredentialsError, match="revoked"):
            await verifier.verify(issued.text, NOW)

    asyncio.run(served())


@pytest.mark.parametrize("how", ["backup", "vacuum"])
def test_a_copy_that_is_made_while_others_write_is_whole(path: Path, how: str, is_long: bool) -> None:
    """The two ways of the guide: ``.backup`` of sqlite3, and ``VACUUM INTO``."""
    store = SqliteApiKeys(path, create=True)
    body = (
        "import sys\nfrom a2a_trust import SqliteApiKeys\n"
        "store = SqliteApiKeys(sys.argv[1])\nwhile True: print(store.create(owner='a').record.key_id, flush=True)"
    )
    with started([sys.executable, "-c", body, path], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for number in range(30 if is_long else 3):
            acknowledged = [writer.stdout.readline().strip() for _ in range(5)]
            copy = path.with_name(f"copy-{number}.db")
            with closing(sqlite3.connect(path, timeout=60)) as source:
                if how == "vacuum":
                    source.execute("VACUUM INTO ?", (str(copy),))
                else:
                    with closing(sqlite3.connect(copy)) as target:
                        source.backup(target)
            assert set(acknowledged) <= {record.key_id for record in SqliteApiKeys(copy).records()}
    assert len(store.records()) >= 15


@pytest.mark.parametrize("link", ["file", "folder"])
def test_a_log_beside_a_store_is_seen_through_a_symbolic_link(tmp_path: Path, link: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    path = data / "keys.db"
    store = SqliteApiKeys(path, create=True)
    store.create(owner="alice")
    shutil.copy(path, data / "copy.db")
    for _ in range(3):
        store.create(owner="bob")
    with_log(path, "UPDATE api_key SET owner = 'old'")
    (data / "copy.db").replace(path)
    before = path.read_bytes()
    name = tmp_path / "link"
    name.symlink_to(path if link == "file" else data)
    named = name if link == "file" else name / "keys.db"
    with pytest.raises(ConfigurationError, match="belongs to another file") as caught:
        SqliteApiKeys(named)
    assert path.read_bytes() == before
    mv_of(str(caught.value))
    assert [record.owner for record in SqliteApiKeys(named).records()] == ["alice"]


@pytest.mark.parametrize("kind", [SqliteCardMemory, SqliteProofMemory])
def test_other_stores_look_through_links_too(tmp_path: Path, kind: type[SqliteCardMemory | SqliteProofMemory]) -> None:
    path, name = tmp_path / "data.db", tmp_path / "link.db"
    kind(path, create=True)
    name.symlink_to(path)
    beside(path, "-wal").write_bytes(b"another's")
    with pytest.raises(ConfigurationError, match="belongs to another file"):
        kind(name)


def test_a_reader_looks_beside_the_file_to_which_a_link_leads_now(tmp_path: Path) -> None:
    paths = [tmp_path / "1.db", tmp_path / "2.db"]
    for number, path in enumerate(paths):
        SqliteApiKeys(path, create=True).create(owner=f"owner{number}")
    name, other = tmp_path / "keys.db", tmp_path / "other"
    name.symlink_to(paths[0])
    store = SqliteApiKeys(name)
    digests = tuple(SqliteApiKeys(path).records()[0].digest for path in paths)
    assert [record.owner for record in asyncio.run(store.find(digests)).records] == ["owner0"]
    beside(paths[0], "-wal").write_bytes(b"another's")
    with pytest.raises(ConfigurationError, match="belongs to another file"):
        asyncio.run(store.find(digests))
    other.symlink_to(paths[1])
    other.replace(name)
    assert [record.owner for record in asyncio.run(store.find(digests)).records] == ["owner1"]
    beside(paths[1], "-wal").write_bytes(b"another's")
    with pytest.raises(ConfigurationError, match=r"2\.db-wal belongs to another file"):
        asyncio.run(store.find(digests))
