"""The places of API keys in requests, as a card names them. Clients write keys there, and servers read them.

A place is safe: a card cannot choose a header that means something else, nor a name that ends a parameter or a cookie.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from a2a_trust.card.view import ApiKeyScheme
from a2a_trust.errors import ConfigurationError

#: Headers that mean something to servers, proxies or browsers: a key in them is cut, logged or sent elsewhere.
_UNSAFE_HEADERS: Final = (  # compiled on first use, which takes 1 % of `a2a-sign card.json`
    r"host|cookie|set-cookie|authorization|connection|upgrade|te|trailer|expect|forwarded|via|origin|referer|date|"
    r"transfer-encoding|keep-alive|accept|accept-.*|content-.*|proxy-.*|x-forwarded-.*|x-real-ip|sec-.*|a2a-.*|range|"
    r"if-.*|cache-control|pragma|user-agent|last-event-id|x-original-.*|x-rewrite-.*|x-http-method.*|client-cert.*|"
    r"x-ssl-.*|x-client-.*|dpop|max-forwards|http2-settings|true-client-ip|remote-.*|location|server|www-authenticate|"
    r"traceparent|tracestate|baggage|x-request-id|x-correlation-id"
)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^`|~-]+")  # RFC 9110 5.6.2, without the underscore
_PARAMETER_NAME: Final = re.compile(r"[A-Za-z0-9._~-]+")

WORDS_FOR_TOKENS: Final = ("bearer", "oauth2", "openidconnect")
"""The words of cards of 0.1, in lower case, whose credential is a token in ``Authorization``."""


@dataclass(frozen=True, slots=True)
class HeaderPlace:
    """A whole header value."""

    location: ClassVar[str] = "header"
    name: str

    def __post_init__(self) -> None:
        if not _HEADER_NAME.fullmatch(self.name) or re.fullmatch(_UNSAFE_HEADERS, self.name.lower()):
            raise ConfigurationError(
                f"the header {self.name[:64]!a} is not safe for an API key; "
                'declare another header in the card, as in {"location": "header", "name": "X-API-Key"}'
            )

    def __str__(self) -> str:
        return f"header {self.name}"

    @property
    def header(self) -> bytes:
        return self.name.lower().encode()


@dataclass(frozen=True, slots=True)
class _Parameter:
    """The name of a parameter or a cookie, whose value is the key."""

    kind: ClassVar[str]
    name: str

    def __post_init__(self) -> None:
        if not _PARAMETER_NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"{self.name[:64]!a} cannot be the name of a parameter or a cookie; use letters, digits and - . _ ~"
            )

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class QueryPlace(_Parameter):
    __slots__ = ()
    kind = "query parameter"
    location: ClassVar[str] = "query"
    header: ClassVar[None] = None


class CookiePlace(_Parameter):
    """A cookie (RFC 6265 4.2.1)."""

    __slots__ = ()
    kind = "cookie"
    location: ClassVar[str] = "cookie"
    header: ClassVar[bytes] = b"cookie"


KeyPlace = TypeVar("KeyPlace", bound=HeaderPlace | QueryPlace | CookiePlace)


def place_in(scheme: ApiKeyScheme, kinds: tuple[type[KeyPlace], ...]) -> KeyPlace:
    """The place that the scheme names, of the kind that has its location.

    ConfigurationError: the name is not safe there.
    """
    (kind,) = (each for each in kinds if each.location == scheme.location)
    try:
        return kind(scheme.parameter)
    except ConfigurationError as error:
        raise ConfigurationError(f"scheme {ascii(scheme.name[:64])[1:-1]}: {error}") from None


def key_place(scheme: ApiKeyScheme) -> HeaderPlace | QueryPlace | CookiePlace:
    """The place of the scheme's key; ConfigurationError as for ``place_in``."""
    return place_in(scheme, (HeaderPlace, QueryPlace, CookiePlace))
