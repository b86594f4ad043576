"""A card that exists late: a function or the application itself gives it after the start.

The card is made when the application has started. When callers read it, it is made again, at most once in ten seconds.
A changed text is signed and served. If its rules change, the public card gets 503 (``protection``), and the first rules
stay in force. If it cannot be made again, the last card is still served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from math import inf
from time import monotonic
from typing import Final, TypeAlias

import anyio

from a2a_trust.base.state_changes import StateKind
from a2a_trust.card.given import GivenCard, is_message
from a2a_trust.card.view import read_card
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.middleware import audit
from a2a_trust.middleware.card import CardSource, card_body
from a2a_trust.middleware.documents import ASGIApp, Document, Receive, Scope, Send

ASK_SECONDS: Final = 10.0
"""The shortest time between two attempts to make a card, and the longest time for one attempt."""

CardFunction: TypeAlias = Callable[[], GivenCard | Awaitable[GivenCard]]
"""Returns the card, in any form except a source."""

Ask: TypeAlias = Callable[[Scope], Awaitable[GivenCard]]
"""Returns the card, for the scope of the lifespan or the request that needs it."""


def is_function(card: object) -> bool:
    is_card = isinstance(card, type) or is_message(card) or callable(getattr(card, "model_dump", None))
    return callable(card) and not is_card


def asking(function: CardFunction) -> Ask:
    async def ask(_: Scope) -> GivenCard:
        given = function()
        card: GivenCard | None = await given if isawaitable(given) else given
        if card is None:
            raise ConfigurationError("card: the function returned None; return a card")
        return card

    return ask


class GeneratedCard:
    """The card that was generated last. ``ask`` gives it, ``finish`` completes it, ``sign`` makes its source."""

    def __init__(self, ask: Ask, finish: Callable[[GivenCard], GivenCard], sign: Callable[[bytes], CardSource]) -> None:
        self._ask, self._finish, self._sign = ask, finish, sign
        self._body = b""
        self._source: CardSource
        self._asked = -inf
        self._has_failed = False

    def document(self, now: float) -> Document:
        """The card at the moment ``now``; call ``make`` before."""
        return self._source.document(now)

    async def make(self, asked_from: Scope) -> None:
        """Make the card, in the lifespan or the request with this scope, and serve it from now on. ConfigurationError
        and MalformedError: it is not a card, or took longer than ten seconds. A user's function may raise anything."""
        self._asked = monotonic()  # before the answer: one request asks, and concurrent callers get the last card
        with anyio.move_on_after(ASK_SECONDS) as limit:
            body = card_body(self._finish(await self._ask(asked_from)))
        if limit.cancelled_caught:
            raise ConfigurationError(
                f"card: the function or the application did not give it within {ASK_SECONDS:.0f} seconds"
            )
        if body != self._body:
            if not read_card(body).interfaces:
                raise ConfigurationError("card: it names no interface; add supportedInterfaces with the agent's URL")
            self._source, self._body = self._sign(body), body

    async def refresh(self, asked_from: Scope) -> None:
        """Make it again, if the last attempt was more than ten seconds ago. If that fails, the last card stays."""
        if monotonic() - self._asked < ASK_SECONDS:
            return
        try:
            await self.make(asked_from)
        except Exception as error:  # noqa: BLE001  user code may raise anything
            if not self._has_failed:
                self._has_failed = True
                reason = str(error) if isinstance(error, TrustError) else type(error).__name__
                audit.log_card(StateKind.CARD_NOT_RELOADED, f"generated card: {reason}")
        else:
            if self._has_failed:
                self._has_failed = False
                audit.log_card(StateKind.CARD_RELOADED, "generated card")


def ask_again(card: ASGIApp, source: GeneratedCard) -> ASGIApp:
    """``card``, which serves the card of the source, with the card made again before."""

    async def refreshed(scope: Scope, receive: Receive, send: Send) -> None:
        await source.refresh(scope)
        await card(scope, receive, send)

    return refreshed
