"""Where a request's client certificate comes from: the server that ended TLS, or the proxy in front of it.

No header says so by itself, and no server is asked twice: ``protect(…, client_certificates=…)`` names the one source
that is believed. What it gives are certificates whose keys the caller has proven to have; whether they are to be
trusted is for the verifier to say.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Protocol

from a2a_trust.errors import InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.middleware.peer import was_forwarded
from a2a_trust.middleware.proxies.headers import CLAIMING_HEADERS

__all__ = ["CertificateSource", "FromTls"]


class CertificateSource(Protocol):
    """Something that knows the client's certificate: ``FromTls()``, or ``FromProxy(…)`` of ``proxies``."""

    @property
    def headers(self) -> frozenset[bytes]:
        """Headers, in lower case, that tell of certificates: no application behind sees them."""
        ...

    def chain(self, scope: Mapping[str, Any]) -> tuple[bytes, ...]:
        """The certificates in DER, the client's own first; ``()`` when the caller showed none.

        InvalidCredentialsError for what cannot be believed or read; KeySourceUnavailableError when nobody tells,
        with the way out in its text.
        """
        ...


class FromTls:
    """The certificate of the TLS connection that the server itself ended (ASGI TLS extension 0.2).

    Servers do not tell of it by themselves: run uvicorn with the protocol classes of ``a2a_trust.servers.uvicorn``, or
    hypercorn by ``a2a_trust.servers.hypercorn``, and let them ask for certificates. A proxy that calls the agent with a
    certificate of its own is the caller, whoever stands behind it: requests that it has marked as forwarded are 503.
    """

    headers = CLAIMING_HEADERS

    def __repr__(self) -> str:
        return "FromTls()"

    def chain(self, scope: Mapping[str, Any]) -> tuple[bytes, ...]:
        """The certificates in DER, the client's own first; ``()`` when the client showed none, or spoke no TLS."""
        tls = (scope.get("extensions") or {}).get("tls")
        if tls is None:
            if scope.get("scheme") in ("https", "wss"):
                raise KeySourceUnavailableError(
                    "the server does not tell of client certificates; run uvicorn with --http "
                    "a2a_trust.servers.uvicorn:HttpToolsProtocol, or :H11Protocol, or hypercorn by python -m "
                    "a2a_trust.servers.hypercorn; behind a proxy that ends TLS, pass client_certificates=FromProxy(…)"
                )
            return ()
        if tls.get("client_cert_error"):
            raise InvalidCredentialsError("certificate: the server found it not good when TLS began")
        try:
            chain = tuple(ssl.PEM_cert_to_DER_cert(pem) for pem in tls.get("client_cert_chain") or ())
        except ValueError:
            raise InvalidCredentialsError("certificate: the server tells of it in another form than PEM") from None
        if chain and (was_forwarded(scope) or not CLAIMING_HEADERS.isdisjoint(map(_named, scope["headers"]))):
            # Some proxies show a certificate of their own to the agent: then every caller of theirs would be the proxy.
            raise KeySourceUnavailableError(
                "a certificate came by TLS with a request that says it was forwarded, so it is the proxy's own, and "
                "not the caller's; pass client_certificates=FromProxy(…), or let the proxy hand TLS on as it comes"
            )
        return chain


def _named(line: tuple[bytes, bytes]) -> bytes:
    return line[0].lower().replace(b"_", b"-")
