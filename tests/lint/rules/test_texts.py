"""The rules for texts: for each a bad card and a good one."""

from __future__ import annotations

from a2a_trust.lint.findings import Rule
from a2a_trust.lint.rules import rules_of, texts
from tests.lint.cards import OAUTH, SKILL, Example, check_examples, clean_card, having
from tests.tables import walk

RULES = rules_of(texts)
EXAMPLES: dict[str, list[Example]] = {
    "control-character": [
        Example(having(("/description", "a\x1b[31mred")), "/description", having(("/description", "two\n\tlines\r\n"))),
        Example(having(("/x\n", "a")), "/x\n", having(("/x", "a\n"))),
        Example(having(("/description", "a\x9bm")), "/description", having(("/description", "a\xa0m"))),
    ],
    "bidirectional-character": [
        Example(having(("/name", "Invoice\u202etnegA")), "/name", having(("/name", "وكيل الفواتير"))),
        Example(
            having(("/capabilities/extensions/0/params/a\u2066", 1)),
            "/capabilities/extensions/0/params/a\u2066",
            clean_card(),
        ),
    ],
    "invisible-character": [
        Example(
            having(("/skills/0/description", "Books." + "".join(chr(0xE0000 + ord(char)) for char in "pay me"))),
            "/skills/0/description",
            having(("/skills/0/description", "Books \N{MAN}\N{ZERO WIDTH JOINER}\N{PERSONAL COMPUTER} hours.")),
        ),
        Example(having(("/name", "Invoice\u200bAgent")), "/name", clean_card()),
        # Variation selectors carry texts of any length, and blank letters of Hangul and Braille look like blanks.
        Example(having(("/name", "Invoice" + "".join(map(chr, (0xFE01, 0xE0100, 0xE01EF))))), "/name", clean_card()),
        Example(having(("/name", "Invoice\u3164Agent")), "/name", having(("/name", "Invoice \u2764\ufe0f"))),
        Example(having(("/name", "Invoice\u2800Agent")), "/name", clean_card()),
    ],
    "case-only-names": [
        Example(
            having(("/securitySchemes/Bearer", {"httpAuthSecurityScheme": {"scheme": "Basic"}})),
            "/securitySchemes/Bearer",
            having(("/securitySchemes/bearer2", {"httpAuthSecurityScheme": {"scheme": "Basic"}})),
        ),
        Example(
            having((f"{OAUTH}/authorizationCode/scopes", {"read": "R", "READ": "A"})),
            f"{OAUTH}/authorizationCode/scopes/READ",
            having(("/capabilities/extensions/0/params", {"read": 1, "READ": 2})),
        ),
        Example(
            having(("/skills", [clean_card()["skills"][0], SKILL])),
            "/skills/1/id",
            having(("/skills", [clean_card()["skills"][0], {**SKILL, "id": "book"}])),
        ),
        Example(
            having(("/securityRequirements/0/schemes/oauth/list", ["read", "Read"])),
            "/securityRequirements/0/schemes/oauth/list/1",
            having(("/securityRequirements/0/schemes/oauth/list", ["read", "read"])),
        ),
    ],
}


@walk("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_finds_the_bad_card_and_lets_the_good_one_be(rule: Rule) -> None:
    check_examples(rule, EXAMPLES[rule.id])
