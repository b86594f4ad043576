"""Checks of files that the operator names: that they exist, and that not everybody can write to them."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from pathlib import Path

from a2a_trust.errors import ConfigurationError


def missing(path: Path, kind: str, maker: str) -> FileNotFoundError:
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
