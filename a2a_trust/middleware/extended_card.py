"""The authenticated extended card, for authenticated callers only, by every name that a generation has for it.

==========  ============================================  ========================================
generation  HTTP                                          JSON-RPC
==========  ============================================  ========================================
0.2         GET ``…/agent/authenticatedExtendedCard``     –
0.3         GET ``…/v1/card``                             ``agent/getAuthenticatedExtendedCard``
1.0         GET ``…/extendedAgentCard``, also behind      ``GetExtendedAgentCard``
            ``/{tenant}``
==========  ============================================  ========================================

``routing`` and ``calls`` find such requests. They are answered here, not by the application, so ``may_read`` decides,
and not the application. With ``FromApplication()`` the application answers, and its card is signed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from inspect import isawaitable
from math import inf
from typing import Final, TypeAlias

from a2a_trust.auth.principal import Anonymous, Principal
from a2a_trust.base import strict_json
from a2a_trust.base.cache import BoundedCache
from a2a_trust.card.given import GivenCard, read_given
from a2a_trust.card.merge import CardSecurity, merged_card
from a2a_trust.card.operations import EXTENDED_CARD_PATHS, Binding, Operation
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import CardView, generation_of, read_card
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.middleware import audit
from a2a_trust.middleware.application import CompleteAnswer, FromApplication, answer_of
from a2a_trust.middleware.caller import principal_of
from a2a_trust.middleware.calls import Call
from a2a_trust.middleware.card import CardSigner, ServedCard, card_body
from a2a_trust.middleware.disconnect import ClientGoneError, as_coroutine, watched
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send, json_bytes, respond, send_without_body
from a2a_trust.middleware.options import allows, check_rule
from a2a_trust.middleware.rejection import FORBIDDEN, LATE, UNAUTHENTICATED, Error, Rejection, for_caller, rejection_of

_log: Final = logging.getLogger(__name__)

Provider: TypeAlias = Callable[[Principal, str], Awaitable[GivenCard | None]]
"""Returns the card for a caller and a tenant ("" for no tenant); None when this caller has no card there."""

_MAX_CACHED: Final = 256
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
UNREADABLE: Final = Error(500, -32603, "INTERNAL", "INTERNAL_ERROR", "The extended card cannot be given now.")


@dataclass(frozen=True, slots=True)
class ExtendedCard:
    """The extended card of an agent.

    ``source`` is the card in any form that ``protect`` takes, or an async function of caller and tenant that returns
    it, or ``FromApplication()``: the application's answer to this caller. ``may_read``, a plain or async function,
    returns True for a caller who may have it; without it, every authenticated caller may.
    """

    source: GivenCard | Provider | FromApplication = field(repr=False)  # not public, so not for logs
    may_read: Callable[[Principal], bool | Awaitable[bool]] | None = None

    def __post_init__(self) -> None:
        if self.may_read is not None:
            check_rule("may_read", self.may_read)
        if isinstance(self.source, FromApplication) and self.source != FromApplication():
            raise ConfigurationError(
                "extended_card: FromApplication() takes no path here, because the caller's request has it; write "
                "ExtendedCard(FromApplication())"
            )

    def provider(self, security: CardSecurity | None = None) -> Provider | None:
        """The function that gives the card; None for the application. ConfigurationError: the card for all callers is
        not a card, or contradicts ``security``."""
        if isinstance(self.source, FromApplication):
            return None
        if callable(self.source):
            return self.source
        return _provide_always(self.source if security is None else security.added_to(self.source))


class ExtendedCardEndpoint:
    """Serves the extended card: as a part of ``protect`` at all of its names, or as a separate ASGI application at any
    path behind ``CardEnforcementMiddleware``, without tenants.

    ``extended`` is None if the public card promises none; then callers get the error of the protocol. Clients of 0.2
    and 0.3 get the card merged (``merged_card``). ``signer`` signs each shape.
    """

    def __init__(
        self,
        card: GivenCard | CardView,
        extended: ExtendedCard | None,
        *,
        signer: CardSigner | None = None,
        application: ASGIApp | None = None,
        security: CardSecurity | None = None,
        trail: audit.Trail | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        card = card if isinstance(card, CardView) else read_card(read_given(card))
        if extended is not None and not isinstance(extended, ExtendedCard):
            raise ConfigurationError("extended_card: write ExtendedCard(card)")
        if extended is not None and not card.has_extended_card:
            raise ConfigurationError(
                "extended_card: the card does not promise an extended card, so clients would not ask for it; write in "
                'the card "capabilities": {"extendedAgentCard": true}'
            )
        if extended is None and card.has_extended_card:
            raise ConfigurationError(
                "extended_card: the card promises an extended card, and there is none; pass "
                "extended_card=ExtendedCard(…) (the card, or an async function of the caller and the tenant that "
                "returns it), or extended_card=ExtendedCard(FromApplication()) if the application answers for it; or "
                'remove the promise from the card: "capabilities": {"extendedAgentCard": true}, '
                '"supportsAuthenticatedExtendedCard": true'
            )
        self._promised, self._signer, self._clock = card.has_extended_card, signer, clock
        self._security = security
        self._trail = trail or audit.Trail()
        self._may_read = None if extended is None else extended.may_read
        self._source = None if extended is None else extended.provider(security)
        self._application = application if extended is not None and self._source is None else None
        if extended is not None and self._source is None and application is None:
            raise ConfigurationError("extended_card: FromApplication() is for protect(app, …); pass a card here")
        #: By the digest of the card as its source gave it, whether it is merged, and the kid.
        self._signed = BoundedCache[tuple[bytes, bool, str], ServedCard](max_entries=_MAX_CACHED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ConfigurationError(f"ASGI scope type {scope['type']!r}: cards are served over http only")
        caller = principal_of(scope)
        if scope["method"] not in ("GET", "HEAD"):
            await send_without_body(send, 405, [(b"allow", b"GET, HEAD"), (b"cache-control", b"no-store")])
            return
        is_of_1_0 = scope["path"].rstrip("/").endswith(EXTENDED_CARD_PATHS[Generation.V1_0])
        generation = Generation.V1_0 if is_of_1_0 else Generation.V0_3
        with suppress(ClientGoneError):
            call = Call(Binding.HTTP_JSON, generation, Operation.GET_EXTENDED_CARD)
            await self.answer(call, caller, scope, receive, send)

    async def answer(
        self, call: Call, caller: Principal | Anonymous | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer the call of this caller. ClientGoneError: the client disconnected before the answer."""
        result: bytes | Error | CompleteAnswer | Rejection
        call_id, legacy = call.call_id, call.generation is not Generation.V1_0
        # No guard starts with a card that promises one and admits anonymous callers.
        if not isinstance(caller, Principal):
            result = UNAUTHENTICATED if self._promised else UNSUPPORTED
        else:
            rejected, receive = await self._find_error(caller, receive)
            try:
                if rejected is None and self._application is not None:
                    result = await self._of_application(self._application, scope, receive, call_id, legacy=legacy)
                else:
                    result = rejected or await self._of_source(caller, call.tenant, receive, legacy=legacy)
            except TrustError as error:
                _log.error("the extended card cannot be served: %s", error)
                result = UNREADABLE
        if result is FORBIDDEN or result is LATE:
            reason, why = audit.Reason.EXTENDED_CARD, "may_read did not return True"
            if result is LATE:
                reason, why = audit.Reason.KEY_SOURCE_UNAVAILABLE, "may_read does not answer in time"
            decision = audit.Decision(reason, (), call.binding, call.operation, status=result.status)
            self._trail.rejected(scope, why, decision, caller)
        if isinstance(result, bytes):
            body = result if call_id is None else b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (call_id, result)
            result = CompleteAnswer(200, *for_caller(body))
        elif isinstance(result, Error):
            result = rejection_of(result, call_id)
        await respond(scope, send, result.status, result.headers, result.body)

    async def _find_error(self, caller: Principal, receive: Receive) -> tuple[Error | None, Receive]:
        if not self._promised:
            return UNSUPPORTED, receive
        answer: object = True if self._may_read is None else self._may_read(caller)
        if isawaitable(answer):
            answer, receive = await watched(allows(answer), receive)
            if answer is None:
                return LATE, receive
        return None if answer is True else FORBIDDEN, receive

    async def _of_source(self, caller: Principal, tenant: str, receive: Receive, *, legacy: bool) -> bytes | Error:
        if self._source is None:
            return NOT_CONFIGURED
        card, _ = await watched(as_coroutine(self._source(caller, tenant)), receive)
        return NOT_CONFIGURED if card is None else self._make(card, legacy=legacy)

    async def _of_application(
        self, app: ASGIApp, scope: Scope, receive: Receive, call_id: bytes | None, *, legacy: bool
    ) -> bytes | Error | CompleteAnswer:
        """The application's card, signed; its own answer if that is an error."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        answer = await answer_of(app, {**scope, "method": method}, receive)
        if answer is None:
            raise ConfigurationError(
                f"the application's answer was incomplete, or longer than {strict_json.MAX_BYTES} bytes"
            )
        if not 200 <= answer.status < 300:
            return answer
        card = strict_json.parse(answer.body, what="answer")
        if call_id is not None and isinstance(card, dict):  # JSON-RPC
            has_failed = card.get("error") is not None
            card = card.get("result")
            if has_failed and card is None:
                return answer
            if has_failed:
                raise ConfigurationError("the application's answer has both a result and an error")
        if not isinstance(card, dict):
            raise ConfigurationError("the application's answer is not a card: expected a JSON object")
        return self._make(card, legacy=legacy)

    def _make(self, card: GivenCard, *, legacy: bool) -> bytes:
        """The card in the shape of the caller's generation, signed; cached by its bytes, its shape and the key."""
        body = card_body(card, what="extended card")
        now = self._clock()
        kid = "" if self._signer is None else self._signer.kid(now)
        made_of = (sha256(body).digest(), legacy, kid)
        signed = self._signed.get(made_of)
        if signed is not None and signed.is_current(now):
            return signed.body
        parsed = strict_json.parse(body, what="extended card")
        if self._security is not None:  # clients use this card instead of the public one from now on
            parsed = self._security.added_to(parsed)
            body = json_bytes(parsed)
        merged = merged_card(parsed) if legacy and not generation_of(parsed).is_legacy else None
        if self._signer is None:
            signed = ServedCard(body if merged is None else json_bytes(merged), -inf, inf)
        else:
            signed = self._signer.sign(parsed if merged is None else merged, now)
        self._signed.put(made_of, signed)
        return signed.body


def _provide_always(card: GivenCard) -> Provider:
    """One card for all callers, without tenants."""
    body = card_body(card, what="extended card")
    if type(strict_json.parse(body, what="extended card")) is not dict:
        raise ConfigurationError("extended card: it is not a JSON object; pass the whole Agent Card")

    async def provide(principal: Principal, tenant: str) -> bytes | None:  # noqa: ARG001
        return None if tenant else body

    return provide
