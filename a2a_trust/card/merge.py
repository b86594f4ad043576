"""One card for clients of two generations: it has the members of 1.0, and those that clients of 0.2 and 0.3 read. And
schemes and requirements for a card without them, such as a card that a framework generates.

A card whose generations contradict each other is rejected. Sign the merged card, so that both are signed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import JSON, JSONObject
from a2a_trust.card.given import GivenCard, read_given
from a2a_trust.card.schema import DEFAULTS_0_3, SCHEME_MEMBERS, SCHEME_TYPES, Generation, proto_name
from a2a_trust.card.view import Alternative, CardView, Interface, generation_of, read_card, without_signatures
from a2a_trust.errors import ConfigurationError, MalformedError


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
    merged = {**legacy, **without_signatures(original)}
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


_LEGACY, _CURRENT = "security", "securityRequirements"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSecurity:
    """The schemes and requirements of an agent, for a card that does not declare them itself.

    ``schemes`` and ``requirements`` are ``securitySchemes`` and ``securityRequirements`` in the form of A2A 1.0; a card
    of 0.2 or 0.3 gets them in its own form. ConfigurationError: they cannot be read, or the card declares other ones.
    Source: A2A 1.0.1 4.5.
    """

    schemes: Mapping[str, Any]
    requirements: Sequence[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.schemes, Mapping):
            raise ConfigurationError("security: schemes: write a dict of schemes by their names")
        for name, scheme in self.schemes.items():
            if not isinstance(scheme, Mapping) or len(scheme) != 1 or not set(scheme) <= set(SCHEME_TYPES):
                raise ConfigurationError(
                    f"security: the scheme {name!a:.64} is not one of A2A 1.0; write "
                    '{"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}, or another of '
                    + ", ".join(SCHEME_TYPES)
                )
        requirements: object = self.requirements
        if not isinstance(requirements, Sequence) or isinstance(requirements, str | bytes) or not requirements:
            raise ConfigurationError(
                'security: requirements: write a list, as in [{"schemes": {"key": {"list": []}}}]; '
                "CardSecurity without requirements would protect nothing"
            )
        self._alternatives()

    def added_to(self, card: GivenCard) -> JSONObject:
        """The card with these schemes and requirements. If it declares its own, they must be equal. Signatures are
        removed, because they do not cover the additions."""
        given = read_given(card)
        original = strict_json.parse(given, what="card") if isinstance(given, bytes) else given
        if not isinstance(original, Mapping):
            raise ConfigurationError("card: a JSON object is needed")
        generation = generation_of(original)
        if generation is Generation.V0_1:
            raise ConfigurationError("security: a card of A2A 0.1 has no place for it; write the whole card yourself")
        is_current = not generation.is_legacy
        is_legacy = generation.is_legacy or "url" in original
        added = without_signatures(original)
        schemes = _take(added, "securitySchemes") or {}
        if not isinstance(schemes, Mapping):
            raise ConfigurationError("security: /securitySchemes of the card must be an object")
        added["securitySchemes"] = {
            **schemes,
            **{name: _shape(name, schemes.get(name), of, is_current, is_legacy) for name, of in self.schemes.items()},
        }
        alternatives = self._alternatives()
        names = (_LEGACY, _CURRENT, proto_name(_CURRENT))
        declared = read_card({name: original[name] for name in names if name in original}).requirements
        if declared and set(declared) != set(alternatives):
            raise ConfigurationError(
                "security: the card declares requirements that differ from these; remove them from one of both, or "
                "make them equal"
            )
        _take(added, _LEGACY)
        _take(added, _CURRENT)
        if is_current:
            # A list that is empty is left out, as A2A 8.4.1 has it in signed cards.
            added[_CURRENT] = [
                {"schemes": {name: {"list": sorted(scopes)} if scopes else {} for name, scopes in each.schemes}}
                for each in alternatives
            ]
        if is_legacy:
            added[_LEGACY] = legacy_requirements(alternatives)
        return added

    def _alternatives(self) -> tuple[Alternative, ...]:
        try:
            view = read_card({"securitySchemes": dict(self.schemes), _CURRENT: [*self.requirements]})
        except MalformedError as error:
            raise ConfigurationError(f"security: {error.pointer}: {error.reason}") from None
        return view.requirements or ()


def _take(members: JSONObject, name: str) -> JSON:
    """Remove the member under its JSON name and its proto name, and return it."""
    proto = proto_name(name)
    if proto != name and members.get(name) is not None and members.get(proto) is not None:
        raise ConfigurationError(f"security: the card has both {name} and {proto}; keep {name}")
    value, twin = members.pop(name, None), members.pop(proto, None)
    return twin if value is None else value


def _shape(name: str, declared: JSON, given: Mapping[str, Any], is_current: bool, is_legacy: bool) -> JSONObject:
    both = scheme_in_both_shapes(dict(given))
    if is_current:
        shaped = both if is_legacy else dict(given)
    else:
        shaped = {member: value for member, value in both.items() if member not in SCHEME_TYPES}
    if declared and _read(name, declared) != _read(name, shaped):
        raise ConfigurationError(
            f"security: the card declares the scheme {name!a:.64} itself, and differently; remove it from security=, "
            "or make both equal"
        )
    return shaped


def _read(name: str, scheme: JSON) -> Any:
    return read_card({"securitySchemes": {name: scheme}}).schemes[name]
