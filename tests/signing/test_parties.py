"""Policies: which signatures count, and when they are enough."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from a2a_trust.base.strict_json.jcs import canonicalize
from a2a_trust.card.ambiguity import UnambiguousCard
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    FailureReason,
    PolicyNotMetError,
    UncoveredFieldsError,
)
from a2a_trust.keys.signer import LocalSigner, generate_signer
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.policy import AnyKey, OriginPolicy, Threshold, all_of, n_of, named
from a2a_trust.keys.trust.store import SigningTool, TrustStore
from a2a_trust.signing.forms import UNVERIFIED_BY_PRUNING, Form, project
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.verify import Coverage, count_signatures
from a2a_trust.signing.verify_signature import verify_signatures
from tests.signing.cards import Card, full_card, many_formed_card
from tests.signing.making import (
    ANYWHERE,
    NOW,
    entry,
    served,
    signed_in,
    trust_in,
    trusted,
    verify,
)
from tests.tables import walk

ALICE, BOB, CAROL = (generate_signer(kid=name) for name in ("alice", "bob", "carol"))
PYTHON, JS = SigningTool.A2A_PYTHON, SigningTool.A2A_JS


def test_any_one_trusted_key_is_enough_by_default() -> None:
    card = sign_card(full_card(), ALICE, BOB).card
    assert verify(card, trust_in(BOB)).keys == (BOB.public_key,)
    assert verify(card, trust_in(ALICE, BOB), policy=AnyKey()).keys == (ALICE.public_key,)


def test_policies_count_the_keys_that_they_name() -> None:
    trust = TrustStore(map(trusted, (ALICE, BOB, CAROL)), names=["bob-2"])  # an entry without a key now
    by_two = sign_card(full_card(), ALICE, BOB).card
    for policy in (all_of("alice", "bob"), n_of(2, "alice", "bob", "carol"), n_of(1, "carol", "bob"), named("alice")):
        verified = verify(by_two, trust, policy=policy)
        assert len(verified.keys) == policy.count
        assert {key.kid for key in verified.keys} <= policy.parties
    for policy in (all_of("alice", "carol"), n_of(3, "alice", "bob", "carol"), named("carol"), named("bob-2")):
        with pytest.raises(CardVerificationError, match=f" of the {policy.count} parties that the policy requires"):
            verify(by_two, trust, policy=policy)


def test_a_policy_reports_what_failed_beside_what_is_missing() -> None:
    card = sign_card(full_card(), ALICE).card
    card["signatures"].append(entry(BOB, b"something else"))
    with pytest.raises(CardVerificationError, match=r"^only 1 of the 2 parties") as error:
        verify(card, trust_in(ALICE, BOB), policy=all_of("alice", "bob"))
    assert [(failure.kid, failure.reason) for failure in error.value.failures] == [("bob", FailureReason.BAD_SIGNATURE)]


def test_two_signatures_by_one_key_are_one_also_under_two_names() -> None:
    alias = LocalSigner(ALICE.private_key, kid="alias")
    payload = canonicalize(full_card())
    card = {**full_card(), "signatures": [entry(ALICE, payload), entry(ALICE, payload, x=1), entry(alias, payload)]}
    trust = trust_in(ALICE, alias, BOB)
    assert verify(card, trust, policy=n_of(1, "alice", "alias")).keys[0].thumbprint == ALICE.public_key.thumbprint
    for policy in (n_of(2, "alice", "alias", "bob"), all_of("alice", "alias")):
        with pytest.raises(CardVerificationError, match="1 of the 2 parties"):
            verify(card, trust, policy=policy)


def test_two_keys_under_one_name_are_one() -> None:
    # Of different types, so that both can be trusted: whoever was given the one name must not count as two.
    ec, okp = generate_signer(kid="shared"), generate_signer("EdDSA", kid="shared")
    payload = canonicalize(full_card())
    card = {**full_card(), "signatures": [entry(ec, payload), entry(okp, payload)]}
    trust = trust_in(ec, okp, BOB)
    assert len(verify(card, trust, policy=named("shared")).keys) == 1
    with pytest.raises(CardVerificationError, match="1 of the 2 parties"):
        verify(card, trust, policy=n_of(2, "shared", "bob"))


def test_a_policy_that_nothing_could_meet_or_everything_does_is_a_mistake() -> None:
    for count, kids in ((0, ["a"]), (2, ["a"]), (2, ["a", "a"]), (-1, ["a"]), (1, [])):
        with pytest.raises(ConfigurationError, match="require at least one, and name enough parties"):
            n_of(count, *kids)
    with pytest.raises(ConfigurationError, match="require at least one"):
        all_of()
    assert all_of("a", "b", "a") == Threshold(2, frozenset({"a", "b"}))


def test_what_is_verified_is_what_all_counted_keys_have_signed() -> None:
    # Bob's SDK can only sign the pruned form: together they have verified no more than he.
    card = {**many_formed_card(), "x-vendor": 1}
    full, pruned = project(card, Form.SERVED).payload, project(card, Form.PRUNED).payload
    trust = TrustStore([trusted(ALICE), trusted(BOB, signer=JS)])
    for signatures in permutations([entry(ALICE, full), entry(BOB, pruned)]):
        document = {**card, "signatures": list(signatures)}
        assert verify(document, trust).payload == full
        with pytest.raises(UncoveredFieldsError):
            verify(document, trust, policy=all_of("alice", "bob"))
        verified = verify(document, trust, policy=all_of("alice", "bob"), coverage=Coverage.SIGNED_PART_ONLY)
        assert (verified.payload, verified.form, verified.key) == (pruned, Form.PRUNED, BOB.public_key)
        assert {key.kid for key in verified.keys} == {"alice", "bob"}
        assert verified.unverified == UNVERIFIED_BY_PRUNING


def test_the_proof_with_the_fullest_coverage_is_returned_whatever_the_order() -> None:
    card = many_formed_card()
    served_form, spec, pruned = (project(card, form).payload for form in (Form.SERVED, Form.SPEC, Form.PRUNED))
    trust = TrustStore([trusted(ALICE), trusted(BOB), trusted(CAROL, signer=PYTHON)])
    entries = [entry(ALICE, served_form), entry(BOB, spec), entry(CAROL, pruned)]
    for signatures in permutations(entries):
        assert verify({**card, "signatures": list(signatures)}, trust).form is Form.SERVED
    for signatures in permutations(entries[1:]):
        verified = verify({**card, "signatures": list(signatures)}, trust)
        assert (verified.form, verified.payload) == (Form.SPEC, spec)


def test_of_two_signatures_by_one_key_the_fuller_one_counts() -> None:
    card = many_formed_card()
    trust = TrustStore([trusted(ALICE, signer=PYTHON)])
    entries = [entry(ALICE, project(card, form).payload) for form in (Form.PRUNED, Form.SERVED)]
    for signatures in permutations(entries):
        assert verify({**card, "signatures": list(signatures)}, trust, policy=named("alice")).form is Form.SERVED


# --- what the store demands


@walk(
    ("origins", "origin", "is_demanded"),
    [
        ("invoice.example.com", "https://invoice.example.com", True),
        ("invoice.example.com", "https://elsewhere.example.org", True),  # of a host in the card
        ("invoice.example.com", ANYWHERE, True),
        ("elsewhere.example.org", "https://elsewhere.example.org", True),
        ("elsewhere.example.org", "https://invoice.example.com", False),
        ("elsewhere.example.org", ANYWHERE, False),
        ("*.example.org", ANYWHERE, False),
    ],
)
def test_the_store_demands_parties_of_the_cards_of_a_host(origins: str, origin: Any, is_demanded: bool) -> None:
    entries = [trusted(ALICE), trusted(BOB)]
    trust = TrustStore(entries, [OriginPolicy(origins=Origins(origins), policy=all_of("alice", "bob"))])
    by_both = sign_card(full_card(), ALICE, BOB).card
    assert len(verify(by_both, trust, origin=origin).keys) == 1 + is_demanded
    by_one = sign_card(full_card(), ALICE).card
    if is_demanded:
        with pytest.raises(PolicyNotMetError, match=r"^only 1 of the 2 parties"):
            verify(by_one, trust, origin=origin)
    else:
        verify(by_one, trust, origin=origin)
    verify(by_one, TrustStore(entries), origin=origin)


def test_a_part_of_a_card_whose_host_cannot_be_told_needs_what_the_store_demands_of_any() -> None:
    card = full_card()
    signed = signed_in(card, Form.PRUNED, ALICE)
    signed["url"] = "https://ä.example"
    by_sdk = [trusted(ALICE, signer=SigningTool.A2A_JS)]
    policies = [OriginPolicy(origins=Origins("other.example.org"), policy=named("bob"))]
    part = Coverage.SIGNED_PART_ONLY
    assert verify(signed, TrustStore(by_sdk), coverage=part).key == ALICE.public_key
    with pytest.raises(PolicyNotMetError):
        verify(signed, TrustStore(by_sdk, policies, names=["bob"]), coverage=part)


def test_of_two_signatures_of_a_party_the_later_counts_wherever_it_stands() -> None:
    signatures = [sign_card(full_card(), ALICE, iat=NOW - age).card["signatures"][0] for age in (5, 3)]
    for order in (signatures, signatures[::-1]):
        assert verify({**full_card(), "signatures": order}, trust_in(ALICE)).issued == NOW - 3


def test_parties_that_signed_different_parts_prove_nothing_together() -> None:
    card: Card = {
        "name": "a",
        "url": "https://invoice.example.com/rpc",
        "preferredTransport": "GRPC",
        "capabilities": {"streaming": True, "extendedAgentCard": True},
        "security": [{"x": ["s"]}],
        "securityRequirements": [{"schemes": {"x": {"list": ["only-the-bank"]}}}],
    }
    forms = zip((ALICE, BOB), (Form.PRUNED, Form.V0_3_PYTHON), strict=True)
    signatures = [entry(signer, project(card, form).payload) for signer, form in forms]
    trust = TrustStore([trusted(ALICE, signer=PYTHON), trusted(BOB, signer=PYTHON)])
    with pytest.raises(PolicyNotMetError, match="different parts of this card"):
        verify(
            {**card, "signatures": signatures}, trust, policy=all_of("alice", "bob"), coverage=Coverage.SIGNED_PART_ONLY
        )


A, B, C = "alice", "bob", "carol"


@walk(
    ("made", "parties", "is_met"),
    [
        ([(0, A), (1, B), (2, A)], (A, B), True),
        ([(0, A), (1, A), (1, B)], (A, B), False),  # two keys fit the second signature, and one of them the first
        ([(1, B), (2, B), (0, A), (1, A)], (A, B), False),
        ([(0, A), (1, B), (2, A), (3, B), (3, C)], (A, C), True),
    ],
)
def test_signatures_that_share_a_key_count_for_one_party(
    made: list[tuple[int, str]], parties: tuple[str, ...], is_met: bool
) -> None:
    by_name = {signer.kid: signer for signer in (ALICE, BOB, CAROL)}
    card = UnambiguousCard(served(sign_card(full_card(), ALICE).card))
    (base,), _ = verify_signatures(card, trust_in(ALICE), None, NOW)
    verified = [base._replace(position=position, trusted=trusted(by_name[name])) for position, name in made]
    if is_met:
        assert len(count_signatures(verified, [all_of(*parties)], ())) == len(parties)
        return
    with pytest.raises(PolicyNotMetError):
        count_signatures(verified, [all_of(*parties)], ())


def test_a_key_of_several_parties_stands_for_the_one_that_has_no_other() -> None:
    card = sign_card(full_card(), ALICE, BOB).card
    entries = [trusted(ALICE, name="a"), trusted(ALICE, name="b"), trusted(BOB, name="a")]
    for order in permutations(entries):
        verified, _ = verify_signatures(UnambiguousCard(served(card)), TrustStore(order), None, NOW)
        counted = count_signatures(verified, [all_of("a", "b")], ())
        assert {(each.trusted.name, each.trusted.key.kid) for each in counted} == {("a", "bob"), ("b", "alice")}
    entries = [*(trusted(ALICE, name=name) for name in "abc"), trusted(BOB, name="c")]
    for order in permutations(entries):
        assert len(verify(card, TrustStore(order), policy=n_of(2, *"abc")).keys) == 2


def test_the_keys_of_one_entry_are_several_parties_only_where_all_are_named_by_thumbprint() -> None:
    card = sign_card(full_card(), ALICE, BOB).card
    trust = TrustStore([trusted(ALICE, name="bank"), trusted(BOB, name="bank")])
    alice, bob = ALICE.public_key.thumbprint, BOB.public_key.thumbprint
    assert len(verify(card, trust, policy=all_of(alice, bob)).keys) == 2
    with pytest.raises(PolicyNotMetError, match=r"^only 1 of the 2 parties"):
        verify(card, trust, policy=all_of(alice, "bank"))
