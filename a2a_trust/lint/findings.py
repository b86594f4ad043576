"""What lint finds in a card: one finding, and how severe it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Severity"]


class Severity(StrEnum):
    """How bad a finding is; the words are the levels of SARIF."""

    ERROR = "error"
    """The card breaks the specification, is read in two ways, or gives something away: do not publish it."""
    WARNING = "warning"
    """It may be meant, and often is not."""
    NOTE = "note"
    """Good to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem of a card.

    ``rule`` is its stable id, as the documentation lists them; ``pointer`` names the member (RFC 6901; the one that is
    missing, when one is) and is cut after 512 characters. ``message`` says what is wrong and why it matters, ``fix``
    what to write instead. None of them repeats a value of the card; of names, those that look like secrets are hidden.
    """

    rule: str
    severity: Severity
    pointer: str
    message: str
    fix: str
