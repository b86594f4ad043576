"""The positions, in a JSON text, of the members that JSON pointers name."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from a2a_trust.strict_json.pointer import steps_of

_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]+')


class Position(NamedTuple):
    """Line and column, from 1; columns count code points."""

    line: int
    column: int


@dataclass(slots=True)
class _Wanted:
    """A step of some of the pointers: the wanted steps below it, and the offset at which it was found."""

    below: dict[str, _Wanted] = field(default_factory=dict)
    offset: int | None = None


@dataclass(slots=True)
class _Container:
    """An array or object that is being read; ``wanted`` is None if no pointer leads into it."""

    wanted: _Wanted | None
    index: int | None
    """The index of the next element of an array; None in an object."""
    name: _Wanted | None = None
    """In an object, the wanted step of the member whose name was read last."""
    expects_name: bool = True


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
    _find(text, root)
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    return {pointer: _position(way, lines) for pointer, way in ways.items()}


def _find(text: str, root: _Wanted) -> None:
    """Set the offset of every wanted step that the text has."""
    stack: list[_Container] = []
    for match in _PIECE.finditer(text):
        piece = match[0]
        around = stack[-1] if stack else None
        if piece in "}]":
            stack.pop()
        elif piece == ",":
            if around is not None:
                around.expects_name = True
                around.index = None if around.index is None else around.index + 1
        elif piece == ":":
            continue
        elif around is not None and around.index is None and around.expects_name:
            around.expects_name = False
            around.name = None if around.wanted is None else around.wanted.below.get(json.loads(piece))
            _set_offset(around.name, match.start())
        else:
            here = _here(around, root)
            _set_offset(here, match.start())
            if piece in "{[":
                stack.append(_Container(wanted=here, index=0 if piece == "[" else None))


def _here(around: _Container | None, root: _Wanted) -> _Wanted | None:
    """The wanted step at the value that begins now."""
    if around is None:
        return root
    if around.index is None or around.wanted is None:
        return around.name
    return around.wanted.below.get(str(around.index))


def _set_offset(wanted: _Wanted | None, offset: int) -> None:
    if wanted is not None and wanted.offset is None:
        wanted.offset = offset


def _position(way: list[_Wanted], lines: list[int]) -> Position:
    offset = next((step.offset for step in reversed(way) if step.offset is not None), 0)
    line = bisect_right(lines, offset) - 1
    return Position(line=line + 1, column=offset - lines[line] + 1)
