"""IP addresses: which of them are public, and which hosts some readers read as addresses.

Source: the IANA special-purpose address registries (RFC 6890), RFC 1918, RFC 6598, RFC 4193, RFC 6052.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

#: A last label like this makes a host an IPv4 address for some readers: 127.1, 2130706433, 0x7f000001, 0177.0.0.1.
_NUMERIC: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")

_LOOPBACK: Final = tuple(map(ip_network, ("127.0.0.0/8", "::1/128")))
#: The addresses of private origins: RFC 1918, RFC 6598, RFC 4193. Link-local, with the metadata services of clouds, is
#: not among them.
_PRIVATE: Final = (
    *_LOOPBACK,
    *map(ip_network, ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")),
)
#: Metadata and platform services that have addresses outside of link-local: Azure, Alibaba, AWS. No option opens them.
_METADATA: Final = tuple(map(ip_network, ("168.63.129.16/32", "100.100.100.200/32", "fd00:ec2::254/128")))
_GLOBAL_IPV6: Final = ip_network("2000::/3")
_NAT64: Final = ip_network("64:ff9b::/96")
#: The rest of the IANA special-purpose registries, multicast and reserved space. IPv6 needs only what lies within
#: 2000::/3: the IETF's 2001::/23 with Teredo, documentation, 6to4. Not ``is_global``: it differs between Pythons.
_SPECIAL: Final = (
    *_PRIVATE,
    *_METADATA,
    *map(
        ip_network,
        (
            "0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
            "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
            "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
        ),
    ),
)  # fmt: skip


def address_of(host: str) -> Address | None:
    """The address in a host in lower case, IPv6 in brackets; None for a name.

    ValueError: only some readers take the host for an address, such as ``127.1`` and ``0x7f000001``.
    """
    if host.startswith("["):
        return IPv6Address(host[1:-1])
    if _NUMERIC.fullmatch(host.rpartition(".")[2]):
        return IPv4Address(host)
    return None


def is_public(address: Address) -> bool:
    """Whether the address is a globally routable unicast address.

    IPv4 within IPv6 is never public (mapped, compatible, 6to4, Teredo), with one exception: the well-known NAT64 prefix
    (RFC 6052), with which IPv6-only networks reach all of IPv4.
    """
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
        if address not in _GLOBAL_IPV6:
            return False
    return not _is_in(address, _SPECIAL)


def is_private(address: Address) -> bool:
    """Whether the address may belong to a private server: never link-local, and never a metadata service."""
    return _is_in(address, _PRIVATE) and not _is_in(address, _METADATA)


def is_loopback(address: Address) -> bool:
    """Whether the address is on this machine."""
    return _is_in(address, _LOOPBACK)


def is_this_machine(host: str) -> bool:
    """Whether a host in lower case, IPv6 in brackets, is ``localhost`` or a loopback address for every reader."""
    try:
        address = address_of(host)
    except ValueError:
        return False
    return host == "localhost" if address is None else is_loopback(address)


def _is_in(address: Address, networks: Iterable[object]) -> bool:
    return any(address in network for network in networks)  # type: ignore[operator]
