# The public names of a2a_trust.lint.
from a2a_trust.lint.findings import Finding as Finding
from a2a_trust.lint.findings import Severity as Severity
from a2a_trust.lint.linter import fix_card as fix_card
from a2a_trust.lint.linter import lint_card as lint_card
