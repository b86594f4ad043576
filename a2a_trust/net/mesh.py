"""Plain http within a service mesh, where a sidecar beside each program encrypts: the names that are allowed.

The rules:

1. The operator names suffixes, such as ``svc.cluster.local``. A suffix is a name of at least two labels in lower case.
2. A host is in the mesh if it is one of the suffixes, or ends in one at a label boundary. An address never is.
3. Every address of the name must be private (``net.addresses``) or loopback. The check is made on the addresses that
   are then connected to. So a name that the mesh does not know, but a public server has, gets no request.

This module only checks values: ``net.fetcher`` and ``client.connection`` look up the names and connect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from a2a_trust.errors import ConfigurationError, FetchError, MalformedError
from a2a_trust.net.addresses import Address, address_of, is_private
from a2a_trust.net.urls import read_host


class HttpWithin:
    """The names in a service mesh, given by their suffixes; without suffixes no name.

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
