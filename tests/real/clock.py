"""A clock that a test moves, in place of waiting."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

__all__ = ["Clock"]


class Clock:
    """The time, and ``passed`` seconds more, which a test adds to."""

    def __init__(self) -> None:
        self.passed = 0.0

    def wall(self) -> float:
        return time.time() + self.passed

    def monotonic(self) -> float:
        return time.monotonic() + self.passed

    def is_of(self, module: str, patch: pytest.MonkeyPatch) -> None:
        """The module, which takes no clock, reads this one."""
        patch.setattr(f"{module}.time", SimpleNamespace(time=self.wall, monotonic=self.monotonic))
