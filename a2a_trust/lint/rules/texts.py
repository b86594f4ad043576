"""Rules for texts: characters and names that people see differently than programs do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from a2a_trust.base.strict_json.pointer import Path
from a2a_trust.lint.document import Subject, member_of, pointer_of, spelling_of
from a2a_trust.lint.findings import Problem, Severity, rule
from a2a_trust.lint.rules.requirements import scope_lists

_BREAKS: Final = frozenset("\t\n\r\u2028\u2029")
_CONTROLS: Final = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0)))) - _BREAKS
_BIDIRECTIONAL: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
#: Without those that scripts and emoji are written with: the joiners U+200C and U+200D, the selector U+FE0F.
_INVISIBLE: Final = frozenset(
    map(
        chr,
        (
            *(0xAD, 0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x200B, 0x2800, 0x3164, 0xFEFF, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0x2060, 0x2066),
            *range(0x206A, 0x2070),
            *range(0xFE00, 0xFE0F),
            *range(0xFFF0, 0xFFFC),
            *range(0xE0000, 0xE1000),
        ),
    )
)


def _with_any(
    subject: Subject, characters: frozenset[str], message: str, fix: str, *, only_in_names: frozenset[str] = frozenset()
) -> Iterator[Problem]:
    for path, text, is_name in subject.texts():
        wanted = characters | only_in_names if is_name else characters
        if not (text.isascii() and text.isprintable()) and not wanted.isdisjoint(text):
            yield Problem(pointer_of(path), message, fix)


@rule(Severity.WARNING, "A text has control characters.", "13.4")
def control_character(subject: Subject) -> Iterator[Problem]:
    message = "control characters change how terminals and logs show the text"
    fix = "Remove them; line breaks and tabs are allowed in values."
    return _with_any(subject, _CONTROLS, message, fix, only_in_names=_BREAKS)


@rule(Severity.WARNING, "A text has characters that turn the direction of writing.", "13.4")
def bidirectional_character(subject: Subject) -> Iterator[Problem]:
    message = "people see the text in another order than programs read it: a name or URL can look like another one"
    return _with_any(subject, _BIDIRECTIONAL, message, "Remove them; text in one script does not need them.")


@rule(Severity.WARNING, "A text has invisible characters.", "13.4")
def invisible_character(subject: Subject) -> Iterator[Problem]:
    message = (
        "programs and language models read characters that people do not see: names that look alike, or hidden "
        "instructions"
    )
    return _with_any(subject, _INVISIBLE, message, "Remove them.")


@rule(Severity.WARNING, "Two schemes, scopes or skills differ in upper and lower case only.", "4.5.1")
def case_only_names(subject: Subject) -> Iterator[Problem]:
    for names in _groups(subject):
        first: dict[str, str] = {}
        for path, name in names:
            if first.setdefault(name.casefold(), name) != name:
                yield Problem(
                    pointer_of(path),
                    "the name differs from another one in upper and lower case only: people and some programs confuse "
                    "the two",
                    "Rename one of them.",
                )


def _groups(subject: Subject) -> Iterator[list[tuple[Path, str]]]:
    """Groups of names that must not be confused, with their places."""
    for path, message, members in subject.objects:
        if message == "AgentCard":
            schemes, skills = (member_of(members, name) for name in ("securitySchemes", "skills"))
            here: Path = (path, spelling_of(members, "securitySchemes"))
            yield [((here, name), name) for name in schemes] if type(schemes) is dict else []
            yield [
                ((((path, "skills"), index), "id"), skill["id"])
                for index, skill in enumerate(skills if type(skills) is list else ())
                if type(skill) is dict and type(skill.get("id")) is str
            ]
        elif message.endswith("OAuthFlow") and type(members.get("scopes")) is dict:
            yield [(((path, "scopes"), name), name) for name in members["scopes"]]
    for path, scopes in scope_lists(subject):
        yield [((path, index), scope) for index, scope in enumerate(scopes)]
