"""A rule of lint, and its findings.

A rule yields pointer, message and fix of each finding. These texts have no braces and brackets, which SARIF reads as
placeholders and links, and no values of the card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from a2a_trust.lint.document import Subject


class Severity(StrEnum):
    """The severity of a finding; the words are the levels of SARIF."""

    ERROR = "error"
    """The card breaks the specification, has two meanings, or reveals a secret: do not publish it."""
    WARNING = "warning"
    """This is often a mistake: change it unless it is intended."""
    NOTE = "note"
    """Information; no change is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem of a card.

    - ``rule``: the stable id of the rule, as in the documentation.
    - ``severity``: how severe the problem is.
    - ``pointer``: a JSON pointer (RFC 6901) to the member, which may be a missing one; cut after 512 characters.
    - ``message``: the problem, and why it matters.
    - ``fix``: what to write instead.

    The texts do not repeat values of the card, and hide names that look like secrets.
    """

    rule: str
    severity: Severity
    pointer: str
    message: str
    fix: str


class Problem(NamedTuple):
    """A finding of a rule; ``severity`` if it differs from the rule's."""

    pointer: str
    message: str
    fix: str
    severity: Severity | None = None


_Check: TypeAlias = Callable[[Subject], Iterator[Problem]]


class Rule(NamedTuple):
    """A rule. ``section`` is of A2A 1.0.1; ``is_fixable``: ``fix_card`` fixes it, and no meaning changes."""

    id: str
    severity: Severity
    description: str
    section: str
    check: _Check
    is_fixable: bool = False


def rule(severity: Severity, description: str, section: str, *, is_fixable: bool = False) -> Callable[[_Check], Rule]:
    """Make a rule of a function that checks a card. Its id is the name of the function, with dashes."""
    return lambda check: Rule(
        id=check.__name__.replace("_", "-"),
        severity=severity,
        description=description,
        section=section,
        check=check,
        is_fixable=is_fixable,
    )


def without_braces(text: str) -> str:
    """The text of an error without the braces and brackets of its examples."""
    return text.translate(dict.fromkeys(map(ord, "{}[]")))
