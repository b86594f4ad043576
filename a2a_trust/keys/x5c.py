"""Certificates in a JWK (RFC 7517 4.7 to 4.9). They are never a source of trust, but must be for the key."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from a2a_trust.errors import MalformedError
from a2a_trust.keys import base64url


def check_certificates(jwk: Mapping[str, object], spki: bytes) -> None:
    """MalformedError unless the first certificate of ``x5c`` is for the key.

    ``spki`` is the key as SubjectPublicKeyInfo in DER. ``x5t`` and ``x5t#S256``, if there, must be the thumbprints of
    that certificate. Neither the chain nor the validity is checked.
    """
    chain = jwk.get("x5c")
    if not isinstance(chain, list) or not chain:
        raise MalformedError("JWK: x5c must be a non-empty list of certificates")
    first, *_ = [_decoded(each) for each in chain]
    if _key_in(first) != spki:
        raise MalformedError("JWK: the first certificate of x5c is for another key")
    for name, digest in (
        ("x5t", hashlib.sha1(first, usedforsecurity=False).digest()),
        ("x5t#S256", hashlib.sha256(first).digest()),
    ):
        # Auth0 encodes the hexadecimal text of the digest, which is the same digest.
        spellings = [base64url.encode(each) for each in (digest, digest.hex().encode(), digest.hex().upper().encode())]
        if name in jwk and jwk[name] not in spellings:
            raise MalformedError(f"JWK: {name} is not the thumbprint of the first certificate of x5c")


def _decoded(text: object) -> bytes:
    try:
        if not isinstance(text, str):
            raise TypeError
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise MalformedError("JWK: x5c must hold certificates in base64 (RFC 7517 4.7)") from None


def _key_in(certificate: bytes) -> bytes:
    from cryptography import x509  # here: most keys have no certificate, and the import takes time

    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
        return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise MalformedError("JWK: the first certificate of x5c cannot be read") from None
