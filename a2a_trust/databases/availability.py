"""How long, and how often, requests wait for a database; audit events when it is lost and when it is back."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

REQUEST_SECONDS: Final = 0.25
"""How long a request waits for a database, where nothing else is asked for."""

_PAUSE_SECONDS: Final = 1.0

_log: Final = logging.getLogger("a2a_trust.audit")
"""The logger of ``middleware.audit``, which lists all events."""


class Availability:
    """Whether a store can be reached, as this process saw it last."""

    def __init__(self, what: str) -> None:
        """``what`` names the store for people, with its address and without a password."""
        self._what = what
        self._is_lost = False

    def lost(self, why: str) -> None:
        """A request could not use the store. ``why`` holds no secret."""
        if not self._is_lost:
            self._is_lost = True
            event = {"event": "store-lost", "detail": f"{self._what}: {why}"}
            _log.warning("lost the %s: %s", self._what, why, extra={"audit": event})

    def works(self) -> None:
        """A request could use the store."""
        if self._is_lost:
            self._is_lost = False
            event = {"event": "store-found", "detail": self._what}
            _log.warning("the %s is back", self._what, extra={"audit": event})


class Pause:
    """Leaves a lost store alone, for requests that can do without it: not all of them wait for its time limit.

    After a failure, one request per second tries the store. The others go on without it.
    """

    def __init__(self) -> None:
        self._is_lost = False
        self._ends = -math.inf

    def may_try(self) -> bool:
        """Whether to use the store now. If so, make a ``trip``."""
        now = time.monotonic()
        if self._is_lost and now < self._ends:
            return False
        self._ends = now + _PAUSE_SECONDS  # while this request finds out, the others do not wait
        return True

    @contextmanager
    def trip(self) -> Iterator[None]:
        """The block uses the store, and raises if that cannot be used."""
        try:
            yield
        except Exception:
            self._is_lost, self._ends = True, time.monotonic() + _PAUSE_SECONDS
            raise
        self._is_lost = False
