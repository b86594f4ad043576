"""Who can write to a file that decides whom we trust."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from a2a_trust.errors import ConfigurationError

__all__ = ["check_writers"]


def check_writers(status: os.stat_result, path: Path, what: str) -> None:
    """ConfigurationError when everybody can write to the file. ``what`` says what they could do with it.

    Take the status of the open file: between a look at the path and opening it may change. Files that others may read,
    and those of another owner, who is often an administrator or a container's volume, are fine. Not here: the folder,
    where who may write can put another file in its place.
    """
    if os.name == "posix" and stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWOTH:
        fix = f"chmod o-w {shlex.quote(str(path))}"
        raise ConfigurationError(f"everybody can write to {path} and {what}; look at it, then run: {fix}")
