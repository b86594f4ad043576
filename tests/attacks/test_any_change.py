"""Whatever is changed in a signed card is refused, or changes nothing of what the caller gets.

The properties behind the single attacks. ``UNCHANGED`` cards are those that the signatures prove; every attempt ends in
one of them or in a TrustError, never in another exception.
"""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from a2a_trust import CardVerifier, TrustedKey, TrustError, TrustStore, sign_card, verify_card
from a2a_trust.errors import CardVerificationError, FailureReason
from a2a_trust.keys import LocalSigner, SigningTool, UnsafeAnyOrigin
from a2a_trust.signing import Coverage
from a2a_trust.signing.signature import FORM_MARKERS
from tests.attacks.forgery import JSONObject, b64, canonical, entry, pruned, served, signs, unb64, without_signatures
from tests.attacks.verifying import HOST, NOW, ORIGIN
from tests.jws import verify_jws

#: No deadline: the machine may be busy with other things.


@dataclass(frozen=True)
class Target:
    """A signed card, who trusts it, and what its signatures prove."""

    document: JSONObject
    trust: TrustStore
    coverage: Coverage
    verified: JSONObject

    def ask(self, document: bytes) -> JSONObject | None:
        """The card that verification returns, None when it is refused; another exception ends the test."""
        try:
            return verify_card(document, self.trust, origin=ORIGIN, now=NOW, coverage=self.coverage).card
        except TrustError:
            return None


@pytest.fixture(scope="module")
def targets(
    signed_card: JSONObject,
    trust: TrustStore,
    sdk_trust: TrustStore,
    whole_trust: TrustStore,
    good_by_hand: JSONObject,
    sdk_signature: JSONObject,
    sdk_payload: bytes,
) -> list[Target]:
    """Our own signed card, by itself and by a key of an SDK, an SDK's: with the rest, and alone; another tool's."""
    card = without_signatures(signed_card)
    found = [
        Target(signed_card, trust, Coverage.WHOLE_CARD, card),
        Target(signed_card, sdk_trust, Coverage.SIGNED_PART_ONLY, card),
        Target({**card, "signatures": [sdk_signature]}, sdk_trust, Coverage.SIGNED_PART_ONLY, json.loads(sdk_payload)),
        Target(
            {**pruned(card), "signatures": [sdk_signature]}, sdk_trust, Coverage.WHOLE_CARD, json.loads(sdk_payload)
        ),
        Target({**card, "signatures": [good_by_hand]}, whole_trust, Coverage.WHOLE_CARD, card),
        Target({**card, "signatures": [good_by_hand]}, trust, Coverage.WHOLE_CARD, card),
    ]
    for target in found:  # control: unchanged, each is verified
        assert target.ask(json.dumps(target.document).encode()) == target.verified
    return found


@pytest.fixture(scope="module")
def good_by_hand(signed_card: JSONObject, owner: LocalSigner) -> JSONObject:
    """The owner's unmarked signature over the whole card."""
    whole = canonical(without_signatures(signed_card))
    return entry({"alg": "ES256", "kid": "owner", "typ": "JOSE"}, whole, signs(owner.private_key, "ES256"))


which = st.integers(0, 5)


# --- octets of the document ----------------------------------------------------------------------------------------

edits = st.lists(
    st.tuples(
        st.sampled_from(["replace", "insert", "delete", "double"]),
        st.floats(0, 1, exclude_max=True),
        st.binary(min_size=1, max_size=4) | st.sampled_from([b'"', b"{", b"}", b",", b":", b"\\", b" ", b"0", b"null"]),
    ),
    min_size=1,
    max_size=4,
)


def edited(text: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for kind, place, octets in changes:
        at = int(place * (len(text) + 1))
        if kind == "replace":
            text = text[:at] + octets + text[at + len(octets) :]
        elif kind == "insert":
            text = text[:at] + octets + text[at:]
        elif kind == "delete":
            text = text[:at] + text[at + len(octets) :]
        else:
            text = text[:at] + text[at : at + 16] + text[at:]
    return text


@given(which=which, changes=edits)
def test_octets_of_the_document_are_changed(
    targets: list[Target], which: int, changes: list[tuple[str, float, bytes]]
) -> None:
    target = targets[which]
    document = edited(json.dumps(target.document, ensure_ascii=False).encode(), changes)
    assert target.ask(document) in (None, target.verified)


def test_each_octet_of_the_document_is_changed_in_turn(targets: list[Target]) -> None:
    """One bit of every octet: refused, unless it falls on what is not signed, or on the spelling of the same text."""
    target = targets[0]
    text = json.dumps({**target.document, "signatures": target.document["signatures"][:1]}, ensure_ascii=False).encode()
    verified = 0
    for at in range(len(text)):
        changed = bytearray(text)
        changed[at] ^= 1 << at % 8
        answer = target.ask(bytes(changed))
        assert answer in (None, target.verified)
        verified += answer is not None
    assert verified < len(text) // 50  # a blank that became a line feed, a capital letter in an escape


# --- the protected header and the signature ------------------------------------------------------------------------


@given(which=which, changes=edits)
def test_octets_of_a_protected_header_are_changed(
    targets: list[Target], which: int, changes: list[tuple[str, float, bytes]]
) -> None:
    target = targets[which]
    first = target.document["signatures"][0]
    header = edited(unb64(first["protected"]), changes)
    if b64(header) == first["protected"]:
        return
    changed = {**first, "protected": b64(header)}
    assert target.ask(served(target.document, changed)) is None


@example(which=0, part="signature", changes=[("insert", 0.999, b"=")])
@example(which=0, part="signature", changes=[("insert", 0.5, b"\n")])
@given(which=which, part=st.sampled_from(["protected", "signature"]), changes=edits)
def test_characters_of_a_protected_header_or_a_signature_are_changed(
    targets: list[Target], which: int, part: str, changes: list[tuple[str, float, bytes]]
) -> None:
    target = targets[which]
    first = target.document["signatures"][0]
    text = edited(first[part].encode(), changes).decode("latin-1")
    if text == first[part]:
        return
    assert target.ask(served(target.document, {**first, part: text})) is None


@pytest.mark.parametrize("alg", ["ES256", "ES384", "EdDSA", "RS256"])
def test_each_bit_of_a_signature_is_changed_in_turn(
    request: pytest.FixtureRequest, card: JSONObject, payload: bytes, trust: TrustStore, alg: str
) -> None:
    names = {"ES256": "owner", "ES384": "p384_owner", "EdDSA": "ed_owner", "RS256": "rsa_owner"}
    signer: LocalSigner = request.getfixturevalue(names[alg])
    made = entry({"alg": alg, "kid": signer.kid}, payload, signs(signer.private_key, alg))
    octets = unb64(made["signature"])
    for bit in range(0, len(octets) * 8, 5):
        changed = bytearray(octets)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CardVerificationError) as caught:
            verify_card(served(card, {**made, "signature": b64(bytes(changed))}), trust, origin=ORIGIN, now=NOW)
        assert [failure.reason for failure in caught.value.failures] == [FailureReason.BAD_SIGNATURE]


def test_the_other_signature_that_ecdsa_has_proves_the_same_card(
    card: JSONObject, good: JSONObject, trust: TrustStore
) -> None:
    """(r, n−s) is good wherever (r, s) is: known of ECDSA. It proves the same bytes, and nothing is named by it."""
    n = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    octets = unb64(good["signature"])
    other = octets[:32] + (n - int.from_bytes(octets[32:], "big")).to_bytes(32, "big")
    answer = verify_card(served(card, {**good, "signature": b64(other)}), trust, origin=ORIGIN, now=NOW)
    assert answer.card == card


# --- order, blanks and spelling ------------------------------------------------------------------------------------


chance = st.integers(0, 2**64).map(random.Random)


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same JSON value with the members of every object in another order."""
    if isinstance(value, dict):
        names = chance.sample(list(value), len(value))
        return {name: shuffled(value[name], chance) for name in names}
    if isinstance(value, list):
        return [shuffled(item, chance) for item in value]
    return value


@given(which=which, chance=chance)
def test_the_order_of_members_is_changed(targets: list[Target], which: int, chance: random.Random) -> None:
    target = targets[which]
    document = shuffled(target.document, chance)
    chance.shuffle(document["signatures"])
    assert target.ask(json.dumps(document).encode()) == target.verified


@given(chance=chance)
def test_the_order_of_members_when_signing_does_not_matter(owner: LocalSigner, chance: random.Random) -> None:
    card = {
        "name": "n",
        "skills": [{"id": "a", "tags": ["x", "y"], "name": "\U0001f600", "é": 1.5}],
        "x": {"b": 1, "a": [], "\uffff": 0, "\U0001f600": 2},
    }
    assert sign_card(shuffled(card, chance), owner).payload == sign_card(card, owner).payload


def blank(chance: random.Random) -> str:
    return "".join(chance.choices(" \t\r\n", k=chance.choice((0, 0, 1, 3))))


def spelled(value: Any, chance: random.Random) -> str:
    """The value as another writer may print it: blanks, escapes in strings, numbers in all their forms."""
    if isinstance(value, dict):
        members = [f"{spelled(name, chance)}:{spelled(item, chance)}" for name, item in value.items()]
        text = "{" + (",".join(members) or blank(chance)) + "}"
    elif isinstance(value, list):
        text = "[" + (",".join(spelled(item, chance) for item in value) or blank(chance)) + "]"
    elif isinstance(value, str):
        units = value.encode("utf-16-be")
        escaped = "".join(f"\\u{units[at] << 8 | units[at + 1]:04X}" for at in range(0, len(units), 2))
        text = chance.choice((json.dumps(value), json.dumps(value, ensure_ascii=False), f'"{escaped}"'))
    elif type(value) is int:
        text = chance.choice((f"{value}", f"{value}.0", f"{value}e0", f"{value * 10}E-1", f"{value}.00e+0"))
    else:
        text = json.dumps(value)
    return f"{blank(chance)}{text}{blank(chance)}"


@given(which=which, chance=chance)
def test_blanks_and_spelling_are_changed(targets: list[Target], which: int, chance: random.Random) -> None:
    target = targets[which]
    assert target.ask(spelled(target.document, chance).encode()) == target.verified


# --- members added, changed, taken away ----------------------------------------------------------------------------

interesting = st.sampled_from(
    [
        "url", "security", "securityRequirements", "security_requirements", "securitySchemes", "supportedInterfaces",
        "supported_interfaces", "additionalInterfaces", "schemes", "list", "signatures", "skills", "params", "scopes",
        "mtlsSecurityScheme", "tenant", "required", "authentication", "Name", "NAME", "name", "iconUrl", "__proto__",
        "constructor", "toJSON", "", " ", "\0", "\uffff", "\U0001f600",
    ]
)  # fmt: skip
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["https://evil.example/", f"https://{HOST}/", "Bearer"]),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(interesting | st.text(max_size=4), children, max_size=3)
    ),
    max_leaves=6,
) | st.sampled_from(
    [[], {}, [{}], {"schemes": {}}, {"list": []}, [{"schemes": {"mtls": {}}}], {"mtlsSecurityScheme": {}}]
)


def containers(value: Any, kind: type) -> list[Any]:
    """Every object or list in the document, ``signatures`` apart."""
    found = [value] if isinstance(value, kind) else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        if name != "signatures":
            found += containers(item, kind)
    return found


def places_in(document: JSONObject) -> list[tuple[Any, Any]]:
    """Every container with each of its names or indices, ``signatures`` apart."""
    members = [(place, name) for place in containers(document, dict) for name in place if name != "signatures"]
    return members + [(place, at) for place in containers(document, list) for at in range(len(place))]


@given(which=which, at=st.integers(0, 200), name=interesting | st.text(max_size=6), value=json_values)
@example(which=0, at=0, name="security_requirements", value=[{}])
@example(which=1, at=0, name="url", value="https://evil.example/")
@example(which=2, at=0, name="url", value="https://evil.example/")
@example(which=3, at=0, name="security", value=[{}])
def test_members_are_inserted_anywhere(targets: list[Target], which: int, at: int, name: str, value: Any) -> None:
    target = targets[which]
    document = copy.deepcopy(target.document)
    places = containers(document, dict)
    place = places[at % len(places)]
    place[name] = value
    assert target.ask(json.dumps(document).encode()) in (None, target.verified)


@given(which=which, number=st.integers(0, 500), value=json_values, last=st.booleans())
def test_a_member_is_written_twice(targets: list[Target], which: int, number: int, value: Any, last: bool) -> None:
    """Readers differ in which of the two they keep; the document is text here, so that both are there."""
    target = targets[which]
    document = copy.deepcopy(target.document)
    members = [(place, name) for place, name in places_in(document) if isinstance(place, dict)]
    place, name = members[number % len(members)]
    place["\0again"] = value
    if not last:  # before all others
        for other in [other for other in place if other != "\0again"]:
            place[other] = place.pop(other)
    text = json.dumps(document)
    assert text.count('"\\u0000again"') == 1
    assert target.ask(text.replace('"\\u0000again"', json.dumps(name)).encode()) is None


@given(which=which, at=st.integers(0, 200), place=st.integers(0, 5), value=json_values)
def test_items_are_inserted_into_any_list(targets: list[Target], which: int, at: int, place: int, value: Any) -> None:
    target = targets[which]
    document = copy.deepcopy(target.document)
    lists = containers(document, list)
    lists[at % len(lists)].insert(place, value)
    assert target.ask(json.dumps(document).encode()) in (None, target.verified)


@given(which=which, at=st.lists(st.integers(0, 500), min_size=1, max_size=3), value=json_values | st.just("DELETE"))
def test_any_members_are_changed_or_deleted(targets: list[Target], which: int, at: list[int], value: Any) -> None:
    target = targets[which]
    document = copy.deepcopy(target.document)
    for number in at:
        places = places_in(document)
        place, key = places[number % len(places)]
        if value == "DELETE":
            del place[key]
        else:
            place[key] = copy.deepcopy(value)
    assert target.ask(json.dumps(document).encode()) in (None, target.verified)


def test_each_member_of_the_card_is_deleted_in_turn(targets: list[Target]) -> None:
    """Our own card: every single deletion is refused, whichever of its signatures stays."""
    target = targets[0]
    for number in range(len(places_in(target.document))):
        document = copy.deepcopy(target.document)
        place, key = places_in(document)[number]
        del place[key]
        for signatures in (target.document["signatures"], target.document["signatures"][1:]):
            assert target.ask(served(document, *signatures)) is None, (number, key)


# --- documents of any kind -----------------------------------------------------------------------------------------


@given(octets=st.binary(max_size=200) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_octets_of_any_kind_raise_nothing_but_a_trust_error(trust: TrustStore, octets: bytes) -> None:
    for document in (octets, b'{"signatures":[' + octets + b"]}", b'{"name":' + octets + b"}"):
        with pytest.raises(TrustError):
            verify_card(document, trust, origin=ORIGIN, now=NOW)


@given(card=st.dictionaries(interesting, json_values, max_size=6), signatures=st.lists(json_values, max_size=3))
def test_cards_of_any_kind_raise_nothing_but_a_trust_error(
    trust: TrustStore, good_header: str, card: JSONObject, signatures: list[Any]
) -> None:
    claimed = {"protected": good_header, "signature": "A" * 86}
    verifier = CardVerifier(trust, clock=lambda: NOW)
    for document in ({**card, "signatures": [*signatures, claimed]}, {**card, "signatures": signatures}, card):
        text = json.dumps(document).encode()
        with pytest.raises(TrustError):
            verifier.verify(text, origin=ORIGIN)
        with pytest.raises(TrustError):
            verify_card(document, trust, origin=ORIGIN, now=NOW)


@given(card=st.dictionaries(interesting.filter(lambda name: name != "signatures"), json_values, max_size=5))
def test_a_card_of_any_kind_is_refused_or_signed_and_verified_as_it_was_signed(
    owner: LocalSigner, card: JSONObject
) -> None:
    try:
        signed = sign_card(card, owner)
    except TrustError:
        return
    for signer in (None, *SigningTool):
        trust = TrustStore([TrustedKey(key=owner.public_key, origins=UnsafeAnyOrigin(), signer=signer)])
        result = verify_card(signed.card, trust, origin=UnsafeAnyOrigin(), now=NOW)
        assert (result.payload, result.unverified) == (signed.payload, ())
        assert as_doubles(result.card) == as_doubles(without_signatures(signed.card))


def as_doubles(value: Any) -> Any:
    """RFC 8785 knows only doubles: 1e17 and 100000000000000000 are one number, and may be read as either."""
    if isinstance(value, dict):
        return {name: as_doubles(item) for name, item in value.items()}
    if isinstance(value, list):
        return [as_doubles(item) for item in value]
    return float(value) if type(value) is int else value


@pytest.fixture(scope="module")
def good_header(owner: LocalSigner) -> str:
    return b64(canonical({"alg": "ES256", "kid": owner.kid, "typ": "JOSE"}))


header_members = st.dictionaries(
    st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jku", "jwk", "x5c", "iat", "exp", "cty", ""]),
    json_values | st.sampled_from(["ES256", "EdDSA", "RS256", "owner", "JOSE", *FORM_MARKERS]),
    max_size=6,
)


@given(protected=header_members | json_values, unprotected=header_members | json_values, signature=st.text(max_size=90))
def test_headers_of_any_kind_raise_nothing_but_a_trust_error(
    trust: TrustStore, owner: LocalSigner, protected: Any, unprotected: Any, signature: str
) -> None:
    made = {"protected": b64(json.dumps(protected).encode()), "signature": signature, "header": unprotected}
    with pytest.raises(TrustError):
        verify_card({"name": "x", "signatures": [made]}, trust, origin=ORIGIN, now=NOW)
    with pytest.raises(TrustError):
        verify_jws(payload=b"{}", key=owner.public_key, **made)


@example(header={"alg": "ES256", "kid": "owner", "exp": "soon"})
@example(header={"alg": "ES256", "kid": "owner", "iat": [0]})
@given(header=header_members | header_members.map(lambda members: {"alg": "ES256", "kid": "owner", **members}))
def test_a_header_of_any_kind_that_the_owner_has_signed_is_refused_or_proves_the_card(
    targets: list[Target], owner: LocalSigner, header: JSONObject
) -> None:
    target = targets[0]
    made = entry(header, canonical(target.verified), signs(owner.private_key, "ES256"))
    assert target.ask(served(target.document, made)) in (None, target.verified)
