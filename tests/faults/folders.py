"""Disks of a few kilobytes that are really mounted, filled and made read-only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["TMPFS", "Disk", "small_disk"]

_REASON = "a tmpfs can be mounted by root only"


def _can_mount() -> bool:
    return (
        hasattr(os, "geteuid")
        and os.geteuid() == 0
        and subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
        ).returncode
        == 0
    )


TMPFS = pytest.mark.skipif(not _can_mount(), reason=f"*** NOT TESTED: {_REASON} ***")


@dataclass(frozen=True)
class Disk:
    """A mounted disk."""

    path: Path

    def fill(self) -> None:
        """Until not one byte more fits."""
        with (self.path / "filler").open("ab", buffering=0) as filler:
            for size in (4096, 1):
                try:
                    while True:
                        filler.write(b"\0" * size)
                except OSError:
                    continue

    def empty(self) -> None:
        """Make room again."""
        (self.path / "filler").unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """For the block the disk is mounted read-only."""
        self._remount("ro")
        try:
            yield
        finally:
            self._remount("rw")

    def _remount(self, mode: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{mode}", self.path], check=True)


@contextmanager
def small_disk(path: Path, size: str = "64k") -> Iterator[Disk]:
    """A disk of that size at ``path``, which is made."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=True)
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
