"""For clients on httpx: prove every card that passes through, and let no other pass.

One line in a program that knows nothing of it::

    httpx.AsyncClient(transport=AsyncCardProofTransport(httpx.AsyncHTTPTransport(), trust))

What is a card, and when it passes, is in ``passing``. An answer with a card comes as it was, headers and body; an error
in its place comes without its body; one without a proven card is an ``UnprovenCardError``, which is a
``httpx.RequestError``, so that programs fail as they do when there is no answer. Everything else, streams too, passes
untouched.

Not here: gRPC, which is no business of httpx; requests that a client sends through other transports (``mounts``,
``proxy``): give those their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, cast

import httpx

from a2a_trust.client.flow import run, run_async
from a2a_trust.client.memory import CardMemory
from a2a_trust.client.passing import DROPPED_HEADERS, Asked, PassingCards
from a2a_trust.client.proving import ANY_KEY, Proving
from a2a_trust.errors import MalformedError, TrustError
from a2a_trust.keys.policy import Policy
from a2a_trust.keys.trust import TrustSource
from a2a_trust.strict_json import MAX_BYTES

__all__ = ["AsyncCardProofTransport", "CardProofTransport", "UnprovenCardError"]


class UnprovenCardError(httpx.RequestError):
    """A card came and is not proven, so it was not passed on; ``__cause__`` is the TrustError that says why."""


class CardProofTransport(httpx.BaseTransport):
    """Sends requests by ``transport``, and passes on only those cards that ``trust`` proves.

    ``card_urls`` are those of cards that stand elsewhere than at the well-known names. The rest is as in
    ``fetch_card``. ConfigurationError: ``card_urls`` are none.
    """

    def __init__(
        self,
        transport: httpx.BaseTransport,
        trust: TrustSource,
        *,
        memory: CardMemory | None = None,
        policy: Policy = ANY_KEY,
        card_urls: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._transport = transport
        self._cards = PassingCards(Proving(trust=trust, memory=memory, policy=policy, clock=clock), card_urls)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read() if _may_be_call(request) else b""
        asked = self._cards.asked(request.method, _whole(request), body)
        _check_encrypted(self._cards, asked, request)
        if asked is None:
            return self._transport.handle_request(request)
        response = self._transport.handle_request(_plain(request))
        if response.is_error:
            response.close()
            return _bare(response)
        try:
            _check_head(response)
            card = bytearray()
            for chunk in cast("httpx.SyncByteStream", response.stream):
                card += chunk
                _check_size(card)
            run(self._cards.judged(asked, _whole(request), bytes(card), response.charset_encoding))
        except TrustError as error:
            raise _refusal(request, error) from error
        finally:
            response.close()
        return _again(response, card)

    def close(self) -> None:
        self._transport.close()


class AsyncCardProofTransport(httpx.AsyncBaseTransport):
    """As ``CardProofTransport``, for ``httpx.AsyncClient``."""

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport,
        trust: TrustSource,
        *,
        memory: CardMemory | None = None,
        policy: Policy = ANY_KEY,
        card_urls: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._transport = transport
        self._cards = PassingCards(Proving(trust=trust, memory=memory, policy=policy, clock=clock), card_urls)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread() if _may_be_call(request) else b""
        asked = self._cards.asked(request.method, _whole(request), body)
        _check_encrypted(self._cards, asked, request)
        if asked is None:
            return await self._transport.handle_async_request(request)
        response = await self._transport.handle_async_request(_plain(request))
        if response.is_error:
            await response.aclose()
            return _bare(response)
        try:
            _check_head(response)
            card = bytearray()
            async for chunk in cast("httpx.AsyncByteStream", response.stream):
                card += chunk
                _check_size(card)
            await run_async(self._cards.judged(asked, _whole(request), bytes(card), response.charset_encoding))
        except TrustError as error:
            raise _refusal(request, error) from error
        finally:
            await response.aclose()
        return _again(response, card)

    async def aclose(self) -> None:
        await self._transport.aclose()


def _may_be_call(request: httpx.Request) -> bool:
    """Whether the body has to be looked into; others are sent as they come, however long."""
    return request.method == "POST" and "json" in request.headers.get("content-type", "json").lower()


def _check_encrypted(cards: PassingCards, asked: Asked | None, request: httpx.Request) -> None:
    if asked is not Asked.CARD and cards.is_exposed(_whole(request)):
        raise httpx.UnsupportedProtocol(
            f"nothing was sent to {_address(request)}: this interface of the card is not encrypted; call one whose URL "
            "is https, or have the agent served over TLS",
            request=request,
        )


def _plain(request: httpx.Request) -> httpx.Request:
    """The request for the whole card, in no encoding."""
    headers = httpx.Headers(request.headers)
    for name in DROPPED_HEADERS:
        headers.pop(name, None)
    headers["Accept-Encoding"] = "identity"
    return httpx.Request(
        request.method, request.url, headers=headers, stream=request.stream, extensions=request.extensions
    )


def _check_head(response: httpx.Response) -> None:
    if not response.is_success:
        raise MalformedError(f"card: status {response.status_code} leads to one that has not come through here")
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise MalformedError("card: it is compressed although only identity was accepted")


def _check_size(card: bytearray) -> None:
    if len(card) > MAX_BYTES:
        raise MalformedError(f"card: larger than {MAX_BYTES} bytes")


def _refusal(request: httpx.Request, error: TrustError) -> UnprovenCardError:
    return UnprovenCardError(f"the card from {_address(request)} is not passed on: {error}", request=request)


def _address(request: httpx.Request) -> str:
    """The URL without user information and query, which may hold secrets."""
    url = request.url
    return f"{url.scheme}://{url.netloc.decode('ascii')}{url.raw_path.partition(b'?')[0].decode('ascii')}"


def _whole(request: httpx.Request) -> str:
    return str(request.url.copy_with(username=None, password=None))


def _bare(response: httpx.Response) -> httpx.Response:
    """An error without its body: a program that does not look at the status would read a card in it."""
    headers = [line for line in response.headers.multi_items() if line[0] not in _OF_BODIES]
    return httpx.Response(response.status_code, headers=headers, content=b"", extensions=response.extensions)


_OF_BODIES: Final = ("content-length", "content-encoding", "content-type", "transfer-encoding")


def _again(response: httpx.Response, body: bytearray) -> httpx.Response:
    """The response as it was, with its body to be read once more."""
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        stream=httpx.ByteStream(bytes(body)),
        extensions=response.extensions,
    )
