"""A card that exists late: a function gives it, or the application itself, once it has started.

The card is made when the application has started. It is asked for again when callers read it, at most once in ten
seconds. Another text is served, and signed again. If its rules change, the public card is 503 (``protection``); the
rules from the start stay in force. If it cannot be made again, the last good one is still served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from math import inf
from time import monotonic
from typing import Final, TypeAlias

import anyio

from a2a_trust.card.given import GivenCard, is_message
from a2a_trust.card.view import read_card
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.middleware import audit
from a2a_trust.middleware.card import CardSource, card_body
from a2a_trust.middleware.documents import ASGIApp, Document, Receive, Scope, Send

__all__ = ["ASK_SECONDS", "Ask", "AskedAgain", "CardFunction", "GeneratedCard", "asking", "is_function"]

ASK_SECONDS: Final = 10.0
"""How often a card is asked for again at most, and for how long it may be made."""

CardFunction: TypeAlias = Callable[[], GivenCard | Awaitable[GivenCard]]
"""Gives the card, in any form but a source."""

Ask: TypeAlias = Callable[[Scope], Awaitable[GivenCard]]
"""Gives the card, when told the scope of the lifespan or the request that needs it."""


def is_function(card: object) -> bool:
    """Whether it gives a card, and is none itself."""
    is_card = isinstance(card, type) or is_message(card) or callable(getattr(card, "model_dump", None))
    return callable(card) and not is_card


def asking(function: CardFunction) -> Ask:
    """The function as what is asked for a card."""

    async def ask(_: Scope) -> GivenCard:
        given = function()
        card: GivenCard | None = await given if isawaitable(given) else given
        if card is None:
            raise ConfigurationError("card: the function returned None; return a card")
        return card

    return ask


class GeneratedCard:
    """The card that was generated last, as it is served now.

    ``ask`` gives the card, ``finish`` adds what the generator leaves out, and ``sign`` makes of it what is served.
    """

    def __init__(self, ask: Ask, finish: Callable[[GivenCard], GivenCard], sign: Callable[[bytes], CardSource]) -> None:
        self._ask, self._finish, self._sign = ask, finish, sign
        self._body = b""
        self._source: CardSource
        self._asked = -inf
        self._has_failed = False

    def document(self, now: float) -> Document:
        """The card that counts at the moment ``now``; ``make`` has made it."""
        return self._source.document(now)

    async def make(self, asked_from: Scope) -> None:
        """Ask for the card, in the lifespan or the request with this scope, and serve it from now on.

        ConfigurationError and MalformedError: what came is no card, or came too late. Functions of others may raise
        anything.
        """
        self._asked = monotonic()  # before the answer: one asks, and callers who come meanwhile get the last card
        with anyio.move_on_after(ASK_SECONDS) as limit:
            body = card_body(self._finish(await self._ask(asked_from)))
        if limit.cancelled_caught:
            raise ConfigurationError(f"card: it was not made within {ASK_SECONDS:.0f} seconds")
        if body != self._body:
            if not read_card(body).interfaces:
                raise ConfigurationError("card: it names no interface, so it is no card")
            self._source, self._body = self._sign(body), body

    async def refresh(self, asked_from: Scope) -> None:
        """Make it again, if nobody did in the last ten seconds; else, and when that fails, the last one stays."""
        if monotonic() - self._asked < ASK_SECONDS:
            return
        try:
            await self.make(asked_from)
        except Exception as error:  # noqa: BLE001  user code may raise anything
            if not self._has_failed:
                self._has_failed = True
                reason = str(error) if isinstance(error, TrustError) else type(error).__name__
                audit.card_not_reloaded(f"generated card: {reason}")
        else:
            if self._has_failed:
                self._has_failed = False
                audit.card_reloaded("generated card")


class AskedAgain:
    """An ASGI application in front of the one that serves a generated card."""

    def __init__(self, card: ASGIApp, source: GeneratedCard) -> None:
        self._card, self._source = card, source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._source.refresh(scope)
        await self._card(scope, receive, send)
