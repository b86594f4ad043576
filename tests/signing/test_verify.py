"""Verifying a card: what comes back is what was signed."""

from __future__ import annotations

import dataclasses
import json
from types import MappingProxyType
from typing import Any

import pytest

from a2a_trust.base.strict_json.jcs import canonicalize
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    FailureReason,
    MalformedError,
    PolicyNotMetError,
    UncoveredFieldsError,
    UnsignedCardError,
    UntrustedCardError,
)
from a2a_trust.keys import base64url
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.policy import all_of, named
from a2a_trust.keys.trust.store import SigningTool, TrustStore
from a2a_trust.signing.forms import UNVERIFIED_BY_PRUNING, Form
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.signature import MAX_SIGNATURES
from a2a_trust.signing.verify import Coverage, verify_card
from tests.signing.cards import Card, full_card, many_formed_card
from tests.signing.making import (
    ANYWHERE,
    NOW,
    entry,
    reasons,
    served,
    signed_in,
    trust_in,
    trusted,
    verify,
)
from tests.tables import walk

ALICE, BOB = (generate_signer(kid=name) for name in ("alice", "bob"))
PYTHON, JS = SigningTool.A2A_PYTHON, SigningTool.A2A_JS


# --- what comes back


def test_a_card_is_verified_again_for_the_same_host_with_the_same_demands() -> None:
    both = TrustStore([trusted(ALICE, "example.com", name="a"), trusted(BOB, "example.com", name="b")])
    card = {**full_card(), "supportedInterfaces": [{"url": "https://example.com/rpc", "protocolBinding": "JSONRPC"}]}
    verified = verify(sign_card(card, ALICE, BOB).card, both, origin="https://example.com", policy=all_of("a", "b"))
    assert verified.verified_again(both, now=NOW) == verified
    with pytest.raises(PolicyNotMetError):
        verified.verified_again(TrustStore(both.keys, revoked=["bob"]), now=NOW)
    elsewhere = TrustStore([trusted(each, "example.org", name=name) for name, each in (("a", ALICE), ("b", BOB))])
    with pytest.raises(UntrustedCardError):
        verified.verified_again(elsewhere, now=NOW)


def test_a_card_of_which_only_another_part_is_verified_now_is_not_verified_again() -> None:
    card = signed_in(many_formed_card(), Form.PRUNED, ALICE)
    card["signatures"] += sign_card(many_formed_card(), BOB).card["signatures"][:1]
    trust = TrustStore([trusted(ALICE, signer=PYTHON), trusted(BOB)])
    verified = verify(card, trust, coverage=Coverage.SIGNED_PART_ONLY)
    assert verified.unverified == ()
    with pytest.raises(CardVerificationError, match="verify another part of the card"):
        verified.verified_again(TrustStore(trust.keys, revoked=["bob"]), now=NOW)


def test_a_proof_says_what_was_signed_by_whom_how_and_until_when() -> None:
    card = sign_card(full_card(), ALICE, exp=NOW + 100).card
    trust = TrustStore([trusted(ALICE, "*.example.com", "example.com", not_before=NOW - 5, not_after=NOW + 500)])
    verified = verify(card, trust, origin="https://invoice.example.com/.well-known/agent-card.json")
    assert verified.card == full_card()
    assert verified.payload == canonicalize(full_card())
    assert (verified.key, verified.keys) == (ALICE.public_key, (ALICE.public_key,))
    assert verified.form is Form.SPEC
    assert verified.origin == "invoice.example.com"
    assert (verified.dropped, verified.unverified, verified.warnings, verified.ignored) == ((), (), (), ())
    assert (verified.valid_from, verified.valid_until) == (NOW - 5, NOW + 100)


def test_an_interface_that_is_not_encrypted_is_a_warning() -> None:
    card = full_card()
    card["supportedInterfaces"].append({"url": "http://invoice.example.com/rpc", "protocolBinding": "JSONRPC"})
    trust = TrustStore([trusted(ALICE, "*.example.com")])
    (warning,) = verify(sign_card(card, ALICE).card, trust, origin="invoice.example.com").warnings
    assert warning.startswith(f"not encrypted: /supportedInterfaces/{len(card['supportedInterfaces']) - 1}/url; ")


@walk("host", ["localhost:8000", "127.0.0.1", "[::1]:1"])
def test_what_does_not_leave_this_machine_is_none(host: str) -> None:
    card = {**full_card(), "supportedInterfaces": [{"url": f"http://{host}/rpc", "protocolBinding": "JSONRPC"}]}
    trust = TrustStore([trusted(ALICE, host.removesuffix(":8000").removesuffix(":1"))])
    assert verify(sign_card(card, ALICE).card, trust, origin=f"http://{host}").warnings == ()


def test_one_key_of_first_use_makes_it_a_proof_of_first_use() -> None:
    card = sign_card(full_card(), ALICE, BOB).card
    for firsts in ((False, False), (True, False), (True, True)):
        trust = TrustStore(
            trusted(signer, on_first_use=first) for signer, first in zip((ALICE, BOB), firsts, strict=True)
        )
        assert verify(card, trust, policy=all_of("alice", "bob")).on_first_use is any(firsts)


def test_the_card_is_read_anew_each_time_and_the_proof_cannot_be_changed() -> None:
    verified = verify(sign_card(full_card(), ALICE).card, trust_in(ALICE))
    verified.card["name"] = "another"
    verified.card["skills"].clear()
    assert verified.card == full_card()
    with pytest.raises(dataclasses.FrozenInstanceError):
        verified.payload = b"{}"  # type: ignore[misc]


def test_bytes_and_parsed_objects_are_verified_alike() -> None:
    card = sign_card(many_formed_card(), ALICE).card
    from_bytes = verify(served(card), trust_in(ALICE))
    for document in (card, MappingProxyType(card)):
        assert verify_card(document, trust_in(ALICE), origin=ANYWHERE, now=NOW) == from_bytes


@walk("document", ["{}", None, 1, [], bytearray(b"{}")], ids=lambda value: type(value).__name__)
def test_only_bytes_and_mappings_are_verified(document: Any) -> None:
    with pytest.raises(ConfigurationError, match="as the bytes that were served, as a Path or as a dict"):
        verify_card(document, trust_in(ALICE), origin=ANYWHERE, now=NOW)


@walk(
    ("wrong", "fix"),
    [
        ({"trust": None}, "the second argument must be a TrustStore"),
        ({"trust": [trusted(ALICE)]}, "the second argument must be a TrustStore"),
        ({"policy": "alice"}, "policy: write named"),
        ({"policy": named("carol")}, "no trust entry has the name 'carol'"),
        ({"policy": named(ALICE.public_key.thumbprint)}, ""),
        ({"coverage": Coverage}, "coverage: write Coverage"),
    ],
)
def test_an_argument_that_could_demand_nothing_is_a_mistake(wrong: dict[str, Any], fix: str) -> None:
    given: dict[str, Any] = {"trust": trust_in(ALICE), "origin": ANYWHERE, "now": NOW, **wrong}
    card = sign_card(full_card(), ALICE).card
    if not fix:
        assert verify_card(card, **given).key == ALICE.public_key
        return
    with pytest.raises(ConfigurationError, match=fix):
        verify_card(card, **given)


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
    verified = verify(text.encode(), trust_in(ALICE))
    assert verified.payload == canonicalize(card)


def test_an_integer_beyond_53_bits_is_verified_as_the_double_that_it_is() -> None:
    card = {**full_card(), "x-vendor": 2**53 + 1}
    verified = verify(signed_in(card, Form.SERVED, ALICE), trust_in(ALICE))
    assert verified.card["x-vendor"] == 2**53


# --- the gate and the list of signatures


@walk(
    "document",
    [b"", b"[]", b"null", b"\xef\xbb\xbf{}", b'{"name":"a","name":"a"}', b'{"Name":"a"}', b'{"name":1}', b"{}{}"],
)
def test_what_does_not_pass_the_gate_is_malformed_before_any_signature(document: bytes) -> None:
    with pytest.raises(MalformedError, match=r"^card: "):
        verify(document, trust_in(ALICE))


@walk("signatures", [None, [], {}, "", "x", 0, False, {"protected": "x", "signature": "y"}], ids=repr)
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
    verified = verify({**full_card(), "signatures": [*JUNK, *good]}, trust_in(ALICE))
    assert [failure.reason for failure in verified.ignored] == [FailureReason.MALFORMED] * len(JUNK)
    assert [failure.index for failure in verified.ignored] == list(range(len(JUNK)))
    assert verify({**full_card(), "signatures": [*good, *JUNK]}, trust_in(ALICE)).card == full_card()
    assert reasons({**full_card(), "signatures": JUNK}, trust_in(ALICE)) == [FailureReason.MALFORMED] * len(JUNK)


# --- coverage


@pytest.mark.parametrize("form", [Form.PRUNED, Form.PRUNED_LEGACY])
def test_a_pruned_proof_says_what_it_cannot_prove_even_when_nothing_is_missing(form: Form) -> None:
    card = signed_in(full_card(), form, ALICE)
    verified = verify(card, TrustStore([trusted(ALICE, signer=PYTHON)]))
    assert verified.form is form  # of forms with equal bytes the one that proves least
    assert (verified.dropped, verified.unverified) == ((), UNVERIFIED_BY_PRUNING)
    assert any(f"in the form {form}" in warning for warning in verified.warnings)


def test_members_that_the_spec_form_drops_too_are_covered_and_others_are_not() -> None:
    trust = TrustStore([trusted(ALICE, signer=JS)])
    covered: Card = {
        "securitySchemes": {},
        "securityRequirements": [],
        "documentationUrl": None,
        "capabilities": {"streaming": True, "extensions": []},
    }
    verified = verify(signed_in({**full_card(), **covered}, Form.PRUNED, ALICE), trust)
    assert set(verified.dropped) == {
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
    for coverage in ({}, {"coverage": Coverage.WHOLE_CARD}):
        with pytest.raises(UncoveredFieldsError) as error:
            verify(card, trust, **coverage)
        assert set(error.value.pointers) == {
            "/x-vendor",
            "/url",
            "/description",
            "/securityRequirements",
        }
        assert "/securityRequirements" in str(error.value)
    verified = verify(card, trust, coverage=Coverage.SIGNED_PART_ONLY)
    assert set(verified.dropped) == {*error.value.pointers, "/documentationUrl", "/capabilities/extensions"}
    assert verified.card.keys().isdisjoint({"x-vendor", "url", "securityRequirements", "description"})
    assert verified.unverified == UNVERIFIED_BY_PRUNING


def test_an_unverified_card_tells_the_other_failures_too_and_its_text_is_short() -> None:
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
    verified = verify(text, trust_in(ALICE))
    assert len(verified.payload) > 4_000_000
    assert verified.card["capabilities"]["extensions"][0]["params"]["n"][:1] == [10**20]
