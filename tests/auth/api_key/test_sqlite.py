"""API keys in a real SQLite file, shared by real processes."""

from __future__ import annotations

import asyncio
import math
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from a2a_trust.auth.api_key.verifier import ApiKeyStore, ApiKeyVerifier
from a2a_trust.auth.record_table import SqliteApiKeys
from a2a_trust.base.files import sqlite as sqlite_files
from a2a_trust.cli.main import main
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError

pytestmark = pytest.mark.anyio

FOREIGN = "sk-live-0123456789abcdef0123456789"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys of 100% ours?.db"  # the name goes into a URI


@pytest.fixture
def store(path: Path) -> SqliteApiKeys:
    return SqliteApiKeys(path, create=True, timeout=60)


def start(path: Path, body: str) -> subprocess.Popen[str]:
    """Another process, with the store as ``store``."""
    program = f"import sys; from a2a_trust.auth.record_table import SqliteApiKeys as S\n{body}"
    return subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out


def raw(path: Path) -> bytes:
    """All that is on disk: the database, its log, its index."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.iterdir()))


# --- what is kept


def test_records_come_back_as_they_were(store: SqliteApiKeys, path: Path) -> None:
    endless = store.create(owner="älice & co", scopes=["write", "read"]).record
    ending = store.create(owner="bob", expires=time.time() + 60, prefix="acme").record
    imported = store.import_key(FOREIGN, owner="carol")
    assert SqliteApiKeys(path).records() == (endless, ending, imported)
    assert endless.expires == math.inf
    revoked = store.revoke(ending.key_id)
    successor = store.rotate(endless.key_id, overlap=timedelta(hours=1)).record
    old, second, _, newest = SqliteApiKeys(path).records()
    assert (second, newest) == (revoked, successor)
    assert old.replaced_by == successor.key_id
    assert old.expires < math.inf


def test_the_file_holds_digests_and_no_key(store: SqliteApiKeys, path: Path) -> None:
    issued = store.create(owner="alice")
    store.import_key(FOREIGN, owner="bob")
    successor = store.rotate(issued.record.key_id, overlap=timedelta(days=1))
    content = raw(path)
    assert issued.record.digest in content  # so what is looked for would be found
    for secret in (issued.text[17:49], issued.text[-6:], successor.text[17:49], FOREIGN):
        assert secret.encode() not in content


def test_the_store_is_for_its_owner_only(store: SqliteApiKeys, path: Path) -> None:
    record = store.create(owner="alice").record
    with store._writing() as table:
        table.put(replace(record, revoked=1.0))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert set(modes) == {path.name, f"{path.name}-journal"}
    assert set(modes.values()) == {0o600}


def test_nothing_but_the_store_is_left_behind(store: SqliteApiKeys, path: Path) -> None:
    store.create(owner="alice")
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_store_that_another_process_made_first_stays(store: SqliteApiKeys, path: Path) -> None:
    record = store.create(owner="alice").record
    store._file.make()  # as by a process that had looked before the file was there
    assert store.records() == (record,)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.parametrize("lacking", ["", "if hasattr(os, 'O_TMPFILE'): del os.O_TMPFILE"])
def test_a_kill_while_a_store_is_made_leaves_nothing_for_ever(path: Path, lacking: str) -> None:
    body = (
        f"import os, signal, sys\n{lacking}\n"
        "os.link = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from a2a_trust import SqliteApiKeys\nSqliteApiKeys(sys.argv[1], create=True)"
    )
    assert subprocess.run([sys.executable, "-c", body, path], check=False).returncode == -signal.SIGKILL
    assert not path.exists()
    SqliteApiKeys(path, create=True)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_store_is_made_also_where_sqlite_does_not_serialize(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_files, "_SERIALIZES", False)
    record = SqliteApiKeys(path, create=True).create(owner="alice").record
    assert SqliteApiKeys(path).records() == (record,)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# --- files that are no store


def test_a_missing_store_is_an_error_and_is_not_made(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a2a-sign api-key create --store"):
        SqliteApiKeys(path)
    assert list(path.parent.iterdir()) == []


def test_a_file_of_something_else_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"The quick brown fox jumps over the lazy dog. " * 100)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="not a valid API key store"):
        SqliteApiKeys(path, create=True)
    assert path.read_bytes() == before
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE api_key (id)")
    with pytest.raises(ConfigurationError, match="not a valid API key store"):
        SqliteApiKeys(path, create=True)


async def test_a_store_of_another_version_is_refused_also_when_it_comes_later(store: SqliteApiKeys, path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 3")
    with pytest.raises(ConfigurationError, match=r"version 3.*reads version 2.*use the release"):
        SqliteApiKeys(path)
    with pytest.raises(ConfigurationError, match="version 3"):
        await store.find(())


def test_a_store_that_everybody_can_write_is_refused(store: SqliteApiKeys, path: Path) -> None:
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="chmod o-w"):
        SqliteApiKeys(path)


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_what_a_lost_store_left_is_not_read_into_a_new_one(path: Path, suffix: str) -> None:
    path.with_name(f"{path.name}{suffix}").write_bytes(b"left")
    with pytest.raises(ConfigurationError, match="move it away"):
        SqliteApiKeys(path, create=True)


async def test_a_store_that_vanishes_is_out_of_reach_and_is_not_made_anew(store: SqliteApiKeys, path: Path) -> None:
    key = store.create(owner="alice").text
    path.unlink()
    with pytest.raises(KeySourceUnavailableError):
        await ApiKeyVerifier(store).verify(key, time.time())
    with pytest.raises(KeySourceUnavailableError):
        store.create(owner="alice")
    assert not path.exists()


# --- what one write sees and does


def test_a_damaged_store_is_out_of_reach_and_says_what_to_do(store: SqliteApiKeys, path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    with pytest.raises(KeySourceUnavailableError, match=r"ours\?\.db is damaged \(.*\); restore it from a copy"):
        store.records()


def test_a_write_that_is_refused_changes_nothing(store: SqliteApiKeys, path: Path) -> None:
    issued = store.create(owner="alice")
    store.import_key(FOREIGN, owner="bob")
    before = raw(path)
    refused: list[Callable[[], object]] = [
        lambda: store.import_key(FOREIGN, owner="carol"),
        lambda: store.import_key(issued.text, owner="carol"),
        lambda: store.revoke(issued.text),
        lambda: store.rotate("a2a_000000000000", overlap=timedelta(0)),
        lambda: store.rotate(issued.record.key_id, overlap=timedelta(0), expires=1.0),
    ]
    for write in refused:
        with pytest.raises(ConfigurationError):
            write()
    assert raw(path) == before


def test_the_database_itself_refuses_what_is_no_record(store: SqliteApiKeys, path: Path) -> None:
    store.create(owner="alice")
    with closing(sqlite3.connect(path)) as other:
        for change in ("expires = 'never'", "expires = NULL", "digest = 'abc'", "revoked = 'no'", "imported = 2"):
            with pytest.raises(sqlite3.IntegrityError):
                other.execute(f"UPDATE api_key SET {change}")


async def test_while_somebody_writes_readers_go_on_and_writers_say_so(path: Path) -> None:
    store = SqliteApiKeys(path, create=True, timeout=0.05)
    issued = store.create(owner="alice")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE api_key SET revoked = 1.0")
        assert [record.revoked for record in store.records()] == [None]
        assert (await ApiKeyVerifier(store).verify(issued.text, time.time())).subject == "alice"
        with pytest.raises(KeySourceUnavailableError, match="locked"):
            store.revoke(issued.record.key_id)
        other.execute("ROLLBACK")
        other.execute("BEGIN")
        other.execute("SELECT * FROM api_key").fetchall()
        with pytest.raises(KeySourceUnavailableError, match=r"another process has read or written it.* Run this again"):
            store.revoke(issued.record.key_id)
        other.execute("ROLLBACK")
    assert store.revoke(issued.record.key_id).revoked is not None


def test_a_read_beside_a_write_does_not_end_the_lock_of_the_write(store: SqliteApiKeys, path: Path) -> None:
    """Locks end when the process closes any descriptor of the file (POSIX)."""
    record = store.create(owner="alice").record
    with store._writing() as table:
        table.put(replace(record, revoked=1.0))
        assert [kept.revoked for kept in SqliteApiKeys(path).records()] == [None]
        assert finish(start(path, _IS_LOCKED)) == "locked\n"
    assert finish(start(path, _IS_LOCKED)) == "free\n"


_IS_LOCKED = (
    "import sqlite3\n"
    "try: sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute('BEGIN IMMEDIATE')\n"
    "except sqlite3.OperationalError: print('locked')\n"
    "else: print('free')"
)


# --- what a verifier reads


async def test_a_use_makes_no_revision_and_a_change_by_hand_does(store: SqliteApiKeys, path: Path) -> None:
    issued = store.create(owner="alice")
    protocol: ApiKeyStore = store
    before = await protocol.find((issued.record.digest,))
    await protocol.touch({issued.record.key_id: 5.0})
    await protocol.touch({issued.record.key_id: 4.0, "a2a_unknown00000": 4.0})
    assert (await protocol.find(())).revision == before.revision
    assert [record.last_used for record in store.records()] == [5.0]
    for change, revoked in (("UPDATE api_key SET revoked = 7.0", [7.0]), ("DELETE FROM api_key", [])):
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute(change)
        after = await protocol.find((issued.record.digest, bytes(32)))
        assert after.revision != before.revision
        assert [record.revoked for record in after.records] == revoked
        before = after


async def test_a_record_that_is_not_sound_lets_nobody_in_and_keeps_nobody_out(
    store: SqliteApiKeys, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issued, other = store.create(owner="alice"), store.create(owner="bob")
    with closing(sqlite3.connect(path, isolation_level=None)) as hand:
        hand.execute("UPDATE api_key SET owner = ' alice' WHERE owner = 'alice'")
    verifier = ApiKeyVerifier(store)
    for _ in range(2):
        with pytest.raises(InvalidCredentialsError):
            await verifier.verify(issued.text, time.time())
        assert (await verifier.verify(other.text, time.time())).subject == "bob"
    assert "does not count: API key: the owner is" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        "owner = x'0078'",
        "owner = cast(x'ff80' AS TEXT)",
        "scopes = x'61'",
        "scopes = cast(x'ff' AS TEXT)",
        "id = x'7878'",
        "id = cast(x'ff' AS TEXT)",
        "replaced_by = x'7a'",
        "replaced_by = cast(x'ff' AS TEXT)",
        "expires = -1.0",
    ],
)
async def test_one_odd_record_is_no_outage(
    store: SqliteApiKeys, path: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    odd, good = store.create(owner="odd"), store.create(owner="good")
    with closing(sqlite3.connect(path, isolation_level=None)) as hand:
        hand.execute(f"UPDATE api_key SET {change} WHERE owner = 'odd'")
    verifier = ApiKeyVerifier(store)
    results = await asyncio.gather(
        *(verifier.verify(key.text, time.time()) for key in (odd, good)), return_exceptions=True
    )
    assert isinstance(results[0], InvalidCredentialsError)
    assert getattr(results[1], "subject", results[1]) == "good"
    assert store.records() == (good.record,)
    ((_, why),) = store.unreadable()
    assert why.startswith("API key: ")
    assert main(["api-key", "list", "--store", str(path)]) == 0
    listed = capsys.readouterr().out
    assert "unreadable" in listed
    assert good.record.key_id in listed


async def test_a_file_that_takes_the_place_of_another_is_read(store: SqliteApiKeys, path: Path) -> None:
    issued = store.create(owner="alice")
    assert len((await store.find((issued.record.digest,))).records) == 1
    other = SqliteApiKeys(path.with_name("other.db"), create=True)
    theirs = other.create(owner="bob")
    path.with_name("other.db").replace(path)
    found = await store.find((issued.record.digest, theirs.record.digest))
    assert [record.owner for record in found.records] == ["bob"]


def test_a_forked_child_reads_over_a_connection_of_its_own(store: SqliteApiKeys, path: Path) -> None:
    """As a server does that loads the application before it makes its workers."""
    body = (
        "import asyncio, os\n"
        "store = S(sys.argv[1])\n"
        "issued = store.create(owner='alice')\n"
        "look = lambda: [r.revoked is None for r in asyncio.run(store.find((issued.record.digest,))).records]\n"
        "assert look() == [True]\n"
        "lock = store._reader._lock; lock.acquire()\n"  # as by a thread that the child does not have
        "opened = store._reader._opened\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    own = look() == [True] and store._reader._opened is not opened\n"
        "    store.revoke(issued.record.key_id)\n"
        "    os._exit(0 if own else 1)\n"
        "lock.release()\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "print(look(), store._reader._opened is opened)"
    )
    assert finish(start(path, body)) == "[False] True\n"


async def test_a_use_reaches_the_file(store: SqliteApiKeys) -> None:
    issued = store.create(owner="alice")
    verifier = ApiKeyVerifier(store)
    now = time.time()
    await verifier.verify(issued.text, now)
    writing = verifier._uses._flights.running(None)
    assert writing is not None
    await asyncio.wait({writing})
    assert [record.last_used for record in store.records()] == [now]


async def test_a_revocation_by_another_process_counts_within_the_stated_delay(store: SqliteApiKeys, path: Path) -> None:
    refresh = 0.3
    issued, other = store.create(owner="alice"), store.create(owner="bob")
    verifier = ApiKeyVerifier(SqliteApiKeys(path), refresh=refresh)
    assert (await verifier.verify(issued.text, time.time())).subject == "alice"
    finish(start(path, f"S(sys.argv[1]).revoke({issued.record.key_id!r})"))
    await asyncio.sleep(refresh)
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        await verifier.verify(issued.text, time.time())
    assert (await verifier.verify(other.text, time.time())).subject == "bob"


async def test_processes_that_make_the_store_and_write_at_once_lose_nothing(path: Path) -> None:
    body = "s = S(sys.argv[1], create=True, timeout=50)\nfor _ in range(20): print(s.create(owner='o').text)"
    processes = [start(path, body) for _ in range(3)]
    keys = [key for process in processes for key in finish(process).split()]
    verifier = ApiKeyVerifier(SqliteApiKeys(path))
    assert len(set(keys)) == 60
    for key in keys:
        assert (await verifier.verify(key, time.time())).subject == "o"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_threads_share_one_store(store: SqliteApiKeys) -> None:
    ids: list[str] = []

    def work() -> None:
        for _ in range(10):
            key_id = store.create(owner="alice").record.key_id
            store.rotate(key_id, overlap=timedelta(hours=1))
            ids.append(key_id)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = {record.key_id: record for record in store.records()}
    assert len(records) == 80
    assert {records[key_id].replaced_by for key_id in ids} == set(records) - set(ids)
