"""Checks that a card is unambiguous, before any form of it is signed or verified.

Readers of ProtoJSON accept a field under its JSON name and under its proto name, convert values of the wrong type, and
differ in which of two variants they keep. Such a card means different things to different readers under one signature,
so it is rejected here. Members that no generation of A2A knows are not checked, except that their names are printable.

One name is rejected wherever A2A reads names, and in ``params``: ``__proto__``. In JavaScript the assignment
``map["__proto__"] = value`` stores no member, so a2a-js 1.3.0 loses schemes, requirements, scopes and parameters of
that name when it reads or verifies a card. It keeps every other name, even ``constructor`` and ``toString``.

Source: A2A 5.5, 5.7 and 8.4.1; the members of 0.1 to 0.3 from those versions' JSON schemas.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import JSON, JSONObject, Plain
from a2a_trust.base.strict_json.pointer import Path, pointer_of, steps_to
from a2a_trust.card.schema import LEGACY, MESSAGES, Field, Generation, Kind, Presence
from a2a_trust.card.view import generation_of, interface_urls, without_signatures
from a2a_trust.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from a2a_trust.card.simple import SimpleCard

#: The name that a2a-js loses, and the reason for its rejection.
_LOST_NAME: Final = "__proto__"
_LOST: Final = "JavaScript clients lose a member of this name and do not verify it; rename or remove it"


class UnambiguousCard:
    """A card that all readers read in the same way.

    - ``has_one_form``: whether all its canonical forms are the same bytes, as ``check_card`` says.
    - ``is_plain``: whether its numbers and names are plain, as ``strict_json.read`` says.
    - ``payload``: its ``spec`` form, if that is known already; ``dropped``: the members that are not in ``payload``.
    - ``signatures``: the member of that name; None if it is absent.
    - ``interfaces``: as ``interface_urls``.
    """

    __slots__ = (
        "_card", "_document", "dropped", "generation", "has_one_form", "interfaces", "is_plain", "payload",
        "signatures",
    )  # fmt: skip

    def __init__(self, document: bytes, simple: SimpleCard | None = None) -> None:
        self._document = document
        self._card: JSONObject | None = None
        self.generation: Generation = Generation.V1_0
        self.payload: bytes | None = None
        self.dropped: list[Path] = []
        self.is_plain: Plain
        self.has_one_form: bool
        self.interfaces: list[tuple[str, str]]
        self.signatures: JSON
        if simple is not None:
            self.is_plain, self.has_one_form = Plain.YES if simple.is_plain else Plain.NO, simple.has_one_form
            self.payload, self.dropped = simple.payload, simple.dropped
            self.signatures, self.interfaces = simple.signatures, simple.interfaces
            return
        self._card, self.is_plain = strict_json.read(document, what="card")
        self.has_one_form = check_card(self._card)
        self.generation = generation_of(self._card)
        self.signatures, self.interfaces = self._card.get("signatures"), interface_urls(self._card)

    @property
    def card(self) -> JSONObject:
        """The card in the order of the document. A simple card is read again on first use, which few callers make."""
        if self._card is None:
            # Without numbers there is nothing to round, and read_simple_card has checked the rest.
            read = strict_json.parse_printed if self.is_plain else strict_json.parse
            self._card = read(self._document)
        return self._card

    @property
    def is_printed_alike(self) -> bool:
        """Whether Python's ``json.dumps`` is known to print its one form, too: ASCII only, and no numbers."""
        payload = self.payload
        return payload is not None and bool(self.is_plain) and payload.isascii() and b"\x7f" not in payload


Reader: TypeAlias = "Callable[[bytes], UnambiguousCard]"
"""How a caller reads cards: ``read_quickly``, or ``UnambiguousCard`` in a command for one card.

Both give the same. To import msgspec takes as long as to read a hundred cards without it.
"""


def read_quickly(document: bytes) -> UnambiguousCard:
    """The card in a document; MalformedError as from ``strict_json.read`` and ``check_card``."""
    return UnambiguousCard(document, _simple_reader()(document, _are_simple_params))


@cache
def _simple_reader() -> Callable[[bytes, Callable[[JSON], bool]], SimpleCard | None]:
    from a2a_trust.card.simple import read_simple_card

    return read_simple_card


def _are_simple_params(value: JSON) -> bool:
    try:
        return _check_struct(value, None)
    except MalformedError:
        return False


def check_card(card: JSON) -> bool:
    """Check that all readers read a card in the same way; returns whether it has a single canonical form.

    True: no member is empty, at its default, null, unknown, or under a proto name, so all forms are the same bytes.
    ``signatures`` is not checked. MalformedError names the member and the fix.
    """
    if type(card) is not dict:
        raise _rejection(None, f"a JSON object is needed, this is {_type_name(card)}")
    return _message("AgentCard").check_members(without_signatures(card), None)


def field_of(message: str, name: str) -> Field | None:
    """The field of a message with this JSON or proto name, in any generation of A2A; None if there is no such field."""
    known = _message(message)
    member = known.members.get(name) or known.others.get(name)
    return None if member is None else member.field


_Check: TypeAlias = "Callable[[JSON, Path], bool]"
"""Checks the type of a value (MalformedError), and returns whether nothing in it is empty or at a default."""


class _Member(NamedTuple):
    check: _Check
    field: Field


class _Message:
    """The members that a message of A2A, such as AgentCard, has in any generation.

    ``members`` has 1.0 by JSON name; ``others`` has 0.1 to 0.3, and every member by its proto name.
    """

    __slots__ = ("_spellings", "members", "others")

    def __init__(self, name: str) -> None:
        self.members = {field.name: _Member(_check_of(field), field) for field in MESSAGES.get(name, {}).values()}
        legacy = [_Member(_check_of(field), field) for field in LEGACY.get(name, {}).values()]
        self.others = {member.field.name: member for member in legacy}
        for member in (*legacy, *self.members.values()):
            if member.field.proto_name not in self.members:
                self.others[member.field.proto_name] = member
        self._spellings = {spelling.casefold() for spelling in (*self.members, *self.others)}
        if name == "AgentCard":
            self._spellings.add("signatures")

    def check(self, value: JSON, path: Path) -> bool:
        if type(value) is not dict:
            raise _wrong_type("an object", value, path)
        return bool(value) and self.check_members(value, path)

    def check_members(self, members: JSONObject, path: Path) -> bool:
        """Reject members that readers read differently; whether all of them are written as every form has them."""
        known, variant = self.members, ""
        single = True
        for name, value in members.items():
            member = known.get(name)
            if member is None:
                single = False
                member = self._other(name, members, path)
                if member is None:
                    continue
            if value is None:
                single = False
                continue
            check, field = member
            if field.oneof:
                if variant:
                    raise _rejection((path, name), f"{variant} and {name} exclude each other; keep one")
                variant = name
            if not check(value, (path, name)):
                single = False
        return single

    def _other(self, name: str, members: JSONObject, path: Path) -> _Member | None:
        """The meaning of a member that is not a JSON name of 1.0; None when A2A knows no such member."""
        member = self.others.get(name)
        if member is not None:
            field = member.field
            if field.name != name and field.name in members:
                raise _rejection((path, name), f"{field.name} and {name} are one field; keep {field.name}")
            if name == "security" and members[name]:
                _check_no_empty_twin(members, path)
            if field.name == "supportsAuthenticatedExtendedCard":
                _check_no_null_twin(members)
        elif name.casefold() in self._spellings:
            raise _rejection((path, name), "this differs from a member of A2A only in case; readers disagree about it")
        elif name == _LOST_NAME:
            raise _rejection((path, name), _LOST)
        elif not name.isprintable():
            reason = "its name is not printable; protobuf's reader in Python ends a name at its first NUL"
            raise _rejection((path, name), reason)
        return member


class _Requirement03(_Message):
    """A security requirement of 0.2 and 0.3: scheme names, each with its list of scopes."""

    __slots__ = ()

    def check_members(self, members: JSONObject, path: Path) -> bool:
        for name, scopes in members.items():
            if name == _LOST_NAME:
                raise _rejection((path, name), _LOST)
            if type(scopes) is not list:
                raise _wrong_type("a list of scopes", scopes, (path, name))
            _check_strings(scopes, (path, name))
        return False


class _StringList(_Message):
    """Scopes: a2a-go writes {"scheme": ["scope"]} where the specification has {"scheme": {"list": ["scope"]}}."""

    __slots__ = ()

    def check(self, value: JSON, path: Path) -> bool:
        if type(value) is list:
            _check_strings(value, path)
            return False
        return super().check(value, path)


@cache
def _message(name: str) -> _Message:
    return {"SecurityRequirement03": _Requirement03, "StringList": _StringList}.get(name, _Message)(name)


def _check_of(field: Field) -> _Check:
    if field.kind is Kind.BOOL:
        return _check_optional_bool if field.presence is Presence.EXPLICIT else _check_bool
    if not field.message:
        return _CHECKS[field.kind]
    check = _message(field.message).check
    if field.kind is Kind.MESSAGE:
        return check
    return _list_of(check) if field.kind is Kind.MESSAGES else _map_of(check)


def _check_string(value: JSON, path: Path) -> bool:
    if type(value) is not str:
        raise _wrong_type("a string", value, path)
    return value != ""


def _check_strings(value: JSON, path: Path) -> bool:
    if type(value) is not list:
        raise _wrong_type("a list of strings", value, path)
    if set(map(type, value)) - {str}:
        index = next(index for index, item in enumerate(value) if type(item) is not str)
        raise _wrong_type("a string", value[index], (path, index))
    return bool(value) and "" not in value


def _check_bool(value: JSON, path: Path) -> bool:
    """The check of a field without ``optional``: false is in no form but ``served``."""
    return _check_optional_bool(value, path) and value is True


def _check_optional_bool(value: JSON, path: Path) -> bool:
    """The check of an ``optional`` field: false too is in every form."""
    if type(value) is not bool:
        raise _wrong_type("true or false", value, path)
    return True


def _check_struct(value: JSON, path: Path) -> bool:
    if type(value) is not dict:
        raise _wrong_type("an object", value, path)
    _check_params(value, path)
    return is_full(value)


def _check_each(check: _Check, items: Iterable[tuple[str | int, JSON]], path: Path) -> bool:
    single = True
    for key, item in items:
        if not check(item, (path, key)):
            single = False  # and yet the others are checked
    return single


def _list_of(check: _Check) -> _Check:
    def check_list(value: JSON, path: Path) -> bool:
        if type(value) is not list:
            raise _wrong_type("a list of objects", value, path)
        return bool(value) and _check_each(check, enumerate(value), path)

    return check_list


def _map_of(check: _Check) -> _Check:
    def check_map(value: JSON, path: Path) -> bool:
        if type(value) is not dict:
            raise _wrong_type("an object", value, path)
        if _LOST_NAME in value:
            raise _rejection((path, _LOST_NAME), _LOST)
        return bool(value) and _check_each(check, value.items(), path)

    return check_map


_CHECKS: Final[Mapping[Kind, _Check]] = {
    Kind.STRING: _check_string,
    Kind.STRINGS: _check_strings,
    Kind.STRING_MAP: _map_of(_check_string),
    Kind.STRUCT: _check_struct,
}


def _check_no_empty_twin(members: JSONObject, path: Path) -> None:
    """Reject empty requirements of 1.0 beside requirements of 0.3.

    The form of the specification drops them, so the server of a signed card may add them; and a2a-python reads
    ``security`` only where they are absent.
    """
    for twin in ("securityRequirements", "security_requirements"):
        if twin in members and not members[twin]:
            reason = f"{twin} has nothing in it, and security beside it has; leave {twin} out"
            raise _rejection((path, twin), reason)


def _check_no_null_twin(card: JSONObject) -> None:
    """Reject ``extendedAgentCard: null`` beside ``supportsAuthenticatedExtendedCard``.

    The form of the specification drops null, so the server of a signed card may add it; a2a-python then reads that
    there is no extended card.
    """
    found = card.get("capabilities")
    capabilities = found if type(found) is dict else {}
    for twin in ("extendedAgentCard", "extended_agent_card"):
        if twin in capabilities and capabilities[twin] is None:
            reason = f"{twin} is null, and supportsAuthenticatedExtendedCard is there; leave {twin} out"
            raise _rejection(((None, "capabilities"), twin), reason)


def _check_params(value: JSON, path: Path) -> None:
    """Reject the name that a2a-js loses, at any depth."""
    items = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for key, item in items:
        if key == _LOST_NAME:
            raise _rejection((path, key), _LOST)
        _check_params(item, (path, key))


def is_full(value: JSON) -> bool:
    """Whether nothing within is null or an empty string, list or object: then pruning leaves it as it is."""
    if type(value) in (dict, list):
        return bool(value) and all(map(is_full, value.values() if type(value) is dict else value))
    return value is not None and value != ""


def _rejection(path: Path, reason: str) -> MalformedError:
    pointer = pointer_of(steps_to(path))
    where = f"{ascii(pointer[:256])[1:-1]}: " if path else ""
    return MalformedError(f"card: {where}{reason}", pointer, reason)


def _wrong_type(wanted: str, value: JSON, path: Path) -> MalformedError:
    return _rejection(path, f"{wanted} is needed, this is {_type_name(value)}")


def _type_name(value: JSON) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
