"""The addresses of databases: URLs whose passwords never reach an error or a log."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from a2a_trust.base.net.addresses import is_this_machine
from a2a_trust.errors import ConfigurationError

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
