"""Cards for the tests of lint: those in which it finds nothing, and changes of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from a2a_trust.base.strict_json.pointer import steps_of
from a2a_trust.lint.findings import Rule
from a2a_trust.lint.linter import lint_card
from a2a_trust.lint.rules import RULES
from tests.signing import cards as made
from tests.signing.cards import Card

OAUTH = "/securitySchemes/oauth/oauth2SecurityScheme/flows"


def clean_card() -> Card:
    """A card of 1.0 in which lint finds nothing."""
    card = made.full_card()
    card["securitySchemes"].pop("Bearer")
    flow = card["securitySchemes"]["oauth"]["oauth2SecurityScheme"]["flows"]["authorizationCode"]
    flow["scopes"] = {"read": "Read"}
    card["capabilities"]["extensions"][0]["params"] = {"limit": 3}
    return card


def old_card() -> Card:
    """A card of 0.3 in which lint finds nothing."""
    return {
        "protocolVersion": "0.3.0",
        "name": "Old Agent",
        "description": "Reads invoices.",
        "url": "https://old.example.com/a2a",
        "preferredTransport": "JSONRPC",
        "version": "1.0.0",
        "capabilities": {"streaming": False},
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
        "security": [{"key": []}],
        "defaultInputModes": [],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "S", "description": "", "tags": []}],
    }


GONE = object()


def put(card: Card, pointer: str, value: Any) -> Card:
    """A copy with another value at the pointer, or without it."""
    changed = copy.deepcopy(card)
    *way, last = steps_of(pointer)
    around: Any = changed
    for step in way:
        around = around[int(step)] if isinstance(around, list) else around[step]
    if value is GONE:
        del around[last]
    else:
        around[int(last) if isinstance(around, list) else last] = value
    return changed


def having(*changes: tuple[str, Any], card: Callable[[], Card] = clean_card) -> Card:
    changed = card()
    for pointer, value in changes:
        changed = put(changed, pointer, value)
    return changed


SKILL: Card = {"id": "Reconcile", "name": "R", "description": "Again.", "tags": ["finance"]}


class Example(NamedTuple):
    """Cards that a rule is about: ``bad`` has the finding at ``pointer``, ``good`` comes near and has none."""

    bad: Card | bytes
    pointer: str
    good: Card | bytes


def found(card: Card | bytes) -> set[tuple[str, str]]:
    return {(finding.rule, finding.pointer) for finding in lint_card(card)}


def rules_found(card: Card | bytes) -> set[str]:
    return {rule for rule, _ in found(card)}


def check_examples(rule: Rule, examples: list[Example]) -> None:
    """Return when the rule finds every bad card, and no good one, and says what is wrong and what to write."""
    assert examples
    for example in examples:
        assert (rule.id, example.pointer) in found(example.bad)
        assert rule.id not in rules_found(example.good)
        for finding in lint_card(example.bad):
            assert finding.severity is RULES[finding.rule].severity
            assert finding.message
            assert not finding.message.endswith(".")
            assert finding.fix.endswith(".")
            # SARIF takes braces for placeholders, and brackets for links.
            assert not set("{}[]") & set(finding.message + finding.fix)
