"""S15: keys that are too short, made by a broken generator, or meant for something else than signing.

The cases of project Wycheproof. A key is judged when it comes in, on every way in.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from a2a_trust import MalformedError, Origins, TrustedKey, TrustStore, generate_signer
from a2a_trust.keys import LocalSigner, read_jwks
from a2a_trust.keys.files import read_private_key
from a2a_trust.keys.jwk import (
    private_key_from_jwk,
    private_key_to_jwk,
    public_key_from_jwk,
    public_key_from_object,
    public_key_from_pem,
)
from tests.attacks.forgery import JSONObject, b64, entry, served, signs
from tests.attacks.verifying import HOST, verified
from tests.keys.test_jwk import WEAK_POINTS
from tests.tables import walk


def jwk_of(n: int, e: int) -> JSONObject:
    octets = [number.to_bytes((number.bit_length() + 7) // 8, "big") for number in (n, e)]
    return {"kty": "RSA", "n": b64(octets[0]), "e": b64(octets[1]), "kid": "weak"}


def pem_of(n: int, e: int) -> bytes:
    public = rsa.RSAPublicNumbers(e, n).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def roca_modulus() -> int:
    """A modulus with the mark of CVE-2017-15361: modulo each small prime it is a power of 65537."""
    primes = [p for p in range(2, 168) if all(p % q for q in range(2, p))]
    product = 1
    for prime in primes:
        product *= prime
    number = pow(65537, 0xC0FFEE, product)
    while number.bit_length() < 2048:
        number += product << 1828
    return number


def private_of(bits: int, e: int = 65537) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=e, key_size=bits)


@pytest.fixture(scope="module")
def weak() -> dict[str, tuple[int, int]]:
    """Moduli and exponents that nobody should trust."""
    sound = private_of(2048).public_key().public_numbers().n
    short = private_of(1024).public_key().public_numbers().n
    return {
        "1024 bits": (short, 65537),
        "2047 bits": (sound >> 1 | 1, 65537),
        "1024 bits, e 3": (short, 3),
        "e 3": (sound, 3),
        "e 17": (sound, 17),
        "e 65535": (sound, 65535),
        "ROCA": (roca_modulus(), 65537),
        "9216 bits": (sound << (9216 - 2048) | 1, 65537),
    }


WEAK = ["1024 bits", "2047 bits", "1024 bits, e 3", "e 3", "e 17", "e 65535", "ROCA", "9216 bits"]


@walk("name", WEAK)
def test_a_weak_rsa_key_is_refused_on_every_way_in(
    weak: dict[str, tuple[int, int]], owner: LocalSigner, name: str
) -> None:
    n, e = weak[name]
    ways: list[Callable[[], object]] = [
        lambda: public_key_from_jwk(jwk_of(n, e)),
        lambda: public_key_from_jwk({**jwk_of(n, e), "alg": "PS256", "use": "sig"}),
        lambda: public_key_from_pem(pem_of(n, e)),
        lambda: public_key_from_object(rsa.RSAPublicNumbers(e, n).public_key()),
    ]
    for way in ways:
        with pytest.raises(MalformedError, match="RSA key"):
            way()
    found = read_jwks(json.dumps({"keys": [jwk_of(n, e), owner.public_key.to_jwk()]}).encode())
    assert (found.keys, [key.index for key in found.skipped]) == ((owner.public_key,), [0])
    assert "RSA key" in found.skipped[0].reason


@pytest.mark.parametrize(("bits", "e"), [(1024, 65537), (2048, 3)])
def test_a_weak_rsa_key_signs_nothing(bits: int, e: int) -> None:
    key = private_of(bits, e)
    pems = [
        key.private_bytes(Encoding.PEM, way, NoEncryption())
        for way in (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL)
    ]
    numbers = key.private_numbers()
    public = jwk_of(numbers.public_numbers.n, e)
    private = {
        **public,
        **{
            name: b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))
            for name, value in {
                "d": numbers.d,
                "p": numbers.p,
                "q": numbers.q,
                "dp": numbers.dmp1,
                "dq": numbers.dmq1,
                "qi": numbers.iqmp,
            }.items()
        },
    }
    ways: list[Callable[[], object]] = [
        lambda: LocalSigner(key),
        lambda: LocalSigner(key, alg="PS512"),
        lambda: LocalSigner.from_jwk(private),
        lambda: private_key_from_jwk(private),
        lambda: read_private_key(json.dumps(private).encode()),
        lambda: read_private_key(pems[0]),
        lambda: read_private_key(pems[1]),
    ]
    for way in ways:
        with pytest.raises(MalformedError, match="RSA key"):
            way()


@pytest.mark.parametrize("bits", [1024, 2047])
def test_no_weak_rsa_key_is_made(bits: int) -> None:
    with pytest.raises(MalformedError, match="RSA key"):
        generate_signer("RS256", rsa_bits=bits)


@walk("victim", ["owner", "rsa_owner", "ed_owner"])
@walk(
    "members",
    [
        {"use": "enc"},
        {"use": "SIG"},
        {"use": ""},
        {"use": None},
        {"use": 1},
        {"use": ["sig"]},
        {"key_ops": ["sign"]},
        {"key_ops": []},
        {"key_ops": ["encrypt", "wrapKey", "deriveBits"]},
        {"key_ops": ["Verify"]},
        {"key_ops": "verify"},
        {"key_ops": {"verify": True}},
        {"key_ops": None},
        {"use": "enc", "key_ops": ["verify"]},
        {"use": "sig", "key_ops": ["encrypt"]},
        {"alg": "RSA-OAEP-256"},
        {"alg": "ECDH-ES"},
    ],
    ids=json.dumps,
)
def test_a_key_that_is_not_for_verifying_is_refused(
    request: pytest.FixtureRequest, victim: str, members: JSONObject
) -> None:
    signer: LocalSigner = request.getfixturevalue(victim)
    jwk = {name: value for name, value in signer.public_key.to_jwk().items() if name != "use"}
    with pytest.raises(MalformedError):
        public_key_from_jwk({**jwk, **members})
    assert read_jwks(json.dumps({"keys": [{**jwk, **members}]}).encode()).keys == ()


def test_a_private_key_that_is_not_for_signing_is_refused(owner: LocalSigner) -> None:
    jwk = private_key_to_jwk(owner.private_key, alg="ES256", kid="x")
    attempts: list[JSONObject] = [{"use": "enc"}, {"key_ops": ["verify"]}, {"key_ops": []}, {"key_ops": ["deriveKey"]}]
    for members in attempts:
        with pytest.raises(MalformedError):
            LocalSigner.from_jwk({**jwk, **members})
    assert LocalSigner.from_jwk({**jwk, "key_ops": ["sign"]}).public_key.thumbprint == owner.public_key.thumbprint


@walk("place", [0, 1, 2])
@walk(
    "secret",
    [{"kty": "oct", "k": "c2VjcmV0"}, {"kty": "oct", "k": ""}, {"kty": "oct"}, {"kty": "oct", "alg": "HS256", "k": 1}],
    ids=json.dumps,
)
def test_a_set_that_mixes_secrets_with_public_keys_is_refused_whole(
    owner: LocalSigner, ed_owner: LocalSigner, secret: JSONObject, place: int
) -> None:
    keys: list[JSONObject] = [owner.public_key.to_jwk(), ed_owner.public_key.to_jwk()]
    keys.insert(place, secret)
    with pytest.raises(MalformedError, match="symmetric"):
        read_jwks(json.dumps({"keys": keys}).encode())


def test_a_set_that_publishes_a_private_key_does_not_get_it_used(owner: LocalSigner, ed_owner: LocalSigner) -> None:
    leaked = private_key_to_jwk(owner.private_key, alg="ES256", kid="owner")
    found = read_jwks(json.dumps({"keys": [leaked, ed_owner.public_key.to_jwk()]}).encode())
    assert found.keys == (ed_owner.public_key,)
    assert leaked["d"] not in repr(found)


@walk(
    "make",
    [
        lambda: ec.generate_private_key(ec.SECP256K1()),
        lambda: ec.generate_private_key(ec.SECP192R1()),
        lambda: ec.generate_private_key(ec.BrainpoolP256R1()),
        ed448.Ed448PrivateKey.generate,
        x25519.X25519PrivateKey.generate,
        lambda: dsa.generate_private_key(1024),
    ],
    ids=["secp256k1", "P-192", "brainpool", "Ed448", "X25519", "DSA"],
)
def test_a_key_of_a_kind_that_cards_are_not_signed_with(make: Callable[[], ec.EllipticCurvePrivateKey]) -> None:
    key = make()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for way in (lambda: LocalSigner(key), lambda: read_private_key(pem), lambda: public_key_from_pem(public)):
        with pytest.raises(MalformedError):
            way()


@walk("point", WEAK_POINTS)
def test_an_ed25519_key_for_which_everybody_can_sign_is_refused(point: str) -> None:
    """With such a key one signature is good for every card, or for every second, fourth or eighth."""
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": b64(bytes.fromhex(point)), "kid": "weak"}
    found = read_jwks(json.dumps({"keys": [jwk]}).encode())
    assert (found.keys, [key.index for key in found.skipped]) == ((), [0])
    with pytest.raises(MalformedError, match="Ed25519 key that proves nothing"):
        public_key_from_jwk(jwk)


@pytest.mark.parametrize("alg", ["RS256", "PS384"])
def test_control_a_sound_rsa_key_is_taken(card: JSONObject, payload: bytes, rsa_owner: LocalSigner, alg: str) -> None:
    jwk = {**rsa_owner.public_key.to_jwk(), "alg": alg, "key_ops": ["verify"]}
    key = read_jwks(json.dumps({"keys": [jwk]}).encode()).keys[0]
    trust = TrustStore([TrustedKey(key=key, origins=Origins(HOST))])
    made = entry({"alg": alg, "kid": key.kid}, payload, signs(rsa_owner.private_key, alg))
    assert verified(served(card, made), trust).card == card


def test_control_the_mark_of_roca_is_on_few_moduli(weak: dict[str, tuple[int, int]]) -> None:
    n, _ = weak["ROCA"]
    assert (n.bit_length(), n % 2) == (2048, 1)
    with pytest.raises(MalformedError, match="ROCA"):
        public_key_from_jwk(jwk_of(n, 65537))
    assert public_key_from_jwk(jwk_of(n + 2, 65537)).kty == "RSA"
