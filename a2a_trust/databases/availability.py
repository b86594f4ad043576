"""How long requests wait for a database; one event in the audit trail when it is lost, and one when it is back."""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["REQUEST_SECONDS", "Availability"]

REQUEST_SECONDS: Final = 0.25
"""How long a request waits for a database, where nothing else is asked for."""

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
