"""Processes that are killed while they change keys: what they said was done is done, and nothing is torn."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

from a2a_trust.auth.record_table import SqliteApiKeys
from tests.faults.processes import started

#: Makes, rotates and revokes keys, and says so after each.
WORKER = """
import sys
from datetime import timedelta
from a2a_trust import SqliteApiKeys
store = SqliteApiKeys(sys.argv[1], timeout=50)
while True:
    first = store.create(owner="alice").record.key_id
    print("made", first, flush=True)
    second = store.rotate(first, overlap=timedelta(0), expires=9e9).record.key_id
    print("rotated", first, second, flush=True)
    store.revoke(second)
    print("revoked", second, flush=True)
"""


def test_no_change_that_was_acknowledged_is_lost(tmp_path: Path, is_long: bool) -> None:
    path = tmp_path / "keys.db"
    store = SqliteApiKeys(path, create=True)
    acknowledged: list[str] = []
    journals = 0
    for _ in range(100 if is_long else 5):
        command = [sys.executable, "-c", WORKER, str(path)]
        with ExitStack() as stack:
            workers = [stack.enter_context(started(command, stdout=subprocess.PIPE, text=True)) for _ in range(2)]
            for worker in workers:
                assert worker.stdout is not None
                acknowledged.append(worker.stdout.readline())
            time.sleep(random.uniform(0.001, 0.05))
            for worker in workers:
                worker.kill()
            journals += path.with_name("keys.db-journal").exists()
            for worker in workers:
                out, _ = worker.communicate()
                acknowledged += [line for line in out.splitlines(keepends=True) if line.endswith("\n")]
        records = {record.key_id: record for record in store.records()}
        for line in acknowledged:
            what, key_id, *rest = line.split()
            assert what != "revoked" or records[key_id].revoked is not None
            assert what != "rotated" or records[key_id].replaced_by == rest[0]
            assert key_id in records
        successors = {record.key_id for record in records.values() if record.expires == 9e9}
        assert successors == {record.replaced_by for record in records.values()} - {None}, "half a rotation"
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert len(acknowledged) >= 10
    store.create(owner="bob")
    assert [file.name for file in tmp_path.iterdir()] == ["keys.db"]
    assert journals or not is_long, "no kill hit a change"
