"""Who signs: the Signer protocol, and signers whose private key is in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn, Protocol, runtime_checkable

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from a2a_trust.keys import base64url
from a2a_trust.keys.algorithms import DEFAULT_ALGORITHM, ECDSA, RSA_PADDING, algorithm_named
from a2a_trust.keys.jwk import PrivateKeyObject, PublicKey, private_key_from_jwk, public_key_from_object

__all__ = ["LocalSigner", "Signer", "generate_signer", "signed_jwt"]

_CURVES = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}


@runtime_checkable
class Signer(Protocol):
    """Something that signs with one key: in memory, in a hardware module, in a cloud.

    ``public_key`` carries ``alg`` and ``kid``, which go into the protected header. ``sign`` takes the JWS signing
    input and returns the signature as JOSE writes it (RFC 7518 3: for ECDSA ``r || s`` of fixed length, not DER).
    """

    @property
    def public_key(self) -> PublicKey: ...

    @property
    def alg(self) -> str: ...

    @property
    def kid(self) -> str: ...

    def sign(self, data: bytes) -> bytes: ...


class LocalSigner:
    """A signer with its private key in memory. Neither its repr nor a pickle holds the key."""

    __slots__ = ("_key", "public_key")

    def __init__(
        self,
        key: PrivateKeyObject,
        *,
        alg: str | None = None,
        kid: str | None = None,
        algorithms: tuple[str, ...] = (),
    ) -> None:
        """``alg`` defaults to the usual algorithm of the key's kind, ``kid`` to the RFC 7638 thumbprint.

        ``algorithms`` are those that the key is limited to, for instance as an RSA key for RSASSA-PSS only.
        """
        self._key = key
        self.public_key: PublicKey = public_key_from_object(key, alg=alg, kid=kid, algorithms=algorithms)

    @classmethod
    def from_jwk(cls, jwk: dict[str, Any], *, kid: str | None = None) -> LocalSigner:
        """A signer with the private key of a JWK; ``kid`` replaces the one that the JWK has."""
        key, public = private_key_from_jwk(jwk)
        return cls._of(key, replace(public, kid=kid or public.kid))

    @classmethod
    def _of(cls, key: PrivateKeyObject, public_key: PublicKey) -> LocalSigner:
        signer = cls.__new__(cls)
        signer._key, signer.public_key = key, public_key
        return signer

    def with_alg(self, alg: str) -> LocalSigner:
        """A signer with the same key that signs with that algorithm; ConfigurationError when it does not fit the key.

        Only RSA keys have several: see ``PublicKey.algorithms``.
        """
        return self._of(self._key, self.public_key.with_alg(alg))

    @property
    def alg(self) -> str:
        return self.public_key.alg

    @property
    def kid(self) -> str:
        return self.public_key.kid

    @property
    def private_key(self) -> PrivateKeyObject:
        """The key itself, to save it: secret."""
        return self._key

    def sign(self, data: bytes) -> bytes:
        """The signature over ``data`` as JOSE writes it. Source: RFC 7518 3.3 to 3.5, RFC 8037 3.1."""
        key = self._key
        if isinstance(key, ed25519.Ed25519PrivateKey):
            return key.sign(data)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            hash_alg, octets = ECDSA[self.alg]
            r, s = decode_dss_signature(key.sign(data, hash_alg))
            return r.to_bytes(octets, "big") + s.to_bytes(octets, "big")
        return key.sign(data, *RSA_PADDING[self.alg])

    def __repr__(self) -> str:
        return f"LocalSigner(alg={self.alg!r}, kid={self.kid!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a LocalSigner is not pickled: it holds a private key; save the key with save_private_key")


def generate_signer(alg: str = DEFAULT_ALGORITHM, *, kid: str | None = None, rsa_bits: int = 3072) -> LocalSigner:
    """A signer with a new key. RSA keys get 3072 bits unless told otherwise; fewer than 2048 are refused."""
    algorithm = algorithm_named(alg)
    key: PrivateKeyObject
    if algorithm.kty == "EC":
        key = ec.generate_private_key(_CURVES[algorithm.curve or ""])
    elif algorithm.kty == "OKP":
        key = ed25519.Ed25519PrivateKey.generate()
    else:
        key = rsa.generate_private_key(public_exponent=65537, key_size=rsa_bits)
    return LocalSigner(key, alg=algorithm.name, kid=kid)


def signed_jwt(header: Mapping[str, Any], claims: Mapping[str, Any], signer: Signer) -> str:
    """A JWT in the compact form (RFC 7519 7.1): proofs and assertions of a client. ``header`` names the algorithm."""
    parts = (json.dumps(part, separators=(",", ":")).encode("ascii") for part in (header, claims))
    signed = ".".join(map(base64url.encode, parts))
    return f"{signed}.{base64url.encode(signer.sign(signed.encode('ascii')))}"
