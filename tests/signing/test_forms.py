"""The canonical forms of a card: what each one drops, and the bytes that it prints."""

from __future__ import annotations

import copy
import json
import re
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json.jcs import canonicalize, canonicalize_received
from a2a_trust.card.schema import MESSAGES, Kind, Presence, proto_name
from a2a_trust.signing.coverage import shows_whole
from a2a_trust.signing.forms import (
    MAX_POINTER,
    MAX_POINTERS,
    UNVERIFIED_BY_PRUNING,
    Form,
    present_members,
    project,
    shorten,
    unprotected_members,
)
from tests.signing.cards import Card, cards, full_card, legacy_card, many_formed_card, merged_card
from tests.tables import walk

LOSSLESS = [Form.SERVED, Form.SPEC]
#: Those of 1.0; the one of 0.3 has tests of its own below.
LOSSY = [Form.PRUNED, Form.PRUNED_LEGACY]


def text(card: Card, form: Form) -> str:
    return project(card, form).payload.decode()


def test_the_worked_example_of_the_specification() -> None:
    card = {
        "name": "Example Agent",
        "description": "",
        "capabilities": {"streaming": False, "pushNotifications": False, "extensions": []},
        "skills": [],
    }
    projection = project(card, Form.SPEC)
    assert projection.payload == (
        b'{"capabilities":{"pushNotifications":false,"streaming":false},"description":"",'
        b'"name":"Example Agent","skills":[]}'
    )
    assert projection.dropped == ("/capabilities/extensions",)


SMALL: Card = {
    "x-vendor": {"a": "", "b": None},
    "skills": [{"id": "s", "name": "", "tags": [], "examples": [], "securityRequirements": [{}]}, {}],
    "capabilities": {
        "streaming": False,
        "push_notifications": False,
        "extensions": [
            {"uri": "u", "required": False, "params": {"n": 1, "e": "", "l": [None, [], 0, "x"]}},
            {"uri": ""},
        ],
    },
    "name": "é",
    "description": "",
    "documentationUrl": "",
    "iconUrl": None,
    "provider": {},
    "securitySchemes": {
        "tls": {"mtlsSecurityScheme": {"description": ""}},
        "oauth": {"oauth2SecurityScheme": {"flows": {"implicit": {"scopes": {}}, "password": None}}},
        "http": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": ""}},
    },
    "securityRequirements": [{"schemes": {"tls": {"list": []}, "oauth": ["go"]}}, {"schemes": {}}],
    "supported_interfaces": [{"url": "https://a.example.com", "tenant": "", "protocol_version": "1.0"}],
    "signatures": [{"protected": "", "signature": ""}],
}


def test_served_drops_the_signatures_and_nothing_else() -> None:
    projection = project(SMALL, Form.SERVED)
    assert strict_json.parse(projection.payload) == {k: v for k, v in SMALL.items() if k != "signatures"}
    assert projection.dropped == ()


def test_spec_drops_nulls_and_defaults_of_plain_fields_and_keeps_the_rest() -> None:
    projection = project(SMALL, Form.SPEC)
    assert strict_json.parse(projection.payload) == {
        "x-vendor": {"a": "", "b": None},
        "skills": [{"id": "s", "name": "", "tags": [], "securityRequirements": [{}]}, {}],
        "capabilities": {
            "streaming": False,
            "push_notifications": False,
            "extensions": [{"uri": "u", "params": {"n": 1, "e": "", "l": [None, [], 0, "x"]}}, {}],
        },
        "name": "é",
        "description": "",
        "documentationUrl": "",
        "provider": {},
        "securitySchemes": {
            "tls": {"mtlsSecurityScheme": {}},
            "oauth": {"oauth2SecurityScheme": {"flows": {"implicit": {}}}},
            "http": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
        },
        "securityRequirements": [{"schemes": {"tls": {}, "oauth": ["go"]}}, {}],
        "supported_interfaces": [{"url": "https://a.example.com", "tenant": "", "protocol_version": "1.0"}],
    }
    assert projection.dropped == (
        "/skills/0/examples",
        "/capabilities/extensions/0/required",
        "/capabilities/extensions/1/uri",
        "/iconUrl",
        "/securitySchemes/tls/mtlsSecurityScheme/description",
        "/securitySchemes/oauth/oauth2SecurityScheme/flows/implicit/scopes",
        "/securitySchemes/oauth/oauth2SecurityScheme/flows/password",
        "/securitySchemes/http/httpAuthSecurityScheme/bearerFormat",
        "/securityRequirements/0/schemes/tls/list",
        "/securityRequirements/1/schemes",
    )


def test_pruned_drops_everything_empty_and_unknown_and_says_so() -> None:
    projection = project(SMALL, Form.PRUNED)
    assert strict_json.parse(projection.payload) == {
        "skills": [{"id": "s"}],
        "capabilities": {
            "streaming": False,
            "pushNotifications": False,
            "extensions": [{"uri": "u", "params": {"n": 1, "l": [0, "x"]}}],
        },
        "name": "é",
        "securitySchemes": {"http": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "supportedInterfaces": [{"url": "https://a.example.com", "protocolVersion": "1.0"}],
    }
    assert projection.dropped == (
        "/x-vendor",
        "/skills/0/name",
        "/skills/0/tags",
        "/skills/0/examples",
        "/skills/0/securityRequirements",
        "/skills/1",
        "/capabilities/extensions/0/required",
        "/capabilities/extensions/0/params/e",
        "/capabilities/extensions/0/params/l/0",
        "/capabilities/extensions/0/params/l/1",
        "/capabilities/extensions/1",
        "/description",
        "/documentationUrl",
        "/iconUrl",
        "/provider",
        "/securitySchemes/tls",
        "/securitySchemes/oauth",
        "/securitySchemes/http/httpAuthSecurityScheme/bearerFormat",
        "/securityRequirements",
        "/supported_interfaces/0/tenant",
    )


def test_pruned_legacy_is_pruned_in_the_bytes_of_python() -> None:
    card = {
        "name": "é\U0001f600\x7f",
        "description": 'quote " slash / \u2028',
        "capabilities": {
            "extensions": [
                {
                    "uri": "u",
                    "params": {
                        "\uffff": 1,
                        "\U00010000": -0.0,
                        "n": [2, 1e22, 1e16, 1.5, 1e-7, True, 9007199254740993],
                        "gone": "",
                    },
                }
            ]
        },
    }
    assert text(card, Form.PRUNED_LEGACY) == (
        '{"capabilities":{"extensions":[{"params":{"n":[2.0,1e+22,1e+16,1.5,1e-07,true,9007199254740992.0],'
        '"\\uffff":1.0,"\\ud800\\udc00":-0.0},"uri":"u"}]},'
        '"description":"quote \\" slash / \\u2028","name":"\\u00e9\\ud83d\\ude00\\u007f"}'
    )
    assert text(card, Form.PRUNED) == (
        '{"capabilities":{"extensions":[{"params":{"n":[2,1e+22,10000000000000000,1.5,1e-7,true,9007199254740992],'
        '"\U00010000":0,"\uffff":1},"uri":"u"}]},'
        '"description":"quote \\" slash / \u2028","name":"é\U0001f600\x7f"}'
    )
    assert project(card, Form.PRUNED_LEGACY).dropped == project(card, Form.PRUNED).dropped


def test_a_card_without_anything_empty_has_one_form_in_canonical_json() -> None:
    card = full_card()
    for form in (Form.SERVED, Form.SPEC, Form.PRUNED):
        assert project(card, form).payload == canonicalize(card)
        assert project(card, form).dropped == ()


@pytest.mark.parametrize("form", LOSSLESS)
def test_a_card_of_0_3_is_signed_as_it_is_served(form: Form) -> None:
    card = legacy_card()
    assert project({**card, "signatures": [{}]}, form).payload == canonicalize(card)
    assert project(card, form).dropped == ()


def test_a_merged_card_keeps_its_members_of_0_3_in_spec_and_loses_them_in_pruned() -> None:
    card = merged_card()
    assert project(card, Form.SPEC).payload == project(card, Form.SERVED).payload == canonicalize(card)
    pruned = project(card, Form.PRUNED)
    assert pruned.payload == canonicalize(full_card())
    assert pruned.dropped == ("/protocolVersion", "/url", "/preferredTransport", "/security")


def test_pruning_a_card_of_0_3_leaves_its_address_and_its_requirements_open() -> None:
    pruned = project(legacy_card(), Form.PRUNED)
    left = strict_json.parse(pruned.payload)
    assert left.keys() == {"name", "version", "capabilities", "defaultOutputModes", "skills"}
    assert {"/url", "/security", "/securitySchemes", "/supportsAuthenticatedExtendedCard"} <= {*pruned.dropped}


def test_pointers_are_escaped_as_rfc_6901_says() -> None:
    card: Card = {"securitySchemes": {"a/b": {"x/~": 1}, "~1": {}}}
    assert project(card, Form.PRUNED).dropped == ("/securitySchemes",)
    card["securitySchemes"]["k"] = {"mtlsSecurityScheme": {"description": "d"}}
    assert project(card, Form.PRUNED).dropped == ("/securitySchemes/a~1b", "/securitySchemes/~01")


def test_pointers_are_bounded_in_number_and_length() -> None:
    params = {f"{number}": {"n" * 400: {"m" * 400: ""}} for number in range(300)}
    for card in ({"x" * 100_000: 1}, {"capabilities": {"extensions": [{"uri": "u", "params": params | {"k": 1}}]}}):
        dropped = project(card, Form.PRUNED).dropped
        assert 0 < len(dropped) <= MAX_POINTERS
        assert {len(pointer) <= MAX_POINTER for pointer in dropped} == {True}
        assert len(shorten(dropped)) < 2_000
    assert len(dropped) == MAX_POINTERS
    assert shorten(dropped).endswith(" …")
    assert shorten(("/a", "/é\n")) == "/a, /\\xe9\\n"


def test_no_more_texts_are_taken_than_are_shown() -> None:
    texts = iter(map(str, range(1_000)))
    assert shorten(texts, " or ") == "0 or 1 or 2 or 3 or 4 or 5 or 6 or 7 …"
    assert next(texts) == "9"


def test_what_a_pruned_form_may_hide_names_every_member_that_says_who_may_call() -> None:
    named = set(UNVERIFIED_BY_PRUNING)
    assert {"/securityRequirements", "/securitySchemes", "/supportedInterfaces"} <= named
    assert {"/skills/*/securityRequirements", "/capabilities/extensions/*/params"} <= named
    assert {"/url", "/security", "/skills/*/security", "/additionalInterfaces"} <= named


@given(st.one_of(cards, st.sampled_from([full_card(), many_formed_card(), merged_card()])))
def test_a_dropped_member_that_says_who_may_call_is_unprotected(card: Card) -> None:
    members = project(present_members(card)[0], Form.SERVED).members  # under the names of JSON, as in sign_card
    pruned = project(members, Form.PRUNED)
    unprotected = unprotected_members(members, pruned)
    assert set(unprotected) <= set(UNVERIFIED_BY_PRUNING)
    assert pruned.dropped or not unprotected
    for member in UNVERIFIED_BY_PRUNING:
        within = re.compile(re.escape(member).replace(r"\*", r"\d+") + r"(/|$)")
        assert member in unprotected or not any(within.match(pointer) for pointer in pruned.dropped), member


@walk(
    ("changes", "expected"),
    [
        ({}, ()),
        ({"x-vendor": 1, "description": "", "skills": [], "iconUrl": ""}, ()),
        ({"securityRequirements": [{"schemes": {"oauth": {"list": ["a"]}, "key": {}}}]}, ("/securityRequirements",)),
        ({"skills": [{"securityRequirements": [{}]}]}, ("/skills/*/securityRequirements",)),  # the whole skill is gone
        ({"capabilities": {"extensions": [{"params": {"allow": []}}]}}, ("/capabilities/extensions/*/params",)),
        ({"url": "https://x.example", "security": []}, ("/url", "/security")),
        ({"security_requirements": [{}], "securityRequirements": None}, ("/securityRequirements",)),
    ],
    ids=repr,
)
def test_the_unprotected_members_of_a_pruned_card(changes: Card, expected: tuple[str, ...]) -> None:
    card = {**full_card(), **changes}
    assert sorted(unprotected_members(card, project(card, Form.PRUNED))) == sorted(expected)


def test_members_that_a2a_python_0_3_reads_alike_without_them_are_not_unprotected() -> None:
    card = legacy_card()
    scopes = {"clientCredentials": {"tokenUrl": "https://id.example.com/token", "scopes": {"a": "b"}}}
    key, oauth = card["securitySchemes"]["key"], {"type": "oauth2", "flows": scopes}
    card |= {"securitySchemes": {"oauth": oauth, "key": key}, "security": [{"oauth": ["a"]}], "skills": []}
    legacy = project(card, Form.V0_3_PYTHON)
    assert {"/protocolVersion", "/preferredTransport", "/securitySchemes/key/type"} < set(legacy.dropped)
    assert unprotected_members(card, legacy) == ()
    for changes, expected in (
        ({"security": [{"oauth": ["a"], "key": []}]}, ("/security",)),
        ({"securitySchemes": {"oauth": oauth, "tls": {"type": "mutualTLS"}}}, ("/securitySchemes",)),
        ({"authentication": {"schemes": ["bearer"]}}, ("/authentication",)),
    ):
        changed = {**card, **changes}
        assert unprotected_members(changed, project(changed, Form.V0_3_PYTHON)) == expected


@walk(
    ("changes", "expected"),
    [
        ({}, False),
        ({"security": None}, False),  # null is no value that a pruner dropped: readers take it for absent
        ({"security": [{"key": []}]}, True),
        ({"security": []}, True),
        ({"skills": [None]}, False),
        ({"skills": [{"id": "a", "tags": []}]}, True),
        ({"skills": [{"id": "a", "tags": ["b"]}]}, False),
        ({"skills": [{"id": "a", "tags": [""]}]}, True),
        ({"capabilities": None}, False),
        ({"x-vendor": {}}, False),
    ],
    ids=repr,
)
def test_an_empty_value_of_a_known_member_shows_that_nothing_was_pruned(changes: Card, expected: bool) -> None:
    plain = {"url": "https://old.example.com/a2a", "capabilities": {"streaming": True}, "security": [{"key": ["a"]}]}
    card: Card = {**plain, **changes}
    assert shows_whole(project(card, Form.SERVED)) is expected


@walk("form", Form)
def test_only_pruned_forms_are_lossy(form: Form) -> None:
    assert form.is_lossy is (form in (*LOSSY, Form.V0_3_PYTHON))


@walk("form", LOSSY)
@walk("value", [{"schemes": {"tls": {"list": []}}}, {"schemes": {"tls": {}}}, {"schemes": {}}, {}])
def test_a_requirement_without_scopes_is_the_same_as_none_in_a_pruned_form(form: Form, value: Any) -> None:
    # This is why a pruned form proves nothing about requirements.
    with_it, without = full_card(), full_card()
    with_it["securityRequirements"].append(value)
    assert project(with_it, form).payload == project(without, form).payload
    for lossless in LOSSLESS:
        assert project(with_it, lossless).payload != project(without, lossless).payload


@given(cards)
def test_the_spec_form_is_what_serving_a_normalized_card_gives(card: Card) -> None:
    before = repr(card)
    members, dropped = present_members(card)
    assert project(card, Form.SPEC).payload == project(members, Form.SERVED).payload
    assert project(card, Form.SPEC).dropped == dropped
    assert present_members(members) == (members, ())
    assert [name for name in card if name in members] == list(members)
    assert repr(card) == before


@given(cards)
def test_a_pruned_card_prunes_to_itself(card: Card) -> None:
    pruned = strict_json.parse(project(card, Form.PRUNED).payload)
    again = project(pruned, Form.PRUNED)
    assert canonicalize_received(pruned) == again.payload
    assert again.dropped == ()


@given(cards)
def test_what_spec_drops_pruned_drops_too(card: Card) -> None:
    spec = strict_json.parse(project(card, Form.SPEC).payload)
    assert project(spec, Form.PRUNED).payload == project(card, Form.PRUNED).payload


@given(cards)
def test_pruned_and_pruned_legacy_say_the_same(card: Card) -> None:
    def doubles(document: bytes) -> Any:
        return json.loads(document, parse_int=float)

    assert doubles(project(card, Form.PRUNED).payload) == doubles(project(card, Form.PRUNED_LEGACY).payload)


@given(cards, st.sampled_from(Form), st.integers(0, 2**32))
def test_neither_signatures_nor_the_order_of_members_change_a_form(card: Card, form: Form, seed: int) -> None:
    random = Random(seed)

    def shuffled(item: Any) -> Any:
        if type(item) is dict:
            names = list(item)
            random.shuffle(names)
            return {name: shuffled(item[name]) for name in names}
        return [shuffled(child) for child in item] if type(item) is list else item

    other = shuffled({**card, "signatures": [{"protected": "x"}]})
    assert project(other, form).payload == project(card, form).payload
    assert sorted(project(other, form).dropped) == sorted(project(card, form).dropped)


@given(cards)
def test_forms_are_made_of_a_copy_and_alike_on_the_short_way_for_plain_cards(card: Card) -> None:
    # Read from its canonical form: RFC 8785 knows no -0.0, and Python's printer, of pruned-legacy, does.
    value, plain = strict_json.read(canonicalize_received(card))
    before = copy.deepcopy(value)
    for form in Form:
        projection = project(value, form)
        assert project(value, form, plain=plain).payload == projection.payload
        read_back = strict_json.parse(projection.payload, max_bytes=len(projection.payload))
        assert canonicalize_received(projection.members) == canonicalize_received(read_back)
    assert repr(value) == repr(before)


def test_many_formed_cards_have_as_many_forms_as_the_field_knows() -> None:
    forms = [form for form in Form if form is not Form.V0_3_PYTHON]  # of cards of 0.3 only
    payloads = {form: project(many_formed_card(), form).payload for form in forms}
    assert len(set(payloads.values())) == 3
    assert payloads[Form.PRUNED] == payloads[Form.PRUNED_LEGACY]  # ASCII, and no number in it
    assert len({project(full_card(), form).payload for form in forms}) == 2  # 3 is 3.0 to the old printer


@walk(
    ("name", "proto"),
    [("url", "url"), ("iconUrl", "icon_url"), ("oauth2MetadataUrl", "oauth2_metadata_url"), ("id", "id")],
)
def test_proto_names_are_the_names_of_the_proto_file(name: str, proto: str) -> None:
    assert proto_name(name) == proto


def test_single_messages_and_variants_are_never_dropped_for_being_empty() -> None:
    for message, fields in MESSAGES.items():
        for field in fields.values():
            if field.kind in (Kind.MESSAGE, Kind.STRUCT):
                assert field.presence is not Presence.IMPLICIT, (message, field.name)
            assert (field.kind in (Kind.MESSAGE, Kind.MESSAGES, Kind.MESSAGE_MAP)) is bool(field.message)
            assert not field.message or field.message in MESSAGES


# --- v0.3-python


SMALL_0_3: Card = {
    "protocolVersion": "0.3.0",
    "preferredTransport": "JSONRPC",
    "name": "é",
    "description": "",
    "url": "https://old.example.com/a2a",
    "iconUrl": None,
    "x-vendor": 1,
    "supportedInterfaces": [],
    "additionalInterfaces": [{"url": "https://old.example.com/rest", "transport": "", "tenant": "t"}, {}],
    "capabilities": {
        "streaming": False,
        "stateTransitionHistory": False,
        "extendedAgentCard": True,
        "extensions": [{"uri": "u", "required": False, "params": {"n": 1, "f": 1.0, "e": "", "l": [None, [], 0, "x"]}}],
    },
    "provider": {},
    "security_schemes": {
        "tls": {"type": "mutualTLS"},
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "oauth": {
            "type": "oauth2",
            "flows": {
                "authorizationCode": {
                    "authorizationUrl": "a",
                    "tokenUrl": "t",
                    "scopes": {"r": ""},
                    "pkceRequired": True,
                },
                "deviceCode": {"tokenUrl": "t"},
            },
        },
        "new": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    },
    "security": [{"oauth": ["r"], "key": []}, {"key": []}, {}],
    "default_input_modes": ["text/plain", ""],
    "skills": [{"id": "s", "tags": [], "security": [{"key": []}], "securityRequirements": [{}]}],
    "supportsAuthenticatedExtendedCard": False,
    "signatures": [{"protected": "", "signature": ""}],
}


def test_v0_3_python_drops_what_is_empty_unknown_to_0_3_or_at_a_default_and_says_so() -> None:
    projection = project(SMALL_0_3, Form.V0_3_PYTHON)
    assert projection.payload.decode() == (
        '{"additionalInterfaces":[{"url":"https://old.example.com/rest"}],"capabilities":{"extensions":[{"params":'
        '{"f":1.0,"l":[0,"x"],"n":1},"required":false,"uri":"u"}],"stateTransitionHistory":false,"streaming":false},'
        '"defaultInputModes":["text/plain"],"name":"\\u00e9","security":[{"oauth":["r"]}],"securitySchemes":{"key":'
        '{"in":"header","name":"X-API-Key"},"oauth":{"flows":{"authorizationCode":{"authorizationUrl":"a",'
        '"tokenUrl":"t"}}}},"skills":[{"id":"s"}],"supportsAuthenticatedExtendedCard":false,'
        '"url":"https://old.example.com/a2a"}'
    )
    assert projection.dropped == (
        "/protocolVersion",
        "/preferredTransport",
        "/description",
        "/iconUrl",
        "/x-vendor",
        "/supportedInterfaces",
        "/additionalInterfaces/0/transport",
        "/additionalInterfaces/0/tenant",
        "/additionalInterfaces/1",
        "/capabilities/extendedAgentCard",
        "/capabilities/extensions/0/params/e",
        "/capabilities/extensions/0/params/l/0",
        "/capabilities/extensions/0/params/l/1",
        "/provider",
        "/security_schemes/tls",
        "/security_schemes/key/type",
        "/security_schemes/oauth/type",
        "/security_schemes/oauth/flows/authorizationCode/scopes",
        "/security_schemes/oauth/flows/authorizationCode/pkceRequired",
        "/security_schemes/oauth/flows/deviceCode",
        "/security_schemes/new",
        "/security/0/key",
        "/security/1",
        "/security/2",
        "/default_input_modes/1",
        "/skills/0/tags",
        "/skills/0/security",
        "/skills/0/securityRequirements",
    )


@walk("name", ["protocolVersion", "protocol_version", "preferredTransport", "preferred_transport"])
def test_v0_3_python_drops_a_default_under_either_name_and_keeps_every_other_value(name: str) -> None:
    default = "0.3.0" if "ersion" in name else "JSONRPC"
    kept = "protocolVersion" if "ersion" in name else "preferredTransport"
    assert project({"url": "u", name: default}, Form.V0_3_PYTHON).payload == b'{"url":"u"}'
    assert project({"url": "u", name: default}, Form.V0_3_PYTHON).dropped == (f"/{name}",)
    for other in ("0.2.5", "GRPC", "jsonrpc", "0.3"):
        projection = project({"url": "u", name: other}, Form.V0_3_PYTHON)
        assert strict_json.parse(projection.payload) == {"url": "u", kept: other}
        assert projection.dropped == ()


def test_v0_3_python_keeps_numbers_as_they_are_written() -> None:
    document = (
        b'{"url":"u","capabilities":{"extensions":[{"params":{"a":[1,1.0,-0.0,-0,1e2,12345678901234567890123]}}]}}'
    )
    assert project(strict_json.parse(document), Form.V0_3_PYTHON).payload == (
        b'{"capabilities":{"extensions":[{"params":{"a":[1,1.0,-0.0,0,100.0,12345678901234567890123]}}]},"url":"u"}'
    )


@walk("value", [[{"key": []}], [{}], []])
def test_a_requirement_without_scopes_is_the_same_as_none_in_v0_3_python(value: Any) -> None:
    without = legacy_card()
    del without["security"]
    assert (
        project({**without, "security": value}, Form.V0_3_PYTHON).payload == project(without, Form.V0_3_PYTHON).payload
    )
    for lossless in LOSSLESS:
        assert project({**without, "security": value}, lossless).payload != project(without, lossless).payload


def test_a_card_in_v0_3_python_is_in_that_form_already() -> None:
    for card in (SMALL_0_3, legacy_card(), merged_card()):
        pruned = strict_json.parse(project(card, Form.V0_3_PYTHON).payload)
        again = project(pruned, Form.V0_3_PYTHON)
        assert again.dropped == ()
        assert again.payload == project(card, Form.V0_3_PYTHON).payload
