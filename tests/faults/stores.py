"""Key stores as kills and restores leave them."""

from __future__ import annotations

import random
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from a2a_trust.files.sqlite import _Journal
from tests.faults.processes import started

__all__ = ["beside", "early_journal", "hot_journal", "mv_of", "way_out"]

_WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
print("begun", flush=True)
while True:
    connection.execute("UPDATE api_key SET owner = owner || 'x'")
"""


def beside(path: Path, suffix: str) -> Path:
    """The file of that suffix beside the store."""
    return path.with_name(f"{path.name}{suffix}")


def hot_journal(path: Path) -> Path:
    """The journal that a process leaves that is killed while it writes: so often until one is left."""
    journal = beside(path, "-journal")
    for _ in range(300):
        with started([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(random.uniform(0.001, 0.02))
        if _Journal.read(journal) is not None:
            return journal
        journal.unlink(missing_ok=True)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("UPDATE api_key SET owner = rtrim(owner, 'x')")
    raise AssertionError("300 kills, and no journal was left in the middle of a change")


def early_journal(path: Path) -> Path:
    """The journal that a process leaves, which does not wait for the disk, when it is killed before it commits."""
    body = (
        "import os, signal, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('PRAGMA synchronous = OFF')\n"
        "connection.execute('BEGIN IMMEDIATE')\n"
        "connection.execute('UPDATE api_key SET owner = owner || owner')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", body, path], check=False).returncode == -signal.SIGKILL
    journal = _Journal.read(beside(path, "-journal"))
    assert journal is not None
    assert 1 not in dict(journal.records)
    return beside(path, "-journal")


def way_out(message: str, *, word: str) -> list[str]:
    """The command in an error that begins with ``word``, with its arguments."""
    command = message[message.index(f"{word} ") :].partition("   ")[0]
    return shlex.split(command)


def mv_of(message: str) -> None:
    """Do what the error says."""
    subprocess.run(way_out(message, word="mv"), check=True)
