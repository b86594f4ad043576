"""Proxies that write a certificate or a chain, without a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.middleware.proxies.form import (
    NamedHeaders,
    Values,
    from_base64,
    from_byte_sequence,
    from_escaped_pem,
    one,
)


@dataclass(frozen=True, slots=True)
class Rfc9440:
    """RFC 9440: ``Client-Cert`` has the client's own certificate, ``Client-Cert-Chain`` the certificates above it.

    Both are absent when the client sent none.
    """

    names: ClassVar[tuple[str, ...]] = ("Client-Cert", "Client-Cert-Chain")
    every_time = False

    def read(self, values: Values) -> tuple[bytes, ...]:
        leaf, above = (values.get(name) for name in self.names)
        if leaf is None:
            raise InvalidCredentialsError("Client-Cert-Chain came without Client-Cert")
        chain = [] if above is None else [each.strip(b" \t") for each in above.split(b",")]
        return tuple(from_byte_sequence(each) for each in (leaf, *chain))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caddy(NamedHeaders):
    """Caddy::

        header_up X-SSL-Client-Cert {http.request.tls.client.certificate_der_base64}

    For a client without a certificate it writes an empty value, or the placeholder itself.
    """

    certificate: str = "X-SSL-Client-Cert"

    def read(self, values: Values) -> tuple[bytes, ...]:
        value = values[self.certificate]
        if value in (b"", b"{http.request.tls.client.certificate_der_base64}"):
            return ()
        return (from_base64(value),)


#: The value that the documented ``headers`` middleware writes before ``passTLSClientCert`` writes a certificate.
_TRAEFIK_NONE: Final = b"none"


@dataclass(frozen=True, slots=True)
class Traefik:
    """Traefik's ``passTLSClientCert`` with ``pem: true``, after a ``headers`` middleware::

        customRequestHeaders:
          X-Forwarded-Tls-Client-Cert: "none"
          X-Proxy-Secret: "…"

    By itself, ``passTLSClientCert`` passes a client's own header on when the client has no certificate. So the
    ``headers`` middleware overwrites it first, for every request, and a request without this header gets 503. The
    secret proves that this middleware ran, so ``peers`` must be that ``ProxySecret``.
    """

    names: ClassVar[tuple[str, ...]] = ("X-Forwarded-Tls-Client-Cert",)
    every_time = True

    def read(self, values: Values) -> tuple[bytes, ...]:
        value = values[self.names[0]]
        return () if value == _TRAEFIK_NONE else tuple(map(from_base64, value.split(b",")))


@dataclass(frozen=True, slots=True)
class AwsAlb:
    """The Application Load Balancer of AWS, in verify mode: ``X-Amzn-Mtls-Clientcert-Leaf``.

    No other listener may forward to the agent: a listener without mutual TLS would pass a client's own header on. The
    passthrough mode is not supported, because it does not verify certificates.
    """

    names: ClassVar[tuple[str, ...]] = ("X-Amzn-Mtls-Clientcert-Leaf",)
    every_time = False

    def read(self, values: Values) -> tuple[bytes, ...]:
        where = self.names[0]
        return (one(from_escaped_pem(values[where]), where),)
