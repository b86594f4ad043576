"""What a card of any generation says about where the agent is: 0.1, 0.2, 0.3, 1.0, and merged cards of two of them."""

from __future__ import annotations

from typing import Final

from a2a_trust.strict_json import JSONObject

__all__ = ["LEGACY_MEMBERS", "interface_urls", "is_legacy"]

LEGACY_MEMBERS: Final = (
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "protocolVersion",
    "security",
    "supportsAuthenticatedExtendedCard",
    "authentication",
)
"""Members of a card that 0.1 to 0.3 have and 1.0 does not."""


def is_legacy(card: JSONObject) -> bool:
    """Whether the card has only the shape of 0.1 to 0.3: their members, and no ``supportedInterfaces`` of 1.0."""
    if card.get("supportedInterfaces") or card.get("supported_interfaces"):
        return False
    return any(member in card for member in LEGACY_MEMBERS)


def interface_urls(card: JSONObject) -> list[tuple[str, str]]:
    """Every place where the card says the agent can be reached: JSON pointer and URL, in the card's order.

    ``supportedInterfaces`` of 1.0, ``url`` and ``additionalInterfaces`` of 0.2 and 0.3, under their JSON and their
    proto names. The card has passed the gate, so what is there has the right type.
    """
    found = []
    if isinstance(card.get("url"), str):
        found.append(("/url", card["url"]))
    for name in ("supportedInterfaces", "supported_interfaces", "additionalInterfaces", "additional_interfaces"):
        for index, interface in enumerate(card.get(name) or ()):
            if isinstance(interface.get("url"), str):
                found.append((f"/{name}/{index}/url", interface["url"]))
    return found
