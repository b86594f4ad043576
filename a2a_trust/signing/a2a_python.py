"""The cards that a2a-python reads in another way than ``project``, so that it rejects their signatures.

- a2a-python 0.3 signs a card without members that its models do not have (``MESSAGES_0_3``), and without members at the
  default of their model: ``protocolVersion`` and ``preferredTransport`` (``DEFAULTS_0_3``), and the ``type`` of every
  security scheme.
- Before a2a-python 1.3 verifies a card, its resolver turns members of 0.3 into 1.0. A rewritten member is in no
  signature, so the SDK rejects every signature of such a card. It does not rewrite members of 0.3 that have a
  counterpart of 1.0, and a scheme that is equal in both generations stays unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from a2a_trust.base.strict_json import JSON, JSONObject
from a2a_trust.base.strict_json.pointer import escape_step, pointer_of
from a2a_trust.card.schema import KEY_LOCATIONS, MESSAGES_0_3, SCHEME_TYPES, SCHEMES_0_3, Generation, Kind, Presence
from a2a_trust.card.view import generation_of
from a2a_trust.signing.forms import Form, project

_WRAPPERS: Final = {type_: wrapper for wrapper, type_ in SCHEME_TYPES.items()}


def members_unread_in_0_3(members: JSONObject, message: str = "AgentCard", path: str = "") -> Iterator[str]:
    """JSON pointers of the members for which the models of a2a-python 0.3 reject the card (missing, null, or an unknown
    value), or which they drop (they belong to another type of scheme). The card must be unambiguous."""
    if message == "SecurityScheme":
        yield from _unread_in_scheme(members, path)
    for name, field in MESSAGES_0_3[message].items():
        spelling = name if name in members else field.proto_name
        value = members.get(spelling)
        here = f"{path}/{spelling if value is not None else name}"
        if value is None:
            if field.presence is Presence.REQUIRED:
                yield here
        elif field.kind is Kind.MESSAGE:
            yield from members_unread_in_0_3(value, field.message, here)
        elif field.kind in (Kind.MESSAGES, Kind.MESSAGE_MAP):
            for key, item in enumerate(value) if field.kind is Kind.MESSAGES else value.items():
                yield from members_unread_in_0_3(item, field.message, f"{here}/{escape_step(key)}")


def _unread_in_scheme(scheme: JSONObject, path: str) -> Iterator[str]:
    models = SCHEMES_0_3.get(scheme.get("type", ""))
    if models is None:
        yield f"{path}/type"  # without it, which model reads the scheme depends on the version of pydantic
        return
    needed, optional = models
    for name, field in MESSAGES_0_3["SecurityScheme"].items():
        is_there = scheme.get(name) is not None or scheme.get(field.proto_name) is not None
        if is_there != (name in needed) and name not in optional:
            yield f"{path}/{name}"
    if "in" in needed and scheme.get("in") not in KEY_LOCATIONS:
        yield f"{path}/in"


def rewritten_members(card: JSONObject) -> tuple[str, ...]:
    """JSON pointers of the members that make a2a-python 1.3 reject every signature of a card of 1.0.

    Empty for a card that the SDK can verify, and for cards of 0.3 only, which no SDK of 1.0 reads. The card must be
    unambiguous.
    """
    if generation_of(card).is_legacy:
        return ()
    return tuple(pointer for pointer, before, after in _rewrites(card) if _prune(before) != _prune(after))


def _prune(part: JSONObject) -> bytes:
    return project(part, Form.PRUNED, generation=Generation.V1_0).payload


def _rewrites(card: JSONObject) -> Iterator[tuple[str, JSONObject, JSONObject]]:
    """Every member that the resolver rewrites: its pointer, and the part of a card of 1.0 before and after."""
    capabilities = card.get("capabilities") or {}
    if card.get("supportsAuthenticatedExtendedCard") and "extendedAgentCard" not in capabilities:
        after = {**capabilities, "extendedAgentCard": True}
        yield "/supportsAuthenticatedExtendedCard", {"capabilities": capabilities}, {"capabilities": after}
    yield from _requirement_rewrites(card, "")
    for index, skill in enumerate(card.get("skills") or ()):
        yield from _requirement_rewrites(skill, f"/skills/{index}")
    for name, scheme in (card.get("securitySchemes") or {}).items():
        wrapper = _WRAPPERS.get(scheme.get("type", ""))
        if wrapper is not None:
            flat = {("location" if key == "in" else key): value for key, value in scheme.items() if key != "type"}
            pointer = pointer_of(("securitySchemes", name))
            yield pointer, {"securitySchemes": {"": scheme}}, {"securitySchemes": {"": {wrapper: flat}}}


def _requirement_rewrites(members: JSONObject, path: str) -> Iterator[tuple[str, JSONObject, JSONObject]]:
    security: JSON = members.get("security")
    if security is not None and "securityRequirements" not in members:
        after = [{"schemes": {name: {"list": scopes} for name, scopes in each.items()}} for each in security]
        before = members.get("security_requirements")
        yield f"{path}/security", {"securityRequirements": before}, {"securityRequirements": after}
