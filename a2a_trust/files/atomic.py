"""Write files whole or not at all, and let one process at a time change them.

Readers see the old content or the new one, never a part. A process that is killed at any moment leaves one of the two:

1. The new content is written to a file without a name (``O_TMPFILE``) in the folder of the target, and to the disk.
2. A new file gets its name by a link, which fails when the name is taken.
3. A file that is there is replaced: the content is linked to the temporary name ``.NAME.a2a-sign``, and renamed.

A kill between the two parts of step 3 leaves the temporary name, which the next process that writes this file removes.
Where the system or the file system has no files without a name, the temporary name is there from step 1 on.

Two locks (``flock``) keep processes apart. Who changes a file locks the file itself, from reading to writing. The new
content is locked by its writer, from before it has a name: a temporary name whose content nobody has locked was left by
a process that was killed. The system frees both locks when a process ends, however it ends. Whoever may open a file may
lock it for ever, so nobody waits longer than 30 seconds.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import BinaryIO, Final, Self

from a2a_trust.errors import ConfigurationError
from a2a_trust.files.watched import Stamp, stamp_of, stamp_of_path

__all__ = ["FileToWrite", "Over", "is_reserved", "is_taken", "locked", "locked_together", "write_atomically"]

_ADVICE: Final = {
    errno.ENOSPC: "free some space and run the command again; nothing was written",
    errno.EDQUOT: "free some space and run the command again; nothing was written",
    errno.EROFS: "write to another place, or make this one writable; nothing was written",
    errno.EACCES: "you need the right to write to its folder; nothing was written",
    errno.EPERM: "you need the right to write to its folder; nothing was written",
}
_ACL: Final = "system.posix_acl_access"
_TELL_AFTER: Final = 1.0  # seconds of waiting for a lock
_LONGEST_WAIT: Final = 30.0
_LONGEST_NAME: Final = 100  # bytes; with what is added it fits the shortest limit of common file systems, 143


class Over(Enum):
    """What may be replaced when a file is written."""

    NOTHING = auto()
    ANYTHING = auto()
    WHAT_WAS_READ = auto()
    """The file as it was when it was locked; who changed it since, without a lock, loses nothing."""


class FileToWrite:
    """A file on its way from the old content to the new one: lock it, read it, prepare the new content, commit.

    Why this is a class: of several files all can be prepared, and every reason to fail met, before the first is
    changed. As a context manager it leaves nothing behind that was not committed, and frees the lock.

    A symbolic link is followed. A new file gets the mode that ``prepare`` is given, else what the umask leaves; a file
    that is there keeps its own mode and POSIX ACL, and its owner and group where the process may give them; rights that
    cannot be kept are taken away, never given to others. With a mode the content
    may be secret: it belongs to whoever writes it, whatever was there. What is not a regular file (a pipe, a device) is
    neither locked nor replaced: ``commit`` writes to it, with a mode only if it is ours or root's. ``Over.NOTHING``
    follows no link.

    OSErrors name ``path`` and say what to do.
    """

    def __init__(self, path: Path, over: Over) -> None:
        self.path = path
        self.is_locked: bool = False
        self.over = over
        self._target = path
        self._file: BinaryIO | None = None
        self._seen: Stamp | None = None
        self._new: int | None = None
        self._temporary: Path | None = None
        self._is_new = False
        self._for_device: bytes | None = None
        self._is_secret = False

    def lock(self, *, wait: bool = True) -> bool:
        """Lock the file, if it is there; False when another process has it and we do not wait for that.

        OSError: the other process had it for 30 seconds. After one second the log says which file we wait for.

        A system without ``flock`` (Windows), a file system without it, and NFS for a file that may only be read, leave
        ``is_locked`` false: then a change by another process is noticed by ``commit``, which refuses.
        """
        with _naming(self.path):
            while _regular(self.path) is not None:
                self._target = _followed(self.path)
                try:
                    descriptor = _open_to_lock(self.path)
                except FileNotFoundError:
                    continue  # removed since the look at it, perhaps to be replaced
                except PermissionError:
                    if self.over is Over.WHAT_WAS_READ:
                        raise
                    return True  # it can be replaced unread
                lock = _waited_for(descriptor, self.path) if wait else _flock(descriptor)
                if lock is not _Lock.BUSY and _is_at(descriptor, self._target):
                    self._file, self.is_locked = os.fdopen(descriptor, "rb"), lock is _Lock.HELD
                    if self.is_locked:
                        _remove_leftover(_temporary_of(self._target), of=os.fstat(descriptor))
                    self._seen = stamp_of(os.fstat(descriptor))
                    return True
                os.close(descriptor)
                if lock is _Lock.BUSY:
                    return False
                # Another file was put in its place while we waited: lock that one.
        return True

    def unlock(self) -> None:
        """Free the lock, and forget what the file looked like."""
        file, self._file, self._seen, self.is_locked = self._file, None, None, False
        if file is not None:
            file.close()

    @property
    def opened(self) -> BinaryIO:
        """The file that is locked, open for reading."""
        if self._file is None:
            self.path.stat()  # FileNotFoundError
            raise OSError(errno.EINVAL, "not a regular file", str(self.path))
        return self._file

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes of the content."""
        if self._file is not None:
            self._file.seek(0)
            return self._file.read(size)
        with self.path.open("rb") as file:
            return file.read(size)

    def prepare(self, data: bytes, *, mode: int | None = None) -> None:
        """Write the new content to the disk, beside the old one. FileExistsError as ``commit``."""
        with _naming(self.path, _ADVICE):
            if is_reserved(self.path) or is_reserved(_followed(self.path)):
                raise OSError(errno.EINVAL, "such names are reserved for temporary files; name another file")
            self.check()  # else what was removed would be made again, with the rights of any new file
            old = self._replaced()
            if old is not None and self._file is None and not _has_a_name(old):
                self._for_device, self._is_secret = data, mode is not None
                self._check_device(old)
                return
            if self.over is not Over.NOTHING:
                self._target = _followed(self.path)
            self._is_new = old is None
            if mode is not None:
                old = None  # a stranger may have put it there: the secret is not given to its owner or group
            elif old is not None:
                mode = stat.S_IMODE(old.st_mode)
            # Made with no more than the final rights: a secret is never readable by others, not even for a moment.
            self._open_new(0o666 if mode is None else mode & 0o600)
            with os.fdopen(self._descriptor, "wb", closefd=False) as file:
                file.write(data)
                file.flush()
                acl = None if old is None else _acl_of(self._target if self._file is None else self._file.fileno())
                _give_rights(self._descriptor, mode, old, acl)
                os.fsync(self._descriptor)

    def check(self) -> None:
        """OSError when somebody else changed the file after it was read, or put another one in its place."""
        if self.over is Over.WHAT_WAS_READ and self._seen not in (None, stamp_of_path(self.path)):
            raise _changed_meanwhile(self.path)

    def commit(self) -> None:
        """Put the new content in place, also after a crash. FileExistsError: ``Over.NOTHING``, and something is there.

        OSError as ``check``, too.
        """
        with _naming(self.path, _ADVICE):
            if self._for_device is not None:
                with self.path.open("wb") as device:
                    self._check_device(os.fstat(device.fileno()))
                    device.write(self._for_device)
                return
            folder = _opened_folder(self._target.parent)
            try:
                self._put_in_place()
                if folder is not None:
                    os.fsync(folder)
            finally:
                if folder is not None:
                    os.close(folder)

    def discard(self) -> None:
        """Remove what was prepared and not committed."""
        new, self._new = self._new, None
        if new is not None:
            os.close(new)
        if self._temporary is not None:
            _remove_leftover(self._temporary)
            self._temporary = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.discard()
        finally:
            self.unlock()

    @property
    def _descriptor(self) -> int:
        if self._new is None:
            raise AssertionError("prepare comes before commit")
        return self._new

    def _replaced(self) -> os.stat_result | None:
        """What the new content replaces."""
        if self.over is Over.NOTHING:
            if os.path.lexists(self.path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            return None
        return _status(self.path) if self._file is None else os.fstat(self._file.fileno())

    def _check_device(self, status: os.stat_result) -> None:
        if self._is_secret and os.name == "posix" and status.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EINVAL, "not a regular file, and it belongs to another user; nothing was written")

    def _open_new(self, rights: int) -> None:
        """Open the file for the new content, without a name where that can be, and lock it."""
        temporary = _temporary_of(self._target)
        self._new = _open_without_name(self._target.parent, rights)
        if self._new is None:
            self._temporary = temporary  # before it is made: a signal may come at any moment
            self._open_temporary(temporary, rights)
            return
        _flock(self._new)
        if self._is_new:
            _remove_leftover(temporary)

    def _open_temporary(self, temporary: Path, rights: int) -> None:
        while True:
            try:
                # Exclusive: neither a link nor a file that somebody put there is opened.
                self._new = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, rights)
            except FileExistsError:
                self._clear(temporary)
                continue
            if _flock(self._new) is not _Lock.BUSY and _is_at(self._new, temporary):
                return
            os.close(self._new)  # before it was locked, somebody took it for one that was left

    def _clear(self, temporary: Path) -> None:
        """Remove a temporary, when we have waited for the process that works on it. A stranger is not waited for."""
        target = _status(self._target)
        us = os.geteuid() if os.name == "posix" else 0
        _remove_leftover(temporary, wait_for={us, us if target is None else target.st_uid})

    def _put_in_place(self) -> None:
        if self._temporary is None and self._is_new:
            try:
                _link(self._descriptor, self._target)
            except FileExistsError:
                if self.over is Over.NOTHING:
                    raise
            else:
                return
        temporary = self._temporary or self._named()
        if not _is_at(self._descriptor, temporary):
            raise _changed_meanwhile(self.path)  # only where nothing can be locked
        self.check()  # as late as can be: only a change between this and the next call is not noticed
        if os.name != "posix":  # a file that is open can be neither renamed nor replaced
            os.close(self._descriptor)
            self._new = None
            self.unlock()
        if self.over is Over.NOTHING:
            os.link(temporary, self._target)  # unlike a renaming, this fails when the name is taken
            temporary.unlink()
        else:
            temporary.replace(self._target)
        self._temporary = None

    def _named(self) -> Path:
        """Give the new content its temporary name."""
        temporary = _temporary_of(self._target)
        self._temporary = temporary  # before it is there: a signal may come at any moment
        while True:
            try:
                _link(self._descriptor, temporary)
            except FileExistsError:
                self._clear(temporary)
            else:
                return temporary


def is_reserved(path: Path) -> bool:
    """Whether the name is that of a temporary, which the next command may remove."""
    return path.name.startswith(".") and path.name.endswith(".a2a-sign")


def is_taken(path: Path) -> bool:
    """Whether something has this name. First, what a process that was killed left beside it is removed."""
    with FileToWrite(path, Over.NOTHING) as file:
        file.lock(wait=False)
    return os.path.lexists(path)


def write_atomically(path: Path, data: bytes, *, mode: int | None = None, replace: bool = True) -> None:
    """After this the file holds ``data``; see ``FileToWrite``. FileExistsError when ``replace`` is false and something
    is there."""
    if not replace and is_taken(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    with FileToWrite(path, Over.ANYTHING if replace else Over.NOTHING) as file:
        if replace:
            file.lock()
        file.prepare(data, mode=mode)
        file.commit()


@contextmanager
def locked(path: Path) -> Iterator[FileToWrite]:
    """The file, locked; nobody else changes it until the end. ConfigurationError where it cannot be locked.

    FileNotFoundError: it is not there.
    """
    with FileToWrite(path, Over.WHAT_WAS_READ) as file:
        file.lock()
        if not file.is_locked:
            file.opened.fileno()  # it is there, and a regular file
            raise ConfigurationError(
                f"{path} is changed only under a lock of POSIX systems, which this system or file system does not "
                "have; change it where there is one"
            )
        yield file


@contextmanager
def locked_together(files: Sequence[FileToWrite]) -> Iterator[None]:
    """Lock all of these that are there, as ``FileToWrite.lock`` does, and discard and unlock them at the end.

    A process that has a lock never waits for another one: it frees what it has, and begins with the lock that it could
    not get. So no two processes wait for each other, in whatever order each names the files. ConfigurationError: two of
    the files are one file, or they are more than this process may have open.
    """
    _allow_open(2 * len(files))
    with ExitStack() as stack:
        for file in files:
            stack.enter_context(file)
        order = list(files)
        while (busy := _lock_all(order)) is not None:
            order.remove(busy)
            order.insert(0, busy)
        yield


def _allow_open(count: int) -> None:
    """Raise the limit of this process so that it may have so many files open, the old and the new of each."""
    if sys.platform == "win32":
        return
    from resource import RLIMIT_NOFILE, getrlimit, setrlimit

    needed, (soft, hard) = count + 64, getrlimit(RLIMIT_NOFILE)
    if soft in range(needed):
        if hard in range(needed):
            raise ConfigurationError(
                f"{count // 2} files at once need {needed} open files, and this system allows {hard}; name fewer files"
            )
        setrlimit(RLIMIT_NOFILE, (needed, hard))


def _lock_all(files: Sequence[FileToWrite]) -> FileToWrite | None:
    """Lock all, and wait for the first one only; or lock none, and return the one that another process has."""
    _check_different(files)
    for file in files:
        if not file.lock(wait=file is files[0]):
            for each in files:
                each.unlock()
            return file
    return None


def _check_different(files: Sequence[FileToWrite]) -> None:
    paths: dict[tuple[int, int], Path] = {}
    for file in files:
        with _naming(file.path):
            status = _regular(file.path)
        if status is not None:
            first = paths.setdefault((status.st_dev, status.st_ino), file.path)
            if first is not file.path:
                raise ConfigurationError(f"{first} and {file.path} are one file, by a hard link; name one of them")


class _Lock(Enum):
    HELD = auto()
    BUSY = auto()
    UNAVAILABLE = auto()


def _waited_for(descriptor: int, path: Path) -> _Lock:
    """As ``_flock``, after waiting for the process that has the lock. TimeoutError: it keeps it."""
    begun, is_told = time.monotonic(), False
    while (lock := _flock(descriptor)) is _Lock.BUSY:
        waited = time.monotonic() - begun
        if waited >= _LONGEST_WAIT:
            text = f"another process holds the lock of {path}; end that process (fuser shows it) and run this again"
            raise TimeoutError(errno.ETIMEDOUT, text)
        if waited >= _TELL_AFTER and not is_told:
            from logging import getLogger

            getLogger(__name__).warning("waiting for another process that holds the lock of %a", str(path))
            is_told = True
        time.sleep(0.01)
    return lock


def _flock(descriptor: int) -> _Lock:
    try:
        import fcntl
    except ImportError:
        return _Lock.UNAVAILABLE
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _Lock.BUSY
    except OSError:
        return _Lock.UNAVAILABLE
    return _Lock.HELD


def _status(path: Path) -> os.stat_result | None:
    """None when nothing is there."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _regular(path: Path) -> os.stat_result | None:
    status = _status(path)
    return status if status is not None and _has_a_name(status) else None


def _has_a_name(status: os.stat_result) -> bool:
    """Whether it is a regular file in a folder; ``/dev/stdout`` may be one that was deleted, which is written to."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 0


def _opened_folder(path: Path) -> int | None:
    """None where folders cannot be opened: Windows, and one in which we may write and not read."""
    try:
        return os.open(path, os.O_RDONLY)
    except PermissionError:
        return None


def _followed(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _temporary_of(target: Path) -> Path:
    """The one name beside the target that its new content may have."""
    name = target.name
    if len(os.fsencode(name)) > _LONGEST_NAME:
        from hashlib import sha256

        name = sha256(os.fsencode(name)).hexdigest()
    return target.with_name(f".{name}.a2a-sign")


def _open_to_lock(path: Path, flags: int = 0) -> int:
    flags |= getattr(os, "O_NONBLOCK", 0)  # a pipe that somebody put there holds nobody up
    try:
        return os.open(path, os.O_RDWR | flags)  # a lock over NFS needs the right to write
    except OSError:
        return os.open(path, os.O_RDONLY | flags)


def _open_without_name(folder: Path, rights: int) -> int | None:
    """A new file that has no name; None where there are none, or where they cannot get a name later."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, rights)
    except OSError:
        return None  # what is wrong with the folder is found when the temporary is made
    if not Path(f"/proc/self/fd/{descriptor}").exists():
        os.close(descriptor)
        return None
    return descriptor


def _link(descriptor: int, path: Path) -> None:
    """Give the file a name. FileExistsError when it is taken."""
    # With a directory's descriptor, although it is not needed, Python follows the link that /proc has.
    os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file has this name, still."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove_leftover(temporary: Path, *, wait_for: Collection[int] = (), of: os.stat_result | None = None) -> None:
    """Remove a temporary that a process left. One that a process works on stays.

    With ``wait_for`` that process is waited for if one of these users owns the temporary; else OSError. ``of`` is the
    target, if it is locked: a process that was killed may have left it with both names.
    """
    try:
        status = temporary.lstat()
        if not stat.S_ISREG(status.st_mode) or (of is not None and os.path.samestat(status, of)):
            temporary.unlink()  # never opened: we make no links, pipes or devices
            return
        descriptor = _open_to_lock(temporary, getattr(os, "O_NOFOLLOW", 0))
        try:
            lock = _flock(descriptor)
            if lock is _Lock.BUSY and wait_for:
                if os.fstat(descriptor).st_uid not in wait_for:
                    raise PermissionError(errno.EPERM, "another user's")
                lock = _waited_for(descriptor, temporary)
            if lock is not _Lock.BUSY and _is_at(descriptor, temporary):
                temporary.unlink()
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return
    except TimeoutError:
        raise
    except OSError as error:
        raise OSError(error.errno, f"{temporary} is in the way and cannot be removed; remove it") from None


def _acl_of(file: Path | int) -> bytes | None:
    """The POSIX ACL, as Linux has it; None where there is none, and empty when it cannot be read."""
    if not hasattr(os, "getxattr"):
        return None
    try:
        return os.getxattr(file, _ACL)
    except OSError as error:
        return None if error.errno in (errno.ENODATA, errno.ENOTSUP) else b""


def _give_rights(descriptor: int, mode: int | None, old: os.stat_result | None, acl: bytes | None) -> None:
    """The mode, and the owner, group and ACL of the old file, as far as the process may give them."""
    if os.name != "posix" or mode is None:
        return
    if old is not None:
        try:
            os.fchown(descriptor, old.st_uid if os.geteuid() == 0 else -1, old.st_gid)
        except PermissionError:  # root of a container may lack the capability
            acl = acl and b""
            mode &= ~0o070 | (mode & 0o007) << 3  # our group is another one: it may do what everybody may
    if acl is not None:
        mode &= ~0o070  # with an ACL these bits are its mask, not what the group may
    os.fchmod(descriptor, mode)
    if acl:
        with suppress(OSError):
            os.setxattr(descriptor, _ACL, acl)


def _changed_meanwhile(path: Path) -> OSError:
    text = "another program changed it meanwhile; nothing was written to it, run the command again"
    return OSError(errno.EBUSY, text, str(path))


@contextmanager
def _naming(path: Path, advice: Mapping[int, str] = MappingProxyType({})) -> Iterator[None]:
    """OSErrors of the block name the file that people named, never a temporary, and say what to do."""
    try:
        yield
    except OSError as error:
        number, text = error.errno or errno.EIO, error.strerror or str(error)
        raise OSError(number, "; ".join(filter(None, (text, advice.get(number)))), str(path)) from None
