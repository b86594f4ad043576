"""The text of a card: its members signed or fixed so that a diff shows only these changes, and where members stand.

All texts have passed the strict reader, so each is one JSON document and needs no checks.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from a2a_trust.base.strict_json import JSON, JSONObject
from a2a_trust.base.strict_json.pointer import steps_of

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_BETWEEN: Final = re.compile(r"[ \t\r\n,:]*")
_DECODER: Final = json.JSONDecoder()


class _MemberText(NamedTuple):
    """The text of one member of the outermost object: blanks, name, colon with blanks, value, blanks."""

    lead: str
    name: str
    colon: str
    value: str
    tail: str


def rewrite(text: str, original: JSONObject, card: JSONObject) -> str:
    """``text``, the JSON of ``original``, with new text for the members that differ in ``card``.

    Equal members keep their characters. New text has the style of the document: indentation, line ends, blanks after
    colons and commas, and escapes for characters that are not ASCII.
    """
    before, members, after = _split(text)
    if not members:
        return f"{before}{json.dumps(card, ensure_ascii=text.isascii())[1:-1]}{after}"
    written = {json.loads(member.name): member for member in members}
    pieces: list[str] = []
    for name, value in card.items():
        old = written.get(name)
        style = old or members[-1]
        lead = style.lead if pieces else members[0].lead
        if old is not None and original[name] == value:
            pieces.append(f"{lead}{old.name}{old.colon}{old.value}{old.tail}")
        else:
            rendered = _render(value, style, spaced=members[-1].lead != "", ascii_only=text.isascii())
            pieces.append(f"{lead}{old.name if old else json.dumps(name)}{style.colon}{rendered}")
    return f"{before}{','.join(pieces)}{after}"


def _split(text: str) -> tuple[str, list[_MemberText], str]:
    """The text before the members of the outermost object, the members, and the text after them."""
    at = text.index("{") + 1
    before, members = text[:at], list[_MemberText]()
    while True:
        start = _after_blanks(text, at)
        if text[start] == "}":
            return before, members, text[at:]
        _, name_end = _DECODER.raw_decode(text, start)
        value_start = _after_blanks(text, _after_blanks(text, name_end) + 1)
        _, value_end = _DECODER.raw_decode(text, value_start)
        end = _after_blanks(text, value_end)
        last = text[end] == "}"
        members.append(
            _MemberText(
                lead=text[at:start],
                name=text[start:name_end],
                colon=text[name_end:value_start],
                value=text[value_start:value_end],
                tail="" if last else text[value_end:end],
            )
        )
        at = value_end if last else end + 1


def _after_blanks(text: str, at: int, blanks: re.Pattern[str] = _BLANK) -> int:
    match = blanks.match(text, at)
    return match.end() if match else at


def _render(value: JSON, style: _MemberText, *, spaced: bool, ascii_only: bool) -> str:
    colon = style.colon.lstrip()
    line, newline, indent = style.lead.rpartition("\n")
    if not newline:
        return json.dumps(value, separators=(", " if spaced else ",", colon), ensure_ascii=ascii_only)
    rendered = json.dumps(value, indent=indent, separators=(",", colon), ensure_ascii=ascii_only)
    return rendered.replace("\n", ("\r\n" if line.endswith("\r") else "\n") + indent)


class Position(NamedTuple):
    """Line and column, from 1; columns count code points."""

    line: int
    column: int


@dataclass(slots=True)
class _Wanted:
    """A step of some of the pointers: the wanted steps below it, and the offset at which it was found."""

    below: dict[str, _Wanted] = field(default_factory=dict)
    offset: int | None = None


def positions_of(text: str, pointers: Iterable[str]) -> dict[str, Position]:
    """The position of each pointer's member (its name); for a missing member, the innermost value around it.

    The text is read once for all pointers.
    """
    root = _Wanted()
    ways: dict[str, list[_Wanted]] = {}
    for pointer in pointers:
        way = [root]
        for step in steps_of(pointer):
            way.append(way[-1].below.setdefault(step, _Wanted()))
        ways[pointer] = way
    root.offset = _after_blanks(text, 0)
    _find(text, root.offset, root)
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    positions = {}
    for pointer, way in ways.items():
        offset = next((step.offset for step in reversed(way) if step.offset is not None), 0)
        line = bisect_right(lines, offset) - 1
        positions[pointer] = Position(line=line + 1, column=offset - lines[line] + 1)
    return positions


def _find(text: str, at: int, wanted: _Wanted) -> int:
    """Set the offsets of the wanted steps in the value at ``at``; returns the end of the value."""
    if not wanted.below or text[at] not in "{[":
        return _DECODER.raw_decode(text, at)[1]
    is_object, index = text[at] == "{", 0
    at = _after_blanks(text, at + 1)
    while text[at] not in "}]":
        name, end = _DECODER.raw_decode(text, at) if is_object else (str(index), at)
        step = wanted.below.get(name, _Wanted())
        step.offset = at
        at = _after_blanks(text, _find(text, _after_blanks(text, end, _BETWEEN), step), _BETWEEN)
        index += 1
    return at + 1
