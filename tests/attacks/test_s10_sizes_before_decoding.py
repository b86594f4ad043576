"""S10: whoever decodes before he measures does the attacker's work. Every size has a limit, asked before decoding.

Seen in PyJWT (GHSA-w7vc-732c-9m39). Each oversized text here is also undecodable: the limit has to speak first. And
within the limits no document may cost more than in proportion to its size.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import CardVerifier, MalformedError, TrustError, TrustStore, load_private_key, sign_card
from a2a_trust.base.strict_json import MAX_BYTES, MAX_DEPTH, parse
from a2a_trust.errors import (
    CardVerificationError,
    FailureReason,
    SigningError,
    UncoveredFieldsError,
    UntrustedCardError,
)
from a2a_trust.keys import LocalSigner, read_jwks
from a2a_trust.keys.jwk import MAX_KEYS
from a2a_trust.keys.jws import MAX_HEADER, MAX_SIGNATURE
from a2a_trust.signing import Coverage
from a2a_trust.signing.signature import MAX_SIGNATURES
from tests.attacks.forgery import JSONObject, b64, canonical, entry, served, signs
from tests.attacks.verifying import NOW, ORIGIN, refusal, verified
from tests.jws import verify_jws
from tests.tables import walk

BASE: JSONObject = {"alg": "ES256", "kid": "owner", "typ": "JOSE"}
READERS: dict[str, Callable[[bytes, TrustStore], object]] = {
    "verify_card": lambda document, trust: verified(document, trust),
    "CardVerifier": lambda document, trust: CardVerifier(trust, clock=lambda: NOW).verify(document, origin=ORIGIN),
    "read_jwks": lambda document, _: read_jwks(document),
    "parse": lambda document, _: parse(document),
}


def header_of_length(length: int) -> bytes:
    """A protected header whose base64url has that many characters."""
    text = json.dumps({**BASE, "x": ""}).encode()
    size = length * 3 // 4
    return text[:-2] + b"x" * (size - len(text)) + text[-2:]


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_document_is_larger_than_what_is_read(trust: TrustStore, read: Callable[[bytes, TrustStore], object]) -> None:
    for document in (b"\xff" * (MAX_BYTES + 1), b"[" * (MAX_BYTES + 1), b" " * (MAX_BYTES + 1)):
        with pytest.raises(MalformedError, match="more than the limit of 1048576"):
            read(document, trust)


def test_the_owner_has_signed_a_card_that_is_too_large(card: JSONObject, owner: LocalSigner, trust: TrustStore) -> None:
    card["description"] = "x" * MAX_BYTES
    made = entry(BASE, canonical(card), signs(owner.private_key, "ES256"))
    for document in (served(card, made), {**card, "signatures": [made]}):
        refusal(MalformedError, document, trust, match="more than the limit of 1048576")
    with pytest.raises((MalformedError, SigningError)):
        sign_card(json.dumps(card).encode(), owner)


def test_a_protected_header_is_longer_than_what_is_decoded(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore
) -> None:
    too_long = b64(header_of_length(MAX_HEADER + 4))
    assert len(too_long) == MAX_HEADER + 4
    undecodable = "*" * (MAX_HEADER + 1)
    for text in (too_long, undecodable, "A" * 1_000_000):
        made = entry(text, payload, signs(owner.private_key, "ES256"))
        refusal(CardVerificationError, served(card, made), trust, FailureReason.MALFORMED, match="longer than")
        with pytest.raises(MalformedError, match="longer than"):
            verify_jws(payload=payload, key=owner.public_key, **made)


@pytest.mark.parametrize("victim", ["owner", "rsa_owner", "ed_owner"])
def test_a_signature_is_longer_than_what_is_decoded(
    request: pytest.FixtureRequest, card: JSONObject, payload: bytes, trust: TrustStore, victim: str
) -> None:
    signer: LocalSigner = request.getfixturevalue(victim)
    for text in ("A" * (MAX_SIGNATURE + 1), "*" * (MAX_SIGNATURE + 1), "é" * 500_000):
        made = {**entry({**BASE, "alg": signer.alg, "kid": signer.kid}, payload, lambda _: b""), "signature": text}
        document = json.dumps({**card, "signatures": [made]}, ensure_ascii=False).encode()
        refusal(CardVerificationError, document, trust, FailureReason.MALFORMED, match="longer than")
        with pytest.raises(MalformedError, match="longer than"):
            verify_jws(payload=payload, key=signer.public_key, protected=made["protected"], signature=text)


@pytest.mark.parametrize("count", [MAX_SIGNATURES + 1, 1_000, 100_000])
def test_there_are_more_signatures_than_are_judged(
    card: JSONObject, good: JSONObject, trust: TrustStore, count: int
) -> None:
    junk = [None] * (count - 1)
    for document in (served(card, good, *junk), served(card, *junk, good)):
        refusal(MalformedError, document, trust, match="more than 16 signatures")


def test_a_set_has_more_keys_than_are_read(owner: LocalSigner) -> None:
    good = owner.public_key.to_jwk()
    sets: list[list[Any]] = [[good, *[None] * MAX_KEYS], [good] * 2000, [{}] * 100_000]
    for keys in sets:
        with pytest.raises(MalformedError, match="more than 256 keys"):
            read_jwks(json.dumps({"keys": keys}).encode())


@pytest.mark.parametrize("bits", [16_384, 1_000_000, 5_000_000])
def test_an_rsa_key_is_larger_than_what_is_computed_with(bits: int) -> None:
    n = (1 << (bits - 1)) | 1
    jwk = {"kty": "RSA", "n": b64(n.to_bytes(bits // 8, "big")), "e": "AQAB"}
    found = read_jwks(json.dumps({"keys": [jwk]}).encode())
    assert (found.keys, [key.index for key in found.skipped]) == ((), [0])


def test_a_private_key_file_is_larger_than_any_key(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.touch(mode=0o600)
    path.write_bytes(b"-----BEGIN PRIVATE KEY-----\n" + b"A" * 70_000)
    with pytest.raises(MalformedError, match="larger than"):
        load_private_key(path)


@walk("read", READERS.values(), ids=READERS)
@walk("depth", [MAX_DEPTH + 1, 1_000, 2_000, 100_000])
@walk("unit", [("[", "]"), ('{"a":', "}"), ('{"skills":[', "]}")], ids=["lists", "objects", "both"])
def test_a_document_is_deeper_than_what_is_walked(
    trust: TrustStore, read: Callable[[bytes, TrustStore], object], depth: int, unit: tuple[str, str]
) -> None:
    left, right = unit
    for text in (left * depth + "1" + right * depth, left * depth):
        with pytest.raises(MalformedError):
            read(text.encode(), trust)


def test_a_protected_header_is_deeper_than_what_is_walked(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore
) -> None:
    for depth in (MAX_DEPTH, 2_500):
        text = b'{"alg":"ES256","kid":"owner","x":' + b"[" * depth + b"]" * depth + b"}"
        made = entry(text, payload, signs(owner.private_key, "ES256"))
        refusal(CardVerificationError, served(card, made), trust, FailureReason.MALFORMED, match="deeper")


def test_a_dict_is_deeper_than_what_is_walked_or_contains_itself(card: JSONObject, trust: TrustStore) -> None:
    deep: JSONObject = {}
    for _ in range(5_000):
        deep = {"a": deep}
    loop: JSONObject = {}
    loop["a"] = loop
    for document in (deep, {**card, "x": deep}, loop, {**card, "x": [loop]}):
        refusal(MalformedError, document, trust, match="deeper")


@walk("digits", ["9" * 400, "1" + "0" * 309, "9" * 500_000, "1e999", "-1E400", "1e" + "9" * 100_000])
def test_a_number_is_larger_than_a_double(card: JSONObject, good: JSONObject, trust: TrustStore, digits: str) -> None:
    text = served({**card, "x": 0}, good).replace(b'"x": 0', b'"x": ' + digits.encode())
    refusal(MalformedError, text, trust, match="number")


@walk(
    "document",
    [
        # the one that appears twice stands at the end: whoever counts each name in all names does so n times
        b"{" + b",".join(b'"%05x":0' % number for number in range(90_000)) + b',"x":0,"x":0}',
        b"[" + b",".join([b"0.1"] * 250_000) + b"]",
        b"[" + b"9" * 300 + b",1" * 400_000 + b"]",
        b"0." + b"3" * 1_000_000,
        b'"' + b"\\u0061" * 170_000 + b'"',
        b'"' + b"\\\\" * 500_000 + b'"',
        b'"' + b":0" * 500_000 + b'"',
    ],
    ids=["many names", "fractions", "a long integer", "a long fraction", "escapes", "backslashes", "like numbers"],
)
def test_no_document_within_the_limit_takes_quadratic_work(document: bytes, tmp_path: Path) -> None:
    """Not a measurement: the quadratic way takes minutes, the linear one a moment; the process is stopped between."""
    assert len(document) <= MAX_BYTES
    place = tmp_path / "document.json"
    place.write_bytes(document)
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"
        "from a2a_trust import MalformedError, TrustStore, verify_card\n"
        "from a2a_trust.keys import read_jwks\n"
        "data = open(sys.argv[1], 'rb').read()\n"
        "for read in (read_jwks, lambda data: verify_card(data, TrustStore([]), origin='a.example', now=0)):\n"
        "    try: read(data)\n"
        "    except MalformedError: print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(place)], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.returncode) == (["refused", "refused"], 0), done.stderr[-500:]


def long_name_with_many_children(length: int) -> JSONObject:
    """One long member name over many empty members: a pointer to each repeats the name."""
    return {"x" * length: {**{str(number): "" for number in range(length // 10)}, "z": 1}}


@pytest.mark.parametrize("where", ["params", "scopes"])
@pytest.mark.parametrize("valid", [True, False], ids=["replay signature", "no signature"])
def test_pointers_to_what_was_dropped_do_not_fill_the_memory(
    card: JSONObject, sdk_signature: JSONObject, sdk_trust: TrustStore, where: str, valid: bool
) -> None:
    """All forms of a card are made before its signature is known to be good, so this costs the attacker nothing."""
    children = long_name_with_many_children(40_000)
    if where == "params":
        card["capabilities"]["extensions"].append({"params": children})
    else:
        (name, members), *_ = children.items()
        scopes = dict.fromkeys(members, "")
        card["securitySchemes"][name] = {"oauth2SecurityScheme": {"flows": {"implicit": {"scopes": scopes}}}}
    document = served(card, sdk_signature if valid else {**sdk_signature, "signature": "A" * 86})
    tracemalloc.start()
    try:
        for coverage in (Coverage.WHOLE_CARD, Coverage.SIGNED_PART_ONLY):
            with contextlib.suppress(TrustError):  # refused or not: what it costs is the question
                verified(document, sdk_trust, coverage=coverage)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(document)


def test_the_text_of_an_error_stays_short_whatever_the_card_holds(
    card: JSONObject,
    good: JSONObject,
    sdk_signature: JSONObject,
    owner: LocalSigner,
    trust: TrustStore,
    sdk_trust: TrustStore,
) -> None:
    """Names of members and keys are the attacker's text; an error is written to logs."""
    long = "\u2028" * 100_000
    many = {f"é{number}" * 1_000: 1 for number in range(100)}  # a name that is not printable is rejected before
    sign = signs(owner.private_key, "ES256")
    errors = [
        refusal(MalformedError, served({**card, "securitySchemes": {long: 1}}, good), trust),
        refusal(MalformedError, served({**card, "skills": [{**card["skills"][0], long: 1, "ID": 1}]}, good), trust),
        refusal(UncoveredFieldsError, served({**card, **many}, sdk_signature), sdk_trust),
        refusal(
            UntrustedCardError,
            served(card, entry({**BASE, "kid": "k" * 5_000}, b"", sign)),
            trust,
            FailureReason.UNKNOWN_KEY,
        ),
    ]
    document = served(card, good)[:-1] + f', "{long}": 1, "{long}": 2}}'.encode()
    errors.append(refusal(MalformedError, document, trust, match="more than once"))
    for error in errors:
        assert len(str(error)) < 8_192, str(error)[:200]
        assert "\u2028" not in str(error)


def test_control_what_is_as_large_as_allowed_is_verified(
    card: JSONObject, owner: LocalSigner, trust: TrustStore
) -> None:
    sign = signs(owner.private_key, "ES256")
    depth = MAX_DEPTH - 4  # card, capabilities, extensions, extension
    deep: object = 1
    for _ in range(depth):
        deep = {"a": deep}
    card["capabilities"]["extensions"][0]["params"] = deep
    payload = canonical(card)
    header = header_of_length(MAX_HEADER)
    made = entry(header, payload, sign)
    assert len(made["protected"]) == MAX_HEADER
    junk = [None] * (MAX_SIGNATURES - 1)
    assert verified(served(card, *junk, made), trust).card == card
    base = len(served({**card, "description": ""}, made))
    card["description"] = "x" * (MAX_BYTES - base)
    document = served(card, entry(header, canonical(card), sign))
    assert len(document) in range(MAX_BYTES - 8, MAX_BYTES + 1)
    assert verified(document, trust).card == card
