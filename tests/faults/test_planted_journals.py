"""A stranger who may make files beside a store, in a sticky folder, leaves a journal there for root to open."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from a2a_trust.auth.record_table import SqliteApiKeys
from a2a_trust.errors import ConfigurationError
from tests.cli.conftest import COMMAND
from tests.faults.stores import beside, mv_of

AS_ROOT = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="*** NOT TESTED: only root can become another user ***",
)

PLANT = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    open(sys.argv[1], "rb")
except PermissionError:
    open(sys.argv[1] + sys.argv[2], "xb").write(sys.stdin.buffer.read())
"""


@pytest.fixture
def path() -> Iterator[Path]:
    """In a folder that everybody can write to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder) / "keys.db"


def planted(path: Path, content: bytes, suffix: str = "-journal") -> None:
    """Have the stranger write the file, who cannot read the store."""
    subprocess.run([sys.executable, "-c", PLANT, path, suffix], input=content, check=True)
    assert beside(path, suffix).stat().st_uid == 65534


@AS_ROOT
@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize("is_empty", [True, False])
def test_a_journal_of_a_stranger_is_refused(path: Path, suffix: str, is_empty: bool) -> None:
    store = SqliteApiKeys(path, create=True)
    issued = store.create(owner="victim")
    before = path.read_bytes()
    planted(path, b"" if is_empty else b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", suffix)
    listed = subprocess.run([COMMAND, "api-key", "list", "--store", path], capture_output=True, text=True, check=False)
    assert listed.returncode == 2
    with pytest.raises(ConfigurationError, match="belongs to user 65534") as caught:
        store.records()
    assert path.read_bytes() == before
    assert f"chmod go-w {path.parent}" in str(caught.value)
    mv_of(str(caught.value))
    assert store.records() == (issued.record,)


@pytest.mark.parametrize("how", ["link", "folder", "for everybody"])
def test_a_journal_that_another_user_could_write_is_refused(path: Path, tmp_path: Path, how: str) -> None:
    """Whoever made it: here it is our own."""
    store = SqliteApiKeys(path, create=True)
    store.create(owner="victim")
    before, journal = path.read_bytes(), beside(path, "-journal")
    if how == "link":
        journal.symlink_to(tmp_path / "to be made")
    elif how == "folder":
        journal.mkdir()
    else:
        journal.touch()
        journal.chmod(0o666)
    with pytest.raises(ConfigurationError, match="mv ") as caught:
        store.records()
    assert path.read_bytes() == before
    mv_of(str(caught.value))
    assert [record.owner for record in store.records()] == ["victim"]
