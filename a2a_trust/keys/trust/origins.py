"""The hosts for which a key is trusted, and the host and origin of a URL as every client reads them.

The URLs of a card's interfaces have stricter rules than other URLs, because clients of gRPC accept more schemes:

1. In ``https``, ``wss``, ``grpc``, ``grpcs``, ``http`` and ``ws`` URLs, and in ``host:port``, the authority is the
   agent's host.
2. Every other scheme is rejected. ``dns:``, ``xds:`` and ``passthrough:`` have a name server, a control plane or
   something else in the place of the host; ``ipv4:``, ``ipv6:`` and ``unix:`` have no name that a certificate proves.
3. A scheme without ``//`` is rejected: gRPC reads ``dns:443`` and ``unix:443`` as schemes, not as a host and a port.

Hosts are compared as lower-case ASCII names, label by label, never as substrings: ``*.example.com`` covers
``a.example.com`` and ``a.b.example.com``, but neither ``example.com`` nor ``badexample.com``.

An address has one spelling: RFC 5952 for IPv6, four decimal numbers for IPv4. Other spellings of IPv4 (``192.0.513``,
``0xc0000201``, ``[::ffff:192.0.2.1]``) are rejected, because each spelling would be another host to trust stores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any, Final

from a2a_trust.base.net.urls import Url, read_host, read_url
from a2a_trust.errors import ConfigurationError, MalformedError

JWKS_PATH: Final = "/.well-known/jwks.json"
"""The path at which an agent publishes its key set on its own origin."""

_WILDCARD: Final = 'write "*." and a parent of two labels or more'
_UNENCRYPTED: Final = ("http://", "ws://")
_INTERFACE_SCHEMES: Final = frozenset({"https", "wss", "grpc", "grpcs", "http", "ws"})
#: Names that clients read as a scheme even without ``//``: the resolvers of gRPC, and the best known of the web.
_OPAQUE_SCHEMES: Final = frozenset(
    {
        "dns", "ipv4", "ipv6", "unix", "unix-abstract", "vsock", "xds", "passthrough", "google-c2p", "binder",
        "sockaddr", "about", "blob", "data", "file", "ftp", "javascript", "mailto", "urn",
    }
)  # fmt: skip


@lru_cache(maxsize=4096)  # without it verify_card takes 16 to 20 % longer: a card names its host several times
def url_of(url: str) -> Url:
    """The parts of a URL; MalformedError as for ``read_url``, and for a host that is IPv4 within IPv6."""
    parts = read_url(url)
    if _is_mapped(parts.host):
        raise MalformedError("URL: its host is IPv4 within IPv6; write the address as four decimal numbers")
    return parts


def host_of(url: str) -> str:
    """The host of a URL, or of a gRPC address ``host:port``; MalformedError as for ``url_of``."""
    return url_of(url).host


def origin_of(url: str) -> str:
    """Scheme, host and port in one spelling: ``https://agent.example.com``, ``http://[::1]:8080``. The default port of
    http and https is left out; a gRPC address ``host:port`` has no scheme. MalformedError as for ``url_of``."""
    return url_of(url).origin


def _is_mapped(host: str) -> bool:
    return host.startswith("[") and IPv6Address(host[1:-1]).ipv4_mapped is not None


def interface_host(url: str) -> str:
    """The agent's host in the URL of an interface, in lower case: rules 1 to 3. Signing and verifying demand it alike.

    MalformedError as for ``url_of``; for a scheme in which no host is expected; and for a host without scheme and port,
    which some clients read as a relative URL.
    """
    if not url.startswith("https://"):  # as most do
        _check_scheme(url)
    parts = url_of(url)
    if not parts.scheme and parts.port is None:
        raise MalformedError("URL: a host without scheme is ambiguous; write https://host/path, or host:port for gRPC")
    return parts.host


def _check_scheme(url: str) -> None:
    """Rules 2 and 3, for a scheme as gRPC reads it."""
    name, _, rest = url.strip().lower().partition(":")
    has_authority = rest.startswith("//")
    if has_authority and name in _INTERFACE_SCHEMES:
        return
    if has_authority or name in _INTERFACE_SCHEMES | _OPAQUE_SCHEMES:
        raise MalformedError(
            f"URL: the scheme {name[:32]!a} does not say at which host the agent is; "
            "write https://host/path, or grpcs://host:port for gRPC"
        )


def is_unencrypted(url: str) -> bool:
    """Whether requests to the URL are not encrypted, because its scheme is ``http`` or ``ws``."""
    return not url.startswith("https://") and url.strip().lower().startswith(_UNENCRYPTED)


def _read_pattern(pattern: Any) -> str:
    if not isinstance(pattern, str) or pattern == "*":
        raise ConfigurationError(
            f"Origins: {pattern!r:.80} is not a host; write hosts one by one, as in "
            'Origins("agent.example.com", "*.example.org"), or UnsafeAnyOrigin() for every host'
        )
    is_wildcard = pattern.startswith("*.")
    try:
        host = read_host(pattern.removeprefix("*."))
    except MalformedError as error:
        raise ConfigurationError(f"{pattern!r}: {_WILDCARD if is_wildcard else error}") from None
    if is_wildcard and ("." not in host or not host.rpartition(".")[2].strip("0123456789")):
        raise ConfigurationError(f"{pattern!r}: {_WILDCARD}")
    if _is_mapped(host):
        raise ConfigurationError(f"{pattern!r}: write the address as four decimal numbers")
    return f"*.{host}" if is_wildcard else host


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Origins:
    """The hosts for which a key is trusted: exact names, and ``*.`` with a parent of at least two labels.

    ``Origins("agent.example.com", "*.example.org")`` covers that host, and every host below ``example.org``.
    ConfigurationError: a pattern is not a host.
    """

    patterns: tuple[str, ...] = field(compare=False)
    _exact: frozenset[str]
    _suffixes: tuple[str, ...]

    def __init__(self, *patterns: str) -> None:
        if not patterns:
            raise ConfigurationError(
                'Origins() covers no host; name hosts, as in Origins("agent.example.com", "*.example.org"), '
                "or write UnsafeAnyOrigin() for a key that is trusted for every host"
            )
        object.__setattr__(self, "patterns", tuple(map(_read_pattern, patterns)))
        suffixes = sorted({each[1:] for each in self.patterns if each.startswith("*")})
        object.__setattr__(self, "_suffixes", tuple(suffixes))
        object.__setattr__(self, "_exact", frozenset(self.patterns) - {f"*{suffix}" for suffix in suffixes})

    def covers(self, host: str) -> bool:
        """Whether the host, in the form that ``host_of`` returns, is among these."""
        return host in self._exact or (host.endswith(self._suffixes) and not host.startswith("."))

    def __repr__(self) -> str:
        return f"Origins({', '.join(map(repr, self.patterns))})"


@dataclass(frozen=True, slots=True)
class UnsafeAnyOrigin:
    """Every host: a verification with it is not bound to an origin.

    - As the origins of a key: the key is trusted for every host.
    - As the ``origin`` of a verification: the card may come from any host, so a copy from another host is accepted.
    """

    def covers(self, host: str) -> bool:  # noqa: ARG002
        return True


@dataclass(frozen=True, slots=True)
class OriginFromCard:
    """As the ``origin`` of a verification: the card is from the host of its first interface.

    It is for cards whose origin is not known otherwise. As for every card, the signing key must be trusted for that
    host and for the hosts of all other interfaces. So only the trust entry of the key binds the card.
    """


def overlap(one: Origins | UnsafeAnyOrigin, other: Origins | UnsafeAnyOrigin) -> bool:
    """Whether some host is covered by both."""
    if isinstance(one, UnsafeAnyOrigin) or isinstance(other, UnsafeAnyOrigin):
        return True
    # A pattern is a whole subtree, so if two patterns overlap, one of them covers the top of the other.
    return any(
        broad.covers(pattern.replace("*", "a"))
        for broad, narrow in ((one, other), (other, one))
        for pattern in narrow.patterns
    )
