"""How a program that goes on notices that a file has changed: by what the file system says of it, without reading."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

__all__ = ["Stamp", "stamp_of", "stamp_of_path"]

Stamp: TypeAlias = tuple[int, ...]


def stamp_of(status: os.stat_result) -> Stamp:
    """What differs after a change: another file in the same place, new content, new rights.

    Take it of the open file, before reading: then a change meanwhile is noticed the next time.
    """
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def stamp_of_path(path: Path) -> Stamp | None:
    """As ``stamp_of``; None for what cannot be looked at now."""
    try:
        return stamp_of(path.stat())
    except OSError:
        return None
