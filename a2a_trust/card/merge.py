"""One card for clients of two generations: it has the members of 1.0, and those that clients of 0.2 and 0.3 read.

A card whose generations contradict each other is rejected. Sign the merged card, so that both are signed.
"""

from __future__ import annotations

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.card.given import GivenCard, read_given
from a2a_trust.card.schema import DEFAULTS_0_3, SCHEME_MEMBERS, SCHEME_TYPES
from a2a_trust.card.view import Alternative, CardView, Interface, read_card
from a2a_trust.errors import MalformedError


def merged_card(card: GivenCard) -> JSONObject:
    """Add the members for clients of 0.2 and 0.3 to a card of 1.0. Returns a new card, without signatures.

    Clients of 0.2 and 0.3 get the interfaces of 0.3 if the card has any, else all interfaces. MalformedError: not a
    card of 1.0, or it has members of 0.3 that contradict it. Source: A2A 0.3.0 5.5, A2A 1.0.1 4.4.1.
    """
    given = read_given(card)
    original = strict_json.parse(given, what="card") if isinstance(given, bytes) else given
    view = read_card(original)
    shown = _interfaces_for_0_3(view)
    legacy: JSONObject = {
        "protocolVersion": DEFAULTS_0_3["protocolVersion"],
        "url": shown[0].url,
        "preferredTransport": shown[0].binding,
        "additionalInterfaces": [{"url": item.url, "transport": item.binding} for item in shown],
    }
    if view.has_extended_card:
        legacy["supportsAuthenticatedExtendedCard"] = True
    if view.requirements is not None:
        legacy["security"] = legacy_requirements(view.requirements)
    merged = {**legacy, **{name: value for name, value in original.items() if name != "signatures"}}
    for member in SCHEME_MEMBERS:
        if merged.get(member):
            merged[member] = {name: scheme_in_both_shapes(scheme) for name, scheme in merged[member].items()}
    if view.skills:
        merged["skills"] = [
            skill if each.requirements is None else {"security": legacy_requirements(each.requirements), **skill}
            for skill, each in zip(merged["skills"], view.skills, strict=True)
        ]
    read_card(merged)  # members of 0.3 that were there already and say something else
    return merged


def _interfaces_for_0_3(view: CardView) -> list[Interface]:
    interfaces = [item for item in view.interfaces if item.pointer.startswith("/supportedInterfaces/") and item.binding]
    if not interfaces:
        raise MalformedError("card: /supportedInterfaces: missing or empty; only a card of 1.0 can be merged")
    return [item for item in interfaces if item.version.startswith("0.3")] or interfaces


def legacy_requirements(requirements: tuple[Alternative, ...]) -> list[JSONObject]:
    return [{name: sorted(scopes) for name, scopes in alternative.schemes} for alternative in requirements]


def scheme_in_both_shapes(scheme: JSONObject) -> JSONObject:
    """A scheme of 1.0 in both shapes: the flat one of 0.3 beside the wrapper of 1.0."""
    for wrapper, kind in SCHEME_TYPES.items():
        inner = scheme.get(wrapper)
        if inner is not None:
            flat = {"in" if name == "location" else name: value for name, value in inner.items()}
            return {"type": kind, **flat, **scheme}
    return scheme
