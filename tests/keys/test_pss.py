"""RSA keys in PEM that are for RSASSA-PSS only: they are never used with another algorithm."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.files import PassphraseNeededError, read_private_key
from a2a_trust.keys.jwk import pss_algorithms, public_key_from_pem
from tests.keys.pss_pem import SHA, SHA1, der, parameters, pem, private_pem, public_pem
from tests.tables import walk

EVERY = ("PS256", "PS384", "PS512")
PASSPHRASE = "correct horse ä"


@walk(
    ("limits", "algorithms"),
    [
        (b"", EVERY),
        (parameters(SHA[256], SHA[256], 32), ("PS256",)),
        (parameters(SHA[256], SHA[256], None), ("PS256",)),
        (parameters(SHA[384], SHA[384], 48), ("PS384",)),
        (parameters(SHA[384], SHA[384], 32), ("PS384",)),
        (parameters(SHA[512], SHA[512], 64), ("PS512",)),
    ],
)
def test_a_key_is_for_the_algorithms_that_its_parameters_permit(
    rsa_key: rsa.RSAPrivateKey, limits: bytes, algorithms: tuple[str, ...]
) -> None:
    made = [
        public_key_from_pem(public_pem(rsa_key, limits), kid="k"),
        read_private_key(private_pem(rsa_key, limits), kid="k").public_key,
    ]
    for key in made:
        assert (key.alg, key.algorithms) == (algorithms[0], algorithms)
    for alg in EVERY:
        if alg in algorithms:
            assert read_private_key(private_pem(rsa_key, limits), alg=alg).alg == alg
            assert public_key_from_pem(public_pem(rsa_key, limits), alg=alg).alg == alg
        else:
            with pytest.raises(ConfigurationError, match=f"{alg} does not fit this key; .* use {algorithms[0]}"):
                read_private_key(private_pem(rsa_key, limits), alg=alg)
    for alg in ("RS256", "RS512", "ES256"):
        with pytest.raises(ConfigurationError, match="does not fit"):
            read_private_key(private_pem(rsa_key, limits), alg=alg)
        with pytest.raises(ConfigurationError, match="does not fit"):
            public_key_from_pem(public_pem(rsa_key, limits), alg=alg)


@walk(
    "limits",
    [
        der(0x30),  # the defaults, which are SHA-1
        parameters(SHA1, SHA1, 20),
        parameters(SHA[256], SHA1, 32),
        parameters(SHA[256], SHA[384], 32),
        parameters(SHA[256], SHA[256], 33),
        parameters(SHA[384], SHA[384], 62),
        der(0x30, parameters(SHA[256], SHA[256], 32)[2:], der(0xA3, der(0x02, b"\x02"))),
    ],
)
def test_parameters_that_no_algorithm_of_jws_has_are_refused(rsa_key: rsa.RSAPrivateKey, limits: bytes) -> None:
    with pytest.raises(MalformedError, match=r"^PEM: "):
        pss_algorithms(public_pem(rsa_key, limits))
    with pytest.raises(MalformedError):
        public_key_from_pem(public_pem(rsa_key, limits))
    with pytest.raises(MalformedError):
        read_private_key(private_pem(rsa_key, limits))


@walk(
    ("form", "passphrase"),
    [
        (PrivateFormat.PKCS8, None),
        (PrivateFormat.TraditionalOpenSSL, None),
        (PrivateFormat.TraditionalOpenSSL, PASSPHRASE),
    ],
)
def test_control_other_rsa_keys_are_for_every_algorithm(
    rsa_key: rsa.RSAPrivateKey, form: PrivateFormat, passphrase: str | None
) -> None:
    hidden = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase.encode())
    signer = read_private_key(rsa_key.private_bytes(Encoding.PEM, form, hidden), passphrase=passphrase)
    assert signer.alg == "RS256"
    assert signer.with_alg("PS384").alg == "PS384"
    assert signer.public_key.algorithms == ("RS256", "RS384", "RS512", *EVERY)


def test_an_encrypted_key_needs_its_passphrase(rsa_key: rsa.RSAPrivateKey) -> None:
    made = private_pem(rsa_key, passphrase=PASSPHRASE)
    with pytest.raises(PassphraseNeededError):
        read_private_key(made)
    with pytest.raises(ConfigurationError, match="passphrase is wrong"):
        read_private_key(made, passphrase="another")


@walk("limits", [None, b"", parameters(SHA[384], SHA[384], 48)])
def test_an_encrypted_rsa_key_needs_the_algorithm(rsa_key: rsa.RSAPrivateKey, limits: bytes | None) -> None:
    if limits is None:
        hidden = BestAvailableEncryption(PASSPHRASE.encode())
        made = rsa_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)
    else:
        made = private_pem(rsa_key, limits, passphrase=PASSPHRASE)
    with pytest.raises(ConfigurationError, match="does not show the algorithm of its RSA key; give alg="):
        read_private_key(made, passphrase=PASSPHRASE)
    assert read_private_key(made, passphrase=PASSPHRASE, alg="PS384").alg == "PS384"
    with pytest.raises(ConfigurationError, match="does not fit"):
        read_private_key(made, passphrase=PASSPHRASE, alg="ES256")


def test_a_file_with_several_keys_says_nothing(rsa_key: rsa.RSAPrivateKey) -> None:
    one = public_pem(rsa_key)
    with pytest.raises(MalformedError, match="several keys"):
        public_key_from_pem(one + one)


@walk("cut", range(0, 40, 3))
def test_what_is_cut_short_is_refused(cut: int) -> None:
    identifier = der(0x30, der(0x30, bytes.fromhex("06092a864886f70d01010a"), parameters(SHA[256], SHA[256], 32)))
    with pytest.raises(MalformedError, match="cannot be read"):
        pss_algorithms(pem("PUBLIC KEY", identifier[:cut]))


def test_no_octet_of_a_private_key_is_in_a_message(rsa_key: rsa.RSAPrivateKey) -> None:
    made = private_pem(rsa_key, der(0x30))
    with pytest.raises(MalformedError) as error:
        read_private_key(made)
    assert error.value.__cause__ is None
    assert made.splitlines()[5].decode() not in str(error.value)
