"""Which cards a2a-python cannot verify; tests/interop compares this with the released SDK."""

from __future__ import annotations

from typing import Any

from a2a_trust.signing.a2a_python import members_unread_in_0_3, rewritten_members
from tests.signing.cards import Card, full_card, legacy_card
from tests.tables import walk

FLOWS: Card = {"clientCredentials": {"tokenUrl": "https://id.example.com/token", "scopes": {}}}


@walk(
    ("scheme", "unread"),
    [
        ({"type": "http", "scheme": "Bearer"}, []),
        ({"type": "http", "scheme": "Bearer", "bearerFormat": "JWT", "description": "d"}, []),
        ({"type": "oauth2", "flows": FLOWS, "oauth2MetadataUrl": "https://id.example.com", "description": "d"}, []),
        ({"type": "apiKey", "in": "header", "name": "X-API-Key"}, []),
        ({"type": "openIdConnect", "open_id_connect_url": "https://id.example.com"}, []),
        ({"type": "apiKey", "in": "body", "name": "X-API-Key"}, ["/in"]),
        ({"type": "apiKey", "in": "header"}, ["/name"]),
        ({"type": "http", "scheme": "Bearer", "name": "X-API-Key"}, ["/name"]),
        ({"type": "http", "bearerFormat": "JWT"}, ["/scheme"]),
        ({"type": "mutualTLS", "bearerFormat": "JWT"}, ["/bearerFormat"]),
        ({"scheme": "Bearer"}, ["/type"]),
        ({"type": "other"}, ["/type"]),
    ],
)
def test_a_scheme_fits_the_model_of_its_type(scheme: Card, unread: list[str]) -> None:
    assert list(members_unread_in_0_3(scheme, "SecurityScheme")) == unread


@walk(
    ("changes", "unread"),
    [
        ({}, []),
        ({"url": ...}, ["/url"]),
        ({"defaultInputModes": ..., "default_input_modes": ["text/plain"]}, []),
        ({"provider": {"organization": "Example"}}, ["/provider/url"]),
        ({"skills": [{"id": "s", "name": "S", "tags": []}]}, ["/skills/0/description"]),
        ({"securitySchemes": {"a/b": {"type": "other"}}}, ["/securitySchemes/a~1b/type"]),
    ],
)
def test_members_that_its_models_need_are_named_at_every_depth(changes: Card, unread: list[str]) -> None:
    card = {name: value for name, value in {**legacy_card(), **changes}.items() if value is not ...}
    assert list(members_unread_in_0_3(card)) == unread


REQUIREMENTS: list[Any] = [{"schemes": {"oauth": {"list": ["read"]}}}]


@walk(
    ("changes", "rewritten"),
    [
        ({}, ()),
        ({"supportsAuthenticatedExtendedCard": True}, ()),  # capabilities says so already
        ({"supportsAuthenticatedExtendedCard": True, "capabilities": {}}, ("/supportsAuthenticatedExtendedCard",)),
        ({"supportsAuthenticatedExtendedCard": True, "capabilities": None}, ("/supportsAuthenticatedExtendedCard",)),
        ({"security": [{"oauth": ["read"]}]}, ()),
        ({"security": [{"oauth": ["read"]}], "securityRequirements": ...}, ("/security",)),
        (
            {"security": [{"oauth": ["read"]}], "securityRequirements": ..., "security_requirements": REQUIREMENTS},
            (),
        ),
        (
            {"security": [{"oauth": ["write"]}], "securityRequirements": ..., "security_requirements": REQUIREMENTS},
            ("/security",),
        ),
        ({"skills": [{"id": "s", "security": [{"oauth": ["read"]}]}]}, ("/skills/0/security",)),
        ({"securitySchemes": {"key": {"type": "http", "scheme": "Bearer"}}}, ("/securitySchemes/key",)),
    ],
)
def test_members_that_the_resolver_rewrites_into_others(changes: Card, rewritten: tuple[str, ...]) -> None:
    card = {name: value for name, value in {**full_card(), **changes}.items() if value is not ...}
    assert rewritten_members(card) == rewritten


def test_no_sdk_of_1_0_reads_a_card_of_0_3() -> None:
    assert rewritten_members(legacy_card()) == ()
