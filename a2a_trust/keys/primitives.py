"""What cryptography needs to know to sign and verify with each algorithm of RFC 7518 3, made once."""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding

__all__ = ["ECDSA", "RSA_PADDING"]

_HASHES: Final = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}

_ORDER_OCTETS: Final = {"256": 32, "384": 48, "512": 66}  # P-521 has 521 bits

ECDSA: Final = {f"ES{bits}": (ec.ECDSA(digest), _ORDER_OCTETS[bits]) for bits, digest in _HASHES.items()}
"""3.4: the hash that goes with each curve, and the octets of r and of s."""

RSA_PADDING: Final[dict[str, tuple[padding.AsymmetricPadding, hashes.HashAlgorithm]]] = {
    **{f"RS{bits}": (padding.PKCS1v15(), digest) for bits, digest in _HASHES.items()},
    # 3.5: the salt is as long as the hash, neither shorter nor longer
    **{
        f"PS{bits}": (padding.PSS(padding.MGF1(digest), digest.digest_size), digest) for bits, digest in _HASHES.items()
    },
}
"""3.3 and 3.5: padding and hash."""
