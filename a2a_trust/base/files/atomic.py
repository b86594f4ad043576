"""Write files atomically, and allow only one process at a time to change a file.

Readers see the old content or the new one, never a part. A process that is killed at any moment leaves one of the two:

1. The new content is written to a file with the temporary name ``.NAME.a2a-sign`` in the folder of the target, and to
   the disk. A secret is written to a file without a name (``O_TMPFILE``) if the system and the file system have such
   files, so that a kill does not leave it behind. It gets the temporary name afterwards, or its own if that is free.
2. The file is renamed. A new file that must not replace another gets its name by a link, which fails if it is taken.

A kill before the end of step 2 leaves the temporary name, which the next process that writes this file removes.

Two locks (``flock``) keep processes apart. A process that changes a file locks the file itself, from reading to
writing. It also locks the new content, before that has a name. So a temporary name with unlocked content was left by a
process that was killed. The system frees both locks when a process ends, however it ends. Anybody who can open a file
can lock it for ever, so no process waits longer than 30 seconds.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final, Self

from a2a_trust.base.files.watched import Stamp, read_at_most, stamp_of, stamp_of_path
from a2a_trust.errors import ConfigurationError

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
    """The content that may be replaced when a file is written."""

    NOTHING = auto()
    ANYTHING = auto()
    WHAT_WAS_READ = auto()
    """Only the content at the time of the lock; a change that another program made without the lock is not lost."""


def flush_folder(folder: Path) -> None:
    """Flush the folder to the disk, so that new content in it is in place after a power cut, too."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # on Windows, and without the right to read it
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileToWrite:
    """A change of a file: lock it, read it, prepare the new content, commit.

    Several files can all be prepared, and every reason to fail is met, before the first one is changed. As a context
    manager it removes content that was not committed, and frees the lock.

    - A symbolic link is followed, except with ``Over.NOTHING``.
    - A new file gets the mode that ``prepare`` is given, or the default mode of the process.
    - An existing file keeps its mode, and its owner and group if the process may set them. Rights that cannot be kept
      are removed, never given to others. A POSIX ACL is not kept: the group loses its rights, and the log says so.
    - With a mode the content may be secret, so the new file belongs to its writer, whatever file was there.
    - Anything but a regular file (a pipe, a device) is neither locked nor replaced: ``commit`` writes to it, with a
      mode only if it belongs to this user or to root.

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
        """Lock the file, if it exists. False: another process has the lock, and ``wait`` is not set.

        OSError: the other process has kept the lock for 30 seconds. After one second the log names the file.

        Without ``flock`` (Windows, some file systems, and NFS for a file that is read-only for us) ``is_locked`` stays
        False. Then ``commit`` detects a change by another process, and fails.
        """
        with _naming(self.path):
            while (status := _status(self.path)) is not None and _has_a_name(status):
                self._target = _follow(self.path)
                try:
                    descriptor = _open_to_lock(self.path)
                except FileNotFoundError:
                    continue  # it was removed in between, perhaps to be replaced
                except PermissionError:
                    if self.over is Over.WHAT_WAS_READ:
                        raise
                    return True  # it can be replaced unread
                lock = _wait_for_lock(descriptor, self.path) if wait else _flock(descriptor)
                if lock is not _Lock.BUSY and _is_at(descriptor, self._target):
                    self._file, self.is_locked = os.fdopen(descriptor, "rb"), lock is _Lock.HELD
                    if self.is_locked:
                        _remove_leftover(_temporary_of(self._target), of=os.fstat(descriptor))
                    self._seen = stamp_of(os.fstat(descriptor))
                    return True
                os.close(descriptor)
                if lock is _Lock.BUSY:
                    return False
                # Another file has replaced it while we waited: lock that one.
        return True

    def unlock(self) -> None:
        """Free the lock, and forget the stamp of the file."""
        file, self._file, self._seen, self.is_locked = self._file, None, None, False
        if file is not None:
            file.close()

    @property
    def opened(self) -> BinaryIO:
        """The locked file, open for reading."""
        if self._file is None:
            self.path.stat()  # FileNotFoundError
            raise OSError(errno.EINVAL, "not a regular file", str(self.path))
        return self._file

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes of the content."""
        if self._file is not None:
            self._file.seek(0)
            return read_at_most(self._file, size)
        with self.path.open("rb") as file:
            return read_at_most(file, size)

    def prepare(self, data: bytes | Iterable[bytes], *, mode: int | None = None) -> None:
        """Write the new content, or its parts, to the disk, beside the old one. FileExistsError as ``commit``."""
        parts = (data,) if isinstance(data, bytes) else data
        with _naming(self.path, _ADVICE):
            if is_reserved(self.path) or is_reserved(_follow(self.path)):
                raise OSError(errno.EINVAL, "such names are reserved for temporary files; name another file")
            self.check()  # otherwise a removed file would be made again, with the default rights
            old = self._status_of_old()
            if old is not None and self._file is None and not _has_a_name(old):
                self._for_device, self._is_secret = b"".join(parts), mode is not None
                self._check_device(old)
                return
            if self.over is not Over.NOTHING:
                self._target = _follow(self.path)
            self._is_new = old is None
            is_secret = mode is not None
            if is_secret:
                old = None  # another user may have put the file there: its owner and group must not get the secret
            elif old is not None:
                mode = stat.S_IMODE(old.st_mode)
            # Never more than the final rights: others must not read a secret, not even for a moment.
            self._open_new(0o666 if mode is None else mode & 0o600, is_secret=is_secret)
            with os.fdopen(self._descriptor, "wb", closefd=False) as file:
                file.writelines(parts)
                file.flush()
                file_read = self._target if self._file is None else self._file.fileno()  # the one of which old is
                has_acl = old is not None and _has_acl(file_read)
                _give_rights(self._descriptor, mode, old, has_acl=has_acl)
                if has_acl:
                    _warn("%a had a POSIX ACL, which is dropped; its group has no rights now", self.path)
                os.fsync(self._descriptor)

    def check(self) -> None:
        """OSError if another program has changed or replaced the file since it was read."""
        if self.over is Over.WHAT_WAS_READ and self._seen not in (None, stamp_of_path(self.path)):
            raise _changed_meanwhile(self.path)

    def commit(self, flush: Callable[[Path], object] = flush_folder) -> None:
        """Put the new content in place, and flush it to the disk. FileExistsError: it exists, with ``Over.NOTHING``.

        OSError: also as ``check``. ``flush`` gets the folder; a caller with many files flushes it once, at the end.
        """
        with _naming(self.path, _ADVICE):
            if self._for_device is not None:
                with self.path.open("wb") as device:
                    self._check_device(os.fstat(device.fileno()))
                    device.write(self._for_device)
                return
            self._put_in_place()
            flush(self._target.parent)

    def discard(self) -> None:
        """Remove the prepared content that was not committed."""
        new, self._new = self._new, None
        if new is not None:
            os.close(new)
        if self._temporary is not None:
            _remove_leftover(self._temporary)
            self._temporary = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.discard()
        finally:
            self.unlock()

    @property
    def _descriptor(self) -> int:
        if self._new is None:
            raise AssertionError("prepare comes before commit")
        return self._new

    def _status_of_old(self) -> os.stat_result | None:
        """The status of the file that the new content replaces."""
        if self.over is Over.NOTHING:
            if os.path.lexists(self.path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            return None
        return _status(self.path) if self._file is None else os.fstat(self._file.fileno())

    def _check_device(self, status: os.stat_result) -> None:
        if self._is_secret and os.name == "posix" and status.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EINVAL, "not a regular file, and it belongs to another user; nothing was written")

    def _open_new(self, rights: int, *, is_secret: bool) -> None:
        """Open and lock the file for the new content, for a secret without a name if the system supports that."""
        temporary = _temporary_of(self._target)
        self._new = _open_without_name(self._target.parent, rights) if is_secret else None
        if self._new is not None:
            _flock(self._new)
            if self._is_new:
                _remove_leftover(temporary)
            return
        self._temporary = temporary  # before it is made: a signal may come at any moment
        while True:
            try:
                # Exclusive: neither a link nor a file of another process is opened.
                self._new = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, rights)
            except FileExistsError:
                self._clear(temporary)
                continue
            if _flock(self._new) is not _Lock.BUSY and _is_at(self._new, temporary):
                return
            os.close(self._new)  # before the lock, another process removed it as a leftover

    def _clear(self, temporary: Path) -> None:
        """Remove a temporary file after waiting for its process, unless another user owns it."""
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
        temporary = self._temporary or self._give_name()
        if not _is_at(self._descriptor, temporary):
            raise _changed_meanwhile(self.path)  # only where nothing can be locked
        self.check()  # as late as possible: only a change between this and the next call is not detected
        if os.name != "posix":  # Windows can neither rename nor replace an open file
            os.close(self._descriptor)
            self._new = None
            self.unlock()
        if self.over is Over.NOTHING:
            os.link(temporary, self._target)  # unlike a renaming, this fails when the name is taken
            temporary.unlink()
        else:
            temporary.replace(self._target)
        self._temporary = None

    def _give_name(self) -> Path:
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
    """Whether it is the name of a temporary file, which the next command may remove."""
    return path.name.startswith(".") and path.name.endswith(".a2a-sign")


def is_taken(path: Path) -> bool:
    """Whether the name is taken. A leftover of a killed process beside it is removed first."""
    with FileToWrite(path, Over.NOTHING) as file:
        file.lock(wait=False)
    return os.path.lexists(path)


def write_atomically(path: Path, data: bytes, *, mode: int | None = None, replace: bool = True) -> None:
    """Write ``data`` to the file, as ``FileToWrite`` does. FileExistsError: it exists, and ``replace`` is False."""
    with FileToWrite(path, Over.ANYTHING if replace else Over.NOTHING) as file:
        file.lock(wait=replace)  # this also removes what a killed process left
        file.prepare(data, mode=mode)
        file.commit()


@contextmanager
def lock_file(path: Path) -> Iterator[FileToWrite]:
    """In the block, the file is locked, so no other process changes it.

    FileNotFoundError: it does not exist. ConfigurationError: the system or file system has no locks.
    """
    with FileToWrite(path, Over.WHAT_WAS_READ) as file:
        file.lock()
        if not file.is_locked:
            file.opened.fileno()  # it is there, and a regular file
            raise ConfigurationError(
                f"{path} can be changed only under a POSIX lock, which this system or file system does not have; "
                "change it on a system that has such locks"
            )
        yield file


class _Lock(Enum):
    HELD = auto()
    BUSY = auto()
    UNAVAILABLE = auto()


def _wait_for_lock(descriptor: int, path: Path) -> _Lock:
    """As ``_flock``, after waiting for the process that has the lock. TimeoutError: it keeps the lock."""
    begun, is_told = time.monotonic(), False
    while (lock := _flock(descriptor)) is _Lock.BUSY:
        waited = time.monotonic() - begun
        if waited >= _LONGEST_WAIT:
            text = f"another process holds the lock of {path}; end that process (fuser shows it) and run this again"
            raise TimeoutError(errno.ETIMEDOUT, text)
        if waited >= _TELL_AFTER and not is_told:
            _warn("waiting for another process that holds the lock of %a", path)
            is_told = True
        time.sleep(0.01)
    return lock


def _warn(text: str, path: Path) -> None:
    from logging import getLogger

    getLogger(__name__).warning(text, str(path))


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
    """The status of the file; None if it does not exist."""
    before = None
    try:
        while True:
            status = path.stat()
            # The system may find a file that is being replaced without a name, but not twice.
            if status.st_nlink > 0 or (before is not None and os.path.samestat(status, before)):
                return status
            before = status
    except FileNotFoundError:
        return None


def _has_a_name(status: os.stat_result) -> bool:
    """Whether it is a regular file with a name; ``/dev/stdout`` may be a deleted file, which is written to directly."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 0


def _follow(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _temporary_of(target: Path) -> Path:
    """The temporary name for the new content of the target."""
    name = target.name
    if len(os.fsencode(name)) > _LONGEST_NAME:
        from hashlib import sha256

        name = sha256(os.fsencode(name)).hexdigest()
    return target.with_name(f".{name}.a2a-sign")


def _open_to_lock(path: Path, flags: int = 0) -> int:
    flags |= getattr(os, "O_NONBLOCK", 0)  # opening a pipe must not block
    try:
        return os.open(path, os.O_RDWR | flags)  # a lock over NFS needs the right to write
    except OSError:
        return os.open(path, os.O_RDONLY | flags)


def _open_without_name(folder: Path, rights: int) -> int | None:
    """A new file without a name; None if the system has no such files, or cannot name them later."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, rights)
    except OSError:
        return None  # an error of the folder comes when the temporary file is made
    if not Path(f"/proc/self/fd/{descriptor}").exists():
        os.close(descriptor)
        return None
    return descriptor


def _link(descriptor: int, path: Path) -> None:
    """Give the open file a name; FileExistsError."""
    # src_dir_fd is not needed, but only with it Python follows the link in /proc.
    os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file still has this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove_leftover(temporary: Path, *, wait_for: Collection[int] = (), of: os.stat_result | None = None) -> None:
    """Remove a temporary file that a killed process left; a running process keeps its file.

    With ``wait_for``, wait for the process if one of these users owns the temporary file; else OSError. ``of`` is the
    locked target: a killed process may have left it with both names.
    """
    try:
        status = temporary.lstat()
        if not stat.S_ISREG(status.st_mode) or (of is not None and os.path.samestat(status, of)):
            temporary.unlink()  # not made by us, who make no links, pipes and devices; never open it
            return
        descriptor = _open_to_lock(temporary, getattr(os, "O_NOFOLLOW", 0))
        try:
            lock = _flock(descriptor)
            if lock is _Lock.BUSY and wait_for:
                if os.fstat(descriptor).st_uid not in wait_for:
                    raise PermissionError(errno.EPERM, "another user's")
                lock = _wait_for_lock(descriptor, temporary)
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


def _has_acl(file: Path | int) -> bool:
    """Whether the file has a POSIX ACL; also if that cannot be read."""
    if not hasattr(os, "getxattr"):
        return False
    try:
        os.getxattr(file, _ACL)
    except OSError as error:
        return error.errno not in (errno.ENODATA, errno.ENOTSUP)
    return True


def _give_rights(descriptor: int, mode: int | None, old: os.stat_result | None, *, has_acl: bool) -> None:
    """Set the mode, and the owner and group of the old file as far as the process may."""
    if os.name != "posix" or mode is None:
        return
    if old is not None:
        try:
            os.fchown(descriptor, old.st_uid if os.geteuid() == 0 else -1, old.st_gid)
        except PermissionError:  # root of a container may lack the capability
            mode &= ~0o070 | (mode & 0o007) << 3  # the new file has our group, which gets the rights of everybody
    if has_acl:
        mode &= ~0o070  # with an ACL these bits are its mask, not the rights of the group
    os.fchmod(descriptor, mode)


def _changed_meanwhile(path: Path) -> OSError:
    text = "another program changed it meanwhile; nothing was written to it, run the command again"
    return OSError(errno.EBUSY, text, str(path))


@contextmanager
def _naming(path: Path, advice: Mapping[int, str] = MappingProxyType({})) -> Iterator[None]:
    """In the block, OSErrors name the file that people named, never a temporary file, and say what to do."""
    try:
        yield
    except OSError as error:
        number, text = error.errno or errno.EIO, error.strerror or str(error)
        raise OSError(number, "; ".join(filter(None, (text, advice.get(number)))), str(path)) from None
