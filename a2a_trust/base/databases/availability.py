"""What PostgreSQL and Redis have in common: a client for each event loop, time limits, errors, and audit events when a
database is lost and when it is back.

- Connections are opened when they are first needed, in each event loop and in each process: a fork inherits none.
- A request waits for ``timeout`` seconds at most, for a connection and for its answer together. There are no silent
  retries, and after an outage the next request connects again.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Generic, Self, TypeVar

from a2a_trust.base.databases.addresses import DatabaseUrl
from a2a_trust.base.state_changes import StateChange, StateKind, announce
from a2a_trust.errors import ConfigurationError, TrustError

REQUEST_SECONDS: Final = 0.25
"""How long a request waits for a database, where nothing else is asked for."""

_PAUSE_SECONDS: Final = 1.0

_log: Final = logging.getLogger("a2a_trust.audit")
"""The logger of ``middleware.audit``, which lists all events."""


class Database(ABC):
    """A database server. All methods that use it raise ``unavailable`` in place of its errors."""

    #: The errors of the connection and of the server.
    _errors: tuple[type[Exception], ...]

    def __init__(self, kind: str, url: DatabaseUrl, what: str, unavailable: type[TrustError], timeout: float) -> None:
        """``what`` the database holds is for people ("API keys"). Nothing is connected yet."""
        if not timeout > 0:
            raise ConfigurationError(f"{kind}: timeout={timeout!r:.40} must be above 0, in seconds")
        self.url: Final = url
        self.what: Final = f"{what} in {url.shown}"
        self._unavailable, self._timeout = unavailable, timeout
        self.lost: str = ""
        """Why it cannot be used, since its last use failed; "" if it can."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections of the running event loop. The next use opens new ones."""

    @abstractmethod
    def _reason(self, error: Exception) -> str:
        """The fault, without a value of a command or a password."""

    @contextmanager
    def _translate(self, *, audits: bool = False, is_part: bool = False) -> Iterator[None]:
        """Errors of the connection and of the server become ``unavailable``; with ``audits`` they are audit events.

        After a part of a request (``is_part``) it is still unknown whether the database works.
        """
        try:
            yield
        except self._errors as error:
            why = self._reason(error)
            if audits and not self.lost:
                self.lost = f"{self.what}: {why}"
                event = {"event": "store-lost", "detail": f"{self.what}: {why}"}
                _log.warning("lost the %s: %s", self.what, why, extra={"audit": event})
                announce(StateChange(StateKind.STORE_LOST, event["detail"]))
            raise self._unavailable(f"the {self.what} cannot be used now: {why}") from None
        if audits and not is_part and self.lost:
            self.lost = ""
            event = {"event": "store-found", "detail": self.what}
            _log.warning("the %s is back", self.what, extra={"audit": event})
            announce(StateChange(StateKind.STORE_FOUND, self.what))


_D = TypeVar("_D", bound=Database)


class Pooled(Generic[_D]):
    """A store with connections of its own: an async context manager that closes them at its end."""

    _server: _D

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The next use opens new ones."""
        await self._server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Pause:
    """Circuit breaker for optional stores: after a failure one request a second tries it, the others skip it."""

    def __init__(self) -> None:
        self._is_lost = False
        self._ends = -math.inf

    def may_try(self) -> bool:
        """Whether to use the store now. A caller that gets True has to use it."""
        now = time.monotonic()
        if self._is_lost and now < self._ends:
            return False
        self._ends = now + _PAUSE_SECONDS  # while this request finds out, the others do not wait
        return True

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """The block uses the store, and raises if that cannot be used."""
        try:
            yield
        except Exception:
            self._is_lost, self._ends = True, time.monotonic() + _PAUSE_SECONDS
            raise
        self._is_lost = False
