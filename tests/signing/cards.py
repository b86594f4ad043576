"""Cards of every generation, and the places of a 1.0 card where each message of the table can stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from hypothesis import strategies as st

from a2a_trust.card.schema import MESSAGES, Field, Kind
from tests.signing.json_values import canonicalizable, texts

Card: TypeAlias = dict[str, Any]


def full_card() -> Card:
    """A 1.0 card with every kind of member and nothing empty: all its forms are the same bytes."""
    return {
        "name": "Invoice Agent",
        "description": "Reads and reconciles supplier invoices.",
        "supportedInterfaces": [
            {"url": "https://invoice.example.com/a2a/v1", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {
                "url": "grpc.example.com:443",
                "protocolBinding": "GRPC",
                "tenant": "acme",
                "protocolVersion": "1.0",
            },
        ],
        "provider": {"url": "https://example.com", "organization": "Example Ltd"},
        "version": "2.4.1",
        "documentationUrl": "https://docs.example.com",
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "extensions": [
                {
                    "uri": "https://example.com/ext/v1",
                    "description": "Rates",
                    "required": True,
                    "params": {"Limit": 3, "limit": [True, {"deep": "x"}]},
                }
            ],
            "extendedAgentCard": True,
        },
        "securitySchemes": {
            "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
            "Bearer": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
            "oauth": {
                "oauth2SecurityScheme": {
                    "flows": {
                        "authorizationCode": {
                            "authorizationUrl": "https://id.example.com/authorize",
                            "tokenUrl": "https://id.example.com/token",
                            "scopes": {"read": "Read", "Read": "Read all"},
                            "pkceRequired": True,
                        }
                    },
                    "oauth2MetadataUrl": "https://id.example.com/.well-known/oauth-authorization-server",
                }
            },
        },
        "securityRequirements": [{"schemes": {"oauth": {"list": ["read"]}}}],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["application/json"],
        "skills": [
            {
                "id": "reconcile",
                "name": "Reconcile",
                "description": "Matches invoices with orders.",
                "tags": ["finance"],
                "examples": ["Reconcile March"],
                "inputModes": ["text/plain"],
                "outputModes": ["application/json"],
                "securityRequirements": [{"schemes": {"bearer": {"list": ["write"]}}}],
            }
        ],
        "iconUrl": "https://example.com/icon.png",
    }


def many_formed_card() -> Card:
    """A 1.0 card whose forms are different bytes: empty and default members, a requirement without scopes."""
    return {
        **full_card(),
        "description": "",
        "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
        "capabilities": {"streaming": False, "extensions": []},
        "documentationUrl": None,
    }


def legacy_card() -> Card:
    """A card of 0.3, with members that are empty."""
    return {
        "protocolVersion": "0.3.0",
        "name": "Old Agent",
        "description": "",
        "url": "https://old.example.com/a2a",
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [{"url": "https://old.example.com/rest", "transport": "HTTP+JSON"}],
        "version": "1.0.0",
        "capabilities": {"streaming": False, "stateTransitionHistory": False, "extensions": []},
        "securitySchemes": {
            "oauth": {
                "type": "oauth2",
                "flows": {
                    "clientCredentials": {"tokenUrl": "https://id.example.com/token", "scopes": {}},
                    "password": {"tokenUrl": "https://id.example.com/token", "scopes": {}},
                },
            },
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        },
        "security": [{"oauth": []}, {"key": []}],
        "defaultInputModes": [],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "S", "description": "", "tags": [], "security": [{"key": []}]}],
        "supportsAuthenticatedExtendedCard": False,
    }


def merged_card() -> Card:
    """A card of 1.0 and 0.3 side by side."""
    return {
        **full_card(),
        "protocolVersion": "0.3.0",
        "url": "https://invoice.example.com/a2a/v1",
        "preferredTransport": "JSONRPC",
        "security": [{"oauth": ["read"]}],
    }


Place: TypeAlias = tuple[str, str, Callable[[Any], Card]]


def places() -> Iterator[Place]:
    """Every place of a 1.0 card where a message stands: JSON pointer, message, and the card with it there."""

    def below(pointer: str, message: str, put: Callable[[Any], Card]) -> Iterator[Place]:
        yield pointer, message, put
        for field in MESSAGES[message].values():
            if field.kind is Kind.MESSAGE:
                yield from below(f"{pointer}/{field.name}", field.message, _inside(put, field, lambda item: item))
            elif field.kind is Kind.MESSAGES:
                yield from below(f"{pointer}/{field.name}/0", field.message, _inside(put, field, lambda item: [item]))
            elif field.kind is Kind.MESSAGE_MAP:
                yield from below(
                    f"{pointer}/{field.name}/key", field.message, _inside(put, field, lambda item: {"key": item})
                )

    return below("", "AgentCard", lambda members: members)


def _inside(put: Callable[[Any], Card], field: Field, within: Callable[[Any], Any]) -> Callable[[Any], Card]:
    return lambda item: put({field.name: within(item)})


_UNKNOWN_NAMES = texts.filter(str.isprintable).map(lambda name: f"x-{name}")
_NAMES = texts.filter(lambda name: name != "__proto__")  # the gate refuses it


def _values_of(field: Field) -> st.SearchStrategy[Any]:
    scopes = st.lists(st.sampled_from(["", "read", "Read", "é"]), max_size=3)
    if field.name == "url":  # without a host for every reader, that of an interface is not signed
        return st.sampled_from(["x:1", "https://agent.example.com/"])
    if field.kind is Kind.STRING:
        return st.sampled_from(["", "x", "\U0001f600é"])
    if field.kind is Kind.BOOL:
        return st.booleans()
    if field.kind is Kind.STRINGS:
        return scopes
    if field.kind is Kind.STRING_MAP:
        return st.dictionaries(_NAMES, st.sampled_from(["", "x"]), max_size=2)
    if field.kind is Kind.STRUCT:
        return st.dictionaries(_NAMES, canonicalizable, max_size=2)
    message = st.deferred(lambda: _messages(field.message))
    if field.kind is Kind.MESSAGE:
        return message
    if field.kind is Kind.MESSAGES:
        return st.lists(message, max_size=2)
    items = message | scopes if field.message == "StringList" else message
    return st.dictionaries(_NAMES, items, max_size=2)


@st.composite
def _messages(draw: st.DrawFn, message: str) -> Card:
    members: Card = {}
    variants: set[str] = set()
    for field in MESSAGES[message].values():
        ways = ["absent", "absent", "null", "proto", "value", "value", "value"]
        way = draw(st.sampled_from(ways))
        if way == "absent" or (field.oneof in variants and way != "null"):
            continue
        value = None if way == "null" else draw(_values_of(field))
        if field.oneof and value is not None:
            variants.add(field.oneof)
        members[field.proto_name if way == "proto" else field.name] = value
    if draw(st.integers(0, 5)) == 0:
        members |= draw(st.dictionaries(_UNKNOWN_NAMES, canonicalizable, max_size=2))
    names = draw(st.permutations(list(members)))
    return {name: members[name] for name in names}


#: Cards that pass the gate: every message and field, absent, null, empty, at defaults, under either name.
cards: st.SearchStrategy[Card] = _messages("AgentCard")
