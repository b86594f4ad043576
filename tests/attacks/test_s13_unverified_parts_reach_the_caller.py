"""S13: verification says yes, and the program goes on with what was served instead of what was signed.

Seen in sigstore-a2a (#49), trpc-agent-go (#2472) and agentgateway (#2701). Here the only card that a caller gets is
parsed from the signed bytes; what was served is not in the result, and nothing the caller does changes the next answer.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from a2a_trust import CardVerifier, Origins, TrustedKey, TrustStore, VerifiedCard, sign_card, verify_card
from a2a_trust.errors import CardVerificationError, FailureReason, UntrustedCardError
from a2a_trust.keys import LocalSigner, SigningTool, UnsafeAnyOrigin, n_of
from a2a_trust.signing import Coverage, Form
from tests.attacks.forgery import JSONObject, canonical, entry, served, signs
from tests.attacks.verifying import HOST, NOW, ORIGIN, refusal, verified

POISON = "https://evil.example/poison"


def text_of(result: VerifiedCard) -> str:
    """Everything that the result holds, as text."""
    values = [getattr(result, field.name) for field in dataclasses.fields(result)]
    return repr(result) + repr(values) + repr(result.card)


def test_what_was_served_and_not_signed_is_nowhere_in_the_result(
    card: JSONObject, sdk_signature: JSONObject, sdk_payload: bytes, sdk_trust: TrustStore
) -> None:
    card.update({"url": POISON, "security": [{}], "x-poison": {"deep": [POISON]}})
    card["capabilities"]["x-poison"] = POISON
    document = served(card, {**sdk_signature, "note": POISON, "header": {"x": POISON}})
    verifier = CardVerifier(sdk_trust, clock=lambda: NOW, coverage=Coverage.SIGNED_PART_ONLY)
    for result in (
        verified(document, sdk_trust, coverage=Coverage.SIGNED_PART_ONLY),
        verified(json.loads(document), sdk_trust, coverage=Coverage.SIGNED_PART_ONLY),
        verifier.verify(document, origin=ORIGIN),
        verifier.verify(document, origin=ORIGIN),
    ):
        assert (canonical(result.card), result.payload) == (sdk_payload, sdk_payload)
        assert POISON not in text_of(result)
        assert {"/url", "/security", "/x-poison", "/capabilities/x-poison"} <= set(result.dropped)


def test_signatures_are_not_part_of_what_was_signed(card: JSONObject, good: JSONObject, trust: TrustStore) -> None:
    result = verified(served(card, {**good, "note": POISON, "header": {"url": POISON}}, {"x": POISON}), trust)
    assert "signatures" not in result.card
    assert POISON not in text_of(result)


def test_the_document_is_changed_after_it_was_verified(card: JSONObject, good: JSONObject, trust: TrustStore) -> None:
    document = {**copy.deepcopy(card), "signatures": [good]}
    result = verified(document, trust)
    document["skills"].clear()
    document["supportedInterfaces"][0]["url"] = POISON
    document["signatures"][0]["protected"] = "x"
    assert result.card == card


class TwoFaced(Mapping[str, Any]):
    """A document that shows each member as it was signed when it is asked the first time, and its own after that."""

    def __init__(self, document: JSONObject) -> None:
        self.document = document
        self.asked: Counter[str] = Counter()

    def __getitem__(self, name: str) -> Any:
        self.asked[name] += 1
        return POISON if self.asked[name] > 1 else self.document[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.document)

    def __len__(self) -> int:
        return len(self.document)


def test_the_document_answers_otherwise_when_it_is_asked_again(
    card: JSONObject, good: JSONObject, trust: TrustStore
) -> None:
    document = TwoFaced({**card, "signatures": [good]})
    assert verified(document, trust).card == card
    assert document["name"] == POISON  # control: it would have lied


def test_a_caller_changes_the_card_that_a_verifier_gave_him(
    card: JSONObject, good: JSONObject, trust: TrustStore
) -> None:
    verifier = CardVerifier(trust, clock=lambda: NOW)
    document = served(card, good)
    first = verifier.verify(document, origin=ORIGIN)
    taken = first.card
    taken["supportedInterfaces"][0]["url"] = POISON
    taken["securityRequirements"].clear()
    taken["skills"][0].clear()
    second = verifier.verify(document, origin=ORIGIN)
    assert second is first  # the memory was used
    assert (first.card, second.card) == (card, card)


def test_a_caller_writes_into_the_result(card: JSONObject, good: JSONObject, trust: TrustStore) -> None:
    verifier = CardVerifier(trust, clock=lambda: NOW)
    document = served(card, good)
    result = verifier.verify(document, origin=ORIGIN)
    for name in ("card", "payload", "key", "form", "origin", "unverified", "warnings", "valid_until"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(result, name, POISON)
    with pytest.raises(TypeError):
        result.key.jwk["x"] = POISON  # type: ignore[index]
    for name in ("kid", "alg", "thumbprint", "native"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result.key, name, POISON)
    for values in (result.unverified, result.dropped, result.warnings, result.keys, result.ignored):
        assert type(values) is tuple
    result.key.to_jwk()["x"] = POISON
    assert verifier.verify(document, origin=ORIGIN).card == card


def test_a_card_is_changed_after_a_verifier_has_verified_it(
    card: JSONObject, good: JSONObject, trust: TrustStore
) -> None:
    verifier = CardVerifier(trust, clock=lambda: NOW)
    verifier.verify(served(card, good), origin=ORIGIN)
    attacks: list[JSONObject] = [
        {"supportedInterfaces": [{**card["supportedInterfaces"][0], "url": POISON}]},
        {"securityRequirements": [{}]},
        {"url": POISON},
        {"version": "2.3.2"},
    ]
    for attack in attacks:
        with pytest.raises(CardVerificationError):
            verifier.verify(served({**card, **attack}, good), origin=ORIGIN)
    assert verifier.verify(served(card, good), origin=ORIGIN).card == card


def test_a_verified_card_is_asked_for_at_another_host(card: JSONObject, good: JSONObject, trust: TrustStore) -> None:
    verifier = CardVerifier(trust, clock=lambda: NOW)
    document = served(card, good)
    verifier.verify(document, origin=ORIGIN)
    with pytest.raises(UntrustedCardError):
        verifier.verify(document, origin="https://evil.example")
    anywhere = verifier.verify(document, origin=UnsafeAnyOrigin())
    assert anywhere.origin is None  # not the bound answer of before
    assert verifier.verify(document, origin=ORIGIN).origin == HOST


@pytest.mark.parametrize("limit", ["exp", "not_after"])
def test_a_verified_card_is_asked_for_after_its_time(
    card: JSONObject, payload: bytes, owner: LocalSigner, limit: str
) -> None:
    until = NOW + 60
    header: JSONObject = {"alg": "ES256", "kid": "owner"} | ({"exp": until} if limit == "exp" else {})
    key = TrustedKey(
        key=owner.public_key, origins=Origins(HOST), not_after=until if limit == "not_after" else float("inf")
    )
    clock = [NOW]
    verifier = CardVerifier(TrustStore([key]), clock=lambda: clock[0])
    document = served(card, entry(header, payload, signs(owner.private_key, "ES256")))
    assert verifier.verify(document, origin=ORIGIN).valid_until == until
    clock[0] = until
    reason = FailureReason.EXPIRED if limit == "exp" else FailureReason.KEY_NOT_VALID_NOW
    with pytest.raises(CardVerificationError) as caught:
        verifier.verify(document, origin=ORIGIN)
    assert [failure.reason for failure in caught.value.failures] == [reason]


@pytest.mark.parametrize("limit", ["iat", "not_before"])
def test_a_verified_card_is_asked_for_before_its_time(
    card: JSONObject, payload: bytes, owner: LocalSigner, limit: str
) -> None:
    """A clock that is set back does not make the memory speak for a time that it has not checked."""
    header: JSONObject = {"alg": "ES256", "kid": "owner"} | ({"iat": NOW} if limit == "iat" else {})
    key = TrustedKey(
        key=owner.public_key, origins=Origins(HOST), not_before=NOW if limit == "not_before" else float("-inf")
    )
    clock = [NOW]
    verifier = CardVerifier(TrustStore([key]), clock=lambda: clock[0])
    document = served(card, entry(header, payload, signs(owner.private_key, "ES256")))
    verifier.verify(document, origin=ORIGIN)
    clock[0] = NOW - 3600
    with pytest.raises(CardVerificationError):
        verifier.verify(document, origin=ORIGIN)


def test_a_verifier_does_not_remember_what_it_refused(card: JSONObject, good: JSONObject, trust: TrustStore) -> None:
    verifier = CardVerifier(trust, clock=lambda: NOW)
    for _ in range(2):
        with pytest.raises(CardVerificationError):
            verifier.verify(served({**card, "version": "x"}, good), origin=ORIGIN)
        assert verifier.verify(served(card, good), origin=ORIGIN).card == card


def test_a_flood_of_good_cards_does_not_make_the_memory_grow(
    card: JSONObject, good: JSONObject, trust: TrustStore
) -> None:
    verifier = CardVerifier(trust, clock=lambda: NOW, remember=4)
    document = served(card, good)
    first = verifier.verify(document, origin=ORIGIN)
    for blanks in range(1, 9):
        verifier.verify(document + b" " * blanks, origin=ORIGIN)
    assert verifier.verify(document, origin=ORIGIN) is not first  # it was pushed out, and verified anew


def test_what_several_keys_must_have_signed_is_what_all_of_them_signed(
    card: JSONObject, payload: bytes, sdk_payload: bytes, owner: LocalSigner, ed_owner: LocalSigner
) -> None:
    """One key signed the whole card, the other only its pruned form: together they have verified the pruned one."""
    trust = TrustStore(
        TrustedKey(key=signer.public_key, origins=Origins(HOST), signer=SigningTool.A2A_JS, name=f"party-{signer.kid}")
        for signer in (owner, ed_owner)
    )
    full = entry({"alg": "ES256", "kid": "owner"}, payload, signs(owner.private_key, "ES256"))
    part = entry({"alg": "EdDSA", "kid": "ed-owner"}, sdk_payload, signs(ed_owner.private_key, "EdDSA"))
    both = n_of(2, "party-owner", "party-ed-owner")
    for entries in ((full, part), (part, full)):
        result = verified(served(card, *entries), trust, policy=both, coverage=Coverage.SIGNED_PART_ONLY)
        assert canonical(result.card) == sdk_payload
        assert (result.form, bool(result.unverified)) == (Form.PRUNED, True)


def test_signing_changes_neither_the_card_that_was_given_nor_lends_parts_of_it(
    card: JSONObject, owner: LocalSigner, trust: TrustStore
) -> None:
    before = copy.deepcopy(card)
    signed = sign_card(card, owner, companion=True)
    assert card == before
    card["skills"][0]["name"] = POISON
    card["supportedInterfaces"].clear()
    card["defaultInputModes"].append(POISON)
    card["capabilities"]["extensions"][0]["params"]["allowed"].append(POISON)
    assert verified(signed.card, trust).card == before
    signed.card["skills"][0]["name"] = POISON
    refusal(CardVerificationError, signed.card, trust, FailureReason.BAD_SIGNATURE, FailureReason.COMPANION)


def test_nothing_that_verifies_answers_with_yes_or_no(card: JSONObject, good: JSONObject, trust: TrustStore) -> None:
    """So that nobody can forget to look: it raises, or returns the verified thing."""
    result = verify_card(served(card, good), trust, origin=ORIGIN, now=NOW)
    assert type(result) is VerifiedCard
    assert result.card == card
    with pytest.raises(CardVerificationError):
        verify_card(served({**card, "name": "x"}, good), trust, origin=ORIGIN, now=NOW)


def test_control_the_result_is_parsed_from_the_signed_bytes(
    card: JSONObject, payload: bytes, good: JSONObject, trust: TrustStore
) -> None:
    result = verified(served(card, good), trust)
    assert (result.payload, result.card, json.loads(result.payload)) == (payload, card, card)
    assert result.card is not result.card
