"""Cards made to hold every field of A2A 1.0, every field at its default, and the JSON that readers get wrong."""

from __future__ import annotations

import json
from typing import Any, Final

from a2a_trust.card.schema import MESSAGES, Field, Kind

__all__ = ["CANONICAL_TRAPS", "EVERY_FIELD", "EVERY_FIELD_AT_ITS_DEFAULT", "card_with_params"]


def _full(message: str, variant: str = "") -> dict[str, Any]:
    """The message with every field set, of each oneof only the ``variant``."""
    return {
        field.name: _full_value(field)
        for field in MESSAGES[message].values()
        if not field.oneof or field.name == variant
    }


def _full_value(field: Field) -> Any:
    match field.kind:
        case Kind.STRING:
            return f"https://example.com/{field.name}" if field.name == "url" else f"a {field.name}"
        case Kind.BOOL:
            return True
        case Kind.STRINGS:
            return [f"one of {field.name}", f"two of {field.name}"]
        case Kind.STRING_MAP:
            return {"read": "may read", "Read": "may read aloud"}
        case Kind.STRUCT:
            return {"limit": 5, "of": ["text", True, {"deep": 0.5}]}
        case Kind.MESSAGE if field.message == "OAuthFlows":
            return _full("OAuthFlows", "authorizationCode")
        case Kind.MESSAGE:
            return _full(field.message)
        case Kind.MESSAGES:
            return [_full(field.message)]
        case Kind.MESSAGE_MAP if field.message == "SecurityScheme":
            return _schemes()
        case Kind.MESSAGE_MAP:
            return {"one": _full(field.message), "two": _full(field.message)}


def _schemes() -> dict[str, Any]:
    """Every variant of SecurityScheme, and of OAuthFlows within."""
    schemes = {name: _full("SecurityScheme", name) for name in MESSAGES["SecurityScheme"]}
    for flow in MESSAGES["OAuthFlows"]:
        scheme = schemes[f"oauth2 {flow}"] = _full("SecurityScheme", "oauth2SecurityScheme")
        scheme["oauth2SecurityScheme"]["flows"] = _full("OAuthFlows", flow)
    return schemes


def _empty(message: str, variant: str = "") -> dict[str, Any]:
    """The message with every field written down at its default; messages within are there, and empty likewise."""
    return {
        field.name: _empty_value(field)
        for field in MESSAGES[message].values()
        if not field.oneof or field.name == variant
    }


def _empty_value(field: Field) -> Any:
    match field.kind:
        case Kind.STRING:
            return ""
        case Kind.BOOL:
            return False
        case Kind.MESSAGE:
            return _empty(field.message, "authorizationCode")
        case Kind.MESSAGES:
            return [_empty(field.message)]
        case Kind.MESSAGE_MAP if field.message == "SecurityScheme":
            return {name: _empty("SecurityScheme", name) for name in MESSAGES["SecurityScheme"]}
        case Kind.MESSAGE_MAP:
            return {"one": _empty(field.message)}
        case Kind.STRINGS:
            return []
        case Kind.STRING_MAP | Kind.STRUCT:
            return {}


EVERY_FIELD: Final = _full("AgentCard")

# An empty URL names no host, so the interfaces keep theirs; the name tells the card from "{}".
EVERY_FIELD_AT_ITS_DEFAULT: Final = {
    **_empty("AgentCard"),
    "name": "Default",
    "supportedInterfaces": [{**_empty("AgentInterface"), "url": "https://example.com/"}],
}

CANONICAL_TRAPS: Final = {
    "integers": '{"a":1,"b":0,"c":-5,"d":9007199254740991}',
    "negative zero": '{"a":-0.0,"b":-0}',
    "fractions and exponents": '{"a":0.1,"b":1.0,"c":1e21,"d":1e22,"e":1e-7,"f":1e-6,"g":123456789.125,"h":5e-324,'
    '"i":1.7976931348623157e308,"j":1e16,"k":1E3}',
    "escapes": json.dumps({"a": '\x01\b\t\n\f\r"\\/\x7f', "\x7f": "\x1f"}),
    "line separators and two spellings of é": '{"a":"\\u2028\\u2029","\\u00e9":"x","e\\u0301":"y"}',
    "names above U+FFFF": json.dumps({"\U0001f600": "a", "\ufb33": "b", "\U00010000x": "c", "\uffff": "d"}),
    "names that are numbers": '{"10":"a","9":"b","-1":"c","01":"d","":"e"}',
    "names that objects inherit": '{"constructor":"b","toString":"y","hasOwnProperty":"z"}',
    "empty values": '{"a":null,"b":"","c":[],"d":{},"e":[[],"",null,{"x":[]}],"f":false,"g":0,"h":[1,"",2]}',
}
"""JSON text of an extension's ``params`` that canonical forms have been seen to disagree about."""


def card_with_params(params: str) -> str:
    """A plain card of 1.0, raw JSON, with these ``params``, JSON text too: so that numbers keep their spelling."""
    card = {
        "name": "Agent",
        "description": "Has an extension.",
        "supportedInterfaces": [
            {"url": "https://agent.example.com/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "version": "1.0.0",
        "capabilities": {"extensions": [{"uri": "https://example.com/extension", "params": "PARAMS"}]},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "echo", "name": "Echo", "description": "Echoes", "tags": ["demo"]}],
    }
    return json.dumps(card).replace('"PARAMS"', params)
