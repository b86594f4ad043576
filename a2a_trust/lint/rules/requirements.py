"""Rules for requirements and schemes: who may call, whether clients of every generation read that, deprecated flows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from a2a_trust.base.strict_json import JSON, JSONObject
from a2a_trust.base.strict_json.pointer import Path
from a2a_trust.card.places import WORDS_FOR_TOKENS
from a2a_trust.card.schema import MESSAGES
from a2a_trust.card.view import Alternative, NamedScheme
from a2a_trust.lint.document import Subject, member_of, pointer_of, shown_name, spelling_of
from a2a_trust.lint.findings import Problem, Severity, rule


@rule(
    Severity.ERROR,
    "A requirement of 1.0 is written in another spelling, which some clients read as no requirement.",
    "4.5.1",
)
def requirement_spelling(subject: Subject) -> Iterator[Problem]:
    for path, message, members in subject.objects:
        if message != "SecurityRequirement":
            continue
        schemes = members.get("schemes")
        if members and (type(schemes) is list or "schemes" not in members):
            yield Problem(
                pointer_of(path),
                "names of schemes are in the place of the member schemes: clients of 1.0 find no scheme, and conclude "
                "that everybody may call",
                "Put the names into an object in the member schemes, and the scopes of each name into its member list.",
            )
        for name, scopes in schemes.items() if type(schemes) is dict else ():
            if type(scopes) is list:
                yield Problem(
                    pointer_of(((path, "schemes"), name)),
                    "the scopes are in the place of an object with the member list, as a2a-go writes them: other SDKs "
                    "reject the card",
                    "Write an object, and put the scopes into its member list.",
                )


_WRAPPERS: Final = tuple(MESSAGES["SecurityScheme"])


@rule(
    Severity.WARNING,
    "A requirement or scheme is written for clients of one generation, and the card has interfaces for another.",
    "A.2",
)
def missing_twin(subject: Subject) -> Iterator[Problem]:
    card = subject.card
    speaks_0_3 = subject.is_legacy or isinstance(card.get("url"), str)
    speaks_1_0 = bool(member_of(card, "supportedInterfaces")) or not speaks_0_3
    for path, message, members in subject.objects:
        if message in ("AgentCard", "AgentSkill"):
            new, old = bool(member_of(members, "securityRequirements")), bool(members.get("security"))
            names = ("securityRequirements", "security")
        elif message == "SecurityScheme" and members:
            new = any(member_of(members, name) is not None for name in _WRAPPERS)
            old = members.get("type") is not None
            names = ("the member of 1.0, such as httpAuthSecurityScheme,", "the members of 0.3, with type,")
        else:
            continue
        for speaks, there, twin, said, missing, generation in (
            (speaks_1_0, new, old, names[1], names[0], "1.0"),
            (speaks_0_3, old, new, names[0], names[1], "0.2 and 0.3"),
        ):
            if speaks and twin and not there:
                place = path if message == "SecurityScheme" else (path, spelling_of(members, said))
                yield Problem(
                    pointer_of(place),
                    f"clients of {generation}, for which the card has an interface, do not read this: they send no "
                    "credential, or do not know the scheme",
                    f"Write {missing} in addition; merged_card does that for cards of 1.0.",
                )


@rule(Severity.ERROR, "A requirement names a scheme that the card does not declare.", "4.5.1")
def undeclared_scheme(subject: Subject) -> Iterator[Problem]:
    if subject.view is None:
        return
    declared = member_of(subject.card, "securitySchemes")
    names = {*subject.view.schemes, *(declared if type(declared) is dict else ())}
    for pointer, alternative in _alternatives(subject):
        for name, _ in alternative.schemes:
            if name not in names:
                yield Problem(
                    pointer,
                    f"the scheme {shown_name(name)} is not in securitySchemes: no client can know which credential to "
                    "send",
                    "Declare the scheme, or name a declared one.",
                )


@rule(Severity.NOTE, "A scheme is declared, and no requirement names it.", "4.5.1")
def unused_scheme(subject: Subject) -> Iterator[Problem]:
    if subject.view is None or not subject.is_whole:
        return
    used = {name for _, alternative in _alternatives(subject) for name, _ in alternative.schemes}
    if not used:
        return  # see missing-requirements
    for name, scheme in subject.view.schemes.items():
        if name not in used and not isinstance(scheme, NamedScheme):
            yield Problem(
                pointer_of(((None, spelling_of(subject.card, "securitySchemes")), name)),
                "no requirement names this scheme, so clients do not use it",
                "Name it in a requirement, or remove it.",
            )


@rule(Severity.WARNING, "A card of 0.1 names a scheme with a word that does not say where its credential goes.", "A.2")
def unplaced_scheme(subject: Subject) -> Iterator[Problem]:
    for pointer, alternative in _alternatives(subject):
        for name, _ in alternative.schemes if pointer.startswith("/authentication") else ():
            if name.lower() not in ("basic", *WORDS_FOR_TOKENS):
                yield Problem(
                    pointer,
                    "clients do not know where the credential goes: each has to be told by its operator",
                    "Declare the scheme in securitySchemes of 0.3 or 1.0; in a card of 0.1 only Basic and Bearer have "
                    "a place.",
                )


@rule(Severity.WARNING, "An alternative without any scheme admits everybody.", "7.4")
def anonymous_alternative(subject: Subject) -> Iterator[Problem]:
    for pointer, alternative in _alternatives(subject):
        if alternative.is_anonymous:
            yield Problem(
                pointer,
                "one alternative is enough, and this one requires nothing: everybody is admitted, whatever the other "
                "alternatives require",
                "Remove it, unless you want to admit anonymous callers.",
            )


@rule(Severity.WARNING, "Schemes are declared, and the card demands none of them.", "7.3")
def missing_requirements(subject: Subject) -> Iterator[Problem]:
    view = subject.view
    if view is not None and subject.is_whole and view.schemes and not view.requirements:
        yield Problem(
            f"/{spelling_of(subject.card, 'securitySchemes')}",
            "without securityRequirements clients conclude that everybody may call, and send no credential",
            "Add securityRequirements with the schemes that callers need.",
        )


@rule(Severity.NOTE, "The card declares no scheme and no requirement: everybody may call.", "7.3")
def no_authentication(subject: Subject) -> Iterator[Problem]:
    view = subject.view
    if view is not None and subject.is_whole and not view.schemes and not list(_alternatives(subject)):
        yield Problem(
            "",
            "the card says that everybody may call the agent; if the server requires credentials, clients do not know",
            "Declare securitySchemes and securityRequirements, unless everybody may call.",
        )


@rule(
    Severity.ERROR,
    "An extended card is promised to authenticated callers, and no requirement says how to authenticate.",
    "13.3",
)
def unguarded_extended_card(subject: Subject) -> Iterator[Problem]:
    view = subject.view
    if view is None or not subject.is_whole or not view.has_extended_card:
        return
    if all(alternative.is_anonymous for alternative in view.requirements or ()):
        capabilities = subject.card.get("capabilities")
        declared = capabilities if type(capabilities) is dict else {}
        name = spelling_of(declared, "extendedAgentCard")
        is_there = bool(declared.get(name))
        yield Problem(
            f"/capabilities/{name}" if is_there else "/supportsAuthenticatedExtendedCard",
            "the card offers an extended card to authenticated callers, and no requirement names a scheme for them",
            "Require a scheme in securityRequirements, or remove the extended card.",
        )


@rule(Severity.NOTE, "A requirement names a scope twice.", "4.5.1")
def duplicate_scope(subject: Subject) -> Iterator[Problem]:
    for path, scopes in scope_lists(subject):
        seen = set()
        for index, scope in enumerate(scopes):
            if scope in seen:
                yield Problem(
                    pointer_of((path, index)),
                    "the requirement names this scope twice, which has no meaning",
                    "Remove one of them.",
                )
            seen.add(scope)


def _alternatives(subject: Subject) -> Iterator[tuple[str, Alternative]]:
    """Every alternative of the card and of its skills, with its pointer."""
    card, view = subject.readable, subject.view
    if card is None or view is None:
        return
    for index, alternative in enumerate(view.requirements or ()):
        yield pointer_of((_requirements_at(card, None), index)), alternative
    for index, skill in enumerate(view.skills):
        path = _requirements_at(card["skills"][index], ((None, "skills"), index))
        for number, alternative in enumerate(skill.requirements or ()):
            yield pointer_of((path, number)), alternative


def _requirements_at(members: JSONObject, path: Path) -> Path:
    for name in ("securityRequirements", "security_requirements", "security"):
        if members.get(name):
            return (path, name)
    return ((path, "authentication"), "schemes")


def scope_lists(subject: Subject) -> Iterator[tuple[Path, list[str]]]:
    """Every list of scopes in requirements of any spelling, with its place."""
    for path, message, members in subject.objects:
        for name, value in members.items():
            here = (path, name)
            if message == "SecurityRequirement" and name == "schemes" and type(value) is dict:
                yield from (((here, scheme), _strings(scopes)) for scheme, scopes in value.items())
            elif message in ("SecurityRequirement", "SecurityRequirement03", "StringList"):
                yield here, _strings(value)


def _strings(value: JSON) -> list[str]:
    return value if type(value) is list and all(type(item) is str for item in value) else []


def _flows(subject: Subject, wanted: str, text: str, fix: str) -> Iterator[Problem]:
    return (Problem(pointer_of(path), text, fix) for path, message, _ in subject.objects if message == wanted)


@rule(Severity.WARNING, "The implicit flow of OAuth 2.0 is deprecated.", "4.5.7")
def implicit_flow(subject: Subject) -> Iterator[Problem]:
    text = "access tokens are returned in the URL, where browser histories and other sites see them (RFC 9700 2.1.2)"
    return _flows(subject, "ImplicitOAuthFlow", text, "Offer authorizationCode with PKCE.")


@rule(Severity.WARNING, "The password flow of OAuth 2.0 is deprecated.", "4.5.7")
def password_flow(subject: Subject) -> Iterator[Problem]:
    text = "clients get the passwords of people, which RFC 9700 2.4 forbids"
    return _flows(subject, "PasswordOAuthFlow", text, "Offer authorizationCode with PKCE, or deviceCode.")
