"""Envoy's ``x-forwarded-client-cert``: a list of elements; the last is by the Envoy in front of the agent."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import ClassVar, Final

from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.middleware.proxies.form import Values, from_escaped_pem, one

#: A member of an element, with or without quotes. Envoy quotes neither URIs nor DNS names.
_MEMBER: Final = re.compile(rb'([A-Za-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^",;]*))(;|,|$)')


@dataclass(frozen=True, slots=True)
class Envoy:
    """Envoy's ``x-forwarded-client-cert``, with ``forward_client_cert_details: SANITIZE_SET`` and
    ``set_current_client_cert_details: {cert: true}``, optionally with ``chain: true``.

    The last element is by the Envoy in front of the agent; it must have the whole certificate. The header is absent
    when the client sent none. Envoy does not escape URIs and DNS names of certificates, so the owner of a certificate
    for ``spiffe://a,Hash=…;Cert="…"`` could add an element. So a header with ``URI`` or ``DNS`` in an element before
    the last is rejected.
    """

    names: ClassVar[tuple[str, ...]] = ("X-Forwarded-Client-Cert",)
    every_time = False

    def read(self, values: Values) -> tuple[bytes, ...]:
        where = self.names[0]
        *before, last = _elements(values[where], where)
        for element in before:
            if not element.keys().isdisjoint((b"uri", b"dns")):
                raise InvalidCredentialsError(
                    f"{where}: its last element could be part of a certificate's URI or DNS name; configure Envoy with "
                    "SANITIZE_SET, or without uri and dns"
                )
        if b"cert" not in last or b"hash" not in last:
            raise InvalidCredentialsError(f"{where}: Cert or Hash is missing; configure Envoy with cert: true")
        leaf = one(from_escaped_pem(last[b"cert"]), where)
        if last[b"hash"].lower() != hashlib.sha256(leaf).hexdigest().encode():
            raise InvalidCredentialsError(f"{where}: Hash is not the hash of Cert")
        if b"chain" not in last:
            return (leaf,)
        chain = from_escaped_pem(last[b"chain"])
        if chain[0] != leaf:
            raise InvalidCredentialsError(f"{where}: Chain does not begin with Cert")
        return chain


def _elements(value: bytes, where: str) -> list[dict[bytes, bytes]]:
    """The elements, by the names of their members in lower case; only ``by``, ``uri`` and ``dns`` may come twice."""
    elements: list[dict[bytes, bytes]] = [{}]
    at, end = 0, b","
    while end:
        member = _MEMBER.match(value, at)
        if member is None:
            raise InvalidCredentialsError(f"{where}: it is not a list of elements such as name=value;name=value")
        name, quoted, plain, end = member.groups()
        at, name = member.end(), name.lower()
        if name in elements[-1] and name not in (b"by", b"uri", b"dns"):
            raise InvalidCredentialsError(f"{where}: {name.decode()} is twice in one element")
        elements[-1][name] = plain if quoted is None else quoted
        if end == b",":
            elements.append({})
    return elements
