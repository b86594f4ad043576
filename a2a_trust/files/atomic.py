"""Write files whole or not at all: whoever reads one sees the old content or the new one, never a part; and have one
process at a time change them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from a2a_trust.errors import ConfigurationError

__all__ = ["PreparedFile", "locked", "write_atomically"]


class PreparedFile:
    """New content for a file, on the disk beside it, which ``commit`` puts in its place.

    Why this is a class: of several files all can be prepared, and every reason to fail met, before the first is
    changed. As a context manager it leaves nothing behind when it is not committed.

    A symbolic link is followed. A new file gets ``mode``, else what the umask leaves; a file that is there keeps its
    own mode unless one is given, and its owner where the process may give it. What is not a regular file (a pipe, a
    device) is written to directly, at ``commit``.
    """

    def __init__(self, path: Path, data: bytes, *, mode: int | None = None) -> None:
        """OSErrors as they come."""
        self._target = Path(os.path.realpath(path))
        self._data = data
        self._temporary: Path | None = None
        old = self._target.stat() if self._target.exists() else None
        if old is not None and not self._target.is_file():
            return
        if mode is None and old is not None:
            mode = old.st_mode & 0o7777
        temporary = self._target.with_name(f".{os.urandom(8).hex()}")
        # Made with the final rights: a secret is never readable by others, not even for a moment.
        rights = 0o666 if mode is None else mode & 0o600
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, rights)
        except OSError as error:
            error.filename = str(path)  # the file that people know
            raise
        self._temporary = temporary
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                if old is not None and os.name == "posix" and os.geteuid() == 0:
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
            if mode is not None:
                temporary.chmod(mode)
        except BaseException:
            self.discard()
            raise

    def commit(self, *, replace: bool = True) -> None:
        """Put the content in place, also after a crash. FileExistsError when something is there and not ``replace``."""
        if self._temporary is None:
            self._target.write_bytes(self._data)
            return
        if replace:
            self._temporary.replace(self._target)
        else:
            self._target.hardlink_to(self._temporary)  # unlike rename, this fails when the name is taken
        self.discard()
        if os.name == "posix":
            folder = os.open(self._target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def discard(self) -> None:
        """Remove what was prepared and not committed."""
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
            self._temporary = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()


def write_atomically(path: Path, data: bytes, *, mode: int | None = None, replace: bool = True) -> None:
    """After this the file holds ``data``; see ``PreparedFile``. FileExistsError when ``replace`` is false and something
    is there."""
    if not replace and os.path.lexists(path):
        raise FileExistsError(f"{path} is there already")
    with PreparedFile(path, data, mode=mode) as prepared:
        prepared.commit(replace=replace)


@contextmanager
def locked(path: Path) -> Iterator[BinaryIO]:
    """The file, open, and until the end for nobody else who changes it.

    The lock is on the file itself, so none is left behind and a crash frees it. A change puts another file in the
    place: whoever waited for the lock of the old one looks again.
    """
    try:
        import fcntl
    except ImportError:
        raise ConfigurationError(
            f"{path} is changed under a lock of POSIX systems, which this system does not have; change it on one"
        ) from None
    while True:
        with path.open("r+b") as file:  # to write: a lock over NFS needs that
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield file
                return
