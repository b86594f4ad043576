"""The rules for forms: for each a bad card and a good one."""

from __future__ import annotations

from hypothesis import given

from a2a_trust.lint.findings import Rule
from a2a_trust.lint.rules import forms, rules_of
from a2a_trust.signing.forms import Form, project
from tests.lint.cards import GONE, Example, check_examples, clean_card, having, old_card, rules_found
from tests.signing import cards as made
from tests.signing.cards import Card
from tests.tables import walk

RULES = rules_of(forms)
EXAMPLES: dict[str, list[Example]] = {
    "explicit-default": [
        Example(having(("/documentationUrl", None)), "/documentationUrl", having(("/documentationUrl", GONE))),
        Example(
            having(("/capabilities/extensions/0/required", False)),
            "/capabilities/extensions/0/required",
            having(("/capabilities/streaming", False)),
        ),
        Example(having(("/signatures", None), ("/iconUrl", None)), "/iconUrl", having(("/signatures", None))),
    ],
    "several-forms": [
        Example(
            having(("/securityRequirements", [{"schemes": {"bearer": {}}}])), "/securityRequirements", clean_card()
        ),
        Example(
            having(("/securitySchemes/bearer", {"mtlsSecurityScheme": {}})),
            "/securitySchemes/bearer",
            having(("/securitySchemes/bearer", {"mtlsSecurityScheme": {"description": "A certificate of ours."}})),
        ),
        Example(
            having(("/capabilities/extensions/0/params", {"allow": []})),
            "/capabilities/extensions/0/params",
            having(("/capabilities/extensions/0/params", {"allow": ["a"]})),
        ),
    ],
    "empty-value": [
        Example(having(("/documentationUrl", "")), "/documentationUrl", having(("/documentationUrl", GONE))),
        Example(having(("/capabilities", {})), "/capabilities", having(("/capabilities", {"streaming": False}))),
    ],
    "python-rewrites": [
        Example(
            having(("/security", [{"oauth": ["read"]}]), ("/securityRequirements", GONE)),
            "/security",
            having(("/security", [{"oauth": ["read"]}])),
        ),
        Example(
            having(("/skills/0/security", [{"bearer": ["write"]}]), ("/skills/0/securityRequirements", GONE)),
            "/skills/0/security",
            having(("/skills/0/security", [{"bearer": []}]), ("/skills/0/securityRequirements", GONE)),
        ),
        Example(
            having(("/securitySchemes/bearer", {"type": "http", "scheme": "Bearer", "bearerFormat": "JWT"})),
            "/securitySchemes/bearer",
            having(
                ("/securitySchemes/bearer/type", "http"),
                ("/securitySchemes/bearer/scheme", "Bearer"),
                ("/securitySchemes/bearer/bearerFormat", "JWT"),
            ),
        ),
        Example(
            having(("/supportsAuthenticatedExtendedCard", True), ("/capabilities/extendedAgentCard", GONE)),
            "/supportsAuthenticatedExtendedCard",
            having(("/supportsAuthenticatedExtendedCard", True)),
        ),
        Example(
            having(("/security", [{"oauth": ["read"]}]), ("/securityRequirements", GONE)),
            "/security",
            having(("/security", [{"key": ["read"]}]), card=old_card),
        ),
    ],
}


@walk("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_finds_the_bad_card_and_lets_the_good_one_be(rule: Rule) -> None:
    check_examples(rule, EXAMPLES[rule.id])


def test_a_twin_that_is_missing_hides_no_form() -> None:
    card = having(("/url", "https://invoice.example.com/"), ("/securityRequirements", [{"schemes": {"bearer": {}}}]))
    assert {"several-forms", "missing-twin"} <= rules_found(card)


FORM_RULES = {
    "explicit-default",
    "several-forms",
    "empty-value",
    "empty-member",
    "unknown-member",
    "proto-name",
    "requirement-spelling",
    "missing-twin",
}


@given(made.cards)
def test_a_card_that_has_several_forms_never_goes_without_a_finding(card: Card) -> None:
    payloads = {project(card, form).payload for form in (Form.SERVED, Form.SPEC, Form.PRUNED)}
    rules = rules_found(card)
    assert "ambiguous-member" not in rules
    assert len(payloads) == 1 or rules & FORM_RULES
