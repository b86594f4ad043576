"""The one reader of URLs. It rejects every URL that two readers could read differently.

It reads ``scheme://host:port/path?query#fragment``, and addresses of gRPC, ``host:port``. It rejects user information,
blanks, backslashes, control and non-ASCII characters (names are written in their xn-- form), percent escapes and empty
labels in the host, and hosts that only some readers read as an IPv4 address, such as ``127.1``. The host comes back in
lower case and in one spelling; path, query and fragment are unchanged.

The callers decide which hosts and schemes are allowed, and when two paths are the same: ``keys.trust.origins`` (trust),
``client.location`` (memory), ``client.destinations`` (requests), ``base.net.fetcher``.

Four modules read the text themselves. ``keys.trust.origins.interface_host`` looks for schemes as gRPC does,
which finds one in ``dns:443``. ``client.decisions`` must recognize a card in a URL that no rule accepts.
``auth.discovery`` inserts the well-known part into the name of an issuer, whose spelling is compared character by
character. ``auth.dpop`` compares the URLs of proofs, with special rules for ports.

Source: RFC 3986 3 and 6.2.2, RFC 5952.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from a2a_trust.base.net.addresses import Address, address_of, is_private
from a2a_trust.errors import ConfigurationError, FetchError, MalformedError

MAX_URL: Final = 2048
"""The longest URL that is read, in characters."""

DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST: Final = re.compile(rf"(?!.{{254}}){_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]+\]")
_VISIBLE: Final = re.compile(r"[!-\[\]-~]*")  # without the backslash
_URL: Final = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?"
    r"(?P<host>\[[^\]]*\]|[^/?#:@\[\]]*)(?::(?P<port>[0-9]{1,5}))?"
    r"(?(scheme)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?)"
)
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9._~-]")
#: Servers cut a segment at ";" or NUL, and take a backslash for a slash.
_DOT_SEGMENT: Final = re.compile(r"(?:\A|[/\\])\.\.?(?:[;\0][^/\\]*)?(?:[/\\]|\Z)")


class Url(NamedTuple):
    """The parts of a URL. ``scheme`` and ``host`` are in lower case, IPv6 in brackets; ``host:port`` has no scheme.

    ``port``, ``query`` and ``fragment`` are None if the URL has none.
    """

    scheme: str
    host: str
    port: int | None
    path: str
    query: str | None
    fragment: str | None

    @property
    def origin(self) -> str:
        """Scheme, host and port, without the default port of http and https: ``https://agent.example.com``."""
        is_default = self.port is None or self.port == DEFAULT_PORTS.get(self.scheme)
        return f"{self.scheme}://{self.host}" + ("" if is_default else f":{self.port}")

    @property
    def address(self) -> Address | None:
        """The host as an address; None for a name."""
        return address_of(self.host)


def read_url(text: str) -> Url:
    """The parts of a URL; MalformedError if two readers could read it differently."""
    if len(text) > MAX_URL or not _VISIBLE.fullmatch(text):
        raise MalformedError("URL: too long, or with blanks, backslashes, control or non-ASCII characters")
    if (match := _URL.fullmatch(text)) is not None:
        scheme, authority, digits, path, query, fragment = match.groups()
        host = _in_one_spelling(authority.lower())
        port = None if digits is None else int(digits)
        if host is not None and (port is None or 1 <= port <= 65535):
            return Url((scheme or "").lower(), host, port, path or "", query, fragment)
    raise MalformedError("URL: ambiguous host or port; write https://host/path or host:port")


def read_host(text: str) -> str:
    """A host in one spelling: names in lower case, IPv6 in the form of RFC 5952, in brackets.

    MalformedError says what to write instead.
    """
    host = _in_one_spelling(text.lower())
    if host is None:
        if _HOST.fullmatch(text.lower()):
            raise MalformedError("write an address as 192.0.2.1 or [2001:db8::1]")
        raise MalformedError("write only a host, without scheme, port and path")
    return host


@lru_cache(maxsize=1024)  # the URLs of a card have few hosts
def _in_one_spelling(host: str) -> str | None:
    if not _HOST.fullmatch(host):
        return None
    try:
        address = address_of(host)
    except ValueError:
        return None
    return f"[{address}]" if isinstance(address, IPv6Address) else host


def has_dot_segment(path: str) -> bool:
    """Whether a server may read ``.`` or ``..`` as a segment of the path, also one that removes escapes repeatedly."""
    for _ in range(4):
        escaped, path = path, unquote(path)
        if path == escaped:
            return _DOT_SEGMENT.search(path) is not None
    return True  # nothing needs that many escapes


def with_plain_escapes(path: str) -> str:
    """The path with only the necessary escapes, in upper case (RFC 3986 6.2.2.1 and 6.2.2.2)."""
    return _ESCAPE.sub(_plain, path)


def _plain(escape: re.Match[str]) -> str:
    char = chr(int(escape[1], 16))
    return char if _UNRESERVED.fullmatch(char) else escape[0].upper()


class HttpWithin:
    """The names in a service mesh, where a sidecar encrypts, so plain http is allowed; without suffixes no name.

    1. The operator names suffixes, such as ``svc.cluster.local``.
    2. A host is in the mesh if it is one of the suffixes, or ends in one at a label boundary. An address never is.
    3. Every address of the name must be private or loopback. The check is made on the addresses that are then connected
       to. So a name that the mesh does not know, but a public server has, gets no request.

    ConfigurationError: a suffix is not a name of two labels or more in lower case.
    """

    __slots__ = ("suffixes",)

    def __init__(self, suffixes: Iterable[str] = ()) -> None:
        if isinstance(suffixes, str) or not isinstance(suffixes, Iterable):
            raise ConfigurationError(f'http_within: write a list, as in ["svc.cluster.local"], not {suffixes!a:.128}')
        self.suffixes: Final[tuple[str, ...]] = tuple(map(_suffix, suffixes))

    def covers(self, host: str) -> bool:
        """Whether a host, in the form that ``read_url`` returns, is a name in the mesh."""
        return any(host == suffix or host.endswith(f".{suffix}") for suffix in self.suffixes)


def check_private(origin: str, addresses: Iterable[Address]) -> None:
    """FetchError: a name in the mesh has an address that is not private."""
    for address in addresses:
        if not is_private(address):
            raise FetchError(
                f"{origin}: http in a mesh is for private addresses only, and the name has the address {address}; "
                "write https://…, or correct the resolver"
            )


def _suffix(text: Any) -> str:
    try:
        is_name = isinstance(text, str) and read_host(text) == text and "." in text and address_of(text) is None
    except MalformedError:
        is_name = False
    if not is_name:
        raise ConfigurationError(
            f"http_within: {ascii(text)[:128]}: write a name of two labels or more in lower case, without wildcard and "
            'dots around it: ["svc.cluster.local"]'
        )
    return str(text)


NO_MESH: Final = HttpWithin()
