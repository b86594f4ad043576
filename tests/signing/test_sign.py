"""Signing a card: a new card whose signatures every verifier can check, and the old one as it was."""

from __future__ import annotations

import copy
import json
import time
from collections import OrderedDict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given
from joserfc import jws
from joserfc.errors import UnsupportedHeaderError
from joserfc.jwk import ECKey

from a2a_trust.base.strict_json import MAX_BYTES
from a2a_trust.base.strict_json.jcs import canonicalize, canonicalize_received
from a2a_trust.card.ambiguity import read_quickly
from a2a_trust.errors import ConfigurationError, MalformedError, SigningError
from a2a_trust.keys import base64url
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.signer import LocalSigner, generate_signer
from a2a_trust.keys.trust.policy import all_of
from a2a_trust.signing.forms import Form, project
from a2a_trust.signing.sign import _add_signatures, check_served, sign_card
from a2a_trust.signing.signature import MAX_SIGNATURES, content_type
from a2a_trust.signing.verify import verify_card
from tests.jws import verify_jws
from tests.signing.cards import Card, cards, full_card, legacy_card, many_formed_card, merged_card
from tests.signing.making import ANYWHERE, entry, header_of, served, signed_in, trust_in
from tests.tables import walk

NOW = 1_800_000_000.0
ALICE, BOB, CAROL = (generate_signer(kid=name) for name in ("alice", "bob", "carol"))


def unsigned(card: Card) -> Card:
    return {name: value for name, value in card.items() if name != "signatures"}


def kids(card: Card) -> list[str]:
    return [header_of(signature)["kid"] for signature in card["signatures"]]


@walk("card", [full_card(), many_formed_card(), legacy_card(), merged_card()], ids=lambda c: c["name"])
def test_a_signed_card_verifies_as_it_is_served_and_says_what_was_signed(card: Card) -> None:
    made = sign_card(card, ALICE)
    verified = verify_card(served(made.card), trust_in(ALICE), origin=ANYWHERE, now=NOW)
    assert verified.payload == made.payload == canonicalize(unsigned(made.card))
    assert verified.card == unsigned(made.card)
    form = Form.SERVED if card == legacy_card() else Form.SPEC
    assert (verified.form, verified.dropped, verified.unverified) == (form, (), ())


@given(cards)
def test_every_card_that_passes_the_gate_can_be_signed_and_verified(card: Card) -> None:
    before = copy.deepcopy(card)
    made = sign_card(card, ALICE)
    verified = verify_card(served(made.card), trust_in(ALICE), origin=ANYWHERE, now=NOW)
    assert verified.dropped == ()
    # A double of 2**53 and more is printed as an integer, which only a reader of canonical JSON takes back.
    assert canonicalize_received(verified.card) == canonicalize(unsigned(made.card)) == made.payload
    assert repr(card) == repr(before)
    # Signing what was signed changes nothing but the signatures.
    again = sign_card(made.card, ALICE)
    assert (again.payload, again.normalized) == (made.payload, ())
    assert len(again.card["signatures"]) == len(made.card["signatures"])


@walk("card", [full_card(), many_formed_card(), legacy_card()], ids=lambda c: c["name"])
def test_the_card_that_was_given_is_unchanged_and_shares_nothing_with_the_new_one(card: Card) -> None:
    before = copy.deepcopy(card)
    made = sign_card(card, ALICE)
    assert repr(card) == repr(before)

    def spoil(item: Any) -> None:
        for child in list(item.values()) if type(item) is dict else item:
            if type(child) in (dict, list):
                spoil(child)
        item.clear()

    spoil(made.card)
    assert repr(card) == repr(before)


def test_bytes_and_objects_are_signed_alike() -> None:
    card = many_formed_card()
    from_object, from_bytes = sign_card(card, ALICE), sign_card(served(card), ALICE)
    assert from_object.payload == from_bytes.payload
    assert unsigned(from_object.card) == unsigned(from_bytes.card)
    assert sign_card(MappingProxyType(card), ALICE).payload == from_object.payload
    assert sign_card(OrderedDict(card), ALICE).payload == from_object.payload


def test_the_order_of_members_is_kept_and_signatures_come_last_or_where_they_stood() -> None:
    card = many_formed_card()
    card = {name: card[name] for name in sorted(card, reverse=True)}
    card["skills"][0] = {name: card["skills"][0][name] for name in sorted(card["skills"][0], reverse=True)}
    for document in (card, served(card)):
        made = sign_card(document, ALICE).card
        assert list(made) == [*(name for name in card if name in made), "signatures"]
        assert list(made["skills"][0]) == list(card["skills"][0])
    middle = {"name": "x", "signatures": [], "version": "1"}
    assert list(sign_card(middle, ALICE).card) == ["name", "signatures", "version"]
    assert list(sign_card({"signatures": None, "name": "x"}, ALICE).card) == ["signatures", "name"]


def test_what_the_specification_drops_is_dropped_and_told() -> None:
    made = sign_card(many_formed_card(), ALICE)
    assert sorted(made.normalized) == [
        "/capabilities/extensions",
        "/documentationUrl",
        "/securityRequirements/0/schemes/bearer/list",
    ]
    assert made.card["capabilities"] == {"streaming": False}
    assert made.card["securityRequirements"] == [{"schemes": {"bearer": {}}}]
    assert "documentationUrl" not in made.card
    assert made.card["description"] == ""  # REQUIRED: it stays
    assert made.payload == project(many_formed_card(), Form.SPEC).payload
    assert any("/capabilities/extensions" in note for note in made.notes)


def test_a_card_of_one_form_with_an_end_gets_one_signature_and_no_notes() -> None:
    made = sign_card(full_card(), ALICE, lifetime=60)
    assert len(made.card["signatures"]) == 1
    assert (made.companion, made.left_open, made.rejections, made.normalized, made.notes) == (None, (), (), (), ())
    assert unsigned(made.card) == full_card()


def test_a_companion_on_request_names_itself_and_comes_second() -> None:
    made = sign_card(many_formed_card(), ALICE, companion=True)
    assert made.companion is Form.PRUNED
    assert made.left_open == project(made.card, Form.PRUNED).dropped != ()
    full, companion = made.card["signatures"]
    assert header_of(full)["cty"] == "application/json;a2a-form=spec"
    assert header_of(companion)["cty"] == "application/json;a2a-form=pruned"
    assert "crit" not in header_of(companion)
    pruned = project(made.card, Form.PRUNED).payload
    for payload, signature in ((made.payload, full), (pruned, companion)):
        parts = {"protected": signature["protected"], "signature": signature["signature"]}
        assert verify_jws(**parts, payload=payload, key=ALICE.public_key)["kid"] == "alice"
    assert pruned != made.payload


def test_there_is_no_companion_over_nothing() -> None:
    made = sign_card({"x-vendor": 1, "name": ""}, ALICE)
    assert made.companion is None
    assert len(made.card["signatures"]) == 1


def test_a_card_of_0_3_is_signed_as_it_is_and_its_companion_is_never_pruned() -> None:
    card = legacy_card()
    made = sign_card(card, ALICE, companion=True)
    assert unsigned(made.card) == card
    assert (made.normalized, made.companion) == ((), Form.V0_3_PYTHON)
    assert made.payload == canonicalize(card)
    projection = project(card, Form.V0_3_PYTHON)
    assert made.left_open == projection.dropped
    marks = [content_type(Form.SERVED), content_type(Form.V0_3_PYTHON)]
    assert [header_of(signature)["cty"] for signature in made.card["signatures"]] == marks
    companion = made.card["signatures"][1]
    parts = {"protected": companion["protected"], "signature": companion["signature"]}
    assert verify_jws(**parts, payload=projection.payload, key=ALICE.public_key)["kid"] == "alice"


def test_a_card_of_0_3_that_its_sdk_cannot_read_gets_no_companion_and_the_note_says_why() -> None:
    card = legacy_card()
    del card["skills"]
    made = sign_card(card, ALICE)
    assert (made.companion, made.left_open, len(made.card["signatures"])) == (None, (), 1)
    note, _ = made.notes
    assert note.startswith("rejected by a2a-python 0.3: ")
    assert "/skills, so no companion" in note


def test_the_note_of_a_companion_names_what_others_can_strip_requirements_first() -> None:
    card = full_card()
    card |= {
        "x-vendor": 1,
        "securitySchemes": {**card["securitySchemes"], "tls": {"mtlsSecurityScheme": {}}},
        "securityRequirements": [{"schemes": {"tls": {}}}],
    }
    card["skills"][0]["securityRequirements"] = [{"schemes": {"tls": {}}}]
    (note,) = sign_card(card, ALICE, companion=True, lifetime=60).notes
    places = [
        note.index(f": {text}.")
        for text in (
            "/securityRequirements, /skills/0/securityRequirements",
            "/securitySchemes/tls",
            "/x-vendor",
        )
    ]
    assert places == sorted(places)
    assert "(without them clients send no credentials): /securityRequirements" in note
    assert "a2a-python and a2a-js" in note
    assert "companion=False" in note
    assert "--no-companion" not in note


@walk("card", [many_formed_card(), legacy_card(), merged_card()], ids=lambda c: c["name"])
def test_a_companion_is_a_choice_and_the_note_says_who_rejects_the_card_without_it(card: Card) -> None:
    full = sign_card(card, ALICE, companion=True)
    made = sign_card(card, ALICE, companion=False)
    assert full.companion is not None
    assert (made.companion, made.left_open) == (None, ())
    assert made.payload == full.payload
    assert [header_of(signature)["cty"] for signature in made.card["signatures"]] == [
        header_of(full.card["signatures"][0])["cty"]
    ]
    readers = "a2a-python 0.3" if full.companion is Form.V0_3_PYTHON else "a2a-python and a2a-js"
    assert made.rejections == (
        f"rejected by {readers}: signed without a companion signature in the {full.companion} form",
    )


def test_by_default_only_a_companion_that_leaves_no_security_member_open_is_added() -> None:
    harmless = sign_card({**full_card(), "description": "", "x-vendor": 1}, ALICE)
    assert (harmless.companion, harmless.withheld_for) == (Form.PRUNED, ())
    assert harmless.left_open == ("/description", "/x-vendor")
    made = sign_card(many_formed_card(), ALICE)
    assert (made.companion, made.left_open, len(made.card["signatures"])) == (None, (), 1)
    assert made.withheld_for == ("/securityRequirements",)
    rejection, way_out = made.notes[1:3]
    assert made.rejections == (rejection,)
    assert rejection == (
        "rejected by a2a-python and a2a-js: no companion signature was added, because it would not protect "
        "/securityRequirements"
    )
    assert "sign with companion=True; or give the card one form, with a scope in each requirement" in way_out
    assert "Give existing keys that scope first" in way_out
    assert "--" not in way_out


def test_by_default_cards_of_0_3_get_no_companion_that_leaves_their_requirements_open() -> None:
    made = sign_card(legacy_card(), ALICE)
    assert made.companion is None
    assert made.withheld_for == ("/securitySchemes", "/skills/*/security", "/security")
    assert made.rejections[0].startswith("rejected by a2a-python 0.3: ")


def test_a_card_that_needs_no_companion_is_the_same_without_one() -> None:
    assert sign_card(full_card(), ALICE, companion=False, lifetime=60).notes == ()
    legacy = {
        "name": "agent",
        "description": "Adds.",
        "url": "https://old.example.com/a2a",
        "version": "1",
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "add", "name": "Add", "description": "Adds.", "tags": ["sum"]}],
    }
    for companion in (None, True):
        made = sign_card(legacy, ALICE, companion=companion)
        assert (made.companion, made.rejections, len(made.card["signatures"])) == (None, (), 1)


def test_the_note_tells_when_a2a_python_rewrites_the_card() -> None:
    card = {**full_card(), "security": [{"oauth": ["read"]}]}
    del card["securityRequirements"]
    made = sign_card(card, ALICE)
    rejection, _ = made.rejections
    assert rejection.startswith("rejected by a2a-python 1.3: ")
    assert "(/security)" in rejection
    assert rejection in made.notes


def test_a_merged_card_is_signed_with_the_members_of_both_generations() -> None:
    made = sign_card(merged_card(), ALICE, companion=True)
    assert json.loads(made.payload) == merged_card()
    assert made.companion is Form.PRUNED  # SDKs of 1.0 do not see the members of 0.3


def test_every_signer_signs_the_full_form_before_any_companion() -> None:
    made = sign_card(many_formed_card(), ALICE, BOB, companion=True)
    assert [(header_of(item)["kid"], header_of(item)["cty"]) for item in made.card["signatures"]] == [
        (kid, content_type(form)) for form in (Form.SPEC, Form.PRUNED) for kid in ("alice", "bob")
    ]
    verified = verify_card(
        served(made.card), trust_in(ALICE, BOB), origin=ANYWHERE, now=NOW, policy=all_of("alice", "bob")
    )
    assert {key.kid for key in verified.keys} == {"alice", "bob"}


def test_signing_again_replaces_the_own_signatures_and_keeps_those_of_others_in_place() -> None:
    card = sign_card(many_formed_card(), ALICE, BOB, CAROL, companion=True).card
    others = [item for item in card["signatures"] if header_of(item)["kid"] != "bob"]
    again = sign_card(card, BOB, iat=NOW, companion=True)
    assert again.card["signatures"][:4] == others
    assert kids(again.card) == ["alice", "carol", "alice", "carol", "bob", "bob"]
    assert [header_of(item).get("iat") for item in again.card["signatures"][4:]] == [NOW, NOW]
    verify_card(
        served(again.card),
        trust_in(ALICE, BOB, CAROL),
        origin=ANYWHERE,
        now=NOW,
        policy=all_of("alice", "bob", "carol"),
    )


def test_entries_that_are_not_signatures_are_dropped_and_those_that_cannot_be_read_belong_to_others() -> None:
    junk: list[Any] = [None, 1, "x", [], {}, {"protected": "a"}, {"signature": "a"}, {"protected": 1, "signature": "a"}]
    others: list[Any] = [
        {"protected": "!", "signature": ""},
        {"protected": "e30", "signature": "AA", "header": 1},
        *signed_in(full_card(), Form.SERVED, BOB)["signatures"],
    ]
    made = sign_card({**full_card(), "signatures": [others[0], *junk, *others[1:]]}, ALICE, lifetime=60)
    assert made.card["signatures"][:-1] == others
    assert kids({"signatures": made.card["signatures"][-1:]}) == ["alice"]
    assert made.discarded == len(junk)
    assert made.notes == (
        "dropped 8 of the entries in signatures: a signature is an object with the strings protected and signature",
    )
    assert sign_card({**full_card(), "signatures": others}, ALICE).discarded == 0


def test_what_is_not_a_signature_does_not_stop_a_card_from_being_normalized() -> None:
    made = sign_card({**many_formed_card(), "signatures": [None, {"protected": "e30"}]}, ALICE)
    assert set(kids(made.card)) == {"alice"}


def test_signatures_of_others_that_normalizing_may_break_are_an_error_unless_they_are_given_up() -> None:
    card = signed_in(many_formed_card(), Form.SERVED, BOB)
    before = copy.deepcopy(card)
    with pytest.raises(SigningError, match=r"/capabilities/extensions.*drop_broken"):
        sign_card(card, ALICE)
    assert card == before
    made = sign_card(card, ALICE, drop_broken=True)
    assert set(kids(made.card)) == {"alice"}


def test_signatures_of_others_stay_when_nothing_is_dropped_whatever_is_allowed() -> None:
    card = signed_in(full_card(), Form.SERVED, BOB)
    assert kids(sign_card(card, ALICE, drop_broken=True).card) == ["bob", "alice"]


def test_own_signatures_over_the_old_card_are_no_obstacle() -> None:
    card = signed_in(many_formed_card(), Form.SERVED, ALICE)
    assert kids(sign_card(card, ALICE, companion=True).card) == ["alice", "alice"]


@walk("signatures", [{}, "x", 1, True, {"protected": "x"}], ids=repr)
def test_signatures_that_are_no_list_are_refused(signatures: Any) -> None:
    with pytest.raises(MalformedError, match="/signatures: it must be a list"):
        sign_card({**full_card(), "signatures": signatures}, ALICE)


def test_more_signatures_than_verifiers_take_are_refused() -> None:
    card = signed_in(full_card(), Form.SERVED, *[generate_signer() for _ in range(MAX_SIGNATURES - 1)])
    full = sign_card(card, ALICE).card
    assert len(full["signatures"]) == MAX_SIGNATURES
    assert len(sign_card(full, ALICE).card["signatures"]) == MAX_SIGNATURES
    with pytest.raises(SigningError, match="more than 16 signatures"):
        sign_card(full, BOB)


def test_the_protected_header_holds_what_the_specification_names_in_canonical_form() -> None:
    made = sign_card(full_card(), ALICE)
    (signature,) = made.card["signatures"]
    assert base64url.decode(signature["protected"], "x") == (
        b'{"alg":"ES256","cty":"application/json;a2a-form=spec","iat":1600000000,"kid":"alice","typ":"JOSE"}'
    )
    assert signature.keys() == {"protected", "signature"}


def test_jku_iat_and_exp_are_protected_in_every_signature() -> None:
    settings: dict[str, Any] = {"jku": "https://a.example.com/jwks.json", "iat": NOW, "exp": NOW + 0.5}
    made = sign_card(many_formed_card(), ALICE, companion=True, **settings)
    for signature, form in zip(made.card["signatures"], (Form.SPEC, Form.PRUNED), strict=True):
        header = header_of(signature)
        assert header == {
            "cty": content_type(form),
            "alg": "ES256",
            "kid": "alice",
            "typ": "JOSE",
            "jku": "https://a.example.com/jwks.json",
            "iat": 1_800_000_000,
            "exp": 1_800_000_000.5,
        }
        assert type(header["iat"]) is int


def test_iat_is_now_unless_it_is_given_or_left_out() -> None:
    for iat, expected in ((None, 1_600_000_000), (NOW, NOW), (0, 0), (False, None)):
        made = sign_card(full_card(), ALICE, iat=iat)
        assert header_of(made.card["signatures"][0]).get("iat") == made.issued == expected
        assert any(note.startswith("signed without iat: ") for note in made.notes) is (iat is False)
    with pytest.raises(ConfigurationError, match="iat: leave it out for now"):
        sign_card(full_card(), ALICE, iat=True)


def test_a_signature_that_never_expires_is_in_the_notes() -> None:
    made = sign_card(full_card(), ALICE)
    assert (made.expires, "exp" in header_of(made.card["signatures"][0])) == (None, False)
    (note,) = made.notes
    assert note.startswith("the signature never expires: ")
    assert note.endswith("To set an end, sign with lifetime=…")
    assert sign_card(full_card(), ALICE, exp=NOW).notes == ()


@walk("lifetime", [3600, 3600.0, timedelta(hours=1)])
@walk(("iat", "begin"), [(None, 1_600_000_000), (NOW, NOW), (False, 1_600_000_000)])
def test_a_lifetime_counts_from_the_signing(lifetime: Any, iat: Any, begin: float) -> None:
    made = sign_card(full_card(), ALICE, iat=iat, lifetime=lifetime)
    exp = header_of(made.card["signatures"][0])["exp"]
    assert (exp, type(exp)) == (made.expires, int) == (begin + 3600, int)


@walk("lifetime", [59.9, 0, -1, float("nan"), timedelta(seconds=59), timedelta.min, True])
def test_a_lifetime_that_is_too_short_is_a_mistake(lifetime: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"lifetime: .* is too short; write 60 seconds or more"):
        sign_card(full_card(), ALICE, lifetime=lifetime)


def test_a_lifetime_beside_exp_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="exp and lifetime both say when the signatures expire"):
        sign_card(full_card(), ALICE, exp=NOW, lifetime=3600)


def test_joserfc_verifies_the_signature_with_the_registry_that_the_documentation_names() -> None:
    made = sign_card(full_card(), ALICE, lifetime=3600)
    value: Any = {**made.card["signatures"][0], "payload": base64url.encode(made.payload)}
    key = ECKey.import_key(dict(ALICE.public_key.to_jwk()))
    with pytest.raises(UnsupportedHeaderError, match="iat"):
        jws.deserialize_json(value, key, algorithms=["ES256"])
    registry = jws.JWSRegistry(strict_check_header=False)
    assert jws.deserialize_json(value, key, algorithms=["ES256"], registry=registry).payload == made.payload


def test_moments_may_be_datetimes_that_know_their_zone() -> None:
    made = sign_card(full_card(), ALICE, iat=datetime(2027, 1, 15, 8, tzinfo=UTC), exp=datetime(2028, 1, 1, tzinfo=UTC))
    header = header_of(made.card["signatures"][0])
    assert (header["iat"], header["exp"]) == (1_800_000_000, 1_830_297_600)
    with pytest.raises(ConfigurationError, match="time zone"):
        sign_card(full_card(), ALICE, exp=datetime(2028, 1, 1))  # noqa: DTZ001


@walk(
    "times",
    [{"exp": 0}, {"exp": -1}, {"iat": NOW, "exp": NOW}, {"iat": NOW, "exp": NOW - 1}],
    ids=repr,
)
def test_a_signature_that_would_never_be_valid_is_a_mistake(times: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="exp must be later than iat"):
        sign_card(full_card(), ALICE, **times)


@walk("name", ["iat", "exp"])
@walk("value", [float("nan"), float("inf"), 1e300], ids=repr)
def test_a_moment_that_is_no_moment_is_a_mistake(name: str, value: float) -> None:
    moments: dict[str, Any] = {name: value}
    with pytest.raises(ConfigurationError):
        sign_card(full_card(), ALICE, **moments)


def test_a_card_can_be_signed_for_later_and_after_its_end() -> None:
    # What is checked of the own work is the signature, not today's date.
    later = time.time() + 10**8
    assert header_of(sign_card(full_card(), ALICE, iat=later).card["signatures"][0])["iat"] == later
    assert header_of(sign_card(full_card(), ALICE, iat=1, exp=2).card["signatures"][0])["exp"] == 2


@walk(
    "jku",
    [
        "",
        "http://a.example.com/jwks.json",
        "file:///etc/passwd",
        "data:application/json,{}",
        "a.example.com/jwks.json",
        "a.example.com:443",
        "//a.example.com/jwks.json",
        "https://",
        "https:///jwks.json",
        "https://user@a.example.com/jwks.json",
        "https://a.example.com/jwks.json#key",
        "https://a.example.com/jwks json",
        "https://a.example.com\\jwks.json",
        "https://ä.example.com/jwks.json",
        "https://[::1/jwks.json",
    ],
)
def test_a_jku_that_is_no_plain_https_url_is_a_mistake(jku: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^jku: write the https URL"):
        sign_card(full_card(), ALICE, jku=jku)


class Faulty:
    """A signer that gives back whatever it was made with."""

    def __init__(self, public_key: PublicKey, signature: bytes) -> None:
        self.public_key, self.alg, self.kid = public_key, public_key.alg, public_key.kid
        self.signature = signature

    def sign(self, data: bytes) -> bytes:
        return self.signature


class Der(Faulty):
    """A signer that signs with the right key and gives the signature as X.509 writes it."""

    def __init__(self, signer: LocalSigner) -> None:
        super().__init__(signer.public_key, b"")
        self.key = signer.private_key

    def sign(self, data: bytes) -> bytes:
        assert isinstance(self.key, ec.EllipticCurvePrivateKey)
        return self.key.sign(data, ec.ECDSA(SHA256()))


class Stranger(Faulty):
    """A signer whose private key is not the one of its public key."""

    def __init__(self, public: LocalSigner, private: LocalSigner) -> None:
        super().__init__(public.public_key, b"")
        self.private = private

    def sign(self, data: bytes) -> bytes:
        return self.private.sign(data)


@walk(
    "signer",
    [
        Der(ALICE),
        Stranger(ALICE, BOB),
        Faulty(ALICE.public_key, b""),
        Faulty(ALICE.public_key, bytes(64)),
        Faulty(ALICE.public_key, b"\xff" * 64),
        Faulty(ALICE.public_key, bytes(63)),
        Faulty(ALICE.public_key, bytes(5_000)),
    ],
    ids=["DER", "another-key", "empty", "zeros", "ones", "short", "long"],
)
def test_a_signer_that_gives_a_wrong_signature_is_found_out(signer: Faulty) -> None:
    card = full_card()
    with pytest.raises(SigningError, match=r"signer 'alice' returned a signature that does not verify.*not DER"):
        sign_card(card, BOB, signer)
    assert card == full_card()


def test_a_signer_that_signs_only_the_companion_wrongly_is_found_out() -> None:
    class Tired(Faulty):
        def sign(self, data: bytes) -> bytes:
            self.signature, made = bytes(64), self.signature or ALICE.sign(data)
            return made

    with pytest.raises(SigningError, match="'alice' returned a signature that does not verify"):
        sign_card(many_formed_card(), Tired(ALICE.public_key, b""), companion=True)


@walk("limits", [{"revoked": True}, {"not_before": 1_600_000_001.0}, {"not_after": 1_600_000_000.0}], ids=str)
def test_a_key_that_is_not_valid_at_the_moment_of_the_signature_does_not_sign(limits: Any) -> None:
    signer = generate_signer()
    signer.public_key = replace(signer.public_key, **limits)
    for iat in (None, False, 1_600_000_000):
        with pytest.raises(SigningError, match="revoked or not valid at the moment"):
            sign_card(full_card(), signer, iat=iat)


def test_an_error_of_a_signer_is_not_hidden() -> None:
    class Broken(Faulty):
        def sign(self, data: bytes) -> bytes:
            raise OSError("the module does not answer")

    with pytest.raises(OSError, match="does not answer"):
        sign_card(full_card(), Broken(ALICE.public_key, b""))


def test_a_signer_that_contradicts_its_public_key_is_a_mistake() -> None:
    for name, value in (("alg", "ES384"), ("kid", "bob")):
        signer = Faulty(ALICE.public_key, b"")
        setattr(signer, name, value)
        with pytest.raises(ConfigurationError, match="must be the same as in its public_key"):
            sign_card(full_card(), signer)


def test_at_least_one_signer_and_each_under_its_own_name() -> None:
    with pytest.raises(ConfigurationError, match="at least one signer"):
        sign_card(full_card())
    with pytest.raises(ConfigurationError, match="same kid"):
        sign_card(full_card(), ALICE, generate_signer(kid="alice"))


def test_one_key_under_two_names_is_not_taken_for_two_signers() -> None:
    alias = LocalSigner(ALICE.private_key, kid="alias")
    with pytest.raises(ConfigurationError, match="have the same key"):
        sign_card(full_card(), ALICE, alias)


@walk("number", [2**53, -(2**53), 2**63, 10**30])
def test_integers_that_readers_round_are_not_signed(number: int) -> None:
    usual = full_card()
    usual["capabilities"]["extensions"] = [{"uri": "https://example.com/x", "params": {"n": [number]}}]
    for card in ({**full_card(), "x-vendor": number}, {"capabilities": usual["capabilities"]}, usual):
        for document in (card, served(card)):
            with pytest.raises(MalformedError, match="an integer is beyond"):
                sign_card(document, ALICE)


@walk("thing", [(1,), {1}, b"x", float("nan"), object()], ids=lambda thing: type(thing).__name__)
def test_an_object_that_is_not_json_is_refused(thing: Any) -> None:
    with pytest.raises(MalformedError, match="canonical form"):
        sign_card({**full_card(), "x-vendor": thing}, ALICE)


@walk("card", ["card.json", None, 1, [], bytearray(b"{}")], ids=lambda card: type(card).__name__)
def test_only_cards_are_signed(card: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"the first argument: (?:\w+|the text 'card\.json') is not a card"):
        sign_card(card, ALICE)


@walk(
    "document",
    [
        b"[]",
        b"null",
        b"",
        b'{"name":"a","name":"b"}',
        b'{"name":1}',
        b'{"iconUrl":"a","icon_url":"a"}',
        b'{"Name":"a"}',
    ],
)
def test_what_does_not_pass_the_gate_is_not_signed(document: bytes) -> None:
    with pytest.raises(MalformedError, match=r"^card: "):
        sign_card(document, ALICE)


def plain_card() -> Card:
    """A card without numbers, which is not read again after it was signed."""
    return {**full_card(), "capabilities": {"streaming": True}}


@walk("card", [{"name": ""}, {**plain_card(), "description": ""}], ids=len)
def test_a_card_that_its_signature_makes_too_large_for_verifiers_is_refused(card: Card) -> None:
    *_, last = {"name", "description"} & card.keys()
    card[last] = "x"
    missing = MAX_BYTES - len(orjson.dumps(sign_card(card, ALICE, companion=False).card))
    fits, is_too_large = ({**card, last: "x" * (1 + missing + more)} for more in (0, 1))
    assert len(orjson.dumps(sign_card(fits, ALICE, companion=False).card)) == MAX_BYTES
    with pytest.raises(MalformedError, match="more than the"):
        sign_card(is_too_large, ALICE, companion=False)


OTHERS = {"protected": "e30", "signature": "AA"}


@walk("signatures", [[], [OTHERS], [{**OTHERS, "header": {"x": 1.5}}]], ids=str)
@walk(
    "changes", [{}, {"capabilities": {}}, {"securityRequirements": [{"schemes": {"bearer": {"list": []}}}]}, {"x": 1}]
)
def test_readers_find_what_was_signed_in_the_signed_card(changes: Card, signatures: list[Card]) -> None:
    card = {**plain_card(), **changes, "signatures": signatures}
    made = sign_card(card, ALICE, drop_broken=True)
    check_served(read_quickly(served(made.card)), made)
    assert made.payload == canonicalize(unsigned(made.card))


def add_wrongly(*arguments: Any) -> Card:
    return {**_add_signatures(*arguments), "version": "another"}


@walk("card", [full_card(), plain_card(), {**plain_card(), "capabilities": {}}, {"x": 1, **full_card()}, legacy_card()])
def test_a_card_that_differs_from_the_signed_one_is_refused(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.signing.sign._add_signatures", add_wrongly)
    with pytest.raises(SigningError, match="differs from the card that was given"):
        sign_card(card, ALICE)


def test_signatures_by_hand_over_the_served_card_are_what_sign_card_makes() -> None:
    made = sign_card(full_card(), ALICE)
    by_hand = entry(ALICE, canonicalize(full_card()), cty=content_type(Form.SPEC), iat=made.issued)
    assert header_of(by_hand) == header_of(made.card["signatures"][0])
