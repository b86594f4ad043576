"""A card that exists late: a function gives it, or the application itself, once it has started.

The card is made when the application has started. It is asked for again when callers read it, at most once in ten
seconds. Another text is served, and signed anew. Other rules are not: callers get 503 instead of the card then
(``protection``), and the rules of the start go on being enforced. A card that cannot be made again takes nothing back:
the last good one stays.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from time import monotonic
from typing import Final, TypeAlias

import anyio

from a2a_trust.card.given import GivenCard, is_message
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.middleware import audit
from a2a_trust.middleware.card import CardSource, card_body
from a2a_trust.middleware.documents import ASGIApp, Document, Receive, Scope, Send

__all__ = ["ASK_SECONDS", "Ask", "AskedAgain", "CardFunction", "GeneratedCard", "asking", "is_function"]

ASK_SECONDS: Final = 10.0
"""How often a card is asked for again at most, and for how long it may be made."""

_LASTING: Final = ("state", "app", "root_path")
"""What is kept of a scope to ask again."""

CardFunction: TypeAlias = Callable[[], GivenCard | Awaitable[GivenCard]]
"""Gives the card, in any form but a source."""

Ask: TypeAlias = Callable[[Scope], Awaitable[GivenCard]]
"""Gives the card, when told the scope of the lifespan, or of the first request."""


def is_function(card: object) -> bool:
    """Whether it gives a card, and is none itself."""
    is_card = isinstance(card, type) or is_message(card) or callable(getattr(card, "model_dump", None))
    return callable(card) and not is_card


def asking(function: CardFunction) -> Ask:
    """The function as what is asked for a card."""

    async def ask(_: Scope) -> GivenCard:
        card = function()
        return await card if isawaitable(card) else card

    return ask


class GeneratedCard:
    """The card that is served now: the one that was generated last, as ``made`` signs it or leaves it."""

    def __init__(self, body: bytes, ask: Callable[[], Awaitable[bytes]], made: Callable[[bytes], CardSource]) -> None:
        self._body, self._ask, self._made = body, ask, made
        self._source, self._asked = made(body), monotonic()
        self._has_failed = False

    @classmethod
    async def asked(
        cls,
        ask: Ask,
        around: Scope,
        finish: Callable[[GivenCard], GivenCard],
        made: Callable[[bytes], CardSource],
    ) -> GeneratedCard:
        """Ask for the card now. ``finish`` adds what the generator leaves out."""

        around = {name: around[name] for name in _LASTING if name in around}

        async def body() -> bytes:
            try:
                with anyio.fail_after(ASK_SECONDS):
                    return card_body(finish(await ask(around)))
            except TimeoutError:
                raise ConfigurationError(f"card: it was not made within {ASK_SECONDS:.0f} seconds") from None

        return cls(await body(), body, made)

    def document(self, now: float) -> Document:
        """The card that counts at the moment ``now``."""
        return self._source.document(now)

    async def refresh(self) -> None:
        """Ask again, if nobody did in the last ten seconds."""
        if monotonic() - self._asked < ASK_SECONDS:
            return
        self._asked = monotonic()  # before the answer: one asks, and callers who come meanwhile get the last card
        try:
            body = await self._ask()
            if body != self._body:
                self._source, self._body = self._made(body), body
        except Exception as error:  # noqa: BLE001  the function is anybody's
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
        await self._source.refresh()
        await self._card(scope, receive, send)
