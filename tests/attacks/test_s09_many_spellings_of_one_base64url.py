"""S9: padding, blanks, other letters and bits that no octet uses give one signature many texts.

Seen in PyJWT (CVE-2026-102269): what is compared, cached or revoked as text is then not the same any more.
"""

from __future__ import annotations

import json
import string

import pytest

from a2a_trust import MalformedError, TrustStore
from a2a_trust.errors import CardVerificationError, FailureReason
from a2a_trust.keys import LocalSigner, read_jwks
from a2a_trust.keys.jwk import private_key_from_jwk, private_key_to_jwk, public_key_from_jwk
from tests.attacks.forgery import JSONObject, b64, entry, served, signs, unb64
from tests.attacks.verifying import refusal, verified
from tests.jws import verify_jws
from tests.tables import walk

LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"

#: One header for each rest of its length by three: four, two and no bits that no octet uses.
HEADERS = [
    b'{"alg":"ES256","kid":"owner","typ":"JOSE"}',
    b'{"alg":"ES256","kid":"owner","typ":"JOSE" }',
    b'{"alg":"ES256","kid":"owner","typ":"JOSE"  }',
]


def respelled(text: str) -> dict[str, str]:
    """Texts that a lenient decoder reads as the same octets."""
    octets = unb64(text)
    found = {
        "padded as base64 is": text + "=" * (-len(text) % 4),
        "one equals sign": text + "=",
        "two equals signs": text + "==",
        "three equals signs": text + "===",
        "padded in front": "=" + text,
        "padded in the middle": text[:8] + "=" + text[8:],
        "blank in front": " " + text,
        "blank at the end": text + " ",
        "blank in the middle": text[:8] + " " + text[8:],
        "newline at the end": text + "\n",
        "newline in the middle": text[:8] + "\r\n" + text[8:],
        "tab in the middle": text[:4] + "\t" + text[4:],
        "null at the end": text + "\0",
        "no-break space": text + "\u00a0",
        "a full stop": text[:8] + "." + text[8:],
        "a percent escape": text[:8] + "%" + text[8:],
        "a letter beyond ASCII": text[:8] + "é" + text[8:],
        "full-width letters": text.translate({ord(c): ord(c) + 0xFEE0 for c in string.ascii_letters + string.digits}),
        "a letter too many": text + "A" if len(text) % 4 == 0 else text + "A" * (5 - len(text) % 4),
    }
    if set(text) & set("-_"):
        found["the other alphabet"] = text.replace("-", "+").replace("_", "/")
        for letter, other in (("-", "+"), ("_", "/")):
            if letter in text:
                found[f"one letter of the other alphabet: {other}"] = text.replace(letter, other, 1)
    unused = {1: 16, 2: 4, 0: 1}[len(octets) % 3]
    last = LETTERS.index(text[-1])
    for bits in range(1, unused):
        other = text[:-1] + LETTERS[last + bits]
        assert unb64(other) == octets
        found[f"unused bits {bits}"] = other
    return {name: other for name, other in found.items() if other != text}


@pytest.mark.parametrize("header", HEADERS, ids=["rest 0", "rest 1", "rest 2"])
def test_a_protected_header_is_spelled_otherwise_and_signed_so(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore, header: bytes
) -> None:
    """The signing input holds the text as it stands: the signature itself is good."""
    sign = signs(owner.private_key, "ES256")
    for name, text in respelled(b64(header)).items():
        made: JSONObject = {
            "protected": text,
            "signature": b64(sign(text.encode() + b"." + b64(payload).encode())),
        }
        error = refusal(CardVerificationError, served(card, made), trust, FailureReason.MALFORMED)
        assert "base64url" in str(error), name
        with pytest.raises(MalformedError, match="base64url"):
            verify_jws(payload=payload, key=owner.public_key, **made)


@pytest.mark.parametrize("victim", ["owner", "rsa_owner", "ed_owner", "p384_owner"])
def test_a_good_signature_is_spelled_otherwise(
    request: pytest.FixtureRequest, card: JSONObject, payload: bytes, trust: TrustStore, victim: str
) -> None:
    signer: LocalSigner = request.getfixturevalue(victim)
    made = entry({"alg": signer.alg, "kid": signer.kid}, payload, signs(signer.private_key, signer.alg))
    assert verified(served(card, made), trust).card == card
    for name, text in respelled(made["signature"]).items():
        other = {**made, "signature": text}
        error = refusal(CardVerificationError, served(card, other), trust, FailureReason.MALFORMED)
        assert "base64url" in str(error), name
        with pytest.raises(MalformedError, match="base64url"):
            verify_jws(payload=payload, key=signer.public_key, **other)


@walk(("victim", "member"), [("owner", "x"), ("owner", "y"), ("ed_owner", "x"), ("rsa_owner", "n"), ("rsa_owner", "e")])
def test_a_member_of_a_jwk_is_spelled_otherwise(request: pytest.FixtureRequest, victim: str, member: str) -> None:
    signer: LocalSigner = request.getfixturevalue(victim)
    jwk = signer.public_key.to_jwk()
    for name, text in respelled(jwk[member]).items():
        with pytest.raises(MalformedError):
            public_key_from_jwk({**jwk, member: text})
        found = read_jwks(json.dumps({"keys": [{**jwk, member: text}]}).encode())
        assert (found.keys, [key.index for key in found.skipped]) == ((), [0]), name


@pytest.mark.parametrize("victim", ["owner", "ed_owner"])
def test_the_private_member_of_a_jwk_is_spelled_otherwise(request: pytest.FixtureRequest, victim: str) -> None:
    signer: LocalSigner = request.getfixturevalue(victim)
    jwk = private_key_to_jwk(signer.private_key, alg=signer.alg, kid=signer.kid)
    for text in respelled(jwk["d"]).values():
        with pytest.raises(MalformedError):
            private_key_from_jwk({**jwk, "d": text})


@walk("text", ["A", "AAAAA", "====", "=", " ", "\n", "é", "\ud7ff", "*", "AA A", "AAA=A"])
def test_what_no_decoder_should_take_is_no_signature(
    card: JSONObject, good: JSONObject, trust: TrustStore, text: str
) -> None:
    for part in ("signature", "protected"):
        refusal(CardVerificationError, served(card, {**good, part: text}), trust, FailureReason.MALFORMED)


def test_control_the_one_spelling_is_read_whatever_the_length_of_the_header(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore
) -> None:
    assert {len(header) % 3 for header in HEADERS} == {0, 1, 2}
    for header in HEADERS:
        made = entry(header, payload, signs(owner.private_key, "ES256"))
        assert verified(served(card, made), trust).card == card
