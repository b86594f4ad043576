"""Fetch documents over https from public servers, with limits of size and time. This is the only way to the network.

The rules, for every URL:

1. Only https; one unambiguous spelling of the host; no user information, no fragment, no dot segment in any spelling.
2. The name is resolved once. Every address must be globally routable (IANA special-purpose registries). The connection
   goes to a checked address, and TLS verifies the certificate for the name. So a name that changes its address between
   check and connection (DNS rebinding) has no effect.
3. One GET, or one POST with the caller's content: no redirects, proxies or cookies, and nothing from the environment.
4. The answer must have status 200, a JSON type, no content encoding and at most ``max_bytes``, all within ``timeout``.
   304 is accepted if the caller has an earlier answer, which is then the result. From a token endpoint 400 and 401 are
   accepted, too.

An operator can exempt single origins from "public", and loopback origins from https. This holds only for URLs that the
operator configured (``configured=True``), never for URLs in headers and other unverified documents, with one
exception: the extended card is fetched from an interface on the host of the verified public card. ``http_within`` does
the same for plain http to the names of a service mesh (``base.net.urls``).

The callers decide when to fetch again, and how to read the bytes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import socket
import ssl
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, suppress
from copy import copy
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from ipaddress import ip_address
from threading import BoundedSemaphore, Thread
from time import time
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

import anyio
import httpcore

from a2a_trust.base.cache import SingleFlight
from a2a_trust.base.net.addresses import Address, is_loopback, is_private, is_public
from a2a_trust.base.net.urls import DEFAULT_PORTS, HttpWithin, Url, check_private, has_dot_segment, read_url
from a2a_trust.errors import ConfigurationError, FetchError, MalformedError, with_option

_log: Final = logging.getLogger(__name__)

#: Path and query in a request, by RFC 3986 3.3 and 3.4: no characters that servers accept beyond these rules.
_PATH_AND_QUERY: Final = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*(?:\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?)?")
_AMBIGUOUS: Final = (
    "URL: ambiguous; write https://host/path, names in their xn-- form, without user information, blanks, "
    "backslashes, dot segments and fragment"
)
_JSON_TYPE: Final = re.compile(r"application/(?:[a-z0-9!#$&^_.+-]+\+)?json")

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_FIELD_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")
_ETAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e]{0,512}"')
_HTTP_DATE: Final = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")
OWN_HEADERS: Final = frozenset(
    {
        "host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length",
        "content-encoding", "transfer-encoding", "te", "trailer", "upgrade", "expect", "range", "if-none-match",
        "if-modified-since", "if-match", "if-unmodified-since", "if-range", "keep-alive", "proxy-connection",
    }
)  # fmt: skip
"""The headers that the fetcher itself sets."""

_BEGINNING: Final = 65_536
_DATA: Final = re.compile(rb"(?:^|\n)data:")
_END_OF_EVENT: Final = re.compile(rb"\r?\n\r?\n")
_A = TypeVar("_A")
_REPLACED: Final = frozenset({"Accept", "Content-Type", "User-Agent"})
_RESOLVE_SECONDS: Final = 2.0
MAX_ATTEMPTS: Final = 4
"""The number of addresses of a name that are tried, one after the other."""
_NETWORK_ERRORS: Final = (
    OSError,
    ValueError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A fetched document, and how long it is fresh.

    - ``body``: the bytes of the document.
    - ``max_age``: for how many seconds its server calls it fresh (RFC 9111 4.2); None if the server does not say, and 0
      if it must not be cached.
    - ``etag``, ``last_modified``: the validators for a conditional request; None if the document must not be stored
      (RFC 9111 5.2.2.5).
    """

    body: bytes
    max_age: float | None
    etag: str | None = None
    last_modified: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FormAnswer:
    """The JSON answer to a form: the status, the headers by lower-case name, the bytes."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyAnswer(FormAnswer):
    """An answer of any status and type; ``body`` may be only its beginning.

    ``tls`` is the version of TLS, ``valid_until`` the end of the server's certificate in seconds since the epoch.
    """

    tls: str = ""
    valid_until: float | None = None


class Resolver(Protocol):
    """An object that looks up the addresses of names."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """All IPv4 and IPv6 addresses of the host, best first; OSError if it has no address."""


class SystemResolver:
    """The resolver of the operating system, called in separate threads.

    A lookup cannot be interrupted. So a name whose servers never answer must block neither the other threads of the
    program nor its end. ``lookups`` bounds them, so that names that others choose use up no other slots.
    """

    def __init__(self, lookups: BoundedSemaphore | None = None) -> None:
        self._lookups = _LOOKUPS if lookups is None else lookups

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        if not self._lookups.acquire(blocking=False):
            raise OSError("too many names are being looked up now")
        found: Future[list[str]] = Future()
        Thread(target=_look_up, args=(host, port, found, self._lookups), daemon=True).start()
        return await asyncio.wrap_future(found)


_LOOKUPS: Final = BoundedSemaphore(64)
_LOOKUP_SECONDS: Final = 5.0


def _look_up(host: str, port: int, found: Future[list[str]], lookups: BoundedSemaphore) -> None:
    found.set_running_or_notify_cancel()  # from here on the one who waits can go, and this goes on
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        found.set_exception(error)
    else:
        found.set_result([str(address[0]) for *_, address in answers])
    finally:
        lookups.release()


async def addresses_of(host: str, port: int, resolver: Resolver) -> list[Address]:
    """All addresses of a name, unchecked; empty if the resolver finds none, or returns another text."""
    try:
        return [ip_address(text) for text in await resolver.resolve(host, port)]
    except (OSError, ValueError):
        return []


class MeshNames:
    """Looks up the addresses of names in a service mesh.

    Requests for one name that begin at once share a look-up: each takes a thread, and there are few.
    """

    def __init__(self, resolver: Resolver | None) -> None:
        self._resolver = SystemResolver() if resolver is None else resolver
        self._look_ups = SingleFlight[str, list[Address]]()

    async def addresses(self, host: str, port: int, seconds: float | None) -> list[Address]:
        """The addresses to try. TimeoutError: the look-up takes longer. FetchError: an address is not private."""

        async def look_up() -> list[Address]:
            with anyio.fail_after(_LOOKUP_SECONDS):
                return await addresses_of(host, port, self._resolver)

        with anyio.fail_after(seconds):
            found = await self._look_ups.run(f"{host}:{port}", look_up)
        check_private(f"http://{host}:{port}", found)
        return found[:MAX_ATTEMPTS]


class Fetcher:
    """Fetch documents over https from public servers, or from the private ones that you configure.

    One fetcher serves any number of concurrent fetches.

    - ``private_origins``: exact origins that may have private addresses, such as ``"https://idp.internal:8443"``, or
      plain http on this machine, such as ``"http://127.0.0.1:8080"``.
    - ``http_within``: suffixes of names in a service mesh, such as ``"svc.cluster.local"``. Plain http is allowed to
      these names, and names below them, if all their addresses are private, because the mesh encrypts the traffic.
    - ``timeout``: seconds for the whole fetch, from the lookup of the name to the last byte.
    - ``max_bytes``: the largest body.
    - ``ssl_context``: TLS settings, for example with a private authority. It must verify servers.
    - ``resolver``: looks up names; default: the operating system.

    ConfigurationError: an argument is wrong.
    """

    def __init__(
        self,
        *,
        private_origins: Iterable[str] = (),
        http_within: Iterable[str] = (),
        timeout: float = 5.0,
        max_bytes: int = 262_144,
        ssl_context: ssl.SSLContext | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        if not (0 < timeout < math.inf and max_bytes > 0):
            raise ConfigurationError("Fetcher: timeout and max_bytes must be finite and larger than 0")
        context = _system_context() if ssl_context is None else ssl_context
        if context.verify_mode is not ssl.CERT_REQUIRED or not context.check_hostname:
            raise ConfigurationError(
                "Fetcher: ssl_context does not verify servers; for a private authority write "
                "ssl.create_default_context(cafile=…)"
            )
        if isinstance(private_origins, str):
            raise ConfigurationError(f"private_origins: write a list, as in [{private_origins[:128]!r}]")
        self._private_origins = frozenset(map(_private_origin, private_origins))
        self._mesh = HttpWithin(http_within)
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._ssl_context = context
        self._resolver = SystemResolver() if resolver is None else resolver

    async def fetch(
        self,
        url: str,
        *,
        configured: bool,
        known: Fetched | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        content: bytes | None = None,
    ) -> Fetched:
        """Fetch the JSON document at the URL; its bytes are not parsed.

        - ``configured``: whether the operator configured this URL, or its configured issuer named it. Then
          ``private_origins`` and ``http_within`` apply. It must be False for URLs in cards and headers.
        - ``known``: an earlier result for the URL. If the document has not changed, the result has the same body, and
          the new freshness.
        - ``headers``: credentials and other headers; they are sent to this URL only.
        - ``content``: JSON to POST; without it the request is a GET.

        FetchError: the document cannot be fetched by the rules of this module. ConfigurationError: a header is invalid,
        or one that the fetcher sets itself.
        """
        target = self._read_allowed(url, configured)
        asked = _request_headers(target, headers, known, content, "application/json")

        def check(status: int, answered: dict[str, str]) -> None:
            if status != 304 or known is None or asked.keys().isdisjoint(("If-None-Match", "If-Modified-Since")):
                _check_answer(target, status, answered, (200,))

        answer = await self._ask(target, configured, asked, content, partial(self._read_whole, target, check))
        if answer.status == 304 and known is not None:
            return _update_known(target, answer.headers, known)
        return Fetched(body=answer.body, max_age=_max_age(answer.headers), **_validators(answer.headers))

    async def post_form(
        self, url: str, form: bytes, *, headers: Mapping[str, str] = MappingProxyType({}), answer_type: str = ""
    ) -> FormAnswer:
        """Post a form to a configured OAuth 2.0 endpoint (RFC 6749 3.2); returns its answer, or its error answer (5.2).

        ``form`` is ``application/x-www-form-urlencoded``; ``headers`` are credentials and other headers.
        ``answer_type`` is the media type of an answer with status 200, if that is not JSON. Errors as of ``fetch``.
        """
        target = self._read_allowed(url, configured=True)
        asked = _request_headers(target, headers, None, form, "application/x-www-form-urlencoded")
        if answer_type:
            asked["Accept"] = answer_type

        def check(status: int, answered: dict[str, str]) -> None:
            _check_answer(target, status, answered, (200, 400, 401), answer_type if status == 200 else "")

        return await self._ask(target, True, asked, form, partial(self._read_whole, target, check))

    async def exchange(
        self, method: str, url: str, *, configured: bool, headers: Mapping[str, str], content: bytes | None = None
    ) -> AnyAnswer:
        """The answer to one request, whatever its status and type. Nothing is followed.

        The body ends at 64 KiB, after the first event of a stream that has data, or half of ``timeout`` after the
        headers. ``headers`` may also name ``Accept``, ``Content-Type`` and ``User-Agent``. Errors as of ``fetch``.
        """
        target = self._read_allowed(url, configured)
        given = {name: value for name, value in headers.items() if name not in _REPLACED}
        asked = _request_headers(target, given, None, content, "application/json")
        asked.update(headers.items())
        return await self._ask(target, configured, asked, content, self._read_beginning, method)

    def authorities(self) -> bytes | None:
        """The authorities that verify servers, in PEM; None if they are the system's, and not listed."""
        found = self._ssl_context.get_ca_certs(binary_form=True)
        return "".join(map(ssl.DER_cert_to_PEM_cert, found)).encode() or None

    def with_old_tls(self) -> Fetcher:
        """The same fetcher with TLS 1.0 and 1.1 only: an answer shows that a server accepts them."""
        context = ssl.create_default_context()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        if authorities := self.authorities():
            context.load_verify_locations(cadata=authorities.decode())
        fetcher = copy(self)
        fetcher._ssl_context = context
        return fetcher

    async def resolve(self, url: str, *, configured: bool) -> list[Address]:
        """The addresses at which the URL may be asked now; nothing is sent.

        FetchError: the rules do not allow it, or the name has an address that is not allowed, or none, in 2 seconds.
        """
        target = self._read_allowed(url, configured)
        try:
            with anyio.fail_after(_RESOLVE_SECONDS):
                return await self._addresses(target, configured)
        except TimeoutError:
            raise FetchError(f"{target.origin}: the name is not resolved within {_RESOLVE_SECONDS:g} seconds") from None

    def loader(self, url: str, *, configured: bool) -> Callable[[], Awaitable[tuple[bytes, float | None]]]:
        """A function that fetches this URL and returns (body, max_age), for ``JwksCache``.

        FetchError: the rules do not allow the URL. It is raised here, not at the first fetch.
        """
        self._read_allowed(url, configured)

        async def load() -> tuple[bytes, float | None]:
            fetched = await self.fetch(url, configured=configured)
            return fetched.body, fetched.max_age

        return load

    def _read_allowed(self, url: str, configured: bool) -> Url:
        target = _target_of(url)
        if target.scheme != "https" and not self._is_exempt(target, configured):
            text = f"{target.origin}: only https URLs are fetched"
            raise with_option(
                FetchError(
                    f"{text}; for a configured server on this machine add its origin to private_origins, and for one "
                    "in a service mesh add its suffix to http_within"
                ),
                f"{text}; write https://…, or for an agent on this machine add --private-origins",
            )
        return target

    def _is_exempt(self, target: Url, configured: bool) -> bool:
        return configured and (target.origin in self._private_origins or self._is_in_mesh(target))

    def _is_in_mesh(self, target: Url) -> bool:
        return target.scheme == "http" and self._mesh.covers(target.host)

    async def _addresses(self, target: Url, configured: bool) -> list[Address]:
        """The checked addresses to connect to. One address that is not allowed rejects the name."""
        if target.address is not None:
            found: list[Address] = [target.address]
        else:
            found = await addresses_of(target.host, target.port or DEFAULT_PORTS[target.scheme], self._resolver)
        if not found:
            raise FetchError(f"{target.origin}: the name has no address; correct the URL, or the DNS entry")
        exempt = self._is_exempt(target, configured)
        if self._is_in_mesh(target):
            check_private(target.origin, found)
            return found
        for address in found:
            if target.scheme == "http" and not is_loopback(address):
                raise FetchError(
                    f"{target.origin}: http is for this machine only, and the name has an address elsewhere; write "
                    "https://…"
                )
            if not is_public(address) and not (exempt and is_private(address)):
                raise _not_public(target, address, exempt)
        return found

    async def _ask(
        self,
        target: Url,
        configured: bool,
        asked: dict[bytes | str, bytes | str],
        content: bytes | None,
        read: Callable[[httpcore.Response], Awaitable[_A]],
        method: str = "",
    ) -> _A:
        """The answer as ``read`` reads it."""
        url = httpcore.URL(
            scheme=target.scheme.encode(),
            host=target.host.strip("[]").encode(),
            port=target.port,
            target=target.path.encode(),
        )
        try:
            with anyio.fail_after(self._timeout):
                addresses = await self._addresses(target, configured)
                # httpcore without httpx, because it has no redirects, environment, cookies or decompression.
                # The pool is for this request only, so that no connection outlives the check of its address.
                async with (
                    aclosing(_CheckedAddresses(addresses, self._timeout)) as network,
                    httpcore.AsyncConnectionPool(ssl_context=self._ssl_context, network_backend=network) as pool,
                    pool.stream(
                        method or ("GET" if content is None else "POST"), url, headers=asked, content=content
                    ) as response,
                ):
                    # Without the query, which may hold a secret.
                    _log.debug("%s%s: HTTP %d", target.origin, target.path.partition("?")[0], response.status)
                    return await read(response)
        except TimeoutError:
            raise FetchError(f"{target.origin}: no complete answer within {self._timeout:g} seconds") from None
        except _NETWORK_ERRORS as error:
            raise FetchError(f"{target.origin}: {_reason(error)}") from None  # their texts may quote the answer

    async def _read_whole(
        self, target: Url, check: Callable[[int, dict[str, str]], None], response: httpcore.Response
    ) -> FormAnswer:
        """The whole answer; ``check`` raises FetchError for a status and headers that are not accepted."""
        headers = _headers(response.headers)
        check(response.status, headers)
        body = bytearray()
        async for chunk in response.aiter_stream():
            body += chunk
            if len(body) > self._max_bytes:
                raise FetchError(f"{target.origin}: the answer has more than {self._max_bytes} bytes", response.status)
        return FormAnswer(status=response.status, headers=headers, body=bytes(body))

    async def _read_beginning(self, response: httpcore.Response) -> AnyAnswer:
        """The answer with the beginning of its body."""
        tls = response.extensions["network_stream"].get_extra_info("ssl_object")
        headers, body = _headers(response.headers), bytearray()
        is_stream = headers.get("content-type", "").lower().startswith("text/event-stream")
        with anyio.move_on_after(self._timeout / 2), suppress(*_NETWORK_ERRORS):  # the status is known
            async for chunk in response.aiter_stream():
                body += chunk
                data = _DATA.search(body) if is_stream else None
                if len(body) >= _BEGINNING or (data is not None and _END_OF_EVENT.search(body, data.end())):
                    break
        return AnyAnswer(
            status=response.status,
            headers=headers,
            body=bytes(body[:_BEGINNING]),
            tls="" if tls is None else tls.version() or "",
            valid_until=None if tls is None else ssl.cert_time_to_seconds(tls.getpeercert()["notAfter"]),
        )


@lru_cache(maxsize=1)
def _system_context() -> ssl.SSLContext:
    """TLS settings with the authorities of the system, which take 50 ms to load."""
    return ssl.create_default_context()


class _CheckedAddresses(httpcore.AsyncNetworkBackend):
    """A network in which every name has the given addresses; TLS still verifies the name."""

    def __init__(self, addresses: Sequence[Address], timeout: float) -> None:
        self._addresses = addresses[:MAX_ATTEMPTS]
        # An address that never answers must leave time for the next one, and for the answer.
        self._attempt_timeout = timeout / (len(self._addresses) + 1)
        self._network = httpcore.AnyIOBackend()
        self._stream: httpcore.AsyncNetworkStream | None = None

    async def connect_tcp(
        self,
        host: str,  # noqa: ARG002  the name is for TLS; it is not looked up again
        port: int,
        timeout: float | None = None,  # noqa: ARG002
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        for address in self._addresses:
            try:
                self._stream = await self._network.connect_tcp(
                    str(address), port, self._attempt_timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
            return self._stream
        raise httpcore.ConnectError

    async def aclose(self) -> None:
        """Close the connection. httpcore loses it when it is cancelled during a TLS handshake."""
        if self._stream is not None:
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()


def _target_of(url: str) -> Url:
    """The parts of a URL, the query in its path. FetchError: it is ambiguous, or neither https nor http."""
    try:
        parts = read_url(url)
    except MalformedError:
        raise FetchError(_AMBIGUOUS) from None
    asked = parts.path if parts.query is None else f"{parts.path}?{parts.query}"
    is_written_well = bool(parts.scheme) and parts.fragment is None and _PATH_AND_QUERY.fullmatch(asked)
    if not is_written_well or has_dot_segment(parts.path):
        raise FetchError(_AMBIGUOUS)
    if parts.scheme not in DEFAULT_PORTS:
        raise FetchError(f"URL: the scheme {parts.scheme[:32]!a} is not fetched; write https://host/path")
    return parts._replace(path=asked or "/", query=None)


def _not_public(target: Url, address: Address, exempt: bool) -> FetchError:
    text = f"{target.origin}: the host has the address {address}, which is not a public one"
    if exempt:
        return FetchError(f"{text}, nor a private one; link-local and metadata addresses are never allowed")
    return with_option(
        FetchError(
            f"{text}; add the origin of a configured private server to private_origins (link-local and metadata "
            "addresses are never allowed)"
        ),
        f"{text}; for a private agent add --private-origins, or save its card to a file and name the file",
    )


def _private_origin(origin: str) -> str:
    """The origin in the spelling in which origins are compared."""
    try:
        target = _target_of(origin)
    except FetchError as error:
        raise ConfigurationError(f"private_origins: {ascii(origin)[:80]}: {error}") from None
    if target.path != "/" or origin.endswith("/"):
        raise ConfigurationError(f"private_origins: {origin!r}: write only the origin: {target.origin}")
    if target.address is not None and not is_public(target.address) and not is_private(target.address):
        raise ConfigurationError(
            f"private_origins: {origin!r}: link-local, metadata and other special addresses are never allowed; leave "
            "it out"
        )
    on_loopback = target.host == "localhost" if target.address is None else is_loopback(target.address)
    if target.scheme == "http" and not on_loopback:
        raise ConfigurationError(
            f"private_origins: {origin!r}: http is for this machine only; write https://…, or for a "
            "service mesh http_within=[…]"
        )
    return target.origin


def _request_headers(
    target: Url, given: Mapping[str, str], known: Fetched | None, content: bytes | None, content_type: str
) -> dict[bytes | str, bytes | str]:
    """The headers of the request: the fetcher's own, the conditions for a known answer, and the caller's headers."""
    headers: dict[bytes | str, bytes | str] = {
        "Host": target.origin.partition("://")[2],
        "Accept": "application/json, application/*+json",
        "Accept-Encoding": "identity",
        "Connection": "close",
        "User-Agent": "a2a-trust",
    }
    if content is not None:
        headers |= {"Content-Type": content_type, "Content-Length": str(len(content))}
    for name, value in given.items():
        if not _TOKEN.fullmatch(name) or name.lower() in OWN_HEADERS:
            raise ConfigurationError(f"headers: {ascii(name)[:64]} is set by the fetcher, or invalid; leave it out")
        if not _FIELD_VALUE.fullmatch(value):  # the error does not show the value, which may be a secret
            raise ConfigurationError(
                f"headers: the value of {name} must be printable ASCII, without blanks at its begin and end"
            )
        headers[name] = value
    if known is not None and known.etag is not None:
        headers["If-None-Match"] = known.etag
    elif known is not None and known.last_modified is not None:
        headers["If-Modified-Since"] = known.last_modified
    return headers


def _update_known(target: Url, headers: Mapping[str, str], known: Fetched) -> Fetched:
    """The known answer, updated by a 304 (RFC 9111 4.3.4)."""
    if known.etag is not None and headers.get("etag", known.etag) != known.etag:
        raise FetchError(f"{target.origin}: it answers with status 304 for another ETag than the one in the request")
    max_age = _max_age(headers) if "cache-control" in headers else known.max_age
    validators = _validators({"etag": known.etag or "", "last-modified": known.last_modified or "", **headers})
    return Fetched(body=known.body, max_age=max_age, **validators)


def _validators(headers: Mapping[str, str]) -> dict[str, str | None]:
    """``etag`` and ``last_modified``; neither if the answer must not be stored or reused (RFC 9111 4.1)."""
    if "no-store" in _directives(headers) or "*" in headers.get("vary", ""):
        return {}
    etag, modified = headers.get("etag", ""), headers.get("last-modified", "")
    return {
        "etag": etag if _ETAG.fullmatch(etag) else None,
        "last_modified": modified if _HTTP_DATE.fullmatch(modified) else None,
    }


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers by lower-case name; lines of one name joined by commas (RFC 9110 5.3)."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _check_answer(
    target: Url, status: int, headers: dict[str, str], wanted: tuple[int, ...], wanted_type: str = ""
) -> None:
    """FetchError for an answer that is not accepted. It must be JSON, or of ``wanted_type`` if that is given."""
    if 300 <= status < 400 and status != 304:
        raise FetchError(f"{target.origin}: it redirects ({status}), which is not followed; use the final URL", status)
    if status not in wanted:
        raise FetchError(f"{target.origin}: it answers with status {status}, not 200", status, _retry_after(headers))
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise FetchError(f"{target.origin}: the answer is compressed although only identity was accepted", status)
    came = headers.get("content-type", "").partition(";")[0].strip().lower()
    if came != wanted_type if wanted_type else not _JSON_TYPE.fullmatch(came):
        expected = wanted_type or "application/json or application/…+json"
        raise FetchError(f"{target.origin}: the answer (status {status}) is not of type {expected}", status)


def _max_age(headers: Mapping[str, str]) -> float | None:
    """The remaining seconds of ``max-age``. An unreadable value counts as 0, as RFC 9111 4.2.1 advises."""
    directives = _directives(headers)
    if {"no-store", "no-cache"} & directives.keys() or "*" in headers.get("vary", ""):
        return 0.0
    if "max-age" not in directives:
        return None
    ages = [_seconds(value.strip().strip('"')) for value in directives["max-age"]]
    return max(0.0, min(ages) - _seconds(headers.get("age", "0").strip()))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of Retry-After, which may name a moment instead (RFC 9110 10.2.3)."""
    text = headers.get("retry-after", "").strip()
    if _HTTP_DATE.fullmatch(text):
        with suppress(ValueError):
            return parsedate_to_datetime(text).timestamp() - time()
    return _seconds(text) if text else None


def _directives(headers: Mapping[str, str]) -> dict[str, list[str]]:
    """The directives of Cache-Control, with all values of each."""
    directives: dict[str, list[str]] = {}
    for part in headers.get("cache-control", "").lower().split(","):
        name, _, value = part.partition("=")
        directives.setdefault(name.strip(), []).append(value)
    return directives


def _seconds(digits: str) -> float:
    """Delta-seconds (RFC 9111 1.2.2); 0 for anything else."""
    return min(float(digits), 2.0**31) if digits.isascii() and digits.isdigit() else 0.0


def _reason(error: BaseException) -> str:
    if isinstance(error.__context__, ssl.SSLCertVerificationError):
        return (
            f"its certificate is rejected ({error.__context__.verify_message}); a private authority needs ssl_context"
        )
    return f"it cannot be reached, or does not speak correct HTTP ({type(error).__name__})"


def check_fetcher(fetcher: object) -> None:
    """ConfigurationError if an argument is neither a fetcher nor None, which stands for the default."""
    if fetcher is not None and (isinstance(fetcher, type) or not callable(getattr(fetcher, "fetch", None))):
        kind = fetcher.__name__ if isinstance(fetcher, type) else type(fetcher).__name__
        raise ConfigurationError(
            f"fetcher: {kind} is not a fetcher; write Fetcher(), as in "
            "fetcher=Fetcher(private_origins=['https://login.internal'])"
        )
