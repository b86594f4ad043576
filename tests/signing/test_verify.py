"""Verifying a card: what comes back is what was signed, and a failure tells why, signature by signature."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from itertools import permutations
from types import MappingProxyType
from typing import Any

import pytest

from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    FailureReason,
    MalformedError,
    PartialSignatureError,
    UncoveredFieldsError,
    UnsignedCardError,
    UntrustedCardError,
)
from a2a_trust.keys import base64url
from a2a_trust.keys.jwk import public_key_from_object
from a2a_trust.keys.origins import Origins
from a2a_trust.keys.policy import AnyKey, Threshold, all_of, n_of, named
from a2a_trust.keys.signer import LocalSigner, generate_signer
from a2a_trust.keys.trust import SigningTool, TrustedKey, TrustStore
from a2a_trust.signing.forms import UNPROVEN_BY_PRUNING, Form, project
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.signature import MAX_SIGNATURES, content_type
from a2a_trust.signing.verify import SignedPartOnly, VerifiedCard, WholeCard, verify_card
from a2a_trust.signing.verify_signature import CLOCK_SKEW
from a2a_trust.strict_json.jcs import canonicalize
from tests.signing.cards import Card, full_card, legacy_card, many_formed_card, merged_card
from tests.signing.making import ANYWHERE, entry, header_of, header_text, served, signed_in, trust_in, trusted

NOW = 1_800_000_000.0
ALICE, BOB, CAROL = (generate_signer(kid=name) for name in ("alice", "bob", "carol"))
PYTHON, JS, WHOLE, OURS = SigningTool.A2A_PYTHON, SigningTool.A2A_JS, SigningTool.WHOLE, SigningTool.A2A_TRUST


def verify(card: Card | bytes, trust: TrustStore, **rest: Any) -> VerifiedCard:
    document = card if isinstance(card, bytes) else served(card)
    return verify_card(document, trust, **{"origin": ANYWHERE, "now": NOW, **rest})


def reasons(card: Card | bytes, trust: TrustStore, **rest: Any) -> list[FailureReason]:
    """Why each signature of a card that is not proven does not count."""
    with pytest.raises(CardVerificationError) as error:
        verify(card, trust, **rest)
    return [failure.reason for failure in error.value.failures]


def without_signatures(card: Card) -> Card:
    return {name: value for name, value in card.items() if name != "signatures"}


#: Reasons for which a card is only untrusted, and not wrong.
BLAMES_TRUST = {
    FailureReason.UNKNOWN_KEY,
    FailureReason.WRONG_ORIGIN,
    FailureReason.REVOKED_KEY,
    FailureReason.KEY_NOT_VALID_NOW,
    FailureReason.COMPANION,
}


# --- what comes back


def test_a_proof_says_what_was_signed_by_whom_how_and_until_when() -> None:
    card = sign_card(full_card(), ALICE, exp=NOW + 100).card
    trust = TrustStore([trusted(ALICE, "*.example.com", "example.com", not_before=NOW - 5, not_after=NOW + 500)])
    proven = verify(card, trust, origin="https://invoice.example.com/.well-known/agent-card.json")
    assert proven.card == full_card()
    assert proven.payload == canonicalize(full_card())
    assert (proven.key, proven.keys) == (ALICE.public_key, (ALICE.public_key,))
    assert proven.form is Form.SPEC
    assert proven.origin == "invoice.example.com"
    assert (proven.dropped, proven.unproven, proven.warnings, proven.ignored) == ((), (), (), ())
    assert (proven.proven_from, proven.proven_until) == (NOW - 5, NOW + 100)


def test_the_card_is_read_anew_each_time_and_the_proof_cannot_be_changed() -> None:
    proven = verify(sign_card(full_card(), ALICE).card, trust_in(ALICE))
    proven.card["name"] = "another"
    proven.card["skills"].clear()
    assert proven.card == full_card()
    with pytest.raises(dataclasses.FrozenInstanceError):
        proven.payload = b"{}"  # type: ignore[misc]


def test_bytes_and_parsed_objects_are_verified_alike() -> None:
    card = sign_card(many_formed_card(), ALICE).card
    from_bytes = verify(served(card), trust_in(ALICE))
    for document in (card, MappingProxyType(card)):
        assert verify_card(document, trust_in(ALICE), origin=ANYWHERE, now=NOW) == from_bytes


@pytest.mark.parametrize("document", ["{}", None, 1, [], bytearray(b"{}")], ids=lambda value: type(value).__name__)
def test_only_bytes_and_mappings_are_verified(document: Any) -> None:
    with pytest.raises(ConfigurationError, match="as the bytes that were served or as a dict"):
        verify_card(document, trust_in(ALICE), origin=ANYWHERE, now=NOW)


def test_an_object_that_is_not_json_is_refused() -> None:
    card = sign_card(full_card(), ALICE).card
    with pytest.raises(MalformedError):
        verify_card({**card, "x": (1,)}, trust_in(ALICE), origin=ANYWHERE, now=NOW)


def test_neither_order_nor_blanks_nor_number_spelling_of_the_served_card_matter() -> None:
    card = full_card()
    card["capabilities"]["extensions"][0]["params"] = {"n": 3, "d": 1.5e300, "\U0001f600": 1e16, "\uffff": 0.0}
    signed = sign_card(card, ALICE).card
    other = {name: signed[name] for name in sorted(signed, reverse=True)}
    text = json.dumps(other, indent=3).replace('"n": 3', '"n": 30.0e-1').replace("1e+16", "10000000000000000")
    proven = verify(text.encode(), trust_in(ALICE))
    assert proven.payload == canonicalize(card)


def test_an_integer_beyond_53_bits_is_verified_as_the_double_that_it_is() -> None:
    card = {**full_card(), "x-vendor": 2**53 + 1}
    proven = verify(signed_in(card, Form.SERVED, ALICE), trust_in(ALICE))
    assert proven.card["x-vendor"] == 2**53


# --- the gate and the list of signatures


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b"null", b"\xef\xbb\xbf{}", b'{"name":"a","name":"a"}', b'{"Name":"a"}', b'{"name":1}', b"{}{}"],
)
def test_what_does_not_pass_the_gate_is_malformed_before_any_signature(document: bytes) -> None:
    with pytest.raises(MalformedError, match=r"^card: "):
        verify(document, trust_in(ALICE))


@pytest.mark.parametrize(
    "signatures", [None, [], {}, "", "x", 0, False, {"protected": "x", "signature": "y"}], ids=repr
)
def test_a_card_without_a_list_of_signatures_is_unsigned(signatures: Any) -> None:
    with pytest.raises(UnsignedCardError) as error:
        verify({**full_card(), "signatures": signatures}, trust_in(ALICE))
    assert error.value.failures == ()


def test_a_card_without_the_member_is_unsigned() -> None:
    with pytest.raises(UnsignedCardError, match="not signed"):
        verify(full_card(), trust_in(ALICE))


def test_the_number_of_signatures_is_bounded_even_if_all_are_good() -> None:
    good = sign_card(full_card(), ALICE).card["signatures"]
    assert verify({**full_card(), "signatures": good * MAX_SIGNATURES}, trust_in(ALICE)).key == ALICE.public_key
    with pytest.raises(MalformedError, match="more than 16"):
        verify({**full_card(), "signatures": good * (MAX_SIGNATURES + 1)}, trust_in(ALICE))


JUNK: list[Any] = [
    None,
    "x",
    1,
    [],
    {},
    {"protected": 1, "signature": "x"},
    {"protected": "x", "signature": None},
    {"protected": "", "signature": ""},
    {"protected": "e30", "signature": ""},
    {"protected": "!!!!", "signature": "!!!!"},
    {"protected": base64url.encode(b"\xff\xfe"), "signature": "AA"},
    {"protected": base64url.encode(b"[" * 3_000), "signature": "AA"},
    {"protected": "A" * 100_000, "signature": "A" * 100_000},
]


def test_junk_before_and_after_a_good_signature_neither_stops_nor_helps_it() -> None:
    good = sign_card(full_card(), ALICE).card["signatures"]
    proven = verify({**full_card(), "signatures": [*JUNK, *good]}, trust_in(ALICE))
    assert [failure.reason for failure in proven.ignored] == [FailureReason.MALFORMED] * len(JUNK)
    assert [failure.index for failure in proven.ignored] == list(range(len(JUNK)))
    assert verify({**full_card(), "signatures": [*good, *JUNK]}, trust_in(ALICE)).card == full_card()
    assert reasons({**full_card(), "signatures": JUNK}, trust_in(ALICE)) == [FailureReason.MALFORMED] * len(JUNK)


# --- one signature


def test_each_refusal_has_its_reason_and_the_error_its_class() -> None:
    revoked, old, young, elsewhere = (generate_signer(kid=name) for name in ("revoked", "old", "young", "elsewhere"))
    sdk = generate_signer(kid="sdk")
    trust = TrustStore(
        [
            trusted(ALICE),
            trusted(revoked, revoked=True),
            trusted(old, not_after=NOW),
            trusted(young, not_before=NOW + 1),
            trusted(elsewhere, "other.example.org"),
            trusted(sdk, signer=None),
        ]
    )
    payload = canonicalize(full_card())
    cases: list[tuple[Card, FailureReason]] = [
        (entry(BOB, payload), FailureReason.UNKNOWN_KEY),
        (entry(revoked, payload), FailureReason.REVOKED_KEY),
        (entry(old, payload), FailureReason.KEY_NOT_VALID_NOW),
        (entry(young, payload), FailureReason.KEY_NOT_VALID_NOW),
        (entry(elsewhere, payload), FailureReason.WRONG_ORIGIN),
        (entry(sdk, payload), FailureReason.PARTIAL),
        (entry(ALICE, payload, exp=NOW), FailureReason.EXPIRED),
        (entry(ALICE, payload, iat=NOW + CLOCK_SKEW + 1), FailureReason.NOT_YET_VALID),
        (entry(ALICE, payload, alg="HS256"), FailureReason.WRONG_ALGORITHM),
        (entry(ALICE, payload, alg="none"), FailureReason.WRONG_ALGORITHM),
        (entry(ALICE, payload, alg="ES384"), FailureReason.WRONG_ALGORITHM),
        (entry(ALICE, payload, alg="RS256"), FailureReason.UNKNOWN_KEY),
        (entry(ALICE, payload, cty=content_type(Form.PRUNED)), FailureReason.COMPANION),
        (entry(ALICE, payload, crit=["exp"]), FailureReason.MALFORMED),
        (entry(ALICE, payload + b" "), FailureReason.BAD_SIGNATURE),
        (entry(ALICE, payload) | {"signature": ""}, FailureReason.BAD_SIGNATURE),
        (entry(ALICE, payload) | {"signature": "AA=="}, FailureReason.MALFORMED),
    ]
    for signature, reason in cases:
        with pytest.raises(CardVerificationError) as error:
            verify({**full_card(), "signatures": [signature]}, trust, origin="invoice.example.com")
        (failure,) = error.value.failures
        assert (failure.index, failure.reason) == (0, reason), failure
        assert f"signature 0 ({'no kid' if failure.kid is None else f'kid {failure.kid}'})" in str(error.value)
        partial = PartialSignatureError if reason is FailureReason.PARTIAL else CardVerificationError
        assert type(error.value) is (UntrustedCardError if reason in BLAMES_TRUST else partial)
    assert {reason for _, reason in cases} == set(FailureReason)


def test_one_wrong_signature_makes_the_card_wrong_and_not_only_untrusted() -> None:
    payload = canonicalize(full_card())
    unknown, wrong = entry(BOB, payload), entry(ALICE, payload + b" ")
    for signatures in ([unknown, wrong], [wrong, unknown]):
        with pytest.raises(CardVerificationError) as error:
            verify({**full_card(), "signatures": signatures}, trust_in(ALICE))
        assert type(error.value) is CardVerificationError
        assert len(error.value.failures) == 2


def test_an_empty_trust_store_trusts_nobody() -> None:
    with pytest.raises(UntrustedCardError):
        verify(sign_card(full_card(), ALICE).card, TrustStore([]))


def test_a_kid_is_told_short_and_printable() -> None:
    signature = entry(ALICE, b"", kid="\u202e\n\x1b[31m" + "k" * 500)
    with pytest.raises(UntrustedCardError) as error:
        verify({**full_card(), "signatures": [signature]}, trust_in(ALICE))
    (failure,) = error.value.failures
    assert failure.kid is not None
    assert failure.kid.startswith("\\u202e\\n\\x1b[31mkkk")
    assert len(failure.kid) < 120
    assert str(error.value).isascii()


def test_texts_of_failures_hold_nothing_of_the_card() -> None:
    card = {**full_card(), "description": "S3CRET", "x-S3CRET": "S3CRET"}
    signed = signed_in(card, Form.SERVED, ALICE)
    signed["description"] = "S3CRET, changed"
    with pytest.raises(CardVerificationError) as error:
        verify(signed, trust_in(ALICE, BOB))
    assert "S3CRET" not in str(error.value) + repr(error.value.failures)


@pytest.mark.parametrize("alg", ["EdDSA", "Ed25519"])
def test_both_names_of_ed25519_are_the_same_algorithm(alg: str) -> None:
    signer = generate_signer("EdDSA", kid="ed")
    card = {**full_card(), "signatures": [entry(signer, canonicalize(full_card()), alg=alg)]}
    assert verify(card, trust_in(signer)).key == signer.public_key


def test_a_key_verifies_its_own_algorithm_only() -> None:
    rs = generate_signer("RS256", kid="rsa", rsa_bits=2048)
    ps = LocalSigner(rs.private_key, alg="PS256", kid="rsa")
    payload = canonicalize(full_card())
    for signer, other in ((rs, ps), (ps, rs)):
        assert verify({**full_card(), "signatures": [entry(signer, payload)]}, trust_in(signer)).card == full_card()
        with pytest.raises(CardVerificationError) as error:
            verify({**full_card(), "signatures": [entry(signer, payload)]}, trust_in(other))
        assert error.value.failures[0].reason is FailureReason.WRONG_ALGORITHM


def test_keys_of_one_kid_and_different_types_are_told_apart() -> None:
    ec, okp = generate_signer("ES256", kid="shared"), generate_signer("EdDSA", kid="shared")
    for signer in (ec, okp):
        card = {**full_card(), "signatures": [entry(signer, canonicalize(full_card()))]}
        assert verify(card, trust_in(ec, okp)).key == signer.public_key


def test_names_in_the_unprotected_header_do_not_count() -> None:
    good = entry(ALICE, canonicalize(full_card()))
    card = {**full_card(), "signatures": [{**good, "header": {"x-note": "free", "jku": "https://evil.example"}}]}
    assert verify(card, trust_in(ALICE)).card == full_card()
    headers: list[Any] = [{"kid": "bob"}, {"alg": "none"}, {"crit": []}, {"typ": "JOSE"}, [], "x", 0, False]
    for header in headers:
        assert reasons({**full_card(), "signatures": [{**good, "header": header}]}, trust_in(ALICE)) == [
            FailureReason.MALFORMED
        ]


# --- times


def test_a_key_is_valid_from_its_beginning_until_just_before_its_end() -> None:
    card = sign_card(full_card(), ALICE).card
    trust = TrustStore([trusted(ALICE, not_before=NOW, not_after=NOW + 10)])
    for moment in (NOW, NOW + 9.999):
        proven = verify(card, trust, now=moment)
        assert (proven.proven_from, proven.proven_until) == (NOW, NOW + 10)
    for moment in (NOW - 0.001, NOW + 10, float("nan"), float("inf"), float("-inf")):
        assert reasons(card, trust, now=moment) == [FailureReason.KEY_NOT_VALID_NOW]


def test_a_signature_holds_from_its_iat_less_the_skew_until_just_before_its_exp() -> None:
    card = sign_card(full_card(), ALICE, iat=NOW, exp=NOW + 10).card
    for moment in (NOW - CLOCK_SKEW, NOW, NOW + 9.999):
        proven = verify(card, trust_in(ALICE), now=moment)
        assert (proven.proven_from, proven.proven_until) == (NOW - CLOCK_SKEW, NOW + 10)
    assert reasons(card, trust_in(ALICE), now=NOW + 10) == [FailureReason.EXPIRED]
    assert reasons(card, trust_in(ALICE), now=NOW - CLOCK_SKEW - 0.001) == [FailureReason.NOT_YET_VALID]


def test_an_exp_in_the_unprotected_header_means_nothing() -> None:
    card = sign_card(full_card(), ALICE).card
    card["signatures"][0]["header"] = {"exp": 1}
    assert verify(card, trust_in(ALICE)).proven_until == float("inf")


def test_the_moment_may_be_a_datetime_that_knows_its_zone() -> None:
    card = sign_card(full_card(), ALICE, exp=NOW).card
    assert verify(card, trust_in(ALICE), now=datetime.fromtimestamp(NOW - 1, UTC)).proven_until == NOW
    assert reasons(card, trust_in(ALICE), now=datetime.fromtimestamp(NOW, UTC)) == [FailureReason.EXPIRED]
    with pytest.raises(ConfigurationError, match="time zone"):
        verify(card, trust_in(ALICE), now=datetime(2027, 1, 1))  # noqa: DTZ001


def test_of_several_keys_the_proof_holds_while_all_of_them_hold() -> None:
    card = sign_card(full_card(), ALICE, BOB).card
    trust = TrustStore([trusted(ALICE, not_before=NOW - 9, not_after=NOW + 5), trusted(BOB, not_before=NOW - 3)])
    proven = verify(card, trust, policy=all_of("alice", "bob"))
    assert (proven.proven_from, proven.proven_until) == (NOW - 3, NOW + 5)


# --- origins


def test_a_card_is_proven_for_the_hosts_of_its_key_only() -> None:
    card = sign_card(full_card(), ALICE).card
    trust = TrustStore([trusted(ALICE, "invoice.example.com", "grpc.example.com")])
    assert verify(card, trust, origin="https://INVOICE.example.com:8443/x").origin == "invoice.example.com"
    assert verify(card, trust, origin="grpc.example.com:443").origin == "grpc.example.com"
    for origin in (
        "https://example.com",
        "https://a.invoice.example.com",
        "https://evil.example",
        "xinvoice.example.com",
    ):
        assert reasons(card, trust, origin=origin) == [FailureReason.WRONG_ORIGIN]


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/a2a",
        "https://invoice.example.com.evil.example/",
        "https://invoice.example.com@evil.example/",
        "https://evil.example\\@invoice.example.com/",
        "https://evil.example#@invoice.example.com/",
        "//invoice.example.com/",
        "/a2a",
        "",
        "https:///invoice.example.com",
        "https://invoice.example.com./",
    ],
)
def test_every_interface_must_be_on_a_host_of_the_key(url: str) -> None:
    trust = TrustStore([trusted(ALICE, "invoice.example.com", "grpc.example.com", "old.example.com")])
    new, old, extra = full_card(), legacy_card(), legacy_card()
    new["supportedInterfaces"].append({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"})
    old["url"] = url
    extra["additionalInterfaces"].append({"url": url, "transport": "GRPC"})
    merged = {**merged_card(), "url": url}
    proto = {"supported_interfaces": [{"url": url}]}
    for card in (new, old, extra, merged, proto):
        signed = signed_in(card, Form.SERVED, ALICE)
        for origin in (ANYWHERE, "https://invoice.example.com"):
            assert reasons(signed, trust, origin=origin) == [FailureReason.WRONG_ORIGIN]
        assert verify(signed, trust_in(ALICE)).origin is None  # a key for every host says nothing about them


@pytest.mark.parametrize(
    "url", ["mailto:a@invoice.example.com", "dns:///invoice.example.com", "ftp://invoice.example.com"]
)
def test_an_interface_of_a_scheme_without_a_host_is_rejected_for_every_key(url: str) -> None:
    card = full_card()
    card["supportedInterfaces"].append({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"})
    for trust in (trust_in(ALICE), TrustStore([trusted(ALICE, "invoice.example.com")])):
        assert reasons(signed_in(card, Form.SERVED, ALICE), trust) == [FailureReason.WRONG_ORIGIN]


def test_without_a_host_the_proof_is_not_bound_and_says_so() -> None:
    card = sign_card(full_card(), ALICE).card
    bound_key = TrustStore([trusted(ALICE, "*.example.com")])
    for trust, origin in (
        (bound_key, ANYWHERE),
        (trust_in(ALICE), ANYWHERE),
        (trust_in(ALICE), "https://invoice.example.com"),
    ):
        proven = verify(card, trust, origin=origin)
        assert proven.origin is None
        assert [warning for warning in proven.warnings if warning.startswith("origin: not bound")]
    assert verify(card, bound_key, origin="https://invoice.example.com").warnings == ()


def test_one_unbound_key_among_those_counted_leaves_the_proof_unbound() -> None:
    card = sign_card(full_card(), ALICE, BOB).card
    trust = TrustStore([trusted(ALICE, "*.example.com"), trusted(BOB)])
    proven = verify(card, trust, origin="https://invoice.example.com", policy=all_of("alice", "bob"))
    assert proven.origin is None


def test_one_kid_may_be_different_keys_for_different_hosts() -> None:
    here, there = generate_signer(kid="main"), generate_signer(kid="main")
    trust = TrustStore([trusted(here, "*.example.com"), trusted(there, "*.example.org")])
    card = sign_card(full_card(), here).card
    assert verify(card, trust, origin="https://invoice.example.com").key == here.public_key
    assert reasons(card, trust, origin="https://a.example.org") == [FailureReason.BAD_SIGNATURE]
    assert verify(card, trust, origin=ANYWHERE).key == here.public_key  # the signature says which key made it
    assert reasons(card, trust, origin="https://a.example.net") == [FailureReason.WRONG_ORIGIN]


@pytest.mark.parametrize("origin", ["", "/x", "https://", "https://a b", "https://ä.example", "a@b", None, 1, b"x"])
def test_an_origin_that_is_no_host_is_a_mistake(origin: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^origin: write the URL or the host"):
        verify(sign_card(full_card(), ALICE).card, trust_in(ALICE), origin=origin)


# --- policies


def test_any_one_trusted_key_is_enough_by_default() -> None:
    card = sign_card(full_card(), ALICE, BOB).card
    assert verify(card, trust_in(BOB)).keys == (BOB.public_key,)
    assert verify(card, trust_in(ALICE, BOB), policy=AnyKey()).keys == (ALICE.public_key,)


def test_policies_count_the_keys_that_they_name() -> None:
    trust = TrustStore(map(trusted, (ALICE, BOB, CAROL)), names=["bob-2"])  # an entry without a key now
    by_two = sign_card(full_card(), ALICE, BOB).card
    for policy in (all_of("alice", "bob"), n_of(2, "alice", "bob", "carol"), n_of(1, "carol", "bob"), named("alice")):
        proven = verify(by_two, trust, policy=policy)
        assert len(proven.keys) == policy.count
        assert {key.kid for key in proven.keys} <= policy.parties
    for policy in (all_of("alice", "carol"), n_of(3, "alice", "bob", "carol"), named("carol"), named("bob-2")):
        with pytest.raises(CardVerificationError, match=f" of the {policy.count} parties that the policy demands"):
            verify(by_two, trust, policy=policy)


def test_a_policy_reports_what_failed_beside_what_is_missing() -> None:
    card = sign_card(full_card(), ALICE).card
    card["signatures"].append(entry(BOB, b"something else"))
    with pytest.raises(CardVerificationError, match=r"^1 of the 2 parties") as error:
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
        with pytest.raises(ConfigurationError, match="demand at least one, and name enough parties"):
            n_of(count, *kids)
    with pytest.raises(ConfigurationError, match="demand at least one"):
        all_of()
    assert all_of("a", "b", "a") == Threshold(2, frozenset({"a", "b"}))


def test_what_is_proven_is_what_all_counted_keys_have_signed() -> None:
    # Bob's SDK can only sign the pruned form: together they have proven no more than he.
    card = {**many_formed_card(), "x-vendor": 1}
    full, pruned = project(card, Form.SERVED).payload, project(card, Form.PRUNED).payload
    trust = TrustStore([trusted(ALICE), trusted(BOB, signer=JS)])
    for signatures in permutations([entry(ALICE, full), entry(BOB, pruned)]):
        document = {**card, "signatures": list(signatures)}
        assert verify(document, trust).payload == full
        with pytest.raises(UncoveredFieldsError):
            verify(document, trust, policy=all_of("alice", "bob"))
        proven = verify(document, trust, policy=all_of("alice", "bob"), coverage=SignedPartOnly())
        assert (proven.payload, proven.form, proven.key) == (pruned, Form.PRUNED, BOB.public_key)
        assert {key.kid for key in proven.keys} == {"alice", "bob"}
        assert proven.unproven == UNPROVEN_BY_PRUNING


def test_the_proof_with_the_fullest_coverage_is_returned_whatever_the_order() -> None:
    card = many_formed_card()
    served_form, spec, pruned = (project(card, form).payload for form in (Form.SERVED, Form.SPEC, Form.PRUNED))
    trust = TrustStore([trusted(ALICE), trusted(BOB), trusted(CAROL, signer=PYTHON)])
    entries = [entry(ALICE, served_form), entry(BOB, spec), entry(CAROL, pruned)]
    for signatures in permutations(entries):
        assert verify({**card, "signatures": list(signatures)}, trust).form is Form.SERVED
    for signatures in permutations(entries[1:]):
        proven = verify({**card, "signatures": list(signatures)}, trust)
        assert (proven.form, proven.payload) == (Form.SPEC, spec)


def test_of_two_signatures_by_one_key_the_fuller_one_counts() -> None:
    card = many_formed_card()
    trust = TrustStore([trusted(ALICE, signer=PYTHON)])
    entries = [entry(ALICE, project(card, form).payload) for form in (Form.PRUNED, Form.SERVED)]
    for signatures in permutations(entries):
        assert verify({**card, "signatures": list(signatures)}, trust, policy=named("alice")).form is Form.SERVED


# --- forms and coverage


#: How a trust entry takes an unmarked signature over each form of a card in which every form has other bytes.
TAKEN: dict[Form, dict[SigningTool | None, bool]] = {
    # tool -> whether the proof is whole; a tool that is absent is refused
    Form.SERVED: {None: True, PYTHON: True, JS: True, WHOLE: True},
    Form.SPEC: {None: True, PYTHON: True, JS: True, WHOLE: True},
    Form.PRUNED: {PYTHON: False, JS: False},
    Form.PRUNED_LEGACY: {PYTHON: False},
    Form.V0_3_PYTHON: {PYTHON: False},
}


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("tool", [None, *SigningTool])
def test_an_unmarked_signature_counts_as_its_trust_entry_says(form: Form, tool: SigningTool | None) -> None:
    made = legacy_card() if form is Form.V0_3_PYTHON else many_formed_card()
    card = signed_in({**made, "name": "é"}, form, ALICE)
    trust = TrustStore([trusted(ALICE, signer=tool)])
    if tool not in TAKEN[form]:
        assert reasons(card, trust) == [FailureReason.PARTIAL]
        return
    proven = verify(card, trust, coverage=SignedPartOnly())
    assert (proven.form, proven.unproven == ()) == (form, TAKEN[form][tool])


@pytest.mark.parametrize("form", [Form.SERVED, Form.SPEC])
@pytest.mark.parametrize("tool", [None, *SigningTool])
def test_a_marked_signature_is_checked_in_its_own_form_only(form: Form, tool: SigningTool | None) -> None:
    trust = TrustStore([trusted(ALICE, signer=tool)])
    card = many_formed_card()
    proven = verify(signed_in(card, form, ALICE, cty=content_type(form)), trust)
    assert (proven.form, proven.unproven) == (form, ())
    for other in {*Form} - {form, Form.V0_3_PYTHON}:
        wrong = signed_in(card, other, ALICE, cty=content_type(form))
        assert reasons(wrong, trust, coverage=SignedPartOnly()) == [FailureReason.BAD_SIGNATURE]


@pytest.mark.parametrize(
    "cty",
    [
        "application/json",
        "application/json; a2a-form=spec",
        "Application/json;a2a-form=spec",
        "application/json;a2a-form=spec ",
        "application/json;a2a-form=pruned-legacy",
        "json;a2a-form=spec",
        "",
        None,
        ["application/json;a2a-form=spec"],
        {},
        1,
    ],
)
def test_another_content_type_marks_nothing_and_is_no_error(cty: Any) -> None:
    card = signed_in(full_card(), Form.SPEC, ALICE, cty=cty)
    assert reasons(card, TrustStore([trusted(ALICE, signer=None)])) == [FailureReason.PARTIAL]
    assert verify(card, TrustStore([trusted(ALICE, signer=WHOLE)])).unproven == ()


def test_a_mark_in_the_unprotected_header_marks_nothing() -> None:
    card = signed_in(full_card(), Form.SPEC, ALICE)
    card["signatures"][0]["header"] = {"cty": content_type(Form.SPEC)}
    assert reasons(card, TrustStore([trusted(ALICE, signer=OURS)])) == [FailureReason.PARTIAL]


def test_a_partial_signature_is_refused_with_the_way_to_accept_it() -> None:
    card = signed_in(full_card(), Form.PRUNED, ALICE)
    with pytest.raises(PartialSignatureError, match='"a2a-python" or "a2a-js"; or write "whole"') as error:
        verify(card, TrustStore([trusted(ALICE, signer=None)]))
    assert error.value.code == "partial"
    with pytest.raises(PartialSignatureError, match="marked ones only"):
        verify(card, TrustStore([trusted(ALICE, signer=OURS)]))
    legacy = signed_in({**many_formed_card(), "name": "é"}, Form.PRUNED_LEGACY, ALICE)
    with pytest.raises(PartialSignatureError, match="in the form pruned-legacy, which is not one of its signer a2a-js"):
        verify(legacy, TrustStore([trusted(ALICE, signer=JS)]))


#: Empty values at members of the schema, which every known pruner drops: the signer drops nothing.
EVIDENCE: dict[str, Card] = {
    "a requirement without scopes": {"securityRequirements": [{"schemes": {"bearer": {"list": []}}}]},
    "a requirement without a list": {"securityRequirements": [{"schemes": {"bearer": {}}}]},
    "the anonymous alternative": {"securityRequirements": [{}]},
    "an mTLS scheme": {"securitySchemes": {"mtls": {"mtlsSecurityScheme": {}}}},
    "an empty list": {"securityRequirements": []},
    "an empty map": {"securitySchemes": {}},
    "an empty string": {"description": ""},
    "an empty object": {"capabilities": {}},
    "an empty string in a list": {"defaultInputModes": ["text/plain", ""]},
    "an empty string in a map": {
        "securitySchemes": {
            "oauth": {
                "oauth2SecurityScheme": {
                    "flows": {"clientCredentials": {"tokenUrl": "https://t.example", "scopes": {"read": ""}}}
                }
            }
        }
    },
}

#: Members that a pruner of today drops, or keeps, and one of tomorrow may keep while it prunes the rest.
NO_EVIDENCE: dict[str, Card] = {
    "nothing empty": {},
    "an unknown member": {"x-vendor": {"a": 1}},
    "an empty unknown member": {"x-vendor": [], "y": "", "z": {}},
    "an empty value in an unknown member": {"x-vendor": {"description": "", "skills": []}},
    "an empty value in params": {
        "capabilities": {"extensions": [{"uri": "u", "params": {"allow": [], "description": "", "deep": [{"a": {}}]}}]}
    },
    "a member of 0.3": {"security": [{"bearer": []}]},
    "null": {"documentationUrl": None},
    "false": {"capabilities": {"extensions": [{"uri": "u", "required": False}]}},
}


@pytest.mark.parametrize("name", EVIDENCE)
def test_a_signed_empty_value_shows_that_the_signer_drops_nothing(name: str) -> None:
    card = {**full_card(), **EVIDENCE[name]}
    for tool in (None, PYTHON, JS):
        proven = verify(signed_in(card, Form.SERVED, ALICE), TrustStore([trusted(ALICE, signer=tool)]))
        assert (proven.unproven, proven.card) == ((), card)


@pytest.mark.parametrize("name", NO_EVIDENCE)
def test_other_values_show_nothing_about_the_signer(name: str) -> None:
    card = signed_in({**full_card(), **NO_EVIDENCE[name]}, Form.SERVED, ALICE)
    assert reasons(card, TrustStore([trusted(ALICE, signer=None)])) == [FailureReason.PARTIAL]
    assert verify(card, TrustStore([trusted(ALICE, signer=WHOLE)])).unproven == ()
    for tool in (PYTHON, JS):
        assert verify(card, TrustStore([trusted(ALICE, signer=tool)])).unproven == UNPROVEN_BY_PRUNING


def test_a_signed_empty_member_of_a_0_3_card_shows_the_same() -> None:
    unmarked = TrustStore([trusted(ALICE, signer=None)])
    full: Card = {
        "name": "Old Agent",
        "url": "https://old.example.com/a2a",
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        "capabilities": {"streaming": False},
    }
    empty: list[Any] = [[{"bearer": []}], [{}], []]
    for security in empty:
        card = signed_in({**full, "security": security}, Form.SERVED, ALICE)
        assert verify(card, unmarked).unproven == ()
    full_or_unknown: list[Card] = [
        {"security": [{"bearer": ["read"]}]},
        {"authentication": {"schemes": []}},
        {"x": ""},
    ]
    for member in full_or_unknown:
        assert reasons(signed_in({**full, **member}, Form.SERVED, ALICE), unmarked) == [FailureReason.PARTIAL]


def test_the_spec_form_of_a_card_that_is_served_with_defaults_proves_all_that_says_something() -> None:
    card = signed_in(many_formed_card(), Form.SPEC, ALICE)
    proven = verify(card, trust_in(ALICE))
    assert proven.form is Form.SPEC
    assert sorted(proven.dropped) == [
        "/capabilities/extensions",
        "/documentationUrl",
        "/securityRequirements/0/schemes/bearer/list",
    ]
    assert (proven.unproven, proven.card["capabilities"]) == ((), {"streaming": False})
    assert proven.card["securityRequirements"] == [{"schemes": {"bearer": {}}}]


@pytest.mark.parametrize("form", [Form.PRUNED, Form.PRUNED_LEGACY])
def test_a_pruned_proof_says_what_it_cannot_prove_even_when_nothing_is_missing(form: Form) -> None:
    card = signed_in(full_card(), form, ALICE)
    proven = verify(card, TrustStore([trusted(ALICE, signer=PYTHON)]))
    assert proven.form is form  # of forms with equal bytes the one that proves least
    assert (proven.dropped, proven.unproven) == ((), UNPROVEN_BY_PRUNING)
    assert any(f"in the form {form}" in warning for warning in proven.warnings)


def test_members_that_the_spec_form_drops_too_are_covered_and_others_are_not() -> None:
    trust = TrustStore([trusted(ALICE, signer=JS)])
    covered: Card = {
        "securitySchemes": {},
        "securityRequirements": [],
        "documentationUrl": None,
        "capabilities": {"streaming": True, "extensions": []},
    }
    proven = verify(signed_in({**full_card(), **covered}, Form.PRUNED, ALICE), trust)
    assert set(proven.dropped) == {
        "/securitySchemes",
        "/securityRequirements",
        "/documentationUrl",
        "/capabilities/extensions",
    }
    for member, value, pointer in (
        ("description", "", "/description"),  # REQUIRED
        ("securityRequirements", [{"schemes": {"bearer": {"list": []}}}], "/securityRequirements"),
        ("securitySchemes", {"m": {"mtlsSecurityScheme": {}}}, "/securitySchemes"),  # an entry of a map
        ("defaultInputModes", ["text/plain", ""], "/defaultInputModes/1"),  # an element of a list
        ("x", 1, "/x"),
        (
            "capabilities",
            {"extensions": [{"uri": "u", "params": {"a": [], "b": 1}}]},
            "/capabilities/extensions/0/params/a",
        ),
    ):
        with pytest.raises(UncoveredFieldsError) as error:
            verify(signed_in({**full_card(), **covered, member: value}, Form.PRUNED, ALICE), trust)
        assert error.value.pointers == (pointer,)


def test_what_is_uncovered_is_found_behind_any_number_of_covered_members() -> None:
    skills = [{"id": str(n), "name": "n", "description": "d", "tags": ["t"], "examples": []} for n in range(200)]
    card = signed_in({**full_card(), "skills": skills, "x": 1}, Form.PRUNED, ALICE)
    with pytest.raises(UncoveredFieldsError) as error:
        verify(card, TrustStore([trusted(ALICE, signer=JS)]))
    assert error.value.pointers == ("/x",)


@pytest.mark.parametrize("form", [Form.PRUNED, Form.PRUNED_LEGACY])
def test_members_that_a_pruned_form_does_not_cover_make_it_fail_unless_only_the_signed_part_is_taken(
    form: Form,
) -> None:
    card = signed_in({**many_formed_card(), "x-vendor": {"a": 1}, "url": "https://evil.example"}, form, ALICE)
    trust = TrustStore([trusted(ALICE, signer=PYTHON)])
    for coverage in ({}, {"coverage": WholeCard()}):
        with pytest.raises(UncoveredFieldsError) as error:
            verify(card, trust, **coverage)
        assert set(error.value.pointers) == {
            "/x-vendor",
            "/url",
            "/description",
            "/securityRequirements",
        }
        assert "/securityRequirements" in str(error.value)
    proven = verify(card, trust, coverage=SignedPartOnly())
    assert set(proven.dropped) == {*error.value.pointers, "/documentationUrl", "/capabilities/extensions"}
    assert proven.card.keys().isdisjoint({"x-vendor", "url", "securityRequirements", "description"})
    assert proven.unproven == UNPROVEN_BY_PRUNING


def test_an_uncovered_card_tells_the_other_failures_too_and_its_text_is_short() -> None:
    card = signed_in({**full_card(), **{f"x-{number}": 1 for number in range(50)}}, Form.PRUNED, ALICE)
    card["signatures"].insert(0, entry(BOB, b""))
    with pytest.raises(UncoveredFieldsError) as error:
        verify(card, TrustStore([trusted(ALICE, signer=JS)]))
    assert [failure.reason for failure in error.value.failures] == [FailureReason.UNKNOWN_KEY]
    assert len(error.value.pointers) == 50
    assert str(error.value).count("/x-") == 8


def test_the_text_of_an_uncovered_card_does_not_grow_with_the_names_in_it() -> None:
    card = signed_in({**full_card(), "x" * 100_000: 1}, Form.PRUNED, ALICE)
    with pytest.raises(UncoveredFieldsError) as error:
        verify(card, TrustStore([trusted(ALICE, signer=JS)]))
    assert len(str(error.value)) < 2_000


def test_a_large_card_is_verified_whatever_its_canonical_form_needs() -> None:
    # 1e20 takes 4 bytes in the document and 21 in the payload; "é" takes 2, and 6 in the pruned-legacy one.
    params = {"n": [1e20] * 200_000}
    document = {"name": "x", "capabilities": {"extensions": [{"uri": "u", "params": params}]}}
    signed = signed_in(document, Form.SERVED, ALICE)
    text = json.dumps(signed, separators=(",", ":")).replace("1e+20", "1e20").encode()
    assert len(verify(text, trust_in(ALICE)).payload) > 4_000_000
    assert verify(text, trust_in(ALICE)).card["capabilities"]["extensions"][0]["params"]["n"][:1] == [10**20]


def test_companions_never_count_whatever_the_trust_entry_says() -> None:
    made = sign_card(many_formed_card(), ALICE)
    assert [header_of(each)["cty"] for each in made.card["signatures"]] == [
        content_type(Form.SPEC),
        content_type(Form.PRUNED),
    ]
    full, companion = made.card["signatures"]
    proven = verify(made.card, TrustStore([trusted(ALICE, signer=PYTHON)]))
    assert [failure.reason for failure in proven.ignored] == [FailureReason.COMPANION]
    alone = {**made.card, "signatures": [companion]}
    for trust in (trust_in(ALICE), TrustStore([trusted(ALICE, signer=PYTHON)])):
        with pytest.raises(UntrustedCardError):
            verify(alone, trust, coverage=SignedPartOnly())
    for form in (Form.PRUNED, Form.V0_3_PYTHON):
        marked = entry(ALICE, made.payload, cty=content_type(form))
        assert reasons({**made.card, "signatures": [marked]}, trust_in(ALICE)) == [FailureReason.COMPANION]
    assert verify({**made.card, "signatures": [full]}, trust_in(ALICE)).card == without_signatures(made.card)


def test_the_payload_of_another_card_of_the_same_key_is_no_proof() -> None:
    other = sign_card({**full_card(), "name": "another"}, ALICE).card["signatures"]
    assert reasons({**full_card(), "signatures": other}, trust_in(ALICE)) == [FailureReason.BAD_SIGNATURE]


def test_keys_in_the_header_are_not_trusted() -> None:
    mallory = generate_signer(kid="alice")
    signature = entry(mallory, canonicalize(full_card()), jwk=mallory.public_key.to_jwk(), jku="https://evil.example/k")
    assert reasons({**full_card(), "signatures": [signature]}, trust_in(ALICE)) == [FailureReason.BAD_SIGNATURE]


def test_the_public_half_of_a_key_object_is_enough_to_trust_it() -> None:
    key = public_key_from_object(ALICE.private_key, kid="alice")
    trust = TrustStore([TrustedKey(key=key, origins=Origins("*.example.com"))])
    assert verify(sign_card(full_card(), ALICE).card, trust, origin="invoice.example.com").key == ALICE.public_key


def test_a_header_without_kid_or_alg_is_malformed() -> None:
    payload = canonicalize(full_card())
    headers: list[Any] = [{"alg": "ES256"}, {"kid": "alice"}, {}, {"alg": 1, "kid": "alice"}, [], "x", None]
    for header in headers:
        signature = entry(ALICE, payload) | {"protected": header_text(header)}
        assert reasons({**full_card(), "signatures": [signature]}, trust_in(ALICE)) == [FailureReason.MALFORMED]
