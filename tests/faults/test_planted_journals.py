"""A stranger who may make files beside a store, in a sticky folder, leaves a journal there for root to open."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from a2a_trust.auth.api_key.sqlite import SqliteApiKeys
from a2a_trust.errors import ConfigurationError
from tests.cli.conftest import COMMAND
from tests.faults.stores import beside, mv_of

AS_ROOT = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="*** NOT TESTED: only root can become another user ***",
)

MAGIC = bytes.fromhex("d9d505f920a163d7")
PAGE, SECTOR = 4096, 512

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


def filled(content: bytes) -> bytes:
    return content + bytes(-len(content) % SECTOR)


def part(pages: int, records: dict[int, bytes]) -> bytes:
    """One part of a journal, with checksums that hold."""
    content = filled(MAGIC + struct.pack(">IIIII", len(records), 7, pages, SECTOR, PAGE))
    for number, page in records.items():
        checksum = (7 + sum(page[PAGE - 200 : 0 : -200])) & 0xFFFFFFFF
        content += struct.pack(">I", number) + page + struct.pack(">I", checksum)
    return filled(content)


def that_replaces(store: Path, other: Path) -> bytes:
    """A journal whose first part changes nothing, and whose second one puts back every page of another store."""
    content = other.read_bytes()
    pages = {number + 1: content[number * PAGE : (number + 1) * PAGE] for number in range(len(content) // PAGE)}
    return part(store.stat().st_size // PAGE, {}) + part(len(pages), pages)


def that_deletes(content: bytes, file: Path) -> bytes:
    """The same, naming a file that SQLite deletes when it has played the journal."""
    name = bytes(file)
    return content + struct.pack(">I", 1048577) + name + struct.pack(">II", len(name), sum(name)) + MAGIC


@AS_ROOT
@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize("is_empty", [True, False])
def test_a_journal_of_a_stranger_is_refused(path: Path, tmp_path: Path, suffix: str, is_empty: bool) -> None:
    store = SqliteApiKeys(path, create=True)
    issued = store.create(owner="victim")
    other = tmp_path / "other.db"
    SqliteApiKeys(other, create=True).create(owner="victim", scopes=["admin"])
    precious = tmp_path / "precious"
    precious.touch()
    before = path.read_bytes()
    planted(path, b"" if is_empty else that_deletes(that_replaces(path, other), precious), suffix)
    listed = subprocess.run([COMMAND, "api-key", "list", "--store", path], capture_output=True, text=True, check=False)
    assert listed.returncode == 2
    with pytest.raises(ConfigurationError, match="belongs to user 65534") as caught:
        store.records()
    assert precious.exists()
    assert path.read_bytes() == before
    assert f"chmod go-w {path.parent}" in str(caught.value)
    mv_of(str(caught.value))
    assert store.records() == (issued.record,)


@pytest.mark.parametrize("how", ["second part", "names a file", "link", "folder", "for everybody"])
def test_a_journal_that_does_more_than_undo_a_change_is_refused(path: Path, tmp_path: Path, how: str) -> None:
    """Whoever made it: here it is our own."""
    store, other = SqliteApiKeys(path, create=True), tmp_path / "other.db"
    store.create(owner="victim")
    shutil.copy(path, other)
    SqliteApiKeys(other).create(owner="thief")
    before, precious, journal = path.read_bytes(), tmp_path / "precious", beside(path, "-journal")
    precious.touch()
    if how == "second part":
        journal.write_bytes(that_replaces(path, other))
    elif how == "names a file":
        journal.write_bytes(that_deletes(part(path.stat().st_size // PAGE, {}), precious))
    elif how == "link":
        journal.symlink_to(tmp_path / "to be made")
    elif how == "folder":
        journal.mkdir()
    else:
        journal.touch()
        journal.chmod(0o666)
    with pytest.raises(ConfigurationError, match="mv ") as caught:
        store.records()
    assert (path.read_bytes(), precious.exists()) == (before, True)
    mv_of(str(caught.value))
    assert [record.owner for record in store.records()] == ["victim"]


def test_a_journal_of_several_parts_is_played_where_it_belongs(path: Path) -> None:
    store = SqliteApiKeys(path, create=True)
    store.create(owner="alice")
    content = path.read_bytes()
    pages = {number + 1: content[number * PAGE : (number + 1) * PAGE] for number in range(len(content) // PAGE)}
    first, last = dict([*pages.items()][:1]), dict([*pages.items()][1:])
    beside(path, "-journal").write_bytes(part(len(pages), last) + part(len(pages), first))
    assert [record.owner for record in store.records()] == ["alice"]
    assert not beside(path, "-journal").exists()
    assert path.read_bytes() == content
