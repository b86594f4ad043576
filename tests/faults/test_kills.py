"""Commands that are killed leave no half file and no private key in an unknown file, and the next one cleans up."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from a2a_trust.base import strict_json
from a2a_trust.cli.main import main
from a2a_trust.keys.files import load_private_key, save_private_key
from a2a_trust.keys.jwk import public_key_from_jwk, read_jwks
from a2a_trust.keys.ring_file import load_key_ring, save_key_ring, update_key_ring
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.edit import EMPTY, entry_of_key, with_entries
from a2a_trust.keys.trust.file import load_trust
from tests.cli.conftest import CARD, COMMAND
from tests.faults.processes import started
from tests.faults.stepwise import Lacking, Server

PRIVATE = {"first.jwk", "key.jwk", "ring.json", "new.json"}
#: What tells whether a file is whole, by its name.
READERS = {
    "card.json": lambda path: strict_json.parse(path.read_bytes()),
    "out.json": lambda path: strict_json.parse(path.read_bytes()),
    "fix.json": lambda path: strict_json.parse(path.read_bytes()),
    "first.jwk": load_private_key,
    "key.jwk": load_private_key,
    "key.jwks.json": lambda path: read_jwks(path.read_bytes()).keys[0],
    "keys.json": lambda path: read_jwks(path.read_bytes()).keys[0],
    "ring.json": load_key_ring,
    "ring.jwk": lambda path: public_key_from_jwk(json.loads(path.read_bytes())),
    "new.json": load_key_ring,
    "trust.toml": load_trust,
    "new.toml": load_trust,
}


@dataclass(frozen=True)
class Command:
    """A command that writes; ``again`` are the exit codes of the same command when it is run after it was killed.

    ``may_lack``: what a kill between two files leaves out, and the next command does not write.
    """

    arguments: str
    makes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    again: tuple[int, ...] = (0,)
    may_lack: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        return self.arguments.split()

    @property
    def temporaries(self) -> set[str]:
        return {f".{name}.a2a-sign" for name in (*self.makes, *self.changes)}


COMMANDS = [
    Command(
        "keygen -o key.jwk --kid new", makes=("key.jwk", "key.jwks.json"), again=(0, 2), may_lack=("key.jwks.json",)
    ),
    Command("keys create new.json", makes=("new.json",), again=(0, 2)),
    Command("keys revoke ring.json old", changes=("ring.json",)),
    Command("keys export ring.json -o keys.json", makes=("keys.json",)),
    Command("keys rotate ring.json", changes=("ring.json",)),
    Command("card.json --key first.jwk", changes=("card.json",)),
    Command("card.json fix.json --key first.jwk", changes=("card.json", "fix.json")),
    Command("card.json -o out.json --key first.jwk", makes=("out.json",)),
    Command("lint --fix fix.json", changes=("fix.json",)),
    Command("trust add new.toml --origin a.example --public-key ring.jwk", makes=("new.toml",)),
    Command("trust add trust.toml --origin b.example --public-key ring.jwk", changes=("trust.toml",)),
    Command("trust revoke trust.toml first", changes=("trust.toml",)),
]


def make_files(folder: Path) -> None:
    """A folder with files of every kind."""
    folder.mkdir()
    first = generate_signer(kid="first")
    save_private_key(folder / "first.jwk", first, format="jwk")
    old = generate_signer(kid="old")
    save_key_ring(folder / "ring.json", KeyRing.begin(old, 0.0))
    (folder / "ring.jwk").write_text(json.dumps(old.public_key.to_jwk()))
    for name, card in (("card.json", CARD), ("fix.json", {**CARD, "iconUrl": None})):
        (folder / name).write_text(json.dumps(card))
    entry = entry_of_key(first.public_key, origins=["a.example"])
    (folder / "trust.toml").write_text(with_entries(EMPTY, [entry]))


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def check_whole(folder: Path, *, but: AbstractSet[str] = frozenset()) -> None:
    """Every file is whole, and private keys are where they belong, for their owner only."""
    for path in folder.iterdir():
        if path.name not in but:
            READERS[path.name](path)
        if b"PRIVATE KEY" in path.read_bytes() or b'"d"' in path.read_bytes():
            assert path.name in PRIVATE | but
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files before the command, to be copied."""
    folder = tmp_path_factory.mktemp("files") / "files"
    make_files(folder)
    return folder


SYSTEMS = pytest.mark.parametrize("lacking", [Lacking(), Lacking(nameless_files=True)], ids=["nameless", "named"])
EVERY_COMMAND = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.arguments.split(" --")[0])


@SYSTEMS
@EVERY_COMMAND
def test_a_kill_between_any_two_calls(
    command: Command, lacking: Lacking, commands: Server, files: Path, tmp_path: Path, is_long: bool
) -> None:
    """What SIGKILL leaves has the one name that is known, and the next command removes it."""
    before, left = names_in(files), set[str]()
    for point in count(1, 1 if is_long else 3):
        folder = tmp_path / str(point)
        shutil.copytree(files, folder)
        run = commands.start(folder, *command.words, point=point, number=signal.SIGKILL, lacking=lacking)
        if (code := run.ended()) != -signal.SIGKILL:
            break
        now = names_in(folder) - before - set(command.makes)
        left |= now
        assert now <= command.temporaries
        check_whole(folder, but=now)
        code, said = commands.run(folder, *command.words, lacking=lacking)
        assert code in command.again, said
        assert names_in(folder) - before >= {*command.makes} - {*command.may_lack}
        stays = {f".{name}.a2a-sign" for name in command.may_lack}  # it is public
        assert names_in(folder) <= before | {*command.makes} | stays
        check_whole(folder, but=stays)
        shutil.rmtree(folder)
    assert (code, point > 9) == (0, True)
    if not lacking.nameless_files:  # a new secret has no name before it is whole
        assert not left & {f".{name}.a2a-sign" for name in PRIVATE & {*command.makes}}


@SYSTEMS
@EVERY_COMMAND
def test_a_signal_between_any_two_calls(
    command: Command, lacking: Lacking, commands: Server, files: Path, tmp_path: Path, is_long: bool
) -> None:
    """What ends a pipeline cleans up at once, and says in one line what was written, which is true."""
    before, numbers = names_in(files), (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    ended = 0
    for point in count(1, 1 if is_long else 4):
        for number in numbers if is_long else (numbers[point // 4 % 3],):
            folder = tmp_path / f"{point}-{number}"
            shutil.copytree(files, folder)
            run = commands.start(folder, *command.words, point=point, number=number, lacking=lacking)
            code = run.ended()
            ended += code == 128 + number
            assert code in (0, 128 + number)
            written = {path.name for path in folder.iterdir() if path.read_bytes() != _content(files / path.name)}
            if code:
                check_interruption(run.said.read_text(), written)
            assert names_in(folder) - set(command.makes) == before
            check_whole(folder)
            shutil.rmtree(folder)
        if code == 0:
            break
    assert ended > 2


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def check_interruption(said: str, written: AbstractSet[str]) -> None:
    """The last line says which files were written. A file of the same content was written all the same."""
    line = said.splitlines()[-1]
    assert "Traceback" not in said
    assert line.startswith("a2a-sign: interrupted: ")
    assert ("nothing was written" in line) == (not written)
    counted = re.search(r"([0-9]+) of [0-9]+ cards (signed|fixed)", line)
    assert counted is None or int(counted[1]) == len(written)
    assert counted is not None or all(name in line for name in written)


def test_kills_at_any_moment(files: Path, tmp_path: Path, is_long: bool) -> None:
    """The command as people start it. ``pytest -s`` shows how many kills left a file that is not one of theirs."""
    before, kills, left_by_kills, strays = names_in(files), 0, 0, list[str]()
    chance = random.Random(14)
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    lasts = min(_seconds_of([COMMAND, "lint", "card.json"], files) for _ in range(5 if is_long else 2))
    for number in count():
        if number >= (880 if is_long else 12) and kills:
            break
        command = COMMANDS[number % len(COMMANDS)]
        folder = tmp_path / str(number)
        shutil.copytree(files, folder)
        run = [COMMAND, *command.words]
        with started(run, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            time.sleep(chance.uniform(0.4, 1.6) * lasts)
            process.send_signal(wanted := chance.choice((signal.SIGTERM, signal.SIGKILL)))
            said = process.communicate(timeout=60)[1].decode()
        assert "Traceback" not in said or process.returncode == -wanted, said
        left = names_in(folder) - before - set(command.makes)
        kills += process.returncode != 0
        lasts *= 1.0 if process.returncode else 0.95  # in the end a kill hits, however fast the machine has become
        left_by_kills += bool(left)
        strays += left - (command.temporaries if wanted == signal.SIGKILL else set())
        check_whole(folder, but=left)
        shutil.rmtree(folder)
    print(f"\n{kills} kills; {left_by_kills} left a temporary file, {len(strays)} of them one that stays")
    assert strays == []


def _seconds_of(command: list[str | Path], folder: Path) -> float:
    begin = time.monotonic()
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begin


#: Runs the command, which does this instead of bringing its first file to the disk.
INSTEAD_OF_SYNC = """
import os, signal, sys, time, weakref
from a2a_trust.cli.main import main

class Some: pass

def ignored(_):
    os.kill(os.getpid(), signal.SIGHUP)

def in_callback(_):
    some = Some()
    reference = weakref.ref(some, lambda _: [os.kill(os.getpid(), signal.SIGTERM), str(1)])
    del some  # what the callback raises goes no further, as when the import system frees a lock
    time.sleep(20)

def in_class(_):
    class Name:
        def __set_name__(self, owner, name):
            os.kill(os.getpid(), signal.SIGTERM)
            str(1)
    class Owner:
        name = Name()  # Python 3.11 turns what __set_name__ raises into a RuntimeError

def twice(_):
    unlink = os.unlink

    def interrupted(*arguments, **named):
        os.unlink = unlink
        os.kill(os.getpid(), signal.SIGHUP)
        str(1)
        unlink(*arguments, **named)

    os.unlink = interrupted  # which removes the temporary file
    os.kill(os.getpid(), signal.SIGTERM)
    str(1)

if sys.argv[1] == "in_hook":
    set_timer = signal.setitimer
    signal.setitimer = lambda *times: [set_timer(*times), time.sleep(0.1)] if any(times) else set_timer(*times)
    in_hook = in_callback
if sys.argv[1] == "ignored":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
if sys.argv[1] == "twice":
    del os.O_TMPFILE
os.fsync = globals()[sys.argv[1]]
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("how", "code"), [("ignored", 0), ("in_callback", 143), ("in_hook", 143), ("in_class", 143), ("twice", 143)]
)
def test_a_signal_that_the_caller_ignores_stays_ignored_and_no_other_is_lost(
    how: str, code: int, files: Path, tmp_path: Path
) -> None:
    """Ignored, as under nohup; lost or changed, as when it comes where Python cannot raise (in a callback, or again in
    the hook that sees what callbacks raise), or raises another error.
    A second one does not interrupt the cleaning up."""
    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    done = subprocess.run(
        [sys.executable, "-c", INSTEAD_OF_SYNC, how, "keys", "rotate", "ring.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    said = "a2a-sign: interrupted: nothing was written\n" if code else ""
    assert (done.returncode, done.stderr, names_in(folder)) == (code, said, names_in(files))


def test_the_library_sets_no_handlers(tmp_path: Path) -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    seen = []

    def change(ring: KeyRing) -> KeyRing:
        seen.append([signal.getsignal(number) for number in numbers])
        return ring.rotate(1.0, overlap=1.0)

    save_key_ring(tmp_path / "ring.json", KeyRing.begin(generate_signer(), 0.0))
    update_key_ring(tmp_path / "ring.json", change)
    assert seen == [before]
    assert main(["keys", "list", str(tmp_path / "ring.json")]) == 0
    assert [signal.getsignal(number) for number in numbers] == before  # of a program that calls the command, too
