"""Rules for URLs, to which clients send calls and credentials, and people go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from a2a_trust.base.net.addresses import is_loopback, is_public
from a2a_trust.base.strict_json.pointer import Path
from a2a_trust.card.ambiguity import field_of
from a2a_trust.card.schema import Generation
from a2a_trust.errors import MalformedError
from a2a_trust.keys.trust.origins import host_of, interface_host, url_of
from a2a_trust.lint.document import Subject, pointer_of
from a2a_trust.lint.findings import Problem, Severity, rule
from a2a_trust.lint.secret_shapes import secret_kind

_LINKS: Final = ("documentationUrl", "iconUrl")


def _urls(subject: Subject) -> Iterator[tuple[Path, str, bool]]:
    """The places of URLs, their texts, and whether they are for people, and not for calls or credentials."""
    for path, message, members in subject.objects:
        for name, value in members.items():
            field = field_of(message, name) if value and type(value) is str else None
            if field is None or not field.name.lower().endswith("url"):
                continue
            yield (path, name), value, message == "AgentProvider" or field.name in _LINKS


@rule(
    Severity.ERROR,
    "Calls or credentials go over a connection that is not encrypted; a warning for loopback hosts.",
    "7.1",
)
def http_url(subject: Subject) -> Iterator[Problem]:
    for path, url, is_link in _urls(subject):
        if is_link or not url.lower().startswith(("http://", "ws://")):
            continue
        if _is_loopback(url):
            yield Problem(
                pointer_of(path),
                "the connection is not encrypted; that is safe only while the client runs on the same machine",
                "Before others use the card, serve the agent over TLS under a public name, and write https.",
                Severity.WARNING,
            )
        else:
            yield Problem(
                pointer_of(path),
                "the connection is not encrypted: anybody on the network path can read and change requests and "
                "credentials",
                "Serve the agent over TLS, and write https.",
            )


def _is_loopback(url: str) -> bool:
    """Whether the host of the URL is always the machine on which the client runs (RFC 6761 6.3)."""
    try:
        parts = url_of(url)
    except MalformedError:
        return False  # see unclear-url
    return f".{parts.host}".endswith(".localhost") if parts.address is None else is_loopback(parts.address)


@rule(Severity.NOTE, "A link for people is not encrypted.", "13.4")
def http_link(subject: Subject) -> Iterator[Problem]:
    for path, url, is_link in _urls(subject):
        if is_link and url.lower().startswith("http://"):
            yield Problem(
                pointer_of(path),
                "the connection is not encrypted: anybody on the network path can change the page that people see",
                "Write https.",
            )


#: Names that lead nowhere in the public DNS: RFC 6761, RFC 6762, RFC 8375, and ICANN's reserved internal.
_PRIVATE_NAMES: Final = (".localhost", ".local", ".internal", ".home.arpa", ".test", ".invalid")


@rule(Severity.WARNING, "A URL leads to a host that others cannot reach, or that is theirs.", "8.3.1")
def private_url(subject: Subject) -> Iterator[Problem]:
    for path, url, _ in _urls(subject):
        try:
            parts = url_of(url)
        except MalformedError:
            continue  # see unclear-url
        is_private_name = f".{parts.host}".endswith(_PRIVATE_NAMES) or "." not in parts.host
        if is_private_name if parts.address is None else not is_public(parts.address):
            yield Problem(
                pointer_of(path),
                "the host is on this machine or in a private network: for other clients no server answers, or another "
                "server answers and gets the credentials",
                "Write the public name of the server.",
            )


@rule(Severity.ERROR, "Readers differ in which host a URL leads to, or find none in it.", "8.3.1")
def unclear_url(subject: Subject) -> Iterator[Problem]:
    for path, url, is_link in _urls(subject):
        if is_link or secret_kind(url):
            continue
        try:
            read = interface_host if pointer_of(path).endswith("/url") else host_of
            read(url)
        except MalformedError:
            yield Problem(
                pointer_of(path),
                "readers find different hosts in this URL, or no host: credentials may go to another host",
                "Write https://host/path with names in their xn-- form, or host:port for gRPC; no other scheme, and no "
                "user name or password.",
            )


@rule(
    Severity.WARNING,
    "A card of 0.3 breaks its rules of transports: which URL is for which one (0.3.0, section 5.6).",
    "A.2",
)
def transport_rules(subject: Subject) -> Iterator[Problem]:
    view = subject.view
    if view is None or not subject.is_whole or not subject.card.get("url"):
        return
    if not subject.card.get("preferredTransport") and view.generation is Generation.V0_3:
        yield Problem(
            "/preferredTransport",
            "0.3 requires it for the main url; without it, clients conclude JSONRPC",
            "Add the transport of the main url.",
        )
    main, *others = [each for each in view.interfaces if not each.pointer.startswith("/supportedInterfaces")]
    bindings: dict[str, str] = {}
    for each in (main, *others):
        if bindings.setdefault(each.url, each.binding) != each.binding:
            yield Problem(
                each.pointer,
                "another interface has the same URL with another transport, which 0.3 forbids: clients may use the "
                "wrong one",
                "Give each transport a URL of its own.",
            )
    if others and all((each.url, each.binding) != (main.url, main.binding) for each in others):
        yield Problem(
            "/additionalInterfaces",
            "the main url with preferredTransport is not among them: clients that choose from this list miss it",
            "Add an entry with the main url and its transport.",
        )
