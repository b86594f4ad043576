"""Channels to the gRPC interface of a verified card: the card says the URL, TLS and the credentials.

Each call has the credentials of one whole alternative of the card, which is verified again as for ``CardAuth``. After
UNAUTHENTICATED before the first message, a call is made once more, if there is another credential.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from a2a_trust.base.net.addresses import is_this_machine
from a2a_trust.card.operations import Binding
from a2a_trust.card.view import read_card
from a2a_trust.client.answer import check_credentials
from a2a_trust.client.certificates import OwnCertificate
from a2a_trust.client.credentials import Credential
from a2a_trust.client.demands import GivenCard
from a2a_trust.client.flow import Awaited, Awaiting, Flow
from a2a_trust.client.messages import Attachment, Close, NoReply, RejectedCredentials, Reply, Request
from a2a_trust.client.verification import Verification
from a2a_trust.errors import CardVerificationError, ConfigurationError, TrustError
from a2a_trust.keys.files import private_key_bytes
from a2a_trust.keys.trust.origins import url_of
from a2a_trust.keys.trust.store import TrustSource
from a2a_trust.signing.verify import VerifiedCard

try:
    import grpc
except ModuleNotFoundError as _error:
    _error.msg = 'a2a_trust.client.grpc needs gRPC: pip install "./a2a-trust[client,grpc]"'
    raise

_STATUSES: Final = {grpc.StatusCode.UNAUTHENTICATED: 401, grpc.StatusCode.PERMISSION_DENIED: 403}
_PLAIN: Final = ("http", "grpc")


def grpc_channel(
    card: VerifiedCard,
    credentials: Mapping[str, Credential | OwnCertificate],
    url: str | None = None,
    *,
    trust: TrustSource,
    authorities: Path | str | None = None,
    skills: Iterable[str] = (),
) -> grpc.aio.Channel:
    """A channel to the first gRPC interface of the card, or to the one with that ``url``.

    - ``credentials``, ``trust``, ``skills``: as for ``CardAuth``. Origins of credentials are written with https, also
      for an interface at ``host:port``. A certificate is read once.
    - ``authorities``: a file of CA certificates in PEM, in place of gRPC's own.

    Calls raise ``grpc.aio.AioRpcError``, or TrustError if they are not sent: the card is not verified any more, or no
    credential fits. CardVerificationError: the card names no such interface. ConfigurationError: an argument is wrong.
    """
    if not isinstance(card, VerifiedCard):
        raise ConfigurationError("card: it is not a VerifiedCard; write grpc_channel(fetch_card(url, trust), …)")
    check_credentials(credentials)
    named = [each.url for each in read_card(card.card).interfaces if each.binding == Binding.GRPC]
    if not named or url not in (None, *named):
        raise CardVerificationError(f"the verified card names no interface of gRPC{f' at {url[:80]!a}' if url else ''}")
    parts = url_of(url or named[0])
    is_here = is_this_machine(parts.host)
    is_plain = parts.scheme in _PLAIN or (not parts.scheme and is_here and authorities is None)
    if is_plain and not is_here:
        raise CardVerificationError("the interface of gRPC is not encrypted, and not on this machine; name https://…")
    port = parts.port or (80 if parts.scheme in _PLAIN else 443)
    origin = url_of(f"{'http' if is_plain else 'https'}://{parts.host}:{port}").origin
    ids = (skills,) if isinstance(skills, str) else tuple(skills)
    given = GivenCard(card, Verification(trust=trust, clock=time.time), dict(credentials), ids)
    interceptors = [_UnaryCalls(given, origin), _StreamingCalls(given, origin)]
    target = f"dns:///{parts.host}:{port}"
    if is_plain:
        direct = [("grpc.enable_http_proxy", 0)]  # a proxy is not this machine
        return grpc.aio.insecure_channel(target, direct, interceptors=interceptors)
    own = [each for each in credentials.values() if not isinstance(each, Credential) and origin in each.origins]
    chain, key = own[0].load() if own else (None, None)
    tls = grpc.ssl_channel_credentials(
        None if authorities is None else Path(authorities).read_bytes(),
        None if key is None else private_key_bytes(key, format="pem"),
        chain,
    )
    return grpc.aio.secure_channel(target, tls, interceptors=interceptors)


class _Trailers(list[tuple[str, Any]]):
    """The metadata of an answer, as headers."""

    def get_list(self, wanted: str) -> list[str]:
        return [value for name, value in self if name == wanted.lower()]


class _Calls(Awaiting):
    """Makes calls with the credentials that the card demands."""

    def __init__(self, card: GivenCard, origin: str) -> None:
        self._card, self._origin = card, origin

    async def take(self, step: Any) -> Any:
        return None if isinstance(step, Close) else await super().take(step)  # a rejected call has ended

    async def _call(self, continuation: Any, details: Any, request: Any) -> Any:
        method = details.method.decode() if isinstance(details.method, bytes) else details.method
        asked = Request(method="POST", url=f"{self._origin}{method}", headers=_Trailers(), timeout={})

        def send(attachment: Attachment) -> Flow[Reply]:
            names = [name.decode() for name, _ in attachment.headers]
            if attachment.cookies or attachment.parameters or "dpop" in names:
                raise ConfigurationError(
                    "credentials: gRPC has no place for a cookie, a query or a proof of DPoP; give another alternative"
                )
            metadata = [pair for pair in details.metadata or () if pair[0] not in names]
            metadata += [(name.decode(), value.decode()) for name, value in attachment.headers]
            sent = details._replace(metadata=grpc.aio.Metadata(*metadata))
            reply: Reply = yield Awaited(lambda: self._attempt(continuation, sent, request))
            return reply

        try:
            return (await self.run(self._card.exchange(asked, send, self._origin))).handle
        except RejectedCredentials as rejected:
            return rejected.reply.handle
        except NoReply as no_reply:
            error = no_reply.cause or TrustError(no_reply.text)
        raise error

    async def _attempt(self, continuation: Any, details: Any, request: Any) -> Reply:
        call = await continuation(details, request)
        return await _reply(call, call)


async def _reply(call: Any, handle: Any) -> Reply:
    status = _STATUSES.get(await call.code(), 200)
    trailers = _Trailers(await call.trailing_metadata() or ()) if status != 200 else _Trailers()
    return Reply(status=status, headers=trailers, handle=handle)


class _UnaryCalls(_Calls, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # grpcio has no types
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._call(continuation, client_call_details, request)


class _StreamingCalls(_Calls, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc]
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._call(continuation, client_call_details, request)

    async def _attempt(self, continuation: Any, details: Any, request: Any) -> Reply:
        call = await continuation(details, request)
        messages = aiter(call)
        try:
            first = await anext(messages, grpc.aio.EOF)
        except grpc.aio.AioRpcError as error:
            return await _reply(call, _messages(error, messages))
        return Reply(status=200, headers=_Trailers(), handle=_messages(first, messages))


async def _messages(first: Any, others: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """The messages of a stream, or its error: the first one was read."""
    if isinstance(first, grpc.aio.AioRpcError):
        raise first
    if first is not grpc.aio.EOF:
        yield first
    async for message in others:
        yield message
