"""The door of a client for httpx: transports that verify cards, credentials as an ``httpx.Auth``, and both in one call.

The rules:

1. A verified card passes unchanged, headers and body. An error answer in its place passes without its body. All other
   answers, streams too, pass unchanged.
2. A request that is not sent, and a card that is not passed on, raise ``httpx.RequestError``, like a missing answer.
3. httpx, its log and its redirects never see a credential (``attachment``). httpx follows redirects: each of their
   requests is checked as a new one, and has no credential.

``connection`` permits, ``demands`` has the credentials; only this module and ``attachment`` know httpx. gRPC does not
use httpx, so it is not covered. Neither are other transports of a client (``mounts``, ``proxy``): wrap each of them.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar
from weakref import WeakSet, ref

import httpx

from a2a_trust.base.net.fetcher import Resolver
from a2a_trust.base.net.urls import HttpWithin
from a2a_trust.client.answer import check_credentials
from a2a_trust.client.attachment import attach, copy_attachment, place_of, sent_to
from a2a_trust.client.certificates import OwnCertificate, client_context
from a2a_trust.client.connection import CalledAgent, Connection
from a2a_trust.client.credentials import Credential
from a2a_trust.client.decisions import OF_BODIES
from a2a_trust.client.demands import GivenCard
from a2a_trust.client.destinations import UnsafePassAnything, named_origins
from a2a_trust.client.fetching import EMPTY
from a2a_trust.client.flow import Awaiting, Blocking, Flow, Steps
from a2a_trust.client.memory import CardMemory
from a2a_trust.client.messages import (
    NOTHING,
    Attachment,
    Close,
    NoReply,
    NoReplyReason,
    Read,
    RejectedCredentials,
    Reply,
    Request,
    Send,
)
from a2a_trust.client.verification import ANY_KEY, Verification
from a2a_trust.errors import ConfigurationError, MalformedError, TrustError
from a2a_trust.keys.signer import HoldsSecret
from a2a_trust.keys.trust.policy import Policy
from a2a_trust.keys.trust.store import TrustSource
from a2a_trust.signing.verify import VerifiedCard

T = TypeVar("T")

_TIMEOUT: Final = httpx.Timeout(10.0, read=300.0)  # agents think for minutes
_BLOCKING: Final = Blocking()
_AWAITING: Final = Awaiting()
_FIRST: Final = "a2a_trust.first"
"""The extension of a redirected request that refers to it. httpx copies extensions into the next request, which a
program may send by itself."""


class UnverifiedCardError(TrustError, httpx.RequestError):
    """A card is not verified, or no verified card names the URL of a request. ``__cause__`` says why."""

    code = "unverified-card"


class CredentialsError(TrustError, httpx.RequestError):
    """A request was not sent: no credential fits or can be had, or its card is not verified; ``__cause__`` says why."""

    code = "credentials"


class CredentialsRejectedError(TrustError, httpx.HTTPStatusError):
    """The agent rejects the credentials (401), or asks for scopes that the token lacks (403).

    ``schemes`` are the names of the schemes with credentials in the request. ``scopes`` are the scopes that the card
    demands or the agent asks for. ``resource_metadata`` is the URL of the agent's metadata (RFC 9728), unverified.
    ``response`` has the status and the headers, without the body.
    """

    code = "credentials-rejected"

    def __init__(
        self,
        message: str,
        *,
        request: httpx.Request,
        response: httpx.Response,
        schemes: tuple[str, ...] = (),
        scopes: tuple[str, ...] = (),
        resource_metadata: str = "",
    ) -> None:
        self.schemes: Final[tuple[str, ...]] = schemes
        self.scopes: Final[tuple[str, ...]] = scopes
        self.resource_metadata: Final[str] = resource_metadata
        super().__init__(message, request=request, response=response)


class _Transports(Generic[T]):
    """The transports of a client by the origins that see its certificate; "" has the one without."""

    failures: tuple[type[Exception], ...] = (httpx.TransportError, ssl.SSLError)  # anyio passes alerts of TLS on
    not_connected: tuple[type[Exception], ...] = (httpx.ConnectError, httpx.ConnectTimeout)

    def __init__(self, transport: T, mutual_tls: Mapping[str, T]) -> None:
        super().__init__()
        certified = {origin: each for given, each in mutual_tls.items() for origin in named_origins([given])}
        self.mutual_tls = frozenset(certified)
        self.transports: Mapping[str, T] = {"": transport, **certified}


class _Blocking(_Transports[httpx.BaseTransport], Blocking):
    def take(self, step: Any) -> Any:
        match step:
            case Send():
                wire = _wire(step)
                try:
                    return _reply(self.transports[step.certified].handle_request(wire))
                finally:
                    attach(wire, NOTHING)
            case Read():
                body = bytearray()
                for chunk in step.message.handle.stream:
                    body += chunk
                    step.check(body)
                return _read(step, bytes(body))
            case Close():
                return step.reply.handle.close()
        return super().take(step)


class _Awaiting(_Transports[httpx.AsyncBaseTransport], Awaiting):
    async def take(self, step: Any) -> Any:
        match step:
            case Send():
                wire = _wire(step)
                try:
                    return _reply(await self.transports[step.certified].handle_async_request(wire))
                finally:
                    attach(wire, NOTHING)
            case Read():
                body = bytearray()
                async for chunk in step.message.handle.stream:
                    body += chunk
                    step.check(body)
                return _read(step, bytes(body))
            case Close():
                return await step.reply.handle.aclose()
        return await super().take(step)


class _Verifying(Generic[T]):
    """The arguments of both transports, and the way of a request through them."""

    _driver: ClassVar[type[Any]]

    def __init__(
        self,
        transport: T,
        trust: TrustSource,
        *,
        memory: CardMemory | None = None,
        policy: Policy = ANY_KEY,
        cards: Mapping[str, str] = EMPTY,
        card_headers: Mapping[str, Mapping[str, Credential]] = EMPTY,
        also: Iterable[str] | UnsafePassAnything = (),
        http_within: Iterable[str] = (),
        mutual_tls: Mapping[str, T] = EMPTY,
        resolver: Resolver | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._network = self._driver(transport, mutual_tls)
        verification = Verification(trust=trust, memory=memory, policy=policy, clock=clock)
        self._connection = Connection(
            verification, self._network, cards, also, HttpWithin(http_within), resolver, card_headers
        )
        #: The requests that the client of one agent is sending for the program.
        self._own = WeakSet[httpx.Request]()

    def _exchange(self, request: httpx.Request) -> Flow[httpx.Response]:
        """The answer for the program, from a copy of its request: the program may change its own meanwhile."""
        copied = _copy(request, request.url, request.extensions)
        streamed = copied.stream
        is_redirected = request.extensions.get(_FIRST, ref(request))() is not request
        try:
            values = _values(copied, NoReplyReason.NOT_SENT, is_own=request in self._own and not is_redirected)
            response = _response((yield from self._connection.exchange(values)))
            if response.has_redirect_location:
                request.extensions[_FIRST] = ref(request)
            return response
        except NoReply as no_reply:
            error = _error(no_reply, request)
        finally:
            if copied.stream is not streamed:  # it was read, and the program may send its request again
                request.stream = copied.stream
        raise error  # here, where the answer to the wire's request is not its context


class VerifyingTransport(_Verifying[httpx.BaseTransport], httpx.BaseTransport):
    """Sends requests with ``transport``, but only to URLs that a verified card names.

    The first request to another URL fetches its card with the same transport, without credentials: from the well-known
    names below that path, upwards to the root, or from ``cards[interface URL]``.

    - ``trust``, ``memory``, ``policy``, ``clock``: as for ``fetch_card``.
    - ``cards``: URLs of cards by the URLs of interfaces, for cards at other URLs. At another origin (a registry) the
      card is verified for the interface's host, and must name that interface.
    - ``card_headers``: credentials for cards behind authentication, by the exact URL of the card, then by header:
      ``{"https://agent.example.com/.well-known/agent-card.json": {"X-API-Key": ApiKey(…, origins=[…])}}``.
    - ``also``: origins (``"https://idp.example.com"``) and URLs that need no card, each with all paths below it.
      ``UnsafePassAnything()`` permits every URL.
    - ``http_within``: suffixes of names in a service mesh, as for ``Fetcher``. Each request over plain http goes to a
      checked address of the name, with the name in ``Host``.
    - ``resolver``: looks these names up.
    - ``mutual_tls``: transports with a client certificate, by origin. They send the requests to URLs there that a
      verified card names, and the GET of cards there that are in ``cards``; ``transport`` sends all others.

    ConfigurationError: a URL is ambiguous, or neither https, nor http to this machine or within the mesh.
    """

    _driver = _Blocking

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response: httpx.Response = self._network.run(self._exchange(request))
        return response

    def close(self) -> None:
        for transport in set(self._network.transports.values()):
            transport.close()


class AsyncVerifyingTransport(_Verifying[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport):
    """As ``VerifyingTransport``, for ``httpx.AsyncClient``. Transports are ``httpx.AsyncBaseTransport``."""

    _driver = _Awaiting

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response: httpx.Response = await self._network.run(self._exchange(request))
        return response

    async def aclose(self) -> None:
        for transport in set(self._network.transports.values()):
            await transport.aclose()


class CardAuth(HoldsSecret, httpx.Auth):
    """Sends the credentials that ``card`` demands, for ``httpx.Client(auth=…)`` and ``httpx.AsyncClient(auth=…)``.

    - ``credentials``: by the names of the card's schemes. A certificate for mutual TLS is ``CertificateFiles`` or
      ``CertificateInMemory``; give it to the client's transport, too: ``VerifyingTransport(mutual_tls=…)``.
    - ``trust``: the trusted keys, as for ``fetch_card``. Each request asks whether they still verify the card.
    - ``skills``: the ids of the skills that the requests are for, if the card demands more for them.
    - ``clock``: gives seconds since the epoch.

    Threads and tasks may share one. CredentialsError: no credential fits. CredentialsRejectedError: the agent rejects
    them. ConfigurationError: an argument is wrong. Source: A2A 1.0.1 4.5, 7.3; RFC 6750 3, RFC 9449 7.
    """

    def __init__(
        self,
        card: VerifiedCard,
        credentials: Mapping[str, Credential | OwnCertificate],
        *,
        trust: TrustSource,
        skills: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(card, VerifiedCard):
            raise ConfigurationError("card: it is not a VerifiedCard; write CardAuth(fetch_card(url, trust), …)")
        check_credentials(credentials)
        self._card = GivenCard(card, Verification(trust=trust, clock=clock), dict(credentials), _skill_ids(skills))

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        steps = Steps(self._exchange(request))
        for step in steps:
            try:
                if isinstance(step, httpx.Request):
                    steps.outcome.append((yield step))
                else:
                    steps.outcome.append(_drop(step) if isinstance(step, Close) else _BLOCKING.take(step))
            except BaseException as error:  # noqa: BLE001  it is raised in the flow
                steps.failed(error)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        steps = Steps(self._exchange(request))
        for step in steps:
            try:
                if isinstance(step, httpx.Request):
                    steps.outcome.append((yield step))
                else:
                    steps.outcome.append(_drop(step) if isinstance(step, Close) else await _AWAITING.take(step))
            except BaseException as error:  # noqa: BLE001  it is raised in the flow
                steps.failed(error)

    def _exchange(self, request: httpx.Request) -> Flow[None]:
        place = place_of(request)

        def send(attachment: Attachment) -> Flow[Reply]:
            if place_of(request) != place:
                raise NoReply(
                    NoReplyReason.NO_CREDENTIALS,
                    "the URL of the request was changed while it was sent; make a request for each URL",
                )
            attach(request, attachment)
            try:
                response = yield request
            finally:
                attach(request, NOTHING)
            values.body = _body(request)  # a transport may have read a stream
            return _reply(response, is_elsewhere=response.request is not request)

        try:
            values = _values(request, NoReplyReason.NO_CREDENTIALS)
            yield from self._card.exchange(values, send)
            return
        except NoReply as no_reply:
            error = _error(no_reply, request)
        raise error  # here, where the answer to the wire's request is not its context

    def __repr__(self) -> str:
        return "CardAuth(…)"


def verifying_client(
    url: str,
    *,
    trust: TrustSource,
    credentials: Mapping[str, Credential | OwnCertificate],
    skills: Iterable[str] = (),
    memory: CardMemory | None = None,
    policy: Policy = ANY_KEY,
    card: str | Path | bytes | VerifiedCard | None = None,
    cards: Mapping[str, str] = EMPTY,
    card_headers: Mapping[str, Mapping[str, Credential]] = EMPTY,
    also: Iterable[str] | UnsafePassAnything = (),
    http_within: Iterable[str] = (),
    authorities: Path | str | None = None,
    timeout: httpx.Timeout = _TIMEOUT,
    clock: Callable[[], float] = time.time,
) -> httpx.AsyncClient:
    """A client for the agent at that URL. Its card is fetched and verified before the first request.

    - ``url``: the URL of the agent, or of its card, which ends in ``.json``. Write the URL of the card if its server
      demands the client's certificate for it.
    - ``card``: the card, if the agent does not serve it: its URL elsewhere, such as a registry, a ``Path``, its bytes,
      or a ``VerifiedCard``. It is verified for the host of ``url``, and must name an interface at ``url`` or below it.
    - ``credentials``, ``skills``: as for ``CardAuth``. Their origins may use http within ``http_within``.
    - ``trust``, ``memory``, ``policy``, ``cards``, ``card_headers``, ``also``, ``http_within``: as for
      ``AsyncVerifyingTransport``.
    - ``authorities``: a file of CA certificates in PEM, for agents in a private network.
    - ``timeout``: the limit for each step of a request; by default 10 seconds, and 300 for reading an answer.

    Requests fail as for ``CardAuth`` and ``AsyncVerifyingTransport``. ConfigurationError: an argument is wrong.
    """
    mesh = HttpWithin(http_within)
    check_credentials(credentials, mesh)
    certificates = [each for each in credentials.values() if not isinstance(each, Credential)]
    if len(certificates) > 1:
        raise ConfigurationError(
            "credentials: there are several certificates, and a connection uses one; give one for all schemes"
        )
    mutual_tls = {}
    if certificates:
        certified = httpx.AsyncHTTPTransport(verify=client_context(certificates[0], authorities=authorities))
        mutual_tls = dict.fromkeys(certificates[0].origins, certified)
    agent = CalledAgent(url=url, card=card, credentials=dict(credentials), skills=_skill_ids(skills))
    transport = AsyncVerifyingTransport(
        httpx.AsyncHTTPTransport(verify=ssl.create_default_context(cafile=authorities)),
        trust,
        memory=memory,
        policy=policy,
        cards={**agent.cards, **cards},
        card_headers=card_headers,
        also=also,
        http_within=mesh.suffixes,
        mutual_tls=mutual_tls,
        clock=clock,
    )
    transport._connection.agent = agent
    return httpx.AsyncClient(transport=transport, auth=_Own(transport._own), timeout=timeout, trust_env=False)


def _skill_ids(skills: Iterable[str]) -> tuple[str, ...]:
    if isinstance(skills, str):
        raise ConfigurationError(f"skills: write a list, even of one: [{skills[:80]!r}]")
    return tuple(dict.fromkeys(skills))


class _Own(httpx.Auth):
    """Knows the requests of the program: those that httpx makes after a redirect do not come through here."""

    def __init__(self, requests: WeakSet[httpx.Request]) -> None:
        self._requests = requests

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        self._requests.add(request)
        try:
            yield request
        finally:
            self._requests.discard(request)


def _values(request: httpx.Request, reason: NoReplyReason, *, is_own: bool = False) -> Request:
    try:
        url = sent_to(request)
    except MalformedError as error:
        shown = request.url
        raise NoReply.of(reason, f"{shown.scheme}://{shown.netloc.decode('ascii')}{shown.path}", error) from None
    return Request(
        method=request.method,
        url=url,
        headers=request.headers,
        timeout=request.extensions.get("timeout", {}),
        body=_body(request),
        handle=request,
        is_own=is_own,
    )


def _copy(request: httpx.Request, url: httpx.URL, extensions: dict[str, Any]) -> httpx.Request:
    copied = httpx.Request(request.method, url, headers=request.headers, stream=request.stream, extensions=extensions)
    if isinstance(copied.stream, httpx.ByteStream):
        copied.read()  # for transports that look at the content
    copy_attachment(request, copied)
    return copied


def _body(request: httpx.Request) -> bytes | None:
    return request.read() if isinstance(request.stream, httpx.ByteStream) else None


def _wire(step: Send) -> httpx.Request:
    """The request for the network, with credentials, which the program never sees."""
    given = step.request
    wire: httpx.Request | None = given.handle
    if wire is None:
        wire = httpx.Request(given.method, given.url, headers=given.headers, extensions={"timeout": given.timeout})
    if step.host:
        name = wire.url.netloc
        wire = _copy(wire, wire.url.copy_with(host=step.host), {**wire.extensions, "timeout": step.timeout})
        wire.headers["Host"] = name.decode("ascii")  # whatever the program wrote: sidecars go by it
    if step.attachment is not NOTHING:
        attach(wire, step.attachment)
    return wire


def _reply(response: httpx.Response, *, is_elsewhere: bool = False) -> Reply:
    return Reply(status=response.status_code, headers=response.headers, handle=response, is_elsewhere=is_elsewhere)


def _read(step: Read, body: bytes) -> bytes:
    """The body that was read; a request is sent with it from memory."""
    if isinstance(step.message, Request):
        step.message.handle.stream = httpx.ByteStream(body)
    return body


def _response(reply: Reply) -> httpx.Response:
    given: httpx.Response = reply.handle
    if reply.body is None:
        return given
    lines, body = _without(given, reply.dropped), httpx.ByteStream(reply.body)
    return httpx.Response(given.status_code, headers=lines, stream=body, extensions=given.extensions)


def _without(response: httpx.Response, names: tuple[bytes, ...]) -> list[tuple[bytes, bytes]]:
    """As bytes: httpx reads headers that are not ASCII, and does not write them."""
    return [line for line in response.headers.raw if line[0].lower() not in names]


def _error(no_reply: NoReply, request: httpx.Request) -> httpx.HTTPError:
    error: httpx.HTTPError
    if isinstance(no_reply, RejectedCredentials):
        lines = _without(no_reply.reply.handle, OF_BODIES)
        response = httpx.Response(no_reply.reply.status, headers=lines, request=request)
        error = CredentialsRejectedError(no_reply.text, request=request, response=response, **no_reply.about)
    else:
        error = _ERRORS[no_reply.reason](no_reply.text, request=request)
    error.__cause__ = no_reply.cause
    return error


_ERRORS: Final[Mapping[NoReplyReason, Callable[..., httpx.RequestError]]] = {
    NoReplyReason.NOT_SENT: UnverifiedCardError,
    NoReplyReason.NOT_PASSED_ON: UnverifiedCardError,
    NoReplyReason.NO_CREDENTIALS: CredentialsError,
    NoReplyReason.UNREACHABLE: httpx.ConnectError,
    NoReplyReason.TOO_SLOW: httpx.ConnectTimeout,
}


def _drop(step: Close) -> Any:
    """httpx closes the response itself."""
    step.reply.handle.stream = _Dropped(step.reply.handle.stream)


class _Dropped(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Replaces a body that is not read: httpx reads the whole of it before it sends a request again.

    It has no chunk, not even an empty one: that would be the begin of an incomplete body for httpx's decoder of zstd.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        return iter(())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for nothing in self:
            yield nothing

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()
