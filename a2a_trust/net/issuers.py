"""Authorization servers as clients and servers name them: the issuer, the URLs of its metadata, and scopes.

Source: RFC 8414 3.1 and 5, OpenID Connect Discovery 1.0 section 4, RFC 6749 3.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol

from a2a_trust.errors import ConfigurationError

SCOPE: Final = re.compile(r"[!#-\[\]-~]+")
"""The syntax of a scope (RFC 6749 3.3, scope-token)."""
_METADATA: Final = re.compile(r"/\.well-known/(?:openid-configuration|oauth-authorization-server)(?=/|\Z)")


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
