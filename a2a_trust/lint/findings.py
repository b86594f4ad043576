"""The findings of lint, and their severity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
