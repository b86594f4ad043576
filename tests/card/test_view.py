"""The card read as rules: every spelling of requirements is read, and none of them gets lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.card.view import (
    Alternative,
    ApiKeyScheme,
    CardView,
    HttpScheme,
    MutualTlsScheme,
    NamedScheme,
    OAuth2Scheme,
    OAuthFlow,
    OpenIdConnectScheme,
    read_card,
)
from a2a_trust.errors import MalformedError
from tests.tables import walk


def demands(*alternatives: dict[str, set[str]]) -> tuple[Alternative, ...]:
    return tuple(
        Alternative(tuple(sorted((name, frozenset(scopes)) for name, scopes in item.items()))) for item in alternatives
    )


def read(**members: Any) -> CardView:
    """The same card, as bytes and as a dict: both ways must agree."""
    view = read_card(members)
    assert read_card(json.dumps(members).encode()) == view
    return view


# The cards of the field


@pytest.fixture(scope="module")
def cards(vectors: Path) -> dict[str, dict[str, Any]]:
    folder = vectors / "cards"
    index = [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]
    return {entry["file"]: json.loads((folder / entry["file"]).read_bytes()) for entry in index}


def test_all_98_real_cards_are_read(cards: dict[str, dict[str, Any]]) -> None:
    assert len(cards) == 98
    for card in cards.values():
        assert read_card(json.dumps(card).encode()).name == card["name"]


def test_no_real_card_loses_its_requirements_or_schemes(cards: dict[str, dict[str, Any]]) -> None:
    for file, card in cards.items():
        view = read_card(card)
        said = [
            card.get(name) for name in ("security", "securityRequirements", "security_requirements", "authentication")
        ]
        if any(value is not None for value in said):
            assert view.requirements is not None, file
        for value in said:
            if isinstance(value, list):
                assert view.requirements is not None
                assert len(view.requirements) == len(value), file
                assert [item.is_anonymous for item in view.requirements] == [item == {} for item in value], file
        assert set(view.schemes) >= set(card.get("securitySchemes") or card.get("security_schemes") or {}), file
        assert len(view.skills) == len(card.get("skills") or ()), file


def test_the_real_cards_say_as_little_as_was_counted(cards: dict[str, dict[str, Any]]) -> None:
    views = {file: read_card(card) for file, card in cards.items()}
    silent = [
        file
        for file, view in views.items()
        if not (view.requirements or view.schemes) or "authentication" in cards[file]
    ]
    assert len(silent) == 74  # 0.1's words among them
    assert sum(view.has_extended_card and not view.schemes for view in views.values()) == 11


# Spellings

READ_B = demands({"b": {"read"}})


@walk(
    ("requirement", "expected"),
    [
        ({"schemes": {"b": {"list": ["read"]}}}, READ_B),
        ({"schemes": {"b": ["read"]}}, READ_B),
        ({"b": ["read"]}, READ_B),
        ({"b": {"list": ["read"]}}, READ_B),
        ({"schemes": {"b": {"list": []}}}, demands({"b": set()})),
        ({"schemes": {"b": {"list": None}}}, demands({"b": set()})),
        ({"schemes": {"b": {}}}, demands({"b": set()})),
        ({"schemes": {"b": []}}, demands({"b": set()})),
        ({"b": []}, demands({"b": set()})),
        ({"b": {}}, demands({"b": set()})),
        ({"b": ["x", "y"], "a": []}, demands({"a": set(), "b": {"x", "y"}})),
        ({"schemes": {"b": {"list": ["x"]}, "a": {}}}, demands({"a": set(), "b": {"x"}})),
        ({"schemes": ["x"]}, demands({"schemes": {"x"}})),  # a scheme of that name, flat
        ({"schemes": ["x"], "b": []}, demands({"b": set(), "schemes": {"x"}})),
        ({}, demands({})),
        ({"schemes": {}}, demands({})),
        ({"schemes": None}, demands({})),
    ],
)
@walk("name", ["securityRequirements", "security_requirements", "security"])
def test_every_spelling_of_a_requirement_says_the_same(
    name: str, requirement: dict[str, Any], expected: tuple[Alternative, ...]
) -> None:
    assert read(**{name: [requirement]}).requirements == expected
    assert read(skills=[{"id": "s", name: [requirement]}]).skills[0].requirements == expected


def test_requirements_are_alternatives_in_the_order_of_the_card() -> None:
    view = read(security=[{"b": []}, {}, {"a": [], "c": ["x"]}])
    assert view.requirements == demands({"b": set()}, {}, {"a": set(), "c": {"x"}})
    assert [item.is_anonymous for item in view.requirements or ()] == [False, True, False]


def test_absent_and_null_are_none_and_an_empty_list_is_empty() -> None:
    assert read(name="n").requirements is None
    assert read(security=None, securityRequirements=None, authentication=None).requirements is None
    assert read(securityRequirements=[]).requirements == ()


def test_the_words_of_a_0_1_card_are_alternatives_and_schemes() -> None:
    view = read(authentication={"schemes": ["apiKey", "bearer"], "credentials": "ask us"})
    assert view.requirements == demands({"apiKey": set()}, {"bearer": set()})
    assert view.schemes == {"apiKey": NamedScheme(name="apiKey"), "bearer": NamedScheme(name="bearer")}


def test_a_word_of_0_1_that_is_declared_properly_is_that_scheme() -> None:
    view = read(
        authentication={"schemes": ["k"]}, securitySchemes={"k": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    )
    assert view.schemes == {"k": ApiKeyScheme(name="k", location="header", parameter="X-Key")}


def test_a_merged_card_says_the_same_twice_in_any_order() -> None:
    view = read(
        security=[{"a": []}, {"b": ["x", "y"]}],
        securityRequirements=[{"schemes": {"b": {"list": ["y", "x"]}}}, {"schemes": {"a": {}}}],
    )
    assert set(view.requirements or ()) == set(demands({"a": set()}, {"b": {"x", "y"}}))


# Contradictions and what cannot be read


@walk(
    ("security", "requirements"),
    [
        ([{"a": []}], [{"schemes": {"b": {}}}]),
        ([{"a": []}], [{"schemes": {"a": {"list": ["x"]}}}]),
        ([{"a": []}], []),
        ([], [{"schemes": {"a": {}}}]),
        ([{"a": []}], [{"schemes": {"a": {}}}, {}]),
        ([{"a": [], "b": []}], [{"schemes": {"a": {}}}, {"schemes": {"b": {}}}]),
        ([{}], [{"schemes": {"a": {}}}]),
    ],
)
def test_twins_of_a_merged_card_that_contradict_each_other_are_refused(security: Any, requirements: Any) -> None:
    twins = {"security": security, "securityRequirements": requirements}
    with pytest.raises(MalformedError, match=r"^card: /security: it contradicts securityRequirements"):
        read_card(twins)
    with pytest.raises(MalformedError, match=r"^card: /skills/0/security: it contradicts"):
        read_card({"skills": [{"id": "s", **twins}]})


@walk(
    ("card", "pointer", "reason"),
    [
        ({"securityRequirements": {"b": []}}, "/securityRequirements", "a list is needed"),
        ({"securityRequirements": "b"}, "/securityRequirements", "a list is needed"),
        ({"securityRequirements": False}, "/securityRequirements", "a list is needed"),
        ({"securityRequirements": 0}, "/securityRequirements", "a list is needed"),
        ({"security": {}}, "/security", "a list is needed"),
        ({"security": ["b"]}, "/security/0", "an object is needed"),
        ({"security": [None]}, "/security/0", "an object is needed"),
        ({"security": [[]]}, "/security/0", "an object is needed"),
        ({"security": [{"b": None}]}, "/security/0/b", "a list is needed"),
        ({"security": [{"b": "read"}]}, "/security/0/b", "a list is needed"),
        ({"security": [{"b": [""]}]}, "/security/0/b", "scopes are strings"),
        ({"security": [{"b": [1]}]}, "/security/0/b", "scopes are strings"),
        ({"security": [{"a/b~": [1]}]}, "/security/0/a~1b~0", "scopes are strings"),
        ({"security": [{"b": {"lists": ["read"]}}]}, "/security/0/b", "other members would go unread"),
        ({"security": [{"b": {"list": ["read"], "x": 1}}]}, "/security/0/b", "other members would go unread"),
        ({"securityRequirements": [{"schemes": {"b": {}}, "a": []}]}, "/securityRequirements/0", "other members"),
        ({"securityRequirements": [{"schemes": "b"}]}, "/securityRequirements/0/schemes", "an object is needed"),
        ({"securityRequirements": [{"schemes": {"b": 1}}]}, "/securityRequirements/0/schemes/b", "a list is needed"),
        (
            {"securityRequirements": [{"schemes": {"b": None}}]},
            "/securityRequirements/0/schemes/b",
            "a list is needed",
        ),
        (
            {"securityRequirements": [{"b": []}], "security_requirements": [{"b": []}]},
            "/security_requirements",
            "it stands beside securityRequirements",
        ),
        ({"authentication": []}, "/authentication", "an object is needed"),
        ({"authentication": "none"}, "/authentication", "an object is needed"),
        ({"authentication": {}}, "/authentication/schemes", "a list is needed"),
        ({"authentication": {"schemes": "apiKey"}}, "/authentication/schemes", "a list is needed"),
        ({"authentication": {"schemes": [""]}}, "/authentication/schemes", "strings are needed"),
        ({"authentication": {"schemes": [{}]}}, "/authentication/schemes", "strings are needed"),
        ({"authentication": {"schemes": ["a"]}, "security": []}, "/authentication", "it stands beside"),
        ({"authentication": {"schemes": ["a"]}, "securityRequirements": [{"a": []}]}, "/authentication", "it stands"),
        ({"securitySchemes": []}, "/securitySchemes", "an object is needed"),
        ({"securitySchemes": {"a": None}}, "/securitySchemes/a", "an object is needed"),
        ({"securitySchemes": {"a": {}}}, "/securitySchemes/a", "no kind of scheme"),
        ({"securitySchemes": {"a": {"scheme": {"$case": "httpAuthSecurityScheme"}}}}, "/securitySchemes/a", "no kind"),
        ({"securitySchemes": {"a": {"type": "magic"}}}, "/securitySchemes/a/type", "one of apiKey, http"),
        ({"securitySchemes": {"a": {"type": 1}}}, "/securitySchemes/a/type", "a string is needed"),
        ({"securitySchemes": {"a": {"type": "apiKey", "name": "k"}}}, "/securitySchemes/a/location", "header, query"),
        (
            {"securitySchemes": {"a": {"type": "apiKey", "in": "body", "name": "k"}}},
            "/securitySchemes/a/location",
            "header, query or cookie",
        ),
        ({"securitySchemes": {"a": {"type": "apiKey", "in": "header"}}}, "/securitySchemes/a/name", "not empty"),
        ({"securitySchemes": {"a": {"type": "http"}}}, "/securitySchemes/a/scheme", "not empty"),
        ({"securitySchemes": {"a": {"type": "openIdConnect"}}}, "/securitySchemes/a/openIdConnectUrl", "not empty"),
        ({"securitySchemes": {"a": {"type": "oauth2", "flows": []}}}, "/securitySchemes/a/flows", "an object"),
        ({"skills": {}}, "/skills", "a list is needed"),
        ({"skills": ["s"]}, "/skills/0", "an object is needed"),
        ({"skills": [{"id": "s", "security": [{"b": 1}]}]}, "/skills/0/security/0/b", "a list is needed"),
        ({"supportedInterfaces": {}}, "/supportedInterfaces", "a list is needed"),
        ({"supportedInterfaces": [{"protocolBinding": "JSONRPC"}]}, "/supportedInterfaces/0/url", "not empty"),
        ({"additionalInterfaces": [{"url": 1}]}, "/additionalInterfaces/0/url", "a string"),
        ({"url": ["http://a"]}, "/url", "a string is needed"),
        ({"name": 1}, "/name", "a string is needed"),
        ({"capabilities": {"extendedAgentCard": "yes"}}, "/capabilities/extendedAgentCard", "true or false"),
        ({"capabilities": "all"}, "/capabilities", "an object is needed"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(card: dict[str, Any], pointer: str, reason: str) -> None:
    with pytest.raises(MalformedError) as caught:
        read_card(json.dumps(card).encode())
    assert str(caught.value).startswith(f"card: {pointer}: ")
    assert reason in str(caught.value)


@walk("document", [b"[]", b'"card"', b"null", b"", b"{", b'{"security":[],"security":[{"a":[]}]}'])
def test_documents_that_are_no_unambiguous_object_are_refused(document: bytes) -> None:
    with pytest.raises(MalformedError, match=r"^card: "):
        read_card(document)


def test_the_names_in_an_error_are_escaped() -> None:
    with pytest.raises(MalformedError) as caught:
        read_card({"security": [{"\n\x1b[31mü": 1}]})
    assert str(caught.value).isascii()
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


# Schemes

FLOW = {"authorizationUrl": "https://i/a", "tokenUrl": "https://i/t", "scopes": {"read": "Read", "write": ""}}
CODE = OAuthFlow(
    kind="authorizationCode",
    urls=(("authorizationUrl", "https://i/a"), ("tokenUrl", "https://i/t")),
    scopes=frozenset({"read", "write"}),
)


@walk(
    ("flat", "wrapper", "inner", "scheme"),
    [
        (
            {"type": "apiKey", "in": "cookie", "name": "k"},
            "apiKeySecurityScheme",
            {"location": "cookie", "name": "k"},
            ApiKeyScheme(name="x", location="cookie", parameter="k"),
        ),
        (
            {"type": "http", "scheme": "Bearer", "bearerFormat": "JWT"},
            "httpAuthSecurityScheme",
            {"scheme": "bearer"},
            HttpScheme(name="x", scheme="bearer"),
        ),
        (
            {"type": "oauth2", "flows": {"authorizationCode": FLOW}, "oauth2MetadataUrl": "https://i/m"},
            "oauth2SecurityScheme",
            {"flows": {"authorizationCode": FLOW}, "oauth2MetadataUrl": "https://i/m"},
            OAuth2Scheme(name="x", flows=(CODE,), metadata_url="https://i/m"),
        ),
        (
            {"type": "oauth2"},
            "oauth2SecurityScheme",
            {},
            OAuth2Scheme(name="x", flows=(), metadata_url=None),
        ),
        (
            {"type": "openIdConnect", "openIdConnectUrl": "https://i/.well-known/openid-configuration"},
            "openIdConnectSecurityScheme",
            {"openIdConnectUrl": "https://i/.well-known/openid-configuration"},
            OpenIdConnectScheme(name="x", discovery_url="https://i/.well-known/openid-configuration"),
        ),
        ({"type": "mutualTLS"}, "mtlsSecurityScheme", {}, MutualTlsScheme(name="x")),
    ],
)
def test_a_scheme_is_the_same_flat_wrapped_and_merged(
    flat: dict[str, Any], wrapper: str, inner: dict[str, Any], scheme: Any
) -> None:
    for form in (flat, {wrapper: inner}, {wrapper: inner, **flat}, {"description": "d", **flat}):
        assert read(securitySchemes={"x": form}).schemes == {"x": scheme}


def test_proto_names_are_read_too() -> None:
    view = read(
        security_schemes={
            "k": {"api_key_security_scheme": {"location": "header", "name": "X-Key"}},
            "o": {
                "oauth2_security_scheme": {
                    "oauth2_metadata_url": "https://i/m",
                    "flows": {"client_credentials": {"token_url": "https://i/t", "scopes": {"s": ""}}},
                }
            },
            "i": {"open_id_connect_security_scheme": {"open_id_connect_url": "https://i/d"}},
        },
        security_requirements=[{"schemes": {"k": {}}}],
        supported_interfaces=[{"url": "https://a/", "protocol_binding": "JSONRPC", "protocol_version": "1.0"}],
        capabilities={"extended_agent_card": True},
    )
    flow = OAuthFlow(kind="clientCredentials", urls=(("tokenUrl", "https://i/t"),), scopes=frozenset({"s"}))
    assert view.schemes == {
        "k": ApiKeyScheme(name="k", location="header", parameter="X-Key"),
        "o": OAuth2Scheme(name="o", flows=(flow,), metadata_url="https://i/m"),
        "i": OpenIdConnectScheme(name="i", discovery_url="https://i/d"),
    }
    assert view.requirements == demands({"k": set()})
    assert [(i.url, i.binding, i.version) for i in view.interfaces] == [("https://a/", "JSONRPC", "1.0")]
    assert view.has_extended_card


@walk(
    "scheme",
    [
        {"type": "http", "scheme": "bearer", "httpAuthSecurityScheme": {"scheme": "basic"}},
        {"type": "mutualTLS", "httpAuthSecurityScheme": {"scheme": "bearer"}},
        {"httpAuthSecurityScheme": {"scheme": "bearer"}, "mtlsSecurityScheme": {}},
        {
            "type": "apiKey",
            "in": "query",
            "name": "k",
            "apiKeySecurityScheme": {"location": "header", "name": "k"},
        },
    ],
)
def test_a_scheme_that_says_two_things_is_refused(scheme: dict[str, Any]) -> None:
    with pytest.raises(MalformedError, match=r"^card: /securitySchemes/x: it says two different things"):
        read_card({"securitySchemes": {"x": scheme}})


def test_a_scheme_under_its_json_and_its_proto_name_is_refused() -> None:
    twice: dict[str, Any] = {"mtlsSecurityScheme": {}, "mtls_security_scheme": {}}
    with pytest.raises(MalformedError, match="it stands beside mtlsSecurityScheme"):
        read_card({"securitySchemes": {"x": twice}})


# The rest


def test_interfaces_of_all_generations_with_their_places() -> None:
    view = read(
        url="https://a/rpc",
        protocolVersion="0.3.0",
        additionalInterfaces=[{"url": "https://a/v1", "transport": "HTTP+JSON"}],
        supportedInterfaces=[
            {"url": "https://a/g", "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "t"},
        ],
    )
    assert [(i.pointer, i.url, i.binding, i.version, i.tenant) for i in view.interfaces] == [
        ("/url", "https://a/rpc", "JSONRPC", "0.3.0", ""),  # the default of 0.2 and 0.3
        ("/additionalInterfaces/0/url", "https://a/v1", "HTTP+JSON", "0.3.0", ""),
        ("/supportedInterfaces/0/url", "https://a/g", "GRPC", "1.0", "t"),
    ]


def test_a_skill_without_requirements_demands_nothing_of_its_own() -> None:
    view = read(skills=[{"id": "open"}, {"id": "closed", "security": [{"a": ["x"]}]}])
    assert [(skill.id, skill.requirements) for skill in view.skills] == [
        ("open", None),
        ("closed", demands({"a": {"x"}})),
    ]


@walk(
    ("card", "expected"),
    [
        ({}, False),
        ({"capabilities": None}, False),
        ({"capabilities": {"extendedAgentCard": True}}, True),
        ({"supportsAuthenticatedExtendedCard": True}, True),
        ({"supportsAuthenticatedExtendedCard": True, "capabilities": {"extendedAgentCard": True}}, True),
        ({"supportsAuthenticatedExtendedCard": False, "capabilities": {"extendedAgentCard": False}}, False),
    ],
)
def test_the_flag_of_the_extended_card_in_every_generation(card: dict[str, Any], expected: bool) -> None:
    assert read(**card).has_extended_card is expected


def test_flags_of_the_extended_card_that_differ_are_refused() -> None:
    with pytest.raises(MalformedError, match="it contradicts"):
        read_card({"supportsAuthenticatedExtendedCard": True, "capabilities": {"extendedAgentCard": False}})


def test_the_view_cannot_be_changed() -> None:
    view = read(securitySchemes={"x": {"type": "mutualTLS"}})
    with pytest.raises(TypeError):
        view.schemes["x"] = MutualTlsScheme(name="y")  # type: ignore[index]
    with pytest.raises(AttributeError):
        view.requirements = None  # type: ignore[misc]


# A requirement that is there is never lost


@walk("name", ["security_requirements\0", "securityRequirements\0x", "security\0"])
def test_a_requirement_whose_name_ends_at_a_nul_for_other_readers_is_refused(name: str) -> None:
    with pytest.raises(MalformedError, match="goes unread"):
        read(**{name: [{"schemes": {"x": {"list": []}}}]})


NAMES = st.text(min_size=1, max_size=8)
DEMANDS = st.lists(st.dictionaries(NAMES, st.sets(st.text(min_size=1, max_size=5), max_size=3), max_size=3), max_size=4)


def spelled_1_0(item: dict[str, set[str]]) -> Any:
    return {"schemes": {name: {"list": sorted(scopes)} for name, scopes in item.items()}}


def spelled_go(item: dict[str, set[str]]) -> Any:
    return {"schemes": {name: sorted(scopes) for name, scopes in item.items()}}


def spelled_flat(item: dict[str, set[str]]) -> Any:
    return {name: sorted(scopes) for name, scopes in item.items()}


SPELLINGS = st.sampled_from([spelled_1_0, spelled_go, spelled_flat])


@given(wanted=DEMANDS, data=st.data(), member=st.sampled_from(["security", "securityRequirements"]))
def test_whatever_is_demanded_in_whatever_spelling_is_what_is_read(
    wanted: list[dict[str, set[str]]], data: st.DataObject, member: str
) -> None:
    written = [data.draw(SPELLINGS)(item) for item in wanted]
    assert read_card({member: written}).requirements == demands(*wanted)
    skill = read_card({"skills": [{"id": "s", member: written}]}).skills[0]
    assert skill.requirements == demands(*wanted)


@given(one=DEMANDS, other=DEMANDS)
def test_twins_are_read_when_they_demand_the_same_and_refused_otherwise(
    one: list[dict[str, set[str]]], other: list[dict[str, set[str]]]
) -> None:
    card = {"security": [*map(spelled_flat, one)], "securityRequirements": [*map(spelled_1_0, other)]}
    if set(demands(*one)) == set(demands(*other)):
        assert set(read_card(card).requirements or ()) == set(demands(*one))
    else:
        with pytest.raises(MalformedError, match="contradicts"):
            read_card(card)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["schemes", "list", "a", "b", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(value=JSON_VALUES, member=st.sampled_from(["security", "securityRequirements", "security_requirements"]))
def test_no_value_whatever_looks_like_fewer_requirements_than_it_has_members(value: Any, member: str) -> None:
    try:
        requirements = read_card({member: value}).requirements
    except MalformedError:
        return
    if value is None:
        assert requirements is None
        return
    assert requirements is not None
    assert len(requirements) == len(value)
    for item, alternative in zip(value, requirements, strict=True):
        nothing_said = item in ({}, {"schemes": {}}, {"schemes": None})
        assert alternative.is_anonymous == nothing_said
