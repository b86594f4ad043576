"""The rules for flows: for each a bad card and a good one."""

from __future__ import annotations

import pytest

from a2a_trust.lint.rules.flows import RULES
from a2a_trust.lint.rules.rule import Rule
from tests.lint.cards import OAUTH, Example, check_examples, clean_card, having

EXAMPLES: dict[str, list[Example]] = {
    "implicit-flow": [
        Example(
            having((OAUTH, {"implicit": {"authorizationUrl": "https://id.example.com/a", "scopes": {"read": "R"}}})),
            f"{OAUTH}/implicit",
            clean_card(),
        )
    ],
    "password-flow": [
        Example(
            having((OAUTH, {"password": {"tokenUrl": "https://id.example.com/t", "scopes": {"read": "R"}}})),
            f"{OAUTH}/password",
            having((OAUTH, {"clientCredentials": {"tokenUrl": "https://id.example.com/t", "scopes": {"read": "R"}}})),
        )
    ],
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_finds_the_bad_card_and_lets_the_good_one_be(rule: Rule) -> None:
    check_examples(rule, EXAMPLES[rule.id])
