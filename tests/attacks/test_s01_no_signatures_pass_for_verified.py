"""S1: a list of signatures with nothing in it, or no list at all, must not pass because no signature failed.

Seen in joserfc (CVE-2026-102946) and Authlib (CVE-2026-96760).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_trust import CardVerifier, ConfigurationError, MalformedError, TrustStore
from a2a_trust.errors import (
    CardVerificationError,
    FailureReason,
    PolicyNotMetError,
    UnsignedCardError,
    UntrustedCardError,
)
from a2a_trust.keys import LocalSigner, UnsafeAnyOrigin, all_of, n_of, named
from a2a_trust.signing import Coverage
from tests.attacks.forgery import JSONObject, served
from tests.attacks.verifying import NOW, ORIGIN, refusal, verified
from tests.tables import walk

ABSENT = object()

NOT_A_LIST_WITH_ANYTHING: dict[str, Any] = {
    "absent": ABSENT,
    "null": None,
    "empty": [],
    "empty-object": {},
    "object-by-index": {"0": "SIGNATURE"},
    "the-signature-without-list": "SIGNATURE",
    "string": "eyJ.eyJ.sig",
    "empty-string": "",
    "true": True,
    "false": False,
    "zero": 0,
    "one": 1,
}


def with_signatures(card: JSONObject, value: Any, good: JSONObject) -> JSONObject:
    if value is ABSENT:
        return card
    if value == "SIGNATURE":
        return {**card, "signatures": good}
    if isinstance(value, dict):
        value = dict.fromkeys(value, good)
    return {**card, "signatures": value}


@walk("value", NOT_A_LIST_WITH_ANYTHING.values(), ids=NOT_A_LIST_WITH_ANYTHING)
@walk("as_bytes", [True, False], ids=["bytes", "dict"])
@walk(
    "options",
    [{}, {"coverage": Coverage.SIGNED_PART_ONLY}, {"policy": named("party-owner")}, {"origin": UnsafeAnyOrigin()}],
    ids=["default", "signed-part-only", "named", "any-origin"],
)
def test_a_card_without_a_list_of_signatures_is_unsigned(
    card: JSONObject, good: JSONObject, trust: TrustStore, value: Any, as_bytes: bool, options: dict[str, Any]
) -> None:
    unsigned = with_signatures(card, value, good)
    refusal(UnsignedCardError, json.dumps(unsigned).encode() if as_bytes else unsigned, trust, **options)


def test_a_verifier_that_has_verified_the_card_takes_it_for_unsigned_without_its_signatures(
    card: JSONObject, good: JSONObject, trust: TrustStore
) -> None:
    verifier = CardVerifier(trust, clock=lambda: NOW)
    verifier.verify(served(card, good), origin=ORIGIN)
    with pytest.raises(UnsignedCardError):
        verifier.verify(served(card), origin=ORIGIN)


@walk("junk", [None, True, 1, "", "x", [], {}, {"protected": None}, {"signature": ""}, [[]]])
def test_a_list_that_holds_only_junk_proves_nothing(card: JSONObject, trust: TrustStore, junk: Any) -> None:
    refusal(CardVerificationError, served(card, junk, junk), trust, *[FailureReason.MALFORMED] * 2)


def test_empty_signature_texts_prove_nothing(card: JSONObject, good: JSONObject, trust: TrustStore) -> None:
    refusal(CardVerificationError, served(card, {**good, "signature": ""}), trust, FailureReason.BAD_SIGNATURE)
    refusal(CardVerificationError, served(card, {**good, "protected": ""}), trust, FailureReason.MALFORMED)


def test_a_second_member_signatures_does_not_replace_the_first(
    card: JSONObject, good: JSONObject, trust: TrustStore
) -> None:
    text = served(card, good).decode()
    for document in (text[:-1] + ', "signatures": []}', '{"signatures": [], ' + text[1:]):
        refusal(MalformedError, document.encode(), trust, match="more than once")


def test_signatures_in_another_case_are_not_signatures(card: JSONObject, good: JSONObject, trust: TrustStore) -> None:
    refusal(MalformedError, {**card, "Signatures": [good]}, trust, match="only in case")


def test_a_trust_store_without_keys_trusts_nobody(card: JSONObject, good: JSONObject) -> None:
    refusal(UntrustedCardError, served(card, good), TrustStore([]), FailureReason.UNKNOWN_KEY)


def test_a_policy_that_asks_for_nobody_is_refused_before_it_is_used() -> None:
    with pytest.raises(ConfigurationError):
        all_of()
    for count, kids in ((0, ["owner"]), (-1, ["owner"]), (0, []), (2, ["a", "a"]), (2, ["a"])):
        with pytest.raises(ConfigurationError):
            n_of(count, *kids)


def test_the_policy_counts_keys_that_signed_and_not_signatures_that_are_there(
    card: JSONObject, good: JSONObject, trust: TrustStore
) -> None:
    refusal(PolicyNotMetError, served(card, good, good), trust, policy=all_of("party-owner", "party-ed-owner"))


def test_control_the_same_card_with_its_signature_is_verified(
    card: JSONObject, good: JSONObject, trust: TrustStore, owner: LocalSigner
) -> None:
    result = verified(served(card, good), trust)
    assert (result.card, result.key) == (card, owner.public_key)
    assert verified({**card, "signatures": [good]}, trust).card == card
