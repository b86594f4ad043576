"""The table of the rules."""

from __future__ import annotations

from a2a_trust.lint.findings import Severity
from a2a_trust.lint.rules import RULES
from tests.conftest import ROOT
from tests.lint.rules import (
    test_forms,
    test_members,
    test_requirements,
    test_secrets,
    test_texts,
    test_urls,
)

THEMES = (test_forms, test_members, test_requirements, test_secrets, test_texts, test_urls)


def test_no_example_is_left_of_a_rule_that_is_gone() -> None:
    for theme in THEMES:
        assert theme.EXAMPLES.keys() == {rule.id for rule in theme.RULES}


def test_every_rule_is_in_the_table_once() -> None:
    assert len(RULES) == sum(len(theme.RULES) for theme in THEMES)


def test_the_documentation_lists_exactly_the_rules() -> None:
    text = (ROOT / "docs" / "lint.md").read_text(encoding="utf-8")
    for severity in Severity:
        table = text.partition(f"### {severity.capitalize()}s\n")[2].partition("\n#")[0]
        assert [line for line in table.splitlines() if line.startswith("| `")] == [
            f"| `{rule.id}` | {rule.description}{' Fixed by `--fix`.' if rule.is_fixable else ''} | {rule.section} |"
            for rule in RULES.values()
            if rule.severity is severity
        ]
