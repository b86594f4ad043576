"""Processes that end with the test that started them, and waiting until something has happened."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["SECONDS", "started", "until"]

SECONDS: Final = 60.0
"""How long a test waits for what has to happen: only a defect takes so long."""


@contextmanager
def started(command: Sequence[Any], **how: Any) -> Iterator[subprocess.Popen[Any]]:
    """The process, which is killed at the end of the block if it still runs."""
    with subprocess.Popen(command, **how) as process:
        try:
            yield process
        finally:
            process.kill()


async def until(happened: Callable[[], bool], what: str) -> None:
    """Wait until it has happened, while other tasks run; an error that names it when it does not."""
    ends = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < ends, f"in {SECONDS:.0f} s it did not happen: {what}"
        await asyncio.sleep(0.01)
