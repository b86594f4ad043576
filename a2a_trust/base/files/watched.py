"""Files that the operator names: who may write them, and values that are read again after a change."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, BinaryIO, Final, Generic, TypeAlias, TypeVar

from a2a_trust.errors import ConfigurationError

if TYPE_CHECKING:
    from logging import Logger  # slow to import, and commands that only sign need no log

Stamp: TypeAlias = tuple[int, ...]

RETRY_SECONDS: Final = 1.0
"""The time, after a failure, until the same content is tried again: the file system may have failed or be slow."""

_T = TypeVar("_T")


def stamp_of(status: os.stat_result) -> Stamp:
    """A value that changes with the file: another file at the same path, new content, new rights.

    Take it from the open file before reading, so that a change in between is noticed the next time.
    """
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def stamp_of_path(path: Path) -> Stamp | None:
    """As ``stamp_of``; None if the status of the file cannot be read."""
    try:
        return stamp_of(path.stat())
    except OSError:
        return None


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; OSError if it is not a regular file.

    Opening a pipe normally waits for its writer, and would block an event loop.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def read_at_most(file: BinaryIO, size: int) -> bytes:
    """The rest of a file, at most ``size`` bytes. Most files are short, and need no memory for ``size`` bytes."""
    start = file.read(min(size, 65_536))  # then the card of a file is verified in a fifth less time
    return start if len(start) < 65_536 else start + file.read(size - 65_536)


def missing_file(path: Path, kind: str, maker: str) -> FileNotFoundError:
    """The error for a file that does not exist; ``maker`` is a command that makes such a file."""
    return FileNotFoundError(errno.ENOENT, f"no such {kind}; check the path, or make one with: {maker}", str(path))


def check_writers(status: os.stat_result, path: Path, harm: str) -> None:
    """ConfigurationError if everybody can write to the file; ``harm`` says what they could do.

    Pass the status of the open file, because the path could be replaced between a check and the opening. Files that
    others can read are fine, and so are files of another owner: often an administrator, or the volume of a container.
    The folder is not checked, although its writers can replace the file.
    """
    if os.name == "posix" and stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWOTH:
        fix = f"chmod o-w {shlex.quote(str(path))}"
        raise ConfigurationError(f"everybody can write to {path} and {harm}; check its content, then run: {fix}")


def reason_of(error: Exception) -> str:
    """The text of an error, without the path of an OSError."""
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)


def log_outcome(
    log: Logger, what: object, reason: Callable[[Exception], str] = reason_of
) -> Callable[[Exception | None], None]:
    """A ``tell`` for ``Watched`` that logs what became of ``what``."""

    def tell(failure: Exception | None) -> None:
        if failure is None:
            log.info("%s was read again", what)
        else:
            log.error("%s cannot be read; keeping the previous version: %s", what, reason(failure))

    return tell


class Watched(Generic[_T]):
    """A value that is read from files, and read again when they have changed.

    - ``look`` returns the stamp of the files: any value that differs after a change.
    - ``read`` returns the value, and the stamp of the files before it read them.
    - If ``read`` raises one of ``failures``, the last value stays. The next change of the files is tried at once, the
      same content again after a second.
    - ``tell`` gets the failure, once for each change, and None as soon as a value is read again.
    - The files are checked when the value is asked for, at most once in ``every`` seconds (0: each time).

    Threads may share it: one checks, the others wait. Limits of sizes are the job of ``read``.
    """

    def __init__(
        self,
        read: Callable[[], tuple[_T, object]],
        look: Callable[[], object],
        *,
        failures: tuple[type[Exception], ...],
        tell: Callable[[Exception | None], None],
        every: float = 0.0,
    ) -> None:
        """Read the value for the first time; raises the errors of ``read``."""
        self._read, self._look, self._failures, self._tell, self._every = read, look, failures, tell, every
        self._lock = threading.RLock()  # a log handler that ``tell`` reaches may ask for the value
        self._failed_at: float | None = None
        self._looked_at = monotonic()
        self._value, self._seen = read()

    def value(self) -> _T:
        with self._lock:
            now = monotonic()  # not the time of day, which can jump
            if now - self._looked_at >= self._every:
                self._looked_at = now
                self._read_if_changed(now)
            return self._value

    def _read_if_changed(self, now: float) -> None:
        looked = self._look()
        is_changed = looked != self._seen
        if not is_changed and (self._failed_at is None or now - self._failed_at < RETRY_SECONDS):
            return
        try:
            self._value, self._seen = self._read()
        except self._failures as error:
            self._seen, self._failed_at = looked, now
            if is_changed:
                self._tell(error)
        else:
            self._failed_at = None
            self._tell(None)
