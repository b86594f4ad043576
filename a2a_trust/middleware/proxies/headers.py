"""The headers in which some proxies write client certificates."""

from __future__ import annotations

from typing import Final

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
