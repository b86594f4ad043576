"""What holds for what lint finds in any card, and for cards that it fixes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.base.strict_json.pointer import steps_of
from a2a_trust.card.ambiguity import check_card
from a2a_trust.card.merge import merged_card
from a2a_trust.card.view import read_card
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.lint.findings import Finding, Severity
from a2a_trust.lint.linter import MAX_OF_A_RULE, fix_card, lint_card
from a2a_trust.lint.rules import RULES
from a2a_trust.signing.forms import Form, project
from a2a_trust.signing.sign import sign_card
from tests.lint.cards import GONE, SKILL, clean_card, found, having, old_card, put, rules_found
from tests.signing import cards as made
from tests.signing.cards import Card
from tests.signing.json_values import canonicalizable, documents, nested, texts


def at(card: Any, pointer: str) -> Any:
    """The value at a pointer; None if there is no value."""
    for step in steps_of(pointer):
        if isinstance(card, list):
            card = card[int(step)] if int(step) < len(card) else None
        else:
            card = card.get(step) if isinstance(card, dict) else None
    return card


def test_errors_come_first() -> None:
    card = having(("/title", "A"), ("/version", GONE), ("/name", "a\u202e"))
    assert [finding.severity for finding in lint_card(card)] == [Severity.ERROR, Severity.WARNING, Severity.NOTE]


# Cards that are fine


def test_a_clean_card_of_either_generation_has_no_findings() -> None:
    assert lint_card(clean_card()) == ()
    assert lint_card(old_card()) == ()


def test_a_merged_card_whose_twins_agree_has_no_findings() -> None:
    assert lint_card(merged_card(clean_card())) == ()


def test_signing_a_clean_card_leaves_it_clean() -> None:
    assert lint_card(sign_card(clean_card(), generate_signer()).card) == ()


def test_bytes_and_objects_are_judged_alike() -> None:
    card = made.many_formed_card()
    assert lint_card(json.dumps(card).encode()) == lint_card(card)


# Cards that cannot be read


def test_all_that_the_gate_refuses_is_told_at_once_with_the_pointers_of_the_card() -> None:
    card = having(
        ("/capabilities/streaming", "yes"),
        ("/skills", [{**SKILL, "tags": "one"}, {**SKILL, "id": 7}, {**SKILL, "name": None, "NAME": "B"}]),
    )
    assert {pointer for rule, pointer in found(card) if rule == "ambiguous-member"} == {
        "/capabilities/streaming",
        "/skills/0/tags",
        "/skills/1/id",
        "/skills/2/NAME",
    }


def test_an_object_that_is_not_json_is_refused() -> None:
    with pytest.raises(MalformedError):
        lint_card({"name": float("nan")})
    with pytest.raises(MalformedError):
        lint_card({"name": {1, 2}})
    with pytest.raises(ConfigurationError, match=r"write .* Path\('card.json'\)"):
        lint_card("card.json")


# Bounds


def test_the_findings_of_one_rule_are_bounded() -> None:
    card = {f"x{number}": number for number in range(3 * MAX_OF_A_RULE)}
    assert sum(finding.rule == "unknown-member" for finding in lint_card(card)) == MAX_OF_A_RULE


def test_pointers_are_bounded_too() -> None:
    name = "n" * 100_000
    card = {**clean_card(), "capabilities": {"extensions": [{"params": {name: [None] * 500}}]}, name: 1}
    findings = lint_card(card)
    assert findings
    assert all(len(finding.pointer) <= 512 and len(finding.message) < 1000 for finding in findings)


def test_a_document_that_is_refused_everywhere_ends() -> None:
    card = {"skills": [{"id": number} for number in range(500)], **dict.fromkeys(made.full_card(), 1)}
    card["skills"] = [{"id": 1, "name": 2, "tags": 3} for _ in range(100)]
    assert "ambiguous-member" in rules_found(card)


def test_the_deepest_card_that_is_read_is_linted() -> None:
    card = {**clean_card(), "x": nested(120, None, kind="both")}
    assert ("unknown-member", "/x") in found(card)


# What holds for every card


@given(st.dictionaries(texts, documents, max_size=6))
def test_lint_never_fails_on_any_object(card: dict[str, Any]) -> None:
    for finding in lint_card(card):
        assert finding.rule in RULES


@given(
    st.binary(max_size=60)
    | st.text(max_size=60).map(str.encode)
    | documents.map(lambda value: json.dumps(value).encode())
)
def test_lint_never_fails_on_any_bytes(data: bytes) -> None:
    assert all(isinstance(finding, Finding) for finding in lint_card(data))


POINTERS = st.sampled_from(
    [
        f"{pointer}/{name}"
        for base in (clean_card(), merged_card(clean_card()), old_card())
        for pointer, members in [
            ("", base),
            ("/capabilities", base["capabilities"]),
            ("/skills/0", base["skills"][0]),
            *((f"/securitySchemes/{name}", scheme) for name, scheme in base["securitySchemes"].items()),
        ]
        for name in [*members, "security", "securityRequirements", "type", "url", "security_requirements"]
    ]
)


@given(
    st.sampled_from([clean_card, old_card, lambda: merged_card(clean_card())]),
    st.lists(st.tuples(POINTERS, canonicalizable), min_size=1, max_size=4),
)
def test_lint_never_fails_on_a_card_with_members_of_any_kind(
    base: Callable[[], Card], changes: list[tuple[str, Any]]
) -> None:
    card = base()
    for pointer, value in changes:
        try:
            card = put(card, pointer, value)
        except (KeyError, IndexError, TypeError, ValueError):
            continue
    rules = rules_found(card)
    assert ("ambiguous-member" in rules) == refuses(check_card, card)
    if "ambiguous-member" not in rules and refuses(read_card, card):
        assert rules & {"unread-member", "missing-member"}


def refuses(check: Callable[[Card], object], card: Card) -> bool:
    try:
        check(card)
    except MalformedError:
        return True
    return False


@given(made.cards)
def test_findings_point_to_members_that_are_there_or_missing_from_an_object_that_is(card: Card) -> None:
    for finding in lint_card(card):
        if len(finding.pointer) < 512 and finding.pointer:
            around = at(card, finding.pointer.rpartition("/")[0])
            assert isinstance(around, dict | list), finding


# Mending


@given(made.cards)
def test_mending_changes_no_meaning_and_once_is_enough(card: Card) -> None:
    before = copy.deepcopy(card)
    fixed, dropped = fix_card(card)
    assert card == before
    assert project(fixed, Form.SPEC).payload == project(card, Form.SPEC).payload
    assert fix_card(fixed) == (fixed, ())
    assert "explicit-default" not in rules_found(fixed)
    assert bool(dropped) == ("explicit-default" in rules_found(card))


def test_mending_changes_nothing_in_a_card_of_0_3() -> None:
    assert fix_card(made.legacy_card()) == (made.legacy_card(), ())


def test_mending_refuses_a_signed_card_and_says_why() -> None:
    signed = sign_card(clean_card(), generate_signer()).card
    assert fix_card(signed) == (signed, ())
    with pytest.raises(ConfigurationError, match="break its signatures"):
        fix_card({**signed, "documentationUrl": None})


def test_mending_refuses_what_the_gate_refuses() -> None:
    with pytest.raises(MalformedError, match="/capabilities/streaming"):
        fix_card(having(("/capabilities/streaming", "yes")))


# The documentation, and the cards of others


def test_every_real_card_is_linted(vectors: Path) -> None:
    paths = sorted((vectors / "cards" / "files").glob("*.json"))
    assert len(paths) >= 98
    for path in paths:
        for finding in lint_card(path.read_bytes()):
            card = json.loads(path.read_text(encoding="utf-8"))
            assert finding.rule != "unreadable-document", path.name
            assert not finding.pointer or at(card, finding.pointer.rpartition("/")[0]) is not None, (path.name, finding)
