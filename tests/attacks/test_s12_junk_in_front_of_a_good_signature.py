"""S12: one signature that cannot be read, or that nobody knows, must not keep the good one from being seen.

Measured in an SDK: an exception in the first signature ended the loop. And the loop must be bounded.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust import MalformedError, Origins, TrustedKey, TrustStore
from a2a_trust.errors import CardVerificationError, FailureReason, PolicyNotMetError
from a2a_trust.keys import LocalSigner, all_of
from a2a_trust.keys.jwk import public_key_from_object
from a2a_trust.signing import Form
from a2a_trust.signing.signature import FORM_MARKERS, MAX_SIGNATURES, content_type
from tests.attacks.forgery import JSONObject, b64, entry, served, signs
from tests.attacks.verifying import HOST, NOW, refusal, verified
from tests.tables import walk


def jose(text: str | bytes) -> JSONObject:
    """A signature with this text as its protected header."""
    return {"protected": b64(text if isinstance(text, bytes) else text.encode()), "signature": "AAAA"}


#: What is no mark of ours: the signature is another tool's, and that is no error.
OTHER_CONTENT_TYPES: tuple[Any, ...] = (
    None,
    1,
    ["application/json"],
    {},
    "",
    "application/json",
    content_type(Form.PRUNED_LEGACY),
)

MALFORMED: dict[str, Any] = {
    "null": None,
    "true": True,
    "number": 1e300,
    "string": "eyJ",
    "list": [[]],
    "empty object": {},
    "protected number": {"protected": 1, "signature": "AA"},
    "protected null": {"protected": None, "signature": "AA"},
    "protected list": {"protected": ["e30"], "signature": "AA"},
    "protected object": {"protected": {"alg": "ES256", "kid": "owner"}, "signature": "AA"},
    "signature missing": {"protected": b64(b'{"alg":"ES256","kid":"owner"}')},
    "signature list": {"protected": b64(b'{"alg":"ES256","kid":"owner"}'), "signature": ["AA"]},
    "not base64url": {"protected": "*", "signature": "*"},
    "not ASCII": {"protected": "é\U0001f600", "signature": "é"},
    "null octets": {"protected": "\0", "signature": "\0"},
    "enormous": {"protected": "A" * 200_000, "signature": "A" * 200_000},
    "not UTF-8": jose(b"\xff\xfe{}"),
    "not UTF-8 within": jose(b'{"alg":"ES256","kid":"owner\xff"}'),
    "not JSON": jose("{"),
    "empty text": jose(""),
    "header list": jose("[]"),
    "header number": jose("1"),
    "header deep": jose("[" * 6_000),
    "header of deep objects": jose('{"a":' * 1_000),
    "header of a long number": jose('{"alg":"ES256","kid":"owner","exp":' + "9" * 5_000 + "}"),
    "header with infinity": jose('{"alg":"ES256","kid":"owner","exp":1e999}'),
    "header with NaN": jose('{"alg":"ES256","kid":"owner","exp":NaN}'),
    "half a surrogate pair": jose('{"alg":"ES256","kid":"\\ud800"}'),
    "alg missing": jose('{"kid":"owner"}'),
    "alg list": jose('{"alg":[],"kid":"owner"}'),
    "alg object": jose('{"alg":{},"kid":"owner"}'),
    "kid missing": jose('{"alg":"ES256"}'),
    "kid list": jose('{"alg":"ES256","kid":[]}'),
    "kid object": jose('{"alg":"ES256","kid":{"owner":1}}'),
    "typ list": jose('{"alg":"ES256","kid":"owner","typ":[]}'),
    "exp text": jose('{"alg":"ES256","kid":"owner","exp":"soon"}'),
    "iat list": jose('{"alg":"ES256","kid":"owner","iat":[]}'),
    "crit": jose('{"alg":"ES256","kid":"owner","crit":["x"]}'),
    "unprotected list": {**jose('{"alg":"ES256","kid":"owner"}'), "header": [1]},
    "unprotected alg": {**jose('{"alg":"ES256","kid":"owner"}'), "header": {"alg": 1}},
    "signature not base64url": {**jose('{"alg":"ES256","kid":"owner"}'), "signature": "A"},
}

READABLE: dict[str, tuple[JSONObject, FailureReason]] = {
    "unknown key": (jose('{"alg":"ES256","kid":"nobody"}'), FailureReason.UNKNOWN_KEY),
    "kid of terminal escapes": (jose('{"alg":"ES256","kid":"\\u001b[2J\\u202e"}'), FailureReason.UNKNOWN_KEY),
    "kid of 5000 letters": (jose(json.dumps({"alg": "ES256", "kid": "é" * 1_000})), FailureReason.UNKNOWN_KEY),
    "unknown algorithm": (jose('{"alg":"HS256","kid":"owner"}'), FailureReason.WRONG_ALGORITHM),
    "none": ({**jose('{"alg":"none","kid":"owner"}'), "signature": ""}, FailureReason.WRONG_ALGORITHM),
    "bad signature": (jose('{"alg":"ES256","kid":"owner"}'), FailureReason.BAD_SIGNATURE),
    "empty signature": ({**jose('{"alg":"ES256","kid":"owner"}'), "signature": ""}, FailureReason.BAD_SIGNATURE),
    "over since ever": (jose('{"alg":"ES256","kid":"owner","exp":-1e308}'), FailureReason.EXPIRED),
    "over, exactly": (jose('{"alg":"ES256","kid":"owner","exp":-' + "9" * 300 + "}"), FailureReason.EXPIRED),
    "never begun": (jose('{"alg":"ES256","kid":"owner","iat":1e308}'), FailureReason.NOT_YET_VALID),
    "never begun, exactly": (
        jose('{"alg":"ES256","kid":"owner","iat":' + "9" * 308 + "}"),
        FailureReason.NOT_YET_VALID,
    ),
    **{
        f"companion {form}": (
            jose(json.dumps({"alg": "ES256", "kid": "owner", "cty": content_type(form)})),
            FailureReason.COMPANION,
        )
        for form in (Form.PRUNED, Form.V0_3_PYTHON)
    },
    **{
        f"content type {cty!r}": (
            jose(json.dumps({"alg": "ES256", "kid": "owner", "cty": cty})),
            FailureReason.BAD_SIGNATURE,
        )
        for cty in OTHER_CONTENT_TYPES
    },
}


@walk("junk", MALFORMED.values(), ids=MALFORMED)
def test_junk_stands_before_and_after_a_good_signature(
    card: JSONObject, good: JSONObject, trust: TrustStore, owner: LocalSigner, junk: Any
) -> None:
    for entries, index in (((junk, good), 0), ((good, junk), 1)):
        result = verified(served(card, *entries), trust)
        assert (result.card, result.key) == (card, owner.public_key)
        assert [(failure.index, failure.reason) for failure in result.ignored] == [(index, FailureReason.MALFORMED)]
    refusal(CardVerificationError, served(card, junk), trust, FailureReason.MALFORMED)


@walk(("junk", "reason"), READABLE.values(), ids=READABLE)
def test_a_signature_that_does_not_count_stands_before_and_after_a_good_one(
    card: JSONObject, good: JSONObject, trust: TrustStore, junk: JSONObject, reason: FailureReason
) -> None:
    for entries, index in (((junk, good), 0), ((good, junk), 1)):
        result = verified(served(card, *entries), trust)
        assert result.card == card
        assert [(failure.index, failure.reason) for failure in result.ignored] == [(index, reason)]
    with pytest.raises(CardVerificationError) as caught:
        verified(served(card, junk), trust)
    assert [failure.reason for failure in caught.value.failures] == [reason]
    kid = caught.value.failures[0].kid
    assert kid is not None
    assert kid.isascii()
    assert kid.isprintable()
    assert len(kid) <= 640  # 64 characters, each at most one escape long
    assert "\x1b" not in str(caught.value)


def test_everything_at_once_leaves_the_good_one_alone(card: JSONObject, good: JSONObject, trust: TrustStore) -> None:
    junk = [*MALFORMED.values(), *(entry for entry, _ in READABLE.values())]
    for start in range(0, len(junk), MAX_SIGNATURES - 1):
        some = junk[start : start + MAX_SIGNATURES - 1]
        for place in (0, len(some) // 2, len(some)):
            result = verified(served(card, *some[:place], good, *some[place:]), trust)
            assert (result.card, len(result.ignored)) == (card, len(some))


def test_a_trusted_key_whose_signature_is_wrong_does_not_shadow_another_key(
    card: JSONObject, payload: bytes, trust: TrustStore, owner: LocalSigner, ed_owner: LocalSigner
) -> None:
    wrong = entry({"alg": "ES256", "kid": "owner"}, b"{}", signs(owner.private_key, "ES256"))
    right = entry({"alg": "EdDSA", "kid": "ed-owner"}, payload, signs(ed_owner.private_key, "EdDSA"))
    for entries in ((wrong, right), (right, wrong)):
        assert verified(served(card, *entries), trust).key == ed_owner.public_key


def test_keys_that_are_over_or_revoked_or_of_others_do_not_shadow_a_good_one(
    card: JSONObject, payload: bytes, owner: LocalSigner, mallory: LocalSigner
) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "revoked": {"revoked": True},
        "over": {"not_after": NOW},
        "not yet": {"not_before": NOW + 1},
        "elsewhere": {"origins": Origins("other.example")},
        "good": {},
    }
    keys = dict.fromkeys(kinds, owner.private_key) | {"revoked": mallory.private_key}  # revoked is a key, not a name
    trust = TrustStore(
        TrustedKey(key=public_key_from_object(keys[kid], kid=kid), **{"origins": Origins(HOST), **kind})
        for kid, kind in kinds.items()
    )
    entries = [entry({"alg": "ES256", "kid": kid}, payload, signs(keys[kid], "ES256")) for kid in kinds]
    for order in (entries, entries[::-1]):
        result = verified(served(card, *order), trust)
        assert result.key.kid == "good"
        assert {failure.kid: failure.reason for failure in result.ignored} == {
            "revoked": FailureReason.REVOKED_KEY,
            "over": FailureReason.KEY_NOT_VALID_NOW,
            "not yet": FailureReason.KEY_NOT_VALID_NOW,
            "elsewhere": FailureReason.WRONG_ORIGIN,
        }


def test_the_number_of_signatures_is_bounded_also_when_all_are_good(
    card: JSONObject, good: JSONObject, trust: TrustStore
) -> None:
    assert verified(served(card, *[good] * MAX_SIGNATURES), trust).card == card
    refusal(MalformedError, served(card, *[good] * (MAX_SIGNATURES + 1)), trust, match="more than 16 signatures")


def test_junk_neither_satisfies_a_policy_nor_blocks_it(
    card: JSONObject, payload: bytes, good: JSONObject, trust: TrustStore, ed_owner: LocalSigner
) -> None:
    second = entry({"alg": "EdDSA", "kid": "ed-owner"}, payload, signs(ed_owner.private_key, "EdDSA"))
    claimed = jose('{"alg":"EdDSA","kid":"ed-owner"}')
    policy = all_of("party-owner", "party-ed-owner")
    assert verified(served(card, None, claimed, good, {}, second), trust, policy=policy).card == card
    with pytest.raises(PolicyNotMetError):
        verified(served(card, None, claimed, good, good), trust, policy=policy)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)
members = st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jku", "jwk", "iat", "exp", "cty"])
headers = st.dictionaries(
    members, json_values | st.sampled_from(["ES256", "HS256", "owner", "JOSE", "EdDSA", *FORM_MARKERS]), max_size=6
).map(lambda header: b64(json.dumps(header).encode()))
entries_of_any_kind = json_values | st.fixed_dictionaries(
    {},
    optional={
        "protected": headers | json_values,
        "signature": st.binary(max_size=80).map(b64) | json_values,
        "header": json_values,
    },
)


@given(junk=st.lists(entries_of_any_kind, max_size=5), place=st.integers(0, 5))
def test_whatever_stands_beside_it_a_good_signature_is_found(
    signed_card: JSONObject, trust: TrustStore, owner: LocalSigner, junk: list[Any], place: int
) -> None:
    entries = [*junk[:place], signed_card["signatures"][0], *junk[place:]]
    result = verified(served(signed_card, *entries), trust)
    assert result.key == owner.public_key
    assert len(result.ignored) == len(junk)


def test_control_without_the_good_signature_none_of_it_counts(card: JSONObject, trust: TrustStore) -> None:
    junk = list(READABLE.values())
    for start in range(0, len(junk), MAX_SIGNATURES - 1):
        some = [*junk[start : start + MAX_SIGNATURES - 1], READABLE["bad signature"]]
        entries, reasons = zip(*some, strict=True)
        refusal(CardVerificationError, served(card, *entries), trust, *reasons)
