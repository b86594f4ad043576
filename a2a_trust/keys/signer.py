"""The protocol of signers, and signers with their private key in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn, Protocol, runtime_checkable

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from a2a_trust.keys import base64url
from a2a_trust.keys.algorithms import DEFAULT_ALGORITHM, algorithm_named
from a2a_trust.keys.jwk import PrivateKeyObject, PublicKey, private_key_from_jwk, public_key_from_object
from a2a_trust.keys.jws import ECDSA, RSA_PADDING

_CURVES = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}


@runtime_checkable
class Signer(Protocol):
    """An object that signs with one key, which may be in memory, in a hardware module or in a cloud.

    ``alg`` and ``kid`` are also in ``public_key``; they go into the protected header. ``sign`` takes the JWS signing
    input and returns the signature in the form of JOSE (RFC 7518 3): for ECDSA ``r || s`` of fixed length, not DER.
    """

    @property
    def public_key(self) -> PublicKey: ...

    @property
    def alg(self) -> str: ...

    @property
    def kid(self) -> str: ...

    def sign(self, data: bytes) -> bytes: ...


class HoldsSecret:
    """The base of objects that cannot be pickled or copied, because they hold a secret."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied: it holds a secret")


class LocalSigner(HoldsSecret):
    """A signer with its private key in memory. Its repr does not show the key, and it cannot be pickled."""

    __slots__ = ("_key", "public_key")

    def __init__(
        self, key: PrivateKeyObject, *, alg: str | None = None, kid: str | None = None, algorithms: tuple[str, ...] = ()
    ) -> None:
        """Make a signer with a private key of the library ``cryptography``.

        ``alg`` defaults to the first algorithm of the kind of key, ``kid`` to the RFC 7638 thumbprint. ``algorithms``
        limits the key to these algorithms, for example an RSA key to RSASSA-PSS.
        """
        self._key = key
        self.public_key: PublicKey = public_key_from_object(key, alg=alg, kid=kid, algorithms=algorithms)

    @classmethod
    def from_jwk(cls, jwk: dict[str, Any], *, kid: str | None = None) -> LocalSigner:
        """A signer with the private key of a JWK; ``kid`` replaces the ``kid`` of the JWK."""
        key, public = private_key_from_jwk(jwk)
        return cls._of(key, replace(public, kid=kid or public.kid))

    @classmethod
    def _of(cls, key: PrivateKeyObject, public_key: PublicKey) -> LocalSigner:
        signer = cls.__new__(cls)
        signer._key, signer.public_key = key, public_key
        return signer

    def with_alg(self, alg: str) -> LocalSigner:
        """A signer with the same key and another algorithm. Only RSA keys have several: see ``PublicKey.algorithms``.

        ConfigurationError: the algorithm does not fit the key.
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
        """The signature over ``data`` in the form of JOSE. Source: RFC 7518 3.3 to 3.5, RFC 8037 3.1."""
        key: Any = self._key  # of the type for its alg
        alg = self.public_key.alg
        if (ecdsa := ECDSA.get(alg)) is not None:
            hash_alg, octets = ecdsa
            r, s = decode_dss_signature(key.sign(data, hash_alg))
            return r.to_bytes(octets, "big") + s.to_bytes(octets, "big")
        signature: bytes = key.sign(data) if alg == "EdDSA" else key.sign(data, *RSA_PADDING[alg])
        return signature

    def __repr__(self) -> str:
        return f"LocalSigner(alg={self.alg!r}, kid={self.kid!r})"


def generate_signer(alg: str = DEFAULT_ALGORITHM, *, kid: str | None = None, rsa_bits: int = 3072) -> LocalSigner:
    """Make a new key, and return a signer with it.

    ``alg`` is ES256, ES384, ES512, EdDSA, RS256 … RS512 or PS256 … PS512. ``kid`` defaults to the RFC 7638 thumbprint.
    ``rsa_bits`` is the size of an RSA key, 2048 at least. ConfigurationError: an unknown ``alg``.
    """
    algorithm = algorithm_named(alg)
    key: PrivateKeyObject
    if algorithm.kty == "EC":
        key = ec.generate_private_key(_CURVES[algorithm.curve or ""])
    elif algorithm.kty == "OKP":
        key = ed25519.Ed25519PrivateKey.generate()
    else:
        key = rsa.generate_private_key(public_exponent=65537, key_size=rsa_bits)
    return LocalSigner(key, alg=algorithm.name, kid=kid)


def sign_jwt(header: Mapping[str, Any], claims: Mapping[str, Any], signer: Signer) -> str:
    """A JWT in the compact form (RFC 7519 7.1), for proofs and assertions of a client. ``header`` has the ``alg``."""
    parts = (json.dumps(part, separators=(",", ":")).encode("ascii") for part in (header, claims))
    signed = ".".join(map(base64url.encode, parts))
    return f"{signed}.{base64url.encode(signer.sign(signed.encode('ascii')))}"
