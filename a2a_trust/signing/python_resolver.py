"""The rewriting of cards by a2a-python 1.3: before it verifies a card, its resolver turns members of 0.3 into 1.0.

A rewritten member is in no signature, so the SDK rejects every signature of such a card. It does not rewrite members of
0.3 that have a counterpart of 1.0, and a scheme that is equal in both generations stays unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from a2a_trust.card.schema import SCHEME_TYPES, Generation
from a2a_trust.card.view import generation_of
from a2a_trust.signing.forms import Form, project
from a2a_trust.strict_json import JSON, JSONObject
from a2a_trust.strict_json.pointer import pointer_of

_WRAPPERS: Final = {type_: wrapper for wrapper, type_ in SCHEME_TYPES.items()}


def rewritten_members(card: JSONObject) -> tuple[str, ...]:
    """JSON pointers of the members that make a2a-python 1.3 reject every signature of a card of 1.0.

    Empty for a card that the SDK can verify, and for cards of 0.3 only, which no SDK of 1.0 reads. The card must be
    unambiguous.
    """
    if generation_of(card).is_legacy:
        return ()
    return tuple(pointer for pointer, before, after in _rewrites(card) if _pruned(before) != _pruned(after))


def _pruned(part: JSONObject) -> bytes:
    return project(part, Form.PRUNED, generation=Generation.V1_0).payload


def _rewrites(card: JSONObject) -> Iterator[tuple[str, JSONObject, JSONObject]]:
    """Every member that the resolver rewrites: its pointer, and the part of a card of 1.0 before and after."""
    capabilities = card.get("capabilities") or {}
    if card.get("supportsAuthenticatedExtendedCard") and "extendedAgentCard" not in capabilities:
        after = {**capabilities, "extendedAgentCard": True}
        yield "/supportsAuthenticatedExtendedCard", {"capabilities": capabilities}, {"capabilities": after}
    yield from _rewritten_requirements(card, "")
    for index, skill in enumerate(card.get("skills") or ()):
        yield from _rewritten_requirements(skill, f"/skills/{index}")
    for name, scheme in (card.get("securitySchemes") or {}).items():
        wrapper = _WRAPPERS.get(scheme.get("type", ""))
        if wrapper is not None:
            flat = {("location" if key == "in" else key): value for key, value in scheme.items() if key != "type"}
            pointer = pointer_of(("securitySchemes", name))
            yield pointer, {"securitySchemes": {"": scheme}}, {"securitySchemes": {"": {wrapper: flat}}}


def _rewritten_requirements(members: JSONObject, path: str) -> Iterator[tuple[str, JSONObject, JSONObject]]:
    security: JSON = members.get("security")
    if security is not None and "securityRequirements" not in members:
        after = [{"schemes": {name: {"list": scopes} for name, scopes in each.items()}} for each in security]
        before = members.get("security_requirements")
        yield f"{path}/security", {"securityRequirements": before}, {"securityRequirements": after}
