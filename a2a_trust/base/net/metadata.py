"""Metadata of authorization servers and agents: issuers, URLs, scopes, and challenges.

A ``WWW-Authenticate`` header is not trusted. Its URLs are never fetched, and a malformed header gives no challenges.

Source: RFC 8414 3.1 and 5, OpenID Connect Discovery 1.0 section 4, RFC 6749 3.3, RFC 9110 11.6.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from a2a_trust.errors import ConfigurationError

SCOPE: Final = re.compile(r"[!#-\[\]-~]+")
"""The syntax of a scope (RFC 6749 3.3, scope-token)."""
_METADATA: Final = re.compile(r"/\.well-known/(?:openid-configuration|oauth-authorization-server)(?=/|\Z)")

_MAX: Final = 8192
_WORD: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_PARAMETER: Final = re.compile(rf'({_WORD})[ \t]*=[ \t]*(?:({_WORD})|"((?:[^"\\]|\\.)*)")(?=[ \t]*(?:,|\Z))')
_SCHEME: Final = re.compile(rf"({_WORD})(?:[ \t]+(?:([A-Za-z0-9._~+/-]+=*)(?=[ \t]*(?:,|\Z)))?|(?=[ \t]*(?:,|\Z)))")
_BETWEEN: Final = re.compile(r"[ \t,]*")
_SHOWN: Final = re.compile(r"[ -~]{1,300}")


class EndpointClient(Protocol):
    """The client of an authorization server, as far as its authentication depends on it."""

    @property
    def client_id(self) -> str:
        """The name that the server knows the client by."""

    @property
    def issuer(self) -> str:
        """The name of the server."""

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds since the epoch."""


def check_issuer(issuer: str) -> None:
    """ConfigurationError for the URL of an issuer's metadata: tokens name the issuer itself. And for a fragment, which
    no issuer has (RFC 8414 2): identities whose subject is not a ``sub`` differ from others by it."""
    if "#" in issuer:
        raise ConfigurationError(f"issuer {issuer[:128]!a}: write it as tokens have it in iss, without a fragment")
    name = _METADATA.sub("", issuer)
    if name != issuer:
        raise ConfigurationError(
            f"issuer {issuer[:128]!a}: that is the URL of its metadata; write the issuer as tokens have it in iss, "
            f"such as {name[:128]!a}"
        )


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Where the metadata of an issuer can be, by RFC 8414 3.1 and 5; ConfigurationError: it is not an issuer's name."""
    documents = ("oauth-authorization-server", "openid-configuration")
    return tuple(dict.fromkeys(url for document in documents for url in metadata_locations(issuer, document)))


def metadata_locations(issuer: str, document: str) -> tuple[str, str]:
    """Where the issuer's document can be: between host and path (RFC 8414 3.1), and behind the path (Discovery 4.1)."""
    check_issuer(issuer)
    scheme, separator, rest = issuer.removesuffix("/").partition("://")
    host, slash, path = rest.partition("/")
    if not separator or not host or "?" in issuer or "#" in issuer:
        raise ConfigurationError(
            f"issuer {issuer[:128]!a}: write it as tokens have it in iss, as in https://idp.example or "
            "https://idp.example/tenant; without query and fragment"
        )
    origin, well_known = f"{scheme}://{host}", f"/.well-known/{document}"
    return f"{origin}{well_known}{slash}{path}", f"{origin}{slash}{path}{well_known}"


class Challenge(NamedTuple):
    """One challenge; ``scheme`` and the names of the parameters are in lower case."""

    scheme: str
    parameters: dict[str, str]

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that the agent requires (RFC 6750 3); empty if one of them is not a scope."""
        names = self.parameters.get("scope", "").split(" ")
        return frozenset(names) if all(SCOPE.fullmatch(name) for name in names) else frozenset()

    @property
    def resource_metadata(self) -> str:
        """The URL of the agent's metadata (RFC 9728 5.1), to be shown and not followed; "" without one."""
        url = self.parameters.get("resource_metadata", "")
        return url if _SHOWN.fullmatch(url) else ""


def challenges_of(lines: Iterable[str]) -> tuple[Challenge, ...]:
    """The challenges in these lines; empty if one of them is malformed."""
    text = ", ".join(lines)
    found: list[Challenge] = []
    at = 0
    while len(text) <= _MAX and (at := _end(_BETWEEN.match(text, at), at)) < len(text):
        parameter = _PARAMETER.match(text, at)
        if parameter is not None and found:
            name = parameter[1].lower()
            if name in found[-1].parameters:
                return ()
            quoted = parameter[3]
            found[-1].parameters[name] = parameter[2] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            at = parameter.end()
            continue
        scheme = _SCHEME.match(text, at)
        if scheme is None:
            return ()
        found.append(Challenge(scheme[1].lower(), {}))
        at = scheme.end()
    return tuple(found) if at >= len(text) else ()


def _end(match: re.Match[str] | None, default: int) -> int:
    return default if match is None else match.end()
