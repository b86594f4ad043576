"""Keys as JWK and PEM, and sets of them (RFC 7517 5): read key by key, and checked when they are read.

A key is rejected if

- its type, curve, ``alg``, ``use`` and ``key_ops`` do not agree on signing,
- its public members do not belong to its private ones,
- its certificate is for another key,
- it is known to be weak (RSA below 2048 bits, ROCA).

Source: RFC 7517, RFC 7518 6, RFC 7638, RFC 8037; A2A 8.4.3 for ``exp``, ``nbf`` and ``revoked``.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
)

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import JSON
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys import base64url
from a2a_trust.keys.algorithms import ALGORITHMS, MAX_RSA_BITS, MIN_RSA_BITS, Algorithm, algorithm_named, algorithm_of

PrivateKeyObject: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
PublicKeyObject: TypeAlias = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey
MAX_KID: Final = 512
"""The longest name of a key, in characters."""

_FACTORS: Final = ("p", "q", "dp", "dq", "qi")
_PRIVATE_MEMBERS: Final = frozenset({"d", *_FACTORS, "oth", "k", "priv"})
#: Octets of a coordinate: RFC 7518 6.2.1.2 wants all of them, leading zeros too.
_COORDINATE_OCTETS: Final = {"P-256": 32, "P-384": 48, "P-521": 66, "Ed25519": 32}
_END_OF_TIME: Final = 253_402_300_800  # the year 10000: a later moment is one in milliseconds
_MEMBERS: Final = {"EC": ("crv", "x", "y"), "OKP": ("crv", "x"), "RSA": ("e", "n")}
_MAX_EXPONENT_BITS: Final = 64

_P: Final = 2**255 - 19
_Y_OF_ORDER_8: Final = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
#: The y coordinates of the points of order 1, 2, 4 and 8: with such a key a signature verifies for every text.
_LOW_ORDER_Y: Final = frozenset({0, 1, _P - 1, _Y_OF_ORDER_8, _P - _Y_OF_ORDER_8})


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """The public key of a signing key, bound to one algorithm.

    - ``alg``: the JOSE name of the algorithm.
    - ``kid``: the name of the key in headers.
    - ``thumbprint``: the RFC 7638 SHA-256 thumbprint. It is equal for equal key material, whatever the names.
    - ``jwk``: the public members of the JWK.
    - ``algorithms``: the algorithms that the key may be used with, ``alg`` among them.
    - ``not_before``, ``not_after``: the key is valid from the first moment until just before the second one, in seconds
      since the epoch (``nbf`` and ``exp`` of a JWK).
    - ``revoked``: whether the JWK says that the key is revoked.
    """

    alg: str
    kid: str
    thumbprint: str
    jwk: Mapping[str, str] = field(compare=False)
    native: PublicKeyObject = field(repr=False, compare=False)
    algorithms: tuple[str, ...] = field(compare=False)
    not_before: float = -math.inf
    not_after: float = math.inf
    revoked: bool = False

    @property
    def kty(self) -> str:
        return self.jwk["kty"]

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process is made of the JWK: a key of ``cryptography`` cannot be pickled."""
        return _copy_of, (tuple(self.to_jwk().items()), self.algorithms)

    @property
    def is_limited(self) -> bool:
        """Whether the JWK says that the key is revoked, or limits its validity."""
        return self.revoked or self.not_before != -math.inf or self.not_after != math.inf

    def is_valid_at(self, now: float) -> bool:
        """Whether the JWK permits the use of the key at that moment (seconds since the epoch)."""
        return not self.revoked and self.not_before <= now < self.not_after

    def with_alg(self, alg: str) -> PublicKey:
        """The key for that algorithm; ConfigurationError if it is not one of ``algorithms``."""
        name = algorithm_named(alg).name
        if name not in self.algorithms:
            raise ConfigurationError(
                f"algorithm {name} does not fit this key; leave it out, or use {' or '.join(self.algorithms)}"
            )
        return replace(self, alg=name, algorithms=(name,))

    def to_jwk(self) -> dict[str, Any]:
        """The key as a JWK to publish: the public members, ``kid``, ``use``, ``alg``, and its limits if it has any."""
        jwk: dict[str, Any] = {**self.jwk, "kid": self.kid, "use": "sig", "alg": self.alg}
        for name, moment in (("nbf", self.not_before), ("exp", self.not_after)):
            if math.isfinite(moment):
                jwk[name] = int(moment) if moment.is_integer() else moment
        return {**jwk, "revoked": True} if self.revoked else jwk

    def to_pem(self) -> bytes:
        """The key as SubjectPublicKeyInfo in PEM."""
        return self.native.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@lru_cache(maxsize=4096)  # each of many verified cards names its key
def _copy_of(jwk: tuple[tuple[str, Any], ...], algorithms: tuple[str, ...]) -> PublicKey:
    return replace(public_key_from_jwk(dict(jwk)), algorithms=algorithms)


def public_key_from_jwk(jwk: object, *, alg: str | None = None, kid: str | None = None) -> PublicKey:
    """Read the public key in a JWK.

    ``alg`` and ``kid`` are for JWKs without these members; a JWK with another ``alg`` is rejected. MalformedError: not
    a valid public signing key, or it holds private members.
    """
    if not isinstance(jwk, Mapping):
        raise MalformedError("JWK: not a JSON object")
    if not _PRIVATE_MEMBERS.isdisjoint(jwk):
        raise MalformedError(
            "JWK: it holds private or symmetric key material, which must not be published; give the public key"
        )
    return _public_key_of(jwk, _algorithms_of(jwk, alg, "verify"), kid)


def public_key_from_pem(pem: bytes, *, alg: str | None = None, kid: str | None = None) -> PublicKey:
    """Read the public key in PEM (SubjectPublicKeyInfo).

    The default algorithm of an RSA key is RS256, or PS256 for a key for RSASSA-PSS only; its parameters or ``alg`` may
    choose another one. MalformedError: not a public key, or a weak one. ConfigurationError: ``alg`` does not fit.
    """
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise MalformedError("PEM: not a public key; give SubjectPublicKeyInfo (BEGIN PUBLIC KEY)") from None
    limits = pss_algorithms(pem) if isinstance(key, rsa.RSAPublicKey) else ()
    return public_key_from_object(key, alg=alg, kid=kid, algorithms=limits)


def public_key_from_object(
    key: object, *, alg: str | None = None, kid: str | None = None, algorithms: tuple[str, ...] = ()
) -> PublicKey:
    """The public key of a key object of the library ``cryptography``, public or private.

    ``algorithms`` limits the key to these algorithms, the default first; ``alg`` chooses one of them.
    """
    public = key.public_key() if isinstance(key, PrivateKeyObject) else key
    names = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
    kind: tuple[str, str | None] | None = None
    if isinstance(public, ec.EllipticCurvePublicKey):
        kind = ("EC", names.get(public.curve.name, ""))
    elif isinstance(public, rsa.RSAPublicKey):
        kind = ("RSA", None)
    elif isinstance(public, ed25519.Ed25519PublicKey):
        kind = ("OKP", "Ed25519")
    fitting = algorithms or tuple(each.name for each in ALGORITHMS.values() if (each.kty, each.curve) == kind)
    if not fitting or not isinstance(public, PublicKeyObject):
        raise MalformedError("key: only EC P-256, P-384, P-521, RSA and Ed25519 keys sign cards")
    made = _public_key(public, fitting, kid)
    return made if alg is None else made.with_alg(alg)


def private_key_from_jwk(jwk: object) -> tuple[PrivateKeyObject, PublicKey]:
    """Read the private key in a JWK; returns it and its public key.

    An RSA key needs all CRT members (``p``, ``q``, ``dp``, ``dq``, ``qi``) or none of them. MalformedError: not a valid
    private key, or ``x``, ``y`` or ``n`` do not belong to ``d``.
    """
    if not isinstance(jwk, Mapping) or "d" not in jwk:
        raise MalformedError("JWK: not a private key")
    algorithms = _algorithms_of(jwk, None, "sign")
    public = _public_key_of(jwk, algorithms, None)
    has_factors = algorithms[0].kty == "RSA" and not {*_FACTORS, "oth"}.isdisjoint(jwk)
    private = _import(jwk, algorithms[0], ("d", *_FACTORS) if has_factors else ("d",)).private_key
    if not isinstance(private, PrivateKeyObject) or _members(private.public_key()) != public.jwk:
        raise MalformedError("JWK: its public members do not belong to its private ones")
    return private, public


def private_key_to_jwk(key: PrivateKeyObject, *, alg: str, kid: str) -> dict[str, Any]:
    """The private key as a JWK: secret."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    members = _jose_class(algorithm_named(alg).kty).import_key(pem).as_dict(private=True)
    return {**members, "kid": kid, "use": "sig", "alg": alg}


def _public_key_of(jwk: Mapping[str, object], algorithms: list[Algorithm], kid: str | None) -> PublicKey:
    """The public key with the limits in its JWK (A2A 8.4.3, RFC 7517 4.7)."""
    native = _import(jwk, algorithms[0], ()).public_key
    if not isinstance(native, PublicKeyObject):
        raise MalformedError("JWK: its numbers are not a key")
    own = kid if jwk.get("kid") is None else jwk["kid"]
    if own is not None and (not isinstance(own, str) or not own):
        raise MalformedError("JWK: kid must be a non-empty string")
    key = _public_key(native, tuple(each.name for each in algorithms), own)
    if "x5c" in jwk:
        _check_certificates(jwk, native.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    starts, ends = _moment(jwk, "nbf", -math.inf), _moment(jwk, "exp", math.inf)
    # Every other value, even one that is false in JavaScript, may be meant to say that the key is revoked.
    revoked = jwk.get("revoked") is not None and jwk["revoked"] is not False
    return replace(key, not_before=starts, not_after=ends, revoked=revoked)


def _check_certificates(jwk: Mapping[str, object], spki: bytes) -> None:
    """MalformedError unless the first certificate of ``x5c`` (RFC 7517 4.7 to 4.9) is for the key.

    Certificates are never a source of trust. ``spki`` is the key as SubjectPublicKeyInfo in DER. ``x5t`` and
    ``x5t#S256``, if there, must be the thumbprints of that certificate. Neither the chain nor the validity is checked.
    """
    import hashlib  # here, as in _key_certified_by

    chain = jwk.get("x5c")
    if not isinstance(chain, list) or not chain:
        raise MalformedError("JWK: x5c must be a non-empty list of certificates")
    first, *_ = [_certificate_in(each) for each in chain]
    if _key_certified_by(first) != spki:
        raise MalformedError("JWK: the first certificate of x5c is for another key")
    for name, digest in (
        ("x5t", hashlib.sha1(first, usedforsecurity=False).digest()),
        ("x5t#S256", hashlib.sha256(first).digest()),
    ):
        # Auth0 encodes the hexadecimal text of the digest, which is the same digest.
        spellings = [base64url.encode(each) for each in (digest, digest.hex().encode(), digest.hex().upper().encode())]
        if name in jwk and jwk[name] not in spellings:
            raise MalformedError(f"JWK: {name} is not the thumbprint of the first certificate of x5c")


def _certificate_in(text: object) -> bytes:
    if isinstance(text, str):
        with suppress(ValueError):
            return base64.b64decode(text, validate=True)
    raise MalformedError("JWK: x5c must hold certificates in base64 (RFC 7517 4.7)")


def _key_certified_by(certificate: bytes) -> bytes:
    from cryptography import x509  # here: most keys have no certificate, and the import takes time

    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
        return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise MalformedError("JWK: the first certificate of x5c cannot be read") from None


def _moment(jwk: Mapping[str, object], name: str, default: float) -> float:
    """A NumericDate (RFC 7519 2)."""
    if name not in jwk:
        return default
    value = jwk[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _END_OF_TIME:
        raise MalformedError(f"JWK: {name} must be a moment in seconds since the epoch")
    return float(value)


def _public_key(native: PublicKeyObject, algorithms: tuple[str, ...], kid: str | None) -> PublicKey:
    _check_strength(native)
    if kid is not None and (not 0 < len(kid) <= MAX_KID or any("\ud800" <= char <= "\udfff" for char in kid)):
        raise MalformedError(f"key: kid must be 1 to {MAX_KID} characters of well-formed text")
    jwk = _members(native)
    # RFC 7638 3: the required members in lexicographic order, nothing else, no blanks.
    digest = hashes.Hash(hashes.SHA256())  # OpenSSL is loaded already, and hashlib loads another one
    digest.update(json.dumps(jwk, sort_keys=True, separators=(",", ":")).encode())
    thumbprint = base64url.encode(digest.finalize())
    return PublicKey(
        alg=algorithms[0],
        kid=thumbprint if kid is None else kid,
        thumbprint=thumbprint,
        jwk=MappingProxyType(jwk),
        native=native,
        algorithms=algorithms,
    )


def _members(key: PublicKeyObject) -> dict[str, str]:
    """The public members of the key's JWK (RFC 7518 6.2.1, 6.3.1, RFC 8037 2), which its RFC 7638 thumbprint covers."""
    if isinstance(key, ed25519.Ed25519PublicKey):
        return {"kty": "OKP", "crv": "Ed25519", "x": base64url.encode(key.public_bytes_raw())}
    if isinstance(key, rsa.RSAPublicKey):
        numbers = key.public_numbers()
        return {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
    point, octets = key.public_numbers(), (key.key_size + 7) // 8
    x, y = (base64url.encode(i.to_bytes(octets, "big")) for i in (point.x, point.y))
    return {"kty": "EC", "crv": f"P-{key.key_size}", "x": x, "y": y}


def _number(value: int) -> str:
    """Base64urlUInt (RFC 7518 2)."""
    return base64url.encode(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _algorithms_of(jwk: Mapping[str, object], alg: str | None, operation: str) -> list[Algorithm]:
    """The algorithms of a JWK, the default first. Only an RSA key without ``alg`` has several.

    MalformedError: its type, ``alg``, ``use`` and ``key_ops`` (RFC 7517 4) do not agree.
    """
    kty, own = jwk.get("kty"), jwk.get("alg")
    if kty not in tuple(_MEMBERS):
        raise MalformedError("JWK: kty must be EC, RSA or OKP")
    if jwk.get("use", "sig") != "sig":
        raise MalformedError('JWK: its use is not "sig", so it is not a signing key')
    operations = jwk.get("key_ops", [operation])
    if not isinstance(operations, list) or operation not in operations:
        raise MalformedError(f"JWK: its key_ops do not allow {operation}")
    if not isinstance(own, str | None):
        raise MalformedError("JWK: alg must be a string")
    curve = None if kty == "RSA" else jwk.get("crv")
    candidates = [each for each in ALGORITHMS.values() if (each.kty, each.curve) == (kty, curve)]
    if not candidates:
        raise MalformedError("JWK: crv must be P-256, P-384 or P-521 (kty EC), or Ed25519 (kty OKP)")
    named = [algorithm_of(name) for name in (own, alg) if name is not None]
    candidates = [each for each in candidates if named.count(each) == len(named)]
    if not candidates:
        raise MalformedError("JWK: its alg is not a signature algorithm for its kty and crv, or not the required one")
    return candidates


def _import(jwk: Mapping[str, object], algorithm: Algorithm, private: tuple[str, ...]) -> Any:
    """The key, read by joserfc, after the checks that joserfc does not make: alphabet, padding and length."""
    from joserfc.errors import JoseError

    members = {"kty": algorithm.kty}
    for name in (*_MEMBERS[algorithm.kty], *private):
        value = jwk.get(name)
        if not isinstance(value, str):
            raise MalformedError(f"JWK: {name} is missing or not a string")
        if name != "crv":
            octets = base64url.decode(value, f"JWK: {name}")
            length = _COORDINATE_OCTETS.get(algorithm.curve or "")
            is_long = name == "d" and len(octets) > MAX_RSA_BITS // 8  # joserfc would search its factors for minutes
            if is_long or (length and len(octets) != length) or (not length and octets[:1] in (b"", b"\0")):
                raise MalformedError(f"JWK: {name} has the wrong length")
            if name == "n":
                _check_rsa_bits(int.from_bytes(octets, "big").bit_length())
        members[name] = value
    try:
        key = _jose_class(algorithm.kty).import_key(members)
        key.public_key  # noqa: B018  the numbers are checked when the key object is made
    except (JoseError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        raise MalformedError("JWK: its numbers are not a key") from None
    return key


def _jose_class(kty: str) -> Any:
    from joserfc.jwk import ECKey, OKPKey, RSAKey  # here: the import takes half of the start of ``a2a-sign``

    return {"EC": ECKey, "RSA": RSAKey, "OKP": OKPKey}[kty]


def _check_strength(public: PublicKeyObject) -> None:
    if isinstance(public, rsa.RSAPublicKey):
        _check_rsa_bits(public.key_size)
        numbers = public.public_numbers()
        if numbers.e < 65537:
            raise MalformedError("RSA key with a public exponent below 65537 (NIST SP 800-56B 6.2)")
        if numbers.e.bit_length() > _MAX_EXPONENT_BITS:  # every bit makes each verification slower
            raise MalformedError(f"RSA key with a public exponent of more than {_MAX_EXPONENT_BITS} bits")
        if all(numbers.n % p in residues for p, residues in _roca_residues().items()):
            raise MalformedError("RSA key made by the broken generator of CVE-2017-15361 (ROCA); make a new key")
    elif isinstance(public, ed25519.Ed25519PublicKey):
        y = int.from_bytes(public.public_bytes_raw(), "little") & (2**255 - 1)
        if y >= _P or y in _LOW_ORDER_Y:  # y >= _P: a second spelling of a point (RFC 8032 5.1.3)
            raise MalformedError("Ed25519 key that proves nothing: a point of low order, or not in canonical form")


def _check_rsa_bits(bits: int) -> None:
    if not MIN_RSA_BITS <= bits <= MAX_RSA_BITS:
        raise MalformedError(f"RSA key of {bits} bits; {MIN_RSA_BITS} to {MAX_RSA_BITS} are accepted")


@lru_cache(maxsize=1)
def _roca_residues() -> dict[int, frozenset[int]]:
    """For small primes p, the powers of 65537 modulo p. A ROCA modulus is such a power for every p; others hardly ever.

    Primes for which 65537 generates all residues show nothing, and are left out.
    Source: Nemec et al., The Return of Coppersmith's Attack, CCS 2017, section 2.1.
    """
    residues = {}
    for p in (p for p in range(3, 168) if all(p % q for q in range(2, p))):
        powers = {pow(65537, i, p) for i in range(p - 1)}
        if len(powers) < p - 1:
            residues[p] = frozenset(powers)
    return residues


#: ``cryptography`` drops the object identifier and the parameters of an RSA key for RSASSA-PSS only, which would then
#: sign RS256. So they are read here again: the AlgorithmIdentifier is the first SEQUENCE in SubjectPublicKeyInfo and
#: PKCS #8. ``cryptography`` has checked their DER before. Source: RFC 4055 1.2 and 3.1, RFC 5208.
_BLOCK: Final = re.compile(rb"-----BEGIN (PRIVATE KEY|PUBLIC KEY)-----(.*?)-----END \1-----", re.DOTALL)
#: The length of the AlgorithmIdentifier, after the head of the key and the version of PKCS #8.
_KEY: Final = re.compile(rb"\x30(?:[\x00-\x7f]|\x81.|\x82..)(?:\x02\x01[\x00\x01])?\x30([\x00-\x7f])", re.DOTALL)
_RSASSA_PSS: Final = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a"
_SHA2: Final = rb"\x30.\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02([\x01-\x03])(?:\x05\x00)?"
#: A hash, MGF1 with a hash, the length of the salt. A field that is absent has its default, which for a hash is SHA-1.
_PARAMETERS: Final = re.compile(
    rb"\x30.\xa0.%b\xa1.\x30.\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08%b(?:\xa2.\x02\x01(.))?" % (_SHA2, _SHA2),
    re.DOTALL,
)
_ALGORITHMS: Final = {b"\x01": ("PS256", 32), b"\x02": ("PS384", 48), b"\x03": ("PS512", 64)}
_DEFAULT_SALT: Final = b"\x14"


def pss_algorithms(pem: bytes) -> tuple[str, ...]:
    """The algorithms to which an RSA key in PEM is limited, the default first; empty without a limit.

    MalformedError: several keys, or parameters that no PS algorithm has.
    """
    blocks = _BLOCK.findall(pem)
    if not blocks:
        return ()  # PKCS #1: always without a limit
    if len(blocks) > 1:
        raise MalformedError("PEM: it holds several keys; put each key into a separate file")
    try:
        der = base64.b64decode(b"".join(blocks[0][1].split()), validate=True)
    except ValueError:
        der = b""
    key = _KEY.match(der)
    identifier = b"" if key is None else der[key.end() : key.end() + key[1][0]]
    if key is None or len(identifier) < key[1][0]:
        raise MalformedError("PEM: the algorithms of the key cannot be read")
    if not identifier.startswith(_RSASSA_PSS):
        return ()
    if identifier == _RSASSA_PSS:
        return tuple(name for name, _ in _ALGORITHMS.values())
    found = _PARAMETERS.fullmatch(identifier, len(_RSASSA_PSS))
    name, octets = ("", -1) if found is None else _ALGORITHMS[found[1]]
    if found is None or found[1] != found[2] or (found[3] or _DEFAULT_SALT)[0] > octets:
        raise MalformedError(
            "PEM: this RSA-PSS key requires parameters that no JWS algorithm has (RFC 7518 3.5: one SHA-2 hash for "
            "both, a salt as long as the hash); make a new key"
        )
    return (name,)


MAX_KEYS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedKey:
    """A key that was skipped when a key set was read: its ``index`` in the set, from 0, and the ``reason``."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySet:
    """The usable public keys of a set, the skipped ones, and the thumbprints of all keys that the set revokes.

    A skipped key may be in ``revoked``. If you configured the set yourself, pass them on:
    ``TrustStore(…, revoked=key_set.revoked)``.
    """

    keys: tuple[PublicKey, ...]
    skipped: tuple[SkippedKey, ...] = ()
    revoked: frozenset[str] = frozenset()


def read_jwks(document: bytes) -> KeySet:
    """Read the signing keys of a JWK Set.

    - A key that is not understood is skipped and reported, as RFC 7517 5 requires.
    - If different keys share ``kid`` and type, all of them are skipped.
    - If one key is in the set twice under one ``kid``, it is valid only while both entries are valid.
    - A key that is revoked under one ``kid`` of the set is revoked under all of them, even if its JWK is skipped.
    - A set with a symmetric key is rejected as a whole: the set is secret, or it tries to confuse two algorithms.

    MalformedError: not a JWK Set, or a rejected one.
    """
    if not isinstance(document, bytes):
        raise ConfigurationError("read_jwks: pass the bytes of the document, as in Path('keys.jwks.json').read_bytes()")
    value = strict_json.parse(document, what="JWK Set")
    members = value.get("keys") if type(value) is dict else None
    if type(members) is not list:
        raise MalformedError('JWK Set: no list of keys; a set looks like {"keys": [{"kty": …}]}')
    if len(members) > MAX_KEYS:
        raise MalformedError(f"JWK Set: more than {MAX_KEYS} keys")
    if any(type(member) is dict and member.get("kty") == "oct" for member in members):
        raise MalformedError("JWK Set: it holds a symmetric key; publish only public keys")
    return _key_set(members)


def _key_set(members: list[JSON]) -> KeySet:
    found: list[tuple[int, PublicKey]] = []
    skipped: list[SkippedKey] = []
    revoked = set[str]()
    for index, member in enumerate(members):
        try:
            found.append((index, public_key_from_jwk(member)))
        except MalformedError as error:
            skipped.append(SkippedKey(index=index, reason=str(error)))
            revoked |= _thumbprint_of_revoked(member)
    revoked |= {key.thumbprint for _, key in found if key.revoked}
    named: dict[tuple[str, str], list[tuple[int, PublicKey]]] = {}
    for index, key in found:
        named.setdefault((key.kid, key.kty), []).append((index, key))
    keys: list[PublicKey] = []
    for entries in named.values():
        if len({(key.thumbprint, key.alg) for _, key in entries}) == 1:
            keys.append(
                replace(
                    min((key for _, key in entries), key=lambda key: len(key.algorithms)),
                    not_before=max(key.not_before for _, key in entries),
                    not_after=min(key.not_after for _, key in entries),
                    revoked=entries[0][1].thumbprint in revoked,
                )
            )
        else:
            reason = "JWK: another key has the same kid and type"
            skipped += [SkippedKey(index=index, reason=reason) for index, _ in entries]
    return KeySet(
        keys=tuple(keys),
        skipped=tuple(sorted(skipped, key=lambda key: key.index)),
        revoked=frozenset(revoked),
    )


def _thumbprint_of_revoked(jwk: object) -> set[str]:
    """The thumbprint of a revoked key with other members that are wrong: it may be in the set under another kid."""
    if type(jwk) is not dict or jwk.get("revoked") is None or jwk["revoked"] is False:
        return set()
    material = {name: jwk[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in jwk}
    with suppress(MalformedError):
        return {public_key_from_jwk(material).thumbprint}
    return set()


def read_public_keys(document: bytes, *, kid: str | None = None) -> KeySet:
    """Read the public keys in a file: a JWK Set, a JWK, or PEM. ``kid`` names the key of a file with a single key.

    MalformedError: neither of these, or a private key. A revoked JWK with another mistake is a set without keys.
    """
    text = document.strip()
    if b"PRIVATE KEY-----" in text or (text.startswith(b"eyJ") and text.count(b".") == 4):
        raise MalformedError(
            "this is a private key, which only its signer needs; give the public key, which a2a-sign keygen writes as "
            "a JWK Set"
        )
    if text.startswith(b"-----BEGIN"):
        return KeySet(keys=(public_key_from_pem(text, kid=kid),))
    value = strict_json.parse(text, what="public keys")
    if type(value) is dict and "keys" in value:
        if kid is not None:
            raise MalformedError("JWK Set: its keys have their own names; leave kid out")
        return read_jwks(text)
    if type(value) is dict and kid is not None:
        value["kid"] = kid
    found = _key_set([value])
    if found.skipped and not found.revoked:
        raise MalformedError(found.skipped[0].reason)
    return found


def publish_jwks(keys: PublicKey | Iterable[PublicKey]) -> dict[str, Any]:
    """The JWK Set to serve for one public key or several, as a new dict. It has public members only.

    ConfigurationError: not public keys, or two keys share ``kid`` and type.
    """
    given = [keys] if isinstance(keys, PublicKey) else [*keys]
    if not all(isinstance(key, PublicKey) for key in given):
        raise ConfigurationError("publish_jwks: pass public keys, as in publish_jwks([signer.public_key])")
    members = [key.to_jwk() for key in given]
    if len({(member["kid"], member["kty"]) for member in members}) < len(members):
        raise ConfigurationError(
            "publish_jwks: two keys share kid and type, so verifiers ignore both; give one of them another kid"
        )
    return {"keys": members}
