"""Key stores as kills and restores leave them."""

from __future__ import annotations

import random
import shlex
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from tests.faults.processes import started

__all__ = ["beside", "hot_journal", "mv_of", "way_out"]

_MAGIC = bytes.fromhex("d9d505f920a163d7")
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
        if journal.is_file() and journal.read_bytes().startswith(_MAGIC):  # else SQLite does not play it
            return journal
        journal.unlink(missing_ok=True)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("UPDATE api_key SET owner = rtrim(owner, 'x')")
    raise AssertionError("300 kills, and no journal was left in the middle of a change")


def way_out(message: str, *, word: str) -> list[str]:
    """The command in an error that begins with ``word``, with its arguments."""
    command = message[message.index(f"{word} ") :].partition("   ")[0]
    return shlex.split(command)


def mv_of(message: str) -> None:
    """Do what the error says."""
    subprocess.run(way_out(message, word="mv"), check=True)
