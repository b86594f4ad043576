"""The floor and the peers with one key: each library's own object for it is made before the clock runs."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import jwt
import rfc8785
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc import jws
from joserfc.jwk import ECKey, KeySet, RSAKey

from a2a_trust import generate_signer
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.jwk import private_key_to_jwk

__all__ = ["Peers", "obvious_verifier"]

_ECDSA, _PKCS1, _SHA256 = ec.ECDSA(SHA256()), PKCS1v15(), SHA256()
_PYJWT = jwt.PyJWS()


#: joserfc's default registry rejects ``iat``.
_ANY_HEADER: Final = jws.JWSRegistry(strict_check_header=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """One private key in everybody's hands: ours, cryptography's (the floor), joserfc's and PyJWT's."""

    signer: LocalSigner
    jwk: dict[str, Any]
    """The private key as a JWK."""
    native: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    joserfc: ECKey | RSAKey
    pyjwt: jwt.PyJWK
    pyjwt_public: jwt.PyJWK

    @classmethod
    def with_new_key(cls, alg: str) -> Peers:
        """For ES256, or for RS256 with 2048 bits."""
        signer = generate_signer(alg, rsa_bits=2048)
        native = signer.private_key
        if not isinstance(native, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise TypeError(f"no benchmark for {alg}")
        jwk = private_key_to_jwk(native, alg=alg, kid=signer.kid)
        return cls(
            signer=signer,
            jwk=jwk,
            native=native,
            joserfc=(ECKey if alg == "ES256" else RSAKey).import_key(jwk),
            pyjwt=jwt.PyJWK(jwk),
            pyjwt_public=jwt.PyJWK(signer.public_key.to_jwk()),
        )

    def raw_verifier(self, signature: bytes) -> Callable[[bytes], None]:
        """The floor: the signature over ready octets and nothing else. ``signature`` is in the JOSE form."""
        public = self.native.public_key()
        if isinstance(public, ec.EllipticCurvePublicKey):
            half = len(signature) // 2
            der = encode_dss_signature(int.from_bytes(signature[:half], "big"), int.from_bytes(signature[half:], "big"))
            return lambda data: public.verify(der, data, _ECDSA)
        return lambda data: public.verify(signature, data, _PKCS1, _SHA256)

    def raw_sign(self, data: bytes) -> bytes:
        """The floor: the signature over ready octets and nothing else, as cryptography gives it."""
        if isinstance(self.native, ec.EllipticCurvePrivateKey):
            return self.native.sign(data, _ECDSA)
        return self.native.sign(data, _PKCS1, _SHA256)

    def joserfc_verify(self, protected: str, payload: bytes, signature: str) -> None:
        """The flattened JSON form, with the detached payload put in (RFC 7515 appendix F)."""
        value: Any = {"protected": protected, "payload": _encoded(payload), "signature": signature}
        jws.deserialize_json(value, self.joserfc, algorithms=[self.signer.alg])

    def joserfc_sign(self, payload: bytes) -> Any:
        """The flattened JSON form."""
        header = {"alg": self.signer.alg, "kid": self.signer.kid, "typ": "JOSE"}
        return jws.serialize_json({"protected": header}, payload, self.joserfc, algorithms=[self.signer.alg])

    def pyjwt_verify(self, protected: str, payload: bytes, signature: str) -> None:
        """The compact form; PyJWT has no other."""
        _PYJWT.decode(f"{protected}.{_encoded(payload)}.{signature}", self.pyjwt_public, algorithms=[self.signer.alg])

    def pyjwt_sign(self, payload: bytes) -> str:
        """The compact form."""
        headers = {"kid": self.signer.kid, "typ": "JOSE"}
        return _PYJWT.encode(payload, self.pyjwt, algorithm=self.signer.alg, headers=headers)


def obvious_verifier(public: Iterable[dict[str, Any]]) -> Callable[[bytes], dict[str, Any]]:
    """What one builds first, of json, rfc8785 and joserfc: it knows no gate, no origins and no forms.

    It takes the first signature, and hands out what it has parsed.
    """
    keys = KeySet([ECKey.import_key(jwk) for jwk in public])

    def verify(document: bytes) -> dict[str, Any]:
        card: dict[str, Any] = json.loads(document)
        signature = card.pop("signatures")[0]
        value: Any = {**signature, "payload": _encoded(rfc8785.dumps(card))}
        jws.deserialize_json(value, keys, algorithms=["ES256"], registry=_ANY_HEADER)
        return card

    return verify


def _encoded(octets: bytes) -> str:
    return urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")
