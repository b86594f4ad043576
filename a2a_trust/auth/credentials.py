"""Reads the credentials of a request, exactly at the places that the card names, and hides them from the application.

It works on the raw bytes of an ASGI scope, without a framework's interpretation of headers. A credential that came
twice, joined, with odd blanks or under an alias is rejected.

A client certificate comes from the server that ended TLS, or from the proxy in front of it.
``protect(…, client_certificates=…)`` names the only source that is trusted. It gives certificates whose private keys
the caller has; the verifier decides whether they are trusted.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, TypeAlias
from urllib.parse import unquote_plus, unquote_to_bytes

from a2a_trust.auth.peers import was_forwarded
from a2a_trust.card.places import CookiePlace, HeaderPlace, QueryPlace, place_in
from a2a_trust.card.view import (
    ApiKeyScheme,
    HttpScheme,
    MutualTlsScheme,
    OAuth2Scheme,
    OpenIdConnectScheme,
    SecurityScheme,
)
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError

_TOKEN68: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/"


class Extractor(Protocol):
    """The place of one scheme's credential in requests."""

    @property
    def header(self) -> bytes | None:
        """The header that is read, in lower case; None if the credential is not in a header."""

    def take(self, lines: Lines, scope: Any) -> str | CertificateChain | None:
        """The credential; None if the request has none. InvalidCredentialsError: it is malformed.

        ``lines`` are the lines of ``header``, from ``HeaderLines``.
        """


CertificateChain: TypeAlias = tuple[bytes, ...]
"""A client's certificates in DER, leaf first."""

Lines: TypeAlias = "list[bytes | None]"
"""The values of all lines of one header; None for a line that has the name with an underscore for a hyphen."""


class HeaderLines:
    """Finds the lines of the headers ``names`` in one pass over all headers of a request, and drops ``hidden`` ones."""

    def __init__(self, names: Iterable[bytes], hidden: Iterable[bytes] = ()) -> None:
        self._names, self._hidden = frozenset(names), frozenset(hidden)
        # Nearly all other headers have another length.
        self._lengths = frozenset(map(len, self._names | self._hidden))

    def find(self, headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, Lines]:
        """The lines, by the name of the header in lower case."""
        return self.split(headers)[0]

    def split(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[dict[bytes, Lines], list[tuple[bytes, bytes]]]:
        """The result of ``find``, and all headers without the hidden ones and their aliases with underscores, which are
        the same in CGI."""
        found: dict[bytes, Lines] = {}
        shown = []
        lengths, names, hidden = self._lengths, self._names, self._hidden
        for line in headers:
            name = line[0]
            if len(name) in lengths:
                value: bytes | None = line[1]
                if name not in names:  # most servers give names in lower case
                    lowered = name.lower()
                    name = lowered.replace(b"_", b"-")
                    value = value if name == lowered else None
                if name in names:
                    if name in found:
                        found[name].append(value)
                    else:
                        found[name] = [value]
                if name in hidden:
                    continue
            shown.append(line)
        return found, shown


def only_line(lines: Lines, where: str) -> bytes | None:
    """The value of the only line; None without lines. InvalidCredentialsError: it came twice, or as an alias."""
    if not lines:
        return None
    value = lines[0]
    if None in lines:
        # CGI gateways read X_Api_Key as X-Api-Key; clients do not send that by accident.
        raise _malformed(f"{where}: it came with underscores in the name of its header")
    if len(lines) > 1:
        raise _malformed(f"{where}: it came more than once")
    return value


def _malformed(why: str) -> InvalidCredentialsError:
    return InvalidCredentialsError(why, oauth_error="invalid_request")  # RFC 6750 3.1


def _text(value: bytes | None, where: str) -> str | None:
    if value is None:
        return None
    if not value or not value.isascii():
        raise InvalidCredentialsError(f"{where}: empty, or not ASCII")
    return value.decode("ascii")


@dataclass(frozen=True, slots=True)
class InHeader(HeaderPlace):
    """A whole header value."""

    def take(self, lines: Lines, scope: Any) -> str | None:  # noqa: ARG002
        value = lines[0] if len(lines) == 1 and lines[0] is not None else only_line(lines, self.name)
        if value is None:
            return None
        # Some servers strip blanks around a value, some do not; RFC 9110 5.5 says that they mean nothing.
        value = value.strip(b" \t")
        return value.decode("ascii") if value and value.isascii() else _text(value, self.name)


_MOST_ESCAPES: Final = 1_024
"""The most escapes in a parameter: each takes a third of a microsecond. Credentials need hardly any."""
_BROKEN_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class InQuery(QueryPlace):
    """A parameter of the query. Other parts of the query are not read, and may be anything."""

    _pairs: re.Pattern[bytes] = field(init=False, repr=False, compare=False)
    """Finds the values of the parameter behind each "&", whichever of the name's characters are percent-encoded."""

    def __post_init__(self) -> None:
        QueryPlace.__post_init__(self)
        spellings = (b"(?:%b|%%(?i:%02x))" % (re.escape(bytes((octet,))), octet) for octet in self.name.encode())
        pairs = re.compile(rb"&%b(?:=([^&]*)|(?=&|\Z))" % b"".join(spellings))
        object.__setattr__(self, "_pairs", pairs)

    def take(self, lines: Lines, scope: Any) -> str | None:  # noqa: ARG002
        values = self._pairs.findall(b"&" + scope.get("query_string", b""))
        if not values:
            return None
        where = f"query parameter {self.name}"
        value = only_line(values, where)
        if value is not None and (value.count(b"%") > _MOST_ESCAPES or _BROKEN_ESCAPE.search(value)):
            raise InvalidCredentialsError(
                f"{where}: a percent sign is not followed by two hexadecimal digits, or more than {_MOST_ESCAPES} came"
            )
        return _text(value and unquote_to_bytes(value.replace(b"+", b" ")), where)


_MOST_COOKIES: Final = 512
"""Browsers keep less than 200 for a site."""


@dataclass(frozen=True, slots=True)
class InCookie(CookiePlace):
    """A cookie (RFC 6265 4.2.1)."""

    def take(self, lines: Lines, scope: Any) -> str | None:  # noqa: ARG002
        wanted, where = self.name.encode(), f"cookie {self.name}"
        if None in lines:
            raise InvalidCredentialsError(f"{where}: an alias of its header with underscores came")
        pairs = b";".join(filter(None, lines)).split(b";", _MOST_COOKIES)  # HTTP/2 may send several lines
        if len(pairs) > _MOST_COOKIES:
            raise InvalidCredentialsError(f"{where}: more than {_MOST_COOKIES} cookies came")
        values: Lines = []
        for pair in pairs:
            name, equals, value = pair.strip(b" \t").partition(b"=")
            if equals and name.rstrip(b" \t") == wanted:
                values.append(value if name == wanted else b"")  # a blank before "=" is not a cookie: rejected as empty
        return _text(only_line(values, where), where)


@dataclass(frozen=True, slots=True)
class HttpAuthorization:
    """The credential of one scheme of the Authorization header (RFC 9110 11.6.2): ``bearer`` or ``basic``.

    Only the guard uses ``dpop`` (RFC 9449 7.1), because it checks the proofs.
    """

    header: ClassVar[bytes] = b"authorization"
    scheme: str

    def __post_init__(self) -> None:
        if self.scheme not in ("bearer", "basic", "dpop"):
            raise ConfigurationError(
                f'HTTP {self.scheme[:64]!a} cannot be enforced; write HttpAuthorization("bearer") or '
                'HttpAuthorization("basic")'
            )

    def __str__(self) -> str:
        return f"Authorization: {self.scheme}"

    def take(self, lines: Lines, scope: Any) -> str | None:  # noqa: ARG002
        value = only_line(lines, "authorization")
        if value is None:
            return None
        scheme, blank, credential = value.strip(b" \t").partition(b" ")
        if scheme.lower() != self.scheme.encode():
            return None
        symbols = credential.rstrip(b"=")  # RFC 9110 11.2: letters, digits and -._~+/, then perhaps equals signs
        if not blank or not symbols or symbols.translate(None, _TOKEN68):
            raise _malformed("authorization: expected a scheme, one blank and one credential")
        return credential.decode("ascii")


CERTIFICATES: Final = "a2a_trust.client_certificate"
"""The key of a scope under which the middleware puts the client's certificates."""

NEXT_NONCE: Final = "a2a_trust.dpop_nonce"
"""The key of a scope under which the nonce for the caller's next proof of DPoP is."""


def certificates_of(scope: Mapping[str, Any]) -> CertificateChain:
    """The client's certificates, whose key the caller has proven; ``()`` if there are none.

    The middleware takes them from its source, and drops what others have put there.
    """
    certificates: CertificateChain = scope.get(CERTIFICATES, ())
    return certificates


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """The client's certificates, from the source of the middleware."""

    header: ClassVar[None] = None

    def __str__(self) -> str:
        return "client certificate"

    def take(self, lines: Lines, scope: Any) -> CertificateChain | None:  # noqa: ARG002
        return certificates_of(scope) or None


_PLACES: Final[tuple[type[InHeader | InQuery | InCookie], ...]] = (InHeader, InQuery, InCookie)


def extractor_for(scheme: SecurityScheme) -> Extractor:
    """The place of a declared scheme's credential; ConfigurationError: the scheme cannot be enforced."""
    if isinstance(scheme, ApiKeyScheme):
        return place_in(scheme, _PLACES)
    if isinstance(scheme, HttpScheme) and scheme.scheme in ("bearer", "basic"):
        return HttpAuthorization(scheme.scheme)
    if isinstance(scheme, OAuth2Scheme | OpenIdConnectScheme):
        return HttpAuthorization("bearer")  # RFC 6750 2.1
    if isinstance(scheme, MutualTlsScheme):
        return ClientCertificate()
    kind = f"HTTP {scheme.scheme[:64]!a}" if isinstance(scheme, HttpScheme) else "its kind"
    raise ConfigurationError(
        f"scheme {ascii(scheme.name[:64])[1:-1]}: {kind} cannot be enforced; declare an API key, HTTP bearer or "
        "basic, OAuth 2.0, OpenID Connect or mutual TLS"
    )


class Hidden:
    """The credentials at ``places``, which the application does not see: those in ``headers``, and others."""

    def __init__(self, places: Iterable[Extractor]) -> None:
        places = tuple(places)
        in_cookies = [place for place in places if isinstance(place, InCookie)]
        self.headers: Final = frozenset(
            place.header for place in places if place.header is not None and place not in in_cookies
        )
        self._cookies = frozenset(place.name.encode() for place in in_cookies)
        self._parameters = frozenset(place.name for place in places if isinstance(place, InQuery))

    def hide(self, scope: MutableMapping[str, Any]) -> None:
        """Take out what is not in ``headers``."""
        if self._cookies:
            scope["headers"] = [*_without_cookies(self._cookies, scope["headers"])]
        if self._parameters:
            scope["query_string"] = _without(self._parameters, scope.get("query_string", b""))


def lines_without(names: frozenset[bytes], headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers without these names and their aliases with underscores, which are the same in CGI."""
    return [line for line in headers if line[0].lower().replace(b"_", b"-") not in names]


def _without_cookies(names: frozenset[bytes], headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    for header, value in headers:
        if header.lower() != b"cookie":
            yield header, value
            continue
        pairs = value.split(b";")
        kept = [pair for pair in pairs if pair.partition(b"=")[0].strip(b" \t") not in names]
        if kept:
            yield header, b";".join(kept).lstrip(b" \t")


def _without(names: frozenset[str], query: bytes) -> bytes:
    pairs = query.split(b"&")
    return b"&".join(pair for pair in pairs if unquote_plus(pair.partition(b"=")[0].decode("latin-1")) not in names)


_PREFIXES: Final = (
    "client- cf-client- ssl-client- x-client- x-ssl- x-ssl-client- x-tls-client- x-forwarded-client- "
    "x-forwarded-ssl-client- x-forwarded-tls-client-"
)
_NAMES: Final = (
    "cert cert-chain cert-der-base64 cert-fingerprint cert-hash cert-info cert-issuer cert-sha1 cert-sha256 "
    "cert-subject cert-verified certificate cn dn i-dn issuer-dn s-dn subject-dn verify"
)
_SSL_NAMES: Final = "fingerprint issuer not-after not-before san serial sha1 sha256 subject used"
CLAIMING_HEADERS: Final = frozenset(
    f"{prefix}{name}".encode()
    for prefixes, names in (
        (_PREFIXES, _NAMES),
        ("ssl-client- x-ssl- x-ssl-client- x-tls-client-", _SSL_NAMES),
        ("x-amzn-mtls-clientcert", " -issuer -leaf -serial-number -subject -validity"),
        ("x-", "arr-clientcert tls-cert"),
    )
    for prefix in prefixes.split(" ")
    for name in names.split(" ")
)
"""Headers, in lower case, in which some proxies write client certificates. The application must not see them."""


class CertificateSource(Protocol):
    """Knows the client's certificate: ``FromTls()``, or ``FromProxy(…)`` of ``proxies``."""

    @property
    def headers(self) -> frozenset[bytes]:
        """The headers about certificates, in lower case: the application does not see them."""

    def chain(self, scope: Mapping[str, Any]) -> tuple[bytes, ...]:
        """The certificates in DER, the client's own first; ``()`` when the caller sent none.

        InvalidCredentialsError: they are not trustworthy or not readable. KeySourceUnavailableError: the server or the
        proxy does not pass them on; the text says how to fix that.
        """


class FromTls:
    """The client certificate of the TLS connection, where the server itself ends TLS (ASGI TLS extension 0.2).

    Servers do not pass it on by themselves: run uvicorn with the protocol classes of ``a2a_trust.servers.uvicorn``, or
    hypercorn with ``a2a_trust.servers.hypercorn``, and configure them to ask for certificates. When a proxy calls the
    agent with the proxy's certificate, requests that it marks as forwarded get 503: it is not the caller's certificate.
    """

    headers = CLAIMING_HEADERS

    def __repr__(self) -> str:
        return "FromTls()"

    def chain(self, scope: Mapping[str, Any]) -> tuple[bytes, ...]:
        tls = (scope.get("extensions") or {}).get("tls")
        if tls is None:
            if scope.get("scheme") in ("https", "wss"):
                raise KeySourceUnavailableError(
                    "the server does not pass on client certificates; run uvicorn with --http "
                    "a2a_trust.servers.uvicorn:HttpToolsProtocol, or :H11Protocol, or hypercorn with python -m "
                    "a2a_trust.servers.hypercorn; behind a proxy that ends TLS, pass client_certificates=FromProxy(…)"
                )
            return ()
        if tls.get("client_cert_error"):
            raise InvalidCredentialsError("certificate: the server rejected it in the TLS handshake")
        try:
            chain = tuple(ssl.PEM_cert_to_DER_cert(pem) for pem in tls.get("client_cert_chain") or ())
        except ValueError:
            raise InvalidCredentialsError("certificate: the server does not give it in PEM") from None
        names = (name.lower().replace(b"_", b"-") for name, _ in scope["headers"])
        if chain and (was_forwarded(scope) or not CLAIMING_HEADERS.isdisjoint(names)):
            # Some proxies use their own certificate with the agent: then every caller would be the proxy.
            raise KeySourceUnavailableError(
                "a proxy forwarded the request, so the TLS certificate is the proxy's, and not the caller's; pass "
                "client_certificates=FromProxy(…), or make the proxy pass TLS through"
            )
        return chain
