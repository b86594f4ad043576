"""The memory of used proofs in SQLite: the file, forks, room that is made again, callers that go away."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from a2a_trust.auth.proofs import sqlite as proofs_in_sqlite
from a2a_trust.auth.proofs.sqlite import SqliteProofMemory
from a2a_trust.base import cache
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError
from tests.auth.test_jwt import NOW
from tests.waiting import settled, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "proofs.db"


async def use(memory: SqliteProofMemory, jti: str, *, jkt: str = "key", now: float = NOW) -> bool:
    return await memory.first_use(jkt, jti, now=now, issued=now, window=60.0)


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return [*connection.execute(query)]
    finally:
        connection.close()


def writes_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many proofs each transaction of this process gets, from now on."""
    begun: list[int] = []
    write = SqliteProofMemory._write

    def noted(memory: SqliteProofMemory, uses: tuple[proofs_in_sqlite._Use, ...]) -> object:
        begun.append(len(uses))
        return write(memory, uses)

    monkeypatch.setattr(SqliteProofMemory, "_write", noted)
    return begun


async def test_a_restart_forgets_nothing(path: Path) -> None:
    assert await use(SqliteProofMemory(path, create=True, timeout=60), "1")
    again = SqliteProofMemory(path)
    assert not await use(again, "1")
    assert await use(again, "2")


async def test_two_memories_of_one_file_are_one(path: Path) -> None:
    first, second = (SqliteProofMemory(path, create=True, timeout=60) for _ in range(2))
    assert [await use(first, "1"), await use(second, "1"), await use(second, "2"), await use(first, "2")] == [
        True,
        False,
        True,
        False,
    ]


def test_the_file_is_made_when_asked_and_for_its_owner_only(path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no memory of DPoP proofs at .*create=True"):
        SqliteProofMemory(path)
    assert not path.exists()
    SqliteProofMemory(path, create=True, timeout=60)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="everybody can write"):
        SqliteProofMemory(path)


def test_another_file_is_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"not a database, whatever its name says" * 100)
    with pytest.raises(ConfigurationError, match=r"proofs\.db"):
        SqliteProofMemory(path, create=True, timeout=60)
    assert path.read_bytes().startswith(b"not a database")


def test_a_damaged_file_is_refused_and_says_how_long_to_wait(path: Path) -> None:
    SqliteProofMemory(path, create=True, timeout=60)
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    with pytest.raises(ConfigurationError, match=r"proofs\.db is damaged \(.*\); move it away, and wait 600 seconds"):
        SqliteProofMemory(path)


async def test_the_file_holds_no_names(path: Path) -> None:
    assert await use(
        SqliteProofMemory(path, create=True, timeout=60), "the-name-of-a-proof", jkt="the-thumbprint-of-a-key"
    )
    held = b"".join(each.read_bytes() for each in path.parent.iterdir())
    assert b"the-name-of" not in held
    assert b"the-thumbprint" not in held


async def test_what_has_ended_makes_room_in_the_file(path: Path) -> None:
    memory = SqliteProofMemory(path, create=True, timeout=60)
    await asyncio.gather(*[use(memory, str(number), jkt=f"key {number % 7}") for number in range(500)])
    assert rows(path, "SELECT count(*) FROM proof") == [(500,)]
    assert await use(memory, "later", now=NOW + 62)
    assert rows(path, "SELECT count(*) FROM proof") == [(1,)]
    assert rows(path, "SELECT used FROM holder ORDER BY holder") == [(1,), (1,)]  # of all, and of the one key


async def test_one_transaction_removes_a_bounded_number_of_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs_in_sqlite, "_MAX_DROPPED", 30)
    memory = SqliteProofMemory(path, create=True, timeout=60)
    await asyncio.gather(*[use(memory, str(number)) for number in range(100)])
    for number, left in enumerate((71, 42, 13, 4)):
        assert await use(memory, f"later {number}", now=NOW + 62)
        assert rows(path, "SELECT count(*) FROM proof") == [(left,)]


async def test_proofs_that_come_at_once_share_transactions(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = writes_of(monkeypatch)
    memory = SqliteProofMemory(path, create=True, timeout=60)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    waiting = [asyncio.create_task(use(memory, str(number))) for number in range(200)]
    await until(lambda: bool(commits))
    await settled()
    holder.execute("ROLLBACK")
    holder.close()
    assert all(await asyncio.gather(*waiting))
    assert sum(commits) == 200
    assert len(commits) <= 3


async def test_while_the_file_is_held_the_event_loop_goes_on_and_callers_are_told(path: Path) -> None:
    memory = SqliteProofMemory(path, create=True, timeout=2)
    assert await use(memory, "0")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    waiting, turns = asyncio.create_task(use(memory, "1")), 0
    while not waiting.done():
        await asyncio.sleep(0.01)
        turns += 1
    with pytest.raises(KeySourceUnavailableError, match=r"proofs\.db"):
        await waiting
    assert turns > 20
    holder.execute("ROLLBACK")
    holder.close()


async def test_a_write_that_hangs_keeps_no_caller_waiting(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, ended = SqliteProofMemory(path, create=True, timeout=0.1), threading.Event()
    monkeypatch.setattr(memory, "_write", lambda uses: {each: ended.wait(60) for each in uses})
    with pytest.raises(KeySourceUnavailableError, match=r"takes longer than 0\.1 seconds"):
        await use(memory, "1")
    ended.set()


async def test_a_caller_that_goes_away_uses_nothing_up_and_stops_nobody(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = writes_of(monkeypatch)
    memory = SqliteProofMemory(path, create=True, timeout=60)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    busy = asyncio.create_task(use(memory, "busy"))
    await until(lambda: bool(begun))
    gone, stays = (asyncio.create_task(use(memory, jti)) for jti in ("gone", "stays"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    holder.execute("ROLLBACK")
    holder.close()
    assert [await busy, await stays, await use(memory, "gone")] == [True, True, True]


async def test_a_flood_does_not_wait_without_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_WAITING", 10)
    memory = SqliteProofMemory(path, create=True, timeout=0.5)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    told = await asyncio.gather(*[use(memory, str(number)) for number in range(40)], return_exceptions=True)
    assert {type(each) for each in told} == {KeySourceUnavailableError}
    assert sum("too many look-ups wait" in str(each) for each in told) >= 20
    holder.execute("ROLLBACK")
    holder.close()


_FORKING = """
import asyncio, os, sys
from a2a_trust.auth import SqliteProofMemory

memory = SqliteProofMemory(sys.argv[1], create=True)
def use(jti):
    return asyncio.run(memory.first_use("key", jti, now=1e9, issued=1e9, window=60.0))

assert use("before")
child = os.fork()
if child == 0:
    os._exit(0 if (use("before"), use("of the child")) == (False, True) else 1)
assert os.waitpid(child, 0)[1] == 0
assert (use("of the child"), use("after")) == (False, True)
"""


def test_a_forked_child_has_the_same_memory(path: Path) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORKING, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


async def test_a_thread_that_cannot_be_started_once_is_an_outage_of_that_request_only(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = SqliteProofMemory(path, create=True, timeout=60)
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(KeySourceUnavailableError, match="can't start new thread"):
        await use(memory, "1")
    assert await use(memory, "2")
    assert await use(memory, "1"), "it was not used before"
