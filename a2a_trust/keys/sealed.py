"""Values for a place that others can read and write: sealed with AES-256-GCM under keys from one secret."""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from a2a_trust.errors import ConfigurationError, MalformedError

__all__ = ["Sealer"]

_MIN_SECRET: Final = 32
_NONCE_BYTES: Final = 12


class Sealer:
    """Seals and opens values. Each ``context`` has a key of its own (HKDF, RFC 5869), so a value opens nowhere else."""

    def __init__(self, secret: bytes, *, what: str) -> None:
        """``secret``: at least 32 random bytes. ``what`` wants it, for people. ConfigurationError: it is too short."""
        if type(secret) is not bytes or len(secret) < _MIN_SECRET:
            raise ConfigurationError(
                f"{what}: the secret must be {_MIN_SECRET} bytes or more; make one with secrets.token_bytes(32), and "
                "give the same one to all replicas"
            )
        self._secret = secret

    def seal(self, value: bytes, context: bytes) -> bytes:
        """The value, encrypted and authenticated."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher(context).encrypt(nonce, value, None)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """The value. MalformedError: it was not sealed with this secret in this context, or was changed."""
        try:
            return self._cipher(context).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
        except (InvalidTag, ValueError):
            raise MalformedError("sealed value: it was changed, or sealed elsewhere") from None

    def name(self, context: bytes) -> bytes:
        """16 bytes that stand for a context, and tell those without the secret nothing about it."""
        return self._derived(b"name", context)[:16]

    def _cipher(self, context: bytes) -> AESGCM:
        return AESGCM(self._derived(b"key", context))

    def _derived(self, purpose: bytes, context: bytes) -> bytes:
        info = b"a2a_trust sealed 1 " + purpose + b" " + context
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(self._secret)
