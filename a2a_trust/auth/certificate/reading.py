"""X.509 certificates as bytes: read one, or say that it cannot be read."""

from __future__ import annotations

from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from a2a_trust.errors import MalformedError

LONGEST_NAME: Final = 2048
"""The longest name of a holder, in characters."""

#: The exceptions of reading a broken certificate; Warning, since warnings about odd ones may be made errors.
BROKEN: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
    MalformedError,
    Warning,
)


def is_certificate(der: bytes) -> bool:
    """Whether the bytes are exactly one certificate, DER."""
    try:
        x509.load_der_x509_certificate(der)
    except BROKEN:
        return False
    return True


def subject_of(der: bytes) -> str | None:
    """The subject of one DER certificate as RFC 4514 writes it; None where it cannot be read."""
    try:
        return x509.load_der_x509_certificate(der).subject.rfc4514_string()
    except BROKEN:
        return None


_T = TypeVar("_T", bound=x509.ExtensionType)


def extension_of(certificate: x509.Certificate, kind: type[_T]) -> _T | None:
    return next((each.value for each in certificate.extensions if isinstance(each.value, kind)), None)
