"""S7: the public key is known to everybody; a verifier that takes its bytes for an HMAC secret lets everybody sign.

Seen in PyJWT (CVE-2022-29217, CVE-2026-102268) and python-jose (CVE-2024-33663). ``none`` is the same without secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from a2a_trust import ConfigurationError, MalformedError, Origins, TrustedKey, TrustStore, generate_signer
from a2a_trust.errors import CardVerificationError, FailureReason, InvalidSignatureError
from a2a_trust.keys import LocalSigner, read_jwks
from a2a_trust.keys.algorithms import ALGORITHMS
from a2a_trust.keys.jwk import public_key_from_jwk, public_key_from_pem
from tests.attacks.forgery import JSONObject, Sign, b64, entry, served, signs, unb64
from tests.attacks.verifying import HOST, refusal, verified
from tests.jws import verify_jws
from tests.tables import walk

OWNERS = ["owner", "rsa_owner", "ed_owner", "p384_owner"]


def disguises(signer: LocalSigner) -> dict[str, bytes]:
    """Every spelling of the public key that somebody has once hashed with."""
    key, jwk = signer.public_key, signer.public_key.to_jwk()
    native = key.native
    pem = key.to_pem()
    found = {
        "pem": pem,
        "pem without newline": pem.rstrip(),
        "pem with CRLF": pem.replace(b"\n", b"\r\n"),
        "pem body": b"".join(pem.splitlines()[1:-1]),
        "der": native.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "jwk": json.dumps(jwk).encode(),
        "jwk compact": json.dumps(jwk, separators=(",", ":")).encode(),
        "jwk canonical": json.dumps(jwk, sort_keys=True, separators=(",", ":")).encode(),
        "thumbprint input": json.dumps(dict(key.jwk), sort_keys=True, separators=(",", ":")).encode(),
        "thumbprint": key.thumbprint.encode(),
        "thumbprint octets": unb64(key.thumbprint),
        "kid": key.kid.encode(),
        "empty": b"",
        "null octet": b"\0",
        "None": b"None",
        "secret": b"secret",
        "alg": key.alg.encode(),
    }
    for name in ("x", "y", "n", "e"):
        if name in jwk:
            found[name] = jwk[name].encode()
            found[f"{name} octets"] = unb64(jwk[name])
    if jwk["kty"] == "EC":
        found["point"] = native.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        found["point compressed"] = native.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    if jwk["kty"] == "OKP":
        found["openssh"] = native.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return found


def hmac_by(secret: bytes, digest: str) -> Sign:
    return lambda data: hmac.digest(secret, data, digest)


@pytest.fixture(params=OWNERS)
def victim(request: pytest.FixtureRequest) -> LocalSigner:
    signer: LocalSigner = request.getfixturevalue(request.param)
    return signer


@walk("alg", ["HS256", "HS384", "HS512"])
def test_a_card_is_signed_with_the_public_key_as_secret(
    card: JSONObject, payload: bytes, victim: LocalSigner, trust: TrustStore, alg: str
) -> None:
    digest = f"sha{alg[2:]}"
    for secret in disguises(victim).values():
        made = entry({"alg": alg, "kid": victim.kid, "typ": "JOSE"}, payload, hmac_by(secret, digest))
        refusal(CardVerificationError, served(card, made), trust, FailureReason.WRONG_ALGORITHM)
        with pytest.raises(InvalidSignatureError):
            verify_jws(payload=payload, key=victim.public_key, **made)


@walk("digest", ["sha256", "sha384", "sha512"])
def test_an_hmac_is_passed_off_as_the_signature_of_the_keys_own_algorithm(
    card: JSONObject, payload: bytes, victim: LocalSigner, trust: TrustStore, digest: str
) -> None:
    for secret in disguises(victim).values():
        made = entry({"alg": victim.alg, "kid": victim.kid, "typ": "JOSE"}, payload, hmac_by(secret, digest))
        refusal(CardVerificationError, served(card, made), trust, FailureReason.BAD_SIGNATURE)


@walk("alg", ["none", "None", "NONE", "nOnE", "", " ", "null", "hs256", "HS1", "HS256 ", "A256KW"])
def test_a_card_is_signed_by_no_algorithm(
    card: JSONObject, payload: bytes, victim: LocalSigner, trust: TrustStore, alg: str
) -> None:
    for octets in (b"", b"\0", b"\0" * 64, hmac.digest(b"", payload, "sha256")):
        made = entry({"alg": alg, "kid": victim.kid, "typ": "JOSE"}, payload, lambda _, octets=octets: octets)  # type: ignore[misc]
        refusal(CardVerificationError, served(card, made), trust, FailureReason.WRONG_ALGORITHM)
        with pytest.raises(InvalidSignatureError):
            verify_jws(payload=payload, key=victim.public_key, **made)


def test_a_symmetric_key_is_smuggled_into_the_trusted_ones(victim: LocalSigner) -> None:
    jwk = victim.public_key.to_jwk()
    secret = b64(hashlib.sha256(b"known to everybody").digest())
    for attempt in (
        {"kty": "oct", "k": secret, "kid": victim.kid, "alg": "HS256"},
        {"kty": "oct", "k": b64(victim.public_key.to_pem()), "kid": victim.kid},
        {**jwk, "kty": "oct", "k": secret},
        {**jwk, "k": secret},
        {**jwk, "alg": "HS256"},
        {**jwk, "alg": "none"},
        {**jwk, "alg": ""},
    ):
        with pytest.raises(MalformedError):
            public_key_from_jwk(attempt)
    for alg in ("HS256", "HS384", "HS512", "none", ""):
        with pytest.raises(MalformedError):
            public_key_from_jwk({name: value for name, value in jwk.items() if name != "alg"}, alg=alg)
        with pytest.raises(ConfigurationError):
            public_key_from_pem(victim.public_key.to_pem(), alg=alg)
        with pytest.raises(ConfigurationError):
            generate_signer(alg)
    for pem in (b"secret", b"", victim.public_key.to_pem().replace(b"PUBLIC KEY", b"SECRET KEY")):
        with pytest.raises(MalformedError):
            public_key_from_pem(pem)


def test_no_algorithm_that_cards_are_signed_with_is_symmetric() -> None:
    assert {algorithm.kty for algorithm in ALGORITHMS.values()} == {"EC", "OKP", "RSA"}
    assert not [name for name in ALGORITHMS if name.upper().startswith(("HS", "NONE", "A1", "A2", "DIR"))]


def test_a_set_that_offers_a_secret_beside_public_keys_is_refused_whole(victim: LocalSigner) -> None:
    good = victim.public_key.to_jwk()
    for other in ({"kty": "oct", "k": "c2VjcmV0", "kid": "x"}, {"kty": "oct"}, {"kty": "oct", "kid": victim.kid}):
        for keys in ([good, other], [other, good]):
            with pytest.raises(MalformedError, match="symmetric"):
                read_jwks(json.dumps({"keys": keys}).encode())


def test_control_the_keys_own_signature_is_good(card: JSONObject, payload: bytes, victim: LocalSigner) -> None:
    key = read_jwks(json.dumps({"keys": [victim.public_key.to_jwk()]}).encode()).keys[0]
    trust = TrustStore([TrustedKey(key=key, origins=Origins(HOST))])
    made = entry({"alg": victim.alg, "kid": victim.kid}, payload, signs(victim.private_key, victim.alg))
    assert verified(served(card, made), trust).card == card
