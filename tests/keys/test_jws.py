"""The one function that checks a JWS: sizes, spellings and headers before any signature."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from a2a_trust.errors import InvalidSignatureError, MalformedError
from a2a_trust.keys import base64url
from a2a_trust.keys.jws import read_header, signing_input
from a2a_trust.keys.signer import generate_signer
from tests.jws import verify_jws
from tests.tables import walk

SIGNER = generate_signer(kid="k")
PROTECTED = base64url.encode(b'{"alg":"ES256","kid":"k"}')
SIGNATURE = base64url.encode(SIGNER.sign(signing_input(PROTECTED, b"payload")))


def verify(**change: Any) -> Any:
    parts: dict[str, Any] = {"protected": PROTECTED, "payload": b"payload", "signature": SIGNATURE}
    return verify_jws(**{**parts, "key": SIGNER.public_key, **change})


def test_the_protected_header_comes_back_and_cannot_be_changed() -> None:
    header = verify()
    assert header == {"alg": "ES256", "kid": "k"}
    with pytest.raises(TypeError):
        header["alg"] = "none"


def test_the_signing_input_is_that_of_rfc_7515() -> None:
    assert signing_input("eyJh", b"\xff\xfe") == b"eyJh.__4"
    assert signing_input("eyJh", b"") == b"eyJh."


@walk(
    "signature",
    [
        SIGNATURE + "=",
        SIGNATURE + "==",
        SIGNATURE + " ",
        " " + SIGNATURE,
        SIGNATURE[:40] + "\n" + SIGNATURE[40:],
        SIGNATURE[:-1] + "+",
        SIGNATURE[:-1] + "é",
        SIGNATURE[:-1] + chr(ord(SIGNATURE[-1]) + 1),  # the same octets, with a bit set that none of them uses
    ],
    ids=range(8),
)
def test_a_signature_has_one_spelling(signature: str) -> None:
    with pytest.raises(MalformedError, match=r"^signature is not canonical base64url"):
        verify(signature=signature)


def test_sizes_are_checked_before_anything_is_decoded() -> None:
    with pytest.raises(MalformedError, match=r"^signature: longer than 2048"):
        verify(signature="!" * 2_049)
    with pytest.raises(MalformedError, match=r"^protected header: longer than 8192"):
        verify(protected="!" * 8_193)
    with pytest.raises(MalformedError, match=r"^signature is not canonical"):
        verify(signature="!" * 2_048)
    with pytest.raises(MalformedError, match=r"^protected header is not canonical"):
        verify(protected="!" * 8_192)


@walk("alg", ["none", "", "HS256", "ES256K", "es256", "ES384", "EdDSA"])
def test_another_algorithm_than_that_of_the_key_is_no_signature_of_it(alg: str) -> None:
    protected = base64url.encode(json.dumps({"alg": alg, "kid": "k"}).encode())
    with pytest.raises(InvalidSignatureError, match="alg is not ES256, the algorithm of the key"):
        verify(protected=protected, signature=base64url.encode(SIGNER.sign(signing_input(protected, b"payload"))))


@walk("octets", [0, 1, 63, 65, 70, 71, 72, 96, 128, 1_000])
def test_an_ecdsa_signature_of_another_length_is_not_by_the_key(octets: int) -> None:
    with pytest.raises(InvalidSignatureError):
        verify(signature=base64url.encode(b"\x30" * octets))


@walk("r", [0, 1, 2**256 - 1])
@walk("s", [0, 1, 2**256 - 1])
def test_special_numbers_make_no_signature(r: int, s: int) -> None:
    with pytest.raises(InvalidSignatureError):
        verify(signature=base64url.encode(r.to_bytes(32, "big") + s.to_bytes(32, "big")))


@walk("header", [None, {}, {"x": 1}, {"jku": "https://evil.example"}, {"jwk": {}}])
def test_an_unprotected_header_that_says_nothing_of_weight_changes_nothing(header: Any) -> None:
    assert verify(header=header)["kid"] == "k"


@walk(
    "header",
    [[], "x", 1, {"alg": "ES256"}, {"kid": "k"}, {"crit": []}, {"b64": False}, {"x": 1, "kid": "other"}],
    ids=repr,
)
def test_an_unprotected_header_that_speaks_of_protected_things_is_refused(header: Any) -> None:
    with pytest.raises(MalformedError, match=r"^unprotected header: "):
        verify(header=header)


def test_alg_is_not_taken_from_the_unprotected_header() -> None:
    with pytest.raises(MalformedError, match="alg is missing"):
        verify(protected=base64url.encode(b'{"kid":"k"}'), header={"alg": "ES256"})


def test_kid_and_typ_are_not_its_business() -> None:
    protected = base64url.encode(b'{"alg":"ES256","typ":"x"}')
    signature = base64url.encode(SIGNER.sign(signing_input(protected, b"payload")))
    assert verify(protected=protected, signature=signature) == {"alg": "ES256", "typ": "x"}


def test_a_header_is_read_strictly_each_time_also_after_it_was_read_once() -> None:
    for _ in range(2):
        assert read_header(PROTECTED)["alg"] == "ES256"
        with pytest.raises(MalformedError, match="more than once"):
            read_header(base64url.encode(b'{"alg":"ES256","alg":"none"}'))


def test_headers_of_strangers_do_not_fill_the_memory() -> None:
    """Seen here: 1,024 headers of 8 KB full of empty objects were kept as 150 MB of parsed JSON."""

    def header(number: int) -> str:
        members = {"alg": "none", "number": number, "x": [{} for _ in range(1500)]}
        return base64url.encode(json.dumps(members, separators=(",", ":")).encode())

    for warm in range(8):
        read_header(header(-1 - warm))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(60):
            read_header(header(number))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1_000_000
