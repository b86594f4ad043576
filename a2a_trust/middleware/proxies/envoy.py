"""Envoy's ``x-forwarded-client-cert``: elements with members, of which the last is that of the Envoy in front."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import ClassVar, Final

from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.middleware.proxies.form import Values, from_escaped_pem, one

__all__ = ["Envoy"]

#: A member of an element: in quotes, or without any. Envoy quotes neither URIs nor DNS names.
_MEMBER: Final = re.compile(rb'([A-Za-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^",;]*))(;|,|$)')


@dataclass(frozen=True, slots=True)
class Envoy:
    """Envoy's ``x-forwarded-client-cert``, with ``forward_client_cert_details: SANITIZE_SET`` and
    ``set_current_client_cert_details: {cert: true}``, perhaps with ``chain: true``.

    The last element is that of the Envoy in front of the agent; it must have the whole certificate. The header is
    absent when the client showed none. Envoy puts URIs and DNS names of certificates there as they are, so whoever gets
    a certificate for ``spiffe://a,Hash=…;Cert="…"`` writes one more element: where an element before the last has
    ``URI`` or ``DNS``, the header is refused.
    """

    names: ClassVar[tuple[str, ...]] = ("X-Forwarded-Client-Cert",)
    every_time = False

    def read(self, values: Values) -> tuple[bytes, ...]:
        where = self.names[0]
        *before, last = _elements(values[where], where)
        for element in before:
            if not element.keys().isdisjoint((b"uri", b"dns")):
                raise InvalidCredentialsError(
                    f"{where}: what looks like its last element could be a certificate's URI or DNS name; let Envoy "
                    "set neither uri nor dns, or SANITIZE_SET"
                )
        if b"cert" not in last or b"hash" not in last:
            raise InvalidCredentialsError(f"{where}: no Cert or no Hash; let Envoy set cert: true")
        leaf = one(from_escaped_pem(last[b"cert"]), where)
        if last[b"hash"].lower() != hashlib.sha256(leaf).hexdigest().encode():
            raise InvalidCredentialsError(f"{where}: Hash is not that of Cert")
        if b"chain" not in last:
            return (leaf,)
        chain = from_escaped_pem(last[b"chain"])
        if chain[0] != leaf:
            raise InvalidCredentialsError(f"{where}: Chain does not begin with Cert")
        return chain


def _elements(value: bytes, where: str) -> list[dict[bytes, bytes]]:
    """The elements, by the names of their members in lower case; only names may come twice in one."""
    elements: list[dict[bytes, bytes]] = [{}]
    at, end = 0, b","
    while end:
        member = _MEMBER.match(value, at)
        if member is None:
            raise InvalidCredentialsError(f"{where}: it is not name=value;… , …")
        name, quoted, plain, end = member.groups()
        at, name = member.end(), name.lower()
        if name in elements[-1] and name not in (b"by", b"uri", b"dns"):
            raise InvalidCredentialsError(f"{where}: {name.decode()} came twice in an element")
        elements[-1][name] = plain if quoted is None else quoted
        if end == b",":
            elements.append({})
    return elements
