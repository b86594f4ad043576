"""Who sends a request, as limits and queues see it; a queue that serves all peers alike; the address that is verified.

A peer is an IPv4 address, or an IPv6 network of 64 bits: the owner of one address has all addresses of it. Many have a
network of 56 or 48 bits, and so 256 or 65,536 peers. So those count as well: a path names all networks of a peer.

For limits, a peer is ``scope["client"]``. That is not certain: servers write forwarded headers into it. The servers of
``a2a_trust.servers`` record the socket's peer in ``scope["extensions"]["a2a_trust.peer"]``, which the guard trusts.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final, Generic, TypeAlias, TypeVar

from a2a_trust.errors import ConfigurationError

Path: TypeAlias = tuple[str, ...]
"""The networks of a peer, the widest first: of 48, 56 and 64 bits for IPv6. The last one is the peer. For all without a
known address it is ``("",)``."""

_T = TypeVar("_T")

_WIDTHS: Final = (48, 56, 64)
_ADDRESSES: Final = 4_096
_LONGEST: Final = 64
_WITH_PORT: Final = re.compile(r"([0-9.]+):[0-9]+|\[([0-9A-Fa-f:.]+)\](?::[0-9]+)?")

CLIENT: Final[ContextVar[Any]] = ContextVar("a2a_trust_client", default=None)
"""``scope["client"]`` of the request that is being verified, in its task; the guard sets it for ``sending``."""


def path_of(scope: Mapping[str, Any]) -> Path:
    """The networks of the sender of a request."""
    return _path(_address(scope.get("client")))


def sending() -> Path:
    """The networks of the sender of the request that is being verified; ``("",)`` outside of requests."""
    return _path(_address(CLIENT.get()))


def _address(client: Any) -> str:
    text = str((client or ("",))[0])
    return text if len(text) <= _LONGEST else ""


@lru_cache(maxsize=_ADDRESSES)
def _path(text: str) -> Path:
    with_port = _WITH_PORT.fullmatch(text)  # as some proxies write X-Forwarded-For
    if with_port is not None:
        text = with_port[1] or with_port[2]
    try:
        address = _ip_address(text)
    except ValueError:
        return ("",)
    if not isinstance(address, IPv6Address):
        return (str(address),)
    return tuple(str(ip_network((address, width), strict=False)) for width in _WIDTHS)


def _ip_address(text: str) -> IPv4Address | IPv6Address:
    address = ip_address(text.partition("%")[0])  # without the zone of a link-local one
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped  # of a socket that takes both versions


class FairQueue(Generic[_T]):
    """Items that wait, each for its peer. The widest networks take turns; within one, its networks take turns; and the
    items of one peer keep their order.

    So a newcomer waits for one item of each other network, however many those have in the queue. The caller bounds the
    queue: after a ``put`` that made it too long, ``drop`` takes an item from the peer that has most.
    """

    def __init__(self) -> None:
        self._length = 0
        #: Either the networks inside, in the order of their turns, or the items of a peer.
        self._parts: OrderedDict[str, FairQueue[_T]] = OrderedDict()
        self._items: list[_T] = []

    def __len__(self) -> int:
        return self._length

    def put(self, path: Path, item: _T) -> None:
        self._length += 1
        if path:
            self._parts.setdefault(path[0], FairQueue()).put(path[1:], item)
        else:
            self._items.append(item)

    def pop(self) -> _T:
        """Take the item whose turn it is. The queue is not empty."""
        self._length -= 1
        if not self._parts:
            return self._items.pop(0)
        name, part = self._parts.popitem(last=False)
        item = part.pop()
        if part:
            self._parts[name] = part
        return item

    def drop(self, path: Path) -> _T:
        """Take the newest item of the peer that has most, in the network that has most. Among equals, this is the peer
        with this path, which came last."""
        self._length -= 1
        if not self._parts:
            return self._items.pop()
        own, inside = (path[0], path[1:]) if path else (None, ())
        name = max(self._parts, key=lambda each: (len(self._parts[each]), each == own))
        item = self._parts[name].drop(inside if name == own else ())
        self._keep(name)
        return item

    def remove(self, path: Path, item: _T) -> bool:
        """Take the item of the peer with this path; False if it is not waiting any more."""
        if not path:
            is_here = item in self._items
            if is_here:
                self._items.remove(item)
        else:
            part = self._parts.get(path[0])
            is_here = part is not None and part.remove(path[1:], item)
            if is_here:
                self._keep(path[0])
        self._length -= is_here
        return is_here

    def _keep(self, name: str) -> None:
        if not self._parts[name]:
            del self._parts[name]


# The verified address

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
        return any(address in each for each in self._ranges)

    def __repr__(self) -> str:
        return f"Networks({', '.join(repr(str(each)) for each in self._ranges)})"


def peer_extension(address: str | None, *, unix: bool) -> dict[str, Any]:
    """The extension of scopes with the address of the socket's peer, or its unix socket. Only servers may use it,
    because the guard trusts it.
    """
    return {_EXTENSION: {"address": address, "unix": unix}}


def verified_peer(scope: Mapping[str, Any]) -> IPv4Address | IPv6Address | None:
    """The address of the socket's peer; None if the server does not record it, or the peer has no address."""
    recorded = _peer_record(scope)
    return None if recorded is None or recorded["address"] is None else _ip_address(recorded["address"])


def records_peers(scope: Mapping[str, Any]) -> bool:
    """Whether the server records the sockets' peers at all."""
    return _peer_record(scope) is not None


def _peer_record(scope: Mapping[str, Any]) -> Any:
    return (scope.get("extensions") or {}).get(_EXTENSION)


def came_by_unix_socket(scope: Mapping[str, Any]) -> bool:
    """Whether the server recorded that the peer came by a unix socket. A missing address is not enough."""
    return records_peers(scope) and _peer_record(scope).get("unix") is True


def was_forwarded(scope: Mapping[str, Any]) -> bool:
    """Whether the request has a header of a proxy. A proxy that adds no header cannot be seen."""
    return any(_OF_PROXIES.fullmatch(name.lower().replace(b"_", b"-")) for name, _ in scope["headers"])
