"""Full and read-only disks: the command names the file and what to do, nothing is half written, the old stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from a2a_trust.keys.files import save_private_key
from a2a_trust.keys.ring_file import save_key_ring
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.edit import EMPTY, entry_of_key, with_entries
from tests.cli.conftest import CARD
from tests.faults.folders import TMPFS, Disk, small_disk
from tests.faults.stepwise import Server

pytestmark = TMPFS

#: Commands that write, and the file that the error has to name.
WRITING = [
    ("keygen -o disk/new.pem", "disk/new.jwks.json"),
    ("keys create disk/new.json", "disk/new.json"),
    ("keys revoke disk/ring.json old", "disk/ring.json"),
    ("keys export disk/ring.json -o disk/new.json", "disk/new.json"),
    ("keys export disk/ring.json -o disk/keys.json", "disk/keys.json"),
    ("keys rotate disk/ring.json", "disk/ring.json"),
    ("disk/card.json --key disk/lone.jwk", "disk/card.json"),
    ("disk/card.json disk/fix.json --key disk/lone.jwk", "disk/card.json"),
    ("disk/card.json -o disk/new.json --key disk/lone.jwk", "disk/new.json"),
    ("lint --fix disk/fix.json", "disk/fix.json"),
    ("trust add disk/new.toml --origin a.example --public-key lone.pub", "disk/new.toml"),
    ("trust add disk/trust.toml --origin b.example --public-key lone.pub", "disk/trust.toml"),
    ("trust remove disk/trust.toml first", "disk/trust.toml"),
    ("trust revoke disk/trust.toml first", "disk/trust.toml"),
]
#: Commands that read what is on the disk, as from a mounted secret, and write nothing to it.
READING = [
    "keys list disk/ring.json",
    "keys export disk/ring.json",
    "keys export disk/ring.json -o exported.json",
    "disk/card.json --key disk/ring.json -o signed.json",
    "own.json --key disk/ring.json",
    "verify signed.json --any-origin --jwks exported.json",
    "trust list disk/trust.toml",
    "lint disk/card.json",
    "inspect disk/card.json",
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk with a file of each kind; in ``lone.jwk`` a private key alone."""
    with small_disk(tmp_path / "disk") as disk:
        first = generate_signer(kid="first")
        save_private_key(disk.path / "lone.jwk", generate_signer(kid="lone"), format="jwk")
        save_key_ring(disk.path / "ring.json", KeyRing.begin(generate_signer(kid="old"), 0.0))
        (disk.path / "keys.json").write_text("{}")
        for name, card in (("card.json", CARD), ("fix.json", {**CARD, "iconUrl": None})):
            (disk.path / name).write_text(json.dumps(card))
        entry = entry_of_key(first.public_key, origins=["a.example"])
        (disk.path / "trust.toml").write_text(with_entries(EMPTY, [entry]))
        (tmp_path / "lone.pub").write_bytes(generate_signer().public_key.to_pem())
        (tmp_path / "own.json").write_text(json.dumps(CARD))
        yield disk


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(("arguments", "file"), WRITING, ids=[arguments for arguments, _ in WRITING])
def test_a_full_disk(arguments: str, file: str, disk: Disk, commands: Server, tmp_path: Path) -> None:
    before = content(disk.path)
    disk.fill()
    code, said = commands.run(tmp_path, *arguments.split())
    assert code == 6
    assert said == (
        f"a2a-sign: error: {file}: No space left on device; free some space and run the command again; "
        "nothing was written\n"
    )
    disk.empty()
    assert content(disk.path) == before
    assert commands.run(tmp_path, *arguments.split())[0] == 0
    assert content(disk.path) != before


@pytest.mark.parametrize(("arguments", "file"), WRITING, ids=[arguments for arguments, _ in WRITING])
def test_a_read_only_disk(arguments: str, file: str, disk: Disk, commands: Server, tmp_path: Path) -> None:
    before = content(disk.path)
    with disk.read_only():
        code, said = commands.run(tmp_path, *arguments.split())
        assert code == 6
        assert said == (
            f"a2a-sign: error: {file}: Read-only file system; write to another place, or make this one writable; "
            "nothing was written\n"
        )
        assert content(disk.path) == before
    assert commands.run(tmp_path, *arguments.split())[0] == 0


def test_what_only_reads_works_on_a_disk_that_is_full_or_read_only(
    disk: Disk, commands: Server, tmp_path: Path
) -> None:
    disk.fill()
    before = content(disk.path)
    with disk.read_only():
        for arguments in READING:
            code, said = commands.run(tmp_path, *arguments.split())
            assert (code, "error" in said) == (0, False), said
    assert content(disk.path) == before
