"""Cards that exist late, after the start: of a function, or of the application itself, which also has an extended card.

The card is made when the application has started. When callers read it, it is made again, at most once in ten seconds.
A changed text is signed and served. If its rules change, the public card gets 503 (``protection``), and the first rules
stay in force. If it cannot be made again, the last card is still served.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from math import inf
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

import anyio

from a2a_trust.base.state_changes import StateKind
from a2a_trust.base.strict_json import MAX_BYTES
from a2a_trust.card.given import GivenCard, is_message
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.card.view import read_card
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.middleware import audit
from a2a_trust.middleware.calls import replay
from a2a_trust.middleware.card import CardSource, card_body
from a2a_trust.middleware.documents import ASGIApp, Document, Receive, Scope, Send

_NO_URL: Final = "http://public-url-is-missing.invalid"
"""The URL of the request for the application's card, when there is no ``url=``."""
_PATH: Final = re.compile(r"/[!-\"$->@-~]*")  # of a request, without query and fragment
_OTHER_FORMS: Final = frozenset({b"accept-encoding", b"range", b"if-none-match", b"if-modified-since", b"if-range"})


@dataclass(frozen=True, slots=True)
class FromApplication:
    """The application's own card.

    As ``card=``, the card is fetched from the application with GET of ``path``, after its start. The default path is
    the well-known path below the agent's prefix. ``root_path`` is the server's (``uvicorn --root-path``); with a prefix
    it follows from ``url=``. As ``ExtendedCard(FromApplication())``, the extended card is the application's answer to
    the caller's own request.
    """

    path: str | None = None
    root_path: str = ""

    def __post_init__(self) -> None:
        root: object = self.root_path
        root = f"{root}/" if isinstance(root, str) else root
        paths: tuple[object, ...] = (CARD_PATHS[0] if self.path is None else self.path, root)
        for path in paths:
            if not (isinstance(path, str) and _PATH.fullmatch(path)) or "//" in path:
                raise ConfigurationError(
                    f"FromApplication: {path!a:.128} is not a path; write FromApplication({CARD_PATHS[0]!r}), or "
                    "FromApplication(root_path='/team')"
                )


class CompleteAnswer(NamedTuple):
    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


class _TooLongError(Exception):
    """The answer is longer than a card may be."""


async def answer_of(app: ASGIApp, scope: Scope, receive: Receive) -> CompleteAnswer | None:
    """The application's answer to one http request; None for an incomplete answer, or one of more than 1 MB."""
    started: MutableMapping[str, Any] | None = None
    body = bytearray()
    is_whole = False

    async def keep(message: MutableMapping[str, Any]) -> None:
        nonlocal started, is_whole
        if message["type"] == "http.response.start":
            started = message
        elif message["type"] == "http.response.body" and not is_whole:
            body.extend(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if len(body) > MAX_BYTES:
                raise _TooLongError

    # Only a whole document in its plain form can be read and signed: no compression, no range, no 304.
    headers = [line for line in scope["headers"] if line[0].lower() not in _OTHER_FORMS]
    extensions = scope.get("extensions") or {}
    plain = {name: value for name, value in extensions.items() if not name.startswith("http.response.")}
    try:
        await app({**scope, "headers": headers, "extensions": plain}, receive, keep)
    except _TooLongError:
        return None
    if started is None or not is_whole or len(body) > MAX_BYTES:
        return None
    return CompleteAnswer(started["status"], [*started.get("headers", ())], bytes(body))


async def card_of_application(
    app: ASGIApp, source: FromApplication, prefix: str, url: str | None, asked_from: Scope
) -> bytes:
    """The card that the application serves; ConfigurationError when it does not serve one.

    Applications write the request's host and root path into their cards, so the request has them from ``url``, the
    agent's public URL. ``prefix`` is the agent's. ``asked_from`` is the scope of the lifespan or the request that needs
    the card.
    """
    path = source.path or f"{prefix}{CARD_PATHS[0]}"
    root = asked_from.get("root_path") or source.root_path or _root_path(prefix, url)
    answer = await answer_of(
        app, _scope(root, path, url, asked_from), replay(b"", cast("Receive", anyio.sleep_forever))
    )
    if answer is None:
        raise ConfigurationError(
            f"card: the application's answer at {path!r} was incomplete, or longer than {MAX_BYTES} bytes; look for an "
            "error in its log"
        )
    if answer.status != 200:
        raise ConfigurationError(
            f"card: the application answers {answer.status} at {path!r}; if its card has another path, write "
            "card=FromApplication('/path/of/the/card.json'); if it makes its routes when it starts, its lifespan must "
            "run: for a mounted application write protect_agents(…, lifespans=[…])"
        )
    return answer.body


def check_urls(urls: Iterable[str], url: str | None) -> None:
    """Return when the interfaces in an application's own card are below the agent's URL, or on other hosts."""
    for interface in urls:
        there, here = urlsplit(interface), urlsplit(url or _NO_URL)
        if there.hostname != here.hostname:
            continue
        if url is None:
            raise ConfigurationError(
                "card: the application writes the request's host into its URLs; pass its public URL, url='https://…'"
            )
        if not f"{there.path}/".startswith(f"{here.path.rstrip('/')}/"):
            raise ConfigurationError(
                f"card: the application names the interface {interface!a:.128}, which is not below url={url!a:.128}; "
                "if the server has a root path, write card=FromApplication(root_path='/…'), or correct one of the URLs"
            )


def _root_path(prefix: str, url: str | None) -> str:
    """The path before the prefix in the public URL: uvicorn's lifespan scope has no root path."""
    path = urlsplit(url or "").path.rstrip("/")
    return path.removesuffix(prefix) if prefix and path.endswith(prefix) else ""


def _scope(root: str, path: str, url: str | None, asked_from: Scope) -> Scope:
    parts = urlsplit(url or _NO_URL)
    host, port = parts.hostname or "localhost", parts.port or (443 if parts.scheme == "https" else 80)
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": parts.scheme,
        "path": f"{root}{path}",
        "raw_path": f"{root}{path}".encode(),
        "query_string": b"",
        "root_path": root,
        "headers": [(b"host", parts.netloc.rpartition("@")[2].encode("ascii")), (b"accept", b"application/json")],
        "client": ("127.0.0.1", 0),  # this process
        "server": (host, port),
        "extensions": {},
    }
    if "state" in asked_from:
        scope["state"] = dict(asked_from["state"])
    if "app" in asked_from:  # of Starlette, for its own routes
        scope["app"] = asked_from["app"]
    return scope


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
