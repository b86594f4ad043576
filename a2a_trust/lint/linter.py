"""Lint: the problems of a card, before it is published or signed.

Lint checks the card as it is written, in every generation: what a reader may miss, what a signature may leave open,
what gives something away. It is no proof of anything: it neither verifies signatures nor asks the network.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from a2a_trust.card.ambiguity import check_card
from a2a_trust.card.given import GivenCard, given_card
from a2a_trust.card.view import generation_of
from a2a_trust.errors import ConfigurationError
from a2a_trust.lint.document import subject_of
from a2a_trust.lint.findings import Finding, Severity
from a2a_trust.lint.rules.table import RULES
from a2a_trust.signing.forms import present_members
from a2a_trust.strict_json import JSONObject

__all__ = ["MAX_OF_A_RULE", "fix_card", "lint_card"]

MAX_OF_A_RULE: Final = 100
"""At most so many findings of one rule are told: a stranger's card must not fill the memory."""


def lint_card(card: GivenCard) -> tuple[Finding, ...]:
    """The problems of the card, errors first; one finding for each rule and place.

    Bytes, text and files that are no card are a finding too. MalformedError: a dict that is not made of JSON values.
    Source: A2A 1.0.1, by sections that ``RULES`` names.
    """
    subject = subject_of(given_card(card))
    rules = RULES.values() if subject.unreadable is None else [RULES["unreadable-document"]]
    findings: dict[tuple[str, str], Finding] = {}
    for rule in rules:
        for pointer, message, fix, severity in islice(rule.check(subject), MAX_OF_A_RULE):
            finding = Finding(
                rule=rule.id, severity=severity or rule.severity, pointer=pointer, message=message, fix=fix
            )
            findings.setdefault((rule.id, pointer), finding)
    order = list(Severity)
    return tuple(sorted(findings.values(), key=lambda finding: order.index(finding.severity)))


def fix_card(card: JSONObject) -> tuple[JSONObject, tuple[str, ...]]:
    """A new card without what says nothing, and the pointers of what was left out: at most 100, each cut.

    Left out is what the specification's canonical form leaves out of a card of 1.0, and signing too: null, and
    members at a default that are neither REQUIRED nor ``optional``. The meaning stays, and so does that form.
    MalformedError: the card is ambiguous. ConfigurationError: it is signed, and a fix could break signatures.
    """
    check_card(card)
    fixed, dropped = (card, ()) if generation_of(card).is_legacy else present_members(card)
    if dropped and card.get("signatures"):
        raise ConfigurationError(
            "the card is signed, and fixing it would break its signatures; take the signatures out, fix it, and sign "
            "it again"
        )
    return fixed, dropped
