"""S2: pruned canonical forms do not cover what they drop, so whoever serves the card takes it away, or adds it.

Our own signed cards carry a full signature and a companion over the pruned form; ``signatures`` itself is not signed,
so the attacker also arranges those as he likes. Cards of SDKs carry the pruned one alone: from a key of which nothing
is known they are refused, stripped or not.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import pytest

from a2a_trust import Origins, TrustedKey, TrustStore, sign_card
from a2a_trust.errors import (
    CardVerificationError,
    FailureReason,
    MalformedError,
    PartialSignatureError,
    UncoveredFieldsError,
    UntrustedCardError,
)
from a2a_trust.keys import LocalSigner, SigningTool
from a2a_trust.signing import Coverage, Form
from a2a_trust.signing.forms import UNVERIFIED_BY_PRUNING
from a2a_trust.signing.signature import FORM_MARKERS
from tests.attacks.forgery import JSONObject, canonical, entry, pruned, served, signs, unb64, without_signatures
from tests.attacks.verifying import HOST, refusal, verified
from tests.tables import walk

Change = Callable[[JSONObject], None]

BAD, COMPANION, PARTIAL = FailureReason.BAD_SIGNATURE, FailureReason.COMPANION, FailureReason.PARTIAL


def change(*path: str | int, to: object) -> Change:
    def apply(card: JSONObject) -> None:
        place: object = card
        for step in path[:-1]:
            place = place[step]  # type: ignore[index]
        place[path[-1]] = copy.deepcopy(to)  # type: ignore[index]

    return apply


def delete(*path: str | int) -> Change:
    def apply(card: JSONObject) -> None:
        place: object = card
        for step in path[:-1]:
            place = place[step]  # type: ignore[index]
        del place[path[-1]]  # type: ignore[attr-defined]

    return apply


def add_requirement(requirement: object) -> Change:
    return lambda card: card["securityRequirements"].append(requirement)


#: What the attacker does. Each of these leaves the pruned form as it was: the companion's signature is still good.
INVISIBLE: dict[str, Change] = {
    "delete the requirement without scopes": delete("securityRequirements", 2),
    "turn it into an empty requirement": change("securityRequirements", 2, to={}),
    "turn it into a requirement of no schemes": change("securityRequirements", 2, to={"schemes": {}}),
    "turn it into another scheme without scopes": change("securityRequirements", 2, to={"schemes": {"key": {}}}),
    "drop the second factor of an AND": delete("securityRequirements", 0, "schemes", "mtls"),
    "drop one of two factors without scopes": delete("securityRequirements", 1, "schemes", "bearer"),
    "add an anonymous alternative at the end": add_requirement({}),
    "add an anonymous alternative first": lambda card: card["securityRequirements"].insert(0, {}),
    "add an alternative by mutual TLS": add_requirement({"schemes": {"mtls": {}}}),
    "remove the mutual TLS scheme": delete("securitySchemes", "mtls"),
    "add a mutual TLS scheme": change("securitySchemes", "front", to={"mtlsSecurityScheme": {}}),
    "empty the mutual TLS scheme": change("securitySchemes", "mtls", to={}),
    "remove the requirement of a skill": delete("skills", 0, "securityRequirements"),
    "make a skill anonymous": change("skills", 0, "securityRequirements", to=[{}]),
    "give a skill another requirement without scopes": change(
        "skills", 0, "securityRequirements", to=[{"schemes": {"key": {}}}]
    ),
    "add a requirement without scopes to another skill": change(
        "skills", 1, "securityRequirements", to=[{"schemes": {"bearer": {}}}]
    ),
    "remove an allow-list that allows nothing": delete("capabilities", "extensions", 0, "params", "allowed"),
    "add an allow-list that allows nothing": change("capabilities", "extensions", 0, "params", "denied", to=[]),
    "add the legacy url": change("url", to="https://evil.example/a2a"),
    "add the legacy url of the owner": change("url", to=f"https://{HOST}/other"),
    "add legacy security": change("security", to=[{}]),
    "add legacy interfaces": change(
        "additionalInterfaces", to=[{"url": "https://evil.example/a2a", "transport": "JSONRPC"}]
    ),
    "add legacy authentication": change("authentication", to={"schemes": []}),
    "promise a legacy extended card": change("supportsAuthenticatedExtendedCard", to=True),
    "claim a legacy version": change("protocolVersion", to="0.3.0"),
}

#: These change the pruned form too, or are refused at the gate.
VISIBLE: dict[str, Change] = {
    "turn all requirements into an anonymous one": change("securityRequirements", to=[{}]),
    "delete all requirements": delete("securityRequirements"),
    "empty the list of requirements": change("securityRequirements", to=[]),
    "delete the requirement with scopes": delete("securityRequirements", 0),
    "drop the scopes of a requirement": change("securityRequirements", 0, "schemes", "oauth", to={}),
    "add a scope to a requirement": change("securityRequirements", 0, "schemes", "oauth", "list", to=["read", "write"]),
    "add an alternative with scopes": add_requirement({"schemes": {"oauth": {"list": ["x"]}}}),
    "remove another scheme": delete("securitySchemes", "key"),
    "describe the mutual TLS scheme": change(
        "securitySchemes", "mtls", "mtlsSecurityScheme", "description", to="changed"
    ),
    "turn a scheme into mutual TLS": change("securitySchemes", "key", to={"mtlsSecurityScheme": {}}),
    "give a skill a requirement with scopes": change(
        "skills", 0, "securityRequirements", to=[{"schemes": {"oauth": {"list": ["x"]}}}]
    ),
    "fill the allow-list": change("capabilities", "extensions", 0, "params", "allowed", to=["*"]),
}

ARRANGEMENTS: dict[str, tuple[tuple[int, ...], type[CardVerificationError], tuple[FailureReason, ...]]] = {
    "as signed": ((0, 1), CardVerificationError, (BAD, COMPANION)),
    "companion first": ((1, 0), CardVerificationError, (COMPANION, BAD)),
    "companion alone": ((1,), UntrustedCardError, (COMPANION,)),
    "companion twice": ((1, 1), UntrustedCardError, (COMPANION, COMPANION)),
    "without companion": ((0,), CardVerificationError, (BAD,)),
}


def signing_with(tool: SigningTool | None, owner: LocalSigner) -> TrustStore:
    """The owner's key, with that word on what signs with it."""
    return TrustStore([TrustedKey(key=owner.public_key, origins=Origins(HOST), signer=tool)])


@pytest.fixture(params=[None, *SigningTool], ids=lambda tool: tool or "nothing said")
def any_trust(request: pytest.FixtureRequest, owner: LocalSigner) -> TrustStore:
    """The owner's key, whatever is said of the tool that signs with it."""
    return signing_with(request.param, owner)


def arranged(card: JSONObject, entries: list[JSONObject], order: tuple[int, ...]) -> bytes:
    return served(card, *(entries[index] for index in order))


def changed(signed_card: JSONObject, attack: Change) -> JSONObject:
    card = copy.deepcopy(without_signatures(signed_card))
    attack(card)
    assert card != without_signatures(signed_card)
    return card


# --- our own signed cards ------------------------------------------------------------------------------------------


@walk("attack", INVISIBLE.values(), ids=INVISIBLE)
@walk("arrangement", ARRANGEMENTS)
def test_what_the_companion_does_not_cover_is_changed(
    signed_card: JSONObject, any_trust: TrustStore, owner: LocalSigner, attack: Change, arrangement: str
) -> None:
    card = changed(signed_card, attack)
    assert pruned(card) == pruned(signed_card)  # the attack is real: the companion's signature still stands
    order, error, reasons = ARRANGEMENTS[arrangement]
    for coverage in (Coverage.WHOLE_CARD, Coverage.SIGNED_PART_ONLY):
        refusal(error, arranged(card, signed_card["signatures"], order), any_trust, *reasons, coverage=coverage)


@walk("attack", VISIBLE.values(), ids=VISIBLE)
@walk("arrangement", ARRANGEMENTS)
def test_what_every_form_covers_is_changed(
    signed_card: JSONObject, any_trust: TrustStore, attack: Change, arrangement: str
) -> None:
    order, error, reasons = ARRANGEMENTS[arrangement]
    card = changed(signed_card, attack)
    refusal(error, arranged(card, signed_card["signatures"], order), any_trust, *reasons)


@walk("arrangement", ["companion alone", "companion twice"])
def test_the_first_signature_is_deleted_from_an_unchanged_card(
    signed_card: JSONObject, any_trust: TrustStore, arrangement: str
) -> None:
    order, error, reasons = ARRANGEMENTS[arrangement]
    refusal(error, arranged(signed_card, signed_card["signatures"], order), any_trust, *reasons)


def test_the_card_is_served_as_the_companion_has_it(signed_card: JSONObject, any_trust: TrustStore) -> None:
    """Then every form of what is served is what the companion signed, and nothing looks stripped.

    Also for a key whose tool signs complete cards: the mark says that this signature is not one of those.
    """
    card = pruned(signed_card)
    for arrangement, (order, error, reasons) in ARRANGEMENTS.items():
        if arrangement != "as signed":
            refusal(error, arranged(card, signed_card["signatures"], order), any_trust, *reasons)


def test_the_companion_is_stripped_of_its_mark(signed_card: JSONObject, any_trust: TrustStore) -> None:
    companion = signed_card["signatures"][1]
    header = json.loads(unb64(companion["protected"]))
    assert header["cty"] in FORM_MARKERS  # it says of itself what it is
    bare = {name: header[name] for name in ("alg", "kid", "typ")}
    for other in (
        bare,
        *({**header, "cty": mark} for mark in FORM_MARKERS if not FORM_MARKERS[mark].is_lossy),
        {**header, "cty": None},
        {**header, "cty": header["cty"].upper()},
        {**header, "cty": "application/json"},
    ):
        forged = entry(other, b"", lambda _: unb64(companion["signature"]))
        refusal(CardVerificationError, served(pruned(signed_card), forged), any_trust, BAD)


def test_a_full_mark_is_hung_beside_the_signature_of_an_sdk(
    card: JSONObject, sdk_signature: JSONObject, trust: TrustStore
) -> None:
    """Only what is protected is a mark; the rest of the entry is whatever its server writes."""
    for mark in FORM_MARKERS:
        for marked in ({**sdk_signature, "header": {"cty": mark}}, {**sdk_signature, "cty": mark}):
            refusal(PartialSignatureError, served(pruned(card), marked), trust, PARTIAL)


def test_a_companion_mark_hung_beside_a_full_signature_does_not_stop_it(
    card: JSONObject, good: JSONObject, signed_card: JSONObject, trust: TrustStore
) -> None:
    for mark in FORM_MARKERS:
        assert verified(served(card, {**good, "header": {"cty": mark}}), trust).unverified == ()
        full = {**signed_card["signatures"][0], "header": {"cty": mark}}
        refusal(CardVerificationError, served(card, full), trust, FailureReason.MALFORMED)  # cty stands in both
        assert verified(served(card, {**signed_card["signatures"][0], "cty": mark}), trust).unverified == ()


def test_a_card_of_0_3_never_gets_a_companion_that_forgets_its_url(owner: LocalSigner, trust: TrustStore) -> None:
    card = {
        "name": "Old agent",
        "url": f"https://{HOST}/",
        "security": [{"bearer": []}],
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        "skills": [],
    }
    signed = sign_card(card, owner)
    assert (signed.companion, len(signed.card["signatures"])) == (None, 1)
    assert verified(json.dumps(signed.card).encode(), trust).card == card
    for attack in (delete("security"), change("security", to=[{}]), change("url", to="https://evil.example/")):
        stripped = copy.deepcopy(signed.card)
        attack(stripped)
        refusal(CardVerificationError, stripped, trust, BAD)


@walk("nothing", [[], None])
@walk("name", ["securityRequirements", "security_requirements"])
@walk("demanding", ["card", "skill"])
def test_requirements_of_1_0_with_nothing_in_them_are_added_beside_those_of_0_3(
    card: JSONObject, owner: LocalSigner, trust: TrustStore, demanding: str, name: str, nothing: object
) -> None:
    """The full form drops what is empty too; the SDKs then take the card for one that demands nothing."""
    place = card if demanding == "card" else card["skills"][0]
    place.pop("securityRequirements", None)
    place["security"] = [{"oauth": ["read"]}]
    document = sign_card(card, owner).card
    verified(document, trust)
    (document if demanding == "card" else document["skills"][0])[name] = nothing
    refusal(MalformedError, json.dumps(document).encode(), trust, match="has nothing in it, and security beside it has")
    with pytest.raises(MalformedError, match=f"leave {name} out"):
        sign_card(document, owner)


@walk("order", [(0, 1), (1, 0), (0,)], ids=["as-signed", "companion-first", "without-companion"])
def test_control_the_unchanged_card_is_verified_in_its_full_form(
    signed_card: JSONObject, any_trust: TrustStore, order: tuple[int, ...]
) -> None:
    result = verified(arranged(signed_card, signed_card["signatures"], order), any_trust)
    assert result.card == without_signatures(signed_card)
    assert (result.form, result.unverified, result.dropped) == (Form.SPEC, (), ())


@walk(
    ("attack", "pointer"),
    [
        (
            change("securityRequirements", 2, "schemes", "mtls", to={"list": []}),
            "/securityRequirements/2/schemes/mtls/list",
        ),
        (change("skills", 1, "securityRequirements", to=[]), "/skills/1/securityRequirements"),
        (change("skills", 1, "securityRequirements", to=None), "/skills/1/securityRequirements"),
        (change("iconUrl", to=None), "/iconUrl"),
    ],
    ids=["empty scopes", "no requirements of a skill", "null requirements of a skill", "null"],
)
def test_control_what_the_specification_takes_for_absent_is_absent_from_what_is_returned(
    signed_card: JSONObject, any_trust: TrustStore, attack: Change, pointer: str
) -> None:
    card = changed(signed_card, attack)
    result = verified(served(card, *signed_card["signatures"]), any_trust)
    assert (result.card, result.form) == (without_signatures(signed_card), Form.SPEC)
    assert (result.dropped, result.unverified) == ((pointer,), ())


# --- cards that an SDK signed in the pruned form only --------------------------------------------------------------

#: Where a change puts members that the SDK's signature does not hold: pointers that must be named.
ADDED = {
    "add a mutual TLS scheme": ("/securitySchemes/front",),
    "add an anonymous alternative": ("/securityRequirements/1",),
    "add the legacy url": ("/url",),
    "add legacy security": ("/security",),
    "add an empty allow-list": ("/capabilities/extensions/0/params/denied",),
    "make a skill anonymous": ("/skills/1/securityRequirements",),
}
ADDITIONS: dict[str, Change] = {
    "add a mutual TLS scheme": INVISIBLE["add a mutual TLS scheme"],
    "add an anonymous alternative": add_requirement({}),
    "add the legacy url": INVISIBLE["add the legacy url"],
    "add legacy security": INVISIBLE["add legacy security"],
    "add an empty allow-list": INVISIBLE["add an allow-list that allows nothing"],
    "make a skill anonymous": change("skills", 1, "securityRequirements", to=[{}]),
}


@pytest.mark.parametrize("tool", [None, SigningTool.A2A_TRUST, SigningTool.WHOLE])
def test_an_sdk_card_is_refused_from_a_key_that_no_sdk_signs_with_and_told_apart_from_a_bad_one(
    card: JSONObject, sdk_signature: JSONObject, owner: LocalSigner, tool: SigningTool | None
) -> None:
    for coverage in (Coverage.WHOLE_CARD, Coverage.SIGNED_PART_ONLY):
        document = served(card, sdk_signature)
        refusal(PartialSignatureError, document, signing_with(tool, owner), PARTIAL, coverage=coverage)


@pytest.mark.parametrize("tool", [None, SigningTool.A2A_TRUST])
def test_an_sdk_card_is_served_without_what_the_sdk_did_not_sign(
    card: JSONObject, sdk_signature: JSONObject, owner: LocalSigner, tool: SigningTool | None
) -> None:
    """Measured: the genuine card was refused, and this one accepted as whole."""
    for coverage in (Coverage.WHOLE_CARD, Coverage.SIGNED_PART_ONLY):
        document = served(pruned(card), sdk_signature)
        refusal(PartialSignatureError, document, signing_with(tool, owner), PARTIAL, coverage=coverage)


@walk("attack", INVISIBLE.values(), ids=INVISIBLE)
def test_what_an_sdk_card_never_covered_is_changed_and_nothing_is_said_of_its_key(
    card: JSONObject, sdk_signature: JSONObject, trust: TrustStore, attack: Change
) -> None:
    """Whatever is put into the served card is no evidence: what is signed holds nothing empty."""
    attack(card)
    for coverage in (Coverage.WHOLE_CARD, Coverage.SIGNED_PART_ONLY):
        refusal(PartialSignatureError, served(card, sdk_signature), trust, PARTIAL, coverage=coverage)


def test_members_that_the_sdk_did_not_sign_are_named(
    card: JSONObject, sdk_signature: JSONObject, sdk_trust: TrustStore
) -> None:
    error = refusal(UncoveredFieldsError, served(card, sdk_signature), sdk_trust)
    assert isinstance(error, UncoveredFieldsError)
    assert set(error.pointers) == {
        "/capabilities/extensions/0/params/allowed",
        "/securitySchemes/mtls",
        "/securityRequirements/0/schemes/mtls",
        "/securityRequirements/1",
        "/securityRequirements/2",
        "/skills/0/securityRequirements",
    }


@walk("name", ADDED)
def test_members_added_to_an_sdk_card_are_named_or_left_out(
    card: JSONObject, sdk_signature: JSONObject, sdk_payload: bytes, sdk_trust: TrustStore, name: str
) -> None:
    served_by_sdk = pruned(card)
    ADDITIONS[name](served_by_sdk)
    assert canonical(pruned(served_by_sdk)) == sdk_payload
    document = served(served_by_sdk, sdk_signature)
    error = refusal(UncoveredFieldsError, document, sdk_trust)
    assert isinstance(error, UncoveredFieldsError)
    assert error.pointers == ADDED[name]
    part = verified(document, sdk_trust, coverage=Coverage.SIGNED_PART_ONLY)
    assert (part.card, part.dropped) == (json.loads(sdk_payload), ADDED[name])


@walk("attack", VISIBLE.values(), ids=VISIBLE)
def test_what_the_sdk_did_sign_is_changed(
    card: JSONObject, sdk_signature: JSONObject, sdk_trust: TrustStore, attack: Change
) -> None:
    attack(card)
    for coverage in (Coverage.WHOLE_CARD, Coverage.SIGNED_PART_ONLY):
        refusal(CardVerificationError, served(card, sdk_signature), sdk_trust, BAD, coverage=coverage)


@walk("attack", INVISIBLE.values(), ids=INVISIBLE)
def test_whatever_is_stripped_from_an_sdk_card_the_result_says_that_it_proves_nothing_about_it(
    card: JSONObject, sdk_signature: JSONObject, sdk_payload: bytes, sdk_trust: TrustStore, attack: Change
) -> None:
    attack(card)
    result = verified(served(card, sdk_signature), sdk_trust, coverage=Coverage.SIGNED_PART_ONLY)
    assert canonical(result.card) == sdk_payload
    assert result.form is Form.PRUNED
    assert result.unverified == UNVERIFIED_BY_PRUNING
    assert any("removed without a trace" in warning for warning in result.warnings)


def pruned_alone(card: JSONObject, owner: LocalSigner, form: Form) -> bytes:
    """The card as an SDK of that form signs it, with nothing more in it: served and signed are equal."""
    card = pruned(card)
    printed = canonical(card)
    if form is Form.PRUNED_LEGACY:
        card["capabilities"]["extensions"][0]["params"]["level"] = 3.0
        printed = json.dumps(card, sort_keys=True, separators=(",", ":")).encode()
    header = {"alg": "ES256", "kid": "owner", "typ": "JOSE"}
    return served(card, entry(header, printed, signs(owner.private_key, "ES256")))


@pytest.mark.parametrize(
    ("tool", "form"),
    [
        (SigningTool.A2A_PYTHON, Form.PRUNED),
        (SigningTool.A2A_PYTHON, Form.PRUNED_LEGACY),
        (SigningTool.A2A_JS, Form.PRUNED),
    ],
)
def test_the_removal_that_nobody_can_see_is_told_as_unverified(
    card: JSONObject, owner: LocalSigner, tool: SigningTool, form: Form
) -> None:
    """Served card and signed payload are equal: a tool that prunes may have pruned it."""
    result = verified(pruned_alone(card, owner, form), signing_with(tool, owner))
    assert (result.card, result.form, result.dropped) == (pruned(card), form, ())
    for pointer in (
        "/securityRequirements",
        "/securitySchemes",
        "/supportedInterfaces",
        "/skills/*/securityRequirements",
        "/capabilities/extensions/*/params",
        "/url",
        "/security",
        "/additionalInterfaces",
        "/authentication",
    ):
        assert pointer in result.unverified
    assert any("removed without a trace" in warning for warning in result.warnings)


@pytest.mark.parametrize("form", [Form.PRUNED, Form.PRUNED_LEGACY])
def test_the_removal_that_nobody_can_see_is_refused_when_nothing_is_said_of_the_key(
    card: JSONObject, owner: LocalSigner, trust: TrustStore, form: Form
) -> None:
    refusal(PartialSignatureError, pruned_alone(card, owner, form), trust, PARTIAL)


@pytest.mark.parametrize("tool", [SigningTool.A2A_JS, SigningTool.WHOLE, SigningTool.A2A_TRUST])
def test_what_a_tool_cannot_have_signed_is_not_accepted_as_its_work(
    card: JSONObject, owner: LocalSigner, tool: SigningTool
) -> None:
    """The form of json.dumps is that of a2a-python alone, and of no tool that signs complete cards."""
    refusal(PartialSignatureError, pruned_alone(card, owner, Form.PRUNED_LEGACY), signing_with(tool, owner), PARTIAL)


def test_a_full_signature_beside_a_pruned_one_is_what_counts(
    card: JSONObject, good: JSONObject, sdk_signature: JSONObject, sdk_trust: TrustStore
) -> None:
    """Also in the other order: the attacker cannot weaken a proof by what he puts in front of it."""
    for entries in ((good, sdk_signature), (sdk_signature, good)):
        result = verified(served(card, *entries), sdk_trust)
        assert (result.card, result.form, result.unverified) == (card, Form.SERVED, ())
