"""Strangers (uid 65534) who may write to a folder in which root writes files: what they plant gets no secret."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from a2a_trust.base.files.atomic import FileToWrite, write_atomically
from a2a_trust.cli import keygen
from a2a_trust.cli.main import main
from a2a_trust.keys.files import private_key_bytes, save_private_key
from a2a_trust.keys.jwk import PublicKey, publish_jwks
from a2a_trust.keys.signer import LocalSigner, generate_signer
from tests.faults.processes import started

STRANGER = 65534
COMMAND = Path(sys.executable).with_name("a2a-sign")


@pytest.fixture
def folder() -> Iterator[Path]:
    """As /tmp is; the folders of pytest are closed to others."""
    if os.geteuid() != 0:
        pytest.skip("*** NOT TESTED: only root can act as root and as a stranger ***")
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        yield Path(name)


def as_stranger(act: Callable[[], object]) -> bool:
    """Whether a process of the stranger may do this."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            act()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


@pytest.fixture
def planting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Let ``keygen`` meet what a stranger does after its look at the name, while it makes the key."""

    def plant(act: Callable[[], object]) -> None:
        def made(alg: str, *, kid: str | None) -> LocalSigner:
            assert as_stranger(act)
            return generate_signer(alg, kid=kid)

        monkeypatch.setattr(keygen, "generate_signer", made)

    return plant


def test_a_stranger_who_had_the_name_does_not_own_the_key(
    planting: Callable[[Callable[[], object]], None], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stranger has a file at the name when the new one is prepared, and none when it is put in place."""
    path, commit = folder / "key.pem", FileToWrite.commit

    def removed_before(file: FileToWrite) -> None:
        as_stranger(path.unlink)
        commit(file)

    monkeypatch.setattr(FileToWrite, "commit", removed_before)
    planting(path.touch)
    assert main(["keygen", "-o", str(path)]) == 2
    assert not as_stranger(path.read_bytes) or path.read_bytes() == b""
    assert not (folder / "key.jwks.json").exists()


def test_a_key_is_not_written_into_a_planted_pipe(
    planting: Callable[[Callable[[], object]], None], folder: Path
) -> None:
    path = folder / "key.pem"

    def pipe() -> None:
        os.mkfifo(path)
        path.chmod(0o666)

    readers: list[int] = []
    planting(pipe)

    def read(keys: Iterable[PublicKey]) -> dict[str, Any]:
        readers.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        return publish_jwks(keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keygen, "publish_jwks", read)
        assert main(["keygen", "-o", str(path)]) == 2
    with os.fdopen(readers[0], "rb", buffering=0) as reader:
        assert reader.read(1) is None


def test_a_key_that_replaces_the_file_of_a_stranger_is_not_theirs(folder: Path) -> None:
    path = folder / "key.pem"
    assert as_stranger(path.touch)
    save_private_key(path, generate_signer(), replace=True)
    assert (path.stat().st_uid, path.stat().st_gid, path.stat().st_mode & 0o777) == (0, 0, 0o600)
    assert not as_stranger(path.read_bytes)
    path.unlink()
    assert as_stranger(lambda: os.mkfifo(path))
    with pytest.raises(OSError, match="belongs to another user; nothing was written"):
        save_private_key(path, generate_signer(), replace=True)


def test_a_key_that_a_stranger_planted_is_not_completed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its other half would be published, and cards of the stranger would verify by it."""
    path = folder / "key.pem"
    data = private_key_bytes(generate_signer())

    def plant() -> None:
        path.write_bytes(data)
        path.chmod(0o600)

    assert as_stranger(plant)
    assert main(["keygen", "-o", str(path)]) == 2
    assert f"{path} exists already and is not overwritten" in capsys.readouterr().err
    assert [file.name for file in folder.iterdir()] == ["key.pem"]


@contextmanager
def locked_by_stranger(path: Path) -> Iterator[None]:
    """A process of the stranger holds the lock of this file, which it makes if it is not there."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgid(STRANGER)
        os.setuid(STRANGER)
        fcntl.flock(os.open(path, os.O_RDONLY | (0 if path.exists() else os.O_CREAT), 0o644), fcntl.LOCK_EX)
        os.write(tell, b"1")
        time.sleep(600)
        os._exit(0)
    try:
        os.read(ready, 1)
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(tell)


def test_a_stranger_who_holds_a_lock_stops_no_command_for_ever(folder: Path, is_long: bool) -> None:
    """The command as people start it; the long form waits until its end."""
    path = folder / "trust.toml"
    path.write_text("version = 1\n")
    command = [str(COMMAND), "trust", "revoke", str(path), "--thumbprint", "A" * 43]
    with locked_by_stranger(path), started(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert (
            process.stderr.readline().partition(" ")[2]
            == f"warning: waiting for another process that holds the lock of '{path}'\n"
        )
        if is_long:
            assert process.wait(60) == 6
            assert f"another process holds the lock of {path}" in process.stderr.read()


def test_a_temporary_that_a_stranger_locks_is_not_waited_for(folder: Path) -> None:
    path = folder / "jwks.json"
    path.write_bytes(b"old")
    at = folder / ".jwks.json.a2a-sign"
    with locked_by_stranger(at), pytest.raises(OSError, match=f"{at} is in the way and cannot be removed; remove it"):
        write_atomically(path, b"new")
    write_atomically(path, b"new")
    assert [file.name for file in folder.iterdir()] == ["jwks.json"]
