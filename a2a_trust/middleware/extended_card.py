"""The authenticated extended card, under every name that a generation has for it, for known callers only.

==========  ============================================  ========================================
generation  HTTP                                          JSON-RPC
==========  ============================================  ========================================
0.2         GET ``…/agent/authenticatedExtendedCard``     –
0.3         GET ``…/v1/card``                             ``agent/getAuthenticatedExtendedCard``
1.0         GET ``…/extendedAgentCard``, also behind      ``GetExtendedAgentCard``
            ``/{tenant}``
==========  ============================================  ========================================

``rules`` tells such requests from others; here they are answered, instead of by the application, whose own idea of who
may see the card plays no part.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from typing import Final, TypeAlias

from a2a_trust import strict_json
from a2a_trust.auth.principal import Anonymous, Principal
from a2a_trust.cache import BoundedCache
from a2a_trust.card.given import GivenCard, given_card
from a2a_trust.card.merge import merged_card
from a2a_trust.card.operations import EXTENDED_CARD_PATHS
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import CardView, generation_of, read_card
from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware import audit
from a2a_trust.middleware.authentication import principal_of
from a2a_trust.middleware.card import CardSigner, SignedCard, card_body
from a2a_trust.middleware.disconnect import ClientGoneError, ReadAhead
from a2a_trust.middleware.documents import Receive, Scope, Send, json_bytes, refuse
from a2a_trust.middleware.options import check_rule
from a2a_trust.middleware.refusal import FORBIDDEN, UNAUTHENTICATED, Error

__all__ = ["ExtendedCard", "ExtendedCardEndpoint", "Provider", "respond"]

Provider: TypeAlias = Callable[[Principal, str], Awaitable[GivenCard | None]]
"""Gives the card for a caller and a tenant ("" for none); None when this caller has none for that tenant."""

_REMEMBERED: Final = 256


UNSUPPORTED: Final = Error(
    400, -32004, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION", "This agent has no extended card."
)
NOT_CONFIGURED: Final = Error(
    400,
    -32007,
    "FAILED_PRECONDITION",
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    "There is no extended card for this caller.",
)


@dataclass(frozen=True, slots=True)
class ExtendedCard:
    """The extended card of an agent: ``source`` is the card, in any form that ``protect`` takes, or an async function
    of caller and tenant that gives it. ``may_read`` says True of a caller who may have it; without it every known
    caller may."""

    source: GivenCard | Provider = field(repr=False)  # for known callers only, and so for no log
    may_read: Callable[[Principal], bool] | None = None

    def __post_init__(self) -> None:
        if self.may_read is not None:
            check_rule("may_read", self.may_read)

    def provider(self) -> Provider:
        """The function that gives the card; ConfigurationError: the one card for all callers is no card."""
        return self.source if callable(self.source) else _fixed(self.source)


class ExtendedCardEndpoint:
    """Answers for the extended card: under all of its names as a part of ``protect``, or, as an ASGI application of its
    own, at whatever path it is mounted behind ``CardEnforcementMiddleware``; there it knows no tenants.

    ``extended`` is None where the public card promises none, and then every caller is told so. Clients of 0.2 and 0.3
    get the card merged (``merged_card``), each shape signed by ``signer``.
    """

    def __init__(
        self,
        card: GivenCard | CardView,
        extended: ExtendedCard | None,
        *,
        signer: CardSigner | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        card = card if isinstance(card, CardView) else read_card(given_card(card))
        if extended is not None and not isinstance(extended, ExtendedCard):
            raise ConfigurationError("extended_card: write ExtendedCard(card)")
        if extended is not None and not card.has_extended_card:
            raise ConfigurationError(
                "the card does not promise an extended card, so nobody would ask for it; say so in the card: "
                '"capabilities": {"extendedAgentCard": true}'
            )
        if extended is None and card.has_extended_card:
            raise ConfigurationError(
                "the card promises an extended card, and there is none: pass extended_card=ExtendedCard(…) "
                "(the card, or an async function of the caller and the tenant that gives it), even if the application "
                "has its own; or take the promise out of the card: "
                '"capabilities": {"extendedAgentCard": true}, "supportsAuthenticatedExtendedCard": true'
            )
        self._promised, self._signer, self._clock = card.has_extended_card, signer, clock
        self._may_read = None if extended is None else extended.may_read
        self._source = None if extended is None else extended.provider()
        #: By the digest of the card as its source gave it, whether it is merged, and the kid.
        self._signed = BoundedCache[tuple[bytes, bool, str], SignedCard](max_entries=_REMEMBERED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ConfigurationError(f"ASGI scope type {scope['type']!r}: cards are served over http alone")
        caller = principal_of(scope)
        if scope["method"] not in ("GET", "HEAD"):
            await refuse(send, 405, [(b"allow", b"GET, HEAD"), (b"cache-control", b"no-store")])
            return
        is_of_1_0 = scope["path"].rstrip("/").endswith(EXTENDED_CARD_PATHS[Generation.V1_0])
        with suppress(ClientGoneError):
            await self.answer(caller, "", scope, receive, send, legacy=not is_of_1_0)

    async def answer(
        self,
        caller: Principal | Anonymous,
        tenant: str,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        legacy: bool,
        call_id: bytes | None = None,
    ) -> None:
        """Answer a request by this caller; ``legacy`` by a client of 0.2 or 0.3. ``call_id`` is that of a JSON-RPC
        request, as JSON; None over HTTP. ClientGoneError: the client has gone away before there was one."""
        ahead = ReadAhead(receive)
        try:
            result = await ahead.during(self._result(caller, tenant, legacy=legacy))
        finally:
            ahead.close()
        if result is FORBIDDEN:
            audit.request_refused(scope, audit.Reason.EXTENDED_CARD, "may_read says no", caller)
        await respond(result, call_id, scope, send)

    async def _result(self, caller: Principal | Anonymous, tenant: str, *, legacy: bool) -> bytes | Error:
        """The card for this caller, or why there is none."""
        if not self._promised:
            return UNSUPPORTED
        if isinstance(caller, Anonymous):  # the guard refuses a card that promises one and admits strangers
            return UNAUTHENTICATED
        if self._may_read is not None and self._may_read(caller) is not True:
            return FORBIDDEN
        card = None if self._source is None else await self._source(caller, tenant)
        return NOT_CONFIGURED if card is None else self._made(card, legacy=legacy)

    def _made(self, card: GivenCard, *, legacy: bool) -> bytes:
        """The card in the shape of the caller's generation, signed; remembered by all that it was made of."""
        body = card_body(card, what="extended card")
        now = self._clock()
        kid = "" if self._signer is None else self._signer.kid(now)
        made_of = (sha256(body).digest(), legacy, kid)
        signed = self._signed.get(made_of)
        if signed is not None and signed.is_current(now):
            return signed.body
        parsed = strict_json.parse(body, what="extended card")
        merged = merged_card(parsed) if legacy and not generation_of(parsed).is_legacy else None
        if self._signer is None:
            signed = SignedCard(body if merged is None else json_bytes(merged), -inf, inf)
        else:
            signed = self._signer.sign(parsed if merged is None else merged, now)
        self._signed.put(made_of, signed)
        return signed.body


async def respond(result: bytes | Error, call_id: bytes | None, scope: Scope, send: Send) -> None:
    """Send a card or an error for its caller alone, in the words of JSON-RPC when ``call_id`` is given."""
    status = 200
    if isinstance(result, Error):
        # An error of the protocol is an answer like others to JSON-RPC; one of HTTP is not.
        status = result.status if call_id is None or result.is_of_http else 200
        body = result.body(call_id)
    else:
        body = result if call_id is None else b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (call_id, result)
    headers = [
        (b"cache-control", b"private, no-store"),
        (b"vary", b"*"),  # whatever it was by which the guard knew the caller
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _fixed(card: GivenCard) -> Provider:
    """One card for all callers, and for no tenant."""
    body = card_body(card, what="extended card")
    if type(strict_json.parse(body, what="extended card")) is not dict:
        raise ConfigurationError("extended card: a JSON object is needed")

    async def provide(principal: Principal, tenant: str) -> bytes | None:  # noqa: ARG001
        return None if tenant else body

    return provide
