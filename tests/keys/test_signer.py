"""Signers: every algorithm signs what the one verifying function accepts, and nothing shows the private key."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa, x25519

from a2a_trust.errors import ConfigurationError, InvalidSignatureError, MalformedError
from a2a_trust.keys import base64url
from a2a_trust.keys.algorithms import ALGORITHMS, algorithm_of
from a2a_trust.keys.files import private_key_bytes, read_private_key
from a2a_trust.keys.jwk import private_key_to_jwk
from a2a_trust.keys.jws import RSA_PADDING, signing_input
from a2a_trust.keys.signer import LocalSigner, Signer, generate_signer
from tests.jws import verify_jws
from tests.tables import walk

SIGNATURE_OCTETS = {"ES256": 64, "ES384": 96, "ES512": 132, "EdDSA": 64}


def signer_for(alg: str, rsa_key: rsa.RSAPrivateKey) -> LocalSigner:
    if ALGORITHMS[alg].kty == "RSA":
        return LocalSigner(rsa_key, alg=alg, kid=f"key-{alg}")
    return generate_signer(alg, kid=f"key-{alg}")


def protected_of(alg: str) -> str:
    return base64url.encode(b'{"alg":"%s"}' % alg.encode())


@walk("alg", ALGORITHMS)
def test_what_a_signer_signs_verifies_with_its_public_key_and_over_these_bytes_only(
    alg: str, rsa_key: rsa.RSAPrivateKey
) -> None:
    signer = signer_for(alg, rsa_key)
    payload, protected = b"payload", protected_of(alg)
    signature = signer.sign(signing_input(protected, payload))
    assert len(signature) == SIGNATURE_OCTETS.get(alg, 256)
    text = base64url.encode(signature)
    assert verify_jws(protected=protected, payload=payload, signature=text, key=signer.public_key) == {"alg": alg}
    parts: dict[str, Any] = {"protected": protected, "payload": payload, "signature": text, "key": signer.public_key}
    wrong: list[dict[str, Any]] = [
        {"payload": b"Payload"},
        {"payload": b""},
        {"signature": base64url.encode(bytes([signature[0] ^ 1]) + signature[1:])},
        {"signature": base64url.encode(signature[:-1] + bytes([signature[-1] ^ 1]))},
        {"signature": base64url.encode(signature + b"\0")},
        {"signature": base64url.encode(signature[:-1])},
        {"signature": base64url.encode(b"\0" + signature)},
        # Read as two numbers of any length this would be the same ECDSA signature in another spelling.
        {"signature": base64url.encode(signature[: len(signature) // 2] + b"\0" + signature[len(signature) // 2 :])},
        {"signature": ""},
        {"protected": base64url.encode(b'{"alg": "%s"}' % alg.encode())},
    ]
    for change in wrong:
        with pytest.raises(InvalidSignatureError, match="not by this key over these bytes"):
            verify_jws(**parts | change)


@walk("alg", ALGORITHMS)
def test_a_key_verifies_no_other_algorithm_than_its_own(alg: str, rsa_key: rsa.RSAPrivateKey) -> None:
    signer = signer_for(alg, rsa_key)
    for other in (*ALGORITHMS, "Ed25519", "none", "HS256"):
        if algorithm_of(other) is ALGORITHMS[alg]:
            continue
        protected = protected_of(other)
        signature = base64url.encode(signer.sign(signing_input(protected, b"x")))
        with pytest.raises(InvalidSignatureError, match="alg is not"):
            verify_jws(protected=protected, payload=b"x", signature=signature, key=signer.public_key)


def test_eddsa_under_its_new_name_is_the_same() -> None:
    signer = generate_signer("Ed25519")
    assert signer.alg == "EdDSA"
    protected = protected_of("Ed25519")
    signature = base64url.encode(signer.sign(signing_input(protected, b"x")))
    assert verify_jws(protected=protected, payload=b"x", signature=signature, key=signer.public_key)["alg"] == "Ed25519"


@walk("alg", ["ES256", "ES384", "ES512"])
def test_ecdsa_signatures_have_a_fixed_length_also_when_a_half_begins_with_zeros(alg: str) -> None:
    signer = generate_signer(alg)
    octets = SIGNATURE_OCTETS[alg] // 2
    halves = set()
    for number in range(1_500 if alg != "ES512" else 100):  # one half in 256 is short; of P-521 every other one
        signature = signer.sign(b"%d" % number)
        assert len(signature) == 2 * octets
        halves |= {signature[0], signature[octets]}
        if 0 in halves:
            break
    assert 0 in halves


def test_the_name_of_a_key_is_its_thumbprint_unless_given(rsa_key: rsa.RSAPrivateKey) -> None:
    for key in (rsa_key, ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()):
        signer = LocalSigner(key)
        assert signer.kid == signer.public_key.kid == signer.public_key.thumbprint
        assert LocalSigner(key, kid="mine").kid == "mine"
        assert LocalSigner(key, kid="mine").public_key.thumbprint == signer.public_key.thumbprint


@walk(("curve", "alg"), [(ec.SECP256R1(), "ES256"), (ec.SECP384R1(), "ES384"), (ec.SECP521R1(), "ES512")])
def test_the_algorithm_of_an_ec_key_is_that_of_its_curve(curve: ec.EllipticCurve, alg: str) -> None:
    key = ec.generate_private_key(curve)
    assert LocalSigner(key).alg == alg
    for other in {"ES256", "ES384", "ES512", "RS256", "EdDSA"} - {alg}:
        with pytest.raises(ConfigurationError, match=f"does not fit this key; leave it out, or use {alg}"):
            LocalSigner(key, alg=other)


def test_rsa_keys_are_for_rs256_unless_told_otherwise(rsa_key: rsa.RSAPrivateKey) -> None:
    assert LocalSigner(rsa_key).alg == "RS256"
    assert LocalSigner(rsa_key, alg="PS512").alg == "PS512"
    with pytest.raises(ConfigurationError, match="does not fit"):
        LocalSigner(rsa_key, alg="ES256")


@walk("alg", ["HS256", "none", "", "es256"])
def test_there_are_no_keys_for_other_algorithms(alg: str, rsa_key: rsa.RSAPrivateKey) -> None:
    with pytest.raises(ConfigurationError, match="choose from"):
        generate_signer(alg)
    with pytest.raises(ConfigurationError, match="choose from"):
        LocalSigner(rsa_key, alg=alg)


@walk(
    "make",
    [
        lambda: ec.generate_private_key(ec.SECP256K1()),
        lambda: ec.generate_private_key(ec.BrainpoolP256R1()),
        ed448.Ed448PrivateKey.generate,
        x25519.X25519PrivateKey.generate,
        lambda: dsa.generate_private_key(1024),
        lambda: None,
        lambda: "key",
    ],
)
def test_keys_of_other_kinds_are_refused(make: Any) -> None:
    with pytest.raises(MalformedError, match="only EC P-256, P-384, P-521, RSA and Ed25519"):
        LocalSigner(make())


@pytest.mark.parametrize("bits", [1024, 2047])
def test_rsa_keys_that_are_too_short_are_not_made(bits: int) -> None:
    with pytest.raises(MalformedError, match=f"RSA key of {bits} bits"):
        generate_signer("RS256", rsa_bits=bits)


def test_a_made_rsa_key_has_3072_bits() -> None:
    assert generate_signer("PS256").private_key.key_size == 3072  # type: ignore[union-attr]


def test_made_keys_differ() -> None:
    assert len({generate_signer().kid for _ in range(5)}) == 5


def test_a_local_signer_is_a_signer_and_so_is_anything_of_that_shape() -> None:
    signer = generate_signer()
    assert isinstance(signer, Signer)

    class Module:
        public_key, alg, kid = signer.public_key, signer.alg, signer.kid

        def sign(self, data: bytes) -> bytes:
            return signer.sign(data)

    assert isinstance(Module(), Signer)
    assert not isinstance(signer.public_key, Signer)


def secrets_of(signer: LocalSigner) -> set[str]:
    """The private members of the key, in the spellings in which they could slip out."""
    jwk = private_key_to_jwk(signer.private_key, alg=signer.alg, kid=signer.kid)
    shown = set()
    for name in jwk.keys() - {"kty", "crv", "x", "y", "n", "e", "kid", "use", "alg"}:
        octets = base64url.decode(jwk[name], name)
        shown |= {jwk[name], octets.hex(), str(int.from_bytes(octets, "big")), str(octets)[2:-1]}
    assert shown
    return shown


@walk("alg", ["ES256", "EdDSA", "RS256"])
def test_no_text_of_a_signer_holds_its_private_key(alg: str, rsa_key: rsa.RSAPrivateKey) -> None:
    signer = signer_for(alg, rsa_key)
    public = signer.public_key
    shown: list[object] = [
        signer,
        [signer],
        {"s": signer},
        public,
        public.to_jwk(),
        dict(public.jwk),
        vars(type(signer)),
    ]
    texts = [repr(thing) for thing in shown] + [str(thing) for thing in shown]
    texts += [f"{signer}", "{}".format(signer), "%s" % signer, public.to_pem().decode()]  # noqa: UP031, UP032
    for secret in secrets_of(signer):
        assert not [text for text in texts if secret in text]
    assert repr(signer) == f"LocalSigner(alg='{alg}', kid='key-{alg}')"
    assert not hasattr(signer, "__dict__")


@walk("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_signer_is_neither_pickled_nor_copied(protocol: int) -> None:
    signer = generate_signer()
    for value in (signer, [signer], {"signer": signer}):
        with pytest.raises(TypeError, match="LocalSigner cannot be pickled or copied: it holds a secret"):
            pickle.dumps(value, protocol)
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.copy(signer)
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.deepcopy(signer)


def test_a_signer_is_read_from_a_jwk_under_its_own_or_another_name(rsa_key: rsa.RSAPrivateKey) -> None:
    for alg in ALGORITHMS:
        signer = signer_for(alg, rsa_key)
        jwk = private_key_to_jwk(signer.private_key, alg=alg, kid="own")
        again = LocalSigner.from_jwk(jwk)
        assert (again.alg, again.kid) == (alg, "own")
        assert again.public_key.thumbprint == signer.public_key.thumbprint
        assert LocalSigner.from_jwk(jwk, kid="other").kid == "other"
        del jwk["kid"]
        assert LocalSigner.from_jwk(jwk).kid == signer.public_key.thumbprint


def test_a_signer_keeps_what_its_jwk_says_about_the_key() -> None:
    jwk = {**json.loads(private_key_bytes(generate_signer(kid="k"), format="jwk")), "nbf": 10, "exp": 20}
    signer = LocalSigner.from_jwk(jwk)
    assert (signer.public_key.not_before, signer.public_key.not_after) == (10.0, 20.0)
    again = read_private_key(private_key_bytes(signer, format="jwk"))
    assert again.public_key == signer.public_key
    assert LocalSigner.from_jwk(jwk, kid="other").public_key == replace(signer.public_key, kid="other")


@pytest.mark.parametrize("alg", ["RS512", "PS256"])
def test_a_signer_for_another_algorithm_of_its_key(alg: str, rsa_key: rsa.RSAPrivateKey) -> None:
    signer = LocalSigner(rsa_key, kid="k")
    other = signer.with_alg(alg)
    assert (signer.alg, other.alg, other.kid) == ("RS256", alg, "k")
    rsa_key.public_key().verify(other.sign(b"data"), b"data", *RSA_PADDING[alg])
    with pytest.raises(ConfigurationError, match="does not fit this key"):
        other.with_alg("RS256")
