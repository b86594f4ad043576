"""The door of a client for httpx or httpx2: transports that verify cards, credentials as ``Auth``, both in one call.

The rules:

1. A verified card passes unchanged, headers and body. An error answer in its place passes without its body. All other
   answers, streams too, pass unchanged.
2. A request that is not sent, and a card that is not passed on, raise ``RequestError``, like a missing answer.
3. The library, its log and its redirects never see a credential (``attachment``). The library follows redirects: each
   of their requests is checked as a new one, and has no credential.
4. Objects of the other library are rejected (``library``), and never converted.

``connection`` permits, ``demands`` has the credentials. This module imports neither library: ``client.httpx`` and
``client.httpx2`` derive the classes of their library from its classes. gRPC uses neither, so it is not covered. Neither
are other transports of a client (``mounts``, ``proxy``): wrap each of them.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, NoReturn, Required, TypedDict, TypeVar, Unpack, cast
from weakref import WeakSet, ref

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
from a2a_trust.client.flow import Awaiting, Blocking, Flow, Steps
from a2a_trust.client.library import HttpRequest, HttpResponse, Library, derived
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
from a2a_trust.client.verification import ANY_KEY, EMPTY, Verification
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.signer import HoldsSecret
from a2a_trust.keys.trust.policy import Policy
from a2a_trust.keys.trust.store import TrustSource
from a2a_trust.signing.verify import VerifiedCard

T = TypeVar("T")
ClientT = TypeVar("ClientT")
TimeoutT = TypeVar("TimeoutT")

_BLOCKING: Final = Blocking()
_AWAITING: Final = Awaiting()
_FIRST: Final = "a2a_trust.first"
"""The extension of a redirected request that refers to it. The library copies extensions into the next request, which a
program may send by itself."""


class RejectedByAgent:
    """The agent rejects the credentials (401), or asks for scopes that the token lacks (403).

    ``schemes`` are the names of the schemes with credentials in the request. ``scopes`` are the scopes that the card
    demands or the agent asks for. ``resource_metadata`` is the URL of the agent's metadata (RFC 9728), unverified.
    ``response`` has the status and the headers, without the body.
    """

    def __init__(
        self,
        message: str,
        *,
        request: HttpRequest,
        response: HttpResponse,
        schemes: tuple[str, ...] = (),
        scopes: tuple[str, ...] = (),
        resource_metadata: str = "",
    ) -> None:
        self.schemes: Final[tuple[str, ...]] = schemes
        self.scopes: Final[tuple[str, ...]] = scopes
        self.resource_metadata: Final[str] = resource_metadata
        cast("Any", super()).__init__(message, request=request, response=response)


class _Transports(Generic[T]):
    """The transports of a client by the origins that see its certificate; "" has the one without."""

    def __init__(self, library: Library, transport: T, mutual_tls: Mapping[str, T]) -> None:
        module, self._library = library.module, library
        self.failures: tuple[type[Exception], ...] = (module.TransportError, ssl.SSLError)  # anyio passes TLS alerts on
        self.not_connected: tuple[type[Exception], ...] = (module.ConnectError, module.ConnectTimeout)
        certified = {origin: each for given, each in mutual_tls.items() for origin in named_origins([given])}
        self.mutual_tls = frozenset(certified)
        self.transports: Mapping[str, T] = {"": transport, **certified}


class _Blocking(_Transports[Any], Blocking):
    def take(self, step: Any) -> Any:
        match step:
            case Send():
                wire = _wire(step, self._library)
                try:
                    return _reply(self.transports[step.certified].handle_request(wire))
                finally:
                    attach(wire, NOTHING)
            case Read():
                body = bytearray()
                for chunk in step.message.handle.stream:
                    body += chunk
                    step.check(body)
                return _read(step, bytes(body), self._library)
            case Close():
                return step.reply.handle.close()
        return super().take(step)


class _Awaiting(_Transports[Any], Awaiting):
    async def take(self, step: Any) -> Any:
        match step:
            case Send():
                wire = _wire(step, self._library)
                try:
                    return _reply(await self.transports[step.certified].handle_async_request(wire))
                finally:
                    attach(wire, NOTHING)
            case Read():
                body = bytearray()
                async for chunk in step.message.handle.stream:
                    body += chunk
                    step.check(body)
                return _read(step, bytes(body), self._library)
            case Close():
                return await step.reply.handle.aclose()
        return await super().take(step)


class _Verifying(Generic[T]):
    """The arguments of both transports, and the way of a request through them."""

    _library: Library
    _wrapped: str
    _driver: type[Any]

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
        kind = getattr(self._library.module, self._wrapped)
        self._library.check("transport", transport, kind)
        for each in mutual_tls.values():
            self._library.check("mutual_tls", each, kind)
        self._network = self._driver(self._library, transport, mutual_tls)
        verification = Verification(trust=trust, memory=memory, policy=policy, clock=clock)
        self._connection = Connection(
            verification, self._network, cards, also, HttpWithin(http_within), resolver, card_headers
        )
        #: The requests that the client of one agent is sending for the program.
        self._own = WeakSet[HttpRequest]()

    def _exchange(self, request: HttpRequest) -> Flow[HttpResponse]:
        """The answer for the program, from a copy of its request: the program may change its own meanwhile."""
        self._library.check("request", request, self._library.module.Request)
        copied = _copy(request, request.url, request.extensions, self._library)
        streamed = copied.stream
        is_redirected = request.extensions.get(_FIRST, ref(request))() is not request
        try:
            is_own = request in self._own and not is_redirected
            values = _values(copied, NoReplyReason.NOT_SENT, self._library, is_own=is_own)
            response = _response((yield from self._connection.exchange(values)), self._library)
            if response.has_redirect_location:
                request.extensions[_FIRST] = ref(request)
            return response
        except NoReply as no_reply:
            error = _error(no_reply, request, self._library)
        finally:
            if copied.stream is not streamed:  # it was read, and the program may send its request again
                request.stream = copied.stream
        raise error  # here, where the answer to the wire's request is not its context


class BlockingTransport(_Verifying[T]):
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

    _wrapped, _driver = "BaseTransport", _Blocking

    def handle_request(self, request: HttpRequest) -> HttpResponse:
        return self._network.run(self._exchange(request))

    def close(self) -> None:
        for transport in set(self._network.transports.values()):
            transport.close()


class AwaitingTransport(_Verifying[T]):
    """As ``VerifyingTransport``, for ``AsyncClient``. Transports are ``AsyncBaseTransport``."""

    _wrapped, _driver = "AsyncBaseTransport", _Awaiting

    async def handle_async_request(self, request: HttpRequest) -> HttpResponse:
        return await self._network.run(self._exchange(request))

    async def aclose(self) -> None:
        for transport in set(self._network.transports.values()):
            await transport.aclose()


class Authenticating(HoldsSecret):
    """Sends the credentials that ``card`` demands, for ``Client(auth=…)`` and ``AsyncClient(auth=…)``.

    - ``credentials``: by the names of the card's schemes. A certificate for mutual TLS is ``CertificateFiles`` or
      ``CertificateInMemory``; give it to the client's transport, too: ``VerifyingTransport(mutual_tls=…)``.
    - ``trust``: the trusted keys, as for ``fetch_card``. Each request asks whether they still verify the card.
    - ``skills``: the ids of the skills that the requests are for, if the card demands more for them.
    - ``clock``: gives seconds since the epoch.

    Threads and tasks may share one. CredentialsError: no credential fits. CredentialsRejectedError: the agent rejects
    them. ConfigurationError: an argument is wrong. Source: A2A 1.0.1 4.5, 7.3; RFC 6750 3, RFC 9449 7.
    """

    _library: Library

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

    def __call__(self, request: object) -> NoReturn:
        """A client calls an ``auth`` that is not of its own library. TypeError: the text says what to import."""
        self._library.check("request", request, self._library.module.Request)
        raise TypeError("CardAuth: pass it as auth=…, and do not call it")

    def sync_auth_flow(self, request: HttpRequest) -> Generator[HttpRequest, HttpResponse, None]:
        steps = Steps(self._exchange(request))
        for step in steps:
            try:
                if isinstance(step, self._library.module.Request):
                    steps.outcome.append((yield step))
                else:
                    steps.outcome.append(self._drop(step) if isinstance(step, Close) else _BLOCKING.take(step))
            except BaseException as error:  # noqa: BLE001  it is raised in the flow
                steps.failed(error)

    async def async_auth_flow(self, request: HttpRequest) -> AsyncGenerator[HttpRequest, HttpResponse]:
        steps = Steps(self._exchange(request))
        for step in steps:
            try:
                if isinstance(step, self._library.module.Request):
                    steps.outcome.append((yield step))
                else:
                    steps.outcome.append(self._drop(step) if isinstance(step, Close) else await _AWAITING.take(step))
            except BaseException as error:  # noqa: BLE001  it is raised in the flow
                steps.failed(error)

    def _drop(self, step: Close) -> Any:
        """The library closes the response itself."""
        module = self._library.module
        kind = derived(_Dropped, module.SyncByteStream, module.AsyncByteStream)
        step.reply.handle.stream = kind(step.reply.handle.stream)

    def _exchange(self, request: HttpRequest) -> Flow[None]:
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
            values.body = _body(request, self._library)  # a transport may have read a stream
            return _reply(response, is_elsewhere=response.request is not request)

        try:
            values = _values(request, NoReplyReason.NO_CREDENTIALS, self._library)
            yield from self._card.exchange(values, send)
            return
        except NoReply as no_reply:
            error = _error(no_reply, request, self._library)
        raise error  # here, where the answer to the wire's request is not its context

    def __repr__(self) -> str:
        return "CardAuth(…)"


class SharedOptions(TypedDict, Generic[TimeoutT], total=False):
    """The arguments of ``verifying_client`` that the clients of several agents have in common."""

    trust: Required[TrustSource]
    memory: CardMemory | None
    policy: Policy
    cards: Mapping[str, str]
    card_headers: Mapping[str, Mapping[str, Credential]]
    also: Iterable[str] | UnsafePassAnything
    http_within: Iterable[str]
    authorities: Path | str | None
    timeout: TimeoutT
    clock: Callable[[], float]


@dataclass(frozen=True)
class Clients(Generic[ClientT, TimeoutT]):
    """Makes the clients of a library, synchronous or asynchronous ones."""

    client: Callable[..., ClientT]
    transport: type[_Verifying[Any]]
    network: Callable[..., Any]

    def verifying_client(
        self,
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
        timeout: TimeoutT | None = None,
        clock: Callable[[], float] = time.time,
    ) -> ClientT:
        """A client for the agent at that URL. Its card is fetched and verified before the first request.

        - ``url``: the URL of the agent, or of its card, which ends in ``.json``. Write the URL of the card if its
          server demands the client's certificate for it.
        - ``card``: the card, if the agent does not serve it: its URL elsewhere, such as a registry, a ``Path``, its
          bytes, or a ``VerifiedCard``. It is verified for the host of ``url``, and must name an interface at ``url`` or
          below it.
        - ``credentials``, ``skills``: as for ``CardAuth``. Their origins may use http within ``http_within``.
        - ``trust``, ``memory``, ``policy``, ``cards``, ``card_headers``, ``also``, ``http_within``: as for
          ``VerifyingTransport``.
        - ``authorities``: a file of CA certificates in PEM, for agents in a private network.
        - ``timeout``: the limit for each step of a request; by default 10 seconds, and 300 for reading an answer.

        Requests fail as for ``CardAuth`` and ``VerifyingTransport``. ConfigurationError: an argument is wrong.
        TypeError: ``timeout`` is of the other library.
        """
        mesh = HttpWithin(http_within)
        check_credentials(credentials, mesh)
        library = self.transport._library
        if timeout is None:
            timeout = library.module.Timeout(10.0, read=300.0)  # agents think for minutes
        library.check("timeout", timeout, library.module.Timeout)
        mutual_tls = self._mutual_tls(credentials, authorities)
        agent = CalledAgent(url=url, card=card, credentials=dict(credentials), skills=_skill_ids(skills))
        transport = self.transport(
            self.network(verify=ssl.create_default_context(cafile=authorities)),
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
        own = derived(_Own, library.module.Auth)(transport._own)
        transport._connection.agent = agent
        return self.client(transport=transport, auth=own, timeout=timeout, trust_env=False)

    def _mutual_tls(
        self, credentials: Mapping[str, Credential | OwnCertificate], authorities: Path | str | None
    ) -> dict[str, Any]:
        """By origin, the network that shows the certificate of ``credentials``."""
        certificates = [each for each in credentials.values() if not isinstance(each, Credential)]
        if len(certificates) > 1:
            raise ConfigurationError(
                "credentials: there are several certificates, and a connection uses one; give one for all schemes"
            )
        if not certificates:
            return {}
        certified = self.network(verify=client_context(certificates[0], authorities=authorities))
        return dict.fromkeys(certificates[0].origins, certified)

    def verifying_clients(
        self,
        agents: Mapping[str, Mapping[str, Credential | OwnCertificate]],
        **options: Unpack[SharedOptions[TimeoutT]],
    ) -> dict[str, ClientT]:
        """A client for each agent, by its URL, with the same trust and memory. No agent gets a credential of another.

        ``agents`` has the credentials by the URLs of the agents. Options and errors are as for ``verifying_client``.
        """
        if not isinstance(agents, Mapping):
            raise ConfigurationError("agents: write {url: credentials}, where credentials are as for verifying_client")
        return {
            url: self.verifying_client(url, credentials=credentials, **options) for url, credentials in agents.items()
        }


def _skill_ids(skills: Iterable[str]) -> tuple[str, ...]:
    if isinstance(skills, str):
        raise ConfigurationError(f"skills: write a list, even of one: [{skills[:80]!r}]")
    return tuple(dict.fromkeys(skills))


class _Own:
    """Knows the requests of the program: those that the library makes after a redirect do not come through here."""

    def __init__(self, requests: WeakSet[HttpRequest]) -> None:
        self._requests = requests

    def auth_flow(self, request: HttpRequest) -> Generator[HttpRequest, HttpResponse, None]:
        self._requests.add(request)
        try:
            yield request
        finally:
            self._requests.discard(request)


def _values(request: HttpRequest, reason: NoReplyReason, library: Library, *, is_own: bool = False) -> Request:
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
        body=_body(request, library),
        handle=request,
        is_own=is_own,
    )


def _copy(request: HttpRequest, url: Any, extensions: dict[str, Any], library: Library) -> HttpRequest:
    copied: HttpRequest = library.module.Request(
        request.method, url, headers=request.headers, stream=request.stream, extensions=extensions
    )
    if isinstance(copied.stream, library.module.ByteStream):
        copied.read()  # for transports that look at the content
    copy_attachment(request, copied)
    return copied


def _body(request: HttpRequest, library: Library) -> bytes | None:
    return request.read() if isinstance(request.stream, library.module.ByteStream) else None


def _wire(step: Send, library: Library) -> HttpRequest:
    """The request for the network, with credentials, which the program never sees."""
    given = step.request
    wire: HttpRequest | None = given.handle
    if wire is None:
        extensions = {"timeout": given.timeout}
        wire = library.module.Request(given.method, given.url, headers=given.headers, extensions=extensions)
    if step.host:
        name = wire.url.netloc
        wire = _copy(wire, wire.url.copy_with(host=step.host), {**wire.extensions, "timeout": step.timeout}, library)
        wire.headers["Host"] = name.decode("ascii")  # whatever the program wrote: sidecars go by it
    if step.attachment is not NOTHING:
        attach(wire, step.attachment)
    return wire


def _reply(response: HttpResponse, *, is_elsewhere: bool = False) -> Reply:
    return Reply(status=response.status_code, headers=response.headers, handle=response, is_elsewhere=is_elsewhere)


def _read(step: Read, body: bytes, library: Library) -> bytes:
    """The body that was read; a request is sent with it from memory."""
    if isinstance(step.message, Request):
        step.message.handle.stream = library.module.ByteStream(body)
    return body


def _response(reply: Reply, library: Library) -> Any:
    given = reply.handle
    if reply.body is None:
        return given
    lines, body = _without(given, reply.dropped), library.module.ByteStream(reply.body)
    return library.module.Response(given.status_code, headers=lines, stream=body, extensions=given.extensions)


def _without(response: HttpResponse, names: tuple[bytes, ...]) -> list[tuple[bytes, bytes]]:
    """As bytes: the library reads headers that are not ASCII, and does not write them."""
    return [line for line in response.headers.raw if line[0].lower() not in names]


def _error(no_reply: NoReply, request: HttpRequest, library: Library) -> Exception:
    if isinstance(no_reply, RejectedCredentials):
        lines = _without(no_reply.reply.handle, OF_BODIES)
        response = library.module.Response(no_reply.reply.status, headers=lines, request=request)
        error = library.rejected(no_reply.text, request=request, response=response, **no_reply.about)
    else:
        kind: Callable[..., Exception] = {
            NoReplyReason.NO_CREDENTIALS: library.no_credentials,
            NoReplyReason.UNREACHABLE: library.module.ConnectError,
            NoReplyReason.TOO_SLOW: library.module.ConnectTimeout,
        }.get(no_reply.reason, library.unverified)
        error = kind(no_reply.text, request=request)
    error.__cause__ = no_reply.cause
    return error


class _Dropped:
    """Replaces a body that is not read: the library reads the whole of it before it sends a request again.

    It has no chunk, not even an empty one: that would be the begin of an incomplete body for its decoder of zstd.
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
