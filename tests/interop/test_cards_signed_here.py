"""Cards that are signed here verify here and in the released SDKs, or stand in a table that says why not."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest

from a2a_trust import (
    CardVerificationError,
    MalformedError,
    TrustedKey,
    TrustStore,
    VerifiedCard,
    generate_signer,
    sign_card,
    verify_card,
)
from a2a_trust.errors import FailureReason, SigningError, UntrustedCardError
from a2a_trust.keys import LocalSigner, SigningTool, UnsafeAnyOrigin
from a2a_trust.keys.jwk import private_key_to_jwk
from a2a_trust.lint.linter import lint_card
from a2a_trust.signing import Form, SignedCard
from a2a_trust.signing.signature import content_type, parse_signature
from tests.interop.corpus import (
    COMPANION_ON_REQUEST,
    EVERYWHERE,
    NO_COMPANION_NEEDED,
    NO_COMPANION_NEEDED_IN_0_3,
    NOT_ASCII,
    ONLY_HERE,
    REFUSED_HERE,
    REWRITTEN_BY_THE_PYTHON_RESOLVER,
    STRIPPABLE_REQUIREMENTS,
    UNREAD_IN_0_3,
    WITHOUT_A_HOST,
    load_card,
)
from tests.interop.left_out import left_out
from tests.interop.made_cards import CANONICAL_TRAPS, EVERY_FIELD, EVERY_FIELD_AT_ITS_DEFAULT, card_with_params
from tests.interop.sdk_process import SdkProcess
from tests.tables import walk

NOT_SIGNED_PYTHON: Final = "InvalidSignaturesError"
NOT_SIGNED_JS: Final = "No valid signatures found on agent card."

#: Merged with unknown members and not ASCII; of one form; with a requirement without scopes.
HANDFUL: Final = ("018", "042", "101")

#: They come with the signature of the specification's sample, by a key that nobody has.
SIGNED_BY_STRANGERS: Final = ("038", "039", "041", "042", "066")

every_card = walk("number", EVERYWHERE)
with_companion = walk("number", [n for n in EVERYWHERE if n not in NO_COMPANION_NEEDED])


@pytest.fixture(scope="module")
def signer() -> LocalSigner:
    return generate_signer("ES256")


def _signed(card: SignedCard) -> str:
    return json.dumps(card.card)


def _verify(
    document: str, *signers: LocalSigner, now: float = 1_800_000_000, tool: SigningTool | None = None
) -> VerifiedCard:
    trust = TrustStore(TrustedKey(key=signer.public_key, origins=UnsafeAnyOrigin(), signer=tool) for signer in signers)
    return verify_card(document.encode(), trust, origin=UnsafeAnyOrigin(), now=now)


def _marks(signed: SignedCard) -> list[Any]:
    headers = [entry["protected"] for entry in signed.card["signatures"]]
    return [json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4))).get("cty") for text in headers]


def _with_signatures(document: str, change: Callable[[list[Any]], list[Any]]) -> str:
    card = json.loads(document)
    return json.dumps({**card, "signatures": change(card["signatures"])})


def test_every_card_of_the_corpus_is_in_one_table(vectors: Path) -> None:
    index = [json.loads(line) for line in (vectors / "cards" / "index.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sorted([*EVERYWHERE, *ONLY_HERE, *REFUSED_HERE]) == sorted(row["id"] for row in index)
    assert len(index) == 98


def test_every_card_with_interfaces_of_1_0_is_among_those_that_verify_everywhere(vectors: Path) -> None:
    shaped = {
        path.stem
        for path in (vectors / "cards" / "files").iterdir()
        if json.loads(path.read_bytes()).get("supportedInterfaces")
    }
    assert shaped == set(EVERYWHERE) - {"069"}


@every_card
def test_a_signed_card_verifies_here_whole(vectors: Path, signer: LocalSigner, number: str) -> None:
    card = load_card(vectors, number)
    signed = sign_card(card, signer, companion=True)
    verified = _verify(_signed(signed), signer)
    assert verified.card == {name: value for name, value in signed.card.items() if name != "signatures"}
    assert left_out(card, verified.card) == frozenset(signed.normalized)
    assert (verified.dropped, verified.unverified) == ((), ())
    assert verified.form is Form.SPEC
    assert signed.companion == (None if number in NO_COMPANION_NEEDED else Form.PRUNED)
    assert _marks(signed) == [
        "application/json;a2a-form=spec",
        *(["application/json;a2a-form=pruned"] if signed.companion else []),
    ]


@pytest.mark.real
@every_card
def test_by_default_a_card_has_a_companion_or_the_note_names_security_members(
    vectors: Path, signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, number: str
) -> None:
    signed = sign_card(load_card(vectors, number), signer)
    is_open = number in COMPANION_ON_REQUEST
    assert signed.companion == (None if is_open or number in NO_COMPANION_NEEDED else Form.PRUNED)
    assert bool(signed.withheld_for) is is_open
    assert _verify(_signed(signed), signer).unverified == ()
    key = signer.public_key.to_jwk()
    assert python_1_3_0.refusal(_signed(signed), key) == (NOT_SIGNED_PYTHON if is_open else None)
    assert js_1_3_0.refusal(_signed(signed), key) == (NOT_SIGNED_JS if is_open else None)


@pytest.mark.real
@every_card
def test_a_signed_card_verifies_in_python_as_protobuf_reads_it(
    vectors: Path, signer: LocalSigner, python_1_3_0: SdkProcess, number: str
) -> None:
    signed = _signed(sign_card(load_card(vectors, number), signer, companion=True))
    assert python_1_3_0.refusal(signed, signer.public_key.to_jwk(), reader="plain") is None


@pytest.mark.real
@every_card
def test_a_signed_card_verifies_in_python_as_its_resolver_reads_it_or_is_known_to_be_rewritten(
    vectors: Path, signer: LocalSigner, python_1_3_0: SdkProcess, number: str
) -> None:
    signed = _signed(sign_card(load_card(vectors, number), signer, companion=True))
    expected = NOT_SIGNED_PYTHON if number in REWRITTEN_BY_THE_PYTHON_RESOLVER else None
    assert python_1_3_0.refusal(signed, signer.public_key.to_jwk(), reader="resolver") == expected


@pytest.mark.real
@every_card
def test_a_signed_card_verifies_in_javascript(
    vectors: Path, signer: LocalSigner, js_1_3_0: SdkProcess, number: str
) -> None:
    signed = _signed(sign_card(load_card(vectors, number), signer, companion=True))
    assert js_1_3_0.refusal(signed, signer.public_key.to_jwk()) is None


@pytest.mark.real
@every_card
def test_a_signed_card_verifies_in_python_1_0_when_it_is_ascii(
    vectors: Path, signer: LocalSigner, python_1_0_0: SdkProcess, number: str
) -> None:
    signed = _signed(sign_card(load_card(vectors, number), signer, companion=True))
    expected = NOT_SIGNED_PYTHON if number in NOT_ASCII else None
    assert python_1_0_0.refusal(signed, signer.public_key.to_jwk()) == expected


@pytest.mark.real
@every_card
def test_one_changed_member_is_refused_everywhere(
    vectors: Path, signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, number: str
) -> None:
    signed = sign_card(load_card(vectors, number), signer, companion=True)
    changed = json.dumps({**signed.card, "name": "Somebody else"})
    with pytest.raises(CardVerificationError) as caught:
        _verify(changed, signer)
    assert [failure.reason for failure in caught.value.failures] == [
        FailureReason.BAD_SIGNATURE,
        *([FailureReason.COMPANION] if signed.companion else []),
    ]
    key = signer.public_key.to_jwk()
    assert python_1_3_0.refusal(changed, key) == NOT_SIGNED_PYTHON
    assert python_1_3_0.refusal(changed, key, reader="resolver") == NOT_SIGNED_PYTHON
    assert js_1_3_0.refusal(changed, key) == NOT_SIGNED_JS


@pytest.mark.real
@with_companion
def test_the_companion_verifies_everywhere_before_and_after_the_full_signature(
    vectors: Path, signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, number: str
) -> None:
    document = _signed(sign_card(load_card(vectors, number), signer, companion=True))
    turned = _with_signatures(document, lambda signatures: signatures[::-1])
    key = signer.public_key.to_jwk()
    for order in (document, turned):
        assert python_1_3_0.refusal(order, key) is None
        assert js_1_3_0.refusal(order, key) is None
        assert _verify(order, signer).unverified == ()


@pytest.mark.real
@with_companion
def test_the_companion_is_what_the_sdks_need_and_never_enough_here(
    vectors: Path, signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, number: str
) -> None:
    document = _signed(sign_card(load_card(vectors, number), signer, companion=True))
    full = _with_signatures(document, lambda signatures: signatures[:1])
    companion = _with_signatures(document, lambda signatures: signatures[1:])
    key = signer.public_key.to_jwk()
    assert python_1_3_0.refusal(full, key) == NOT_SIGNED_PYTHON
    assert js_1_3_0.refusal(full, key) == NOT_SIGNED_JS
    assert _verify(full, signer).unverified == ()
    assert python_1_3_0.refusal(companion, key) is None
    assert js_1_3_0.refusal(companion, key) is None
    for tool in (None, *SigningTool):
        assert _verify(full, signer, tool=tool).unverified == ()
        with pytest.raises(UntrustedCardError) as caught:
            _verify(companion, signer, tool=tool)
        assert [failure.reason for failure in caught.value.failures] == [FailureReason.COMPANION]


@pytest.mark.real
@with_companion
def test_without_a_companion_the_card_is_whole_or_rejected_everywhere(
    vectors: Path, signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, number: str
) -> None:
    signed = sign_card(load_card(vectors, number), signer, companion=False)
    key = signer.public_key.to_jwk()
    assert _verify(_signed(signed), signer).unverified == ()
    assert "a2a-python and a2a-js" in signed.rejections[-1]
    assert python_1_3_0.refusal(_signed(signed), key) == NOT_SIGNED_PYTHON
    assert js_1_3_0.refusal(_signed(signed), key) == NOT_SIGNED_JS


@every_card
def test_the_note_names_the_requirements_that_others_can_strip(vectors: Path, signer: LocalSigner, number: str) -> None:
    notes = " ".join(sign_card(load_card(vectors, number), signer, companion=True).notes)
    assert ("Security requirements (without them clients send no" in notes) is (number in STRIPPABLE_REQUIREMENTS)


@every_card
def test_signing_and_lint_predict_which_cards_the_python_resolver_rewrites(
    vectors: Path, signer: LocalSigner, number: str
) -> None:
    """What it rejects is asked of the real resolver above."""
    card = load_card(vectors, number)
    is_rewritten = number in REWRITTEN_BY_THE_PYTHON_RESOLVER
    assert any("a2a-python 1.3" in text for text in sign_card(card, signer).rejections) is is_rewritten
    assert any(finding.rule == "python-rewrites" for finding in lint_card(card)) is is_rewritten


@pytest.mark.real
@walk("number", REWRITTEN_BY_THE_PYTHON_RESOLVER)
def test_a_requirement_that_no_companion_can_cover_is_missed_here_when_it_is_stripped_and_not_by_the_sdks(
    vectors: Path, signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, number: str
) -> None:
    """What readers of 1.0 do not know of a card is in no companion, so for them its removal changes nothing."""
    signed = sign_card(load_card(vectors, number), signer, companion=True).card
    lost = {"security"} if "security" in signed else {"securitySchemes", "securityRequirements"}
    stripped = json.dumps({name: value for name, value in signed.items() if name not in lost})
    key = signer.public_key.to_jwk()
    assert python_1_3_0.refusal(stripped, key) is None
    assert python_1_3_0.refusal(stripped, key, reader="resolver") is None
    assert js_1_3_0.refusal(stripped, key) is None
    with pytest.raises(CardVerificationError) as caught:
        _verify(stripped, signer)
    assert [failure.reason for failure in caught.value.failures] == [
        FailureReason.BAD_SIGNATURE,
        FailureReason.COMPANION,
    ]


@pytest.mark.real
@walk("number", SIGNED_BY_STRANGERS)
def test_signatures_of_strangers_stay_and_stop_nobody(
    vectors: Path, signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, number: str
) -> None:
    card = json.loads((vectors / "cards" / "files" / f"{number}.json").read_bytes())
    signed = sign_card(card, signer, drop_broken=True, companion=True)  # nothing is normalized, so nothing is broken
    assert signed.card["signatures"][0] == card["signatures"][0]
    verified = _verify(_signed(signed), signer)
    assert verified.ignored[0].reason is FailureReason.UNKNOWN_KEY
    assert python_1_3_0.refusal(_signed(signed), signer.public_key.to_jwk()) is None
    assert js_1_3_0.refusal(_signed(signed), signer.public_key.to_jwk()) is None


@pytest.mark.real
@walk("number", ONLY_HERE)
def test_a_card_of_0_3_verifies_here_as_it_is_served_and_in_no_sdk_of_1_0(
    vectors: Path, signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, number: str
) -> None:
    card = load_card(vectors, number)
    signed = sign_card(card, signer)
    assert signed.companion is not Form.PRUNED
    assert signed.normalized == ()
    document = _signed(signed)
    verified = _verify(document, signer)
    assert verified.card == card
    assert (verified.form, verified.unverified) == (Form.SERVED, ())
    assert _marks(signed) == [
        "application/json;a2a-form=served",
        *(["application/json;a2a-form=v0.3-python"] if signed.companion else []),
    ]
    key = signer.public_key.to_jwk()
    assert python_1_3_0.refusal(document, key) == NOT_SIGNED_PYTHON
    assert python_1_3_0.refusal(document, key, reader="resolver") == NOT_SIGNED_PYTHON
    assert js_1_3_0.refusal(document, key) == NOT_SIGNED_JS


@pytest.mark.real
@walk("number", ONLY_HERE)
def test_a_card_of_0_3_verifies_in_python_0_3_by_its_companion_or_the_note_says_why_not(
    vectors: Path, signer: LocalSigner, python_0_3_26: SdkProcess, number: str
) -> None:
    default = sign_card(load_card(vectors, number), signer)
    assert bool(default.withheld_for) is (number in COMPANION_ON_REQUEST)
    signed = sign_card(load_card(vectors, number), signer, iat=1_800_000_000, companion=True)
    refusal = python_0_3_26.refusal(_signed(signed), signer.public_key.to_jwk())
    if number in UNREAD_IN_0_3:
        assert (refusal, signed.companion) == ("ValidationError", None)
        assert f" {UNREAD_IN_0_3[number]}," in signed.rejections[0]
    else:
        assert (refusal, signed.rejections) == (None, ())
        assert signed.companion == (None if number in NO_COMPANION_NEEDED_IN_0_3 else Form.V0_3_PYTHON)


@pytest.mark.real
@walk("number", sorted(set(ONLY_HERE) - NO_COMPANION_NEEDED_IN_0_3 - UNREAD_IN_0_3.keys()))
def test_the_companion_of_a_card_of_0_3_is_what_python_0_3_needs_and_never_enough_here(
    vectors: Path, signer: LocalSigner, python_0_3_26: SdkProcess, number: str
) -> None:
    document = _signed(sign_card(load_card(vectors, number), signer, companion=True))
    full = _with_signatures(document, lambda signatures: signatures[:1])
    companion = _with_signatures(document, lambda signatures: signatures[1:])
    key = signer.public_key.to_jwk()
    assert python_0_3_26.refusal(full, key) == NOT_SIGNED_PYTHON
    assert python_0_3_26.refusal(companion, key) is None
    assert _verify(full, signer).unverified == ()
    (entry,) = json.loads(companion)["signatures"]
    assert parse_signature(entry).header["cty"] == content_type(Form.V0_3_PYTHON)
    with pytest.raises(UntrustedCardError) as caught:
        _verify(companion, signer)
    assert [failure.reason for failure in caught.value.failures] == [FailureReason.COMPANION]


@walk("number", REFUSED_HERE)
def test_a_card_that_readers_read_differently_is_not_signed(vectors: Path, signer: LocalSigner, number: str) -> None:
    with pytest.raises(MalformedError, match="/capabilities/streaming: true or false is needed, this is a string"):
        sign_card(load_card(vectors, number), signer)


@walk("number", WITHOUT_A_HOST)
def test_a_card_with_the_url_of_a_template_is_not_signed(vectors: Path, signer: LocalSigner, number: str) -> None:
    with pytest.raises(SigningError, match=r"/url: URL: .*verifiers would reject it"):
        sign_card(load_card(vectors, number, filled_in=False), signer)


@pytest.mark.real
@walk("alg", ["EdDSA", "RS256"])
@walk("number", HANDFUL)
def test_other_algorithms_verify_everywhere(
    vectors: Path, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, number: str, alg: str
) -> None:
    signer = generate_signer(alg, rsa_bits=2048)
    document = _signed(sign_card(load_card(vectors, number), signer, companion=True))
    key = signer.public_key.to_jwk()
    assert _verify(document, signer).key.alg == alg
    assert python_1_3_0.refusal(document, key) is None
    assert python_1_3_0.refusal(document, key, reader="resolver") is None
    assert js_1_3_0.refusal(document, key) is None


@pytest.mark.real
@walk("number", HANDFUL)
def test_an_address_and_times_in_the_header_disturb_no_sdk(
    vectors: Path, signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, number: str
) -> None:
    """``exp`` has passed for the SDKs' clocks: it is a member of the header that they do not know."""
    signed = sign_card(
        load_card(vectors, number),
        signer,
        jku="https://keys.example.com/jwks.json",
        iat=1_000_000,
        exp=2_000_000,
        companion=True,
    )
    document = _signed(signed)
    key = signer.public_key.to_jwk()
    assert _verify(document, signer, now=1_500_000).valid_until == 2_000_000
    assert python_1_3_0.refusal(document, key) is None
    assert js_1_3_0.refusal(document, key) is None


@pytest.mark.real
@walk("number", HANDFUL)
def test_an_sdk_that_knows_one_of_two_signers_verifies_the_card(
    vectors: Path, signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, number: str
) -> None:
    other = generate_signer("EdDSA")
    document = _signed(sign_card(load_card(vectors, number), signer, other, companion=True))
    for known in (signer, other):
        assert _verify(document, known).key == known.public_key
        assert python_1_3_0.refusal(document, known.public_key.to_jwk()) is None
        assert js_1_3_0.refusal(document, known.public_key.to_jwk()) is None
    stranger = generate_signer("EdDSA").public_key.to_jwk()
    assert python_1_3_0.refusal(document, stranger) == NOT_SIGNED_PYTHON
    assert js_1_3_0.refusal(document, stranger) == NOT_SIGNED_JS


@pytest.mark.real
@walk("number", HANDFUL)
def test_a_signature_added_by_a_second_company_leaves_the_first_one_good(
    vectors: Path, signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, number: str
) -> None:
    first = sign_card(load_card(vectors, number), signer, companion=True)
    second = generate_signer("ES256")
    document = _signed(sign_card(first.card, second, companion=True))
    for known in (signer, second):
        assert _verify(document, known).unverified == ()
        assert python_1_3_0.refusal(document, known.public_key.to_jwk()) is None
        assert js_1_3_0.refusal(document, known.public_key.to_jwk()) is None


@pytest.mark.real
def test_a_card_with_every_field_of_1_0_has_one_form_in_every_sdk(
    signer: LocalSigner, python_1_3_0: SdkProcess, python_1_0_0: SdkProcess, js_1_3_0: SdkProcess
) -> None:
    signed = sign_card(EVERY_FIELD, signer)
    key = signer.public_key.to_jwk()
    assert (signed.companion, signed.normalized) == (None, ())
    assert _verify(_signed(signed), signer).card == EVERY_FIELD
    assert python_1_3_0.refusal(_signed(signed), key) is None
    assert python_1_3_0.refusal(_signed(signed), key, reader="resolver") is None
    # Numbers: 5 is "5.0" to json.dumps, as protobuf holds doubles.
    assert python_1_0_0.refusal(_signed(signed), key) == NOT_SIGNED_PYTHON
    assert js_1_3_0.refusal(_signed(signed), key) is None


@pytest.mark.real
def test_a_card_with_every_field_at_its_default_verifies_everywhere(
    signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess
) -> None:
    original = deepcopy(EVERY_FIELD_AT_ITS_DEFAULT)
    signed = sign_card(EVERY_FIELD_AT_ITS_DEFAULT, signer, companion=True)
    key = signer.public_key.to_jwk()
    assert original == EVERY_FIELD_AT_ITS_DEFAULT
    assert signed.companion is Form.PRUNED
    assert python_1_3_0.refusal(_signed(signed), key) is None
    assert python_1_3_0.refusal(_signed(signed), key, reader="resolver") is None
    assert js_1_3_0.refusal(_signed(signed), key) is None
    assert _verify(_signed(signed), signer).unverified == ()


@pytest.mark.real
@walk("params", CANONICAL_TRAPS.values())
def test_json_that_canonical_forms_disagree_about_is_signed_alike(
    signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess, params: str
) -> None:
    document = _signed(sign_card(card_with_params(params).encode(), signer, companion=True))
    key = signer.public_key.to_jwk()
    assert _verify(document, signer).card["capabilities"]["extensions"][0]["params"] == json.loads(params)
    assert python_1_3_0.refusal(document, key) is None
    assert js_1_3_0.refusal(document, key) is None


#: Names that mean something to JavaScript objects.
NAMES: Final = ("__proto__", "constructor", "prototype", "toString", "hasOwnProperty", "__defineGetter__", "toJSON", "")


def cards_with(name: str) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """By place: a card with a member of that name, and the card without it."""
    key, mtls = (
        {"apiKeySecurityScheme": {"location": "header", "name": "X"}},
        {"mtlsSecurityScheme": {"description": "x"}},
    )
    flow = {"tokenUrl": "https://id.example.com", "scopes": {"a": "x"}}
    oauth = {"o": {"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}}}
    more = {"o": {"oauth2SecurityScheme": {"flows": {"clientCredentials": {**flow, "scopes": {"a": "x", name: "y"}}}}}}
    base = json.loads(card_with_params('{"a":1}'))
    requirement = {"schemes": {"k": {"list": ["r"]}}}
    both = {"schemes": {"k": {"list": ["r"]}, name: {"list": ["r"]}}}
    return {
        "scheme": (base | {"securitySchemes": {"k": key, name: mtls}}, base | {"securitySchemes": {"k": key}}),
        "requirement": (base | {"securityRequirements": [both]}, base | {"securityRequirements": [requirement]}),
        "scope": (base | {"securitySchemes": more}, base | {"securitySchemes": oauth}),
        "params": (json.loads(card_with_params(json.dumps({"a": 1, name: {"b": 1}}))), base),
        "params, deep": (
            json.loads(card_with_params(json.dumps({"a": [{"c": 1, name: "x"}]}))),
            json.loads(card_with_params('{"a":[{"c":1}]}')),
        ),
    }


@pytest.mark.real
@walk("name", NAMES)
def test_the_gate_refuses_exactly_the_names_that_the_javascript_sdk_loses(
    signer: LocalSigner, js_1_3_0: SdkProcess, name: str
) -> None:
    """What the SDK loses, it does not sign: then the card verifies there after the member was taken out."""
    public = signer.public_key.to_jwk()
    private = private_key_to_jwk(signer.private_key, alg=signer.alg, kid=signer.kid)
    for place, (card, stripped) in cards_with(name).items():
        made = js_1_3_0.sign(json.dumps(card), private)
        assert made is not None
        signatures = json.loads(made)["signatures"]
        lost = js_1_3_0.refusal(json.dumps(stripped | {"signatures": signatures}), public) is None
        assert lost == (name == "__proto__"), place
        if lost:
            with pytest.raises(MalformedError, match="JavaScript clients lose a member of this name"):
                sign_card(json.dumps(card).encode(), signer)
        else:
            document = _signed(sign_card(card, signer))
            assert _verify(document, signer).unverified == ()
            assert js_1_3_0.refusal(document, public) is None, place


@pytest.mark.real
def test_nesting_beyond_what_protobuf_reads_is_refused_in_python_only(
    signer: LocalSigner, python_1_3_0: SdkProcess, js_1_3_0: SdkProcess
) -> None:
    document = _signed(sign_card(card_with_params('{"a":' * 100 + "1" + "}" * 100).encode(), signer))
    key = signer.public_key.to_jwk()
    assert _verify(document, signer).unverified == ()
    assert python_1_3_0.refusal(document, key) == "ParseError"
    assert js_1_3_0.refusal(document, key) is None
