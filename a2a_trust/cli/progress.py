"""How far a command is: a line on a terminal, and the line after a signal that ended it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
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


def note_targets(options: argparse.Namespace, names: Iterable[str], word: str = "") -> None:
    """Note the files that a command writes, before it does. ``word`` is its word for a card: "signed"."""
    before = {name: _state(name) for name in dict.fromkeys(names)}

    def said() -> str:
        written = [name for name in before if _state(name) != before[name]]
        if not written:
            return "nothing was written"
        if not word:
            return f"{' and '.join(written)} was written{'' if len(written) == len(before) else ', and nothing else'}"
        again = ", or with --if-needed" if word == "signed" else ""
        done = f"{len(written)} of {len(before)} cards {word}, up to {written[-1]}"
        return f"{done}; run the same command again{again}"

    options.interruption = said


def note_results(options: argparse.Namespace, total: int | None, word: str, done: Callable[[], int]) -> None:
    """Note how many cards or agents a command reports on; ``word`` is "cards verified", and ``done`` their number."""
    of = "" if total is None else f" of {total}"
    options.interruption = lambda: f"{done()}{of} {word}; run the same command again"


def note_transaction(options: argparse.Namespace) -> None:
    """Note that a command changes a store, in one transaction."""
    options.interruption = lambda: "the change of the store was made as a whole, or not at all; look with list or check"


@contextmanager
def hold_signals() -> Iterator[Callable[[], object]]:
    """In the block, signals that end the command wait until the block ends or calls the yielded function.

    So a new secret is either shown or taken back, and of two files both are written.
    """
    if sys.platform == "win32":
        yield lambda: None
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGHUP, signal.SIGINT))
    release = partial(signal.pthread_sigmask, signal.SIG_SETMASK, before)
    try:
        yield release
    finally:
        release()


def _state(name: str) -> tuple[int, int, int] | None:
    """Inode, time and size of the file, which differ after a write."""
    try:
        status = os.stat(name)  # noqa: PTH116  names may be no paths
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
