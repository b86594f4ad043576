"""The guard in front of an ASGI application: it admits only callers that the card allows.

Every http and websocket request is checked, except GET and HEAD of exactly the public paths. The decision uses the raw
scope, and the path as the application's router sees it. It ignores the Host header and forwarded headers. A rejected
request is answered before its body is read; only during a long wait for a verifier, ``disconnect`` reads a part of it
ahead. Streamed answers pass unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from functools import lru_cache
from time import time
from typing import Any, Final
from urllib.parse import unquote_plus

from a2a_trust.auth.credentials import CERTIFICATES, ClientCertificate, Extractor, InCookie, InQuery
from a2a_trust.auth.dpop import NEXT_NONCE, DPoP
from a2a_trust.auth.guard import Guard, Refused
from a2a_trust.auth.guard_config import CredentialAt
from a2a_trust.auth.principal import Principal, Verifier
from a2a_trust.auth.throttle import Throttle
from a2a_trust.card.given import GivenCard, given_card
from a2a_trust.card.operations import ends_like_operation, folded_path
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.card.view import CardView, read_card
from a2a_trust.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigurationError,
    CrossSiteError,
    KeySourceUnavailableError,
    TooManyRequestsError,
)
from a2a_trust.middleware import audit
from a2a_trust.middleware.browsers import BrowserRules, is_attached_by_browsers
from a2a_trust.middleware.caching import CachingRules
from a2a_trust.middleware.caller import Caller, CallerCredentials, Running, set_caller, set_public, this_task
from a2a_trust.middleware.client_certificate import CertificateSource
from a2a_trust.middleware.disconnect import ClientGoneError, ReadAhead
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send, close_websocket, is_preflight
from a2a_trust.middleware.options import MAX_BODY, RequestRules, check_app
from a2a_trust.middleware.refusal import Refusal, refusal_for
from a2a_trust.middleware.routing import Interfaces, route_path

_REPEATED: Final = (audit.Reason.KEY_SOURCE_UNAVAILABLE, audit.Reason.TOO_MANY_REQUESTS)
"""Rejections that anybody can cause in any number."""


class CardEnforcementMiddleware:
    """Admits to ``app`` only callers that the card allows: the guard of ``protect``, without its other parts.

    ``card`` is the agent's own card, in any form that ``protect`` takes except a source. ``verifiers`` has a verifier
    for every scheme that the card demands, by the scheme's name in the card. ConfigurationError: a rule of the card
    would not be enforced, or an option is wrong.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        card: GivenCard | CardView,
        verifiers: Mapping[str, Verifier[Any] | CredentialAt],
        url: str | None = None,
        rules: RequestRules = RequestRules(),  # noqa: B008  frozen
        client_certificates: CertificateSource | None = None,
        dpop: DPoP | None = None,
        resource_metadata: str | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        """``url``, ``client_certificates`` and ``dpop`` are those of ``protect``. ``resource_metadata`` is the URL of
        the metadata of RFC 9728, which challenges name. Bodies are not read here. ConfigurationError for ``rules``
        about tenants, other paths and bodies, which only ``protect`` enforces.
        """
        check_app(app)
        if not isinstance(rules, RequestRules):
            raise ConfigurationError("rules: write RequestRules(…), as in RequestRules(public_paths=['/healthz'])")
        if rules.may_use_tenant is not None or rules.other_paths or rules.max_body != MAX_BODY:
            raise ConfigurationError(
                "rules: may_use_tenant, other_paths and max_body are enforced by protect(app, …) only"
            )
        view = card if isinstance(card, CardView) else read_card(given_card(card))
        self._app = app
        self._guard = Guard(
            view,
            verifiers,
            allow_anonymous=rules.allow_anonymous,
            handlers_check_skills=rules.handlers_check_skills,
            dpop=dpop,
            throttle=Throttle(rules.failures),
        )
        _check_source(client_certificates, self._guard)
        _check_kept(rules, self._guard)
        self._keep_subject_token = rules.keep_subject_token
        self._certificates = client_certificates
        self._interfaces = Interfaces(view, unguarded=frozenset(rules.unguarded), served_at=rules.served_at)
        self._public = frozenset(map(_public_path, CARD_PATHS if rules.public_paths is None else rules.public_paths))
        self._endings = tuple(self._public)
        self._allow_cors_preflight = rules.allow_cors_preflight
        hidden = self._guard.proof_headers if rules.hide_credentials else frozenset()
        if client_certificates is not None:
            hidden |= client_certificates.headers
        self._hidden = _Hidden(self._guard.places if rules.hide_credentials else (), hidden)
        self._resource_metadata = resource_metadata
        self._clock = clock
        used = {scheme.name: self._guard.place(scheme.name) for scheme in self._guard.schemes}
        self._caching = CachingRules(used.values())
        self._browsers = BrowserRules(url=url, allowed_origins=rules.allowed_origins)
        self._attached = frozenset(name for name, place in used.items() if is_attached_by_browsers(place))
        self._repeated = {reason: audit.RepeatedRefusals(reason) for reason in _REPEATED}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._pass_lifespan(scope, receive, send)
            return
        if kind not in ("http", "websocket"):
            raise ConfigurationError(f"ASGI scope type {kind!r} is not understood, so it is rejected")
        if kind == "http" and self._is_public(scope):
            await self._pass_public(scope, receive, send)
            return
        # A copy of the headers that are checked is passed on: uvicorn's httptools adds trailers to its list later.
        inner = {**scope, "headers": [*scope["headers"]]}
        inner.pop(CERTIFICATES, None)
        if self._certificates is None:
            known = self._guard.remembered(inner, self._clock())
            if known is not None:
                await self._answer(self._checked_page(inner, known), scope, inner, receive, send)
                return
        ahead = ReadAhead(receive)
        try:
            await self._answer(await self._decide(inner, ahead), scope, inner, ahead.receive, send)
        except ClientGoneError:
            return
        finally:
            ahead.close()

    async def _answer(self, caller: Caller | Refused, scope: Scope, inner: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass ``inner`` on to the application."""
        if isinstance(caller, Refused):
            await self._refuse(caller, scope, receive, send)
            return
        if audit.is_heard():
            audit.request_allowed(scope, caller)
        credentials = CallerCredentials(caller)
        if self._keep_subject_token:
            credentials.keep(self._guard.subject_token(inner, caller))
        set_caller(inner, credentials)
        if NEXT_NONCE in inner:
            send = _giving(inner.pop(NEXT_NONCE), send)
        self._hidden.hide(inner)
        with Running(caller, this_task()):
            await self._app(inner, receive, self._caching.applied(send))

    async def _pass_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            self.flush()

    def flush(self) -> None:
        """Log the rejections that were counted and not logged yet, at the end of the program."""
        for repeated in self._repeated.values():
            repeated.flush()

    async def _pass_public(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request that needs no credential: for a public path, or a preflight (without its body)."""
        public = {**scope}
        set_public(public)
        public.pop(CERTIFICATES, None)
        if self._certificates is not None:  # only the guard may see certificate headers and the proxy's secret
            public["headers"] = lines_without(self._certificates.headers, scope["headers"])
        if scope["method"] == "OPTIONS":  # its caller is not authenticated, so it must not carry a call
            public["headers"] = lines_without(_OF_BODIES, public["headers"])
            receive = _without_body(receive)
        with Running(None, None):
            await self._app(public, receive, send)

    async def _decide(self, scope: Scope, ahead: ReadAhead) -> Caller | Refused:
        try:
            if self._certificates is not None:
                scope[CERTIFICATES] = self._certificates.chain(scope)
            decision = self._guard.authenticate(scope, self._clock())
            caller = await (ahead.during(decision) if scope["type"] == "http" else decision)
        except (AuthenticationError, AuthorizationError, TooManyRequestsError, KeySourceUnavailableError) as error:
            return Refused(error)  # of the source of certificates, or of a user's verifier
        return self._checked_page(scope, caller) if isinstance(caller, Principal) else caller

    def _checked_page(self, scope: Scope, caller: Principal) -> Principal | Refused:
        """The caller, unless a browser attached the credential by itself, for a page of another site."""
        if self._attached and any(name in self._attached for name, _ in caller.identities):
            try:
                self._browsers.check(scope)
            except CrossSiteError as error:
                return Refused(error, caller=caller)
        return caller

    def _is_public(self, scope: Scope) -> bool:
        if scope["method"] in ("GET", "HEAD"):
            # The first test decides for nearly all requests, and is fast.
            return scope["path"].endswith(self._endings) and is_exactly(self._public, scope)
        if scope["method"] != "OPTIONS":
            return False
        # Every preflight of a browser has an Origin.
        is_asked = self._allow_cors_preflight and is_preflight(scope)
        return is_asked and any(name.lower() == b"origin" for name, _ in scope["headers"])

    async def _refuse(self, refused: Refused, scope: Scope, receive: Receive, send: Send) -> None:
        error = refused.error
        reason = audit.reason_of(error)
        if reason in self._repeated:
            cause = error.cause if isinstance(error, TooManyRequestsError) else ""
            self._repeated[reason].refused(scope, str(error), cause)
        else:
            audit.request_refused(scope, reason, str(error), refused.caller)
        binding, legacy = self._interfaces.language(scope)
        dpop = self._guard.dpop
        refusal = refusal_for(
            refused,
            self._guard,
            binding,
            legacy=legacy,
            resource_metadata=self._resource_metadata,
            dpop_nonce=None if dpop is None else dpop.nonce(self._clock()),
        )
        if scope["type"] == "http":
            await _respond(refusal, "http.response", send, head=scope["method"] == "HEAD")
        elif "websocket.http.response" in (scope.get("extensions") or {}):
            await _respond(refusal.with_one_challenge_line(), "websocket.http.response", send)
        else:
            await close_websocket(receive, send)


class _Hidden:
    """The credentials at ``places`` and the lines of ``headers``, which the application does not see."""

    def __init__(self, places: Iterable[Extractor], headers: frozenset[bytes]) -> None:
        in_cookies = [place for place in places if isinstance(place, InCookie)]
        others = [place.header for place in places if place.header is not None and place not in in_cookies]
        self._headers = headers.union(others)
        self._cookies = frozenset(place.name.encode() for place in in_cookies)
        self._parameters = frozenset(place.name for place in places if isinstance(place, InQuery))

    def hide(self, scope: Scope) -> None:
        """Remove them from the request."""
        if self._headers:
            scope["headers"] = lines_without(self._headers, scope["headers"])
        if self._cookies:
            scope["headers"] = [*_without_cookies(self._cookies, scope["headers"])]
        if self._parameters:
            scope["query_string"] = _without(self._parameters, scope.get("query_string", b""))


async def _respond(refusal: Refusal, prefix: str, send: Send, *, head: bool = False) -> None:
    await send({"type": f"{prefix}.start", "status": refusal.status, "headers": list(refusal.headers)})
    await send({"type": f"{prefix}.body", "body": b"" if head else refusal.body})


def _giving(nonce: str, send: Send) -> Send:
    """``send``, with the nonce for the caller's next proof in the answer (RFC 9449 8.2)."""

    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"dpop-nonce", nonce.encode("ascii"))]}
        await send(message)

    return sent


def _check_source(source: Any, guard: Guard) -> None:
    if isinstance(source, type) or (source is not None and not callable(getattr(source, "chain", None))):
        raise ConfigurationError(
            "client_certificates: write FromTls(), with parentheses, or FromProxy(Nginx(), peers=…)"
        )
    demanding = [scheme.name for scheme in guard.schemes if isinstance(guard.place(scheme.name), ClientCertificate)]
    if demanding and source is None:
        raise ConfigurationError(
            f"client_certificates: the card demands mutual TLS ({', '.join(demanding)}), and no source of certificates "
            "is given; write client_certificates=FromTls() where the server itself ends TLS, or "
            'client_certificates=FromProxy(Nginx(), peers=Networks("10.0.0.5")) behind a proxy that ends it'
        )


def _check_kept(rules: RequestRules, guard: Guard) -> None:
    if rules.keep_subject_token and not guard.takes_access_tokens:
        raise ConfigurationError(
            "keep_subject_token: no verifier is for access tokens; leave the option out, or give your own verifier the "
            "attribute kind = CredentialKind.ACCESS_TOKEN"
        )


def is_exactly(paths: frozenset[str], scope: Scope) -> bool:
    """Whether the request is for exactly one of the paths, without escapes or other spellings."""
    # The undecoded path too: a router may read other spellings differently.
    return route_path(scope) in paths and scope.get("raw_path") in (None, scope["path"].encode())


_NOT_EXACT: Final = re.compile(r"[?#%*{}\\\x00-\x20\x7f]|//|/\.{1,2}(?:/|$)")


_CARD_ENDINGS: Final = tuple(f"/{path.rpartition('/')[2]}" for path in CARD_PATHS)


def _public_path(path: str) -> str:
    if ends_like_operation(path):
        raise ConfigurationError(f"public_paths: {path!r} is an operation of A2A, for callers only; leave it out")
    if path not in CARD_PATHS and ends_like_card(folded_path(path)):
        raise ConfigurationError(
            f"public_paths: {path!r} ends like the path of a card, and the application's own card would be public "
            "there; leave it out. protect() serves the card itself: mount it where the agent's prefix is"
        )
    return exact_path("public_paths", path)


def ends_like_card(folded: str) -> bool:
    """Whether a folded path ends like the path of a card."""
    return folded.endswith(_CARD_ENDINGS)


def exact_path(option: str, path: Any) -> str:
    """The path of an option; ConfigurationError when it is a pattern, or has several spellings."""
    if type(path) is not str or not path.startswith("/") or not path.isascii() or _NOT_EXACT.search(path):
        raise ConfigurationError(
            f"{option}: {path!r:.128} is not an exact path; write it as in requests, such as '/healthz', not a pattern"
        )
    return path


_OF_BODIES: Final = frozenset({b"content-length", b"transfer-encoding", b"content-type", b"content-encoding"})


def _without_body(receive: Receive) -> Receive:
    """``receive`` with an empty body; later messages, such as http.disconnect, pass."""
    is_sent = False

    async def received() -> MutableMapping[str, Any]:
        nonlocal is_sent
        if not is_sent:
            is_sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        while (message := await receive())["type"] == "http.request":
            pass
        return message

    return received


def lines_without(names: frozenset[bytes], headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers without these names, and without their aliases with underscores, which CGI does not tell apart."""
    lengths = _lengths(names)  # of nearly all other headers it is another one
    return [line for line in headers if len(line[0]) not in lengths or line[0].lower().replace(b"_", b"-") not in names]


@lru_cache(maxsize=256)
def _lengths(names: frozenset[bytes]) -> frozenset[int]:
    return frozenset(map(len, names))


def _without_cookies(names: frozenset[bytes], headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    for header, value in headers:
        if header.lower() != b"cookie":
            yield header, value
            continue
        pairs = value.split(b";")
        kept = [pair for pair in pairs if pair.partition(b"=")[0].strip(b" \t") not in names]
        if kept:
            yield header, b";".join(kept).lstrip(b" \t")


def _without(names: frozenset[str], query: bytes) -> bytes:
    pairs = query.split(b"&")
    return b"&".join(pair for pair in pairs if unquote_plus(pair.partition(b"=")[0].decode("latin-1")) not in names)
