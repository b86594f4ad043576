"""For clients with httpx: verifies every card that passes through, and sends requests only to URLs in verified cards.

One line in an existing program::

    httpx.AsyncClient(transport=AsyncVerifyingTransport(httpx.AsyncHTTPTransport(), trust))

The rules are in ``interception``. A verified card passes unchanged, headers and body. An error answer in its place
passes without its body. A card that is not verified, and a request to a URL that no verified card names, raise
``UnverifiedCardError``. It is an ``httpx.RequestError``, so programs handle it like a missing answer. All other
answers, streams too, pass unchanged. The client follows redirects, so each hop is checked as a request.

gRPC does not use httpx, so it is not covered. Other transports of a client (``mounts``, ``proxy``) are not covered
either: wrap each of them.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, cast

import anyio
import httpx

from a2a_trust.cache import SingleFlight
from a2a_trust.client.attachment import copy_attachment, detach, sent_to
from a2a_trust.client.destinations import Destination, UnsafePassAnything, named_origins, origin_in
from a2a_trust.client.flow import Flow, at_once, run, run_async, waited
from a2a_trust.client.interception import BARE_HEADERS, DROPPED_HEADERS, Asked, PassingCards
from a2a_trust.client.memory import CardMemory
from a2a_trust.client.verification import ANY_KEY, Verification
from a2a_trust.errors import (
    CardMemoryError,
    CardMemoryUnavailableError,
    ConfigurationError,
    FetchError,
    MalformedError,
    TrustError,
)
from a2a_trust.keys.policy import Policy
from a2a_trust.keys.trust import TrustSource
from a2a_trust.net.addresses import Address
from a2a_trust.net.fetcher import MAX_ATTEMPTS, Resolver, SystemResolver, addresses_of
from a2a_trust.net.urls import DEFAULT_PORTS, HttpWithin, check_private
from a2a_trust.strict_json import MAX_BYTES

T = TypeVar("T")

#: For the whole card, as long as a ``Fetcher`` waits: other requests to that agent wait meanwhile.
_FETCH_SECONDS: Final = 5.0
NO_CARDS: Final[Mapping[str, str]] = MappingProxyType({})
NO_TRANSPORTS: Final[Mapping[str, Any]] = MappingProxyType({})


class UnverifiedCardError(TrustError, httpx.RequestError):
    """A card is not verified, so it was not passed on; or no verified card names the URL of a request, so it was not
    sent. ``__cause__`` is the TrustError that says why."""

    code = "unverified-card"


class VerifyingTransport(httpx.BaseTransport):
    """Sends requests with ``transport``, but only to URLs that a verified card names.

    The first request to another URL fetches its card with the same transport, without credentials: from the well-known
    names below that path, upwards to the root, or from ``cards[interface URL]``.

    - ``trust``, ``memory``, ``policy``, ``clock``: as for ``fetch_card``.
    - ``cards``: URLs of cards by the URLs of interfaces, for cards at other URLs.
    - ``also``: origins (``"https://idp.example.com"``) and URLs that need no card, each with all paths below it.
      ``UnsafePassAnything()`` permits every URL.
    - ``http_within``: suffixes of names in a service mesh, as for ``Fetcher``. Each request over plain http goes to a
      checked address of the name, with the name in ``Host``.
    - ``resolver``: looks these names up.
    - ``mutual_tls``: transports with a client certificate, by origin. They send the requests to URLs there that a
      verified card names, and the GET of cards there that are in ``cards``; ``transport`` sends all others.

    ConfigurationError: a URL in ``cards`` or ``also`` is ambiguous, or is neither https, nor http to this machine or
    within the mesh; or an origin in ``mutual_tls`` is not an origin.
    """

    def __init__(
        self,
        transport: httpx.BaseTransport,
        trust: TrustSource,
        *,
        memory: CardMemory | None = None,
        policy: Policy = ANY_KEY,
        cards: Mapping[str, str] = NO_CARDS,
        also: Iterable[str] | UnsafePassAnything = (),
        http_within: Iterable[str] = (),
        mutual_tls: Mapping[str, httpx.BaseTransport] = NO_TRANSPORTS,
        resolver: Resolver | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._network = _Blocking(transport, mutual_tls)
        verification = Verification(trust=trust, memory=memory, policy=policy, clock=clock)
        mesh = HttpWithin(http_within)
        self._cards = PassingCards(verification, cards, also, mesh, self._network.mutual_tls)
        self._requests = _Requests(self._cards, self._network, mesh, resolver)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return at_once(self._requests.handle(request))

    def close(self) -> None:
        for transport in self._network.transports:
            transport.close()


class AsyncVerifyingTransport(httpx.AsyncBaseTransport):
    """As ``VerifyingTransport``, for ``httpx.AsyncClient``."""

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport,
        trust: TrustSource,
        *,
        memory: CardMemory | None = None,
        policy: Policy = ANY_KEY,
        cards: Mapping[str, str] = NO_CARDS,
        also: Iterable[str] | UnsafePassAnything = (),
        http_within: Iterable[str] = (),
        mutual_tls: Mapping[str, httpx.AsyncBaseTransport] = NO_TRANSPORTS,
        resolver: Resolver | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._network = _Awaiting(transport, mutual_tls)
        verification = Verification(trust=trust, memory=memory, policy=policy, clock=clock)
        mesh = HttpWithin(http_within)
        self._cards = PassingCards(verification, cards, also, mesh, self._network.mutual_tls)
        self._requests = _Requests(self._cards, self._network, mesh, resolver)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._requests.handle(request)

    async def aclose(self) -> None:
        for transport in self._network.transports:
            await transport.aclose()


class _Transports(Generic[T]):
    """The transport of a client, and those with its certificate, by origin."""

    def __init__(self, transport: T, mutual_tls: Mapping[str, T]) -> None:
        self._transport = transport
        self.mutual_tls = {origin: each for given, each in mutual_tls.items() for origin in named_origins([given])}
        self.transports = {transport, *self.mutual_tls.values()}

    def for_origin(self, origin: str) -> T:
        """The transport with the certificate for that origin; the client's own for "", which is none."""
        return self.mutual_tls[origin] if origin else self._transport


class _Blocking(_Transports[httpx.BaseTransport]):
    """The network for programs that wait: nothing here suspends."""

    make_lock = Lock

    async def acquire(self, lock: Any) -> None:
        lock.acquire()

    async def run(self, flow: Flow[T]) -> T:
        return run(flow)

    async def wait(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return waited(begin)

    async def send(self, request: httpx.Request, certified: str) -> httpx.Response:
        return self.for_origin(certified).handle_request(request)

    async def read(self, stream: object, check: Callable[[bytearray], None]) -> bytes:
        body = bytearray()
        for chunk in cast("httpx.SyncByteStream", stream):
            body += chunk
            check(body)
        return bytes(body)

    async def close(self, response: httpx.Response) -> None:
        response.close()

    def within(self, seconds: float) -> AbstractContextManager[object]:  # noqa: ARG002
        return nullcontext()  # the timeouts of the request, and a look at the clock after each chunk


class _Awaiting(_Transports[httpx.AsyncBaseTransport]):
    """The network for event loops."""

    make_lock = anyio.Lock

    async def acquire(self, lock: Any) -> None:
        await lock.acquire()

    async def run(self, flow: Flow[T]) -> T:
        return await run_async(flow)

    async def wait(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await begin()

    async def send(self, request: httpx.Request, certified: str) -> httpx.Response:
        return await self.for_origin(certified).handle_async_request(request)

    async def read(self, stream: object, check: Callable[[bytearray], None]) -> bytes:
        body = bytearray()
        async for chunk in cast("httpx.AsyncByteStream", stream):
            body += chunk
            check(body)
        return bytes(body)

    async def close(self, response: httpx.Response) -> None:
        await response.aclose()

    def within(self, seconds: float) -> AbstractContextManager[object]:
        return anyio.fail_after(seconds)


class _Requests:
    """The one flow of both transports."""

    def __init__(
        self, cards: PassingCards, network: _Blocking | _Awaiting, mesh: HttpWithin, resolver: Resolver | None
    ) -> None:
        self._cards, self._network, self._mesh = cards, network, mesh
        self._resolver = SystemResolver() if resolver is None else resolver
        #: Requests for one name that begin at once share a look-up: each takes a thread, and there are few.
        self._look_ups = SingleFlight[str, list[Address]]()
        self._turns = _Turns[Any](network.make_lock)

    async def handle(self, request: httpx.Request) -> httpx.Response:
        try:
            asked, is_permitted = await self._decided(request)
        except ConfigurationError:
            raise  # it is the program's or its operator's, and says nothing of a card
        except TrustError as error:
            raise _not_sent(request, error) from error.with_traceback(None)  # it may be kept
        if asked is None:
            return await self._sent(request)
        if is_permitted:
            plain = _plain(request)
            try:
                return await self._card(plain, asked)
            finally:
                detach(plain)
        return _of_a_stranger(await self._fetched(sent_to(request), request))

    async def _decided(self, request: httpx.Request) -> tuple[Asked | None, bool]:
        """The purpose of the request, and whether it is sent unchanged.

        The URL may hold a key, and tracebacks show locals: it is in no frame that is there while the request is sent.
        """
        body = await self._body(request) if _may_be_call(request) else b""
        url = sent_to(request)
        asked = self._cards.asked(request.method, url, body)
        return asked, self._cards.permits_at_once(url) or await self._is_permitted_now(request, url, asked)

    async def _body(self, request: httpx.Request) -> bytes:
        """The body, to be sent from memory; MalformedError: it is a stream, and too long for a call."""
        if not isinstance(request.stream, httpx.ByteStream):
            request.stream = httpx.ByteStream(await self._network.read(request.stream, _check_stream))
        return request.read()

    async def _is_permitted_now(self, request: httpx.Request, url: str, asked: Asked | None) -> bool:
        """Whether the request goes as it is; False: without credentials. TrustError: not at all."""
        with self._turns.of(self._cards.destination(url).without_operation()) as turn:
            await self._network.acquire(turn)
            try:
                if await self._network.run(self._cards.permits_again(url)):
                    return True
                if self._cards.goes_bare(asked, request.method, url):
                    return False
                search = self._cards.search(url)
                for card_url in search.card_urls:
                    outcome = await self._outcome(card_url, request)
                    if self._cards.permits(url):
                        return True
                    search.note(card_url, outcome)
                    if isinstance(outcome, FetchError | CardMemoryError | CardMemoryUnavailableError):
                        break  # no card of another folder may do what one that the memory rejects may not
                raise self._cards.failed(url, search)
            finally:
                turn.release()

    async def _sent(self, request: httpx.Request) -> httpx.Response:
        """The answer to the request. Over http within the mesh it goes to a checked address in place of the name, which
        may lead elsewhere by the time that a transport asks for it."""
        if request.url.scheme != "http" or not self._mesh.covers(request.url.raw_host.decode("ascii")):
            return await self._network.send(request, self._certified(request))
        refused: httpx.TransportError | None = None
        addresses = (await self._checked_addresses(request))[:MAX_ATTEMPTS]
        for address in addresses:
            addressed = _addressed(request, address, len(addresses))
            try:
                return await self._network.send(addressed, "")
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:  # nothing was sent
                refused = error
            finally:
                detach(addressed)
        raise refused or httpx.ConnectError(f"{_address(request)}: the name has no address", request=request)

    def _certified(self, request: httpx.Request) -> str:
        """The origin of the request if it shows the client's certificate, else "". No frame keeps its URL."""
        if not self._network.mutual_tls:
            return ""
        url = sent_to(request)
        return origin_in(url) if self._cards.shows_certificate(request.method, url) else ""

    async def _checked_addresses(self, request: httpx.Request) -> list[Address]:
        """All addresses of the name. UnverifiedCardError: one of them is outside of the mesh."""
        host, port = request.url.raw_host.decode("ascii"), request.url.port or DEFAULT_PORTS["http"]
        seconds = request.extensions.get("timeout", {}).get("connect")

        async def look_up() -> list[Address]:
            with anyio.fail_after(_FETCH_SECONDS):
                return await addresses_of(host, port, self._resolver)

        async def found() -> list[Address]:
            with anyio.fail_after(seconds):
                return await self._look_ups.run(f"{host}:{port}", look_up)

        try:
            addresses = await self._network.wait(found)
            check_private(f"http://{host}:{port}", addresses)
        except TimeoutError:
            raise httpx.ConnectTimeout(f"{host}: its name servers do not answer in time", request=request) from None
        except FetchError as error:
            raise _not_sent(request, error) from error.with_traceback(None)
        return addresses

    async def _outcome(self, card_url: str, request: httpx.Request) -> str | TrustError:
        """The response from the URL of a card."""
        try:
            return _said(await self._fetched(card_url, request))
        except (UnverifiedCardError, httpx.TransportError, ssl.SSLError) as error:
            return _cause(error)  # with anyio, the alert of a server that demands a certificate is not one of httpx

    async def _fetched(self, card_url: str, request: httpx.Request) -> httpx.Response:
        """The card at a URL that no verified card names, or an error in its place, within the deadline."""
        bare = _bare_request(card_url, request)
        try:
            with self._network.within(_FETCH_SECONDS):
                return await self._card(bare, Asked.CARD, until=time.monotonic() + _FETCH_SECONDS)
        except TimeoutError:
            raise _refusal(bare, _too_slow()) from _too_slow()

    async def _card(self, request: httpx.Request, asked: Asked, until: float = float("inf")) -> httpx.Response:
        """The answer to a request for a card, when the card is verified; ``until`` is by the monotonic clock."""

        def check(card: bytearray) -> None:
            _check_size(card)
            if time.monotonic() > until:
                raise _too_slow()

        response = await self._sent(request)
        if response.is_error:
            await self._network.close(response)
            return _bare(response)
        try:
            _check_head(response)
            card = await self._network.read(response.stream, check)
            await self._network.run(self._cards.judged(asked, sent_to(request), card, response.charset_encoding))
        except ConfigurationError:
            raise
        except TrustError as error:
            raise _refusal(request, error) from error.with_traceback(None)
        finally:
            await self._network.close(response)
        return _again(response, card)


_LockT = TypeVar("_LockT")


class _Turns(Generic[_LockT]):
    """One lock for each destination, as long as a request holds it or waits for it."""

    def __init__(self, make: Callable[[], _LockT]) -> None:
        self._make = make
        self._guard = Lock()
        self._taken: dict[Destination, tuple[_LockT, int]] = {}

    @contextmanager
    def of(self, destination: Destination) -> Iterator[_LockT]:
        with self._guard:
            lock, users = self._taken.get(destination) or (self._make(), 0)
            self._taken[destination] = (lock, users + 1)
        try:
            yield lock
        finally:
            with self._guard:
                lock, users = self._taken.pop(destination)
                if users > 1:
                    self._taken[destination] = (lock, users - 1)


def _may_be_call(request: httpx.Request) -> bool:
    """Whether the body has to be looked into; others are sent as they come, however long."""
    return request.method == "POST" and "json" in request.headers.get("content-type", "json").lower()


def _check_stream(body: bytearray) -> None:
    if len(body) > MAX_BYTES:
        raise MalformedError(
            f"body: a stream of more than {MAX_BYTES} bytes of JSON cannot be checked for calls of a card; pass it as "
            "bytes, or with a Content-Type that is not JSON"
        )


def _plain(request: httpx.Request) -> httpx.Request:
    """The request for the whole card, in no encoding."""
    headers = httpx.Headers(request.headers)
    for name in DROPPED_HEADERS:
        headers.pop(name, None)
    headers["Accept-Encoding"] = "identity"
    plain = httpx.Request(
        request.method, request.url, headers=headers, stream=request.stream, extensions=request.extensions
    )
    copy_attachment(request, plain)
    return plain


def _addressed(request: httpx.Request, address: Address, attempts: int) -> httpx.Request:
    """The request to one address of its name. ``Host`` is the name, whatever the program wrote: sidecars go by it. The
    addresses share the time to connect, so that one which swallows packets leaves some for the next."""
    headers = httpx.Headers(request.headers)
    headers["Host"] = request.url.netloc.decode("ascii")
    url = request.url.copy_with(host=str(address))
    timeout = dict(request.extensions.get("timeout", {}))
    if timeout.get("connect") is not None:
        timeout["connect"] /= attempts
    extensions = {**request.extensions, "timeout": timeout}
    addressed = httpx.Request(request.method, url, headers=headers, stream=request.stream, extensions=extensions)
    copy_attachment(request, addressed)
    return addressed


def _bare_request(url: str, request: httpx.Request) -> httpx.Request:
    """The GET of a card for that request, with nothing that could be a credential."""
    headers = {name: request.headers[name] for name in BARE_HEADERS if name in request.headers}
    given = request.extensions.get("timeout", {})
    seconds = {step: given.get(step) for step in ("connect", "read", "write", "pool")}
    timeout = {step: _FETCH_SECONDS if each is None else min(each, _FETCH_SECONDS) for step, each in seconds.items()}
    return httpx.Request(
        "GET", url, headers={**headers, "Accept-Encoding": "identity"}, extensions={"timeout": timeout}
    )


def _said(response: httpx.Response) -> str:
    return f"status {response.status_code}" if response.is_error else "its card is verified, and does not name it"


def _cause(error: Exception) -> TrustError:
    """Why there is no verified card; FetchError: because nothing came."""
    if isinstance(error.__cause__, TrustError):
        return error.__cause__
    return FetchError(type(error).__name__)


def _check_head(response: httpx.Response) -> None:
    if not response.is_success:
        raise MalformedError(
            f"card: status {response.status_code} leads to a card that does not come through here, so it cannot be "
            "verified"
        )
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise MalformedError("card: it is compressed although only identity was accepted")


def _too_slow() -> FetchError:
    return FetchError(f"card: it did not arrive within {_FETCH_SECONDS:g} seconds")


def _check_size(card: bytearray) -> None:
    if len(card) > MAX_BYTES:
        raise MalformedError(f"card: larger than {MAX_BYTES} bytes")


def _refusal(request: httpx.Request, error: TrustError) -> UnverifiedCardError:
    return UnverifiedCardError(f"the card from {_address(request)} is not passed on: {error}", request=request)


def _not_sent(request: httpx.Request, error: TrustError) -> UnverifiedCardError:
    return UnverifiedCardError(f"the request to {_address(request)} is not sent: {error}", request=request)


def _address(request: httpx.Request) -> str:
    """The URL without user information and query, which may hold secrets."""
    url = request.url
    return f"{url.scheme}://{url.netloc.decode('ascii')}{url.raw_path.partition(b'?')[0].decode('ascii')}"


def _bare(response: httpx.Response) -> httpx.Response:
    """An error without its body: a program that does not look at the status would read a card in it."""
    # As bytes: httpx reads headers that are not ASCII, and does not write them.
    headers = [line for line in response.headers.raw if line[0].lower() not in _OF_BODIES]
    return httpx.Response(response.status_code, headers=headers, content=b"", extensions=response.extensions)


_OF_BODIES: Final = (b"content-length", b"content-encoding", b"content-type", b"transfer-encoding")


def _of_a_stranger(response: httpx.Response) -> httpx.Response:
    """The answer to a bare request, without what makes the program send more: cookies, which go to every host below
    their ``Domain``, and challenges, to which ``httpx.DigestAuth`` computes an answer from the password."""
    for name in _DEMANDS:
        response.headers.pop(name, None)
    return response


_DEMANDS: Final = ("set-cookie", "set-cookie2", "www-authenticate")


def _again(response: httpx.Response, body: bytes) -> httpx.Response:
    """The response as it was, with its body to be read once more."""
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        stream=httpx.ByteStream(body),
        extensions=response.extensions,
    )
