"""Whether a card has to be signed again: it is compared with itself as signed now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.base.strict_json import JSONObject
from a2a_trust.errors import TrustError
from a2a_trust.keys import base64url
from a2a_trust.keys.signer import LocalSigner, generate_signer
from a2a_trust.keys.trust.origins import UnsafeAnyOrigin
from a2a_trust.keys.trust.policy import all_of
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.signing.sign import reason_to_sign, sign_card
from a2a_trust.signing.verify import verify_card
from tests.tables import walk

NOW = 1_800_000_000.0
DAY = 86_400.0
ANN, BOB = generate_signer(kid="ann"), generate_signer(alg="EdDSA", kid="bob")
OTHER_ANN = generate_signer(kid="ann")
CARD: JSONObject = {
    "name": "Invoice Agent",
    "supportedInterfaces": [
        {"url": "https://invoice.example.com/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
    "securityRequirements": [{"schemes": {"bearer": {"list": ["read"]}}}],
}
#: The requirement without scopes, which a companion leaves out.
LOOSE: JSONObject = {**CARD, "securityRequirements": [{"schemes": {"bearer": {}}}]}


def signed(card: JSONObject, *signers: LocalSigner, **settings: Any) -> JSONObject:
    """With a companion where the card has several forms, unless the settings say otherwise."""
    return sign_card(card, *(signers or (ANN,)), **{"iat": NOW - DAY, "companion": True, **settings}).card


def reason(card: JSONObject, *signers: LocalSigner, until: float = NOW, **settings: Any) -> str | None:
    signers = signers or (ANN,)
    again = sign_card(card, *signers, **{"iat": NOW, "companion": True, **settings})
    return reason_to_sign(orjson.dumps(card), card, again, signers, now=NOW, until=until)


@walk("card", [CARD, LOOSE, {"name": "x", "url": "https://invoice.example.com/", "version": "1"}])
@walk("signers", [(ANN,), (ANN, BOB)])
@walk("settings", [{}, {"jku": "https://invoice.example.com/jwks.json"}, {"companion": False}, {"companion": None}])
def test_a_card_that_was_signed_in_the_same_way_needs_nothing(
    card: JSONObject, signers: tuple[LocalSigner, ...], settings: dict[str, Any]
) -> None:
    assert reason(signed(card, *signers, **settings), *signers, **settings) is None


def without(position: int) -> Callable[[JSONObject], None]:
    def remove(card: JSONObject) -> None:
        del card["signatures"][position]

    return remove


def twice(card: JSONObject) -> None:
    card["signatures"].append(signed(CARD, iat=NOW - 2)["signatures"][0])


def unsigned_member(name: str, value: object) -> Callable[[JSONObject], object]:
    def add(card: JSONObject) -> None:
        card["signatures"][0][name] = value

    return add


def junk(card: JSONObject) -> None:
    card["signatures"].append({"protected": 1})


@walk(
    ("card", "change", "expected"),
    [
        (CARD, without(0), "not signed by ann"),
        (CARD, lambda card: card.pop("signatures"), "not signed by ann"),
        (CARD, lambda card: card.update(signatures=[]), "not signed by ann"),
        (CARD, lambda card: card.update(name="Another"), "its signature by ann is wrong"),
        (CARD, lambda card: card.pop("securityRequirements"), "its signature by ann is wrong"),
        (CARD, lambda card: card.update(capabilities={"extensions": []}), "signing drops /capabilities/extensions"),
        (CARD, twice, "it has signatures by ann that signing removes"),
        (CARD, unsigned_member("header", {"note": "x"}), "signing removes entries of signatures"),
        (CARD, unsigned_member("header", None), "signing removes entries of signatures"),
        (CARD, unsigned_member("payload", "e30"), "signing removes entries of signatures"),
        (LOOSE, unsigned_member("x5c", []), "signing removes entries of signatures"),
        (CARD, junk, "signing removes entries of signatures"),
        (LOOSE, without(1), "the companion signature by ann is missing"),
        (LOOSE, without(0), "its signature by ann has other settings"),
        (LOOSE, lambda card: card.update(name="Another"), "its signature by ann is wrong"),
    ],
)
def test_every_change_after_signing_is_a_reason(
    card: JSONObject, change: Callable[[JSONObject], object], expected: str
) -> None:
    changed = orjson.loads(orjson.dumps(signed(card)))
    change(changed)
    assert (reason(changed) or "").startswith(expected)


def test_a_companion_that_proves_another_card_is_a_reason() -> None:
    card, other = signed(LOOSE), signed({**LOOSE, "name": "Another"})
    card["signatures"] = [card["signatures"][0], other["signatures"][1]]
    assert (reason(card) or "").startswith("its signature by ann is wrong")


@walk(
    ("before", "now", "expected"),
    [
        (((ANN,), {}), ((BOB,), {}), "not signed by bob"),
        (((ANN,), {}), ((ANN, BOB), {}), "not signed by bob"),
        (((OTHER_ANN,), {}), ((ANN,), {}), "its signature by ann is wrong"),
        (((ANN,), {}), ((ANN,), {"jku": "https://x.example.com/"}), "its signature by ann has other settings"),
        (((ANN,), {"jku": "https://x.example.com/"}), ((ANN,), {}), "its signature by ann has other settings"),
        (((ANN,), {}), ((ANN,), {"iat": False}), "its signature by ann has other settings"),
        (((ANN,), {"iat": False}), ((ANN,), {}), "its signature by ann has other settings"),
        (((ANN,), {"iat": NOW + DAY}), ((ANN,), {}), "the signed card does not verify"),
        (((ANN, BOB), {}), ((ANN,), {}), None),
        (((BOB, ANN), {}), ((ANN, BOB), {}), None),
    ],
)
def test_other_keys_and_options_are_reasons(before: Any, now: Any, expected: str | None) -> None:
    found = reason(signed(CARD, *before[0], **before[1]), *now[0], **now[1])
    assert found is None if expected is None else (found or "").startswith(expected)


def test_companions_that_nobody_asks_for_any_more_are_a_reason() -> None:
    assert reason(signed(LOOSE), companion=False) == "it has signatures by ann that signing removes"
    assert reason(signed(LOOSE), companion=None) == (
        "it has a companion signature that does not protect /securityRequirements; signing removes it, or keeps it "
        "with --companion"
    )


def test_a_companion_that_was_not_asked_for_before_is_a_reason() -> None:
    assert reason(signed(LOOSE, companion=None), companion=True) == "the companion signature by ann is missing"


def test_a_companion_that_leaves_no_security_member_open_needs_no_request() -> None:
    card = {**CARD, "description": ""}
    assert len(signed(card, companion=None)["signatures"]) == 2
    assert reason(signed(card), companion=None) is None
    assert reason(signed(card, companion=None)) is None


@walk(
    ("before", "now", "within", "expected"),
    [
        (30, None, 0, None),
        (30, None, 29, None),
        (30, None, 30, "expires at 2027-02-14T08:00:00Z"),
        (-0.5, None, 0, "expires at 2027-01-14T20:00:00Z"),
        (0, None, 0, "expires at 2027-01-15T08:00:00Z"),
        (30, 90, 14, None),
        (30, 30, 14, None),
        (30, 90, 31, "expires at 2027-02-14T08:00:00Z"),
        (90, 30, 0, "expires at 2027-04-15T08:00:00Z, later than asked"),
        (30 + 60 / 86_400, 30, 0, None),  # the clock of this machine is slow
        (30 + 61 / 86_400, 30, 0, "expires at 2027-02-14T08:01:01Z, later than asked"),
        (None, 30, 0, "never expires, later than asked"),
        (None, None, 9999, None),
    ],
)
def test_the_end_of_a_signature(before: float | None, now: float | None, within: float, expected: str | None) -> None:
    card = signed(CARD, exp=None if before is None else NOW + before * DAY)
    found = reason(card, exp=None if now is None else NOW + now * DAY, until=NOW + within * DAY)
    assert found == (expected and f"its signature by ann {expected}")


def test_signatures_of_others_stay_and_are_no_reason() -> None:
    card = signed(CARD, BOB)
    card["signatures"].insert(0, {"protected": base64url.encode(b'{"alg":"X"}'), "signature": "AA"})
    assert reason(card) == "not signed by ann"
    assert reason(signed(card)) is None


@given(st.data())
def test_no_changed_text_of_a_signature_passes(data: st.DataObject) -> None:
    card = orjson.loads(orjson.dumps(SIGNED))
    entry = data.draw(st.sampled_from(card["signatures"]))
    member = data.draw(st.sampled_from(["protected", "signature"]))
    position = data.draw(st.integers(0, len(entry[member]) - 1))
    letter = data.draw(st.sampled_from("AZaz09-_ .").filter(lambda each: each != entry[member][position]))
    entry[member] = entry[member][:position] + letter + entry[member][position + 1 :]
    assert reason(card) is not None


def edited(data: st.DataObject, value: Any) -> Any:
    """The value with one member, entry or text changed, removed or added."""
    if isinstance(value, dict) and value:
        name = data.draw(st.sampled_from(sorted(value)))
        match data.draw(st.sampled_from(["inside", "inside", "remove", "add"])):
            case "remove":
                return {each: value[each] for each in value if each != name}
            case "add":
                return {**value, data.draw(st.sampled_from(["tags", "extra", "header", "url"])): data.draw(SOMETHING)}
        return {**value, name: edited(data, value[name])}
    if isinstance(value, list) and value:
        position = data.draw(st.integers(0, len(value) - 1))
        rest = [*value[:position], *value[position + 1 :]]
        match data.draw(st.sampled_from(["inside", "remove", "twice", "turn"])):
            case "remove":
                return rest
            case "twice":
                return [*value, value[position]]
            case "turn":
                return value[::-1]
        return [*value[:position], edited(data, value[position]), *value[position + 1 :]]
    return data.draw(SOMETHING)


SOMETHING: st.SearchStrategy[Any] = st.sampled_from(
    [None, "", "x", [], {}, [{}], True, 0, 1.5, {"schemes": {}}, [{"schemes": {}}]]
)
SIGNED = signed(LOOSE)
OLD: JSONObject = {"name": "x", "url": "https://invoice.example.com/", "version": "1", "security": [{"bearer": []}]}
BY_BOTH = [signed(CARD, ANN, BOB), signed(LOOSE, ANN, BOB), signed(OLD, ANN, BOB)]


@given(st.data())
def test_whatever_was_edited_a_card_that_needs_nothing_is_verified_whole(data: st.DataObject) -> None:
    card = edited(data, orjson.loads(orjson.dumps(data.draw(st.sampled_from(BY_BOTH)))))
    try:
        found = reason(card, ANN, BOB)
    except TrustError:
        return  # signing refuses it too
    if found is not None:
        return
    trust = TrustStore(TrustedKey(key=each.public_key, origins=UnsafeAnyOrigin()) for each in (ANN, BOB))
    both = all_of(*(each.public_key.thumbprint for each in (ANN, BOB)))
    verified = verify_card(orjson.dumps(card), trust, origin=UnsafeAnyOrigin(), now=NOW, policy=both)
    assert (verified.unverified, verified.dropped) == ((), ())
    again = sign_card(card, ANN, BOB, iat=NOW, companion=True)
    assert {**again.card, "signatures": 0} == {**card, "signatures": 0}
    assert len(again.card["signatures"]) == len(card["signatures"])
