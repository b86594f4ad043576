"""The one function that verifies a JWS (RFC 7515).

Before it, ``read_header`` decodes the protected header, and ``check_unprotected`` checks the other one, which only
cards have (RFC 7515 7.2.1). It does not check ``kid`` and ``typ``, nor whether the key is trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from types import MappingProxyType
from typing import Any, Final, TypeVar

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from a2a_trust.base import strict_json
from a2a_trust.errors import InvalidSignatureError, MalformedError
from a2a_trust.keys import base64url
from a2a_trust.keys.algorithms import algorithm_of
from a2a_trust.keys.jwk import PublicKey

MAX_HEADER: Final = 8192
"""The longest protected header that is decoded, in characters of base64url."""

MAX_SIGNATURE: Final = 2048
"""The longest signature that is decoded, in characters of base64url; RSA with 8192 bits has 1366."""

_MAX_CACHED_HEADER: Final = 512
"""Headers up to this length, in characters of base64url, are cached; a header with a ``jku`` has about 250."""

_Read = TypeVar("_Read")

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


def cached_if_small(read: Callable[[str], _Read]) -> Callable[[str], _Read]:
    """``read`` with a cache, for a protected header: it is not verified yet, and anybody can send large ones."""
    read_cached = lru_cache(maxsize=1024)(read)

    @wraps(read)
    def read_any(protected: str) -> _Read:
        return read_cached(protected) if len(protected) <= _MAX_CACHED_HEADER else read(protected)

    return read_any


@cached_if_small
def read_header(protected: str) -> Mapping[str, Any]:
    """The protected header of a JWS, decoded and checked (RFC 7515 4); read-only.

    MalformedError: it is not canonical base64url of a JSON object with a string ``alg``, or it has ``crit`` or ``b64``,
    which demand extensions that this package does not have.
    """
    if len(protected) > MAX_HEADER:
        raise MalformedError(f"protected header: longer than {MAX_HEADER} characters")
    header = strict_json.parse(base64url.decode(protected, "protected header"), what="protected header")
    if type(header) is not dict:
        raise MalformedError("protected header: not a JSON object")
    if "crit" in header or "b64" in header:
        raise MalformedError("protected header: crit and b64 are rejected, because no extension is implemented")
    if type(header.get("alg")) is not str:
        raise MalformedError("protected header: alg is missing or not a string")
    return MappingProxyType(header)


def signing_input(protected: str, payload: bytes) -> bytes:
    """The octets that are signed (RFC 7515 5.1 step 5)."""
    return b"%b.%b" % (protected.encode("ascii"), base64url.encode_bytes(payload))


def verify_signed(claims: Mapping[str, Any], signature: str, signed: bytes, key: PublicKey) -> None:
    """Return if ``signature``, in base64url, is by ``key`` over ``signed``: a signing input with the header ``claims``.

    MalformedError: it is not base64url. InvalidSignatureError: the header's ``alg`` is not the key's, or the signature
    does not verify. Source: RFC 7515 5.2, RFC 8725 3.1.
    """
    algorithm = algorithm_of(claims["alg"])
    if algorithm is None or algorithm.name != key.alg:
        raise InvalidSignatureError(f"the header's alg is not {key.alg}, the algorithm of the key")
    if len(signature) > MAX_SIGNATURE:
        raise MalformedError(f"signature: longer than {MAX_SIGNATURE} characters")
    octets = base64url.decode(signature, "signature")
    try:
        _check_signature(octets, signed, key)
    except (InvalidSignature, ValueError, UnsupportedAlgorithm):
        raise InvalidSignatureError("the signature is not by this key over these bytes") from None


def _check_signature(signature: bytes, data: bytes, key: PublicKey) -> None:
    """Return if the signature is by the key over the data; otherwise raise InvalidSignature or ValueError."""
    native: Any = key.native  # of the kind that its alg names: an object of another kind takes none of these arguments
    if (ecdsa := ECDSA.get(key.alg)) is not None:
        hash_alg, octets = ecdsa
        if len(signature) != 2 * octets:  # RFC 7518 3.4: r || s, each as long as the curve's order
            raise InvalidSignature
        r, s = int.from_bytes(signature[:octets], "big"), int.from_bytes(signature[octets:], "big")
        native.verify(encode_dss_signature(r, s), data, hash_alg)
    elif key.alg == "EdDSA":
        native.verify(signature, data)
    else:
        native.verify(signature, data, *RSA_PADDING[key.alg])


def check_unprotected(header: object, protected: Mapping[str, Any]) -> None:
    """MalformedError for an unprotected header that is not an object, repeats a protected name, or has a name that must
    be protected."""
    if header is None:
        return
    if not isinstance(header, Mapping):
        raise MalformedError("unprotected header: not a JSON object")
    if not header.keys().isdisjoint(protected):
        raise MalformedError("unprotected header: it repeats a name of the protected one (RFC 7515 7.2.1)")
    if not header.keys().isdisjoint({"alg", "kid", "crit", "b64"}):
        raise MalformedError("unprotected header: alg, kid, crit and b64 must be in the protected header")
