"""A line that shows on a terminal how far a command over many cards is."""

from __future__ import annotations

import sys
import time
from typing import Final, Self

_EVERY: Final = 0.2
"""Seconds between two changes of the line."""
_LEAST: Final = 2.0
"""Seconds before the line is shown for the first time: most commands are done before."""


class Progress:
    """A line on standard error with the number of cards that are done, and the time left if their number is known.

    It is shown on a terminal only. ``hide`` removes it before other lines are written.
    """

    def __init__(self, total: int | None) -> None:
        self._stream = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
        self._total = total
        self._start = time.monotonic()
        self._next = self._start + _LEAST
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def show(self, done: int, failed: int) -> None:
        """Show these numbers, if the last ones are old enough."""
        now = time.monotonic()
        if self._stream is None or now < self._next:
            return
        self._next, self._is_shown = now + _EVERY, True
        of = f" of {self._total:,}" if self._total else ""
        rate = done / (now - self._start)
        left = f", {_clock((self._total - done) / rate)} left" if self._total and rate else ""
        wrong = f", {failed:,} failed" if failed else ""
        print(f"\r{done:,}{of} cards, {rate:,.0f} a second{left}{wrong}\x1b[K", end="", file=self._stream, flush=True)

    def hide(self) -> None:
        if self._is_shown and self._stream is not None:
            self._is_shown = False
            print("\r\x1b[K", end="", file=self._stream, flush=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
