"""Write a file whole or not at all: whoever reads it sees the old content or the new one, never a part."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_atomically"]


def write_atomically(path: Path, data: bytes, *, mode: int | None = None, replace: bool = True) -> None:
    """After this the file holds ``data``, also after a crash.

    A symbolic link is followed. A new file gets ``mode``; without it an existing file keeps its own, and a new one
    gets what the umask leaves. What is not a regular file (a pipe, a device) is written to directly.
    FileExistsError when ``replace`` is false and something is there; other OSErrors as they come.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    if mode is None and target.exists():
        mode = target.stat().st_mode & 0o7777
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
    # Made with the final rights: a secret is never readable by others, not even for a moment.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode & 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        if replace:
            temporary.replace(target)
        else:
            target.hardlink_to(temporary)  # unlike rename, this fails when the name is taken
    finally:
        temporary.unlink(missing_ok=True)
