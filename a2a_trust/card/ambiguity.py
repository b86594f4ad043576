"""The gate: what every card must be before any form of it is signed or verified.

Readers of ProtoJSON take a field under its JSON name and under its proto name, convert what has the wrong type, and
differ in which of two variants they keep. A card that uses any of this says different things to different readers
under one signature, so it is refused here. Members that no generation of A2A knows are left alone.

One name is refused wherever A2A reads names, and in ``params``: ``__proto__``. In JavaScript the assignment
``map["__proto__"] = value`` stores no member, so a2a-js 1.3.0 loses schemes, requirements, scopes and parameters of
that name when it reads or verifies a card. It keeps every other name, ``constructor`` and ``toString`` too.

Source: A2A 5.5, 5.7 and 8.4.1; the members of 0.1 to 0.3 from those versions' JSON schemas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from a2a_trust import strict_json
from a2a_trust.card.schema import MESSAGES, Field, Kind, Presence
from a2a_trust.errors import MalformedError
from a2a_trust.strict_json import JSON, JSONObject
from a2a_trust.strict_json.pointer import pointer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["UnambiguousCard", "check_card", "field_of", "is_full", "is_simple", "read_unambiguous"]


def _legacy(name: str, kind: Kind, message: str = "") -> Field:
    return Field(name, kind, Presence.EXPLICIT, message)


#: What 0.1, 0.2 and 0.3 have beside 1.0; messages that only they have end in "03".
_LEGACY: Final[dict[str, tuple[Field, ...]]] = {
    "AgentCard": (
        _legacy("url", Kind.STRING),
        _legacy("preferredTransport", Kind.STRING),
        _legacy("protocolVersion", Kind.STRING),
        _legacy("additionalInterfaces", Kind.MESSAGES, "AgentInterface03"),
        _legacy("security", Kind.MESSAGES, "SecurityRequirement03"),
        _legacy("supportsAuthenticatedExtendedCard", Kind.BOOL),
        _legacy("authentication", Kind.MESSAGE, "Authentication01"),
    ),
    "AgentCapabilities": (_legacy("stateTransitionHistory", Kind.BOOL),),
    "AgentSkill": (_legacy("security", Kind.MESSAGES, "SecurityRequirement03"),),
    "AgentInterface03": (_legacy("url", Kind.STRING), _legacy("transport", Kind.STRING)),
    "Authentication01": (_legacy("schemes", Kind.STRINGS), _legacy("credentials", Kind.STRING)),
    "SecurityScheme": (
        _legacy("type", Kind.STRING),
        _legacy("description", Kind.STRING),
        _legacy("in", Kind.STRING),
        _legacy("name", Kind.STRING),
        _legacy("scheme", Kind.STRING),
        _legacy("bearerFormat", Kind.STRING),
        _legacy("flows", Kind.MESSAGE, "OAuthFlows03"),
        _legacy("openIdConnectUrl", Kind.STRING),
        _legacy("oauth2MetadataUrl", Kind.STRING),
    ),
    # The same flows as in 1.0, but several may stand side by side.
    "OAuthFlows03": tuple(_legacy(flow.name, flow.kind, flow.message) for flow in MESSAGES["OAuthFlows"].values()),
    # Free member names with lists of scopes as values: checked by _check_requirement.
    "SecurityRequirement03": (),
}


# Members of an Enum are looked up slowly, and these for every member of every card.
_STRING, _STRINGS, _BOOL, _MESSAGE, _MESSAGES = Kind.STRING, Kind.STRINGS, Kind.BOOL, Kind.MESSAGE, Kind.MESSAGES


class _Message:
    """The fields of one message over all generations, ready for look-up.

    ``fields`` are those of 1.0 by JSON name; ``others`` those of 0.1 to 0.3, and every field by its proto name.
    """

    __slots__ = ("fields", "is_requirement", "others", "spellings")

    def __init__(self, name: str) -> None:
        self.fields: Mapping[str, Field] = MESSAGES.get(name, {})
        legacy = _LEGACY.get(name, ())
        self.others = {field.name: field for field in legacy}
        for field in (*legacy, *self.fields.values()):
            if field.proto_name not in self.fields:
                self.others[field.proto_name] = field
        self.spellings = {name.casefold() for name in (*self.fields, *self.others)}
        self.is_requirement = name == "SecurityRequirement03"


#: The name that a2a-js loses, and how a refusal says so.
_LOST_NAME: Final = "__proto__"
_LOST: Final = "JavaScript clients lose a member of this name and do not verify it; rename or remove it"

_ALL: Final = {name: _Message(name) for name in MESSAGES.keys() | _LEGACY.keys()}
_CARD: Final = _ALL["AgentCard"]
_CARD.spellings.add("signatures")


def is_simple(card: JSON) -> bool:
    """Whether a card is made as most are: then it needs no further look, while False says nothing at all.

    A simple card passes ``check_card`` with True. It holds members of 1.0 under their JSON names, texts and booleans,
    free names in ASCII, no ``params``, and signatures of two texts each: so no numbers either, and no more depth than
    A2A has.
    """
    try:
        return _is_simple_card(card)
    except (TypeError, ValueError):  # of what is not a text, by str.join; of two variants, by _one_variant
        return False


def _simple(name: str) -> Callable[[JSON], bool]:
    """The check of one message, made of the checks of its fields when this module is loaded."""
    fields = MESSAGES[name].values()
    texts = frozenset(field.name for field in fields if field.kind is Kind.STRING)
    others = {field.name: _simple_field(field) for field in fields if field.name not in texts}
    if any(field.oneof for field in fields):
        return _one_variant(others)
    if name == "AgentCard":
        others["signatures"] = _are_simple_signatures

    def check(members: JSON) -> bool:
        if type(members) is not dict or not members:
            return False
        for name, value in members.items():
            if name in texts:
                if type(value) is not str or not value:
                    return False
            else:
                is_right = others.get(name)
                if is_right is None or not is_right(value):
                    return False
        return True

    return check


def _one_variant(variants: Mapping[str, Callable[[JSON], bool]]) -> Callable[[JSON], bool]:
    """The check of a message whose fields exclude each other: ValueError unless exactly one member is there."""

    def check(members: JSON) -> bool:
        if type(members) is not dict:
            return False
        ((name, value),) = members.items()
        return name in variants and variants[name](value)

    return check


def _simple_field(field: Field) -> Callable[[JSON], bool]:
    if field.kind is Kind.STRINGS:
        return _are_full_strings
    if field.kind is Kind.BOOL:
        return _is_bool if field.presence is Presence.EXPLICIT else _is_true
    if field.kind is Kind.STRING_MAP:
        return _is_simple_string_map
    if field.kind is Kind.STRUCT:
        return _never
    is_right = _simple(field.message)
    if field.kind is Kind.MESSAGES:
        return lambda value: type(value) is list and bool(value) and all(map(is_right, value))
    if field.kind is Kind.MESSAGE_MAP:
        return lambda value: _has_ascii_names(value) and all(map(is_right, value.values()))
    return is_right


def _are_full_strings(value: JSON) -> bool:
    return type(value) is list and "".join(value) != "" and all(value)


def _is_simple_string_map(value: JSON) -> bool:
    return _has_ascii_names(value) and "".join(value.values()) != "" and all(value.values())


def _has_ascii_names(value: JSON) -> bool:
    return type(value) is dict and bool(value) and _LOST_NAME not in value and "".join(value).isascii()


def _is_bool(value: JSON) -> bool:
    return type(value) is bool


def _is_true(value: JSON) -> bool:
    return value is True


def _never(value: JSON) -> bool:  # noqa: ARG001
    return False


def _are_simple_signatures(value: JSON) -> bool:
    return type(value) is list and all(
        type(entry) is dict
        and len(entry) == 2
        and type(entry.get("protected")) is str
        and type(entry.get("signature")) is str
        for entry in value
    )


_is_simple_card: Final = _simple("AgentCard")


class _RefusedError(Exception):
    """A refusal on its way up; every level adds its name to ``path`` (leaf first)."""

    def __init__(self, reason: str, *path: str | int) -> None:
        self.reason = reason
        self.path = list(path)


class UnambiguousCard(NamedTuple):
    """A card that every reader reads alike."""

    card: JSONObject
    has_one_form: bool
    """Whether all canonical forms of it are the same bytes, as ``check_card`` tells."""
    is_plain: bool
    """Whether its numbers and names are plain, as ``strict_json.read`` tells."""


def read_unambiguous(document: bytes) -> UnambiguousCard:
    """The card in a document, read strictly; MalformedError as from ``strict_json.read`` and ``check_card``."""
    card, text = strict_json.read_members(document, what="card")
    if is_simple(card):
        return UnambiguousCard(card, has_one_form=True, is_plain=True)
    card, is_plain = strict_json.read_numbers(document, card, text, what="card")
    return UnambiguousCard(card, has_one_form=check_card(card), is_plain=is_plain)


def check_card(card: JSON) -> bool:
    """Refuse a card that different readers read differently; tell whether it has a single canonical form.

    True when nothing in the card is empty, at its default, null, unknown, or written under a proto name: then all
    forms of it are the same bytes. ``signatures`` is not looked at. MalformedError names the member and the mend.
    """
    if type(card) is not dict:
        reason = f"a JSON object is needed, this is {_named(card)}"
        raise MalformedError(f"card: {reason}", "", reason)
    try:
        return _check_message(card, _CARD, ignore="signatures")
    except _RefusedError as refusal:
        pointer = pointer_of(reversed(refusal.path))
        text = f"card: {ascii(pointer[:256])[1:-1]}: {refusal.reason}"
        raise MalformedError(text, pointer, refusal.reason) from None


def field_of(message: str, name: str) -> Field | None:
    """The field of a message, in any generation of A2A, that has this JSON or proto name; None when there is none."""
    known = _ALL[message]
    return known.fields.get(name) or known.others.get(name)


def _check_message(members: JSONObject, message: _Message, ignore: str = "") -> bool:
    fields = message.fields
    single = True
    variant = ""
    for name, value in members.items():
        field = fields.get(name)
        if field is not None and type(value) is str and field.kind is _STRING:  # most members: nothing more to check
            if not value:
                single = False
            continue
        if field is None:
            if name == ignore:
                continue
            single = False
            field = _check_spelling(name, members, message)
            if field is None:
                continue
        if value is None:
            single = False
            continue
        if field.oneof:
            if variant:
                raise _RefusedError(f"{variant} and {name} exclude each other; keep one", name)
            variant = name
        try:
            single &= _check_value(value, field)
        except _RefusedError as refusal:
            refusal.path.append(name)
            raise
    return single


def _check_value(value: JSON, field: Field) -> bool:
    """Whether the value is of the field's type (else _RefusedError), and neither empty nor at a default within."""
    kind = field.kind
    if kind is _STRING:
        if type(value) is not str:
            _refuse_type("a string", value)
        return value != ""
    if kind is _STRINGS:
        if type(value) is not list:
            _refuse_type("a list of strings", value)
        if set(map(type, value)) - {str}:
            index = next(index for index, item in enumerate(value) if type(item) is not str)
            _refuse_type("a string", value[index], index)
        return bool(value) and "" not in value
    if kind is _BOOL:
        if type(value) is not bool:
            _refuse_type("true or false", value)
        # An explicit false of an `optional` field is in every form; a plain one is in none but `served`.
        return value or field.presence is Presence.EXPLICIT
    if kind is _MESSAGE:
        if type(value) is not dict:
            _refuse_type("an object", value)
        return bool(value) and _check_message(value, _ALL[field.message])
    if kind is _MESSAGES:
        if type(value) is not list:
            _refuse_type("a list of objects", value)
        return _check_messages(enumerate(value), field.message) and bool(value)
    if type(value) is not dict:
        _refuse_type("an object", value)
    if kind is Kind.STRUCT:
        _check_params(value)
        return is_full(value)
    if _LOST_NAME in value:
        raise _RefusedError(_LOST, _LOST_NAME)
    if kind is Kind.MESSAGE_MAP:
        return _check_messages(value.items(), field.message) and bool(value)
    for name, item in value.items():  # STRING_MAP
        if type(item) is not str:
            _refuse_type("a string", item, name)
    return bool(value) and "" not in value.values()


def _check_messages(items: object, name: str) -> bool:
    message = _ALL[name]
    single = True
    for key, item in items:  # type: ignore[attr-defined]
        if type(item) is dict:
            if message.is_requirement:
                single = False
                _check_requirement(item, key)
                continue
            try:
                single &= bool(item) and _check_message(item, message)
            except _RefusedError as refusal:
                refusal.path.append(key)
                raise
        elif name == "StringList" and type(item) is list:
            # a2a-go writes {"scheme": ["scope"]} where the specification has {"scheme": {"list": ["scope"]}}.
            single = False
            _check_scopes(item, key)
        else:
            _refuse_type("an object", item, key)
    return single


def _check_requirement(requirement: JSONObject, key: str | int) -> None:
    """A security requirement of 0.2 and 0.3: scheme names, each with its list of scopes."""
    for name, scopes in requirement.items():
        if name == _LOST_NAME:
            raise _RefusedError(_LOST, name, key)
        if type(scopes) is not list:
            _refuse_type("a list of scopes", scopes, name, key)
        _check_scopes(scopes, name, key)


def _check_scopes(scopes: list[JSON], *path: str | int) -> None:
    for index, scope in enumerate(scopes):
        if type(scope) is not str:
            _refuse_type("a string", scope, index, *path)


def _check_spelling(name: str, members: JSONObject, message: _Message) -> Field | None:
    """The field that a member means which is none of 1.0 by its JSON name; None when A2A knows no such member."""
    field = message.others.get(name)
    if field is not None:
        if field.name != name and field.name in members:
            raise _RefusedError(f"{field.name} and {name} are one field; keep {field.name}", name)
        if name == "security" and members[name]:
            _check_no_empty_twin(members)
        if field.name == "supportsAuthenticatedExtendedCard":
            _check_no_null_twin(members)
        return field
    if name.casefold() in message.spellings:
        raise _RefusedError("this differs from a member of A2A only in case; readers disagree about it", name)
    if name == _LOST_NAME:
        raise _RefusedError(_LOST, name)
    return None


def _check_no_empty_twin(members: JSONObject) -> None:
    """Refuse requirements of 1.0 that are there with nothing in them beside those of 0.3.

    The form of the specification drops them, so whoever serves a signed card may add them; and a2a-python reads
    ``security`` only where they are not there.
    """
    for twin in ("securityRequirements", "security_requirements"):
        if twin in members and not members[twin]:
            raise _RefusedError(f"{twin} has nothing in it, and security beside it has; leave {twin} out", twin)


def _check_no_null_twin(card: JSONObject) -> None:
    """Refuse an extended card of 1.0 that is null beside the one that 0.3 promises.

    The form of the specification drops null, so whoever serves a signed card may add it; and a2a-python then reads
    that there is none.
    """
    found = card.get("capabilities")
    capabilities = found if type(found) is dict else {}
    for twin in ("extendedAgentCard", "extended_agent_card"):
        if twin in capabilities and capabilities[twin] is None:
            raise _RefusedError(
                f"{twin} is null, and supportsAuthenticatedExtendedCard is there; leave {twin} out",
                twin,
                "capabilities",
            )


def _check_params(value: JSON) -> None:
    """Refuse the name that a2a-js loses, at any depth."""
    items = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for key, item in items:
        if key == _LOST_NAME:
            raise _RefusedError(_LOST, key)
        try:
            _check_params(item)
        except _RefusedError as refusal:
            refusal.path.append(key)
            raise


def is_full(value: JSON) -> bool:
    """Whether nothing within is null or an empty string, list or object: then pruning leaves it as it is."""
    if type(value) in (dict, list):
        return bool(value) and all(map(is_full, value.values() if type(value) is dict else value))
    return value is not None and value != ""


def _refuse_type(wanted: str, value: JSON, *path: str | int) -> NoReturn:
    raise _RefusedError(f"{wanted} is needed, this is {_named(value)}", *path)


def _named(value: JSON) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
