"""What a piece of code does to the world outside the process, as the interpreter's own audit events tell it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_OUTSIDE = ("socket.", "urllib.", "http.", "open", "os.open", "subprocess.", "os.system", "os.exec", "os.posix_spawn")
_watched: dict[int, list[str]] = {}


def _hook(event: str, args: tuple[object, ...]) -> None:
    if _watched and event.startswith(_OUTSIDE):
        events = _watched.get(threading.get_ident())
        if events is not None:
            events.append(f"{event} {args!r}")


@contextmanager
def events_outside() -> Iterator[list[str]]:
    """The events of this thread while the block runs: sockets, names resolved, files, processes."""
    if _hook not in _installed:
        sys.addaudithook(_hook)  # stays for good, and does nothing while nobody watches
        _installed.append(_hook)
    events: list[str] = []
    _watched[threading.get_ident()] = events
    try:
        yield events
    finally:
        del _watched[threading.get_ident()]


_installed: list[object] = []
