"""Schemes and requirements for cards that do not declare them."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from a2a_trust.card.merge import CardSecurity, merged_card
from a2a_trust.card.models import AgentCard
from a2a_trust.card.schema import SCHEME_TYPES
from a2a_trust.card.view import ApiKeyScheme, CardView, read_card
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.lint.findings import Severity
from a2a_trust.lint.linter import lint_card
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.verify import verify_card
from tests.tables import walk

KEY: dict[str, Any] = {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
FLAT_KEY = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
FLOW = {"tokenUrl": "https://login.example/token", "scopes": {"read": "Read", "write": "Write"}}
SCHEMES: dict[str, Any] = {
    "key": KEY,
    "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
    "oauth": {"oauth2SecurityScheme": {"flows": {"clientCredentials": FLOW}}},
    "openid": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://login.example/.well-known/openid"}},
    "mtls": {"mtlsSecurityScheme": {}},
}
REQUIREMENTS: list[Any] = [
    {"schemes": {"oauth": {"list": ["write", "read"]}, "mtls": {}}},
    {"schemes": {"bearer": {"list": []}, "key": {}}},
    {"schemes": {"openid": {}}},
]
SECURITY = CardSecurity(schemes=SCHEMES, requirements=REQUIREMENTS)
ONE = CardSecurity(schemes={"key": KEY}, requirements=[{"schemes": {"key": {"list": []}}}])
WRITTEN: list[Any] = [{"schemes": {"key": {}}}]

CURRENT: dict[str, Any] = {
    "name": "agent",
    "description": "Does things.",
    "version": "1",
    "supportedInterfaces": [
        {"url": "https://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "a", "name": "a", "description": "A.", "tags": ["a"]}],
}
LEGACY: dict[str, Any] = {
    **{name: value for name, value in CURRENT.items() if name != "supportedInterfaces"},
    "url": "https://agent.example/rpc",
    "protocolVersion": "0.3.0",
    "preferredTransport": "JSONRPC",
}
MERGED = merged_card(CURRENT)
CARDS = {"1.0": CURRENT, "0.3": LEGACY, "merged": MERGED}


def rules(view: CardView) -> Any:
    return dict(view.schemes), set(view.requirements or ())


@walk("generation", CARDS)
def test_every_generation_says_the_same_afterwards(generation: str) -> None:
    card = CARDS[generation]
    before = copy.deepcopy(card)
    added = SECURITY.added_to(card)
    expected = rules(read_card({"securitySchemes": SCHEMES, "securityRequirements": REQUIREMENTS}))
    assert rules(read_card(added)) == expected
    assert {name: value for name, value in added.items() if not name.startswith("security")} == card == before
    assert read_card(added).generation == read_card(card).generation
    assert SECURITY.added_to(added) == added  # nothing changes where it is already
    assert SECURITY.added_to(json.dumps(card)) == added
    assert [finding for finding in lint_card(added) if finding.severity is Severity.ERROR] == []


def test_each_generation_has_it_in_its_own_words() -> None:
    current, legacy, merged = (ONE.added_to(card) for card in (CURRENT, LEGACY, MERGED))
    assert (current["securitySchemes"], current["securityRequirements"]) == ({"key": KEY}, WRITTEN)
    assert "security" not in current
    assert (legacy["securitySchemes"], legacy["security"]) == ({"key": FLAT_KEY}, [{"key": []}])
    assert "securityRequirements" not in legacy
    assert merged["securitySchemes"] == {"key": {**FLAT_KEY, **KEY}}
    assert (merged["securityRequirements"], merged["security"]) == (WRITTEN, [{"key": []}])


@walk("wrapper", SCHEME_TYPES)
def test_a_legacy_card_gets_no_wrapper_of_1_0(wrapper: str) -> None:
    (name,) = [name for name, scheme in SCHEMES.items() if wrapper in scheme]
    shaped = SECURITY.added_to(LEGACY)["securitySchemes"][name]
    assert shaped["type"] == SCHEME_TYPES[wrapper]
    assert not set(shaped) & set(SCHEME_TYPES)


def test_the_half_that_older_clients_read_says_the_same_as_the_other() -> None:
    merged = SECURITY.added_to(MERGED)
    old = {name: value for name, value in merged.items() if name not in ("supportedInterfaces", "securityRequirements")}
    assert rules(read_card(old)) == rules(read_card(merged))


@walk("generation", CARDS)
def test_the_card_can_be_signed_and_verified(generation: str) -> None:
    signer = generate_signer()
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("agent.example"))])
    added = SECURITY.added_to(CARDS[generation])
    signed = sign_card(added, signer).card
    assert verify_card(signed, trust, origin="https://agent.example").card == added


@walk(
    "members",
    [
        {"securitySchemes": None, "securityRequirements": None, "security": None},
        {"securitySchemes": {}, "securityRequirements": []},
        {"security_schemes": {}, "security_requirements": []},
        {"securitySchemes": {"key": {}}},  # as fasta2a writes it
        {"securitySchemes": {"key": None}},
        {"securitySchemes": {"key": FLAT_KEY}},
        {"security_schemes": {"key": KEY}, "security_requirements": WRITTEN},
        {"securitySchemes": {"key": {**FLAT_KEY, **KEY}}, "securityRequirements": [{"key": []}]},
        {"signatures": [{"protected": "x", "signature": "y"}]},
    ],
)
def test_what_the_card_leaves_open_or_says_alike_is_no_contradiction(members: dict[str, Any]) -> None:
    assert ONE.added_to({**CURRENT, **members}) == ONE.added_to(CURRENT)


def test_schemes_that_only_the_card_has_stay() -> None:
    more: dict[str, Any] = {"more": {"mtlsSecurityScheme": {}}}
    assert ONE.added_to({**CURRENT, "security_schemes": more})["securitySchemes"] == {**more, "key": KEY}


@walk(
    ("members", "words"),
    [
        ({"securitySchemes": {"key": {"mtlsSecurityScheme": {}}}}, "the card declares the scheme 'key' itself"),
        ({"securitySchemes": {"key": {**FLAT_KEY, "in": "query"}}}, "differently; remove it from security="),
        ({"securitySchemes": {"key": {**FLAT_KEY, "name": "X-Key"}}}, "the card declares the scheme 'key' itself"),
        ({"security_schemes": {"key": {**FLAT_KEY, "in": "cookie"}}}, "the card declares the scheme 'key' itself"),
        (
            {"securitySchemes": {"a": KEY}, "security_schemes": {"b": KEY}},
            "the card has both securitySchemes and security_schemes; keep securitySchemes",
        ),
        ({"securitySchemes": ["key"]}, "/securitySchemes of the card must be an object"),
        (
            {"securityRequirements": [{"schemes": {"other": {}}}]},
            "declares requirements that differ from these",
        ),
        ({"securityRequirements": [{"schemes": {"key": {"list": ["x"]}}}]}, "requirements that differ"),
        ({"securityRequirements": [*WRITTEN, {"schemes": {}}]}, "requirements that differ"),
        ({"security_requirements": [{}]}, "requirements that differ"),
        ({"security": [{"other": []}]}, "requirements that differ"),
        ({"security": [{}]}, "requirements that differ"),
    ],
)
def test_a_card_that_says_something_else_is_refused(members: dict[str, Any], words: str) -> None:
    for card in (CURRENT, MERGED):
        given = {name: value for name, value in card.items() if name not in members}
        with pytest.raises(ConfigurationError, match=words):
            ONE.added_to({**given, **members})


@walk(
    "members",
    [
        {"securityRequirements": {}},
        {"securityRequirements": WRITTEN, "security_requirements": WRITTEN},
        {"securitySchemes": {"key": {"type": "apiKey"}}},
        {"securitySchemes": {"key": 5}},
        {"SecurityRequirements": WRITTEN, "securityRequirements": 5},
    ],
)
def test_what_cannot_be_read_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(TrustError):
        ONE.added_to({**CURRENT, **members})


def test_a_card_of_0_1_has_no_place_for_it() -> None:
    with pytest.raises(ConfigurationError, match=r"a card of A2A 0\.1 has no place for it"):
        ONE.added_to({"name": "x", "url": "https://agent.example", "authentication": {"schemes": ["bearer"]}})


@walk("card", [b"[]", b"5", "{"])
def test_what_is_no_card_is_refused(card: Any) -> None:
    with pytest.raises(TrustError):
        ONE.added_to(card)


def test_the_models_of_cards_are_taken_too() -> None:
    assert ONE.added_to(AgentCard.model_validate(CURRENT)) == ONE.added_to(CURRENT)


def test_mappings_of_any_kind_are_taken() -> None:
    frozen: Mapping[str, Any] = MappingProxyType({"key": MappingProxyType(KEY)})
    assert CardSecurity(schemes=frozen, requirements=tuple(WRITTEN)).added_to(CURRENT) == ONE.added_to(CURRENT)


@walk(
    ("schemes", "requirements", "words"),
    [
        ({"key": FLAT_KEY}, WRITTEN, "the scheme 'key' is not one of A2A 1.0; write .*apiKeySecurityScheme"),
        ({"key": {**KEY, "mtlsSecurityScheme": {}}}, WRITTEN, "the scheme 'key' is not one of"),
        ({"key": {}}, WRITTEN, "the scheme 'key' is not one of"),
        ({"key": "apiKey"}, WRITTEN, "the scheme 'key' is not one of"),
        ({"key": ["apiKeySecurityScheme"]}, WRITTEN, "the scheme 'key' is not one of"),
        ([KEY], WRITTEN, "security: schemes: write a dict"),
        (None, WRITTEN, "security: schemes: write a dict"),
        ({"key": KEY}, 5, "requirements: write a list"),
        ({"key": KEY}, b"key", "requirements: write a list"),
        ({"key": {"apiKeySecurityScheme": {}}}, WRITTEN, "security: /securitySchemes/key/apiKeySecurityScheme"),
        ({"key": {"apiKeySecurityScheme": None}}, WRITTEN, "security: /securitySchemes/key: no kind of scheme"),
        ({"key": KEY}, [], r'requirements: write a list, as in \[{"schemes"'),
        ({"key": KEY}, None, "CardSecurity without requirements would protect nothing"),
        ({"key": KEY}, WRITTEN[0], "requirements: write a list"),
        ({"key": KEY}, "key", "requirements: write a list"),
        ({"key": KEY}, ["key"], "security: /securityRequirements/0: an object is needed"),
        ({"key": KEY}, [{"schemes": {"key": "read"}}], "security: /securityRequirements/0/schemes/key"),
    ],
)
def test_what_is_no_security_does_not_start(schemes: Any, requirements: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        CardSecurity(schemes=schemes, requirements=requirements)


def test_scopes_are_kept_and_come_in_their_order() -> None:
    security = CardSecurity(schemes={"key": KEY}, requirements=[{"schemes": {"key": {"list": ["b", "a"]}}}])
    assert security.added_to(CURRENT)["securityRequirements"] == [{"schemes": {"key": {"list": ["a", "b"]}}}]
    assert security.added_to(LEGACY)["security"] == [{"key": ["a", "b"]}]
    view = read_card(security.added_to(MERGED))
    assert view.schemes["key"] == ApiKeyScheme(name="key", location="header", parameter="X-API-Key")
