"""Several signers of one card at once: every signature is in the card afterwards, and no signer waits for ever."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from a2a_trust.keys import base64url
from a2a_trust.keys.files import save_private_key
from a2a_trust.keys.signer import generate_signer
from tests.cli.conftest import CARD, COMMAND
from tests.faults.processes import started
from tests.faults.stepwise import Lacking, Server

CARDS = ("a.json", "b.json", "c.json")
KIDS = ("one", "two", "three", "four", "five")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three cards and five keys, to be copied."""
    folder = tmp_path_factory.mktemp("files")
    for name in CARDS:
        (folder / name).write_text(json.dumps(CARD))
    for kid in KIDS:
        save_private_key(folder / f"{kid}.jwk", generate_signer(kid=kid), format="jwk")
    return folder


def signers_of(card: Path) -> set[str]:
    """The kids of the signatures."""
    entries = json.loads(card.read_bytes()).get("signatures", [])
    return {json.loads(base64url.decode(entry["protected"], "protected"))["kid"] for entry in entries}


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("nameless", [True, False], ids=["nameless", "named"])
@pytest.mark.parametrize("first", [("a.json", "b.json"), ("b.json", "a.json")], ids=" ".join)
def test_a_signer_waits_for_another_one_wherever_that_is(
    first: Sequence[str], nameless: bool, commands: Server, files: Path, tmp_path: Path
) -> None:
    """Two cards, named in both orders: a signer that has one and waits for the other would wait for ever."""
    lacking, waited = Lacking(nameless_files=not nameless), 0
    for folder, one in commands.stopped_at_every_point(files, tmp_path, *first, "--key", "one.jwk", lacking=lacking):
        two = commands.start(folder, "a.json", "b.json", "--key", "two.jwk", lacking=lacking)
        waited += two.wait_until_blocked()
        one.goes_on()
        assert (one.ended(), two.ended()) == (0, 0)
        assert [signers_of(folder / name) for name in ("a.json", "b.json")] == [{"one", "two"}] * 2
        assert hidden(folder) == []
    assert waited > 3


def test_without_locks_a_signer_refuses_when_another_one_was_faster(
    commands: Server, files: Path, tmp_path: Path
) -> None:
    """As on Windows. Only a change between the last look and the renaming, which follow each other, is not noticed."""
    refused = 0
    for folder, one in commands.stopped_at_every_point(
        files, tmp_path, "a.json", "--key", "one.jwk", lacking=Lacking(locks=True)
    ):
        is_too_late = hidden(folder) != []
        assert commands.run(folder, "a.json", "--key", "two.jwk", lacking=Lacking(locks=True))[0] == 0
        one.goes_on()
        code = one.ended()
        refused += code == 6
        assert code in (0, 6)
        if not is_too_late:
            assert signers_of(folder / "a.json") == ({"one", "two"} if code == 0 else {"two"})
            assert hidden(folder) == []
    assert refused > 3


@pytest.mark.parametrize("number", [2, 5])
def test_rounds_of_signers_at_once(number: int, files: Path, tmp_path: Path, is_long: bool) -> None:
    """The command as people start it. ``pytest -s`` shows in how many rounds a signature was lost."""
    rounds, lost = (60 if number == 2 else 20) if is_long else 2, 0
    for each in range(rounds):
        folder = tmp_path / str(each)
        shutil.copytree(files, folder)
        commands = [[COMMAND, *_rotated(CARDS, turn), "--key", f"{kid}.jwk"] for turn, kid in enumerate(KIDS[:number])]
        with ExitStack() as stack:
            signers = [
                stack.enter_context(started(command, cwd=folder, stdout=subprocess.DEVNULL)) for command in commands
            ]
            assert [signer.wait(timeout=120) for signer in signers] == [0] * number
        lost += any(signers_of(folder / name) != set(KIDS[:number]) for name in CARDS)
    print(f"\n{number} signers at once: a signature was lost in {lost} of {rounds} rounds")
    assert lost == 0


def _rotated(names: Sequence[str], by: int) -> Sequence[str]:
    return [*names[by % len(names) :], *names[: by % len(names)]]


def test_a_card_that_is_named_twice_is_signed_once(commands: Server, files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    (folder / "link.json").symlink_to("a.json")
    names = ("a.json", "b.json", "link.json", f"{folder}/a.json", "a.json")
    code, said = commands.run(folder, *names, "--key", "one.jwk")
    assert (code, said.count(": signed by one")) == (0, 4)  # a name that stands there twice is one card
    assert (signers_of(folder / "a.json"), (folder / "link.json").is_symlink()) == ({"one"}, True)
    assert len(json.loads((folder / "a.json").read_bytes())["signatures"]) == 1
    code, said = commands.run(folder, "link.json", "-o", "a.json", "--key", "two.jwk")
    assert (code, signers_of(folder / "a.json")) == (0, {"one", "two"})


def test_two_names_of_one_card_by_a_hard_link_become_two_cards(commands: Server, files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    os.link(folder / "a.json", folder / "same.json")
    assert commands.run(folder, "a.json", "same.json", "--key", "one.jwk")[0] == 0
    assert [signers_of(folder / name) for name in ("a.json", "same.json")] == [{"one"}] * 2


def test_a_signer_that_waits_ends_by_a_signal(commands: Server, files: Path, tmp_path: Path) -> None:
    import fcntl
    import signal

    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        with (folder / "b.json").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            waiting = commands.start(folder, "a.json", "b.json", "--key", "one.jwk")
            assert waiting.wait_until_blocked()
            os.kill(waiting.pid, number)
            assert waiting.ended() == 128 + number
    assert ([signers_of(folder / name) for name in ("a.json", "b.json")], hidden(folder)) == ([{"one"}, set()], [])
