"""The rules for members: for each a bad card and a good one."""

from __future__ import annotations

import json

from a2a_trust.lint.findings import Rule
from a2a_trust.lint.rules import members, rules_of
from tests.lint.cards import GONE, Example, check_examples, clean_card, having, old_card, rules_found
from tests.tables import walk

OLDEST = (("/authentication", {"schemes": ["key"]}), ("/security", None))

RULES = rules_of(members)
EXAMPLES: dict[str, list[Example]] = {
    "unreadable-document": [
        Example(b'{"name": 1, "name": 2}', "", json.dumps(clean_card()).encode()),
        Example(b"\xef\xbb\xbf{}", "", b"{}"),
        Example(b"[]", "", b"{}"),
        Example(b"{", "", b"{}"),
    ],
    "ambiguous-member": [
        Example(having(("/capabilities/streaming", "true")), "/capabilities/streaming", clean_card()),
        Example(having(("/Name", "A")), "/Name", having(("/title", "A"))),
        Example(having(("/default_input_modes", ["a"])), "/default_input_modes", clean_card()),
    ],
    "missing-member": [
        Example(having(("/version", GONE)), "/version", clean_card()),
        Example(having(("/skills/0/tags", None)), "/skills/0/tags", having(("/provider", None))),
        Example(having(("/url", GONE), card=old_card), "/url", old_card()),
        Example({"name": "my-package", "version": "1.0.0"}, "/supportedInterfaces", clean_card()),
        Example(having(("/version", GONE), card=old_card), "/version", old_card()),
        Example(
            having(*OLDEST, ("/name", GONE), card=old_card),
            "/name",
            having(*OLDEST, ("/skills/0/tags", GONE), card=old_card),
        ),
    ],
    "empty-member": [
        Example(having(("/skills", [])), "/skills", clean_card()),
        Example(having(("/description", "")), "/description", having(("/documentationUrl", ""))),
    ],
    "proto-name": [
        Example(
            having(
                ("/security_requirements", [{"schemes": {"bearer": {"list": ["r"]}}}]), ("/securityRequirements", GONE)
            ),
            "/security_requirements",
            clean_card(),
        )
    ],
    "unknown-member": [
        Example(having(("/title", "Invoices")), "/title", having(("/url", "https://invoice.example.com/"))),
        Example(
            having(("/supportedInterfaces/0/x-region", "eu")),
            "/supportedInterfaces/0/x-region",
            having(("/capabilities/extensions/0/params/region", "eu")),
        ),
    ],
    "unsafe-integer": [
        Example(
            having(("/capabilities/extensions/0/params/limit", 2**53)),
            "/capabilities/extensions/0/params/limit",
            having(("/capabilities/extensions/0/params/limit", 2**53 - 1)),
        )
    ],
    "unread-member": [
        Example(
            having(("/security", [{"bearer": ["read"]}])), "/security", having(("/security", [{"oauth": ["read"]}]))
        ),
        Example(
            having(("/securitySchemes/bearer/type", "apiKey")),
            "/securitySchemes/bearer/location",
            having(("/securitySchemes/bearer/type", "http"), ("/securitySchemes/bearer/scheme", "bearer")),
        ),
        Example(
            having(("/supportsAuthenticatedExtendedCard", False)),
            "/supportsAuthenticatedExtendedCard",
            having(("/supportsAuthenticatedExtendedCard", True)),
        ),
    ],
}


@walk("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_finds_the_bad_card_and_lets_the_good_one_be(rule: Rule) -> None:
    check_examples(rule, EXAMPLES[rule.id])


def test_a_requirement_that_cannot_be_read_is_never_told_as_missing() -> None:
    card = having(("/securityRequirements", [{"schemes": {"oauth": {"lists": ["read"]}}}]))
    assert rules_found(card) >= {"unread-member"}
    assert not rules_found(card) & {"missing-requirements", "no-authentication", "anonymous-alternative"}
