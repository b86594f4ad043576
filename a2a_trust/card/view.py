"""The content of a card of any generation: 0.1, 0.2, 0.3, 1.0, and merged cards of two generations.

``generation_of`` and ``interface_urls`` read a card directly. ``read_card`` reads security schemes, requirements,
interfaces and skills, in all spellings that are in use, into one frozen view. It rejects every member that it cannot
read, because an unreadable requirement must never look like no requirement. If a merged card has two members for one
rule (``security`` and ``securityRequirements``), both must be equal.

Source: A2A 1.0.1 sections 4.4 and 4.5, the JSON schemas of 0.1 to 0.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import JSON, JSONObject
from a2a_trust.base.strict_json.pointer import escape_step
from a2a_trust.card.schema import (
    DEFAULTS_0_3,
    KEY_LOCATIONS,
    LEGACY_MEMBERS,
    MESSAGES,
    REQUIREMENT_MEMBERS,
    SCHEME_TYPES,
    Generation,
    proto_name,
)
from a2a_trust.errors import MalformedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyScheme:
    """A key in a header, a query parameter or a cookie: ``location`` is one of those words, ``parameter`` its name."""

    name: str
    location: str
    parameter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpScheme:
    """An HTTP authentication scheme; ``scheme`` is its name in lower case, as in ``bearer`` and ``basic``."""

    name: str
    scheme: str


class OAuthFlow(NamedTuple):
    """One OAuth 2.0 flow of a scheme: its name (``authorizationCode`` …), its URLs by member name, its scopes."""

    kind: str
    urls: tuple[tuple[str, str], ...]
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2Scheme:
    """OAuth 2.0; ``metadata_url`` is for RFC 8414; None if the card has none."""

    name: str
    flows: tuple[OAuthFlow, ...]
    metadata_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdConnectScheme:
    """OpenID Connect, with the URL of its provider's metadata."""

    name: str
    discovery_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MutualTlsScheme:
    """Client certificates."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedScheme:
    """A scheme of a 0.1 card, which is only a word: ``apiKey``, ``bearer``, ``public`` …"""

    name: str


SecurityScheme: TypeAlias = (
    ApiKeyScheme | HttpScheme | OAuth2Scheme | OpenIdConnectScheme | MutualTlsScheme | NamedScheme
)


class Alternative(NamedTuple):
    """One alternative: all of these schemes, each with its scopes. An alternative without schemes admits everybody."""

    schemes: tuple[tuple[str, frozenset[str]], ...]
    """Scheme names and scopes, in order of the names."""

    @property
    def is_anonymous(self) -> bool:
        return not self.schemes


class Interface(NamedTuple):
    """An interface of the agent; ``pointer`` is the JSON pointer to its URL in the card."""

    pointer: str
    url: str
    binding: str
    version: str
    tenant: str

    @property
    def generation(self) -> Generation:
        """The generation of its version; without a version, the generation of the member that names the interface."""
        if self.version.startswith("0.1"):
            return Generation.V0_1
        if self.version.startswith("0.") or not (self.version or self.pointer.startswith("/supportedInterfaces/")):
            return Generation.V0_3
        return Generation.V1_0

    @property
    def is_legacy(self) -> bool:
        return self.generation is not Generation.V1_0


class Skill(NamedTuple):
    """A skill, and its own requirements in addition to the card's; None if it has none."""

    id: str
    requirements: tuple[Alternative, ...] | None


class CardView(NamedTuple):
    """The security rules of a card. ``requirements`` is None if the card has no such member."""

    name: str
    schemes: Mapping[str, SecurityScheme]
    requirements: tuple[Alternative, ...] | None
    interfaces: tuple[Interface, ...]
    skills: tuple[Skill, ...]
    has_extended_card: bool
    has_push_notifications: bool
    generation: Generation

    @property
    def is_legacy(self) -> bool:
        return self.generation.is_legacy

    @property
    def alternatives(self) -> list[Alternative]:
        """All alternatives of the card, then of its skills."""
        lists = (self.requirements, *(skill.requirements for skill in self.skills))
        return [alternative for each in lists for alternative in each or ()]

    @property
    def login_urls(self) -> frozenset[str]:
        """The URLs that credentials and users are sent to: for tokens, authorization, refresh, devices, and metadata
        with such URLs."""
        urls: set[str] = set()
        for scheme in self.schemes.values():
            if isinstance(scheme, OAuth2Scheme):
                urls |= {url for flow in scheme.flows for _, url in flow.urls}
                urls |= {scheme.metadata_url} if scheme.metadata_url else set()
            elif isinstance(scheme, OpenIdConnectScheme):
                urls.add(scheme.discovery_url)
        return frozenset(urls)


def generation_of(card: Mapping[str, JSON]) -> Generation:
    """The generation of a card: before 1.0 if it has members of that time, and no ``supportedInterfaces``.

    A merged card is a card of 1.0.
    """
    if card.get("supportedInterfaces") or card.get("supported_interfaces") or LEGACY_MEMBERS.isdisjoint(card):
        return Generation.V1_0
    return Generation.V0_1 if "authentication" in card else Generation.V0_3


def without_signatures(card: Mapping[str, Any]) -> JSONObject:
    """A copy of the card without ``signatures``, in its own order."""
    members = dict(card)
    members.pop("signatures", None)
    return members


def interface_urls(card: JSONObject) -> list[tuple[str, str]]:
    """JSON pointer and URL of every interface of the card, in its order.

    It reads ``supportedInterfaces`` of 1.0, ``url`` and ``additionalInterfaces`` of 0.2 and 0.3, under their JSON and
    their proto names. The card must be unambiguous, so every member has the right type.
    """
    found = []
    if isinstance(card.get("url"), str):
        found.append(("/url", card["url"]))
    for name in ("supportedInterfaces", "supported_interfaces", "additionalInterfaces", "additional_interfaces"):
        for index, interface in enumerate(card.get(name) or ()):
            if isinstance(interface.get("url"), str):
                found.append((f"/{name}/{index}/url", interface["url"]))
    return found


def read_card(document: bytes | Mapping[str, Any]) -> CardView:
    """Read what a card demands: its schemes, requirements, skills and interfaces.

    MalformedError: a member cannot be read, or contradicts its counterpart of another generation; ``pointer`` names it.
    """
    card = strict_json.parse(document, what="card") if isinstance(document, bytes) else document
    if not isinstance(card, Mapping):
        raise _unread("", "a JSON object is needed")
    schemes = _schemes(card)
    requirements = _requirements(card, "")
    words = _words_of_0_1(card)
    if words is not None:
        if requirements is not None:
            raise _unread("/authentication", "it stands beside security or securityRequirements; keep one of them")
        requirements = tuple(Alternative(((word, frozenset()),)) for word in words)
        schemes = {**{word: NamedScheme(name=word) for word in words}, **schemes}
    return CardView(
        name=_text(card, "name", ""),
        schemes=MappingProxyType(schemes),
        requirements=requirements,
        interfaces=tuple(read_interfaces(card)),
        skills=tuple(_skills(card)),
        has_extended_card=_has_extended_card(card),
        has_push_notifications=_has_push_notifications(card),
        generation=generation_of(card),
    )


def _unread(pointer: str, reason: str) -> MalformedError:
    return MalformedError(f"card: {ascii(pointer[:256])[1:-1]}: {reason}", pointer, reason)


def _member(members: Mapping[str, JSON], name: str, pointer: str) -> JSON:
    """A member under its JSON or its proto name; MalformedError if the object has both."""
    proto = proto_name(name)
    value, twin = members.get(name), members.get(proto) if proto != name else None
    if value is not None and twin is not None:
        raise _unread(f"{pointer}/{proto}", f"it stands beside {name}; keep {name}")
    return twin if value is None else value


def _object(value: JSON, pointer: str) -> Mapping[str, JSON]:
    if not isinstance(value, Mapping):
        raise _unread(pointer, "an object is needed")
    return value


def _list(value: JSON, pointer: str) -> list[JSON]:
    if not isinstance(value, list):
        raise _unread(pointer, "a list is needed")
    return value


def _text(members: Mapping[str, JSON], name: str, pointer: str, *, needed: bool = False) -> str:
    value = _member(members, name, pointer)
    if value is None and not needed:
        return ""
    if not isinstance(value, str) or (needed and not value):
        raise _unread(f"{pointer}/{name}", "a string is needed" + (" that is not empty" if needed else ""))
    return value


def _requirements(holder: Mapping[str, JSON], pointer: str) -> tuple[Alternative, ...] | None:
    """The requirements of a card or a skill, in the spelling of 1.0, of 0.3, or of both if they are equal."""
    for member in holder:
        begin = member.partition("\0")[0].casefold()  # to protobuf's reader in Python, a name ends at its first NUL
        if member not in REQUIREMENT_MEMBERS and begin in map(str.casefold, REQUIREMENT_MEMBERS):
            raise _unread(
                f"{pointer}/{escape_step(member)}", "write securityRequirements; in this spelling it goes unread"
            )
    found = {}
    for name in ("securityRequirements", "security"):
        value = _member(holder, name, pointer)
        if value is not None:
            here = f"{pointer}/{name}"
            found[name] = tuple(_alternative(item, f"{here}/{index}") for index, item in enumerate(_list(value, here)))
    if len(found) == 2 and set(found["security"]) != set(found["securityRequirements"]):
        raise _unread(f"{pointer}/security", "it contradicts securityRequirements; make them equal or keep one")
    return next(iter(found.values()), None)


def _alternative(value: JSON, pointer: str) -> Alternative:
    """One requirement: ``{"schemes": {name: {"list": scopes}}}`` of 1.0, ``{"schemes": {name: scopes}}`` of a2a-go, or
    ``{name: scopes}`` of 0.2 and 0.3, which some cards of 1.0 have, too."""
    members = _object(value, pointer)
    inner = members.get("schemes")
    if "schemes" in members and not isinstance(inner, list):
        if set(members) != {"schemes"}:
            raise _unread(pointer, "schemes has other members beside it, which would go unread")
        members = {} if inner is None else _object(inner, f"{pointer}/schemes")
        pointer = f"{pointer}/schemes"
    return Alternative(
        tuple(sorted((name, _scopes(scopes, f"{pointer}/{escape_step(name)}")) for name, scopes in members.items()))
    )


def _scopes(value: JSON, pointer: str) -> frozenset[str]:
    if isinstance(value, Mapping):
        if not set(value) <= {"list"}:
            raise _unread(pointer, 'scopes are {"list": […]}; other members would go unread')
        value = value.get("list")
        if value is None:
            value = []
    scopes = _list(value, pointer)
    if not all(isinstance(scope, str) and scope for scope in scopes):
        raise _unread(pointer, "scopes are strings that are not empty")
    return frozenset(scopes)


def _words_of_0_1(card: Mapping[str, JSON]) -> list[str] | None:
    value = card.get("authentication")
    if value is None:
        return None
    words = _list(_object(value, "/authentication").get("schemes"), "/authentication/schemes")
    if not all(isinstance(word, str) and word for word in words):
        raise _unread("/authentication/schemes", "strings are needed")
    return words


def _schemes(card: Mapping[str, JSON]) -> dict[str, SecurityScheme]:
    value = _member(card, "securitySchemes", "")
    if value is None:
        return {}
    members = _object(value, "/securitySchemes")
    return {name: _scheme(name, item, f"/securitySchemes/{escape_step(name)}") for name, item in members.items()}


def _scheme(name: str, value: JSON, pointer: str) -> SecurityScheme:
    """One scheme: the wrapper of 1.0, the flat form of 0.2 and 0.3, or both in a merged card if they are equal."""
    members = _object(value, pointer)
    said = []
    for wrapper, kind in SCHEME_TYPES.items():
        inner = _member(members, wrapper, pointer)
        if inner is not None:
            said.append(_scheme_of(kind, name, _object(inner, f"{pointer}/{wrapper}"), f"{pointer}/{wrapper}"))
    if members.get("type") is not None:
        kind = _text(members, "type", pointer)
        if kind not in SCHEME_TYPES.values():
            raise _unread(f"{pointer}/type", f"one of {', '.join(SCHEME_TYPES.values())} is needed")
        said.append(_scheme_of(kind, name, members, pointer))
    if not said:
        raise _unread(pointer, "no kind of scheme is named; write one of " + ", ".join(SCHEME_TYPES))
    if any(other != said[0] for other in said[1:]):
        raise _unread(pointer, "it says two different things; make them equal or keep one")
    return said[0]


def _scheme_of(kind: str, name: str, members: Mapping[str, JSON], pointer: str) -> SecurityScheme:
    if kind == "apiKey":
        said = {word for word in (_text(members, "location", pointer), _text(members, "in", pointer)) if word}
        if len(said) > 1:
            raise _unread(f"{pointer}/in", "it contradicts location; keep one of them")
        location = "".join(said)
        if location not in KEY_LOCATIONS:
            raise _unread(f"{pointer}/location", "header, query or cookie is needed")
        return ApiKeyScheme(name=name, location=location, parameter=_text(members, "name", pointer, needed=True))
    if kind == "http":
        return HttpScheme(name=name, scheme=_text(members, "scheme", pointer, needed=True).lower())
    if kind == "oauth2":
        flows = _member(members, "flows", pointer)
        return OAuth2Scheme(
            name=name,
            flows=tuple(_flows({} if flows is None else flows, f"{pointer}/flows")),
            metadata_url=_text(members, "oauth2MetadataUrl", pointer) or None,
        )
    if kind == "openIdConnect":
        return OpenIdConnectScheme(name=name, discovery_url=_text(members, "openIdConnectUrl", pointer, needed=True))
    return MutualTlsScheme(name=name)


def _flows(value: JSON, pointer: str) -> Iterator[OAuthFlow]:
    members = _object(value, pointer)
    for kind in sorted(MESSAGES["OAuthFlows"]):
        flow = _member(members, kind, pointer)
        if flow is None:
            continue
        here = f"{pointer}/{kind}"
        inner = _object(flow, here)
        scopes = _object(_member(inner, "scopes", here) or {}, f"{here}/scopes")
        names = ("authorizationUrl", "deviceAuthorizationUrl", "refreshUrl", "tokenUrl")
        urls = tuple((name, url) for name in names if (url := _text(inner, name, here)))
        yield OAuthFlow(kind=kind, urls=urls, scopes=frozenset(scopes))


def read_interfaces(card: Mapping[str, JSON]) -> Iterator[Interface]:
    """The interfaces of a card; MalformedError as for ``read_card``."""
    url = _text(card, "url", "")
    version = _text(card, "protocolVersion", "")
    if url:
        binding = _text(card, "preferredTransport", "") or DEFAULTS_0_3["preferredTransport"]
        yield Interface(pointer="/url", url=url, binding=binding, version=version, tenant="")
    for name, binding_name in (("additionalInterfaces", "transport"), ("supportedInterfaces", "protocolBinding")):
        value = _member(card, name, "")
        for index, item in enumerate(_list([] if value is None else value, f"/{name}")):
            pointer = f"/{name}/{index}"
            members = _object(item, pointer)
            yield Interface(
                pointer=f"{pointer}/url",
                url=_text(members, "url", pointer, needed=True),
                binding=_text(members, binding_name, pointer),
                version=_text(members, "protocolVersion", pointer) or version,
                tenant=_text(members, "tenant", pointer),
            )


def _skills(card: Mapping[str, JSON]) -> Iterator[Skill]:
    value = _member(card, "skills", "")
    for index, item in enumerate(_list([] if value is None else value, "/skills")):
        pointer = f"/skills/{index}"
        members = _object(item, pointer)
        yield Skill(id=_text(members, "id", pointer), requirements=_requirements(members, pointer))


def _has_push_notifications(card: Mapping[str, JSON]) -> bool:
    capabilities = _object(_member(card, "capabilities", "") or {}, "/capabilities")
    # Some cards have the text "True", which some programs read as true.
    return _member(capabilities, "pushNotifications", "/capabilities") not in (None, False)


def _has_extended_card(card: Mapping[str, JSON]) -> bool:
    capabilities = _object(_member(card, "capabilities", "") or {}, "/capabilities")
    said = []
    for value in (
        _member(capabilities, "extendedAgentCard", "/capabilities"),
        _member(card, "supportsAuthenticatedExtendedCard", ""),
    ):
        if value is not None and type(value) is not bool:
            raise _unread("/capabilities/extendedAgentCard", "true or false is needed")
        if value is not None and value not in said:
            said.append(value)
    if len(said) > 1:
        raise _unread("/supportsAuthenticatedExtendedCard", "it contradicts capabilities.extendedAgentCard")
    return True in said
