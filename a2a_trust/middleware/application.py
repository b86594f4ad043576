"""What an application answers by itself: its own card, and its own extended card."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import anyio

from a2a_trust import strict_json
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.card.view import interface_urls
from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send
from a2a_trust.strict_json import MAX_BYTES

__all__ = ["Answer", "FromApplication", "answer_of", "card_of_application"]


_PATH: Final = re.compile(r"/[!-\"$->@-~]*")
"""Of a request, without query and fragment."""


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
        path: object = self.path
        if path is not None and not (isinstance(path, str) and _PATH.fullmatch(path)):
            raise ConfigurationError(
                f"FromApplication: {self.path!a:.128} is no path; write FromApplication({CARD_PATHS[0]!r})"
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
            if len(body) <= MAX_BYTES:
                body.extend(message.get("body", b""))
            is_whole = not message.get("more_body", False)

    # A whole document in its plain form is what can be read and signed; the application is asked for nothing else.
    headers = [line for line in scope["headers"] if line[0].lower() not in _OTHER_FORMS]
    await app({**scope, "headers": headers}, receive, keep)
    if started is None or not is_whole or len(body) > MAX_BYTES:
        return None
    return Answer(started["status"], [*started.get("headers", ())], bytes(body))


async def card_of_application(
    app: ASGIApp, source: FromApplication, prefix: str, url: str | None, around: Scope
) -> bytes:
    """The card that the application serves; ConfigurationError when it serves none.

    Applications write their cards by the request's host and root path: they are those of ``url``, the agent's public
    one. ``prefix`` is the agent's, ``around`` the scope of the lifespan, or of the request, that needs the card.
    """
    path = source.path or f"{prefix}{CARD_PATHS[0]}"
    root = around.get("root_path") or source.root_path or _root_path(prefix, url)
    answer = await answer_of(app, _scope(root, path, url, around), _no_body())
    if answer is None:
        raise ConfigurationError(f"card: the application gave no whole answer of at most {MAX_BYTES} bytes at {path!r}")
    if answer.status != 200:
        raise ConfigurationError(
            f"card: the application answers {answer.status} at {path!r}; if it has its card elsewhere, write "
            "card=FromApplication('/path/of/the/card.json'); if it makes its routes when it starts, its lifespan has "
            "to run: protect_agents(…, lifespans=[…]) for what is mounted"
        )
    card = strict_json.parse(answer.body, what="card")
    urls = [each for _, each in interface_urls(card)] if isinstance(card, dict) else []
    if not urls:
        raise ConfigurationError(f"card: what the application has at {path!r} names no interface, so it is no card")
    elsewhere = next((each for each in urls if url is not None and _is_beside(each, url)), None)
    if elsewhere is not None:
        raise ConfigurationError(
            f"card: the application names the interface {elsewhere!a:.128}, which is not below url={url!a:.128}; if "
            "the server has a root path, write card=FromApplication(root_path='/…'), or correct one of the URLs"
        )
    return answer.body


def _is_beside(interface: str, url: str) -> bool:
    """Whether an interface is at the agent's host, and not below its URL."""
    there, here = urlsplit(interface), urlsplit(url)
    return there.hostname == here.hostname and not f"{there.path}/".startswith(f"{here.path.rstrip('/')}/")


def _root_path(prefix: str, url: str | None) -> str:
    """What stands before the prefix in the public URL: uvicorn tells no root path when the lifespan starts."""
    path = urlsplit(url or "").path.rstrip("/")
    return path.removesuffix(prefix) if prefix and path.endswith(prefix) else ""


def _scope(root: str, path: str, url: str | None, around: Scope) -> Scope:
    parts = urlsplit(url or "http://localhost")
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
    if "state" in around:
        scope["state"] = dict(around["state"])
    if "app" in around:  # of Starlette, for its own routes
        scope["app"] = around["app"]
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
