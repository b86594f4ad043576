"""A new API key exists in one place, the output of the command: where that fails, the key must not live on unseen.

The outputs are real: a pipe that nobody reads, a device that is always full, a descriptor that is closed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from a2a_trust.auth.record_table import SqliteApiKeys
from tests.cli.conftest import COMMAND
from tests.faults.folders import TMPFS, small_disk

STORE = "keys.db"


def unread_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def full_device() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def run(folder: Path, output: int | None, *arguments: str) -> tuple[int, str]:
    """The exit code, and what came on standard error."""
    command = [str(COMMAND), "api-key", *arguments]
    if output is None:
        command = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    if output is not None:
        os.close(output)
    return done.returncode, done.stderr


@pytest.mark.parametrize("json", [(), ("--json",)])
@pytest.mark.parametrize(("output", "why"), [(unread_pipe, "Broken pipe"), (full_device, "No space left on device")])
def test_a_new_key_that_nobody_saw_is_revoked_again(
    tmp_path: Path, output: Callable[[], int], why: str, json: tuple[str, ...]
) -> None:
    code, said = run(tmp_path, output(), "create", "--store", STORE, "--owner", "alice", *json)
    (record,) = SqliteApiKeys(tmp_path / STORE).records()
    assert code == 6
    assert record.revoked is not None
    assert said.splitlines() == [
        f"a2a-sign: error: the new key could not be shown ({why}); {record.key_id} was revoked at once. "
        "Run the command again"
    ]


@pytest.mark.parametrize("json", [(), ("--json",)])
@pytest.mark.parametrize("output", [unread_pipe, full_device])
def test_after_a_rotation_that_nobody_saw_the_old_key_goes_on_as_it_was(
    tmp_path: Path, output: Callable[[], int], json: tuple[str, ...]
) -> None:
    store = SqliteApiKeys(tmp_path / STORE, create=True)
    old = store.create(owner="alice", scopes=["read"]).record
    code, said = run(tmp_path, output(), "rotate", "--store", STORE, old.key_id, "--overlap", "0d", *json)
    kept, new = store.records()
    assert code == 6
    assert kept == old
    assert new.revoked is not None
    assert f"{new.key_id} was revoked at once, and {old.key_id} stays valid as before" in said


@pytest.mark.parametrize("action", ["create", "rotate"])
def test_where_no_key_can_be_shown_none_is_made(tmp_path: Path, action: str) -> None:
    store = SqliteApiKeys(tmp_path / STORE, create=True)
    old = store.create(owner="alice").record
    arguments = ["--owner", "bob"] if action == "create" else [old.key_id]
    code, said = run(tmp_path, None, action, "--store", STORE, *arguments)
    assert code == 6
    assert "standard output is closed" in said
    assert store.records() == (old,)


#: The command, which gets a signal right after a statement, when it runs for the time of that number.
SIGNALLED = """
import os, sqlite3, sys
from a2a_trust.cli.main import main
number, statement, left = int(sys.argv.pop(1)), sys.argv.pop(1), int(sys.argv.pop(1))
connect = sqlite3.connect
class Connection(sqlite3.Connection):
    def execute(self, sql, *values):
        global left
        done = super().execute(sql, *values)
        if sql == statement:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), number)
        return done
sqlite3.connect = lambda *arguments, **named: connect(*arguments, **named, factory=Connection)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("action", ["create", "rotate"])
def test_a_key_that_a_signal_keeps_from_being_shown_is_taken_back(
    tmp_path: Path, action: str, number: signal.Signals
) -> None:
    """The signal comes when the key is good, and nobody has seen it."""
    path = tmp_path / STORE
    old = SqliteApiKeys(path, create=True).create(owner="alice").record
    arguments = ["--owner", "bob"] if action == "create" else [old.key_id, "--overlap", "1h"]
    command = [
        sys.executable,
        "-c",
        SIGNALLED,
        str(int(number)),
        "COMMIT",
        "1",
        "api-key",
        action,
        "--store",
        str(path),
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
    kept, new = SqliteApiKeys(path).records()
    assert (abs(done.returncode) % 128, done.stdout) == (number, "")
    assert kept == old
    assert new.revoked is not None


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_a_key_is_taken_back_whatever_signal_comes_meanwhile(tmp_path: Path) -> None:
    """The key cannot be shown, and the signal comes in the middle of its revocation."""
    path = tmp_path / STORE
    old = SqliteApiKeys(path, create=True).create(owner="alice").record
    point = [str(int(signal.SIGINT)), "BEGIN IMMEDIATE", "2"]
    command = [sys.executable, "-c", SIGNALLED, *point, "api-key", "rotate", "--store", str(path)]
    output = full_device()
    subprocess.run([*command, old.key_id], stdout=output, stderr=subprocess.DEVNULL, timeout=60, check=False)
    os.close(output)
    kept, new = SqliteApiKeys(path).records()
    assert kept == old
    assert new.revoked is not None


@TMPFS
def test_a_key_for_a_file_on_a_full_disk_is_revoked_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        disk.fill()
        output = os.open(disk.path / "ann.key", os.O_WRONLY | os.O_CREAT, 0o600)
        code, said = run(tmp_path, output, "create", "--store", STORE, "--owner", "ann")
        assert (disk.path / "ann.key").read_bytes() == b""
    assert code == 6
    assert "was revoked at once" in said
    assert [record.revoked is None for record in SqliteApiKeys(tmp_path / STORE).records()] == [False]


def test_a_key_that_was_revoked_or_rotated_meanwhile_stays_so(tmp_path: Path) -> None:
    store = SqliteApiKeys(tmp_path / STORE, create=True)
    old = store.create(owner="alice").record
    issued = store.rotate(old.key_id, overlap=timedelta(hours=1))
    revoked = store.revoke(old.key_id)
    store.take_back(issued)
    (kept, _) = store.records()
    assert kept.revoked == revoked.revoked
