"""Files that somebody replaces, edits or removes, without any lock, while a command works on them: theirs stays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from a2a_trust.keys.files import save_private_key
from a2a_trust.keys.ring_file import save_key_ring
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.edit import EMPTY, entry_of_key, with_entries
from tests.cli.conftest import CARD
from tests.faults.stepwise import Server


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of each kind, and ``new-…``, which takes its place."""
    folder = tmp_path_factory.mktemp("files")
    signer = generate_signer(kid="first")
    save_private_key(folder / "first.jwk", signer, format="jwk")
    entry = entry_of_key(signer.public_key, origins=["a.example"])
    for name in ("", "new-"):
        for number in (1, 2):
            card = {**CARD, "version": f"{name}{number}", "iconUrl": None}
            (folder / f"{name}{number}.json").write_text(json.dumps(card))
        (folder / f"{name}trust.toml").write_text(f"# {name}\n{with_entries(EMPTY, [entry])}")
        save_key_ring(folder / f"{name}ring.json", KeyRing.begin(generate_signer(kid=f"{name}old"), 0.0))
    return folder


def moved(old: Path, new: Path) -> None:
    new.replace(old)


def edited(old: Path, new: Path) -> None:
    old.write_bytes(new.read_bytes())


def linked(old: Path, new: Path) -> None:
    old.unlink()
    old.symlink_to(new)


@pytest.mark.parametrize("replaced", [moved, edited, linked])
@pytest.mark.parametrize(
    ("arguments", "name", "mark"),
    [
        ("1.json --key first.jwk", "1.json", '"new-1"'),
        ("1.json -o 1.json --key first.jwk", "1.json", '"new-1"'),
        ("lint --fix 1.json", "1.json", '"new-1"'),
        ("trust revoke trust.toml first", "trust.toml", "# new-"),
        ("keys rotate ring.json", "ring.json", '"new-old"'),
    ],
)
def test_what_somebody_puts_in_place_meanwhile_stays(
    arguments: str,
    name: str,
    mark: str,
    replaced: Callable[[Path, Path], None],
    commands: Server,
    files: Path,
    tmp_path: Path,
) -> None:
    """Only a change between the last look and the renaming, which follow each other, is not noticed."""
    refused = 0
    for folder, run in commands.stopped_at_every_point(files, tmp_path, *arguments.split()):
        is_too_late = (folder / f".{name}.a2a-sign").exists()
        replaced(folder / name, folder / f"new-{name}")
        theirs = (folder / name).read_bytes()
        run.goes_on()
        code, said = run.ended(), run.said.read_text()
        assert code in (0, 6), said
        if code == 6:
            refused += 1
            assert f"{name}: another program changed it meanwhile; nothing was written to it" in said
        if not is_too_late:
            assert mark in (folder / name).read_text()
            assert code == 0 or (folder / name).read_bytes() == theirs
            assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    assert refused > 3


@pytest.mark.parametrize("replaced", [moved, edited, linked])
def test_of_several_cards_one_that_was_replaced_stays_and_the_error_names_those_that_are_written(
    replaced: Callable[[Path, Path], None], commands: Server, files: Path, tmp_path: Path
) -> None:
    before, refused = (files / "1.json").read_bytes(), 0
    for folder, run in commands.stopped_at_every_point(files, tmp_path, "1.json", "2.json", "--key", "first.jwk"):
        replaced(folder / "2.json", folder / "new-2.json")
        theirs = (folder / "2.json").read_bytes()
        run.goes_on()
        code, said = run.ended(), run.said.read_text()
        assert code in (0, 6), said
        if code == 6:
            refused += 1
            assert (folder / "2.json").read_bytes() == theirs
            is_written = (folder / "1.json").read_bytes() != before
            assert ("these cards were signed and written before the error: 1.json" in said) is is_written
    assert refused > 3


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("1.json --key first.jwk", "1.json"),
        ("lint --fix 1.json", "1.json"),
        ("trust revoke trust.toml first", "trust.toml"),
        ("keys rotate ring.json", "ring.json"),
    ],
)
def test_what_was_removed_meanwhile_stays_removed(
    arguments: str, name: str, commands: Server, files: Path, tmp_path: Path
) -> None:
    """Made again, it would have other rights: a ring, those of any new file."""
    refused = 0
    for folder, run in commands.stopped_at_every_point(files, tmp_path, *arguments.split()):
        is_too_late = (folder / f".{name}.a2a-sign").exists()
        (folder / name).unlink()
        run.goes_on()
        refused += run.ended() == 6
        assert is_too_late or not (folder / name).exists()
    assert refused > 3


def test_a_change_that_nobody_made_refuses_nothing(commands: Server, files: Path, tmp_path: Path) -> None:
    """Who reads a card, or names it by another name, changes nothing."""
    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    (folder / "link.json").symlink_to("1.json")
    run = commands.start(folder, "link.json", "--key", "first.jwk", point=9, number=19)
    assert run.stopped()
    (folder / "1.json").read_bytes()
    run.goes_on()
    assert run.ended() == 0
