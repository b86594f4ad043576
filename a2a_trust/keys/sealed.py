"""Sealed values: only holders of one secret can read or make them (AES-256-GCM, NIST SP 800-38D; HKDF, RFC 5869)."""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

MIN_SECRET: Final = 32
"""The shortest secret, in bytes."""

_NONCE: Final = 12
_KEY: Final = 32


class Seal:
    """Seals values for a context: a value that was sealed for one context does not open for another.

    Each context has a key of its own, so the random nonces of one key stay few, however many values there are.
    """

    def __init__(self, secret: bytes, purpose: bytes) -> None:
        """``secret``: at least 32 random bytes. Seals of another ``purpose`` do not open what this one seals."""
        self._key = HKDF(SHA256(), _KEY, salt=None, info=purpose).derive(secret)

    def seal(self, value: bytes, context: bytes) -> bytes:
        """The value, which only a holder of the secret can read now."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher(context).encrypt(nonce, value, context)

    def open(self, sealed: bytes, context: bytes) -> bytes | None:
        """The value; None if it was not sealed with this secret for this context."""
        try:
            return self._cipher(context).decrypt(sealed[:_NONCE], sealed[_NONCE:], context)
        except (InvalidTag, ValueError):  # ValueError: no whole nonce
            return None

    def _cipher(self, context: bytes) -> AESGCM:
        return AESGCM(HKDFExpand(SHA256(), _KEY, info=context).derive(self._key))
