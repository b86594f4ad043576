"""The signature algorithms for cards and keys: only asymmetric ones, each bound to one kind of key.

HMAC is excluded, because every verifier could also sign. Source: RFC 7518 3, RFC 8037, RFC 9864.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding

from a2a_trust.errors import ConfigurationError

MIN_RSA_BITS: Final = 2048  # RFC 7518 3.3
MAX_RSA_BITS: Final = 8192  # verifying with 16384 bits takes milliseconds, too long for keys of unknown parties


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One signature algorithm: its JOSE name, the key type and curve that it needs."""

    name: str
    kty: str
    curve: str | None = None
    other_names: tuple[str, ...] = ()
    """Other values of ``alg`` for the same algorithm."""


ALGORITHMS: Final = MappingProxyType(
    {
        algorithm.name: algorithm
        for algorithm in (
            Algorithm(name="ES256", kty="EC", curve="P-256"),
            Algorithm(name="ES384", kty="EC", curve="P-384"),
            Algorithm(name="ES512", kty="EC", curve="P-521"),
            # RFC 9864 renames EdDSA with Ed25519 to "Ed25519"; SDKs still write and expect "EdDSA".
            Algorithm(name="EdDSA", kty="OKP", curve="Ed25519", other_names=("Ed25519",)),
            *(Algorithm(name=f"{kind}{bits}", kty="RSA") for kind in ("RS", "PS") for bits in (256, 384, 512)),
        )
    }
)

_BY_NAME: Final = {name: each for each in ALGORITHMS.values() for name in (each.name, *each.other_names)}

DEFAULT_ALGORITHM: Final = "ES256"

_HASHES: Final = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_ORDER_OCTETS: Final = {"256": 32, "384": 48, "512": 66}  # P-521 has 521 bits

ECDSA: Final = {f"ES{bits}": (ec.ECDSA(digest), _ORDER_OCTETS[bits]) for bits, digest in _HASHES.items()}
"""RFC 7518 3.4: the hash for each curve, and the number of octets of r and of s."""

RSA_PADDING: Final[dict[str, tuple[padding.AsymmetricPadding, hashes.HashAlgorithm]]] = {
    **{f"RS{bits}": (padding.PKCS1v15(), digest) for bits, digest in _HASHES.items()},
    # 3.5: the salt is as long as the hash, neither shorter nor longer
    **{
        f"PS{bits}": (padding.PSS(padding.MGF1(digest), digest.digest_size), digest) for bits, digest in _HASHES.items()
    },
}
"""RFC 7518 3.3 and 3.5: padding and hash."""


def algorithm_of(alg: object) -> Algorithm | None:
    """The algorithm that an ``alg`` in a header names; None for every other value."""
    return _BY_NAME.get(alg) if isinstance(alg, str) else None


def algorithm_named(name: str) -> Algorithm:
    """The algorithm of that JOSE name; ConfigurationError lists the known names."""
    algorithm = _BY_NAME.get(name)
    if algorithm is None:
        raise ConfigurationError(
            f"no signature algorithm is named {ascii(name)[:40]}; choose from {', '.join(ALGORITHMS)}"
        )
    return algorithm
