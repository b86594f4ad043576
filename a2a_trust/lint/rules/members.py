"""Rules for members: those that readers cannot read or read differently, and the missing, empty and unknown ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from a2a_trust.base.strict_json.jcs import MAX_SAFE_INTEGER
from a2a_trust.base.strict_json.pointer import Path
from a2a_trust.card.ambiguity import field_of
from a2a_trust.card.schema import MESSAGES, REQUIRED_0_1, REQUIRED_0_3, Presence
from a2a_trust.card.schema import proto_name as name_in_proto
from a2a_trust.lint.document import Subject, member_of, path_to, pointer_of, safe_pointer
from a2a_trust.lint.findings import Problem, Severity, rule, without_braces
from a2a_trust.lint.secret_shapes import secret_kind


@rule(Severity.ERROR, "The file is not one JSON object that every reader reads alike.", "8.4.1")
def unreadable_document(subject: Subject) -> Iterator[Problem]:
    error = subject.unreadable
    if error is not None:
        reason = str(error).removeprefix("card: ")
        reason = "it cannot be read" if secret_kind(reason) else without_braces(reason)
        yield Problem("", f"{reason}; readers reject such a file, or read it differently", "Correct the JSON.")


@rule(
    Severity.ERROR,
    "A member has the wrong type, is there under two names, excludes or looks like another: readers disagree.",
    "5.5",
)
def ambiguous_member(subject: Subject) -> Iterator[Problem]:
    for error in subject.ambiguous:
        yield Problem(
            safe_pointer(error.pointer or ""),
            f"{without_braces(error.reason)}; such a card cannot be signed or verified",
            "Write the member once, under its JSON name, with the type that A2A gives it.",
        )


#: The required members in the JSON schemas of 0.2 and 0.3, for messages in which they differ from 1.0.
_REQUIRED_IN_0_3: Final = {
    "AgentCard": REQUIRED_0_3["AgentCard"],
    "AgentExtension": REQUIRED_0_3["AgentExtension"],
    "AgentInterface03": REQUIRED_0_3["AgentInterface"],
}
_REQUIRED: Final = {
    message: tuple(field.name for field in fields.values() if field.presence is Presence.REQUIRED)
    for message, fields in MESSAGES.items()
}


def _required(subject: Subject, message: str) -> tuple[str, ...]:
    if not subject.is_legacy:
        return _REQUIRED.get(message, ())
    if "authentication" in subject.card and message in REQUIRED_0_1:
        return REQUIRED_0_1[message]
    return _REQUIRED_IN_0_3.get(message, _REQUIRED.get(message, ()))


@rule(Severity.ERROR, "A member that A2A demands (REQUIRED) is missing.", "5.7")
def missing_member(subject: Subject) -> Iterator[Problem]:
    for path, name in _missing(subject):
        yield Problem(
            pointer_of((path, name)),
            f"{name} is missing, and A2A requires it: clients may reject the card",
            f"Add {name}.",
        )


def _missing(subject: Subject) -> Iterator[tuple[Path, str]]:
    for path, message, members in subject.objects:
        for name in _required(subject, message):
            if member_of(members, name) is None:
                yield path, name


@rule(Severity.WARNING, "A member that A2A demands (REQUIRED) is an empty string or list.", "5.7")
def empty_member(subject: Subject) -> Iterator[Problem]:
    if subject.is_legacy:
        return
    for path, message, members in subject.objects:
        for name in _required(subject, message):
            for spelling in (name, name_in_proto(name)):
                if members.get(spelling) in ("", []):
                    yield Problem(
                        pointer_of((path, spelling)),
                        f"{name} is an empty {'list' if members[spelling] == [] else 'text'}, and A2A requires a value"
                        ": clients may reject the card, and some SDKs do not sign the member",
                        f"Add an element to {name}." if members[spelling] == [] else f"Give {name} a value.",
                    )
                    break


@rule(Severity.ERROR, "A member is written under its name of the proto file, in snake_case.", "5.5")
def proto_name(subject: Subject) -> Iterator[Problem]:
    for path, message, members in subject.objects:
        for name in members:
            field = field_of(message, name)
            if field is not None and field.name != name:
                yield Problem(
                    pointer_of((path, name)),
                    f"clients that read only JSON names do not find {field.name}",
                    f"Rename it to {field.name}.",
                )


@rule(Severity.NOTE, "A member that no version of A2A has.", "5.7")
def unknown_member(subject: Subject) -> Iterator[Problem]:
    for pointer in unknown_members(subject):
        yield Problem(
            pointer,
            "no version of A2A has this member: clients ignore it, and the pruned form of a2a-python and a2a-js does "
            "not sign it",
            "Move it into the params of an extension in capabilities, or remove it.",
        )


def unknown_members(subject: Subject) -> Iterator[str]:
    """The pointers of the members that no version of A2A has."""
    for path, message, members in subject.objects:
        if message in ("SecurityRequirement", "SecurityRequirement03"):
            continue  # names of schemes, see requirement-spelling
        for name in members:
            if field_of(message, name) is None and not (path is None and name == "signatures"):
                yield pointer_of((path, name))


@rule(Severity.ERROR, "An integer is beyond 53 bits.", "8.4.1")
def unsafe_integer(subject: Subject) -> Iterator[Problem]:
    for path, value in subject.values:
        if type(value) is int and abs(value) > MAX_SAFE_INTEGER:
            yield Problem(
                pointer_of(path),
                "readers round integers beyond 53 bits, each in its own way (RFC 8785 3.2.2.3): "
                "such a card cannot be signed",
                "Write the number as a string.",
            )


_CONTRADICTION: Final = re.compile(r"contradicts|two different things|beside")


@rule(
    Severity.ERROR,
    "A scheme, requirement, interface or capability cannot be read, or contradicts what the card says elsewhere.",
    "4.5",
)
def unread_member(subject: Subject) -> Iterator[Problem]:
    if not subject.unread:
        return
    missing = set(_missing(subject))
    for error in subject.unread:
        path = path_to(subject.card, error.pointer or "")
        if path not in missing:
            yield Problem(
                pointer_of(path),
                f"{without_braces(error.reason)}; clients may skip it, and then send no credential",
                "Make the two members equal, or remove one of them."
                if _CONTRADICTION.search(error.reason)
                else "Correct this member; A2A 1.0 describes it in section 4.5.",
            )
