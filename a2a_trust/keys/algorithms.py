"""The signature algorithms for cards and keys: only asymmetric ones, each bound to one kind of key.

HMAC is excluded, because every verifier could also sign. Source: RFC 7518 3, RFC 8037, RFC 9864.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, NamedTuple

from a2a_trust.errors import ConfigurationError

MIN_RSA_BITS: Final = 2048  # RFC 7518 3.3
MAX_RSA_BITS: Final = 8192  # verifying with 16384 bits takes milliseconds, too long for keys of unknown parties


class Algorithm(NamedTuple):
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

ALG_NAMES: Final = tuple(_BY_NAME)
"""All values of ``alg`` that are accepted."""

DEFAULT_ALGORITHM: Final = "ES256"


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
