"""S8: the header's ``alg``, the key's ``alg``, its type, its curve and the list of algorithms have to agree, all five.

Seen in GHSA-jq35-7prp-9v3f: the header chose the algorithm, and any key that could do it was taken.
"""

from __future__ import annotations

import dataclasses

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, x25519

from a2a_trust import ConfigurationError, MalformedError, Origins, TrustedKey, TrustStore, generate_signer
from a2a_trust.errors import CardVerificationError, FailureReason, InvalidSignatureError, UntrustedCardError
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.jwk import public_key_from_jwk, public_key_from_object
from tests.attacks.forgery import JSONObject, b64, entry, served, signs, unb64
from tests.attacks.verifying import HOST, refusal, verified
from tests.jws import verify_jws
from tests.tables import walk

WRONG, UNKNOWN, BAD = FailureReason.WRONG_ALGORITHM, FailureReason.UNKNOWN_KEY, FailureReason.BAD_SIGNATURE


@walk(
    ("victim", "alg", "error", "reason"),
    [
        # the same kind of key, another algorithm, and a signature that is right for it
        ("owner", "ES384", CardVerificationError, WRONG),
        ("owner", "ES512", CardVerificationError, WRONG),
        ("p384_owner", "ES256", CardVerificationError, WRONG),
        ("p384_owner", "ES512", CardVerificationError, WRONG),
        ("rsa_owner", "RS384", CardVerificationError, WRONG),
        ("rsa_owner", "RS512", CardVerificationError, WRONG),
        ("rsa_owner", "PS256", CardVerificationError, WRONG),
        ("rsa_owner", "PS384", CardVerificationError, WRONG),
        ("rsa_owner", "PS512", CardVerificationError, WRONG),
        # a kind of key for which no key of this name is trusted
        ("owner", "RS256", UntrustedCardError, UNKNOWN),
        ("owner", "EdDSA", UntrustedCardError, UNKNOWN),
        ("rsa_owner", "ES256", UntrustedCardError, UNKNOWN),
        ("ed_owner", "ES256", UntrustedCardError, UNKNOWN),
        ("ed_owner", "PS512", UntrustedCardError, UNKNOWN),
        # not on the list, whatever the key could do
        ("owner", "ES256K", CardVerificationError, WRONG),
        ("owner", "es256", CardVerificationError, WRONG),
        ("owner", "ES256 ", CardVerificationError, WRONG),
        ("owner", "ES256\x00", CardVerificationError, WRONG),
        ("owner", "ＥＳ256", CardVerificationError, WRONG),
        ("owner", "ECDSA256", CardVerificationError, WRONG),
        ("ed_owner", "Ed448", CardVerificationError, WRONG),
        ("ed_owner", "eddsa", CardVerificationError, WRONG),
        ("ed_owner", "ed25519", CardVerificationError, WRONG),
        ("rsa_owner", "RSA-OAEP", CardVerificationError, WRONG),
        ("rsa_owner", "RS1", CardVerificationError, WRONG),
        ("rsa_owner", "ML-DSA-44", CardVerificationError, WRONG),
    ],
)
def test_the_header_chooses_another_algorithm_than_the_keys(
    request: pytest.FixtureRequest,
    card: JSONObject,
    payload: bytes,
    trust: TrustStore,
    victim: str,
    alg: str,
    error: type[CardVerificationError],
    reason: FailureReason,
) -> None:
    signer: LocalSigner = request.getfixturevalue(victim)
    real = alg if alg in ("ES256", "ES384", "ES512") or alg.startswith(("RS2", "RS3", "RS5", "PS")) else signer.alg
    made = entry({"alg": alg, "kid": signer.kid, "typ": "JOSE"}, payload, signs(signer.private_key, real))
    refusal(error, served(card, made), trust, reason)
    with pytest.raises(InvalidSignatureError):
        verify_jws(payload=payload, key=signer.public_key, **made)


def test_the_scheme_of_the_signature_is_not_the_one_of_the_header(
    card: JSONObject, payload: bytes, trust: TrustStore, owner: LocalSigner, rsa_owner: LocalSigner
) -> None:
    for signer, header_alg, real in (
        (rsa_owner, "RS256", "PS256"),
        (rsa_owner, "RS256", "RS512"),
        (owner, "ES256", "ES384"),
        (owner, "ES256", "ES512"),
    ):
        made = entry({"alg": header_alg, "kid": signer.kid}, payload, signs(signer.private_key, real))
        refusal(CardVerificationError, served(card, made), trust, BAD)


@pytest.mark.parametrize("alg", ["PS256", "PS384", "PS512"])
def test_an_rsa_pss_signature_has_another_salt_length(card: JSONObject, payload: bytes, alg: str) -> None:
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    signer = generate_signer(alg, kid="pss", rsa_bits=2048)
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins(HOST))])
    key = signer.private_key
    assert isinstance(key, rsa.RSAPrivateKey)
    digest = {"PS256": hashes.SHA256(), "PS384": hashes.SHA384(), "PS512": hashes.SHA512()}[alg]
    header = {"alg": alg, "kid": "pss"}
    for salt in (0, digest.digest_size - 1, digest.digest_size + 1):
        made = entry(
            header,
            payload,
            lambda data, n=salt: key.sign(data, padding.PSS(padding.MGF1(digest), n), digest),  # type: ignore[misc]
        )
        refusal(CardVerificationError, served(card, made), trust, BAD)
    assert verified(served(card, entry(header, payload, signs(key, alg))), trust).card == card


@pytest.mark.parametrize("curve", ["owner", "p384_owner"])
def test_an_ecdsa_signature_is_not_in_the_form_of_jose(
    request: pytest.FixtureRequest, card: JSONObject, payload: bytes, trust: TrustStore, curve: str
) -> None:
    signer: LocalSigner = request.getfixturevalue(curve)
    key = signer.private_key
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    digest = hashes.SHA256() if curve == "owner" else hashes.SHA384()
    header = {"alg": signer.alg, "kid": signer.kid}
    der = entry(header, payload, lambda data: key.sign(data, ec.ECDSA(digest)))
    raw = unb64(entry(header, payload, signs(key, signer.alg))["signature"])
    half = len(raw) // 2
    order = {
        32: 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
        48: 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973,
    }[half]
    n, zero = order.to_bytes(half, "big"), bytes(half)
    one = (1).to_bytes(half, "big")
    for octets in (
        unb64(der["signature"]),
        b"",
        raw[:-1],
        raw + b"\0",
        b"\0" + raw,
        b"\0" + raw[:half] + b"\0" + raw[half:],
        raw[:half],
        raw + raw,
        raw[half:] + raw[:half],
        # r and s out of range: CVE-2022-21449, "psychic signatures"
        zero + zero,
        zero + raw[half:],
        raw[:half] + zero,
        n + n,
        n + one,
        one + n,
        one + one,
        b"\xff" * 2 * half,
    ):
        made = entry(header, payload, lambda _, octets=octets: octets)  # type: ignore[misc]
        refusal(CardVerificationError, served(card, made), trust, BAD)


def test_an_rsa_signature_has_another_length(
    card: JSONObject, payload: bytes, trust: TrustStore, rsa_owner: LocalSigner
) -> None:
    header = {"alg": "RS256", "kid": "rsa-owner"}
    raw = unb64(entry(header, payload, signs(rsa_owner.private_key, "RS256"))["signature"])
    for octets in (b"", b"\0" + raw, raw + b"\0", raw[1:], raw[:-1], bytes(256), b"\1", b"\xff" * 256):
        made = entry(header, payload, lambda _, octets=octets: octets)  # type: ignore[misc]
        refusal(CardVerificationError, served(card, made), trust, BAD)


def test_one_name_for_keys_of_two_types_is_looked_up_by_the_type_of_the_algorithm(
    card: JSONObject, payload: bytes, owner: LocalSigner, rsa_owner: LocalSigner
) -> None:
    """Neither key is tried with the other's algorithm."""
    ec_key = public_key_from_object(owner.private_key, kid="shared")
    rsa_key = public_key_from_object(rsa_owner.private_key, kid="shared")
    both = TrustStore(TrustedKey(key=key, origins=Origins(HOST)) for key in (ec_key, rsa_key))
    for key, signer in ((ec_key, owner), (rsa_key, rsa_owner)):
        made = entry({"alg": key.alg, "kid": "shared"}, payload, signs(signer.private_key, key.alg))
        assert verified(served(card, made), both).key == key
        other = "RS256" if key.alg == "ES256" else "ES256"
        crossed = entry({"alg": other, "kid": "shared"}, payload, signs(signer.private_key, "RS256"))
        refusal(CardVerificationError, served(card, crossed), both, BAD)


def test_a_sound_jwk_of_another_curve_says_that_it_is_for_our_algorithm() -> None:
    """secp256k1 has coordinates as long as P-256, X25519 as long as Ed25519: only the name of the curve differs."""
    point = ec.generate_private_key(ec.SECP256K1()).public_key().public_numbers()
    foreign: JSONObject = {
        "kty": "EC",
        "crv": "secp256k1",
        "x": b64(point.x.to_bytes(32, "big")),
        "y": b64(point.y.to_bytes(32, "big")),
    }
    octets = x25519.X25519PrivateKey.generate().public_key().public_bytes_raw()
    for jwk, alg in ((foreign, "ES256"), ({"kty": "OKP", "crv": "X25519", "x": b64(octets)}, "EdDSA")):
        for attempt in (jwk, {**jwk, "alg": alg}, {**jwk, "alg": alg, "use": "sig"}):
            with pytest.raises(MalformedError, match="crv"):
                public_key_from_jwk(attempt)
        with pytest.raises(MalformedError, match="crv"):
            public_key_from_jwk(jwk, alg=alg)


@walk(
    ("victim", "members"),
    [
        ("owner", {"alg": "ES384"}),
        ("owner", {"alg": "RS256"}),
        ("owner", {"alg": "EdDSA"}),
        ("owner", {"alg": "ES256K"}),
        ("owner", {"alg": "ECDH-ES"}),
        ("owner", {"alg": 256}),
        ("owner", {"alg": ["ES256"]}),
        ("owner", {"crv": "P-384", "alg": "ES384"}),
        ("owner", {"crv": "P-384"}),
        ("owner", {"crv": "secp256k1"}),
        ("owner", {"crv": "p-256"}),
        ("owner", {"crv": "Ed25519"}),
        ("owner", {"crv": None}),
        ("owner", {"kty": "OKP"}),
        ("owner", {"kty": "RSA"}),
        ("owner", {"kty": "ec"}),
        ("ed_owner", {"crv": "X25519"}),
        ("ed_owner", {"crv": "Ed448"}),
        ("ed_owner", {"crv": "P-256"}),
        ("ed_owner", {"alg": "ES256"}),
        ("ed_owner", {"kty": "EC"}),
        ("rsa_owner", {"alg": "ES256"}),
        ("rsa_owner", {"alg": "RSA-OAEP"}),
        ("rsa_owner", {"alg": "RS1"}),
        ("rsa_owner", {"kty": "EC", "crv": "P-256"}),
    ],
    ids=str,
)
def test_a_jwk_that_disagrees_with_itself_is_no_key(
    request: pytest.FixtureRequest, victim: str, members: JSONObject
) -> None:
    signer: LocalSigner = request.getfixturevalue(victim)
    with pytest.raises(MalformedError):
        public_key_from_jwk({**signer.public_key.to_jwk(), **members})


def test_a_key_is_trusted_for_an_algorithm_that_it_cannot_have(owner: LocalSigner, rsa_owner: LocalSigner) -> None:
    for signer, alg in ((owner, "ES384"), (owner, "EdDSA"), (owner, "RS256"), (rsa_owner, "ES256")):
        with pytest.raises(ConfigurationError):
            public_key_from_object(signer.private_key, alg=alg)
        with pytest.raises(MalformedError):
            public_key_from_jwk(signer.public_key.to_jwk(), alg=alg)


def test_the_allow_list_holds_also_for_a_key_that_was_not_made_by_this_package(
    card: JSONObject, payload: bytes
) -> None:
    """secp256k1 is a fine curve, and not one that cards are signed with."""
    key = ec.generate_private_key(ec.SECP256K1())
    for alg in (None, "ES256"):
        with pytest.raises(MalformedError):
            public_key_from_object(key, alg=alg)


def test_control_each_key_with_its_own_algorithm(
    request: pytest.FixtureRequest, card: JSONObject, payload: bytes, trust: TrustStore
) -> None:
    for name, algs in (
        ("owner", ["ES256"]),
        ("p384_owner", ["ES384"]),
        ("rsa_owner", ["RS256"]),
        ("ed_owner", ["EdDSA", "Ed25519"]),  # RFC 9864 has a second name for the same
    ):
        signer: LocalSigner = request.getfixturevalue(name)
        for alg in algs:
            made = entry({"alg": alg, "kid": signer.kid}, payload, signs(signer.private_key, signer.alg))
            assert verified(served(card, made), trust).key == signer.public_key
    pss = dataclasses.replace(
        trust.keys[1], key=public_key_from_object(request.getfixturevalue("rsa_owner").private_key, alg="PS384")
    )
    made = entry(
        {"alg": "PS384", "kid": pss.key.kid},
        payload,
        signs(request.getfixturevalue("rsa_owner").private_key, "PS384"),
    )
    assert b64(unb64(made["signature"])) == made["signature"]
    assert verified(served(card, made), TrustStore([pss])).card == card
