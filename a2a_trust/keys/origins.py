"""For which hosts a key may speak, and the host and the origin of a URL as every client reads them.

Hosts are compared as lower-case ASCII names, label by label, never as substrings: ``*.example.com`` covers
``a.example.com`` and ``a.b.example.com``, neither ``example.com`` nor ``badexample.com``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from a2a_trust.errors import ConfigurationError, MalformedError

__all__ = ["Origins", "UnsafeAnyOrigin", "host_of", "origin_of"]

_NAME: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
#: What most URLs look like: their host needs no second thought.
_USUAL_URL: Final = re.compile(rf"https?://({_NAME.pattern})(?::[0-9]{{1,5}})?(?:/[A-Za-z0-9._~/-]*)?")
_IPV6: Final = re.compile(r"\[[0-9a-f:.]+\]")
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_AUTHORITY: Final = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{1,5}))?")


@lru_cache(maxsize=4096)
def host_of(url: str) -> str:
    """The host of a URL, or of ``host:port`` as gRPC addresses are written, in lower case.

    MalformedError for what two readers could take for two hosts: user information, blanks, backslashes, control
    and non-ASCII characters (write such a name in its xn-- form), percent escapes and empty labels in the host.
    """
    usual = _USUAL_URL.fullmatch(url) if len(url) <= 2048 else None
    if usual is not None and len(usual[1]) <= 253:
        return usual[1]
    if len(url) > 2048 or not url.isascii() or re.search(r"[\x00-\x20\x7f\\]", url):
        raise MalformedError("URL: too long, or with blanks, backslashes, control or non-ASCII characters")
    authority = url
    if "/" in url or "?" in url or "#" in url:
        try:
            authority = urlsplit(url).netloc
        except ValueError:
            authority = ""
        if not url.partition(":")[2].startswith("//"):
            authority = ""  # relative, or of a scheme that has no host
    match = _AUTHORITY.fullmatch(authority)
    host = match["host"].lower() if match else ""
    if len(host) > 253 or not (_NAME.fullmatch(host) or _IPV6.fullmatch(host)):
        raise MalformedError("URL: no host that every reader takes for the same; write https://host/path or host:port")
    return host


def origin_of(url: str) -> str:
    """Scheme, host and port in one spelling: ``https://agent.example.com``, ``http://[::1]:8080``.

    The default port of http and https is left out; ``host:port``, as gRPC addresses are written, has no scheme.
    MalformedError as for ``host_of``, and for what is no port.
    """
    host = host_of(url)
    parts = urlsplit(url if "//" in url else f"//{url}")
    try:
        port = parts.port
    except ValueError:
        raise MalformedError("URL: its port is none; write a number up to 65535") from None
    return f"{parts.scheme}://{host}" + ("" if port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f":{port}")


class Origins:
    """The hosts that a key may speak for: exact names, and ``*.`` with a parent of at least two labels."""

    __slots__ = ("_exact", "_suffixes", "patterns")

    def __init__(self, *patterns: str) -> None:
        if not patterns:
            raise ConfigurationError(
                'Origins() covers nothing; name hosts, as in Origins("agent.example.com", "*.example.org"), '
                "or write UnsafeAnyOrigin() to let the key speak for every host"
            )
        exact, suffixes = set(), set()
        for pattern in patterns:
            if pattern.startswith("*."):
                parent = pattern[2:].lower()
                if not _NAME.fullmatch(parent) or "." not in parent:
                    raise ConfigurationError(f'{pattern!r}: write "*." and a parent of two labels or more')
                suffixes.add(f".{parent}")
            else:
                host = pattern.lower()
                if not (_NAME.fullmatch(host) or _IPV6.fullmatch(host)):
                    raise ConfigurationError(f"{pattern!r}: write a host alone, without scheme, port and path")
                exact.add(host)
        self.patterns = patterns
        self._exact = frozenset(exact)
        self._suffixes = tuple(sorted(suffixes))

    def covers(self, host: str) -> bool:
        """Whether a host, as ``host_of`` gives it, is among these."""
        return host in self._exact or any(
            host.endswith(suffix) and len(host) > len(suffix) for suffix in self._suffixes
        )

    def __repr__(self) -> str:
        return f"Origins({', '.join(map(repr, self.patterns))})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Origins):
            return NotImplemented
        return (self._exact, self._suffixes) == (other._exact, other._suffixes)

    def __hash__(self) -> int:
        return hash((self._exact, self._suffixes))


class UnsafeAnyOrigin:
    """Every host at once: what is proven with it is not bound to an origin.

    As the origins of a key: whoever holds the key can speak for every host. As the ``origin`` of a verification: the
    card may have come from anywhere, a card of one host replayed by another is not noticed.
    """

    __slots__ = ()

    def covers(self, host: str) -> bool:  # noqa: ARG002
        return True

    def __repr__(self) -> str:
        return "UnsafeAnyOrigin()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnsafeAnyOrigin)

    def __hash__(self) -> int:
        return hash(UnsafeAnyOrigin)
