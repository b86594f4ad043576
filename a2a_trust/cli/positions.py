"""The positions, in a JSON text, of the members that JSON pointers name."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from a2a_trust.strict_json.pointer import steps_of

_BETWEEN: Final = re.compile(r"[ \t\r\n,:]*")
_DECODER: Final = json.JSONDecoder()


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

    The text has passed the strict reader. It is read once for all pointers.
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
        at = _after_blanks(text, _find(text, _after_blanks(text, end), step))
        index += 1
    return at + 1


def _after_blanks(text: str, at: int) -> int:
    match = _BETWEEN.match(text, at)
    return match.end() if match else at
