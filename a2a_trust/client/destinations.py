"""Where a client may send requests: the URLs that a verified card names, and those that the program adds.

The rules:

1. URLs are compared part by part: the origin in one spelling, the path segment by segment, and the query if the card's
   URL has one. An ambiguous path (``..``, ``..;``, ``//``, an encoded slash) never matches.
2. The scheme is https. It may be http to this machine, and to names of a service mesh that the program configures
   (``base.net.urls``).
3. A card names the URLs of its interfaces. For HTTP+JSON these are the paths of the operations below its base, with and
   without a tenant; for other bindings only the URL itself. Interfaces before 1.0 add the paths of their extended card.
   The URL of a card of 0.1 is for JSON-RPC, or the base of its own paths (``/tasks/send``).

Source: A2A 1.0.1 section 11, 0.3 section 3.2.3; RFC 3986 section 6.2.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self

from a2a_trust.base.net.addresses import is_this_machine
from a2a_trust.base.net.urls import NO_MESH, HttpWithin, Url, with_plain_escapes
from a2a_trust.card.operations import EXTENDED_CARD_0_2, EXTENDED_CARD_PATHS, ROUTES, Binding, path_expression
from a2a_trust.card.schema import CARD_PATHS, Generation
from a2a_trust.card.view import CardView, NamedScheme
from a2a_trust.errors import CardVerificationError, ConfigurationError, MalformedError
from a2a_trust.keys.trust.origins import host_of, interface_host, url_of
from a2a_trust.signing.forms import shorten

#: A segment that servers read differently: some remove the part after ";" and then resolve dots, and some decode, once
#: or twice, before they look for dots, ";" and slashes.
_AMBIGUOUS: Final = re.compile(
    r"/(?:\.{0,2}(?:(?:;|%3B)[^/]*)?|[^/]*(?:%2F|%5C|%00|\\|%(?:25)+(?:2E|2F|3B|5C|00))[^/]*)(?=/|\Z)", re.IGNORECASE
)

#: The paths below the base of HTTP+JSON: 1.0 without a prefix and with a tenant, 0.3 below /v1.
_OPERATION: Final = f"(?:{'|'.join(path_expression(route.template) for route in ROUTES[Generation.V1_0])})"
_OPERATION_BELOW_BASE: Final = re.compile(
    rf"(?:/[^/]+)?{_OPERATION}|{EXTENDED_CARD_PATHS[Generation.V0_3]}|{EXTENDED_CARD_0_2}"
)
_OPERATION_AT_END: Final = re.compile(rf"(?:/v1)?(?:{_OPERATION}|/card|{EXTENDED_CARD_0_2})\Z")
_URL_ITSELF: Final = re.compile(r"")
_ROUTE_OF_0_1: Final = re.compile("|".join(path_expression(route.template) for route in ROUTES[Generation.V0_1]))
_EXTENDED_OF_0_2: Final = re.compile(EXTENDED_CARD_0_2)

_MOST_FOLDERS: Final = 4  # with two card URLs each


@dataclass(frozen=True, slots=True)
class UnsafePassAnything:
    """Permits every URL: requests and their credentials go wherever the program sends them.

    Cards that pass through are still verified. But if the program gets a card in another way, it sends its credentials
    to every URL in that card.
    """


@dataclass(frozen=True, slots=True)
class Destination:
    """A URL in one spelling. ``path`` has no slash at its end, so the path of the root is empty."""

    origin: str
    path: str
    query: str = field(default="", repr=False)  # it may be a secret, and tracebacks show locals

    @classmethod
    def of(cls, url: str, mesh: HttpWithin = NO_MESH) -> Self:
        """MalformedError: the URL is ambiguous, or rule 2 does not permit it."""
        parts = url_of(url)
        if parts.scheme != "https" and not _may_be_plain(parts, mesh):
            raise MalformedError(
                "URL: it is neither https, nor http to this machine; write https://…, or for a service mesh "
                "verifying_client(…, http_within=[…])"
            )
        return cls._read(parts)

    @classmethod
    def _read(cls, parts: Url) -> Self:
        path = with_plain_escapes(parts.path).removesuffix("/")
        if _AMBIGUOUS.search(path):
            raise MalformedError("URL: its path has a segment that servers read differently (.., //, or an encoded /)")
        return cls(parts.origin, path, parts.query or "")

    @staticmethod
    def origin_of(url: str) -> str:
        """The origin of a URL; for an ambiguous URL, the URL itself, which equals no origin."""
        try:
            return url_of(url).origin
        except MalformedError:
            return url

    def __str__(self) -> str:
        """Without the query, which may hold a secret."""
        return f"{self.origin}{self.path}"

    def below(self, base: Destination) -> str | None:
        """The rest of the path below ``base``, in whole segments; None: it is not below ``base``."""
        rest = self.path[len(base.path) :]
        if self.origin != base.origin or not self.path.startswith(base.path) or rest[:1] not in ("", "/"):
            return None
        return rest if not base.query or f"{self.query}&".startswith(f"{base.query}&") else None

    def without_operation(self) -> Destination:
        """The likely base of the interface, from the path."""
        return Destination(self.origin, _OPERATION_AT_END.sub("", self.path))

    def card_urls(self) -> list[str]:
        """The likely URLs of the card of an agent here: both names, from the path upwards to the root."""
        folders = [self.without_operation().path]
        while folders[-1]:
            folders.append(folders[-1].rpartition("/")[0])
        if len(folders) > _MOST_FOLDERS:
            folders[_MOST_FOLDERS - 1 :] = [""]
        return [f"{self.origin}{folder}{name}" for folder in folders for name in CARD_PATHS]


@dataclass(frozen=True, slots=True)
class Destinations:
    """The URLs that one verified card names, each with a pattern for the rest of the path."""

    named: tuple[tuple[Destination, re.Pattern[str]], ...]

    @classmethod
    def of(cls, view: CardView, url: str, mesh: HttpWithin = NO_MESH) -> Self:
        """The URLs of a verified card that came from ``url``, without those that rules 1 and 2 do not permit."""
        named: list[tuple[Destination, re.Pattern[str]]] = []
        has_words = any(isinstance(scheme, NamedScheme) for scheme in view.schemes.values())
        for interface in view.interfaces:
            with suppress(MalformedError):
                destination = Destination.of(interface.url, mesh)
                rest = _OPERATION_BELOW_BASE if interface.binding == Binding.HTTP_JSON else _URL_ITSELF
                named.append((destination, rest))
                if interface.is_legacy:
                    named += [(base, _EXTENDED_OF_0_2) for base in _bases_of_0_2(destination, url, mesh)]
                if interface.generation is Generation.V0_1 or (has_words and interface.is_legacy):
                    named.append((destination, _ROUTE_OF_0_1))
        return cls(tuple(named))

    def cover(self, called: Destination) -> bool:
        return any((added := called.below(base)) is not None and rest.fullmatch(added) for base, rest in self.named)


def _bases_of_0_2(interface: Destination, card_url: str, mesh: HttpWithin) -> Iterator[Destination]:
    """The bases of the extended card of 0.2: beside the interface (specification), and beside the card (SDK)."""
    yield interface
    yield Destination(interface.origin, interface.path.rpartition("/")[0])
    with suppress(MalformedError):
        beside = Destination.of(re.sub(r"/\.well-known/[^/]*\Z", "", card_url), mesh)
        # A copy of the card may be anywhere: its folder belongs to the agent only if the interface is below it.
        if interface.below(beside) is not None:
            yield beside


def _may_be_plain(parts: Url, mesh: HttpWithin) -> bool:
    return parts.scheme == "http" and (is_this_machine(parts.host) or mesh.covers(parts.host))


def named_origins(origins: Iterable[str]) -> frozenset[str]:
    """The origins in one spelling. ConfigurationError: the list is empty, or an element is not an origin.

    An origin with http is of this machine, or has a name; ``check_plain`` decides whether a client may send there.
    """
    named = frozenset(map(_origin, [origins] if isinstance(origins, str) else origins))
    if isinstance(origins, str) or not named:
        raise ConfigurationError(
            'origins: write a list of the origins that may get the credential, ["https://agent.example.com"]'
        )
    return named


def _origin(text: str) -> str:
    try:
        parts = url_of(text)
    except (MalformedError, TypeError):
        parts = None
    if parts is None or parts.scheme not in ("https", "http") or parts.path or parts[4:] != (None, None):
        raise ConfigurationError(
            f"origins: {ascii(text)[:80]} is not an origin; write only scheme, host and port, https://agent.example.com"
        )
    is_name = parts.address is None and "." in parts.host
    if parts.scheme == "http" and not (is_name or is_this_machine(parts.host)):
        raise ConfigurationError(
            f"origins: {text!r}: http is only for this machine, and for names within a service mesh; write https://…"
        )
    return parts.origin


def check_plain(origins: Iterable[str], mesh: HttpWithin) -> None:
    """ConfigurationError: an origin of a credential has http, and rule 2 does not permit it in this client."""
    for origin in origins:
        parts = url_of(origin)
        if parts.scheme != "https" and not _may_be_plain(parts, mesh):
            raise ConfigurationError(
                f"origins: {origin!r}: http is only for this machine; write https://…, or for a service mesh "
                "verifying_client(…, http_within=[…])"
            )


def origins_of(view: CardView) -> frozenset[str]:
    return frozenset(Destination.origin_of(each.url) for each in view.interfaces)


def check_names(view: CardView, agent: str) -> None:
    """CardVerificationError: a card that came from elsewhere has no interface at the agent's URL, or below it. gRPC has
    no paths, and ports of its own: an interface on the agent's host is enough, if the agent's URL has no path."""
    wanted = Destination._read(url_of(agent))
    for interface in view.interfaces:
        with suppress(MalformedError):
            named = Destination._read(url_of(interface.url))
            is_web = named.origin.startswith(("https:", "http:"))
            is_same_host = not wanted.path and interface_host(interface.url) == host_of(agent)
            if named.below(wanted) is not None if is_web else is_same_host:
                return
    urls = shorten(ascii(interface.url)[1:-1][:80] for interface in view.interfaces)
    raise CardVerificationError(
        f"the card names no interface at {wanted} or below it, but {urls or 'none at all'}: it is the card of another "
        "agent, or the URL of the agent is wrong; write the URL that the agent is called at"
    )


def check_extension(public: Iterable[CardView], extended: CardView) -> None:
    """CardVerificationError: an extended card leads callers further than each of these public cards."""
    reasons = [_leads_further(extended, each) for each in public]
    if reasons and all(reasons):
        raise CardVerificationError(reasons[-1])


def _leads_further(extended: CardView, public: CardView) -> str:
    for leads, further in (
        ("has interfaces at origins", origins_of(extended) - origins_of(public)),
        ("sends credentials to URLs", extended.login_urls - public.login_urls),
    ):
        if further:
            return f"the extended card {leads} that the public card does not name: {shorten(sorted(further))}"
    return ""
