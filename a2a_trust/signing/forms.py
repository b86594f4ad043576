"""The canonical forms of a card that tools sign: the members that each form drops, and how it is printed.

- ``served``: drops only ``signatures``.
- ``spec``: also drops members that are not present by ``card.schema`` (A2A 8.4.1 rule 1).
- ``pruned``: drops unknown members and, recursively, all empty values, REQUIRED or not.
- ``pruned-legacy``: as ``pruned``, but printed by Python's ``json.dumps`` instead of RFC 8785.
- ``v0.3-python``: as ``pruned-legacy``, but with the members of 0.3, and without members at the defaults of a2a-python
  0.3; only for cards of 0.1 to 0.3.

``served`` and ``spec`` drop no member that has a meaning. The pruned forms do: they drop a security requirement without
scopes, a mutual TLS scheme and an empty allow-list, so a signature in such a form does not protect these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final, TypeAlias

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import JSON, JSONObject, Plain
from a2a_trust.base.strict_json.jcs import canonicalize_parsed
from a2a_trust.base.strict_json.pointer import Path, pointer_of, steps_to
from a2a_trust.card.schema import (
    DEFAULTS_0_3,
    LEGACY_MEMBERS,
    MESSAGES,
    MESSAGES_0_3,
    Field,
    Generation,
    Kind,
    Presence,
    proto_name,
)
from a2a_trust.card.view import generation_of, without_signatures

MAX_POINTERS: Final = 100
MAX_POINTER: Final = 512
"""The limits for reported pointers, their number and their length: an unknown party's card must not fill the memory."""
UNVERIFIED_BY_PRUNING: Final = (
    "/securityRequirements",
    "/securitySchemes",
    "/supportedInterfaces",
    "/skills/*/securityRequirements",
    "/skills/*/security",
    "/capabilities/extensions/*/params",
    *(f"/{member}" for member in LEGACY_MEMBERS),
)
"""The members that a pruned form may hide: it verifies neither their presence nor their absence."""

_DEFAULT_OF: Final = {**DEFAULTS_0_3, **{proto_name(name): value for name, value in DEFAULTS_0_3.items()}}
_GONE: Final = object()

Messages: TypeAlias = Mapping[str, Mapping[str, Field]]


class Form(StrEnum):
    """The name of a canonical form of a card.

    ``SERVED`` and ``SPEC`` cover the whole card. SDKs sign the other forms, which drop members.
    """

    SERVED = "served"
    SPEC = "spec"
    PRUNED = "pruned"
    PRUNED_LEGACY = "pruned-legacy"
    V0_3_PYTHON = "v0.3-python"

    @property
    def is_lossy(self) -> bool:
        """Whether the form drops members that have a meaning; then the absence of a member proves nothing."""
        return self is not Form.SERVED and self is not Form.SPEC


@dataclass(slots=True, eq=False, repr=False)
class Projection:
    """One form of one card: the bytes that are signed, and the members of the card that are not in them.

    - ``generation``: the generation of the card.
    - ``dropped``: JSON pointers (RFC 6901) into the served card, ``signatures`` excepted.
    - ``uncovered``: the members of ``dropped`` that have a meaning, because the ``spec`` form keeps them.
    """

    form: Form
    generation: Generation
    payload: bytes
    dropped: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    _members: JSONObject | None = None
    """They may be left out: they are read from ``payload`` when they are needed, which is seldom."""

    @property
    def members(self) -> JSONObject:
        if self._members is None:
            self._members = strict_json.parse_printed(self.payload)
        return self._members

    def as_form(self, form: Form) -> Projection:
        """The same under the name of another form, which has the same bytes."""
        return Projection(form, self.generation, self.payload, self.dropped, self.uncovered, self._members)


def project(
    card: JSONObject, form: Form, *, generation: Generation | None = None, plain: Plain = Plain.NO, simple: bool = False
) -> Projection:
    """The card in one form. The card must be unambiguous; it is not changed.

    ``generation`` is the card's, if it is known already. ``plain`` is the result of ``strict_json.read`` for the
    card; without it all checks are made. ``simple``: ``card.simple`` accepts it.
    """
    generation = generation or generation_of(card)
    members = without_signatures(card)
    dropped: list[Path] = []
    meant: list[Path] = []
    if form is Form.SPEC and not generation.is_legacy:
        members = _drop_absent(members, "AgentCard", None, dropped)
    elif form.is_lossy:
        absent: set[Path] = set()
        if form is Form.V0_3_PYTHON:
            members = _prune(without_defaults(members, dropped), MESSAGES_0_3, "AgentCard", None, dropped, absent)
        else:
            kept: JSONObject = {}
            if simple:  # nothing else in it is empty: without a look at the rest, signing in two forms takes 8 % less
                kept = members
                may_be_empty = [name for name, value in kept.items() if not value or name == "securityRequirements"]
                members = {name: kept.pop(name) for name in may_be_empty}
            members = {**kept, **_prune(members, MESSAGES, "AgentCard", None, dropped, absent)}
        meant = dropped if generation.is_legacy else [path for path in dropped if path not in absent]
    if form is Form.PRUNED_LEGACY:
        payload = _dump(_with_floats(members))
    elif form is Form.V0_3_PYTHON:
        payload = _dump(members)
    else:
        payload = canonicalize_parsed(members, plain=plain)
    pointers = pointers_of(dropped)
    uncovered = pointers if meant == dropped else pointers_of(meant)
    return Projection(form, generation, payload, pointers, uncovered, members)


def is_within(part: JSON, whole: JSON) -> bool:
    """Whether ``whole`` has all of ``part``: members of objects, and elements of lists in their order."""
    if type(part) is dict and type(whole) is dict:
        return all(name in whole and is_within(value, whole[name]) for name, value in part.items())
    if type(part) is list and type(whole) is list:
        rest = iter(whole)
        return all(any(is_within(item, each) for each in rest) for item in part)
    return type(part) is type(whole) and part == whole


def present_members(card: JSONObject) -> tuple[JSONObject, tuple[str, ...]]:
    """The card without the members that A2A 8.4.1 rule 1 drops, in its own order, and the pointers of these members."""
    dropped: list[Path] = []
    return _drop_absent(card, "AgentCard", None, dropped), pointers_of(dropped)


def shorten(texts: Iterable[str], between: str = ", ") -> str:
    """The first 8 texts, cut short and escaped, for a text that people read. No more than 9 are taken."""
    first = [ascii(text[:128])[1:-1] for text in islice(texts, 9)]
    return f"{between.join(first[:8])}{' …' if len(first) > 8 else ''}"


def pointers_of(paths: list[Path]) -> tuple[str, ...]:
    first = paths[:MAX_POINTERS]
    return tuple([pointer_of(str(step)[:MAX_POINTER] for step in steps_to(path))[:MAX_POINTER] for path in first])


def _drop_absent(members: JSONObject, message: str, path: Path, dropped: list[Path]) -> JSONObject:
    fields = MESSAGES[message]
    kept: JSONObject = {}
    for name, value in members.items():
        field = fields.get(name)
        if field is None or (value and type(value) is str):
            kept[name] = value  # unknown members stay
            continue
        here = (path, name)
        if _is_absent(value, field):
            dropped.append(here)
        elif not field.message:
            kept[name] = value
        elif field.kind is Kind.MESSAGE:
            kept[name] = _drop_absent(value, field.message, here, dropped)
        elif field.kind is Kind.MESSAGES:
            kept[name] = [_drop_absent(item, field.message, (here, index), dropped) for index, item in enumerate(value)]
        else:
            kept[name] = {
                key: _drop_absent(item, field.message, (here, key), dropped) if type(item) is dict else item
                for key, item in value.items()
            }
    return kept


def _is_absent(value: JSON, field: Field) -> bool:
    """Whether A2A 8.4.1 rule 1 drops this value of a field: null, or the default of a field with implicit presence."""
    is_default = not value and (value is False or value in ("", [], {}))
    return value is None or (is_default and field.presence is Presence.IMPLICIT)


def _prune(
    members: JSONObject, messages: Messages, message: str, path: Path, dropped: list[Path], absent: set[Path]
) -> JSONObject:
    """The members that the SDKs of ``messages`` sign. Of ``dropped``, ``absent`` gets those without a meaning."""
    fields = messages[message]
    kept: JSONObject = {}
    for name, value in members.items():
        field = fields.get(name) or next((each for each in fields.values() if each.proto_name == name), None)
        if field is not None and value and (type(value) is str or (field.kind is Kind.STRINGS and "" not in value)):
            kept[field.name] = value  # as most members are
            continue
        here = (path, name)
        before = len(dropped)
        if field is None:
            dropped.append(here)
            continue
        known = absent if name == field.name else set[Path]()  # rule 1 knows no member by its name in a2a.proto
        pruned = _prune_field(value, messages, field, here, dropped, known)
        if pruned is _GONE:
            dropped[before:] = [here]
            if _is_absent(value, field):
                known.add(here)
        else:
            kept[field.name] = pruned
    return kept


def _prune_field(
    value: JSON, messages: Messages, field: Field, here: Path, dropped: list[Path], absent: set[Path]
) -> JSON:
    if field.kind is Kind.BOOL and value is False and field.presence is not Presence.EXPLICIT:
        return _GONE
    if field.kind is Kind.MESSAGE and type(value) is dict:
        return _prune(value, messages, field.message, here, dropped, absent) or _GONE
    if field.kind in (Kind.MESSAGES, Kind.MESSAGE_MAP) and type(value) in (list, dict):

        def prune_item(item: JSON, path: Path) -> JSON:
            return (type(item) is dict and _prune(item, messages, field.message, path, dropped, absent)) or _GONE

        return _prune_items(value, prune_item, here, dropped)
    return _without_empty(value, here, dropped)


def _without_empty(value: JSON, here: Path, dropped: list[Path]) -> JSON:
    """The value without null and empty strings, lists and objects at any depth; _GONE if nothing is left."""
    if value is None or value == "":
        return _GONE
    if type(value) not in (dict, list):
        return value
    return _prune_items(value, lambda item, path: _without_empty(item, path, dropped), here, dropped)


def _prune_items(value: JSON, pruned: Callable[[JSON, Path], JSON], here: Path, dropped: list[Path]) -> JSON:
    """The list or object of pruned items, without those that are _GONE; _GONE if nothing is left."""
    kept = {}
    for key, item in enumerate(value) if type(value) is list else value.items():
        path = (here, key)
        before = len(dropped)
        cleaned = pruned(item, path)
        if cleaned is _GONE:
            dropped[before:] = [path]
        else:
            kept[key] = cleaned
    return (list(kept.values()) if type(value) is list else kept) or _GONE


def without_defaults(members: JSONObject, dropped: list[Path]) -> JSONObject:
    """The card without members at the defaults of a2a-python 0.3, which it does not sign."""
    kept: JSONObject = {}
    for name, value in members.items():
        if value == _DEFAULT_OF.get(name, _GONE):
            dropped.append((None, name))
        else:
            kept[name] = value
    return kept


def unprotected_members(card: JSONObject, companion: Projection) -> tuple[str, ...]:
    """The entries of ``UNVERIFIED_BY_PRUNING`` at which the companion drops or changes a value of the card.

    A member that a2a-python 0.3 reads alike without it does not count: one at a default of its models, or the ``type``
    of a scheme.
    """
    if companion.form is Form.V0_3_PYTHON:
        card = without_defaults(card, [])
        schemes: JSONObject = card.get("securitySchemes") or {}
        typeless = {name: {key: scheme[key] for key in scheme if key != "type"} for name, scheme in schemes.items()}
        card = {**card, "securitySchemes": typeless or None}
    return tuple(
        pointer
        for pointer in UNVERIFIED_BY_PRUNING
        if list(_values(card, pointer.split("/")[1:])) != list(_values(companion.members, pointer.split("/")[1:]))
    )


def _values(holder: JSON, steps: list[str]) -> Iterator[JSON]:
    """The values at a pointer, whose ``*`` is every element of a list. A member may have its name in ``a2a.proto``."""
    if not steps:
        yield holder
    elif type(holder) is list:
        for item in holder:
            yield from _values(item, steps[1:])
    elif type(holder) is dict:
        for name in {steps[0], proto_name(steps[0])}:
            if holder.get(name) is not None:
                yield from _values(holder[name], steps[1:])


def _dump(members: JSONObject) -> bytes:
    return json.dumps(members, sort_keys=True, separators=(",", ":")).encode("ascii")


def _with_floats(value: JSON) -> JSON:
    """The value with floats, as in those SDKs: every number of a card is in a Struct, whose numbers are doubles."""
    if type(value) is dict:
        return {name: _with_floats(item) for name, item in value.items()}
    if type(value) is list:
        return [_with_floats(item) for item in value]
    return float(value) if type(value) is int else value
