"""The guard in front of an ASGI application: nothing passes that the card does not let in.

Default deny: every http and websocket request is judged, except GET and HEAD of exactly the public paths. The decision
is made on the raw scope, with the path as the application's router will see it; the Host header and forwarded headers
play no part. A refused request is answered before its body is read; a streamed answer is not touched.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from time import time
from typing import Any, Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from starlette.authentication import AuthCredentials

from a2a_trust.auth.credentials import Cookie, Header, HttpAuthorization
from a2a_trust.auth.guard import Anonymity, AnonymousRefused, At, Guard, Skills, SkillsRefused
from a2a_trust.auth.principal import Anonymous, Principal, Verifier
from a2a_trust.card import CardView, read_card
from a2a_trust.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigurationError,
    KeySourceUnavailableError,
    TrustError,
)
from a2a_trust.middleware.refusal import Binding, Refusal, refusal_for

__all__ = ["CARD_PATHS", "AuthenticationMiddleware", "principal_of", "protect"]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

CARD_PATHS: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where agents serve their public card: 0.3 and 1.0, and 0.2."""

_PRINCIPAL: Final = "a2a_trust.principal"
_log = logging.getLogger("a2a_trust")


class AuthenticationMiddleware:
    """Enforces what the card declares in front of ``app``.

    ``card`` is the agent's own card (bytes or dict); ``verifiers`` has a verifier for every scheme that the card
    demands, by the scheme's name in the card. ConfigurationError when anything would be left open.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        card: bytes | Mapping[str, Any],
        verifiers: Mapping[str, Verifier | At],
        public_paths: Iterable[str] = (),
        unguarded: Iterable[str] = (),
        anonymous: Anonymity = AnonymousRefused(),  # noqa: B008  frozen and without fields
        skills: Skills = SkillsRefused(),  # noqa: B008
        allow_cors_preflight: bool = False,
        hide_credentials: bool = False,
        clock: Callable[[], float] = time,
    ) -> None:
        """``public_paths``: further exact paths that anybody may GET, beside the two card paths. ``unguarded``: URLs of
        interfaces in the card that are served elsewhere or by other means (gRPC), which this guard cannot protect.
        ``hide_credentials`` removes credentials from the headers of judged requests before ``app`` sees them.
        """
        view = read_card(card)
        self._app = app
        self._guard = Guard(view, verifiers, anonymous=anonymous, skills=skills)
        self._bindings = _bindings(view, frozenset(unguarded))
        self._public = frozenset((*CARD_PATHS, *map(_exact_path, public_paths)))
        self._allow_cors_preflight = allow_cors_preflight
        self._hidden = _credential_headers(self._guard) if hide_credentials else frozenset()
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._app(scope, receive, send)
            return
        if kind not in ("http", "websocket"):
            raise ConfigurationError(f"ASGI scope type {kind!r} is not understood, so it is not let in")
        if kind == "http" and self._is_public(scope):
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._guard.authenticate(scope, self._clock())
        except (AuthenticationError, AuthorizationError, KeySourceUnavailableError) as error:
            await self._refuse(error, scope, receive, send)
            return
        inner = dict(scope)
        inner["user"] = inner[_PRINCIPAL] = caller
        inner["auth"] = AuthCredentials(sorted(caller.scopes))
        if self._hidden:
            inner["headers"] = [line for line in scope["headers"] if line[0].lower() not in self._hidden]
        await self._app(inner, receive, send)

    def _is_public(self, scope: Scope) -> bool:
        path = scope["path"]
        if scope["method"] in ("GET", "HEAD"):
            # The undecoded path too: the public card has one spelling, and a router may think otherwise of others.
            return _route_path(scope) in self._public and scope.get("raw_path") in (None, path.encode())
        if self._allow_cors_preflight and scope["method"] == "OPTIONS":
            names = {name.lower() for name, _ in scope["headers"]}
            return {b"origin", b"access-control-request-method"} <= names
        return False

    async def _refuse(self, error: TrustError, scope: Scope, receive: Receive, send: Send) -> None:
        _log.info("refused %s: %s", scope["type"], error)
        # The card has public paths; behind a root_path some servers give the router's path, some the public one.
        path = scope["path"] if scope["path"] in self._bindings else _route_path(scope)
        binding = self._bindings.get(path, self._bindings.get(scope.get("root_path", "") + path, Binding.HTTP_JSON))
        refusal = refusal_for(error, self._guard, binding)
        if scope["type"] == "http":
            await _respond(refusal, "http.response", send, head=scope["method"] == "HEAD")
        elif "websocket.http.response" in (scope.get("extensions") or {}):
            await _respond(refusal, "websocket.http.response", send)
        else:
            await receive()  # websocket.connect, which has to be taken before it can be refused
            await send({"type": "websocket.close", "code": 1008, "reason": ""})


async def _respond(refusal: Refusal, prefix: str, send: Send, *, head: bool = False) -> None:
    await send({"type": f"{prefix}.start", "status": refusal.status, "headers": list(refusal.headers)})
    await send({"type": f"{prefix}.body", "body": b"" if head else refusal.body})


def protect(app: ASGIApp, *, card: bytes | Mapping[str, Any], **options: Any) -> AuthenticationMiddleware:
    """``app`` behind its card: one line around a Starlette, FastAPI or a2a-sdk application.

    The options are those of ``AuthenticationMiddleware``.
    """
    return AuthenticationMiddleware(app, card=card, **options)


def principal_of(scope: Mapping[str, Any]) -> Principal | Anonymous:
    """Who the request is from, for handlers: of ``request.scope``, behind the middleware.

    ConfigurationError where no middleware has judged the request: a handler must not take that for anybody.
    """
    caller = scope.get(_PRINCIPAL)
    if not isinstance(caller, Principal | Anonymous):
        raise ConfigurationError("principal_of: this request did not come through protect(); wrap the application")
    return caller


def _route_path(scope: Scope) -> str:
    """The path as Starlette's router sees it: without ``root_path``, which ends at a segment's end or is not there."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        return path[len(root) :]
    return path


_EXTENDED_CARD: Final = re.compile(r"(?:/[^/]*)?/(?:extendedAgentCard|v1/card|agent/authenticatedExtendedCard)")


def _exact_path(path: str) -> str:
    if _EXTENDED_CARD.fullmatch(path):
        raise ConfigurationError(f"public_paths: {path!r} serves the extended card, which is for known callers only")
    if not path.startswith("/") or not path.isascii() or any(char in path for char in "?#%*{}"):
        raise ConfigurationError(
            f"public_paths: {path!r} is no exact path; write one as it is requested, without patterns"
        )
    return path


def _bindings(view: CardView, unguarded: frozenset[str]) -> dict[str, Binding]:
    """The path of every guarded interface and its binding; ConfigurationError for one that cannot be guarded here."""
    known = {url for interface in view.interfaces for url in (interface.url,)}
    unknown = unguarded - known
    if unknown:
        raise ConfigurationError(f"unguarded: the card has no interface {', '.join(sorted(unknown))}")
    guarded = [interface for interface in view.interfaces if interface.url not in unguarded]
    host = _split(guarded[0].url, guarded[0].pointer).netloc if guarded else ""
    bindings: dict[str, Binding] = {}
    for interface in guarded:
        parts = _split(interface.url, interface.pointer)
        if interface.binding not in tuple(Binding) or parts.scheme not in ("http", "https") or parts.netloc != host:
            raise ConfigurationError(
                f"{interface.pointer}: this application cannot guard {interface.url} ({interface.binding}); protect it "
                f"where it is served, and say so: unguarded=[{interface.url!r}]"
            )
        path = parts.path or "/"
        if bindings.get(path) is not Binding.JSONRPC:  # on a shared URL the body of JSON-RPC is understood by both
            bindings[path] = Binding(interface.binding)
    return bindings


def _split(url: str, pointer: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise ConfigurationError(f"{pointer}: {url[:128]!a} is no URL; write https://host/path") from None


def _credential_headers(guard: Guard) -> frozenset[bytes]:
    names = set()
    for scheme in guard.schemes:
        place = guard.place(scheme.name)
        if isinstance(place, HttpAuthorization):
            names.add(b"authorization")
        elif isinstance(place, Header):
            names.add(place.name.lower().encode())
        elif isinstance(place, Cookie):
            names.add(b"cookie")
    return frozenset(names)
