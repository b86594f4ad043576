"""A card for the rules of lint: the card itself, its unreadable parts, and its readable rest as a view.

An ambiguous card is checked, too: its ambiguous members are removed one by one until the rest is readable. A list is
removed as a whole, so all pointers stay valid in the card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import JSON, JSONObject
from a2a_trust.base.strict_json import pointer as json_pointer
from a2a_trust.base.strict_json.jcs import canonicalize_received
from a2a_trust.base.strict_json.pointer import Path
from a2a_trust.card.ambiguity import check_card, field_of
from a2a_trust.card.schema import Kind, proto_name
from a2a_trust.card.view import CardView, generation_of, read_card
from a2a_trust.errors import MalformedError
from a2a_trust.lint.secret_shapes import secret_kind
from a2a_trust.signing.forms import MAX_POINTER

_MAX_ERRORS: Final = 50
"""The largest number of errors: a document with more is not a card."""


class Subject(NamedTuple):
    """A card for lint.

    - ``card``: the whole card, unchecked; {} if ``unreadable`` says why there is no card.
    - ``values``: every value in it, with its place, in order.
    - ``objects``: every object in it that A2A describes, in any generation: its place, its message, its members.
    - ``ambiguous``: the errors for its ambiguous members. ``rest``: the card without them; None if there are too many.
    - ``unread``: the errors of ``read_card`` for ``rest``. ``readable``: ``rest`` without these members; ``view``: its
      view.
    """

    card: JSONObject
    values: tuple[tuple[Path, JSON], ...]
    objects: tuple[tuple[Path, str, JSONObject], ...]
    unreadable: MalformedError | None
    ambiguous: tuple[MalformedError, ...]
    rest: JSONObject | None
    unread: tuple[MalformedError, ...]
    readable: JSONObject | None
    view: CardView | None

    @property
    def is_whole(self) -> bool:
        """Whether the whole card could be read, so that an absent member is really absent."""
        return self.view is not None and not (self.ambiguous or self.unread)

    @property
    def is_legacy(self) -> bool:
        """Whether it has only the shape of 0.1 to 0.3."""
        return generation_of(self.card).is_legacy

    def texts(self) -> Iterator[tuple[Path, str, bool]]:
        """Every string of the card and every name of a member, with its place; True for names."""
        for path, value in self.values:
            if path is not None and type(path[1]) is str:
                yield path, path[1], True
            if type(value) is str:
                yield path, value, False


def subject_of(card: bytes | Mapping[str, Any]) -> Subject:
    """The card for lint, whatever its content. MalformedError: an object with values that are not JSON."""
    unreadable = None
    document: JSONObject = {}
    if isinstance(card, bytes):
        try:
            parsed = strict_json.parse(card, what="card")
            if type(parsed) is not dict:
                check_card(parsed)  # says what it is
            document = parsed
        except MalformedError as error:
            unreadable = error
    else:
        document = dict(card)
        canonicalize_received(document)
    rest, ambiguous = _what_passes(document, check_card, lambda steps: steps)
    views: list[CardView] = []
    readable, unread = (
        (None, ()) if rest is None else _what_passes(rest, lambda card: views.append(read_card(card)), _whole_rule)
    )
    return Subject(
        card=document,
        values=tuple(_values(document)),
        objects=tuple(_objects(document)),
        unreadable=unreadable,
        ambiguous=ambiguous,
        rest=rest,
        unread=unread,
        readable=readable,
        view=None if readable is None else views[0],
    )


def _values(card: JSONObject) -> Iterator[tuple[Path, JSON]]:
    stack: list[tuple[Path, JSON]] = [(None, card)]
    while stack:
        path, value = stack.pop()
        yield path, value
        if type(value) is dict:
            stack.extend([((path, name), item) for name, item in reversed(value.items())])
        elif type(value) is list:
            stack.extend([((path, index), value[index]) for index in reversed(range(len(value)))])


def _objects(card: JSONObject) -> Iterator[tuple[Path, str, JSONObject]]:
    stack: list[tuple[Path, str, JSONObject]] = [(None, "AgentCard", card)]
    while stack:
        path, message, members = stack.pop()
        yield path, message, members
        below: list[tuple[Path, str, JSONObject]] = []
        for name, value in members.items():
            field = field_of(message, name) if type(value) in (dict, list) else None
            if field is None:
                continue
            here = (path, name)
            if field.kind is Kind.MESSAGE:
                items: Iterator[tuple[Path, JSON]] = iter([(here, value)])
            elif field.kind is Kind.MESSAGES and type(value) is list:
                items = (((here, index), item) for index, item in enumerate(value))
            elif field.kind is Kind.MESSAGE_MAP and type(value) is dict:
                items = (((here, key), item) for key, item in value.items())
            else:
                continue
            below.extend((place, field.message, item) for place, item in items if type(item) is dict)
        stack.extend(reversed(below))


def _what_passes(
    card: JSONObject, check: Callable[[JSONObject], object], taken_out: Callable[[list[str]], list[str]]
) -> tuple[JSONObject | None, tuple[MalformedError, ...]]:
    """The card without the members that the check rejects, and the errors."""
    rest: JSONObject | None = card
    errors: list[MalformedError] = []
    while rest is not None and len(errors) < _MAX_ERRORS:
        try:
            check(rest)
        except MalformedError as error:
            errors.append(error)
            rest = _without(rest, taken_out(json_pointer.steps_of(error.pointer or "")))
        else:
            return rest, tuple(errors)
    return None, tuple(errors)


def _whole_rule(steps: list[str]) -> list[str]:
    """The steps to the whole scheme, requirements or interfaces that cannot be read: half of it has another meaning."""
    if steps[:1] == ["skills"]:
        return steps[:3]
    return steps[: 2 if steps[:1] in (["securitySchemes"], ["security_schemes"], ["capabilities"]) else 1]


def _without(card: JSONObject, steps: list[str]) -> JSONObject | None:
    """The card without the innermost existing member on the way; None if there is no such member."""
    found = list(_along(card, steps))
    while found and type(found[-1][0]) is list:
        found.pop()
    if not found:
        return None
    container, name = found.pop()
    changed: JSON = {key: value for key, value in container.items() if key != name}
    for container, key in reversed(found):
        copy = container.copy()
        copy[key] = changed
        changed = copy
    members: JSONObject = changed
    return members


def _along(value: JSON, steps: list[str]) -> Iterator[tuple[Any, Any]]:
    """The containers on a way, each with the name or index of the next step, as far as they exist.

    ``read_card`` names members by their JSON names; a member that is there under its proto name is found, too.
    """
    for step in steps:
        name: str | int
        if type(value) is dict and (step in value or proto_name(step) in value):
            name = step if step in value else proto_name(step)
        elif type(value) is list and step.isascii() and step.isdecimal() and int(step[:9]) < len(value):
            name = int(step[:9])
        else:
            return
        yield value, name
        value = value[name]


def path_to(card: JSONObject, pointer: str) -> Path:
    """The place that a pointer names, with the spelling of the names in the card."""
    steps = json_pointer.steps_of(pointer)
    names = [name for _, name in _along(card, steps)]
    return _path_along((*names, *steps[len(names) :]))


def _path_along(steps: Iterable[str | int]) -> Path:
    path: Path = None
    for step in steps:
        path = (path, step)
    return path


def member_of(members: JSONObject, name: str) -> JSON:
    """A member under its JSON or its proto name."""
    value = members.get(name)
    return members.get(proto_name(name)) if value is None else value


def spelling_of(members: JSONObject, name: str) -> str:
    """The name under which the object has the member; its JSON name if it has no such member."""
    return proto_name(name) if members.get(name) is None and proto_name(name) in members else name


def pointer_of(path: Path) -> str:
    """The JSON pointer (RFC 6901) of a place, cut, and without names that look like secrets."""
    shown = (
        "(hidden)" if type(step) is str and secret_kind(step[:MAX_POINTER]) else str(step)[:MAX_POINTER]
        for step in json_pointer.steps_to(path)
    )
    return json_pointer.pointer_of(shown)[:MAX_POINTER]


def safe_pointer(pointer: str) -> str:
    """A pointer as ``pointer_of`` writes it."""
    return pointer_of(_path_along(json_pointer.steps_of(pointer)))


def shown_name(name: str) -> str:
    """A name of a card for a text that people read: cut, escaped, and hidden where it looks like a secret."""
    return "(hidden)" if secret_kind(name[:MAX_POINTER]) else ascii(name[:64])
