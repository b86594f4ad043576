"""The address of the connection's peer, as the server recorded it, and networks of such addresses.

The servers of ``a2a_trust.servers`` record the socket's peer in ``scope["extensions"]["a2a_trust.peer"]``.
``scope["client"]`` is not certain: servers write forwarded headers into it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send

_EXTENSION: Final = "a2a_trust.peer"
#: Proxies add these headers. Behind a proxy, the peer is the proxy, and not the caller.
_OF_PROXIES: Final = re.compile(
    rb"forwarded|via|(?:x-original-)?x?-?forwarded-.*|x-(?:real|client|cluster-client)-ip|(?:true-|fly-)?client-ip|"
    rb"x-envoy-.*|cf-.*|cdn-loop|x-amzn-trace-id|x-original-.*|x-proxyuser-ip|x-azure-.*"
)


class Networks:
    """Ranges of addresses, such as ``10.0.0.0/8`` and ``2001:db8::/32``, or single addresses."""

    __slots__ = ("_ranges",)

    def __init__(self, *ranges: str) -> None:
        if not ranges:
            raise ConfigurationError('Networks() is empty; name ranges, as in Networks("10.0.0.0/8", "fd00::/8")')
        try:
            self._ranges = tuple(map(ip_network, ranges))
        except ValueError as error:
            raise ConfigurationError(f"Networks: {error}; write ranges such as 10.0.0.0/8") from None

    def covers(self, address: IPv4Address | IPv6Address) -> bool:
        """Whether the address is in one of the ranges."""
        return any(address in each for each in self._ranges)

    def __repr__(self) -> str:
        return f"Networks({', '.join(repr(str(each)) for each in self._ranges)})"


def with_peer(app: Any, address: str | None, *, unix: bool = False) -> ASGIApp:
    """``app``, with the address of the socket's peer, or its unix socket, in every scope. Only servers may use it,
    because the guard trusts it.
    """
    recorded = peer_extension(address, unix=unix)

    async def recorded_app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"] = {**(scope.get("extensions") or {}), **recorded}
        await app(scope, receive, send)

    return recorded_app


def peer_extension(address: str | None, *, unix: bool) -> dict[str, Any]:
    """The extension of scopes that ``with_peer`` adds, by its name."""
    return {_EXTENSION: {"address": address, "unix": unix}}


def verified_peer(scope: Mapping[str, Any]) -> IPv4Address | IPv6Address | None:
    """The address of the socket's peer; None if the server does not record it, or the peer has no address."""
    recorded = (scope.get("extensions") or {}).get(_EXTENSION)
    if recorded is None or recorded["address"] is None:
        return None
    address = ip_address(recorded["address"].partition("%")[0])  # without the zone of a link-local one
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped  # of a socket that takes both versions


def records_peers(scope: Mapping[str, Any]) -> bool:
    """Whether the server records the sockets' peers at all."""
    return (scope.get("extensions") or {}).get(_EXTENSION) is not None


def came_by_unix_socket(scope: Mapping[str, Any]) -> bool:
    """Whether the server recorded that the peer came by a unix socket. A missing address is not enough."""
    recorded = (scope.get("extensions") or {}).get(_EXTENSION)
    return recorded is not None and recorded.get("unix") is True


def was_forwarded(scope: Mapping[str, Any]) -> bool:
    """Whether the request has a header of a proxy. A proxy that adds no header cannot be seen."""
    return any(_OF_PROXIES.fullmatch(name.lower().replace(b"_", b"-")) for name, _ in scope["headers"])
