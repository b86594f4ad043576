"""S4: the header brings the key along (``jwk``, ``x5c``), or the address of a certificate (``x5u``).

Seen in Authlib (CVE-2026-27962) and others (CVE-2026-34240): the signature is then good by a key of the attacker.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from a2a_trust import TrustStore
from a2a_trust.errors import CardVerificationError, FailureReason, InvalidSignatureError, UntrustedCardError
from a2a_trust.keys import LocalSigner, UnsafeAnyOrigin, named
from a2a_trust.signing import Coverage
from tests.attacks.forgery import JSONObject, b64, entry, served, signs
from tests.attacks.recording import events_outside
from tests.attacks.verifying import HOST, refusal, verified
from tests.jws import verify_jws
from tests.tables import walk


@pytest.fixture(scope="module")
def certificate(mallory: LocalSigner) -> bytes:
    """The attacker's key, certified by himself for the owner's host, in DER."""
    key = mallory.private_key
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    since = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(since)
        .not_valid_after(since + dt.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )


@pytest.fixture(params=["jwk", "jwk-private", "jwk-of-owner-name", "x5c", "x5c+x5t", "x5u", "key", "all"])
def smuggled(request: pytest.FixtureRequest, mallory: LocalSigner, certificate: bytes) -> dict[str, Any]:
    """The header members that bring the attacker's key."""
    jwk = mallory.public_key.to_jwk()
    chain = [base64.b64encode(certificate).decode()]
    kinds: dict[str, dict[str, Any]] = {
        "jwk": {"jwk": jwk},
        "jwk-private": {"jwk": {**jwk, "d": "AA"}},
        "jwk-of-owner-name": {"jwk": {**jwk, "kid": "owner"}},
        "x5c": {"x5c": chain},
        "x5c+x5t": {
            "x5c": chain,
            "x5t": b64(hashlib.sha1(certificate).digest()),
            "x5t#S256": b64(hashlib.sha256(certificate).digest()),
        },
        "x5u": {"x5u": "https://evil.example/chain.pem"},
        "key": {"key": mallory.public_key.to_pem().decode(), "keys": [jwk], "jwks": {"keys": [jwk]}},
    }
    kinds["all"] = {name: value for kind in kinds.values() for name, value in kind.items()}
    return kinds[request.param]


@walk("where", ["protected", "unprotected"])
@walk(
    ("kid", "error", "reason"),
    [
        ("owner", CardVerificationError, FailureReason.BAD_SIGNATURE),
        ("mallory", UntrustedCardError, FailureReason.UNKNOWN_KEY),
        (None, CardVerificationError, FailureReason.MALFORMED),
    ],
    ids=["kid-of-owner", "kid-of-attacker", "no-kid"],
)
def test_a_key_in_the_header_never_becomes_the_key(
    card: JSONObject,
    payload: bytes,
    mallory: LocalSigner,
    trust: TrustStore,
    smuggled: dict[str, Any],
    where: str,
    kid: str | None,
    error: type[CardVerificationError],
    reason: FailureReason,
) -> None:
    header: JSONObject = {"alg": "ES256", "typ": "JOSE"} | ({} if kid is None else {"kid": kid})
    sign = signs(mallory.private_key, "ES256")
    if where == "protected":
        forged = entry({**header, **smuggled}, payload, sign)
    else:
        forged = entry(header, payload, sign, header=smuggled)
    document = served(card, forged)
    with events_outside() as events:
        refusal(error, document, trust, reason)
        refusal(error, document, trust, reason, coverage=Coverage.SIGNED_PART_ONLY, origin=UnsafeAnyOrigin())
        refusal(error, document, trust, reason, policy=named("party-owner"))
    assert events == []


def test_a_key_in_the_header_is_not_used_by_the_function_that_checks_a_jws(
    payload: bytes, mallory: LocalSigner, owner: LocalSigner, smuggled: dict[str, Any]
) -> None:
    forged = entry({"alg": "ES256", **smuggled}, payload, signs(mallory.private_key, "ES256"))
    with pytest.raises(InvalidSignatureError):
        verify_jws(payload=payload, key=owner.public_key, **forged)


def test_the_thumbprint_of_the_attackers_key_names_nothing(
    card: JSONObject, payload: bytes, mallory: LocalSigner, trust: TrustStore
) -> None:
    header = {"alg": "ES256", "kid": mallory.public_key.thumbprint, "jwk": mallory.public_key.to_jwk()}
    document = served(card, entry(header, payload, signs(mallory.private_key, "ES256")))
    refusal(UntrustedCardError, document, trust, FailureReason.UNKNOWN_KEY)


def test_control_the_owners_signature_is_good_whatever_key_its_header_names(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore, smuggled: dict[str, Any]
) -> None:
    header = {"alg": "ES256", "kid": "owner", "typ": "JOSE", **smuggled}
    result = verified(served(card, entry(header, payload, signs(owner.private_key, "ES256"))), trust)
    assert (result.key, result.card) == (owner.public_key, card)
