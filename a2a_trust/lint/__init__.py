"""Find problems of cards before they are signed and published."""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.lint.findings import Finding as Finding, Severity as Severity
    from a2a_trust.lint.linter import fix_card as fix_card, lint_card as lint_card
else:
    __getattr__, __dir__ = lazy(__name__, {
        "lint.findings": "Finding Severity", "lint.linter": "fix_card lint_card",
    })  # fmt: skip
