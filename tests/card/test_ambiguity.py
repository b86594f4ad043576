"""The gate: a card that two readers could read differently is refused, whatever is signed.

Every card of these tests also goes through ``verify_card``, with a good signature by a trusted key over the card as it
is: then only the gate can refuse it.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given

from a2a_trust.base import strict_json
from a2a_trust.card.ambiguity import _are_simple_params, check_card, field_of, is_full
from a2a_trust.card.schema import MESSAGES, Field, Kind
from a2a_trust.card.simple import read_simple_card
from a2a_trust.errors import MalformedError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.signing.forms import Form, project
from a2a_trust.signing.signature import content_type
from a2a_trust.signing.verify import verify_card
from tests.attacks.forgery import canonical, entry, served, signs, without_signatures
from tests.signing.cards import Card, Place, cards, full_card, legacy_card, many_formed_card, merged_card, places
from tests.signing.making import ANYWHERE, trust_in
from tests.tables import walk

PLACES = {pointer: (message, put) for pointer, message, put in places()}

SOUND: dict[Kind, Any] = {
    Kind.STRING: "x:1",  # also the URL of an interface
    Kind.BOOL: True,
    Kind.STRINGS: ["x"],
    Kind.STRING_MAP: {"k": "x"},
    Kind.MESSAGE: {},
    Kind.MESSAGES: [{}],
    Kind.MESSAGE_MAP: {"k": {}},
    Kind.STRUCT: {"k": [1, None]},
}

_SCALARS: tuple[Any, ...] = (0, 1, 1.5, "")
WRONG: dict[Kind, tuple[Any, ...]] = {
    Kind.STRING: (0, 1.5, True, [], {}, ["x"]),
    Kind.BOOL: (0, 1, "true", "", [], {}),
    Kind.STRINGS: (*_SCALARS, True, {}, [1], ["x", None], [["x"]], [{}]),
    Kind.STRING_MAP: (*_SCALARS, True, [], {"k": 1}, {"k": None}, {"k": ["x"]}, [["k", "x"]]),
    Kind.MESSAGE: (*_SCALARS, True, [], [{}]),
    Kind.MESSAGES: (*_SCALARS, True, {}, [None], ["x"], [{}, 1], [[]]),
    Kind.MESSAGE_MAP: (*_SCALARS, True, [], {"k": None}, {"k": "x"}, {"k": True}, [{}]),
    Kind.STRUCT: (*_SCALARS, True, [], [{}]),
}


def fields() -> Iterator[tuple[str, Field]]:
    for pointer, (message, _) in PLACES.items():
        for field in MESSAGES[message].values():
            yield pointer, field


FIELDS = [pytest.param(pointer, field, id=f"{pointer}/{field.name}") for pointer, field in fields()]
TWO_NAMED = [
    pytest.param(pointer, field, id=f"{pointer}/{field.name}")
    for pointer, field in fields()
    if field.name != field.proto_name
]


def at(pointer: str, members: Any) -> Card:
    return PLACES[pointer][1](members)


OWNER = generate_signer("EdDSA", kid="owner")
TRUST = trust_in(OWNER)
_HEADER = {"alg": "EdDSA", "kid": "owner", "cty": content_type(Form.SERVED)}


def signed_as_it_is(card: Any) -> bytes:
    """The card with a signature over exactly its bytes, made by hand: nothing has looked at what is in it."""
    return served(card, entry(_HEADER, canonical(without_signatures(card)), signs(OWNER.private_key, "EdDSA")))


def is_usual(card: Any) -> bool:
    return read_simple_card(json.dumps(card).encode(), _are_simple_params) is not None


def taken(card: Any) -> bool:
    """The card passes the gate, alone and in ``verify_card``; what ``check_card`` says of it."""
    single = check_card(card)
    verified = verify_card(signed_as_it_is(card), TRUST, origin=ANYWHERE, now=0)
    assert verified.payload == canonical(without_signatures(card))
    return single


def refused(card: Any, pointer: str, why: str) -> None:
    """The card is refused, alone and in ``verify_card``, and the text names the member and the reason."""
    text = f"^card: {re.escape(ascii(pointer)[1:-1])}.*: .*{why}"
    with pytest.raises(MalformedError, match=text):
        check_card(card)
    assert not is_usual(card)
    with pytest.raises(MalformedError, match=text):
        verify_card(signed_as_it_is(card), TRUST, origin=ANYWHERE, now=0)


def test_the_places_reach_every_message_of_the_table() -> None:
    assert {message for message, _ in PLACES.values()} == MESSAGES.keys()
    assert len(PLACES) > 20


@walk("place", list(places()), ids=lambda place: f"{place[0]}:{place[1]}")
def test_every_message_is_taken_empty_and_with_members_that_a2a_does_not_know(place: Place) -> None:
    _, _, put = place
    taken(put({}))
    assert taken(put({"x-vendor": {"Name": 1, "name": [None]}})) is False


@walk(("pointer", "field"), FIELDS)
def test_every_field_is_taken_with_its_type_with_null_and_under_its_proto_name(pointer: str, field: Field) -> None:
    value = SOUND[field.kind]
    taken(at(pointer, {field.name: value}))
    assert taken(at(pointer, {field.name: None})) is False
    taken(at(pointer, {field.proto_name: value}))


@walk(("pointer", "field"), FIELDS)
def test_every_field_is_refused_with_another_type_under_both_names(pointer: str, field: Field) -> None:
    for name in {field.name, field.proto_name}:
        for wrong in WRONG[field.kind]:
            if field.message == "StringList" and wrong == {"k": []}:
                continue
            refused(at(pointer, {name: wrong}), f"{pointer}/{name}", "is needed, this is")


@walk(("pointer", "field"), TWO_NAMED)
def test_a_field_under_both_its_names_is_refused_even_when_they_agree_or_one_is_null(
    pointer: str, field: Field
) -> None:
    value = SOUND[field.kind]
    for one, other in ((value, value), (value, None), (None, value), (None, None)):
        for members in ({field.name: one, field.proto_name: other}, {field.proto_name: one, field.name: other}):
            refused(at(pointer, members), f"{pointer}/{field.proto_name}", f"are one field; keep {field.name}")


@walk(("pointer", "field"), FIELDS)
def test_a_name_that_differs_from_a_field_only_in_case_is_refused(pointer: str, field: Field) -> None:
    variants = set()
    for name in {field.name, field.proto_name}:
        variants |= {name.upper(), name.lower(), name.capitalize(), name.title(), name[0].upper() + name[1:]}
        # Letters that fold to s and k: readers that compare with Unicode case folding take them for the field.
        variants |= {name.replace("s", "\u017f"), name.replace("k", "\u212a")}
    for variant in variants - {field.name, field.proto_name}:
        for members in ({variant: SOUND[field.kind]}, {variant: None}, {field.name: None, variant: 1}):
            refused(at(pointer, members), f"{pointer}/{variant}", "this differs from a member of A2A only in case")


@walk("name", ["url\0", "\0url", "x\x1f", "x\x7f", "x\u200b", "x\u202e", "x\ufeff"])
def test_a_name_that_is_not_printable_is_refused_where_a2a_has_names(name: str) -> None:
    for pointer in ("", "/capabilities", "/skills/0", "/supportedInterfaces/0"):
        refused(at(pointer, {name: 1}), f"{pointer}/{name}", "its name is not printable")
    taken({"securitySchemes": {name: {"mtlsSecurityScheme": {"description": "x"}}}})
    taken({"gr\u00f6\u00dfe": 1, "x-y": {name: 1}})


SCHEMES = [field for field in MESSAGES["SecurityScheme"].values() if field.oneof]
FLOWS = [field for field in MESSAGES["OAuthFlows"].values() if field.oneof]
VARIANTS = [
    *(("/securitySchemes/key", one, other) for one, other in combinations(SCHEMES, 2)),
    *(("/securitySchemes/key/oauth2SecurityScheme/flows", one, other) for one, other in combinations(FLOWS, 2)),
]


@walk(("pointer", "one", "other"), VARIANTS, ids=[f"{one.name}+{other.name}" for _, one, other in VARIANTS])
def test_two_variants_of_which_one_may_be_set_are_refused(pointer: str, one: Field, other: Field) -> None:
    for first, second in ((one, other), (other, one)):
        for name in {first.name, first.proto_name}:
            for twin in {second.name, second.proto_name}:
                refused(at(pointer, {name: {}, twin: {}}), f"{pointer}/{twin}", f"{name} and {twin} exclude each other")
        # A variant that is null is not set.
        taken(at(pointer, {first.name: {}, second.name: None}))


def test_there_are_five_schemes_and_five_flows_to_choose_from() -> None:
    assert (len(SCHEMES), len(FLOWS), len(VARIANTS)) == (5, 5, 20)


def test_the_shape_of_0_3_may_have_several_flows() -> None:
    flows = {name: {"tokenUrl": "https://id.example.com/token"} for name in ("clientCredentials", "password")}
    taken({"securitySchemes": {"oauth": {"type": "oauth2", "flows": flows}}})
    refused(
        {"securitySchemes": {"oauth": {"oauth2SecurityScheme": {"flows": flows}}}},
        "/securitySchemes/oauth/oauth2SecurityScheme/flows/password",
        "exclude each other",
    )


@walk("flow", [field.name for field in FLOWS])
def test_flows_in_the_shape_of_0_3_are_checked_like_those_of_1_0(flow: str) -> None:
    def card(members: Any) -> Card:
        return {"securitySchemes": {"s": {"type": "oauth2", "flows": {flow: members}}}}

    taken(card({"scopes": {"read": "x", "Read": "y"}}))
    refused(card({"scopes": ["read"]}), f"/securitySchemes/s/flows/{flow}/scopes", "an object is needed")
    refused(card({"ScopeS": {}}), f"/securitySchemes/s/flows/{flow}/ScopeS", "only in case")
    refused(card([]), f"/securitySchemes/s/flows/{flow}", "an object is needed")


#: Members of 0.1 to 0.3: pointer of the message, name, a sound value, wrong values.
LEGACY: list[tuple[str, str, Any, tuple[Any, ...]]] = [
    ("", "url", "x:1", WRONG[Kind.STRING]),
    ("", "preferredTransport", "x", WRONG[Kind.STRING]),
    ("", "protocolVersion", "x", WRONG[Kind.STRING]),
    ("", "additionalInterfaces", [{"url": "x:1", "transport": "y"}], WRONG[Kind.MESSAGES]),
    ("", "security", [{"a": [], "b": ["x"]}, {}], (*WRONG[Kind.MESSAGES], [{"a": "x"}], [{"a": [1]}], [{"a": None}])),
    ("", "supportsAuthenticatedExtendedCard", False, WRONG[Kind.BOOL]),
    ("", "authentication", {"schemes": ["Bearer"], "credentials": "x"}, (*WRONG[Kind.MESSAGE], {"schemes": "Bearer"})),
    ("/capabilities", "stateTransitionHistory", True, WRONG[Kind.BOOL]),
    ("/skills/0", "security", [{"a": []}], (*WRONG[Kind.MESSAGES], [{"a": {"list": []}}])),
    *(
        ("/securitySchemes/key", name, "x", WRONG[Kind.STRING])
        for name in ("type", "description", "in", "name", "scheme", "bearerFormat", "openIdConnectUrl")
    ),
    ("/securitySchemes/key", "oauth2MetadataUrl", "x", WRONG[Kind.STRING]),
    ("/securitySchemes/key", "flows", {"password": {}}, (*WRONG[Kind.MESSAGE], {"password": []})),
]


@walk(("pointer", "name", "sound", "wrong"), LEGACY, ids=[f"{pointer}/{name}" for pointer, name, *_ in LEGACY])
def test_members_of_earlier_generations_are_checked_too(
    pointer: str, name: str, sound: Any, wrong: tuple[Any, ...]
) -> None:
    assert taken(at(pointer, {name: sound})) is False
    assert taken(at(pointer, {name: None})) is False
    for value in wrong:
        refused(at(pointer, {name: value}), f"{pointer}/{name}", "is needed, this is")
    refused(at(pointer, {name.upper(): sound}), f"{pointer}/{name.upper()}", "only in case")
    proto = re.sub("([A-Z])", lambda capital: f"_{capital[0].lower()}", name)
    if proto != name:
        taken(at(pointer, {proto: sound}))
        refused(at(pointer, {name: sound, proto: sound}), f"{pointer}/{proto}", "are one field")


def test_legacy_interfaces_are_checked_inside() -> None:
    refused({"additionalInterfaces": [{"url": 1}]}, "/additionalInterfaces/0/url", "a string is needed")
    refused({"additionalInterfaces": [{}, {"URL": "x"}]}, "/additionalInterfaces/1/URL", "only in case")


def test_scheme_names_scopes_and_params_are_free() -> None:
    taken(
        {
            "securitySchemes": {"Read": {}, "read": {}, "NAME": {}, "": {}, "type": {}},
            "securityRequirements": [{"schemes": {"Read": {}, "read": {"list": ["A", "a"]}, "Schemes": {}}}],
            "security": [{"Read": [], "read": [], "Schemes": []}],
            "capabilities": {"extensions": [{"params": {"Url": 1, "url": 2, "name": None, "NAME": [[]]}}]},
        }
    )


LOST = "JavaScript clients lose a member of this name"


@walk("name", ["__proto__", "constructor", "prototype", "toString", "hasOwnProperty", "__proto", ""])
def test_the_name_that_a2a_js_loses_is_refused_wherever_a2a_reads_names(name: str) -> None:
    rows: dict[str, Card] = {
        f"/securitySchemes/{name}": {"securitySchemes": {"a": {}, name: {"mtlsSecurityScheme": {}}}},
        f"/securityRequirements/0/schemes/{name}": {"securityRequirements": [{"schemes": {"a": {}, name: {}}}]},
        f"/securityRequirements/1/{name}": {"securityRequirements": [{"a": []}, {name: []}]},
        f"/security/1/{name}": {"security": [{"a": []}, {name: []}]},
        f"/skills/0/security/0/{name}": {"skills": [{"security": [{name: ["read"]}]}]},
        f"/capabilities/extensions/0/params/{name}": {"capabilities": {"extensions": [{"params": {name: 1}}]}},
        f"/capabilities/extensions/0/params/a/1/{name}": {
            "capabilities": {"extensions": [{"params": {"a": [{}, {name: {"b": 1}}]}}]}
        },
    }
    for flow in FLOWS:
        pointer = f"/securitySchemes/s/oauth2SecurityScheme/flows/{flow.name}/scopes/{name}"
        rows[pointer] = {
            "securitySchemes": {"s": {"oauth2SecurityScheme": {"flows": {flow.name: {"scopes": {name: "x"}}}}}}
        }
    for pointer, (_, put) in PLACES.items():
        rows[f"{pointer}/{name}"] = put({name: {"mtlsSecurityScheme": {}}})
    for pointer, card in rows.items():
        if name == "__proto__":
            refused(card, pointer, LOST)
        else:
            taken(card)


def test_texts_and_what_a2a_does_not_know_may_say_what_they_like() -> None:
    taken({"name": "__proto__", "x-vendor": {"__proto__": 1}, "skills": [{"tags": ["__proto__"]}]})
    taken({"capabilities": {"extensions": [{"uri": "x", "params": {"a": "__proto__", "b": ["__proto__"]}}]}})


def test_requirements_as_a2a_go_spells_them_are_taken_and_their_scopes_checked() -> None:
    member = {"securityRequirements": [{"schemes": {"oauth": ["read", "write"], "key": [], "x": {"list": ["y"]}}}]}
    assert taken(member) is False
    assert taken({"skills": [member]}) is False
    for scopes in ([1], [None], ["x", []], [["x"]]):
        refused(
            {"securityRequirements": [{"schemes": {"oauth": scopes}}]},
            "/securityRequirements/0/schemes/oauth",
            "a string is needed",
        )


def test_a_list_stands_for_no_other_message_than_the_scopes() -> None:
    refused({"securitySchemes": {"s": ["x"]}}, "/securitySchemes/s", "an object is needed, this is a list")
    refused({"skills": [["x"]]}, "/skills/0", "an object is needed, this is a list")


@walk("name", ["securityRequirements", "security_requirements"])
@walk("put", [lambda members: members, lambda members: {"skills": [members]}], ids=["card", "skill"])
def test_requirements_of_1_0_with_nothing_in_them_beside_those_of_0_3_are_refused(
    name: str, put: Callable[[Card], Card]
) -> None:
    pointer = name if put({}) == {} else f"skills/0/{name}"
    empties: tuple[Any, ...] = ([], None)
    for empty in empties:
        refused(
            put({"security": [{"key": []}], name: empty}), f"/{pointer}", "has nothing in it, and security beside it"
        )
        refused(
            put({name: empty, "security": [{"key": []}]}), f"/{pointer}", "has nothing in it, and security beside it"
        )
        taken(put({"security": [], name: empty}))
    taken(put({"security": [{"key": []}], name: [{"schemes": {"key": {}}}]}))


@walk("scopes", ["read", {"list": ["read"]}, 1, True, None])
def test_scopes_in_the_shape_of_0_3_are_a_list(scopes: Any) -> None:
    refused({"security": [{"key": scopes}]}, "/security/0/key", "a list of scopes is needed")


def test_requirements_flat_as_in_0_3_are_taken_under_the_name_of_1_0() -> None:
    assert taken({"securityRequirements": [{"oauth": ["read"]}, {"key": []}, {}]}) is False


@walk(
    ("member", "pointer", "words"),
    [
        ({"name": {}}, "/name", "a string is needed, this is an object"),
        ({"name": []}, "/name", "a string is needed, this is a list"),
        ({"name": 1.5}, "/name", "a string is needed, this is a number"),
        ({"name": False}, "/name", "a string is needed, this is true or false"),
        ({"capabilities": "x"}, "/capabilities", "an object is needed, this is a string"),
        ({"skills": [None]}, "/skills/0", "an object is needed, this is null"),
        ({"defaultInputModes": ["a", "b", 1]}, "/defaultInputModes/2", "a string is needed, this is a number"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_its_place(member: Card, pointer: str, words: str) -> None:
    refused(member, pointer, words)


@walk("card", [None, True, 1, 1.5, "card", [], [{}]], ids=repr)
def test_a_card_is_an_object(card: Any) -> None:
    with pytest.raises(MalformedError, match=r"^card: a JSON object is needed, this is"):
        check_card(card)
    with pytest.raises(MalformedError, match=r"^card: a JSON object is needed, this is"):
        verify_card(canonical(card), TRUST, origin=ANYWHERE, now=0)


def test_signatures_are_not_looked_at_but_their_case_is() -> None:
    contents: list[Any] = [None, [], {}, "x", [{"Protected": 1, "protected": 2}]]
    for signatures in contents:
        assert check_card({**full_card(), "signatures": signatures}) is True
    for name in ("Signatures", "SIGNATURES", "\u017fignatures"):
        refused({**full_card(), name: []}, f"/{name}", "only in case")


def test_pointers_of_refusals_are_escaped_and_printable() -> None:
    card = {"securitySchemes": {"a/b~c\u202e": {"Type": "x"}}}
    with pytest.raises(MalformedError, match=re.escape(r"card: /securitySchemes/a~1b~0c\u202e/Type: ")) as error:
        check_card(card)
    assert str(error.value).isascii()


def test_the_text_of_a_refusal_does_not_grow_with_the_card() -> None:
    with pytest.raises(MalformedError) as error:
        check_card({"securitySchemes": {"x" * 500_000: 1}})
    assert len(str(error.value)) < 2_000


def test_whole_cards_of_every_generation_pass() -> None:
    assert taken(full_card()) is True
    for card in (many_formed_card(), legacy_card(), merged_card()):
        assert taken(card) is False


@walk(
    ("change", "value"),
    [
        ("name", ""),
        ("provider", {}),
        ("provider", None),
        ("skills", []),
        ("skills", [{}]),
        ("defaultInputModes", []),
        ("defaultInputModes", [""]),
        ("securitySchemes", {}),
        ("securitySchemes", {"tls": {"mtlsSecurityScheme": {}}}),
        ("securityRequirements", [{"schemes": {"bearer": {}}}]),
        ("securityRequirements", [{"schemes": {"bearer": {"list": []}}}]),
        ("securityRequirements", [{}]),
        ("capabilities", {}),
        ("capabilities", {"extensions": [{"uri": "x", "required": False}]}),
        ("capabilities", {"extensions": [{"uri": "x", "params": {}}]}),
        ("capabilities", {"extensions": [{"uri": "x", "params": {"a": []}}]}),
        ("capabilities", {"extensions": [{"uri": "x", "params": {"a": [{"b": None}]}}]}),
        ("capabilities", {"extensions": [{"uri": "x", "params": {"a": ""}}]}),
        ("capabilities", {"extensions": [{"uri": "x", "x-more": 1}]}),
        ("capabilities", {"push_notifications": True}),
        *(
            ("securitySchemes", {"s": {"oauth2SecurityScheme": {"flows": {"clientCredentials": {"scopes": scopes}}}}})
            for scopes in (dict[str, str](), {"read": ""}, {"read": "x", "": ""})
        ),
        ("x-vendor", 1),
        ("icon_url", "https://example.com"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_card_is_not_called_single_formed_when_a_form_would_drop_something(change: str, value: Any) -> None:
    card = full_card()
    card.pop("iconUrl")
    assert taken(card) is True
    card[change] = value
    assert taken(card) is False


def test_an_explicit_false_of_an_optional_field_is_in_every_form() -> None:
    card = {**full_card(), "capabilities": {"streaming": False, "pushNotifications": False, "extendedAgentCard": False}}
    assert taken(card) is True
    assert len({project(card, form).payload for form in (Form.SERVED, Form.SPEC, Form.PRUNED)}) == 1


@given(cards)
def test_a_card_that_is_called_single_formed_has_one_form(card: Card) -> None:
    before = copy.deepcopy(card)
    pruned = strict_json.parse(project(card, Form.PRUNED).payload)
    assert check_card(pruned) is True  # nothing is left that a form would drop
    for each in (card, pruned):
        if check_card(each):
            projections = [project(each, form) for form in (Form.SERVED, Form.SPEC, Form.PRUNED)]
            assert len({projection.payload for projection in projections}) == 1
            assert not any(projection.dropped for projection in projections)
    assert repr(card) == repr(before)


def full(message: str, variant: str = "") -> Any:
    """A message with everything that a card may hold; of fields that exclude each other the one named."""
    members: Card = {}
    for field in MESSAGES[message].values():
        if field.kind is Kind.STRUCT or (field.oneof and field.name != (variant or "clientCredentials")):
            continue
        if field.kind is Kind.MESSAGE_MAP and field.message == "SecurityScheme":
            members[field.name] = {scheme.name: full("SecurityScheme", scheme.name) for scheme in SCHEMES}
            for flow in FLOWS:
                members[field.name][flow.name] = {"oauth2SecurityScheme": {"flows": full("OAuthFlows", flow.name)}}
            continue
        below = full(field.message) if field.message else None
        members[field.name] = {
            Kind.MESSAGE: below, Kind.MESSAGES: [below], Kind.MESSAGE_MAP: {"k": below}, Kind.STRING: "x:1",
            Kind.STRINGS: ["x"], Kind.STRING_MAP: {"k": "x"}, Kind.BOOL: True,
        }[field.kind]  # fmt: skip
    return members


def messages_in(message: str, members: Card) -> Iterator[tuple[str, Card]]:
    yield message, members
    for field in MESSAGES[message].values():
        if not field.message or field.name not in members:
            continue
        value = members[field.name]
        if field.kind is Kind.MESSAGE:
            yield from messages_in(field.message, value)
        else:
            for item in value if field.kind is Kind.MESSAGES else value.values():
                yield from messages_in(field.message, item)


def refused_changes(message: str, members: Card) -> Iterator[Card]:
    """What a sound message becomes when a second variant, or a twin of a member, is added to it."""
    for field in MESSAGES[message].values():
        if field.oneof and field.name not in members:
            for name in {field.name, field.proto_name}:
                yield members | {name: full(field.message)}
                yield {name: full(field.message)} | members
                yield members | {name: {}}
        elif field.name in members:
            for twin in {field.proto_name, field.name.upper(), field.name.capitalize()} - {field.name}:
                values: tuple[Any, ...] = (members[field.name], None, "", {})
                for value in values:
                    yield members | {twin: value}
                    yield {twin: value} | members
    yield members | {"__proto__": {}}


def allowed_changes(message: str, members: Card) -> Iterator[Card]:
    """What leaves the message sound, and not in one form."""
    yield members | {"x-vendor": "x"}
    yield members | {"params ": "x", "": "x"}
    for field in MESSAGES[message].values():
        if field.name not in members or field.name != field.proto_name:
            yield {name: value for name, value in members.items() if name != field.name} | {field.name: None}
        if field.oneof and field.name not in members:
            yield members | {field.name: None}
    if message == "SecurityScheme":
        yield members | {"type": "x"}
        yield members | {"type": "x", "flows": full("OAuthFlows")}
    if message in ("AgentCard", "AgentSkill"):
        yield members | {"security": [{"k": ["x"]}]}
    if message != "AgentCard":
        yield members | {"signatures": [{"protected": "e30", "signature": "AA"}]}


def test_no_member_that_is_added_to_a_sound_card_gets_past_the_gate() -> None:
    card = full("AgentCard")
    added = 0
    for message, members in list(messages_in("AgentCard", card)):
        kept = dict(members)
        for changed in refused_changes(message, kept):
            members.clear()
            members.update(changed)
            refused(card, "", "")
            added += 1
        for changed in allowed_changes(message, kept):
            members.clear()
            members.update(changed)
            assert not is_usual(card)
            assert taken(card) is False
        members.clear()
        members.update(kept)
        assert is_usual(card)
    assert added > 800


def test_no_map_of_a_card_has_the_name_that_is_lost() -> None:
    card = full("AgentCard")
    maps = 0
    for message, members in list(messages_in("AgentCard", card)):
        for field in MESSAGES[message].values():
            if field.kind in (Kind.MESSAGE_MAP, Kind.STRING_MAP) and field.name in members:
                maps += 1
                names = members[field.name]
                names["__proto__"] = next(iter(names.values()))
                refused(card, "", LOST)
                del names["__proto__"]
                names["constructor"] = next(iter(names.values()))
                assert check_card(card) is True
                del names["constructor"]
    assert maps == 9


def test_a_field_is_found_by_both_its_names_in_every_generation() -> None:
    for name in ("iconUrl", "icon_url"):
        assert field_of("AgentCard", name) is MESSAGES["AgentCard"]["iconUrl"]
    for name in ("preferredTransport", "preferred_transport"):
        field = field_of("AgentCard", name)
        assert field is not None
        assert field.name == "preferredTransport"
    assert field_of("AgentCard", "x-vendor") is None


@walk("twin", ["extendedAgentCard", "extended_agent_card"])
@walk("older", ["supportsAuthenticatedExtendedCard", "supports_authenticated_extended_card"])
def test_an_extended_card_of_0_3_stands_beside_no_null(twin: str, older: str) -> None:
    """The form of the specification drops null, and a2a-python reads there that the card promises none."""
    card = {**full_card(), older: True}
    for members in ({**card, "capabilities": {twin: None}}, {"capabilities": {twin: None}, **card, older: True}):
        members["capabilities"] = {twin: None}
        with pytest.raises(MalformedError, match=f"/capabilities/{twin}: {twin} is null"):
            check_card(members)
        with pytest.raises(MalformedError):
            verify_card(served(members), trust_in(), origin=ANYWHERE, now=0)


@walk("empty", [None, "", [], {}])
def test_a_value_is_full_when_nothing_within_is_empty(empty: Any) -> None:
    assert not is_full(empty)
    assert is_full({"a": ["x", 0, False, {"b": 1.5}]})
    for holder in ([empty], ["x", empty], {"a": empty}, {"a": "x", "b": empty}, {"a": ["x", {"b": empty}]}):
        assert not is_full(holder)
