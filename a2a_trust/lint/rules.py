"""The rules of lint: one function each, in one table with id, severity, description and section of A2A 1.0.1.

A rule yields what it finds as pointer, message and mend. Texts hold no braces and brackets, which SARIF takes for
something else, and no values of the card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from a2a_trust.card.ambiguity import field_of
from a2a_trust.card.schema import MESSAGES, REQUIRED_0_3, Kind, Presence, proto_name
from a2a_trust.card.view import Alternative, NamedScheme
from a2a_trust.errors import MalformedError
from a2a_trust.keys.origins import host_of, interface_host
from a2a_trust.lint.document import Path, Subject, at, pointer_of, shown_name, spelled
from a2a_trust.lint.findings import Severity
from a2a_trust.lint.secret_shapes import is_private_jwk, is_secret_name, looks_random, secret_kind
from a2a_trust.net.addresses import address_of, is_loopback, is_public
from a2a_trust.signing.forms import Form, present_members, project
from a2a_trust.signing.python_resolver import rewritten_members
from a2a_trust.strict_json import JSON, JSONObject
from a2a_trust.strict_json.jcs import MAX_SAFE_INTEGER
from a2a_trust.strict_json.pointer import steps_of

__all__ = ["RULES", "Found", "Rule"]


class Found(NamedTuple):
    """What a rule finds; ``severity`` where it is not that of the rule."""

    pointer: str
    message: str
    mend: str
    severity: Severity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule: ``section`` is that of A2A 1.0.1, ``is_fixable`` tells that mending changes no meaning."""

    id: str
    severity: Severity
    description: str
    section: str
    check: Callable[[Subject], Iterable[Found]]
    is_fixable: bool = False


_RULES: Final[dict[str, Rule]] = {}

RULES: Final[Mapping[str, Rule]] = MappingProxyType(_RULES)
"""Every rule by its id, in the order in which findings of one severity are told."""

_Check: TypeAlias = Callable[[Subject], Iterator[Found]]


def _rule(
    id: str,
    severity: Severity,
    description: str,
    section: str,
    *,
    is_fixable: bool = False,
) -> Callable[[_Check], _Check]:
    def register(check: _Check) -> _Check:
        _RULES[id] = Rule(
            id=id, severity=severity, description=description, section=section, check=check, is_fixable=is_fixable
        )
        return check

    return register


_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


# Reading


@_rule("unreadable-document", _ERROR, "The file is not one JSON object that every reader reads alike.", "8.4.1")
def _unreadable_document(subject: Subject) -> Iterator[Found]:
    error = subject.unreadable
    if error is not None:
        reason = str(error).removeprefix("card: ")
        reason = "it cannot be read" if secret_kind(reason) else _plain(reason)
        yield Found("", f"{reason}; readers refuse such a file, or differ in what they make of it", "Correct the JSON.")


@_rule(
    "ambiguous-member",
    _ERROR,
    "A member has the wrong type, is there under two names, excludes or looks like another: readers disagree.",
    "5.5",
)
def _ambiguous_member(subject: Subject) -> Iterator[Found]:
    for refusal in subject.ambiguous:
        yield Found(
            _safe(refusal.pointer or ""),
            f"{_plain(refusal.reason)}; such a card cannot be signed or verified",
            "Write the member once, under its JSON name, with the type that A2A gives it.",
        )


#: What the JSON schemas of 0.2 and 0.3 demand where 1.0 demands something else, or nothing.
_REQUIRED_IN_0_3: Final = {
    "AgentCard": REQUIRED_0_3["AgentCard"],
    "AgentExtension": REQUIRED_0_3["AgentExtension"],
    "AgentInterface03": REQUIRED_0_3["AgentInterface"],
}
_REQUIRED_IN_0_1: Final = {
    "AgentCard": ("name", "url", "version", "capabilities", "skills"),
    "AgentSkill": ("id", "name"),
    "AgentProvider": ("organization",),
}
_REQUIRED: Final = {
    message: tuple(field.name for field in fields.values() if field.presence is Presence.REQUIRED)
    for message, fields in MESSAGES.items()
}


def _required(subject: Subject, message: str) -> tuple[str, ...]:
    if not subject.is_legacy:
        return _REQUIRED.get(message, ())
    if "authentication" in subject.card and message in _REQUIRED_IN_0_1:
        return _REQUIRED_IN_0_1[message]
    return _REQUIRED_IN_0_3.get(message, _REQUIRED.get(message, ()))


@_rule("missing-member", _ERROR, "A member that A2A demands (REQUIRED) is missing.", "5.7")
def _missing_member(subject: Subject) -> Iterator[Found]:
    for path, name in _missing(subject):
        yield Found(
            pointer_of((path, name)),
            f"{name} is missing, and A2A demands it: clients may refuse the card",
            f"Add {name}.",
        )


def _missing(subject: Subject) -> Iterator[tuple[Path, str]]:
    for path, message, members in subject.objects:
        for name in _required(subject, message):
            if members.get(name) is None and members.get(proto_name(name)) is None:
                yield path, name


@_rule("empty-member", _WARNING, "A member that A2A demands (REQUIRED) is an empty string or list.", "5.7")
def _empty_member(subject: Subject) -> Iterator[Found]:
    if subject.is_legacy:
        return
    for path, message, members in subject.objects:
        for name in _required(subject, message):
            for spelling in (name, proto_name(name)):
                if members.get(spelling) in ("", []):
                    yield Found(
                        pointer_of((path, spelling)),
                        f"{name} is empty: A2A demands at least one element of a list, clients expect a text, "
                        "and the forms in which SDKs sign differ about it",
                        f"Give {name} a value.",
                    )
                    break


@_rule("proto-name", _ERROR, "A member is written under its name of the proto file, in snake_case.", "5.5")
def _proto_name(subject: Subject) -> Iterator[Found]:
    for path, message, members in subject.objects:
        for name in members:
            field = field_of(message, name)
            if field is not None and field.name != name:
                yield Found(
                    pointer_of((path, name)),
                    f"clients that read JSON names only do not see {field.name}",
                    f"Write {field.name}.",
                )


@_rule("unknown-member", _NOTE, "A member that no version of A2A has.", "5.7")
def _unknown_member(subject: Subject) -> Iterator[Found]:
    for pointer in _unknown(subject):
        yield Found(
            pointer,
            "no version of A2A has this member: clients ignore it, and the pruned form of a2a-python and a2a-js does "
            "not sign it",
            "Move it into the params of an extension in capabilities, or leave it out.",
        )


def _unknown(subject: Subject) -> Iterator[str]:
    for path, message, members in subject.objects:
        if message in ("SecurityRequirement", "SecurityRequirement03"):
            continue  # names of schemes, see requirement-spelling
        for name in members:
            if field_of(message, name) is None and not (path is None and name == "signatures"):
                yield pointer_of((path, name))


@_rule("unsafe-integer", _ERROR, "An integer is beyond 53 bits.", "8.4.1")
def _unsafe_integer(subject: Subject) -> Iterator[Found]:
    for path, value in subject.values():
        if type(value) is int and abs(value) > MAX_SAFE_INTEGER:
            yield Found(
                pointer_of(path),
                "beyond 53 bits readers round integers, each to what it can hold (RFC 8785 3.2.2.3): "
                "such a card cannot be signed",
                "Write the number as a string.",
            )


# Forms


@_rule(
    "explicit-default",
    _NOTE,
    "A member is null or at its default, and the specification's canonical form leaves it out.",
    "8.4.1",
    is_fixable=True,
)
def _explicit_default(subject: Subject) -> Iterator[Found]:
    for pointer in _defaults(subject):
        yield Found(
            _safe(pointer),
            "it says nothing, and the card has several forms: SDKs that sign the card as it is served cover it, the "
            "specification leaves it out",
            "Leave it out; signing does so too.",
        )


@_rule(
    "several-forms",
    _WARNING,
    "A requirement, scheme or parameter vanishes from the pruned form, in which a2a-python and a2a-js sign.",
    "8.4.1",
)
def _several_forms(subject: Subject) -> Iterator[Found]:
    for pointer in _pruned(subject):
        what = _pruned_rule(pointer)
        if what is not None:
            yield Found(
                _safe(pointer),
                f"{what[0]}: a2a-python and a2a-js leave it out of what they verify, so that to them it can be changed "
                "unseen",
                what[1],
            )


@_rule("empty-value", _NOTE, "A member is empty, and the pruned form of a2a-python and a2a-js leaves it out.", "8.4.1")
def _empty_value(subject: Subject) -> Iterator[Found]:
    for pointer in _pruned(subject):
        if _pruned_rule(pointer) is None:
            yield Found(
                _safe(pointer),
                "the specification signs it and a2a-python and a2a-js do not: the card has several forms, and needs a "
                "second signature for their verifiers",
                "Give it a value, an explicit false is one, or leave it out where A2A does not demand it.",
            )


@_rule(
    "python-rewrites",
    _WARNING,
    "a2a-python 1.3 rewrites a member of 0.3 before it verifies a card of 1.0, and so rejects every signature.",
    "A.2",
)
def _python_rewrites(subject: Subject) -> Iterator[Found]:
    for pointer in () if subject.rest is None else rewritten_members(present_members(subject.rest)[0]):
        yield Found(
            _safe(pointer),
            "a2a-python 1.3 rewrites this member of 0.3 as one of 1.0 before it verifies: it rejects every signature "
            "of the card, since none covers the new member",
            "Write the member of 1.0 beside it or in its place; merged_card writes both.",
        )


def _pruned_rule(pointer: str) -> tuple[str, str] | None:
    """What is at stake when the pruned form drops this, and how one form can be had."""
    steps = steps_of(pointer)
    companion = "else sign with a2a-sign, whose full signature covers it and which adds one for those SDKs."
    if "securityRequirements" in steps[:3] or "security_requirements" in steps[:3]:
        return "a requirement without scopes", f"Name a scope if the scheme has any; {companion}"
    if steps[0] in ("securitySchemes", "security_schemes"):
        return "a scheme, or a part of one, with nothing in it", f"Give it a value, such as a description; {companion}"
    if "params" in steps:
        return "an empty value in params", f"Leave it out if that means the same; {companion}"
    return None


def _defaults(subject: Subject) -> tuple[str, ...]:
    """What signing would drop: nothing of cards before 1.0, which are signed as they are."""
    if subject.rest is None or subject.is_legacy:
        return ()
    return present_members(subject.rest)[1]


_SCHEMES: Final = ("/securitySchemes/", "/security_schemes/")


def _pruned(subject: Subject) -> Iterator[str]:
    """What only the pruned form drops, and no other rule tells of it or of what is in it."""
    if subject.rest is None or subject.is_legacy:
        return
    told = {*_unknown(subject), *(found.pointer for found in _empty_member(subject))}
    told.update(found.pointer for found in _requirement_spelling(subject))
    told.update(found.pointer for found in _missing_twin(subject) if found.pointer.startswith(_SCHEMES))
    around = {pointer[:at] for pointer in told for at, char in enumerate(pointer) if char == "/"}
    for pointer in project(present_members(subject.rest)[0], Form.PRUNED).dropped:
        safe = _safe(pointer)
        if safe not in told and safe not in around and not _is_legacy_member(pointer):
            yield pointer


def _is_legacy_member(pointer: str) -> bool:
    """Whether it is of 0.3 only. In a merged card all of that is left out: what signs it is the full signature."""
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


# Who may call


@_rule(
    "unread-member",
    _ERROR,
    "A scheme, requirement, interface or capability cannot be read, or contradicts what the card says elsewhere.",
    "4.5",
)
def _unread_member(subject: Subject) -> Iterator[Found]:
    if not subject.unread:
        return
    missing = set(_missing(subject))
    for refusal in subject.unread:
        path = spelled(subject.card, refusal.pointer or "")
        if path not in missing:
            yield Found(
                pointer_of(path),
                f"{_plain(refusal.reason)}; clients may read it as no requirement at all",
                "Write it as A2A 1.0 has it, or make both spellings say the same.",
            )


@_rule(
    "requirement-spelling",
    _ERROR,
    "A requirement of 1.0 is written in another spelling, which some clients read as no requirement.",
    "4.5.1",
)
def _requirement_spelling(subject: Subject) -> Iterator[Found]:
    for path, message, members in subject.objects:
        if message != "SecurityRequirement":
            continue
        schemes = members.get("schemes")
        if members and (type(schemes) is list or "schemes" not in members):
            yield Found(
                pointer_of(path),
                "names of schemes stand where 1.0 has the member schemes: clients of 1.0 find none, and take it that "
                "everybody may call",
                "Write an object with the member schemes around the names, and each one's scopes as its list.",
            )
        for name, scopes in schemes.items() if type(schemes) is dict else ():
            if type(scopes) is list:
                yield Found(
                    pointer_of(((path, "schemes"), name)),
                    "the scopes stand where 1.0 has an object with the member list, as a2a-go writes them: other SDKs "
                    "refuse the card",
                    "Write an object with the scopes as its list.",
                )


_WRAPPERS: Final = tuple(MESSAGES["SecurityScheme"])


@_rule(
    "missing-twin",
    _WARNING,
    "A requirement or scheme is written for clients of one generation, and the card has interfaces for another.",
    "A.2",
)
def _missing_twin(subject: Subject) -> Iterator[Found]:
    card = subject.card
    speaks_0_3 = subject.is_legacy or isinstance(card.get("url"), str)
    speaks_1_0 = bool(_either(card, "supportedInterfaces")) or not speaks_0_3
    for path, message, members in subject.objects:
        if message in ("AgentCard", "AgentSkill"):
            new, old = bool(_either(members, "securityRequirements")), bool(members.get("security"))
            names = ("securityRequirements", "security")
        elif message == "SecurityScheme" and members:
            new = any(_either(members, name) is not None for name in _WRAPPERS)
            old = members.get("type") is not None
            names = ("the member of 1.0, such as httpAuthSecurityScheme,", "the members of 0.3, with type,")
        else:
            continue
        for speaks, there, twin, said, missing, generation in (
            (speaks_1_0, new, old, names[1], names[0], "1.0"),
            (speaks_0_3, old, new, names[0], names[1], "0.2 and 0.3"),
        ):
            if speaks and twin and not there:
                place = path if message == "SecurityScheme" else (path, _name_of(members, said))
                yield Found(
                    pointer_of(place),
                    f"clients of {generation}, for which the card has an interface, do not read this: to them no "
                    "credential is needed, or the scheme says nothing",
                    f"Write {missing} beside it; merged_card does that for cards of 1.0.",
                )


@_rule("undeclared-scheme", _ERROR, "A requirement names a scheme that the card does not declare.", "4.5.1")
def _undeclared_scheme(subject: Subject) -> Iterator[Found]:
    if subject.view is None:
        return
    declared = _either(subject.card, "securitySchemes")
    names = {*subject.view.schemes, *(declared if type(declared) is dict else ())}
    for pointer, alternative in _alternatives(subject):
        for name, _ in alternative.schemes:
            if name not in names:
                yield Found(
                    pointer,
                    f"the scheme {shown_name(name)} is not among securitySchemes: no client can know what to send",
                    "Declare it, or name one that is declared.",
                )


@_rule("unused-scheme", _NOTE, "A scheme is declared, and no requirement names it.", "4.5.1")
def _unused_scheme(subject: Subject) -> Iterator[Found]:
    if subject.view is None or not subject.is_whole:
        return
    used = {name for _, alternative in _alternatives(subject) for name, _ in alternative.schemes}
    if not used:
        return  # see missing-requirements
    for name, scheme in subject.view.schemes.items():
        if name not in used and not isinstance(scheme, NamedScheme):
            yield Found(
                pointer_of(((None, _name_of(subject.card, "securitySchemes")), name)),
                "no requirement names this scheme: clients do not use it",
                "Name it in a requirement, or leave it out.",
            )


@_rule("anonymous-alternative", _WARNING, "An alternative without any scheme lets everybody in.", "7.4")
def _anonymous_alternative(subject: Subject) -> Iterator[Found]:
    for pointer, alternative in _alternatives(subject):
        if alternative.is_anonymous:
            yield Found(
                pointer,
                "one alternative is enough, and this one demands nothing: everybody is let in, whatever the others say",
                "Take it out, unless anonymous callers are meant.",
            )


@_rule("missing-requirements", _WARNING, "Schemes are declared, and the card demands none of them.", "7.3")
def _missing_requirements(subject: Subject) -> Iterator[Found]:
    view = subject.view
    if view is not None and subject.is_whole and view.schemes and not view.requirements:
        yield Found(
            f"/{_name_of(subject.card, 'securitySchemes')}",
            "without securityRequirements clients read that everybody may call, and send no credential",
            "Add securityRequirements with the schemes that are demanded.",
        )


@_rule("no-authentication", _NOTE, "The card declares no scheme and no requirement: everybody may call.", "7.3")
def _no_authentication(subject: Subject) -> Iterator[Found]:
    view = subject.view
    if view is not None and subject.is_whole and not view.schemes and not list(_alternatives(subject)):
        yield Found(
            "",
            "the card says that everybody may call the agent; if the server asks for credentials, clients cannot know",
            "Declare securitySchemes and securityRequirements, unless everybody may call.",
        )


@_rule(
    "unguarded-extended-card",
    _ERROR,
    "An extended card is promised to authenticated callers, and no requirement says how to authenticate.",
    "13.3",
)
def _unguarded_extended_card(subject: Subject) -> Iterator[Found]:
    view = subject.view
    if view is None or not subject.is_whole or not view.has_extended_card:
        return
    if all(alternative.is_anonymous for alternative in view.requirements or ()):
        capabilities = subject.card.get("capabilities")
        name = _name_of(capabilities if type(capabilities) is dict else {}, "extendedAgentCard")
        path: Path = (None, "supportsAuthenticatedExtendedCard")
        if at(subject.card, f"/capabilities/{name}"):
            path = ((None, "capabilities"), name)
        yield Found(
            pointer_of(path),
            "an extended card is for authenticated callers, and no requirement names a scheme to authenticate with",
            "Demand a scheme in securityRequirements, or leave the extended card out.",
        )


@_rule("duplicate-scope", _NOTE, "A requirement names a scope twice.", "4.5.1")
def _duplicate_scope(subject: Subject) -> Iterator[Found]:
    for path, scopes in _scope_lists(subject):
        seen = set()
        for index, scope in enumerate(scopes):
            if scope in seen:
                yield Found(
                    pointer_of((path, index)),
                    "the scope is named twice: it says nothing more, and is signed twice",
                    "Leave it out.",
                )
            seen.add(scope)


def _alternatives(subject: Subject) -> Iterator[tuple[str, Alternative]]:
    """Every alternative of the card and of its skills, and where it stands."""
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


def _scope_lists(subject: Subject) -> Iterator[tuple[Path, list[str]]]:
    """Every list of scopes that a requirement of any spelling has, and where it stands."""
    for path, message, members in subject.objects:
        for name, value in members.items():
            here = (path, name)
            if message == "SecurityRequirement" and name == "schemes" and type(value) is dict:
                yield from (((here, scheme), _strings(scopes)) for scheme, scopes in value.items())
            elif message in ("SecurityRequirement", "SecurityRequirement03", "StringList"):
                yield here, _strings(value)


def _strings(value: JSON) -> list[str]:
    return value if type(value) is list and all(type(item) is str for item in value) else []


# URLs


class _Url(NamedTuple):
    path: Path
    text: str
    is_link: bool
    """Whether it is for people, not for calls or credentials."""


_LINKS: Final = ("documentationUrl", "iconUrl")


def _urls(subject: Subject) -> Iterator[_Url]:
    for path, message, members in subject.objects:
        for name, value in members.items():
            field = field_of(message, name)
            if type(value) is not str or not value or field is None or not field.name.lower().endswith("url"):
                continue
            yield _Url((path, name), value, message == "AgentProvider" or field.name in _LINKS)


@_rule(
    "http-url",
    _ERROR,
    "Calls or credentials go over a connection that is not encrypted; a warning for loopback hosts.",
    "7.1",
)
def _http_url(subject: Subject) -> Iterator[Found]:
    for url in _urls(subject):
        if url.is_link or not url.text.lower().startswith(("http://", "ws://")):
            continue
        if _is_loopback(url.text):
            yield Found(
                pointer_of(url.path),
                "the connection is not encrypted; nothing leaves this machine while the client runs on it too",
                "Before others use the card, serve it over TLS under a public name, and write https.",
                _WARNING,
            )
        else:
            yield Found(
                pointer_of(url.path),
                "whoever is on the way reads and changes what is sent, credentials too",
                "Serve it over TLS, and write https.",
            )


def _is_loopback(url: str) -> bool:
    """Whether every reader takes the host of the URL for the machine that the client runs on (RFC 6761 6.3)."""
    try:
        host = host_of(url)
        address = address_of(host)
    except (MalformedError, ValueError):
        return False  # see unclear-url
    return f".{host}".endswith(".localhost") if address is None else is_loopback(address)


@_rule("http-link", _NOTE, "A link for people is not encrypted.", "13.4")
def _http_link(subject: Subject) -> Iterator[Found]:
    for url in _urls(subject):
        if url.is_link and url.text.lower().startswith("http://"):
            yield Found(pointer_of(url.path), "whoever is on the way can change what people are shown", "Write https.")


#: Names that lead nowhere in the public DNS: RFC 6761, RFC 6762, RFC 8375, and ICANN's reserved internal.
_PRIVATE_NAMES: Final = (".localhost", ".local", ".internal", ".home.arpa", ".test", ".invalid")


@_rule("private-url", _WARNING, "A URL leads to a host that others cannot reach, or that is theirs.", "8.3.1")
def _private_url(subject: Subject) -> Iterator[Found]:
    for url in _urls(subject):
        try:
            host = host_of(url.text)
            address = address_of(host)
        except (MalformedError, ValueError):
            continue  # see unclear-url
        dotted = f".{host}"
        is_private = dotted.endswith(_PRIVATE_NAMES) or "." not in host if address is None else not is_public(address)
        if is_private:
            yield Found(
                pointer_of(url.path),
                "the host is of this machine or of a private network: elsewhere nothing answers, or another server "
                "does, and gets the credentials",
                "Write the public name of the server.",
            )


@_rule("unclear-url", _ERROR, "Readers differ in which host a URL leads to, or find none in it.", "8.3.1")
def _unclear_url(subject: Subject) -> Iterator[Found]:
    for url in _urls(subject):
        if url.is_link or secret_kind(url.text):
            continue
        try:
            read = interface_host if pointer_of(url.path).endswith("/url") else host_of
            read(url.text)
        except MalformedError:
            yield Found(
                pointer_of(url.path),
                "no host that every reader takes for the same: credentials may go to another one",
                "Write https://host/path, names in their xn-- form, or host:port for gRPC; no other scheme, no user "
                "information.",
            )


@_rule("implicit-flow", _WARNING, "The implicit flow of OAuth 2.0 is deprecated.", "4.5.7")
def _implicit_flow(subject: Subject) -> Iterator[Found]:
    for path, message, _ in subject.objects:
        if message == "ImplicitOAuthFlow":
            yield Found(
                pointer_of(path),
                "access tokens come back in the URL, where histories and other sites see them (RFC 9700 2.1.2)",
                "Offer authorizationCode with PKCE.",
            )


@_rule("password-flow", _WARNING, "The password flow of OAuth 2.0 is deprecated.", "4.5.7")
def _password_flow(subject: Subject) -> Iterator[Found]:
    for path, message, _ in subject.objects:
        if message == "PasswordOAuthFlow":
            yield Found(
                pointer_of(path),
                "clients are handed people's passwords, which RFC 9700 2.4 forbids",
                "Offer authorizationCode with PKCE, or deviceCode.",
            )


# Texts


_BREAKS: Final = frozenset("\t\n\r\u2028\u2029")
_CONTROLS: Final = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0)))) - _BREAKS
_BIDIRECTIONAL: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
#: Without those that scripts and emoji are written with: the joiners U+200C and U+200D, the selector U+FE0F.
_INVISIBLE: Final = frozenset(
    map(
        chr,
        (
            *(0xAD, 0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x200B, 0x2800, 0x3164, 0xFEFF, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0x2060, 0x2066),
            *range(0x206A, 0x2070),
            *range(0xFE00, 0xFE0F),
            *range(0xFFF0, 0xFFFC),
            *range(0xE0000, 0xE1000),
        ),
    )
)


def _with_any(subject: Subject, characters: frozenset[str], in_names: frozenset[str]) -> Iterator[str]:
    for path, text, is_name in subject.texts():
        if not (text.isascii() and text.isprintable()) and not (in_names if is_name else characters).isdisjoint(text):
            yield pointer_of(path)


@_rule("control-character", _WARNING, "A text has control characters.", "13.4")
def _control_character(subject: Subject) -> Iterator[Found]:
    for pointer in _with_any(subject, _CONTROLS, _CONTROLS | _BREAKS):
        yield Found(
            pointer,
            "control characters steer the terminals and logs in which the text is shown",
            "Take them out; line breaks and tabs are fine, in values.",
        )


@_rule("bidirectional-character", _WARNING, "A text has characters that turn the direction of writing.", "13.4")
def _bidirectional_character(subject: Subject) -> Iterator[Found]:
    for pointer in _with_any(subject, _BIDIRECTIONAL, _BIDIRECTIONAL):
        yield Found(
            pointer,
            "people are shown the text in another order than programs read it: a name or URL can look like another one",
            "Take them out; text in one script needs none.",
        )


@_rule("invisible-character", _WARNING, "A text has characters that nobody sees.", "13.4")
def _invisible_character(subject: Subject) -> Iterator[Found]:
    for pointer in _with_any(subject, _INVISIBLE, _INVISIBLE):
        yield Found(
            pointer,
            "programs and language models read what people are not shown: names that only look alike, or instructions",
            "Take them out.",
        )


@_rule("case-only-names", _WARNING, "Two schemes, scopes or skills differ in upper and lower case only.", "4.5.1")
def _case_only_names(subject: Subject) -> Iterator[Found]:
    for names in _groups(subject):
        first: dict[str, str] = {}
        for path, name in names:
            if first.setdefault(name.casefold(), name) != name:
                yield Found(
                    pointer_of(path),
                    "it differs from another name in upper and lower case only: people and some programs take one for "
                    "the other",
                    "Give one of them another name.",
                )


def _groups(subject: Subject) -> Iterator[list[tuple[Path, str]]]:
    """Names that must not be taken for each other, and where they stand."""
    for path, message, members in subject.objects:
        if message == "AgentCard":
            schemes, skills = (_either(members, name) for name in ("securitySchemes", "skills"))
            here: Path = (path, _name_of(members, "securitySchemes"))
            yield [((here, name), name) for name in schemes] if type(schemes) is dict else []
            yield [
                ((((path, "skills"), index), "id"), skill["id"])
                for index, skill in enumerate(skills if type(skills) is list else ())
                if type(skill) is dict and type(skill.get("id")) is str
            ]
        elif message.endswith("OAuthFlow") and type(members.get("scopes")) is dict:
            yield [(((path, "scopes"), name), name) for name in members["scopes"]]
    for path, scopes in _scope_lists(subject):
        yield [((path, index), scope) for index, scope in enumerate(scopes)]


@_rule("secret", _ERROR, "A key, token or password is in the card, which everybody can read.", "13.4")
def _secret(subject: Subject) -> Iterator[Found]:
    mend = "Take it out and revoke it: what was published stays known."
    for path, value in subject.values():
        private = is_private_jwk(value) if type(value) is dict else None
        if private is not None:
            yield Found(pointer_of((path, private)), "the private half of a key, which everybody can read here", mend)
    for path, text, is_name in subject.texts():
        kind = secret_kind(text)
        if kind is not None:
            where = "the name of a member" if is_name else "the text"
            yield Found(pointer_of(path), f"{where} looks like {kind}, and everybody can read it", mend)


#: How names of members end whose random texts are public; those of one or two letters are members of public JWKs.
_PUBLIC: Final = ("key", "hash", "digest", "signature", "address", "fingerprint", "thumbprint", "did", "cid", "id")


@_rule("possible-secret", _WARNING, "A text is as random as a key or token, or stands where secrets do.", "13.4")
def _possible_secret(subject: Subject) -> Iterator[Found]:
    for path, text, is_name in subject.texts():
        name = _member_name(path)
        by_name = is_secret_name(name)
        is_public_name = not by_name and (name.lower().endswith(_PUBLIC) or len(name) <= 2)
        if is_name or is_public_name or not looks_random(text, by_name=by_name) or _is_signature(path):
            continue
        if secret_kind(text) is None:
            yield Found(
                pointer_of(path),
                "it looks like a secret, and everybody can read the card",
                "If it is one, take it out and revoke it.",
            )


def _is_signature(path: Path) -> bool:
    while path is not None and path[0] is not None:
        path = path[0]
    return path == (None, "signatures")


def _member_name(path: Path) -> str:
    """The name of the innermost member on the way."""
    while path is not None:
        path, step = path
        if isinstance(step, str):
            return step
    return ""


# What the rules share


def _either(members: JSONObject, name: str) -> JSON:
    """A member under its JSON or its proto name."""
    value = members.get(name)
    return members.get(proto_name(name)) if value is None else value


def _name_of(members: JSONObject, name: str) -> str:
    """The name under which a member is there; its JSON name when it is not."""
    return proto_name(name) if members.get(name) is None and proto_name(name) in members else name


def _safe(pointer: str) -> str:
    """The pointer without names that look like secrets, cut."""
    path: Path = None
    for step in steps_of(pointer):
        path = (path, step)
    return pointer_of(path)


def _plain(text: str) -> str:
    """The text of an error without the braces and brackets of its examples."""
    return text.translate(dict.fromkeys(map(ord, "{}[]")))
