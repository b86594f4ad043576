"""Writing files whole: rights, names, links, and what others put where the temporary goes."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from a2a_trust.base.files import atomic
from a2a_trust.base.files.atomic import FileToWrite, Over, is_taken, lock_file, write_atomically
from a2a_trust.errors import ConfigurationError


@pytest.fixture(params=[True, False], ids=["nameless", "named"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With files that have no name, and, as on macOS, without."""
    if not request.param:
        monkeypatch.delattr(os, "O_TMPFILE")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ring.json"
    path.write_bytes(b"old")
    path.chmod(0o600)
    return path


def temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.a2a-sign")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One in which everybody may write; the folders of pytest are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@contextmanager
def nobody() -> Iterator[None]:
    """Root may do everything; nobody may not."""
    assert os.geteuid() == 0, "only root can become somebody else"
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


# --- what is at the temporary's name


def folder_with_a_file(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("is_new", [True, False], ids=["new", "replaced"])
@pytest.mark.parametrize("planted", ["file", "link", "dangling link", "pipe", "open file", "read-only file"])
def test_what_somebody_puts_at_the_temporarys_name_is_neither_followed_nor_kept(
    planted: str, is_new: bool, path: Path, tmp_path: Path
) -> None:
    if is_new:
        path.unlink()
    victim, at = tmp_path / "victim", temporary(path)
    victim.write_bytes(b"theirs")
    match planted:
        case "file" | "open file" | "read-only file":
            at.write_bytes(b"a longer content than the new one")
            at.chmod({"file": 0o644, "open file": 0o666, "read-only file": 0o400}[planted])
        case "link":
            at.symlink_to(victim)
        case "dangling link":
            at.symlink_to(tmp_path / "made by us")
        case "pipe":
            os.mkfifo(at)
    with at.open("rb") if planted == "open file" else Path(os.devnull).open("rb") as held:
        write_atomically(path, b"new", mode=0o600)
        assert held.read() == (b"a longer content than the new one" if planted == "open file" else b"")
    assert (path.read_bytes(), mode_of(path), victim.read_bytes()) == (b"new", 0o600, b"theirs")
    assert names_in(tmp_path) == ["ring.json", "victim"]


@pytest.mark.usefixtures("system")
def test_what_cannot_be_removed_is_named_with_what_to_do(path: Path) -> None:
    folder_with_a_file(temporary(path))
    with pytest.raises(OSError, match=f"{temporary(path)} is in the way and cannot be removed; remove it") as error:
        write_atomically(path, b"new")
    assert error.value.filename == str(path)
    assert path.read_bytes() == b"old"


@pytest.mark.usefixtures("system")
def test_a_temporary_that_somebody_works_on_is_waited_for(path: Path) -> None:
    """Its owner shows by a lock that it lives; a change of the target has to wait until it is done."""
    at = temporary(path)
    with at.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        other = threading.Thread(target=write_atomically, args=(path, b"new"))
        other.start()
        other.join(0.2)
        assert (other.is_alive(), path.read_bytes(), at.exists()) == (True, b"old", True)
    other.join(60)
    assert (path.read_bytes(), at.exists()) == (b"new", False)


def test_a_file_that_a_kill_left_with_both_names_keeps_its_own(path: Path) -> None:
    """A new file, where files have no name only for a part of the way, is linked and then loses its temporary name."""
    os.link(path, temporary(path))
    assert is_taken(path)
    assert names_in(path.parent) == ["ring.json"]
    os.link(path, temporary(path))
    with lock_file(path) as file:
        assert names_in(path.parent) == ["ring.json"]
        file.prepare(b"new")
        file.commit()
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("name", ["x" * 255, "ü" * 127, "x" * 101, "x" * 100])
@pytest.mark.usefixtures("system")
def test_names_of_any_length_have_a_temporary(name: str, tmp_path: Path) -> None:
    for content in (b"one", b"two"):
        write_atomically(tmp_path / name, content)
        assert (tmp_path / name).read_bytes() == content
    assert names_in(tmp_path) == [name]


def test_an_exception_at_any_moment_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for nameless in (True, False):
        if not nameless:
            monkeypatch.delattr(os, "O_TMPFILE")
        for name in ("fchmod", "fsync", "replace"):
            with monkeypatch.context() as patch:
                patch.setattr(os, name, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    write_atomically(path, b"new")
            assert (path.read_bytes(), names_in(path.parent)) == (b"old", ["ring.json"])


# --- rights


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o400, 0o660])
def test_the_new_content_is_never_more_open_than_the_file(
    mode: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.chmod(mode)
    seen: list[int] = []
    real = os.open

    def opened(*arguments: object, **named: object) -> int:
        descriptor = real(*arguments, **named)  # type: ignore[arg-type]
        if arguments[1] & os.O_WRONLY:  # type: ignore[operator]
            seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    monkeypatch.setattr(os, "open", opened)
    write_atomically(path, b"new")
    assert [made & ~(mode & 0o600) for made in seen] == [0]
    assert (mode_of(path), path.read_bytes()) == (mode, b"new")


@pytest.mark.long
def test_a_group_that_cannot_be_kept_gets_no_rights_that_not_everybody_has(folder: Path) -> None:
    """Else the group of whoever writes could read what only another group may."""
    for before, after in ((0o640, 0o600), (0o664, 0o644), (0o600, 0o600)):
        path = folder / f"{before:o}"
        path.write_bytes(b"old")
        os.chown(path, 65534, 0)
        path.chmod(before)
        with nobody():
            write_atomically(path, b"new")
        assert (mode_of(path), path.stat().st_gid) == (after, 65534)


@pytest.mark.long
def test_root_keeps_owner_and_group(path: Path) -> None:
    assert os.geteuid() == 0, "only root can give files away"
    os.chown(path, 1234, 4321)
    write_atomically(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid, mode_of(path)) == (1234, 4321, 0o600)


def test_root_without_the_capability_to_give_files_away_acts_as_others_do(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    path.chmod(0o640)
    monkeypatch.setattr(os, "fchown", refused)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    write_atomically(path, b"new")
    assert (mode_of(path), path.read_bytes()) == (0o600, b"new")


@pytest.mark.long
def test_a_folder_that_may_be_written_and_not_read_is_good_enough(folder: Path) -> None:
    with nobody():
        (folder / "drop").mkdir(mode=0o300)
        write_atomically(folder / "drop" / "card.json", b"new")
        assert (folder / "drop" / "card.json").read_bytes() == b"new"


ACL = "system.posix_acl_access"


def give_acl(path: Path) -> None:
    """``setfacl -m u:1001:r,g::-``: one user more may read; the group may nothing, although the mode says 0640."""
    entries = ((1, 6, -1), (2, 4, 1001), (4, 0, -1), (16, 4, -1), (32, 0, -1))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(path, ACL, acl)
    except (AttributeError, OSError):
        pytest.fail(f"the file system of {path} has no POSIX ACLs")
    assert mode_of(path) == 0o640


def test_an_acl_is_dropped_with_the_rights_of_the_group_and_the_log_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a file system that has ACLs; a real one is below."""

    def refused(*_: object) -> bytes:
        raise PermissionError

    for number, answer in enumerate((lambda *_: b"acl", refused), start=1):
        path.chmod(0o640)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getxattr", answer)
            write_atomically(path, b"new")
        assert (mode_of(path), path.read_bytes()) == (0o600, b"new")
        said = f"'{path}' had a POSIX ACL, which is dropped; its group has no rights now"
        assert [each.getMessage() for each in caplog.records] == [said] * number


@pytest.mark.long
@pytest.mark.usefixtures("system")
def test_a_real_acl_is_dropped_with_the_rights_of_the_group(path: Path) -> None:
    give_acl(path)
    write_atomically(path, b"new")
    assert (mode_of(path), ACL in os.listxattr(path), path.read_bytes()) == (0o600, False, b"new")


# --- what may be replaced


@pytest.mark.usefixtures("system")
def test_a_new_file_is_not_written_over_one_that_came_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with FileToWrite(path, Over.NOTHING) as file:
        file.prepare(b"ours", mode=0o600)
        path.write_bytes(b"theirs")
        with pytest.raises(FileExistsError) as error:
            file.commit()
    assert error.value.filename == str(path)
    assert (path.read_bytes(), names_in(tmp_path)) == (b"theirs", ["key"])
    dangling = tmp_path / "link"
    dangling.symlink_to("nothing")
    for taken in (path, dangling):
        with pytest.raises(FileExistsError):
            write_atomically(taken, b"ours", replace=False)


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("planted", ["file", "pipe", "link"])
def test_nothing_that_is_there_gives_a_new_file_its_rights_or_gets_its_content(planted: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    match planted:
        case "file":
            path.touch()
        case "pipe":
            os.mkfifo(path)
        case _:
            path.symlink_to("none")
    with FileToWrite(path, Over.NOTHING) as file, pytest.raises(FileExistsError):
        file.prepare(b"ours", mode=0o600)
    assert names_in(tmp_path) == ["key"]


@pytest.mark.usefixtures("system")
def test_what_may_replace_anything_replaces_one_that_came_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    with FileToWrite(path, Over.ANYTHING) as file:
        file.prepare(b"ours")
        path.write_bytes(b"theirs")
        file.commit()
    assert (path.read_bytes(), names_in(tmp_path)) == (b"ours", ["jwks.json"])


@pytest.mark.usefixtures("system")
def test_what_was_removed_after_it_was_read_is_not_made_again(path: Path) -> None:
    """A ring would get the rights of any new file."""
    with lock_file(path) as file:
        path.unlink()
        with pytest.raises(OSError, match="another program changed it meanwhile"):
            file.prepare(b"new")
    assert names_in(path.parent) == []


def test_a_pipe_and_a_process_substitution_are_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_atomically(pipe, b"card")
    reader.join(60)
    ours, its = os.pipe()
    write_atomically(Path(f"/dev/fd/{its}"), b"card")
    os.close(its)
    with os.fdopen(ours, "rb") as file:
        got.append(file.read())
    assert (got, names_in(tmp_path)) == ([b"card", b"card"], ["pipe"])


def test_standard_output_that_is_a_deleted_file_is_written_to(tmp_path: Path) -> None:
    code = "import sys; from a2a_trust.base.files.atomic import *; from pathlib import Path; "
    code += "write_atomically(Path('/dev/stdout'), b'card')"
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True, timeout=60)
        file.seek(0)
        assert file.read() == b"card"
    assert names_in(tmp_path) == []


# --- locks


@pytest.mark.long
def test_a_file_that_may_only_be_read_is_locked_all_the_same(folder: Path) -> None:
    path = folder / "card.json"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with nobody(), FileToWrite(path, Over.WHAT_WAS_READ) as file:
        assert file.lock()
        assert file.is_locked
        with FileToWrite(path, Over.WHAT_WAS_READ) as other:
            assert not other.lock(wait=False)
        file.prepare(b"new")
        file.commit()
    assert (path.read_bytes(), mode_of(path)) == (b"new", 0o444)


def test_without_locks_rings_are_refused_and_other_files_are_looked_at(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(ConfigurationError, match="only under a POSIX lock"), lock_file(path):
        pass
    with FileToWrite(path, Over.WHAT_WAS_READ) as file:
        assert file.lock()
        assert (file.is_locked, file.read(100)) == (False, b"old")
        file.prepare(b"ours")
        path.write_bytes(b"theirs")
        with pytest.raises(OSError, match="another program changed it meanwhile"):
            file.commit()
    assert (path.read_bytes(), names_in(path.parent)) == (b"theirs", ["ring.json"])
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("which", ["file", "temporary"])
def test_a_lock_that_is_never_freed_ends_in_an_error_that_names_the_file(
    which: str, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(atomic, "_TELL_AFTER", 0.05)
    monkeypatch.setattr(atomic, "_LONGEST_WAIT", 1.0)
    held = path if which == "file" else temporary(path)
    with held.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match=f"another process holds the lock of {held}; end that process"):
            write_atomically(path, b"new")
        assert is_taken(path)  # without waiting
    assert caplog.messages == [f"waiting for another process that holds the lock of {str(held)!a}"]
    assert path.read_bytes() == b"old"


def test_a_folder_and_nothing_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), lock_file(tmp_path / "none"):
        pass
    with pytest.raises(OSError, match="not a regular file"), lock_file(tmp_path):
        pass


def test_no_reserved_name_reaches_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(temporary(path)))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device; free some space") as error:
        write_atomically(path, b"new")
    assert (error.value.filename, error.value.__cause__) == (str(path), None)
    assert temporary(path).name not in str(error.value)


REPLACING = """
import os, sys
path = sys.argv[1]
print("ready", flush=True)
while True:
    with open(path + ".other", "wb") as file:
        file.write(b"other")
    os.replace(path + ".other", path)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how Linux finds a file that is being replaced")
def test_a_file_that_others_replace_all_the_time_is_never_taken_for_a_deleted_one(tmp_path: Path) -> None:
    """Linux may find the replaced file at the path, when it has no name any more."""
    path = tmp_path / "file"
    path.write_bytes(b"first")
    with subprocess.Popen([sys.executable, "-c", REPLACING, path], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"ready\n"
            nameless = 0
            for _ in range(30_000):
                found = atomic._status(path)
                assert found is not None
                nameless += found.st_nlink == 0
        finally:
            other.kill()
    assert nameless == 0
    with path.open("rb") as file:
        path.unlink()
        deleted = atomic._status(Path(f"/proc/self/fd/{file.fileno()}"))
    assert deleted is not None
    assert deleted.st_nlink == 0
