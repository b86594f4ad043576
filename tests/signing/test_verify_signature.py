"""Verifying one signature of a card: it counts, or a failure tells why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from a2a_trust.base.dates import CLOCK_SKEW
from a2a_trust.base.strict_json.jcs import canonicalize
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    FailureReason,
    PartialSignatureError,
    UntrustedCardError,
)
from a2a_trust.keys.jwk import public_key_from_object
from a2a_trust.keys.signer import LocalSigner, generate_signer
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.policy import all_of
from a2a_trust.keys.trust.store import SigningTool, TrustedKey, TrustStore
from a2a_trust.signing.forms import UNVERIFIED_BY_PRUNING, Form
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.signature import content_type
from a2a_trust.signing.verify import Coverage
from tests.signing.cards import Card, full_card, legacy_card, many_formed_card, merged_card
from tests.signing.making import (
    ANYWHERE,
    NOW,
    entry,
    header_of,
    header_text,
    reasons,
    signed_in,
    trust_in,
    trusted,
    verify,
)
from tests.tables import walk

ALICE, BOB = (generate_signer(kid=name) for name in ("alice", "bob"))
PYTHON, JS, WHOLE, OURS = SigningTool.A2A_PYTHON, SigningTool.A2A_JS, SigningTool.WHOLE, SigningTool.A2A_TRUST


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
        (entry(BOB, payload, alg="HS256"), FailureReason.UNKNOWN_KEY),
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


def test_companions_never_count_whatever_the_trust_entry_says() -> None:
    made = sign_card(many_formed_card(), ALICE, companion=True)
    assert [header_of(each)["cty"] for each in made.card["signatures"]] == [
        content_type(Form.SPEC),
        content_type(Form.PRUNED),
    ]
    full, companion = made.card["signatures"]
    verified = verify(made.card, TrustStore([trusted(ALICE, signer=PYTHON)]))
    assert [failure.reason for failure in verified.ignored] == [FailureReason.COMPANION]
    alone = {**made.card, "signatures": [companion]}
    for trust in (trust_in(ALICE), TrustStore([trusted(ALICE, signer=PYTHON)])):
        with pytest.raises(UntrustedCardError):
            verify(alone, trust, coverage=Coverage.SIGNED_PART_ONLY)
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


# --- times


def test_a_key_is_valid_from_its_beginning_until_just_before_its_end() -> None:
    card = sign_card(full_card(), ALICE).card
    trust = TrustStore([trusted(ALICE, not_before=NOW, not_after=NOW + 10)])
    for moment in (NOW, NOW + 9.999):
        verified = verify(card, trust, now=moment)
        assert (verified.valid_from, verified.valid_until) == (NOW, NOW + 10)
    for moment in (NOW - 0.001, NOW + 10, float("nan"), float("inf"), float("-inf")):
        assert reasons(card, trust, now=moment) == [FailureReason.KEY_NOT_VALID_NOW]


def test_a_signature_holds_from_its_iat_less_the_skew_until_just_before_its_exp() -> None:
    card = sign_card(full_card(), ALICE, iat=NOW, exp=NOW + 10).card
    for moment in (NOW - CLOCK_SKEW, NOW, NOW + 9.999):
        verified = verify(card, trust_in(ALICE), now=moment)
        assert (verified.valid_from, verified.valid_until) == (NOW - CLOCK_SKEW, NOW + 10)
    assert reasons(card, trust_in(ALICE), now=NOW + 10) == [FailureReason.EXPIRED]
    assert reasons(card, trust_in(ALICE), now=NOW - CLOCK_SKEW - 0.001) == [FailureReason.NOT_YET_VALID]


def test_a_clock_may_be_a_minute_behind() -> None:
    assert CLOCK_SKEW == 60


def test_a_card_is_as_old_as_the_oldest_signature_that_counts() -> None:
    both = all_of("alice", "bob")
    for iats, issued in (((NOW - 5, NOW - 3), NOW - 5), ((NOW - 5, False), None), ((False, False), None)):
        signatures = [
            sign_card(full_card(), signer, iat=iat).card["signatures"][0]
            for signer, iat in zip((ALICE, BOB), iats, strict=True)
        ]
        card = {**full_card(), "signatures": signatures}
        assert verify(card, trust_in(ALICE, BOB), policy=both).issued == issued


def test_an_exp_in_the_unprotected_header_means_nothing() -> None:
    card = sign_card(full_card(), ALICE).card
    card["signatures"][0]["header"] = {"exp": 1}
    assert verify(card, trust_in(ALICE)).valid_until == float("inf")


def test_the_moment_may_be_a_datetime_that_knows_its_zone() -> None:
    card = sign_card(full_card(), ALICE, exp=NOW).card
    assert verify(card, trust_in(ALICE), now=datetime.fromtimestamp(NOW - 1, UTC)).valid_until == NOW
    assert reasons(card, trust_in(ALICE), now=datetime.fromtimestamp(NOW, UTC)) == [FailureReason.EXPIRED]
    with pytest.raises(ConfigurationError, match="time zone"):
        verify(card, trust_in(ALICE), now=datetime(2027, 1, 1))  # noqa: DTZ001


def test_of_several_keys_the_proof_holds_while_all_of_them_hold() -> None:
    card = sign_card(full_card(), ALICE, BOB).card
    trust = TrustStore([trusted(ALICE, not_before=NOW - 9, not_after=NOW + 5), trusted(BOB, not_before=NOW - 3)])
    verified = verify(card, trust, policy=all_of("alice", "bob"))
    assert (verified.valid_from, verified.valid_until) == (NOW - 3, NOW + 5)


# --- origins


def test_a_card_is_verified_for_the_hosts_of_its_key_only() -> None:
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


@walk(
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
        if url.startswith(
            ("https://evil.example/", "https://evil.example#", "https://invoice.example.com.evil.example/")
        ):
            assert verify(signed, trust_in(ALICE)).origin is None  # a key for every host
        else:  # no host for every reader
            assert reasons(signed, trust_in(ALICE)) == [FailureReason.WRONG_ORIGIN]


@walk("signer", [None, *SigningTool], ids=str)
def test_only_the_signer_a2a_python_may_write_the_type_of_a_token(signer: SigningTool | None) -> None:
    trust = TrustStore([trusted(ALICE, signer=signer)])
    for typ in ("JWT", "application/jwt"):
        signed = signed_in(full_card(), Form.SERVED, ALICE, typ=typ)
        if signer is PYTHON:
            assert verify(signed, trust).key == ALICE.public_key
        else:
            assert reasons(signed, trust) == [FailureReason.MALFORMED]
        marked = signed_in(full_card(), Form.SERVED, ALICE, typ=typ, cty=content_type(Form.SERVED))
        assert reasons(marked, trust) == [FailureReason.MALFORMED]


@walk("url", ["mailto:a@invoice.example.com", "dns:///invoice.example.com", "ftp://invoice.example.com"])
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
        verified = verify(card, trust, origin=origin)
        assert verified.origin is None
        assert [warning for warning in verified.warnings if warning.startswith("origin: not bound")]
    assert verify(card, bound_key, origin="https://invoice.example.com").warnings == ()


def test_one_unbound_key_among_those_counted_leaves_the_proof_unbound() -> None:
    card = sign_card(full_card(), ALICE, BOB).card
    trust = TrustStore([trusted(ALICE, "*.example.com"), trusted(BOB)])
    verified = verify(card, trust, origin="https://invoice.example.com", policy=all_of("alice", "bob"))
    assert verified.origin is None


def test_one_kid_may_be_different_keys_for_different_hosts() -> None:
    here, there = generate_signer(kid="main"), generate_signer(kid="main")
    trust = TrustStore([trusted(here, "*.example.com"), trusted(there, "*.example.org")])
    card = sign_card(full_card(), here).card
    assert verify(card, trust, origin="https://invoice.example.com").key == here.public_key
    assert reasons(card, trust, origin="https://a.example.org") == [FailureReason.BAD_SIGNATURE]
    assert verify(card, trust, origin=ANYWHERE).key == here.public_key  # the signature says which key made it
    assert reasons(card, trust, origin="https://a.example.net") == [FailureReason.WRONG_ORIGIN]


def test_of_several_keys_of_one_kid_the_one_that_signed_says_why_it_does_not_count() -> None:
    signed, other = generate_signer(kid="main"), generate_signer(kid="main")
    card = {**full_card(), "signatures": [entry(signed, canonicalize(full_card()))]}
    partial, revoked = trusted(signed, signer=None), trusted(signed, revoked=True)
    for entries, reason in (
        ((partial, trusted(other)), FailureReason.PARTIAL),
        ((partial, trusted(other, revoked=True)), FailureReason.PARTIAL),
        ((revoked, trusted(other)), FailureReason.REVOKED_KEY),
    ):
        for order in (entries, entries[::-1]):
            assert reasons(card, TrustStore(order)) == [reason]


@walk("origin", ["", "/x", "https://", "https://a b", "https://ä.example", "a@b", None, 1, b"x"])
def test_an_origin_that_is_no_host_is_a_mistake(origin: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^origin: write the URL or host"):
        verify(sign_card(full_card(), ALICE).card, trust_in(ALICE), origin=origin)


# --- forms


#: How a trust entry takes an unmarked signature over each form of a card in which every form has other bytes.
TAKEN: dict[Form, dict[SigningTool | None, bool]] = {
    # tool -> whether the proof is whole; a tool that is absent is refused
    Form.SERVED: {None: True, PYTHON: True, JS: True, WHOLE: True},
    Form.SPEC: {None: True, PYTHON: True, JS: True, WHOLE: True},
    Form.PRUNED: {PYTHON: False, JS: False},
    Form.PRUNED_LEGACY: {PYTHON: False},
    Form.V0_3_PYTHON: {PYTHON: False},
}


@walk("form", Form)
@walk("tool", [None, *SigningTool])
def test_an_unmarked_signature_counts_as_its_trust_entry_says(form: Form, tool: SigningTool | None) -> None:
    made = legacy_card() if form is Form.V0_3_PYTHON else many_formed_card()
    card = signed_in({**made, "name": "é"}, form, ALICE)
    trust = TrustStore([trusted(ALICE, signer=tool)])
    if tool not in TAKEN[form]:
        assert reasons(card, trust) == [FailureReason.PARTIAL]
        return
    verified = verify(card, trust, coverage=Coverage.SIGNED_PART_ONLY)
    assert (verified.form, verified.unverified == ()) == (form, TAKEN[form][tool])


@walk("form", [Form.SERVED, Form.SPEC])
@walk("tool", [None, *SigningTool])
def test_a_marked_signature_is_checked_in_its_own_form_only(form: Form, tool: SigningTool | None) -> None:
    trust = TrustStore([trusted(ALICE, signer=tool)])
    card = many_formed_card()
    verified = verify(signed_in(card, form, ALICE, cty=content_type(form)), trust)
    assert (verified.form, verified.unverified) == (form, ())
    for other in {*Form} - {form, Form.V0_3_PYTHON}:
        wrong = signed_in(card, other, ALICE, cty=content_type(form))
        assert reasons(wrong, trust, coverage=Coverage.SIGNED_PART_ONLY) == [FailureReason.BAD_SIGNATURE]


@walk(
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
    assert verify(card, TrustStore([trusted(ALICE, signer=WHOLE)])).unverified == ()


def test_the_form_of_0_3_proves_nothing_of_a_card_of_1_0() -> None:
    signed = signed_in(many_formed_card(), Form.V0_3_PYTHON, ALICE)
    trust = TrustStore([trusted(ALICE, signer=PYTHON)])
    assert reasons(signed, trust, coverage=Coverage.SIGNED_PART_ONLY) == [FailureReason.BAD_SIGNATURE]


def test_a_mark_in_the_unprotected_header_marks_nothing() -> None:
    card = signed_in(full_card(), Form.SPEC, ALICE)
    card["signatures"][0]["header"] = {"cty": content_type(Form.SPEC)}
    assert reasons(card, TrustStore([trusted(ALICE, signer=OURS)])) == [FailureReason.PARTIAL]


def test_a_partial_signature_is_refused_with_the_way_to_accept_it() -> None:
    card = signed_in(full_card(), Form.PRUNED, ALICE)
    with pytest.raises(PartialSignatureError, match='"a2a-python" or "a2a-js", or "whole"') as error:
        verify(card, TrustStore([trusted(ALICE, signer=None)]))
    assert error.value.code == "partial"
    with pytest.raises(PartialSignatureError, match="without the mark of a2a-trust"):
        verify(card, TrustStore([trusted(ALICE, signer=OURS)]))
    legacy = signed_in({**many_formed_card(), "name": "é"}, Form.PRUNED_LEGACY, ALICE)
    with pytest.raises(PartialSignatureError, match="in the form pruned-legacy, which a2a-js, the signer"):
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


@walk("name", EVIDENCE)
def test_a_signed_empty_value_shows_that_the_signer_drops_nothing(name: str) -> None:
    card = {**full_card(), **EVIDENCE[name]}
    for tool in (None, PYTHON, JS):
        verified = verify(signed_in(card, Form.SERVED, ALICE), TrustStore([trusted(ALICE, signer=tool)]))
        assert (verified.unverified, verified.card) == ((), card)


@walk("name", NO_EVIDENCE)
def test_other_values_show_nothing_about_the_signer(name: str) -> None:
    card = signed_in({**full_card(), **NO_EVIDENCE[name]}, Form.SERVED, ALICE)
    assert reasons(card, TrustStore([trusted(ALICE, signer=None)])) == [FailureReason.PARTIAL]
    assert verify(card, TrustStore([trusted(ALICE, signer=WHOLE)])).unverified == ()
    for tool in (PYTHON, JS):
        assert verify(card, TrustStore([trusted(ALICE, signer=tool)])).unverified == UNVERIFIED_BY_PRUNING


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
        assert verify(card, unmarked).unverified == ()
    full_or_unknown: list[Card] = [
        {"security": [{"bearer": ["read"]}]},
        {"authentication": {"schemes": []}},
        {"x": ""},
    ]
    for member in full_or_unknown:
        assert reasons(signed_in({**full, **member}, Form.SERVED, ALICE), unmarked) == [FailureReason.PARTIAL]


def test_the_spec_form_of_a_card_that_is_served_with_defaults_proves_all_that_says_something() -> None:
    card = signed_in(many_formed_card(), Form.SPEC, ALICE)
    verified = verify(card, trust_in(ALICE))
    assert verified.form is Form.SPEC
    assert sorted(verified.dropped) == [
        "/capabilities/extensions",
        "/documentationUrl",
        "/securityRequirements/0/schemes/bearer/list",
    ]
    assert (verified.unverified, verified.card["capabilities"]) == ((), {"streaming": False})
    assert verified.card["securityRequirements"] == [{"schemes": {"bearer": {}}}]
