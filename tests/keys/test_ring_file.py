"""Key rings on disk: for their owner only, changed by one at a time, and read again as soon as they changed."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.files import KeyFileWarning, PassphraseNeededError, save_private_key
from a2a_trust.keys.ring_file import KeyRingFile, load_key_ring, save_key_ring, update_key_ring
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.keys.signer import LocalSigner, generate_signer

NOW = 1_800_000_000.0
HOUR = 3_600.0
PASSPHRASE = "correct horse"


def key(kid: str) -> LocalSigner:
    return generate_signer("EdDSA", kid=kid)


def rotated(ring: KeyRing) -> KeyRing:
    return ring.rotate(NOW, overlap=HOUR, new=key("b"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a ring, whose only key is a."""
    path = tmp_path / "ring.json"
    save_key_ring(path, KeyRing.begin(key("a"), NOW))
    return path


def kids(ring: KeyRing) -> list[str]:
    return [each.kid for each in ring.keys]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- files and their rights


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_a_ring_is_for_its_owner_only_when_it_is_made_and_when_it_is_changed(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "ring.json"
    before = os.umask(umask)
    try:
        save_key_ring(path, KeyRing.begin(key("a"), NOW))
        modes = [mode_of(path)]
        ring = update_key_ring(path, rotated)
        modes.append(mode_of(path))
    finally:
        os.umask(before)
    assert modes == [0o600, 0o600]
    assert load_key_ring(path) == ring
    assert kids(ring) == ["a", "b"]
    assert [each.name for each in tmp_path.iterdir()] == ["ring.json"]


def test_a_ring_is_not_made_over_another(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        save_key_ring(path, KeyRing.begin(key("z"), NOW))
    assert path.read_bytes() == before


def test_a_ring_that_everybody_can_read_is_refused_with_the_command_that_mends_it(path: Path) -> None:
    path.chmod(0o604)
    before = path.read_bytes()
    for use in (
        lambda: load_key_ring(path),
        lambda: update_key_ring(path, rotated),
        lambda: KeyRingFile(path),
    ):
        with pytest.raises(ConfigurationError, match=f"everybody can read {path}.* chmod 600 {path}"):
            use()
    assert path.read_bytes() == before


def test_a_ring_that_its_group_can_read_is_taken_with_a_warning_and_stays_so(path: Path) -> None:
    path.chmod(0o640)
    with pytest.warns(KeyFileWarning, match=f"chmod 600 {path}") as caught:
        load_key_ring(path)
    assert caught[0].filename == __file__  # the warning points at whoever loads the ring
    with pytest.warns(KeyFileWarning):
        update_key_ring(path, rotated)
    assert mode_of(path) == 0o640


def test_a_file_that_is_not_there_or_is_no_ring_is_not_changed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        update_key_ring(tmp_path / "none", rotated)
    assert list(tmp_path.iterdir()) == []
    single = tmp_path / "key.pem"
    save_private_key(single, key("a"))
    before = single.read_bytes()
    with pytest.raises(MalformedError, match=r"a2a-sign keys create RING \[--key FILE\]"):
        update_key_ring(single, rotated)
    assert single.read_bytes() == before


def test_a_ring_that_is_too_large_is_refused(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b" " * 1_048_576)
    with pytest.raises(MalformedError, match="larger than 1048576 bytes"):
        load_key_ring(path)


def test_a_link_to_a_ring_stays_a_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(path)
    update_key_ring(link, rotated)
    assert link.is_symlink()
    assert kids(load_key_ring(path)) == ["a", "b"]


def test_a_passphrase_opens_a_ring_and_encrypts_what_is_added(tmp_path: Path) -> None:
    path = tmp_path / "ring.json"
    save_key_ring(path, KeyRing.begin(key("a"), NOW, passphrase=PASSPHRASE))
    with pytest.raises(PassphraseNeededError):
        update_key_ring(path, rotated)
    with pytest.raises(ConfigurationError, match="the passphrase is wrong"):
        update_key_ring(path, rotated, passphrase="wrong")
    assert kids(load_key_ring(path)) == ["a"]
    update_key_ring(path, rotated, passphrase=PASSPHRASE)
    assert load_key_ring(path, passphrase=PASSPHRASE).signer(NOW + HOUR).kid == "b"
    assert b"BEGIN PRIVATE KEY" not in path.read_bytes()


# --- changes that fail, and changes at the same time


def test_a_change_that_fails_leaves_the_file_and_the_lock_as_they_were(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="no key"):
        update_key_ring(path, lambda ring: ring.revoke("z", NOW))

    def disk_full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", disk_full)
        with pytest.raises(OSError, match="No space left"):
            update_key_ring(path, rotated)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["ring.json"]
    assert kids(update_key_ring(path, rotated)) == ["a", "b"]


def test_a_change_that_changes_nothing_writes_nothing(path: Path) -> None:
    update_key_ring(path, rotated)
    before = path.stat()
    update_key_ring(path, rotated)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


REVOKE_MANY = """
import sys
from pathlib import Path
from a2a_trust.keys.ring_file import update_key_ring

path, moment = Path(sys.argv[1]), float(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for kid in sys.argv[3:]:
    update_key_ring(path, lambda ring: ring.revoke(kid, moment))
"""


def test_processes_that_change_one_ring_at_once_lose_nothing(tmp_path: Path) -> None:
    path, now = tmp_path / "ring.json", NOW
    ring = KeyRing.begin(key("key-0"), now)
    for number in range(1, 61):
        ring = ring.rotate(now, overlap=1, new=key(f"key-{number}"))
        now += 1
    save_key_ring(path, ring)
    shares = [[f"key-{number}" for number in range(start, 60, 3)] for start in range(3)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", REVOKE_MANY, path, str(now), *share],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for share in shares
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:  # all are loaded: now they run against each other
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate(timeout=60)
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    ring = load_key_ring(path)
    assert {each.kid for each in ring.revoked()} == {f"key-{number}" for number in range(60)}
    assert ring.signer(now).kid == "key-60"


def test_where_there_are_no_locks_a_ring_is_read_and_not_changed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="under a POSIX lock"):
        update_key_ring(path, rotated)
    assert path.read_bytes() == before
    assert kids(load_key_ring(path)) == ["a"]


# --- servers


def test_a_server_sees_a_change_at_once_and_reads_nothing_without_one(path: Path) -> None:
    file = KeyRingFile(path)
    ring = file.ring()
    assert kids(ring) == ["a"]
    assert file.ring() is ring  # one that is read again is another object
    update_key_ring(path, rotated)
    changed = file.ring()
    assert kids(changed) == ["a", "b"]
    assert file.ring() is changed


def test_a_server_asks_for_signer_published_and_revoked_keys_by_the_file(path: Path) -> None:
    file = KeyRingFile(path)
    update_key_ring(path, rotated)
    assert [file.signer(now).kid for now in (NOW, NOW + HOUR)] == ["a", "b"]
    assert [each.kid for each in file.published(NOW + HOUR)] == ["b", "a"]
    update_key_ring(path, lambda ring: ring.revoke("a", NOW))
    assert file.signer(NOW).kid == "b"
    assert [each.kid for each in file.published(NOW)] == ["b"]
    assert [each.kid for each in file.revoked()] == ["a"]


def test_a_change_in_place_of_the_same_size_is_seen(path: Path) -> None:
    file = KeyRingFile(path)
    inode = path.stat().st_ino
    path.write_bytes(path.read_bytes().replace(b'"kid": "a"', b'"kid": "z"'))
    assert path.stat().st_ino == inode
    assert kids(file.ring()) == ["z"]


def private_lines(path: Path) -> list[str]:
    """The base64 of every private half in the file."""
    pems = [each.private_key for each in load_key_ring(path).keys if each.private_key is not None]
    return [line for pem in pems for line in pem.splitlines() if not line.startswith("-")]


def encrypt(path: Path) -> None:
    path.unlink()
    save_key_ring(path, KeyRing.begin(key("z"), NOW, passphrase=PASSPHRASE))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "a2a-sign keys list"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b'"alg"', b'"kid"')), "a2a-sign keys list"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b'"private_key": "', b'"')), "a2a-sign keys list"),
        (lambda path: path.write_bytes(b""), "a2a-sign keys list"),
        (lambda path: path.chmod(0o604), "chmod 600"),
        (lambda path: path.unlink(), "no such key ring"),
        (lambda path: (path.unlink(), path.mkdir()), "Is a directory"),
        (encrypt, "no passphrase was given"),
    ],
    ids=["cut", "twice", "no name", "empty", "open to all", "gone", "folder", "encrypted"],
)
def test_a_ring_that_cannot_be_read_any_more_leaves_the_last_one_and_a_line_in_the_log(
    path: Path, harm: object, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert callable(harm)
    update_key_ring(path, rotated)
    secrets, file = private_lines(path), KeyRingFile(path)
    ring = file.ring()
    with caplog.at_level(logging.DEBUG):
        harm(path)
        assert file.ring() is ring
        assert file.ring() is ring
        (record,) = caplog.records  # one line for one change
        assert (record.levelno, said in record.getMessage()) == (logging.ERROR, True)
        assert record.exc_info is None
        assert not any(secret in caplog.text for secret in secrets)
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        save_key_ring(path, KeyRing.begin(key("fixed"), NOW))
        assert kids(file.ring()) == ["fixed"]
    assert "was read again" in caplog.records[-1].getMessage()


def test_rights_that_are_mended_are_noticed(path: Path) -> None:
    file = KeyRingFile(path)
    update_key_ring(path, rotated)
    path.chmod(0o644)
    assert kids(file.ring()) == ["a"]
    path.chmod(0o600)
    assert kids(file.ring()) == ["a", "b"]


def test_a_warning_that_is_made_an_error_breaks_no_server(path: Path) -> None:
    file = KeyRingFile(path)
    path.chmod(0o640)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kids(file.ring()) == ["a"]


def test_a_server_does_not_start_with_a_ring_that_it_cannot_use(tmp_path: Path) -> None:
    path = tmp_path / "ring.json"
    with pytest.raises(FileNotFoundError):
        KeyRingFile(path)
    save_key_ring(path, KeyRing.begin(key("a"), NOW, passphrase=PASSPHRASE))
    with pytest.raises(PassphraseNeededError, match=str(path)):
        KeyRingFile(path)
    assert KeyRingFile(str(path), passphrase=PASSPHRASE).ring().signer(NOW).kid == "a"
