"""JWK and PEM: a key that comes in is sound, public where it must be, and bound to one algorithm."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys import base64url
from a2a_trust.keys.algorithms import ALGORITHMS, MAX_RSA_BITS
from a2a_trust.keys.jwk import (
    private_key_from_jwk,
    private_key_to_jwk,
    public_key_from_jwk,
    public_key_from_object,
    public_key_from_pem,
    read_jwks,
)
from a2a_trust.keys.signer import LocalSigner, generate_signer
from tests.tables import walk

EC = generate_signer("ES256", kid="ec").public_key.to_jwk()
OKP = generate_signer("EdDSA", kid="okp").public_key.to_jwk()


def number(value: int) -> str:
    return base64url.encode(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def modulus(bits: int) -> int:
    """An odd number of that many bits, without small factors that would make it look made by a broken generator."""
    return Random(bits).getrandbits(bits) | 1 << (bits - 1) | 1


def rsa_jwk(n: int, e: int = 65537, **rest: Any) -> dict[str, Any]:
    return {"kty": "RSA", "n": number(n), "e": number(e), **rest}


def private_jwk(alg: str, rsa_key: rsa.RSAPrivateKey) -> dict[str, Any]:
    key = rsa_key if ALGORITHMS[alg].kty == "RSA" else generate_signer(alg).private_key
    return private_key_to_jwk(key, alg=alg, kid="k")


@walk("alg", ALGORITHMS)
def test_a_key_of_each_algorithm_comes_back_from_jwk_and_pem(alg: str, rsa_key: rsa.RSAPrivateKey) -> None:
    signer = LocalSigner(rsa_key, alg=alg, kid="k") if ALGORITHMS[alg].kty == "RSA" else generate_signer(alg, kid="k")
    key = signer.public_key
    assert key.to_jwk() == {**key.jwk, "kid": "k", "use": "sig", "alg": alg}
    assert key.to_jwk().keys().isdisjoint({"d", "p", "q", "dp", "dq", "qi", "k"})
    for again in (
        public_key_from_jwk(json.loads(json.dumps(key.to_jwk()))),
        public_key_from_jwk(MappingProxyType(key.to_jwk())),
        public_key_from_pem(key.to_pem(), alg=alg, kid="k"),
        public_key_from_object(signer.private_key, alg=alg, kid="k"),
        public_key_from_object(signer.private_key.public_key(), alg=alg, kid="k"),
    ):
        assert again == key
        assert hash(again) == hash(key)
        assert (again.alg, again.kid, again.kty, again.thumbprint) == (alg, "k", ALGORITHMS[alg].kty, key.thumbprint)


def test_keys_are_equal_when_name_algorithm_and_material_are(rsa_key: rsa.RSAPrivateKey) -> None:
    key = public_key_from_object(rsa_key, kid="k")
    assert key != public_key_from_object(rsa_key, kid="other")
    assert key != public_key_from_object(rsa_key, kid="k", alg="PS256")
    assert key != public_key_from_object(generate_signer(kid="k").private_key, kid="k")
    assert key != "k"  # type: ignore[comparison-overlap]
    assert key.thumbprint == public_key_from_object(rsa_key, alg="PS512").thumbprint


def test_a_public_key_cannot_be_changed() -> None:
    key = public_key_from_jwk(EC)
    with pytest.raises(dataclasses.FrozenInstanceError):
        key.alg = "HS256"  # type: ignore[misc]
    with pytest.raises(TypeError):
        key.jwk["x"] = "AA"  # type: ignore[index]
    key.to_jwk()["x"] = "AA"
    assert key.to_jwk() == EC


def test_members_that_are_not_needed_are_left_behind() -> None:
    extra = {**EC, "x5t": "AA", "x5u": "https://evil.example", "ext": True, "iat": 1}
    assert public_key_from_jwk(extra).to_jwk() == EC


@walk("jwk", [None, 1, "x", [], [EC], True, b"{}"], ids=lambda value: type(value).__name__)
def test_a_jwk_is_an_object(jwk: object) -> None:
    with pytest.raises(MalformedError, match=r"^JWK: not a JSON object"):
        public_key_from_jwk(jwk)
    with pytest.raises(MalformedError, match=r"^JWK: not a private key"):
        private_key_from_jwk(jwk)


@walk("kty", [None, "", "ec", "Ec", "oct", "OCT", "AKP", 1, True, [], ["EC"], {}, {"EC": 1}], ids=repr)
def test_other_key_types_are_refused(kty: Any) -> None:
    with pytest.raises(MalformedError, match=r"^JWK: kty must be EC, RSA or OKP"):
        public_key_from_jwk({**EC, "kty": kty})
    with pytest.raises(MalformedError, match=r"^JWK: kty must be EC, RSA or OKP"):
        public_key_from_jwk({name: value for name, value in EC.items() if name != "kty"})
    with pytest.raises(MalformedError, match=r"^JWK: kty must be EC, RSA or OKP"):
        private_key_from_jwk({**EC, "kty": kty, "d": EC["x"]})


@walk("crv", [None, "", "P-192", "p-256", "P256", "secp256k1", "Ed25519", "Ed448", 1, [], {}], ids=repr)
def test_other_curves_are_refused(crv: Any) -> None:
    with pytest.raises(MalformedError, match=r"^JWK: crv must be P-256, P-384 or P-521"):
        public_key_from_jwk({**EC, "crv": crv})
    with pytest.raises(MalformedError, match=r"^JWK: "):
        public_key_from_jwk({**OKP, "crv": "P-256" if crv == "Ed25519" else crv})


@walk(
    "alg",
    ["", "none", "HS256", "ES384", "EdDSA", "RS256", "es256", "ECDH-ES", "ES256K", 1, True, [], ["ES256"], {}],
    ids=repr,
)
def test_an_alg_that_is_not_for_this_key_is_refused(alg: Any) -> None:
    with pytest.raises(MalformedError, match=r"^JWK: (its alg is not|alg must be a string)"):
        public_key_from_jwk({**EC, "alg": alg})


def test_an_alg_that_is_absent_or_null_is_that_of_the_key() -> None:
    assert public_key_from_jwk({**EC, "alg": None}).alg == "ES256"
    bare = {name: EC[name] for name in ("kty", "crv", "x", "y")}
    assert public_key_from_jwk(bare).alg == "ES256"
    assert public_key_from_jwk({**OKP, "alg": "Ed25519"}).alg == "EdDSA"


def test_the_expected_alg_and_that_of_the_jwk_must_agree() -> None:
    jwk = rsa_jwk(modulus(2048))
    assert public_key_from_jwk(jwk).alg == "RS256"
    assert public_key_from_jwk(jwk, alg="PS384").alg == "PS384"
    assert public_key_from_jwk({**jwk, "alg": "PS384"}).alg == "PS384"
    assert public_key_from_jwk({**jwk, "alg": "PS384"}, alg="PS384").alg == "PS384"
    for alg in ("RS256", "PS512", "ES256", "HS256", "none"):
        with pytest.raises(MalformedError, match="not the required one"):
            public_key_from_jwk({**jwk, "alg": "PS384"}, alg=alg)


@walk("use", [None, "", "enc", "Sig", "sig ", 1, ["sig"], {}], ids=repr)
def test_a_key_whose_use_is_not_signing_is_refused(use: Any, rsa_key: rsa.RSAPrivateKey) -> None:
    with pytest.raises(MalformedError, match=r"^JWK: its use is not \"sig\""):
        public_key_from_jwk({**EC, "use": use})
    with pytest.raises(MalformedError, match=r"^JWK: its use is not \"sig\""):
        private_key_from_jwk({**private_jwk("ES256", rsa_key), "use": use})


@walk(
    "key_ops", [None, [], ["sign"], ["encrypt"], ["Verify"], "verify", {"verify": 1}, 1, [["verify"]], [None]], ids=repr
)
def test_a_key_whose_operations_do_not_include_verifying_is_refused(key_ops: Any) -> None:
    with pytest.raises(MalformedError, match=r"^JWK: its key_ops do not allow verify"):
        public_key_from_jwk({**EC, "key_ops": key_ops})


def test_a_private_key_must_be_for_signing(rsa_key: rsa.RSAPrivateKey) -> None:
    jwk = private_jwk("ES256", rsa_key)
    assert private_key_from_jwk({**jwk, "key_ops": ["sign"]})[1].alg == "ES256"
    with pytest.raises(MalformedError, match="key_ops do not allow sign"):
        private_key_from_jwk({**jwk, "key_ops": ["verify"]})
    assert public_key_from_jwk({**EC, "key_ops": ["verify", "sign"]}).kid == "ec"


@walk("kid", ["", 1, True, [], ["k"], {}], ids=repr)
def test_a_kid_is_text_that_is_not_empty(kid: Any) -> None:
    with pytest.raises(MalformedError, match=r"^JWK: kid must be a non-empty string"):
        public_key_from_jwk({**EC, "kid": kid})


def test_a_jwk_without_kid_takes_the_given_one_or_its_thumbprint() -> None:
    jwk = {name: value for name, value in EC.items() if name != "kid"}
    for absent in (jwk, {**jwk, "kid": None}):
        key = public_key_from_jwk(absent)
        assert key.kid == key.thumbprint
        assert public_key_from_jwk(absent, kid="given").kid == "given"
    assert public_key_from_jwk(EC, kid="given").kid == "ec"


@walk("member", ["d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"])
def test_private_members_are_refused_in_a_public_key_whatever_they_hold(member: str) -> None:
    contents: list[Any] = ["AA", "", None, 1, []]
    for value in contents:
        with pytest.raises(MalformedError, match="private or symmetric key material"):
            public_key_from_jwk({**EC, member: value})


def coordinates() -> list[tuple[dict[str, Any], str]]:
    return [(EC, "x"), (EC, "y"), (OKP, "x"), (rsa_jwk(modulus(2048)), "n"), (rsa_jwk(modulus(2048)), "e")]


@walk(("jwk", "name"), coordinates(), ids=lambda value: value if type(value) is str else value["kty"])
def test_numbers_of_a_key_have_one_spelling(jwk: dict[str, Any], name: str) -> None:
    public_key_from_jwk(jwk)
    others: list[Any] = [None, 1, True, [jwk[name]], {}]
    for value in others:
        with pytest.raises(MalformedError, match=f"^JWK: {name} is missing or not a string"):
            public_key_from_jwk({**jwk, name: value})
    with pytest.raises(MalformedError, match=f"^JWK: {name} is missing"):
        public_key_from_jwk({member: value for member, value in jwk.items() if member != name})
    text = jwk[name]
    for spoiled in (
        text + "=",
        text + " ",
        f"\n{text}",
        text[:-1] + "+",
        text[:-1] + "/",
        text[:-1] + "é",
        text[:-1] + ".",
    ):
        with pytest.raises(MalformedError, match=f"^JWK: {name} is not canonical base64url"):
            public_key_from_jwk({**jwk, name: spoiled})
    octets = base64url.decode(text, name)
    for other in (b"\0" + octets, b""):
        with pytest.raises(MalformedError, match=f"^JWK: {name} has the wrong length"):
            public_key_from_jwk({**jwk, name: base64url.encode(other)})
    if jwk["kty"] != "RSA":
        for other in (octets[:-1], octets + b"\0", octets * 2):
            with pytest.raises(MalformedError, match=f"^JWK: {name} has the wrong length"):
                public_key_from_jwk({**jwk, name: base64url.encode(other)})


@walk("alg", ["ES256", "ES384", "ES512"])
def test_a_point_that_is_not_on_the_curve_is_refused(alg: str) -> None:
    jwk = generate_signer(alg).public_key.to_jwk()
    octets = len(base64url.decode(jwk["x"], "x"))
    for x, y in (
        (jwk["x"], jwk["x"]),
        (base64url.encode(bytes(octets)),) * 2,
        (base64url.encode(b"\xff" * octets),) * 2,
    ):
        with pytest.raises(MalformedError, match=r"^JWK: its numbers are not a key"):
            public_key_from_jwk({**jwk, "x": x, "y": y})


#: The points of order 1, 2, 4 and 8 of edwards25519, as they are and as other readers may write them (RFC 7748, 8032).
WEAK_POINTS = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "0100000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
]


@walk("point", WEAK_POINTS)
def test_ed25519_keys_under_which_anything_verifies_are_refused(point: str) -> None:
    octets = bytes.fromhex(point)
    with pytest.raises(MalformedError, match="Ed25519 key that proves nothing"):
        public_key_from_jwk({**OKP, "x": base64url.encode(octets)})
    native = ed25519.Ed25519PublicKey.from_public_bytes(octets)
    with pytest.raises(MalformedError, match="Ed25519 key that proves nothing"):
        public_key_from_object(native)


@walk("bits", [512, 1024, 2047, MAX_RSA_BITS + 1, 16_384])
def test_rsa_keys_that_are_too_short_or_too_long_are_refused(bits: int) -> None:
    with pytest.raises(MalformedError, match=f"RSA key of {bits} bits; 2048 to 8192 are accepted"):
        public_key_from_jwk(rsa_jwk(modulus(bits)))
    found = read_jwks(json.dumps({"keys": [rsa_jwk(modulus(bits)), EC]}).encode())
    assert [key.kid for key in found.keys] == ["ec"]
    assert f"RSA key of {bits} bits" in found.skipped[0].reason


@walk("bits", [2048, 2049, 3072, MAX_RSA_BITS])
def test_rsa_keys_of_other_lengths_are_taken(bits: int) -> None:
    assert public_key_from_jwk(rsa_jwk(modulus(bits))).kty == "RSA"


@walk("e", [1, 2, 3, 17, 257, 65535, 65536])
def test_rsa_keys_with_a_small_exponent_are_refused(e: int) -> None:
    with pytest.raises(MalformedError, match=r"exponent below 65537|its numbers are not a key"):
        public_key_from_jwk(rsa_jwk(modulus(2048), e))


def test_rsa_numbers_that_are_no_key_are_refused() -> None:
    for e in (65538, modulus(2048), modulus(2048) + 2):
        with pytest.raises(MalformedError, match="its numbers are not a key"):
            public_key_from_jwk(rsa_jwk(modulus(2048), e))


def test_keys_of_the_broken_generator_are_refused_wherever_they_come_in(vectors: Path) -> None:
    rows = [json.loads(line) for line in (vectors / "wycheproof/jws.jsonl").read_text("utf-8").splitlines()]
    roca = [row["key"] for row in rows if row["class"] == "weak-key-roca"]
    jwks = [jwk for key in roca for jwk in key.get("keys", [key])]
    assert len(jwks) == 2
    for jwk in jwks:
        with pytest.raises(MalformedError, match="ROCA"):
            public_key_from_jwk(jwk)
        n, e = (int.from_bytes(base64url.decode(jwk[name], name), "big") for name in ("n", "e"))
        native = rsa.RSAPublicNumbers(e, n).public_key()
        with pytest.raises(MalformedError, match="ROCA"):
            public_key_from_object(native)
        with pytest.raises(MalformedError, match="ROCA"):
            public_key_from_pem(native.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def test_a_modulus_of_the_broken_generators_form_is_refused() -> None:
    primorial = 1
    for p in (p for p in range(2, 168) if all(p % q for q in range(2, p))):
        primorial *= p
    power = pow(65537, 123_456_789, primorial)
    n = (modulus(2048) // primorial) * primorial + power
    with pytest.raises(MalformedError, match="ROCA"):
        public_key_from_jwk(rsa_jwk(n))


def test_other_moduli_are_not_taken_for_those_of_the_broken_generator(rsa_key: rsa.RSAPrivateKey) -> None:
    random = Random(1)
    for _ in range(200):
        n = random.getrandbits(2048) | 1 << 2047 | 1
        assert public_key_from_jwk(rsa_jwk(n)).kty == "RSA"
    assert public_key_from_object(rsa_key).kty == "RSA"


# --- private keys


@walk("alg", ALGORITHMS)
def test_a_private_key_comes_back_with_its_algorithm_and_name(alg: str, rsa_key: rsa.RSAPrivateKey) -> None:
    jwk = private_jwk(alg, rsa_key)
    key, public = private_key_from_jwk(jwk)
    assert (public.alg, public.kid) == (alg, "k")
    assert private_key_to_jwk(key, alg=alg, kid="k") == jwk


@walk("alg", ["ES256", "ES384", "ES512", "EdDSA", "RS256"])
def test_a_private_key_with_the_public_half_of_another_is_refused(alg: str, rsa_key: rsa.RSAPrivateKey) -> None:
    mine = private_jwk(alg, rsa_key)
    if alg == "RS256":
        other = rsa_jwk(modulus(2048))
        changes = [{"n": other["n"]}, {"e": number(65539)}]
    else:
        other = generate_signer(alg).public_key.to_jwk()
        changes = [{name: other[name] for name in ("x", "y") if name in other}]
    for change in changes:
        with pytest.raises(MalformedError, match=r"do not belong to its private ones|its numbers are not a key"):
            private_key_from_jwk({**mine, **change})


@walk("alg", ["ES256", "ES512", "EdDSA"])
def test_a_private_number_of_the_wrong_length_or_size_is_refused(alg: str, rsa_key: rsa.RSAPrivateKey) -> None:
    jwk = private_jwk(alg, rsa_key)
    octets = base64url.decode(jwk["d"], "d")
    for other in (b"", octets[1:], octets + b"\0", b"\0" + octets):
        with pytest.raises(MalformedError, match=r"^JWK: d has the wrong length"):
            private_key_from_jwk({**jwk, "d": base64url.encode(other)})
    for other in (bytes(len(octets)), b"\xff" * len(octets)):
        with pytest.raises(MalformedError, match=r"do not belong|not a key"):
            private_key_from_jwk({**jwk, "d": base64url.encode(other)})


@walk("name", ["d", "p", "q", "dp", "dq", "qi"])
def test_every_private_number_of_an_rsa_key_is_needed_and_checked(name: str, rsa_key: rsa.RSAPrivateKey) -> None:
    jwk = private_jwk("RS256", rsa_key)
    with pytest.raises(MalformedError, match=r"^JWK: (not a private key|.* is missing)"):
        private_key_from_jwk({member: value for member, value in jwk.items() if member != name})
    changed = int.from_bytes(base64url.decode(jwk[name], name), "big") ^ 2
    with pytest.raises(MalformedError, match=r"do not belong|not a key"):
        private_key_from_jwk({**jwk, name: number(changed)})


def test_a_private_rsa_key_that_is_too_short_is_refused() -> None:
    numbers = rsa.generate_private_key(public_exponent=65537, key_size=1024).private_numbers()
    factors = {"p": numbers.p, "q": numbers.q, "dp": numbers.dmp1, "dq": numbers.dmq1, "qi": numbers.iqmp}
    private = {name: number(value) for name, value in {"d": numbers.d, **factors}.items()}
    with pytest.raises(MalformedError, match="RSA key of 1024 bits"):
        private_key_from_jwk({**rsa_jwk(numbers.public_numbers.n), **private})


def test_a_public_jwk_is_no_private_key() -> None:
    with pytest.raises(MalformedError, match=r"^JWK: not a private key"):
        private_key_from_jwk(EC)
    with pytest.raises(MalformedError, match=r"^JWK: kty must be"):
        private_key_from_jwk({"kty": "oct", "k": "AAAA", "d": "AAAA"})


def test_texts_of_refusals_hold_no_private_number(rsa_key: rsa.RSAPrivateKey) -> None:
    jwk = private_jwk("ES256", rsa_key)
    for change in ({"d": jwk["d"] + "="}, {"x": EC["x"], "y": EC["y"]}, {"use": "enc"}, {"kty": "RSA"}, {"kid": 1}):
        with pytest.raises(MalformedError) as error:
            private_key_from_jwk({**jwk, **change})
        assert jwk["d"] not in str(error.value)


# --- PEM


@walk(
    "pem",
    [
        b"",
        b"x",
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"ssh-ed25519 AAAA comment",
        json.dumps(EC).encode(),
    ],
)
def test_what_is_no_public_pem_is_refused(pem: bytes) -> None:
    with pytest.raises(MalformedError, match=r"^PEM: not a public key"):
        public_key_from_pem(pem)


def test_a_private_pem_is_no_public_key() -> None:
    from a2a_trust.keys.files import private_key_bytes

    with pytest.raises(MalformedError, match=r"^PEM: not a public key"):
        public_key_from_pem(private_key_bytes(generate_signer()))


def test_public_keys_of_other_kinds_are_refused() -> None:
    keys = (
        ec.generate_private_key(ec.SECP256K1()).public_key(),
        ed448.Ed448PrivateKey.generate().public_key(),
        x25519.X25519PrivateKey.generate().public_key(),
        dsa.generate_private_key(1024).public_key(),
    )
    for key in keys:
        with pytest.raises(MalformedError, match="only EC P-256"):
            public_key_from_pem(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        with pytest.raises(MalformedError, match="only EC P-256"):
            public_key_from_object(key)


def test_a_short_rsa_key_is_refused_in_pem_too() -> None:
    native = rsa.RSAPublicNumbers(65537, modulus(1024)).public_key()
    with pytest.raises(MalformedError, match="RSA key of 1024 bits"):
        public_key_from_pem(native.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def test_the_algorithm_of_a_pem_key_must_fit() -> None:
    pem = generate_signer("ES384").public_key.to_pem()
    assert public_key_from_pem(pem).alg == "ES384"
    with pytest.raises(ConfigurationError, match="does not fit"):
        public_key_from_pem(pem, alg="ES256")


# --- what a key says about itself


@walk(
    "limits",
    [{"nbf": 10, "exp": 20}, {"exp": 1.5}, {"nbf": 0}, {"revoked": True}, {"exp": 20, "revoked": True}],
    ids=str,
)
def test_limits_are_read_and_written_back(limits: dict[str, Any]) -> None:
    key = public_key_from_jwk({**EC, **limits})
    assert key.to_jwk() == {**EC, **limits}
    assert key.is_limited
    assert key != public_key_from_jwk(EC)
    assert public_key_from_jwk(key.to_jwk()) == key
    assert hash(public_key_from_jwk(key.to_jwk())) == hash(key)


def test_a_key_is_valid_between_its_limits() -> None:
    key = public_key_from_jwk({**EC, "nbf": 10, "exp": 20})
    assert [key.is_valid_at(now) for now in (9.5, 10, 19.5, 20)] == [False, True, True, False]
    assert not public_key_from_jwk({**EC, "revoked": True}).is_valid_at(0)
    key = public_key_from_jwk({**EC, "nbf": 20, "exp": 10})
    assert not any(key.is_valid_at(now) for now in (9, 15, 25))
    assert not public_key_from_jwk({**EC, "revoked": False}).is_limited


def test_an_rsa_key_is_for_the_algorithms_that_it_does_not_rule_out(rsa_key: rsa.RSAPrivateKey) -> None:
    every = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
    key = public_key_from_object(rsa_key)
    assert (key.alg, key.algorithms) == ("RS256", every)
    assert key.with_alg("PS512").algorithms == ("PS512",)
    assert key.with_alg("PS512").thumbprint == key.thumbprint
    assert public_key_from_jwk(rsa_jwk(modulus(2048))).algorithms == every
    said = public_key_from_jwk(rsa_jwk(modulus(2048), alg="PS384"))
    for alg in ("RS256", "PS512", "ES256"):
        with pytest.raises(ConfigurationError, match=f"{alg} does not fit this key; leave it out, or use PS384"):
            said.with_alg(alg)
    assert public_key_from_jwk(OKP).with_alg("Ed25519").alg == "EdDSA"


@pytest.mark.parametrize("alg", ["RS256", "PS512"])
def test_a_private_rsa_key_without_its_factors_is_the_same_key(alg: str, rsa_key: rsa.RSAPrivateKey) -> None:
    jwk = private_jwk(alg, rsa_key)
    short = {name: value for name, value in jwk.items() if name not in ("p", "q", "dp", "dq", "qi")}
    key, public = private_key_from_jwk(short)
    assert (public.alg, public.kid) == (alg, "k")
    assert private_key_to_jwk(key, alg=alg, kid="k").items() >= short.items()
    with pytest.raises(MalformedError, match=r"^JWK: p is missing"):
        private_key_from_jwk({**short, "q": jwk["q"]})
    with pytest.raises(MalformedError, match=r"^JWK: p is missing"):
        private_key_from_jwk({**short, "oth": []})


def test_a_private_rsa_number_that_is_not_of_the_key_gives_no_factors(rsa_key: rsa.RSAPrivateKey) -> None:
    jwk = private_jwk("RS256", rsa_key)
    short = {name: value for name, value in jwk.items() if name not in ("p", "q", "dp", "dq", "qi")}
    d = int.from_bytes(base64url.decode(jwk["d"], "d"), "big")
    for other in (1, 2, d - 1, d ^ 4, modulus(2048), modulus(4096)):
        with pytest.raises(MalformedError, match="its numbers are not a key") as error:
            private_key_from_jwk({**short, "d": number(other)})
        assert error.value.__cause__ is None
        assert number(other) not in str(error.value) or other < 3
    for text in (1, None, "", "a=", "AA"):
        with pytest.raises(MalformedError, match="JWK: "):
            private_key_from_jwk({**short, "d": text})
    with pytest.raises(MalformedError, match="JWK: d has the wrong length"):
        private_key_from_jwk({**short, "d": number(1 << 8192)})
