"""S6: what the unprotected header says is not signed. Names that decide must be in the protected header.

Seen in GHSA-5739-39v2-5754: the union of both headers was read, so the attacker chose ``alg`` and ``kid``.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_trust import CardVerifier, MalformedError, TrustStore
from a2a_trust.errors import CardVerificationError, FailureReason
from a2a_trust.keys import LocalSigner
from tests.attacks.forgery import JSONObject, b64, entry, served, signs
from tests.attacks.verifying import NOW, ORIGIN, refusal, verified
from tests.jws import verify_jws
from tests.tables import walk

FULL: JSONObject = {"alg": "ES256", "kid": "owner", "typ": "JOSE"}

MOVED: dict[str, tuple[JSONObject, JSONObject]] = {
    "alg": ({"kid": "owner", "typ": "JOSE"}, {"alg": "ES256"}),
    "kid": ({"alg": "ES256", "typ": "JOSE"}, {"kid": "owner"}),
    "alg and kid": ({"typ": "JOSE"}, {"alg": "ES256", "kid": "owner"}),
    "everything": ({}, FULL),
    "kid, the protected one null": ({**FULL, "kid": None}, {}),
    "alg, the protected one null": ({**FULL, "alg": None}, {}),
}
REPEATED: dict[str, tuple[JSONObject, JSONObject]] = {
    "the same alg": (FULL, {"alg": "ES256"}),
    "another alg": (FULL, {"alg": "none"}),
    "the same kid": (FULL, {"kid": "owner"}),
    "another kid": (FULL, {"kid": "mallory"}),
    "the same typ": (FULL, {"typ": "JOSE"}),
    "jku": ({**FULL, "jku": "https://a.example/"}, {"jku": "https://b.example/"}),
    "exp in the past, then in the future": ({**FULL, "exp": NOW - 1}, {"exp": NOW + 1000}),
    "iat in the future, then in the past": ({**FULL, "iat": NOW + 1000}, {"iat": NOW - 1}),
    "a member that nobody knows": ({**FULL, "x": 1}, {"x": 1}),
    "an empty name": ({**FULL, "": 1}, {"": 1}),
}


@walk(("protected", "header"), MOVED.values(), ids=MOVED)
def test_a_name_that_decides_is_moved_to_the_unprotected_header(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore, protected: JSONObject, header: JSONObject
) -> None:
    made = entry(protected, payload, signs(owner.private_key, "ES256"), header=header)
    refusal(CardVerificationError, served(card, made), trust, FailureReason.MALFORMED)


@walk(("protected", "header"), REPEATED.values(), ids=REPEATED)
def test_a_name_stands_in_both_headers(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore, protected: JSONObject, header: JSONObject
) -> None:
    made = entry(protected, payload, signs(owner.private_key, "ES256"), header=header)
    refusal(CardVerificationError, served(card, made), trust, FailureReason.MALFORMED, match="repeats a name")
    with pytest.raises(MalformedError, match="repeats a name"):
        verify_jws(payload=payload, key=owner.public_key, **made)


@pytest.mark.parametrize("name", ["alg", "kid", "crit", "b64"])
def test_a_name_that_decides_stands_only_in_the_unprotected_header_of_one_jws(
    payload: bytes, owner: LocalSigner, name: str
) -> None:
    """The function that checks a JWS has no rule for ``kid``, and refuses an unprotected one all the same."""
    made = entry({"alg": "ES256"} if name != "alg" else {}, payload, signs(owner.private_key, "ES256"))
    with pytest.raises(MalformedError):
        verify_jws(payload=payload, key=owner.public_key, header={name: "ES256"}, **made)


@walk("header", [[], "", "alg", 0, 1, True, False, ["alg"], [{"alg": "ES256"}]], ids=repr)
def test_the_unprotected_header_is_no_object(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore, header: Any
) -> None:
    made = entry(FULL, payload, signs(owner.private_key, "ES256"), header=header)
    refusal(CardVerificationError, served(card, made), trust, FailureReason.MALFORMED, match="unprotected header")


@walk(
    "protected",
    ["", "e30", FULL, [FULL], None, b64(b"[]"), b64(b"null"), b64(b'"ES256"'), b64(b"[[]]")],
    ids=["empty", "empty-object", "decoded", "list", "null", "[]", "json-null", "string", "nested"],
)
def test_there_is_no_protected_header_at_all(
    card: JSONObject, good: JSONObject, trust: TrustStore, protected: Any
) -> None:
    made = {**good, "protected": protected, "header": FULL}
    refusal(CardVerificationError, served(card, made), trust, FailureReason.MALFORMED)
    del made["protected"]
    refusal(CardVerificationError, served(card, made), trust, FailureReason.MALFORMED)


@pytest.mark.parametrize("beside", [{"alg": "none"}, {"kid": "mallory"}, {"crit": ["x"]}, {"payload": "e30"}])
def test_members_beside_the_three_of_a_signature_change_nothing(
    card: JSONObject, good: JSONObject, trust: TrustStore, beside: JSONObject
) -> None:
    assert verified(served(card, {**good, **beside}), trust).card == card


@walk(
    "text",
    [
        b'{"alg":"none","alg":"ES256","kid":"owner"}',
        b'{"alg":"ES256","alg":"ES256","kid":"owner"}',
        b'{"alg":"ES256","kid":"mallory","kid":"owner"}',
        b'{"alg":"ES256","kid":"mallory","k\\u0069d":"owner"}',
        b'{"alg":"ES256","kid":"owner","x":{"a":1,"a":2}}',
        b'{"alg":"ES256","kid":"owner","exp":1,"exp":1900000000}',
        b'{"alg":"ES256","kid":"owner"}{"alg":"none"}',
        b'{"alg":"ES256","kid":"owner"} x',
        b'\xef\xbb\xbf{"alg":"ES256","kid":"owner"}',
        '{"alg":"ES256","kid":"owner"}'.encode("utf-16"),
        b'{"alg":"ES256","kid":"owner\xff"}',
        b'{"alg":"ES256","kid":"owner","x":"\\ud800"}',
        b'{"alg":"ES256","kid":"owner","x":NaN}',
        b'{"alg":"ES256","kid":"owner","x":1e999}',
        b'{"alg":"ES256","kid":"owner",}',
        b"{'alg':'ES256','kid':'owner'}",
    ],
    ids=range(16),
)
def test_two_readers_would_read_two_headers(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore, text: bytes
) -> None:
    made = entry(text, payload, signs(owner.private_key, "ES256"))
    refusal(CardVerificationError, served(card, made), trust, FailureReason.MALFORMED, match="protected header: ")


VALUES_OF_ANOTHER_TYPE: dict[str, list[Any]] = {
    "kid": [None, "", 1, True, ["owner"], {"owner": 1}],
    "alg": [None, 1, True, ["ES256"], {"ES256": 1}],
    "typ": [None, "", 1, ["JOSE"], "JO\u017fE", "at+jwt", "dpop+jwt", "JOSE ", "application/application/JOSE"],
    "exp": [None, "1900000000", True, [1900000000], {}],
    "iat": [None, "1700000000", True, [1700000000], {}],
}


@walk(
    "members",
    [{name: value} for name, values in VALUES_OF_ANOTHER_TYPE.items() for value in values],
    ids=json.dumps,
)
def test_a_protected_name_has_a_value_of_another_type(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore, members: JSONObject
) -> None:
    made = entry({**FULL, **members}, payload, signs(owner.private_key, "ES256"))
    refusal(CardVerificationError, served(card, made), trust, FailureReason.MALFORMED)


def test_a_signature_that_is_over_does_not_live_on_by_its_unprotected_header(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore
) -> None:
    sign = signs(owner.private_key, "ES256")
    over = entry({**FULL, "exp": int(NOW)}, payload, sign, header={"expires": NOW + 1000, "nbf": 0})
    refusal(CardVerificationError, served(card, over), trust, FailureReason.EXPIRED)
    early = entry({**FULL, "iat": int(NOW) + 61}, payload, sign)
    refusal(CardVerificationError, served(card, early), trust, FailureReason.NOT_YET_VALID)
    assert verified(served(card, over), trust, now=NOW - 1).card == card
    clock = [NOW - 1]
    verifier = CardVerifier(trust, clock=lambda: clock[0])
    assert verifier.verify(served(card, over), origin=ORIGIN).card == card
    clock[0] = NOW
    with pytest.raises(CardVerificationError):
        verifier.verify(served(card, over), origin=ORIGIN)


def test_an_unprotected_exp_does_not_count_either_way(card: JSONObject, good: JSONObject, trust: TrustStore) -> None:
    result = verified(served(card, {**good, "header": {"exp": 1, "iat": 9e12}}), trust)
    assert (result.card, result.valid_until) == (card, float("inf"))


@walk("typ", ["JOSE", "jose", "application/jose+json", "JWS"])
@walk("header", [None, {}, {"note": "hello"}])
def test_control_headers_that_agree_are_read(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore, header: object, typ: str
) -> None:
    made = entry({**FULL, "typ": typ, "exp": NOW + 1}, payload, signs(owner.private_key, "ES256"), header=header)
    made["header"] = header
    result = verified(served(card, made), trust)
    assert (result.card, result.valid_until) == (card, NOW + 1)
