"""What an application answers by itself: its own card, and its own extended card."""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import anyio

from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send
from a2a_trust.strict_json import MAX_BYTES

__all__ = ["Answer", "FromApplication", "answer_of", "card_of_application", "check_urls"]


_NO_URL: Final = "http://public-url-is-missing.invalid"
"""Where the application is asked when nobody has said where it is."""

_PATH: Final = re.compile(r"/[!-\"$->@-~]*")
"""A request path without query or fragment."""


@dataclass(frozen=True, slots=True)
class FromApplication:
    """The application's own card.

    As ``card=`` it is what the application answers to GET of ``path``, asked once it has started: by default at the
    well-known path below the agent's prefix. ``root_path`` is the server's (``uvicorn --root-path``), where there is no
    prefix by which ``url=`` tells it. As ``ExtendedCard(FromApplication())`` it is what the application answers to the
    caller's own request.
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
                    f"FromApplication: {path!a:.128} is no path; write FromApplication({CARD_PATHS[0]!r}), or "
                    "FromApplication(root_path='/team')"
                )


_OTHER_FORMS: Final = frozenset({b"accept-encoding", b"range", b"if-none-match", b"if-modified-since", b"if-range"})


class Answer(NamedTuple):
    """A whole answer of an application."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    async def pass_on(self, scope: Scope, send: Send) -> None:
        """Send it as it is; to HEAD without its body."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else self.body})


class _TooLongError(Exception):
    """The answer is longer than a card may be."""


async def answer_of(app: ASGIApp, scope: Scope, receive: Receive) -> Answer | None:
    """What the application answers to one http request; None for no answer, or one of more than 1 MB."""
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

    # A whole document in its plain form is what can be read and signed; the application is asked for nothing else.
    headers = [line for line in scope["headers"] if line[0].lower() not in _OTHER_FORMS]
    extensions = scope.get("extensions") or {}
    plain = {name: value for name, value in extensions.items() if not name.startswith("http.response.")}
    try:
        await app({**scope, "headers": headers, "extensions": plain}, receive, keep)
    except _TooLongError:
        return None
    if started is None or not is_whole or len(body) > MAX_BYTES:
        return None
    return Answer(started["status"], [*started.get("headers", ())], bytes(body))


async def card_of_application(
    app: ASGIApp, source: FromApplication, prefix: str, url: str | None, asked_from: Scope
) -> bytes:
    """The card that the application serves; ConfigurationError when it serves none.

    Applications write their cards by the request's host and root path: they are those of ``url``, the agent's public
    one. ``prefix`` is the agent's, ``asked_from`` the scope of the lifespan, or of the request, that needs the card.
    """
    path = source.path or f"{prefix}{CARD_PATHS[0]}"
    root = asked_from.get("root_path") or source.root_path or _root_path(prefix, url)
    answer = await answer_of(app, _scope(root, path, url, asked_from), _no_body())
    if answer is None:
        raise ConfigurationError(f"card: the application gave no whole answer of at most {MAX_BYTES} bytes at {path!r}")
    if answer.status != 200:
        raise ConfigurationError(
            f"card: the application answers {answer.status} at {path!r}; if it has its card elsewhere, write "
            "card=FromApplication('/path/of/the/card.json'); if it makes its routes when it starts, its lifespan has "
            "to run: protect_agents(…, lifespans=[…]) for what is mounted"
        )
    return answer.body


def check_urls(urls: Iterable[str], url: str | None) -> None:
    """Return when the interfaces in an application's own card are below the agent's URL, or at other hosts."""
    for interface in urls:
        there, here = urlsplit(interface), urlsplit(url or _NO_URL)
        if there.hostname != here.hostname:
            continue
        if url is None:
            raise ConfigurationError(
                "card: the application writes its URLs by the host of the request; pass url='https://…', the public one"
            )
        if not f"{there.path}/".startswith(f"{here.path.rstrip('/')}/"):
            raise ConfigurationError(
                f"card: the application names the interface {interface!a:.128}, which is not below url={url!a:.128}; "
                "if the server has a root path, write card=FromApplication(root_path='/…'), or correct one of the URLs"
            )


def _root_path(prefix: str, url: str | None) -> str:
    """What stands before the prefix in the public URL: uvicorn tells no root path when the lifespan starts."""
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


def _no_body() -> Receive:
    is_told = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal is_told
        if is_told:
            await anyio.sleep_forever()
        is_told = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive
