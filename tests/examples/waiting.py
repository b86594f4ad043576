"""Waiting for what an example does at a time of its own."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["until"]


def until(happened: Callable[[], bool]) -> None:
    """Wait until it has happened. The end is far away: only a defect reaches it."""
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)
