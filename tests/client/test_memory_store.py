"""The memory in a real SQLite file: shared by real processes, refused when it is damaged, never silently empty."""

from __future__ import annotations

import json
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from a2a_trust import TrustStore, generate_signer, sign_card, verify_card
from a2a_trust.client.location import Location
from a2a_trust.client.memory_store import SqliteCardMemory
from a2a_trust.client.verification import TrustOnFirstUse
from a2a_trust.errors import CardMemoryUnavailableError, ConfigurationError, PinnedKeyError
from a2a_trust.keys import LocalSigner
from tests.client.test_memory import AGENT, ALICE, BOB, CARD, NOW, proof, thumbprint

KEY = thumbprint(ALICE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cards of 100% ours?.db"  # the name goes into a URI


@pytest.fixture
def memory(path: Path) -> SqliteCardMemory:
    return SqliteCardMemory(path, create=True)


_STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def no_process_outlives_its_test() -> Iterator[None]:
    yield
    while _STARTED:
        with _STARTED.pop() as process:
            process.kill()


def start(path: Path, body: str) -> subprocess.Popen[str]:
    """Another process, with the memory as ``memory``."""
    program = (
        "import sys, time\nfrom a2a_trust.client.memory_store import SqliteCardMemory\n"
        f"memory = SqliteCardMemory(sys.argv[1], create=True, timeout=50)\n{body}"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    _STARTED.append(process)
    return process


# --- the file


def test_the_memory_is_for_its_owner_only(memory: SqliteCardMemory, path: Path) -> None:
    memory.accept(AGENT, [KEY], now=NOW)
    with memory._writing() as table:
        table.remove(Location(AGENT))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert set(modes) == {path.name, f"{path.name}-journal"}
    assert set(modes.values()) == {0o600}
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_missing_memory_is_an_error_and_is_not_made(path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"a2a-sign memory accept --file .*create=True"):
        SqliteCardMemory(path)
    assert list(path.parent.iterdir()) == []


def test_a_memory_that_another_process_made_first_stays(memory: SqliteCardMemory, path: Path) -> None:
    record = memory.accept(AGENT, [KEY], now=NOW)
    with memory._writing() as table:
        table.remove(Location("other.example"))
        table.put(record)
        assert path.with_name(f"{path.name}-journal").exists()
        memory._file.make()  # as by a process that had looked before the file was there; its journal is there by now
    assert memory.records()[0] == record
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_what_a_lost_memory_left_is_not_read_into_a_new_one(path: Path, suffix: str) -> None:
    path.with_name(f"{path.name}{suffix}").write_bytes(b"left")
    with pytest.raises(ConfigurationError, match="move it away"):
        SqliteCardMemory(path, create=True)


def test_a_memory_that_everybody_can_write_is_refused(memory: SqliteCardMemory, path: Path) -> None:
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="chmod o-w"):
        SqliteCardMemory(path)


def test_a_memory_of_another_version_is_refused_also_when_it_comes_later(memory: SqliteCardMemory, path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 4")
    with pytest.raises(ConfigurationError, match=r"version 4.*reads version 3; use the release.* or a newer one"):
        SqliteCardMemory(path)
    with pytest.raises(ConfigurationError, match="version 4"):
        memory.expects_signature(AGENT)


def test_a_memory_that_was_kept_by_origin_is_refused_with_what_to_do(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.executescript(
            f"PRAGMA application_id = {0x41324350}; PRAGMA user_version = 1; CREATE TABLE card (origin TEXT)"
        )
    content = path.read_bytes()
    with pytest.raises(
        ConfigurationError, match=r"version 1 .*reads version 3; use the release .*move the file away to begin with an"
    ):
        SqliteCardMemory(path, create=True)
    assert path.read_bytes() == content


# --- files that are damaged, or gone


@pytest.mark.parametrize("content", [b"", b"\0" * 8192, b"The quick brown fox jumps over the lazy dog. " * 100])
def test_a_file_that_is_no_memory_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="not a valid memory of cards"):
        SqliteCardMemory(path, create=True)
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_database_of_something_else_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE card (origin)")
    with pytest.raises(ConfigurationError, match="not a valid memory of cards"):
        SqliteCardMemory(path, create=True)


@pytest.mark.parametrize(
    ("start", "end"), [(0, 16), (0, 4096), (100, 4096), (4096, 8192), (4096, 4104), (4096, None), (8192, None)]
)
def test_a_damaged_memory_is_refused_and_never_taken_for_an_empty_one(
    memory: SqliteCardMemory, path: Path, start: int, end: int | None
) -> None:
    """Overwritten from ``start`` to ``end``, or cut off there."""
    for number in range(100):
        memory.accept(f"https://agent-{number}.example.com", [KEY], now=NOW)
    memory.accept(AGENT, [KEY], now=NOW)
    content = path.read_bytes()
    assert len(content) > 12_288
    damaged = content[:start] + (b"" if end is None else b"\0" * (end - start) + content[end:])
    path.write_bytes(damaged)
    with pytest.raises((CardMemoryUnavailableError, ConfigurationError), match="damaged"):
        SqliteCardMemory(path, create=True)
    with pytest.raises((CardMemoryUnavailableError, ConfigurationError), match="damaged"):
        memory.records()
    assert path.read_bytes() == damaged


def test_a_memory_that_vanishes_is_an_error_and_is_not_made_anew(memory: SqliteCardMemory, path: Path) -> None:
    memory.accept(AGENT, [KEY], now=NOW)
    path.unlink()
    with pytest.raises(CardMemoryUnavailableError):
        memory.expects_signature(AGENT)
    with pytest.raises(CardMemoryUnavailableError):
        memory.admit(proof(BOB, on_first_use=True), AGENT, now=NOW)
    assert not path.exists()


def test_the_database_itself_refuses_what_is_no_record(memory: SqliteCardMemory, path: Path) -> None:
    memory.accept(AGENT, [KEY], now=NOW)
    with closing(sqlite3.connect(path)) as other:
        for change in (
            "thumbprints = ''",
            "issued = 'never'",
            "first_seen = NULL",
            "on_first_use = 2",
            "version = x''",
        ):
            with pytest.raises(sqlite3.IntegrityError):
                other.execute(f"UPDATE card SET {change}")
        for values in (f"'{KEY[:-1]}', 'x'", f"NULL, '{AGENT}'", f"'{KEY}', NULL"):
            with pytest.raises(sqlite3.IntegrityError):
                other.execute(f"INSERT INTO interface VALUES ({values})")


# --- several at once


def test_while_somebody_writes_readers_go_on_and_writers_say_so(path: Path) -> None:
    memory = SqliteCardMemory(path, create=True, timeout=0.05)
    memory.accept(AGENT, [KEY], now=NOW)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM card")
        assert memory.expects_signature(AGENT)
        with pytest.raises(CardMemoryUnavailableError, match="locked"):
            memory.admit(proof(ALICE), AGENT, now=NOW)
        other.execute("ROLLBACK")
    assert memory.admit(proof(ALICE), AGENT, now=NOW).before is not None


def test_processes_that_make_the_memory_and_write_at_once_lose_nothing(path: Path) -> None:
    processes = [
        start(path, f"for n in range(20): memory.accept(f'agent-{number}-{{n}}.example', [{KEY!r}], now=1.0)")
        for number in range(3)
    ]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert len(SqliteCardMemory(path).records()) == 60
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_process_that_dies_while_it_writes_leaves_all_as_it_was(memory: SqliteCardMemory, path: Path) -> None:
    before = memory.accept(AGENT, [KEY], now=NOW)
    body = (
        "with memory._writing() as table:\n"
        f"    table.remove({AGENT!r})\n"
        "    print('inside', flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = start(path, body)
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    process.stdout.close()
    assert memory.records() == (before,)
    assert memory.admit(proof(ALICE), AGENT, now=NOW).before == before


def test_of_threads_that_are_first_at_once_one_wins(memory: SqliteCardMemory) -> None:
    signers = [generate_signer("EdDSA") for _ in range(6)]
    gate = threading.Barrier(len(signers))
    won: list[str] = []
    refused: list[frozenset[str]] = []

    def work(signer: LocalSigner) -> None:
        trust = TrustOnFirstUse().trust_store([signer.public_key], AGENT, TrustStore(()))
        document = json.dumps(sign_card(CARD, signer).card).encode()
        verified = verify_card(document, trust, origin=AGENT, now=NOW)
        gate.wait()
        try:
            memory.admit(verified, AGENT, now=NOW)
        except PinnedKeyError as error:
            refused.append(error.pinned)
        else:
            won.append(thumbprint(signer))

    threads = [threading.Thread(target=work, args=[signer]) for signer in signers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert refused == [frozenset(won)] * 5
    assert [record.thumbprints for record in memory.records()] == [frozenset(won)]
