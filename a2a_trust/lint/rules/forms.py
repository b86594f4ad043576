"""Rules for the forms in which a card is signed: where SDKs differ in what a signature covers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from a2a_trust.base.strict_json.pointer import steps_of
from a2a_trust.card.ambiguity import field_of
from a2a_trust.card.schema import MESSAGES, Kind
from a2a_trust.lint.document import Subject, safe_pointer
from a2a_trust.lint.findings import Problem, Severity, rule
from a2a_trust.lint.rules.members import empty_member, unknown_members
from a2a_trust.lint.rules.requirements import missing_twin, requirement_spelling
from a2a_trust.signing.a2a_python import rewritten_members
from a2a_trust.signing.forms import Form, present_members, project


@rule(
    Severity.NOTE,
    "A member is null or at its default, and the specification's canonical form leaves it out.",
    "8.4.1",
    is_fixable=True,
)
def explicit_default(subject: Subject) -> Iterator[Problem]:
    # Cards before 1.0 are signed as they are.
    for pointer in () if subject.rest is None or subject.is_legacy else present_members(subject.rest)[1]:
        yield Problem(
            safe_pointer(pointer),
            "the member has no meaning, but gives the card several canonical forms: SDKs that sign the card as it is "
            "served sign it, the form of the specification leaves it out",
            "Remove it, with a2a-sign lint --fix; signing removes it, too.",
        )


@rule(
    Severity.WARNING,
    "A requirement, scheme or parameter vanishes from the pruned form, in which a2a-python and a2a-js sign.",
    "8.4.1",
)
def several_forms(subject: Subject) -> Iterator[Problem]:
    for pointer in _pruned(subject):
        special = _pruned_rule(pointer)
        if special is not None:
            yield Problem(
                safe_pointer(pointer),
                f"{special[0]}: a2a-python and a2a-js do not verify this member, so they do not detect a change of it",
                special[1],
            )


@rule(Severity.NOTE, "A member is empty, and the pruned form of a2a-python and a2a-js leaves it out.", "8.4.1")
def empty_value(subject: Subject) -> Iterator[Problem]:
    for pointer in _pruned(subject):
        if _pruned_rule(pointer) is None:
            yield Problem(
                safe_pointer(pointer),
                "the specification signs this member, and a2a-python and a2a-js do not: the card has several canonical "
                "forms, and needs a second signature for these SDKs",
                "Give it a value, such as an explicit false, or remove it if A2A does not require it.",
            )


@rule(
    Severity.WARNING,
    "a2a-python 1.3 rewrites a member of 0.3 before it verifies a card of 1.0, and so rejects every signature.",
    "A.2",
)
def python_rewrites(subject: Subject) -> Iterator[Problem]:
    for pointer in () if subject.rest is None else rewritten_members(present_members(subject.rest)[0]):
        yield Problem(
            safe_pointer(pointer),
            "a2a-python 1.3 rewrites this member of 0.3 as a member of 1.0 before it verifies. No signature covers the "
            "new member, so it rejects every signature of the card",
            "Write the member of 1.0 in addition or instead; merged_card writes both.",
        )


def _pruned_rule(pointer: str) -> tuple[str, str] | None:
    """The name of the part that the pruned form drops, and the advice; None for parts without a special rule."""
    steps = steps_of(pointer)
    companion = "else those SDKs reject the signed card, unless a companion signature was asked for."
    if "securityRequirements" in steps[:3] or "security_requirements" in steps[:3]:
        return "a requirement without scopes", f"Name a scope if the scheme has scopes; {companion}"
    if steps[0] in ("securitySchemes", "security_schemes"):
        return "an empty scheme, or an empty part of one", f"Give it a value, such as a description; {companion}"
    if "params" in steps:
        return "an empty value in params", f"Remove it if that means the same; {companion}"
    return None


_SCHEMES: Final = ("/securitySchemes/", "/security_schemes/")


def _pruned(subject: Subject) -> Iterator[str]:
    """The members that only the pruned form drops, without those that other rules report."""
    if subject.rest is None or subject.is_legacy:
        return
    reported = {*unknown_members(subject), *(found.pointer for found in empty_member.check(subject))}
    reported.update(found.pointer for found in requirement_spelling.check(subject))
    reported.update(found.pointer for found in missing_twin.check(subject) if found.pointer.startswith(_SCHEMES))
    around = {pointer[:at] for pointer in reported for at, char in enumerate(pointer) if char == "/"}
    for pointer in project(present_members(subject.rest)[0], Form.PRUNED).dropped:
        safe = safe_pointer(pointer)
        if safe not in reported and safe not in around and not _is_legacy_member(pointer):
            yield pointer


def _is_legacy_member(pointer: str) -> bool:
    """Whether the member is of 0.3 only. These members of a merged card are not reported: the full signature covers
    them."""
    message, is_key = "AgentCard", False
    for step in steps_of(pointer):
        if is_key:  # a name of a map, or an index
            is_key = False
            continue
        field = field_of(message, step) if message else None
        if field is None:
            return False
        if step not in MESSAGES.get(message, {}) and field.name == step:
            return True
        message, is_key = field.message, field.kind in (Kind.MESSAGES, Kind.MESSAGE_MAP)
    return False
