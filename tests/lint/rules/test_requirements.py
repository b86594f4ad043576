"""The rules for requirements: for each a bad card and a good one."""

from __future__ import annotations

from a2a_trust.card.merge import merged_card
from a2a_trust.lint.findings import Rule
from a2a_trust.lint.rules import requirements, rules_of
from tests.lint.cards import GONE, OAUTH, Example, check_examples, clean_card, having, old_card, rules_found
from tests.tables import walk

FLAT = {"type": "openIdConnect", "openIdConnectUrl": "https://id.example.com/"}
#: What a card of 0.1 does not have.
FIRST = tuple((name, GONE) for name in ("/protocolVersion", "/preferredTransport", "/securitySchemes", "/security"))

RULES = rules_of(requirements)
EXAMPLES: dict[str, list[Example]] = {
    "requirement-spelling": [
        Example(having(("/securityRequirements/0", {"oauth": ["read"]})), "/securityRequirements/0", clean_card()),
        Example(
            having(("/skills/0/securityRequirements/0", {"schemes": {"bearer": ["write"]}})),
            "/skills/0/securityRequirements/0/schemes/bearer",
            having(("/skills/0/securityRequirements/0", {"schemes": {"bearer": {"list": ["write"]}}})),
        ),
    ],
    "missing-twin": [
        Example(
            having(("/security", [{"oauth": ["read"]}]), ("/securityRequirements", GONE)),
            "/security",
            having(("/security", [{"oauth": ["read"]}])),
        ),
        Example(having(("/url", "https://invoice.example.com/")), "/securityRequirements", merged_card(clean_card())),
        Example(
            {**old_card(), "security": None, "security_requirements": [{"schemes": {"key": {"list": ["r"]}}}]},
            "/security_requirements",
            old_card(),
        ),
        Example(
            having(("/securitySchemes/bearer", {"type": "http", "scheme": "bearer"})),
            "/securitySchemes/bearer",
            having(("/securitySchemes/key", FLAT), card=old_card),
        ),
    ],
    "undeclared-scheme": [
        Example(
            having(("/securityRequirements/0/schemes", {"baerer": {"list": ["r"]}})),
            "/securityRequirements/0",
            clean_card(),
        ),
        Example(having(("/skills/0/security", [{"kee": []}]), card=old_card), "/skills/0/security/0", old_card()),
    ],
    "unused-scheme": [
        Example(
            having(("/securitySchemes/old", {"httpAuthSecurityScheme": {"scheme": "Basic"}})),
            "/securitySchemes/old",
            having(("/securityRequirements", [{"schemes": {"bearer": {"list": ["r"]}, "oauth": {"list": ["r"]}}}])),
        )
    ],
    "unplaced-scheme": [
        Example(
            having(*FIRST, ("/authentication", {"schemes": ["Bearer", "apiKey"]}), card=old_card),
            "/authentication/schemes/1",
            having(*FIRST, ("/authentication", {"schemes": ["Bearer", "Basic"]}), card=old_card),
        ),
    ],
    "anonymous-alternative": [
        Example(having(("/securityRequirements/0", {})), "/securityRequirements/0", clean_card()),
        Example(having(("/skills/0/security", [{"key": []}, {}]), card=old_card), "/skills/0/security/1", old_card()),
    ],
    "missing-requirements": [
        Example(having(("/securityRequirements", GONE)), "/securitySchemes", clean_card()),
        Example(having(("/security", []), card=old_card), "/securitySchemes", old_card()),
    ],
    "no-authentication": [
        Example(having(("/security", GONE), ("/securitySchemes", GONE), card=old_card), "", old_card()),
    ],
    "unguarded-extended-card": [
        Example(
            having(("/securityRequirements", GONE)),
            "/capabilities/extendedAgentCard",
            having(("/securityRequirements", GONE), ("/capabilities/extendedAgentCard", False)),
        ),
        Example(
            having(("/security", [{}]), ("/supportsAuthenticatedExtendedCard", True), card=old_card),
            "/supportsAuthenticatedExtendedCard",
            having(("/supportsAuthenticatedExtendedCard", True), card=old_card),
        ),
    ],
    "duplicate-scope": [
        Example(
            having(("/securityRequirements/0/schemes/oauth/list", ["read", "write", "read"])),
            "/securityRequirements/0/schemes/oauth/list/2",
            having(("/securityRequirements/0/schemes/oauth/list", ["read", "write"])),
        ),
        Example(having(("/security/0/key", ["a", "a"]), card=old_card), "/security/0/key/1", old_card()),
    ],
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


@walk("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_finds_the_bad_card_and_lets_the_good_one_be(rule: Rule) -> None:
    check_examples(rule, EXAMPLES[rule.id])


def test_a_scheme_that_cannot_be_read_is_not_told_as_undeclared() -> None:
    card = having(("/securitySchemes/oauth", {"type": "magic"}))
    assert "unread-member" in rules_found(card)
    assert "undeclared-scheme" not in rules_found(card)
