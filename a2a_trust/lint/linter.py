"""Lint: find problems of a card before it is signed and published.

Lint checks the text of a card of any generation for members that readers may miss, members that a signature may not
cover, and secrets. It proves nothing: it neither verifies signatures nor uses the network.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from a2a_trust.base.strict_json import JSONObject
from a2a_trust.card.ambiguity import check_card
from a2a_trust.card.given import GivenCard, read_given
from a2a_trust.card.view import generation_of
from a2a_trust.errors import ConfigurationError
from a2a_trust.lint.document import subject_of
from a2a_trust.lint.findings import Finding, Rule, Severity
from a2a_trust.lint.rules import RULES
from a2a_trust.signing.forms import present_members

MAX_OF_A_RULE: Final = 100
"""The largest number of findings of one rule: an untrusted card must not exhaust the memory."""


def lint_card(card: GivenCard) -> tuple[Finding, ...]:
    """Find the problems of a card: errors first, one finding for each rule and place.

    Bytes, text or a file that is not a card is a finding, too. MalformedError: a dict with values that are not JSON.
    Source: the sections of A2A 1.0.1 that ``RULES`` names.
    """
    return _findings(card, tuple(RULES.values()))


def errors_in(card: GivenCard) -> tuple[Finding, ...]:
    """The errors that ``lint_card`` finds; it takes a third of the time."""
    return tuple(finding for finding in _findings(card, _OF_ERRORS) if finding.severity is Severity.ERROR)


_OF_ERRORS: Final = tuple(rule for rule in RULES.values() if rule.severity is Severity.ERROR)
"""A rule may lower the severity of a finding, and never raises it."""


def _findings(card: GivenCard, rules: tuple[Rule, ...]) -> tuple[Finding, ...]:
    subject = subject_of(read_given(card))
    if subject.unreadable is not None:
        rules = (RULES["unreadable-document"],)
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
    """Remove members that say nothing. Returns a new card, and the pointers of the removed members (at most 100).

    Removed are the members that the canonical form of a card of 1.0 leaves out, and signing, too: null, and members at
    a default that are neither REQUIRED nor ``optional``. The meaning of the card and its canonical form stay the same.
    MalformedError: the card is ambiguous. ConfigurationError: the card is signed, and a fix could break signatures.
    """
    check_card(card)
    fixed, dropped = (card, ()) if generation_of(card).is_legacy else present_members(card)
    if dropped and card.get("signatures"):
        raise ConfigurationError(
            "the card is signed, and fixing it would break its signatures; remove the signatures, fix the card, and "
            "sign it again"
        )
    return fixed, dropped
