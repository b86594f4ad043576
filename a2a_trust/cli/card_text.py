"""Write a signed card into the text of the unsigned one, so that a diff shows only the changes of signing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from a2a_trust.strict_json import JSON, JSONObject

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class _MemberText:
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
    """The text before the members of the outermost object, the members, and the text after them.

    The text has passed the strict reader, so it is one JSON object and needs no checks.
    """
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


def _after_blanks(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _render(value: JSON, style: _MemberText, *, spaced: bool, ascii_only: bool) -> str:
    colon = style.colon.lstrip()
    line, newline, indent = style.lead.rpartition("\n")
    if not newline:
        return json.dumps(value, separators=(", " if spaced else ",", colon), ensure_ascii=ascii_only)
    rendered = json.dumps(value, indent=indent, separators=(",", colon), ensure_ascii=ascii_only)
    return rendered.replace("\n", ("\r\n" if line.endswith("\r") else "\n") + indent)
