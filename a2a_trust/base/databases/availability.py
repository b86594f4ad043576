"""What PostgreSQL and Redis have in common: URLs whose passwords never reach an error or a log, time limits, errors,
and audit events when a database is lost and when it is back.

- Connections are opened when they are first needed, in each event loop and in each process: a fork inherits none.
- A request waits for ``timeout`` seconds at most, for a connection and for its answer together. There are no silent
  retries, and after an outage the next request connects again.
"""

from __future__ import annotations

import logging
import math
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, Self, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from a2a_trust.base.net.addresses import is_this_machine
from a2a_trust.base.state_changes import StateChange, StateKind, announce
from a2a_trust.errors import ConfigurationError, TrustError

_URL: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
_POSTGRES: Final = ("postgresql", "postgres")
_REDIS: Final = ("redis", "rediss", "unix")
_REDIS_OPTIONS: Final = {"db"}
#: Of PostgreSQL, those that say where the database is, and how to reach it.
_SAFE_OPTIONS: Final = {
    "host", "port", "dbname", "database", "user", "passfile", "service", "sslmode", "sslrootcert", "sslcert", "sslkey",
    "sslcrl", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version", "target_session_attrs",
    "krbsrvname", "gsslib",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """A URL of a database, checked. ``text`` is secret; ``shown``, without password and options, is for people."""

    text: str = field(repr=False)
    shown: str
    argument: str
    """For a command that a person copies: without the password, and with the options that hold no secret."""
    has_password: bool
    is_local: bool
    """Whether the connection stays on this machine."""
    names_tls: bool
    """Whether the URL, or the environment, says how the connection is encrypted."""
    names_role: bool
    """Whether the URL, or the environment, says if a standby will do."""

    @classmethod
    def postgres(cls, text: str) -> DatabaseUrl:
        """ConfigurationError: not a URL of PostgreSQL."""
        return cls._read(text, _POSTGRES, "postgresql://USER@HOST/DATABASE")

    @classmethod
    def redis(cls, text: str) -> DatabaseUrl:
        """ConfigurationError: not a URL of Redis, or with options that would change how we use it."""
        read = cls._read(text, _REDIS, "rediss://HOST:6379/0, or redis://… without TLS")
        unknown = {name for name, _ in parse_qsl(urlsplit(text).query, keep_blank_values=True)} - _REDIS_OPTIONS
        if unknown:
            raise ConfigurationError(f"the URL {read.shown} has options; write it without what follows the ?")
        parts = urlsplit(text)
        numbers = [value for _, value in parse_qsl(parts.query, keep_blank_values=True)]
        if parts.scheme != "unix" and parts.path not in ("", "/"):
            numbers.append(parts.path[1:])
        if not all(number.isascii() and number.isdigit() for number in numbers):
            raise ConfigurationError(f"the URL {read.shown} names no database; write its number, as in /0")
        return read

    @classmethod
    def _read(cls, text: str, schemes: tuple[str, ...], example: str) -> DatabaseUrl:
        parts = _parts_of(text)
        if parts is None or parts.scheme not in schemes:
            raise ConfigurationError(f"not the URL of a database; write {example}")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        user, place = parts.username, parts.netloc.rpartition("@")[2]
        shown = f"{parts.scheme}://{f'{user}@' if user else ''}{place}{parts.path}"
        safe = urlencode([(name, value) for name, value in options.items() if name in _SAFE_OPTIONS], safe="/,")
        return cls(
            text=text,
            shown=shown,
            argument=f"{shown}?{safe}" if safe else shown,
            has_password=parts.password is not None or not options.keys().isdisjoint(("password", "sslpassword")),
            is_local=_stays_here(place or options.get("host", ""), options, is_postgres=schemes is _POSTGRES),
            names_tls="sslmode" in options or "PGSSLMODE" in os.environ,
            names_role="target_session_attrs" in options or "PGTARGETSESSIONATTRS" in os.environ,
        )


def is_database_url(text: str) -> bool:
    """Whether an argument is a URL, and not a file. Also one of no database, or with a blank before it:
    an error would show it as a path."""
    return _URL.match(text) is not None


def _parts_of(text: str) -> SplitResult | None:
    """The parts of a URL; None if a part is not what it seems."""
    if type(text) is not str or not text.isprintable() or text != text.strip() or "#" in text:
        return None
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    # A password with / or ? in it would end up in the path, and be shown.
    is_cut = "@" in parts.path or ("@" not in parts.netloc and "@" in parts.query)
    is_good = not is_cut and all(map(_has_good_port, parts.netloc.rpartition("@")[2].split(",")))
    return parts if is_good else None


def _has_good_port(place: str) -> bool:
    """Whether the port of ``host:port`` is a number that a port can be; it may be left out."""
    _, _, port = place.rpartition("]")[2].partition(":")
    return not port or (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535)


def _stays_here(hosts: str, options: Mapping[str, str], *, is_postgres: bool) -> bool:
    """Whether all hosts are sockets of this machine, or loopback addresses; they may have ports."""
    if "service" in options or "PGSERVICE" in os.environ:  # whose file may name another machine
        return False
    if is_postgres:
        hosts = hosts or os.environ.get("PGHOST", "")
    names = [host.partition("]")[0] + "]" if host[:1] == "[" else host.partition(":")[0] for host in hosts.split(",")]
    return all(not name or name.startswith("/") or is_this_machine(name.lower()) for name in names)


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
