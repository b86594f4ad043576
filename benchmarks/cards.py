"""The cards that are measured: one of the size and shape of the specification's sample (A2A 8.5), and variants."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

__all__ = [
    "HOST",
    "numbered",
    "served",
    "with_api_key",
    "with_companion",
    "with_emoji",
    "with_empty_list",
    "with_fractions",
    "without_security",
    "without_surprises",
]

HOST: Final = "harbour-pilot.example.com"
"""The host of all interfaces."""

_CARD: Final[dict[str, Any]] = {
    "name": "Harbour Approach Planner",
    "description": (
        "Plans the approach of seagoing vessels to a harbour: pilot boarding, tug assistance, berth windows and under "
        "keel clearance. Takes forecasts of tide, current and wind into account and explains all that "
        "it recommends."
    ),
    "supportedInterfaces": [
        {"url": f"https://{HOST}/a2a/jsonrpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": f"https://{HOST}/a2a/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        {"url": f"https://{HOST}/a2a/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
    ],
    "provider": {"organization": "Example Port Services Ltd.", "url": "https://www.port-services.example.com"},
    "iconUrl": f"https://{HOST}/static/icon-512.png",
    "version": "3.4.1",
    "documentationUrl": "https://docs.port-services.example.com/harbour-approach-planner/reference",
    "capabilities": {
        "streaming": True,
        "pushNotifications": True,
        "extendedAgentCard": True,
        "extensions": [
            {
                "uri": "https://extensions.example.com/vessel-tracking/v2",
                "description": "Positions of the vessel are taken from its transponder while a plan is running.",
                "required": True,
            }
        ],
    },
    "securitySchemes": {
        "company": {
            "openIdConnectSecurityScheme": {
                "description": "Single sign-on of the shipping company.",
                "openIdConnectUrl": "https://login.port-services.example.com/.well-known/openid-configuration",
            }
        },
        "partner": {
            "oauth2SecurityScheme": {
                "description": "Machines of partners, registered with the port.",
                "flows": {
                    "clientCredentials": {
                        "tokenUrl": "https://login.port-services.example.com/oauth2/token",
                        "scopes": {
                            "plans:read": "Read plans of the own fleet",
                            "plans:write": "Request, change and cancel plans",
                            "tides:read": "Read forecasts of tide and current",
                        },
                    }
                },
            }
        },
    },
    "securityRequirements": [
        {"schemes": {"company": {"list": ["openid", "profile", "fleet"]}}},
        {"schemes": {"partner": {"list": ["plans:read", "plans:write"]}}},
    ],
    "defaultInputModes": ["application/json", "text/plain"],
    "defaultOutputModes": ["application/json", "text/plain"],
    "skills": [
        {
            "id": "plan-approach",
            "name": "Plan an approach",
            "description": (
                "Proposes times and places of pilot boarding, tugs and berth for one call, with the clearance under "
                "the keel along the way and the latest moment at which the approach can still be broken off."
            ),
            "tags": ["harbour", "pilotage", "tugs", "berth", "tide"],
            "examples": [
                "Our bulk carrier with 13 metres draught arrives on Thursday at noon. When can she berth?",
                '{"vessel": "9074729", "eta": "2026-11-26T12:00:00Z", "draught": 13, "prefer": ["daylight"]}',
            ],
            "inputModes": ["application/json", "text/plain"],
            "outputModes": ["application/json", "text/html", "application/geo+json"],
        },
        {
            "id": "watch-approach",
            "name": "Watch a running approach",
            "description": (
                "Follows a vessel along its plan, warns of deviation, traffic and changing weather, and proposes a "
                "new plan as soon as the old one cannot be kept."
            ),
            "tags": ["harbour", "traffic", "weather", "alerts"],
            "examples": [
                "Tell me when the container vessel leaves the planned track by more than a cable.",
                "Is the wind at the turning basin still within the limits for two tugs?",
            ],
            "inputModes": ["application/json"],
            "outputModes": ["application/json", "text/plain", "image/png"],
            "securityRequirements": [{"schemes": {"partner": {"list": ["plans:read", "tides:read"]}}}],
        },
    ],
}


def without_surprises() -> dict[str, Any]:
    """A card that has one canonical form: nothing empty, no default, no unknown member, no number."""
    return copy.deepcopy(_CARD)


def with_fractions() -> dict[str, Any]:
    """The same card, with numbers in the parameters of its extension: some whole, most not."""
    card = without_surprises()
    card["capabilities"]["extensions"][0]["params"] = {
        "maxAgeSeconds": 30,
        "positionTolerance": 0.00025,
        "area": {"north": 53.9125, "south": 53.4981, "west": 7.8214, "east": 9.9903},
        "limits": [{"windSpeed": 17.5, "waveHeight": 2.25}, {"windSpeed": 12.0, "waveHeight": 1.5}],
    }
    return card


def with_emoji() -> dict[str, Any]:
    """The same card, with letters beyond ASCII and a sign above U+FFFF in its texts."""
    card = without_surprises()
    card["description"] += " Für Häfen an Nord- und Ostsee ⚓ 🚢"
    return card


def with_companion() -> dict[str, Any]:
    """The same card, with a requirement without scopes: its full and its pruned form differ, so a key signs twice."""
    card = without_surprises()
    card["securitySchemes"]["device"] = {"mtlsSecurityScheme": {"description": "Certificate of the vessel's gateway."}}
    card["securityRequirements"].append({"schemes": {"device": {}}})
    return card


def without_security() -> dict[str, Any]:
    """The same card of an agent that everybody may call."""
    card = without_surprises()
    del card["securitySchemes"], card["securityRequirements"], card["skills"][1]["securityRequirements"]
    return card


def with_api_key(*scopes: str) -> dict[str, Any]:
    """The same card with one API key. Without scopes, and with capabilities that say nothing, it is the card of
    somebody who begins, as sign_card gives it back."""
    card = without_security()
    card["securitySchemes"] = {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}}
    card["securityRequirements"] = [{"schemes": {"key": {"list": list(scopes)} if scopes else {}}}]
    if not scopes:
        card["capabilities"] = {}
    return card


def with_empty_list(card: dict[str, Any]) -> dict[str, Any]:
    """The card of an API key without scopes, as most people write it: ``"list": []``."""
    return {**card, "securityRequirements": [{"schemes": {"key": {"list": []}}}]}


def numbered(number: int) -> tuple[str, dict[str, Any]]:
    """One of many cards, each of another agent on another host, and that host."""
    host = f"agent-{number}.{HOST}"
    card: dict[str, Any] = json.loads(json.dumps(_CARD).replace(HOST, host))
    card["name"] = f"{card['name']} {number}"
    return host, card


def served(card: dict[str, Any]) -> bytes:
    """The card as web frameworks send it: UTF-8, without blanks, in its own order."""
    return json.dumps(card, ensure_ascii=False, separators=(",", ":")).encode()
