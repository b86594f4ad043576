"""Take the credentials out of a request: exactly where the card says, and exactly once.

Works on the raw lists of an ASGI scope (byte strings as they came), so that no framework's idea of a header gets in
between. What came twice, joined, oddly spaced or under an alias is refused, never picked from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

from a2a_trust.card import (
    ApiKeyScheme,
    HttpScheme,
    OAuth2Scheme,
    OpenIdConnectScheme,
    SecurityScheme,
)
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError

__all__ = ["Cookie", "Extractor", "Header", "HttpAuthorization", "Query", "extractor_for"]

#: Headers that mean something to servers, proxies or browsers: a key in them is cut, logged or sent elsewhere.
_UNSAFE_HEADERS: Final = re.compile(
    r"host|cookie|set-cookie|authorization|connection|upgrade|te|trailer|expect|forwarded|via|origin|referer|date|"
    r"transfer-encoding|keep-alive|accept|accept-.*|content-.*|proxy-.*|x-forwarded-.*|x-real-ip|sec-.*|a2a-.*|range|"
    r"if-.*|cache-control|pragma|user-agent|last-event-id|x-original-.*|x-rewrite-.*|x-http-method.*|client-cert.*|"
    r"x-ssl-.*|x-client-.*|dpop|max-forwards|http2-settings|true-client-ip|remote-.*|location|server|www-authenticate"
)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^`|~-]+")  # RFC 9110 5.6.2, without the underscore
_PARAMETER_NAME: Final = re.compile(r"[A-Za-z0-9._~-]+")
_TOKEN68: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")  # RFC 9110 11.2


class Extractor(Protocol):
    """Where a request carries the credential of one scheme."""

    def extract(self, scope: Any) -> str | None:
        """The credential; None when the request has none; InvalidCredentialsError when it has an unusable one."""
        ...


def _lines(scope: Any, name: bytes) -> list[bytes]:
    """The values of all lines of a header; InvalidCredentialsError when a line has the name with an underscore."""
    found = []
    for line_name, value in scope["headers"]:
        lowered = line_name.lower()
        if lowered == name:
            found.append(value)
        elif b"_" in lowered and lowered.replace(b"_", b"-") == name:
            # Gateways of the CGI kind take X_Api_Key for X-Api-Key; nobody sends that by accident.
            raise InvalidCredentialsError(f"header {name.decode()}: an alias with underscores came")
    return found


def _only(values: list[bytes], where: str) -> bytes | None:
    if not values:
        return None
    if len(values) > 1:
        raise InvalidCredentialsError(f"{where}: it came more than once")
    return values[0]


def _text(values: list[bytes], where: str) -> str | None:
    value = _only(values, where)
    if value is None:
        return None
    if not value or not value.isascii():
        raise InvalidCredentialsError(f"{where}: empty, or not ASCII")
    return value.decode("ascii")


@dataclass(frozen=True, slots=True)
class Header:
    """A whole header value."""

    name: str

    def __post_init__(self) -> None:
        if not _HEADER_NAME.fullmatch(self.name) or _UNSAFE_HEADERS.fullmatch(self.name.lower()):
            raise ConfigurationError(
                f"the header {self.name[:64]!a} is not one that an API key can safely travel in; "
                'declare another in the card, as in {"location": "header", "name": "X-API-Key"}'
            )

    def extract(self, scope: Any) -> str | None:
        # Some servers strip blanks around a value, some do not; RFC 9110 5.5 says that they mean nothing.
        values = [value.strip(b" \t") for value in _lines(scope, self.name.lower().encode())]
        return _text(values, f"header {self.name}")


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter of the query."""

    name: str

    def __post_init__(self) -> None:
        _check_parameter(self.name)

    def extract(self, scope: Any) -> str | None:
        query = scope.get("query_string", b"")
        if self.name.encode() not in query and b"%" not in query and b"+" not in query:
            return None
        try:
            pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=256)
        except ValueError:
            raise InvalidCredentialsError("query: it cannot be read") from None
        return _text([value.encode() for name, value in pairs if name == self.name], f"query parameter {self.name}")


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie (RFC 6265 4.2.1)."""

    name: str

    def __post_init__(self) -> None:
        _check_parameter(self.name)

    def extract(self, scope: Any) -> str | None:
        wanted = self.name.encode()
        values = []
        for line in _lines(scope, b"cookie"):  # HTTP/2 may send several
            for pair in line.split(b";"):
                name, equals, value = pair.strip(b" \t").partition(b"=")
                if equals and name.rstrip(b" \t") == wanted:
                    values.append(value if name == wanted else b"")  # a blank before "=" is no cookie; it is refused
        return _text(values, f"cookie {self.name}")


@dataclass(frozen=True, slots=True)
class HttpAuthorization:
    """The credential of one scheme of the Authorization header (RFC 9110 11.6.2); ``scheme`` is ``bearer``."""

    scheme: str

    def __post_init__(self) -> None:
        if self.scheme != "bearer":
            raise ConfigurationError(f'HTTP {self.scheme[:64]!a} cannot be enforced; write HttpAuthorization("bearer")')

    def extract(self, scope: Any) -> str | None:
        value = _only(_lines(scope, b"authorization"), "header authorization")
        if value is None:
            return None
        scheme, blank, credential = value.strip(b" \t").partition(b" ")
        if scheme.lower() != self.scheme.encode():
            return None
        if not blank or not _TOKEN68.fullmatch(credential):
            raise InvalidCredentialsError("header authorization: not a scheme, one blank and one credential")
        return credential.decode("ascii")


def _check_parameter(name: str) -> None:
    if not _PARAMETER_NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name[:64]!a} is no name for a parameter or a cookie; use letters, digits and - . _ ~"
        )


def extractor_for(scheme: SecurityScheme) -> Extractor:
    """Where requests carry the credential of a declared scheme; ConfigurationError for what cannot be enforced."""
    if isinstance(scheme, ApiKeyScheme):
        places: dict[str, type[Header | Query | Cookie]] = {"header": Header, "query": Query, "cookie": Cookie}
        try:
            return places[scheme.location](scheme.parameter)
        except ConfigurationError as error:
            raise ConfigurationError(f"scheme {scheme.name}: {error}") from None
    if isinstance(scheme, HttpScheme) and scheme.scheme == "bearer":
        return HttpAuthorization("bearer")
    if isinstance(scheme, OAuth2Scheme | OpenIdConnectScheme):
        return HttpAuthorization("bearer")  # RFC 6750 2.1
    raise ConfigurationError(
        f"scheme {scheme.name}: {_kind(scheme)} cannot be enforced; declare an API key, HTTP bearer, OAuth 2.0 or "
        "OpenID Connect"
    )


def _kind(scheme: SecurityScheme) -> str:
    if isinstance(scheme, HttpScheme):
        return f"HTTP {scheme.scheme!a}"
    return type(scheme).__name__
