"""Where a request's client certificate comes from: the server that ended TLS, or the proxy in front of it.

``protect(…, client_certificates=…)`` names the only source that is trusted. It gives certificates whose private keys
the caller has; the verifier decides whether they are trusted.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final, Protocol

from a2a_trust.auth.peers import was_forwarded
from a2a_trust.errors import InvalidCredentialsError, KeySourceUnavailableError

_PREFIXES: Final = (
    "client- cf-client- ssl-client- x-client- x-ssl- x-ssl-client- x-tls-client- x-forwarded-client- "
    "x-forwarded-ssl-client- x-forwarded-tls-client-"
)
_NAMES: Final = (
    "cert cert-chain cert-der-base64 cert-fingerprint cert-hash cert-info cert-issuer cert-sha1 cert-sha256 "
    "cert-subject cert-verified certificate cn dn i-dn issuer-dn s-dn subject-dn verify"
)
_SSL_NAMES: Final = "fingerprint issuer not-after not-before san serial sha1 sha256 subject used"
CLAIMING_HEADERS: Final = frozenset(
    f"{prefix}{name}".encode()
    for prefixes, names in (
        (_PREFIXES, _NAMES),
        ("ssl-client- x-ssl- x-ssl-client- x-tls-client-", _SSL_NAMES),
        ("x-amzn-mtls-clientcert", " -issuer -leaf -serial-number -subject -validity"),
        ("x-", "arr-clientcert tls-cert"),
    )
    for prefix in prefixes.split(" ")
    for name in names.split(" ")
)
"""Headers, in lower case, in which some proxies write client certificates. The application must not see them."""


class CertificateSource(Protocol):
    """Knows the client's certificate: ``FromTls()``, or ``FromProxy(…)`` of ``proxies``."""

    @property
    def headers(self) -> frozenset[bytes]:
        """The headers about certificates, in lower case: the application does not see them."""

    def chain(self, scope: Mapping[str, Any]) -> tuple[bytes, ...]:
        """The certificates in DER, the client's own first; ``()`` when the caller sent none.

        InvalidCredentialsError: they are not trustworthy or not readable. KeySourceUnavailableError: the server or the
        proxy does not pass them on; the text says how to fix that.
        """


class FromTls:
    """The client certificate of the TLS connection, where the server itself ends TLS (ASGI TLS extension 0.2).

    Servers do not pass it on by themselves: run uvicorn with the protocol classes of ``a2a_trust.servers.uvicorn``, or
    hypercorn with ``a2a_trust.servers.hypercorn``, and configure them to ask for certificates. When a proxy calls the
    agent with the proxy's certificate, requests that it marks as forwarded get 503: it is not the caller's certificate.
    """

    headers = CLAIMING_HEADERS

    def __repr__(self) -> str:
        return "FromTls()"

    def chain(self, scope: Mapping[str, Any]) -> tuple[bytes, ...]:
        tls = (scope.get("extensions") or {}).get("tls")
        if tls is None:
            if scope.get("scheme") in ("https", "wss"):
                raise KeySourceUnavailableError(
                    "the server does not pass on client certificates; run uvicorn with --http "
                    "a2a_trust.servers.uvicorn:HttpToolsProtocol, or :H11Protocol, or hypercorn with python -m "
                    "a2a_trust.servers.hypercorn; behind a proxy that ends TLS, pass client_certificates=FromProxy(…)"
                )
            return ()
        if tls.get("client_cert_error"):
            raise InvalidCredentialsError("certificate: the server rejected it in the TLS handshake")
        try:
            chain = tuple(ssl.PEM_cert_to_DER_cert(pem) for pem in tls.get("client_cert_chain") or ())
        except ValueError:
            raise InvalidCredentialsError("certificate: the server does not give it in PEM") from None
        names = (name.lower().replace(b"_", b"-") for name, _ in scope["headers"])
        if chain and (was_forwarded(scope) or not CLAIMING_HEADERS.isdisjoint(names)):
            # Some proxies use their own certificate with the agent: then every caller would be the proxy.
            raise KeySourceUnavailableError(
                "a proxy forwarded the request, so the TLS certificate is the proxy's, and not the caller's; pass "
                "client_certificates=FromProxy(…), or make the proxy pass TLS through"
            )
        return chain
