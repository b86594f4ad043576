"""The one ASGI callable in front of an application: documents, guard, rules, extended card, application.

Every http and websocket request is checked, except GET and HEAD of exactly the public paths. ``decision`` uses the raw
scope, and the path as the application's router sees it. It ignores the Host header and forwarded headers.

- A request that the guard rejects is answered before its body is read; only during a long wait for a verifier,
  ``disconnect`` reads a part of it ahead.
- A request of an interface is read before the application gets it, and is one ``Call`` in the scope (``call_of``).
- Every other request belongs to the application: it streams, and its body is never read.

Answers of the application stream unchanged, except for headers of caches.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from time import time
from typing import Any, Final

import anyio
from anyio import to_thread

from a2a_trust.auth.certificate.source import CertificateSource
from a2a_trust.auth.credentials import Hidden, lines_without
from a2a_trust.auth.dpop import NEXT_NONCE, DPoP
from a2a_trust.auth.guard import Refused
from a2a_trust.auth.guard_config import CredentialAt
from a2a_trust.auth.principal import Verifier
from a2a_trust.card.given import GivenCard, given_card
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.card.view import CardView, read_card
from a2a_trust.errors import ConfigurationError, TooManyRequestsError
from a2a_trust.middleware import audit
from a2a_trust.middleware.caching import CachingRules
from a2a_trust.middleware.caller import Caller, Running, set_caller, set_public, this_task
from a2a_trust.middleware.calls import CALL, Call, CallRefusedError, replayed
from a2a_trust.middleware.decision import Access, CallRules, NeedsBody, Seen, too_large
from a2a_trust.middleware.disconnect import ClientGoneError, Message, ReadAhead
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send, close_websocket, is_preflight
from a2a_trust.middleware.extended_card import ExtendedCardEndpoint, respond_to_caller
from a2a_trust.middleware.options import GuardRules, RequestRules, check_app
from a2a_trust.middleware.refusal import refusal_for, send_refusal
from a2a_trust.middleware.routing import Interfaces, Target, is_exact

_SHORT: Final = 1_048_576
"""Bodies up to this size, in bytes, are read at once, in about a millisecond; larger ones in a thread. A thread costs
0.3 ms, five times the cost of reading 68 kB, and msgspec holds the interpreter's lock while it reads."""

_READERS: Final = 4
"""How many larger bodies are read at the same time."""


class Door:
    """Admits to ``app`` only requests that the card and the rules of one agent allow.

    ``documents`` answer for their exact paths, without a guard; ``for_callers`` do so behind it. Without ``calls``, all
    requests of callers are valid.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        *,
        rules: GuardRules,
        calls: CallRules | None = None,
        extended: ExtendedCardEndpoint | None = None,
        documents: Mapping[str, ASGIApp] | None = None,
        for_callers: Mapping[str, ASGIApp] | None = None,
        resource_metadata: str | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        """``resource_metadata`` is the URL of the metadata of RFC 9728, which challenges name."""
        self._app, self._access, self._calls = app, access, calls
        self._extended: Any = extended  # with calls there is one
        self._documents, self._for_callers = documents or {}, for_callers or {}
        self._resource_metadata, self._clock = resource_metadata, clock
        guard, source = access.guard, access.certificates
        self._guard = guard
        self._keep_subject_token = rules.keep_subject_token
        self._certificate_headers = frozenset[bytes]() if source is None else source.headers
        proofs = guard.proof_headers if rules.hide_credentials else frozenset[bytes]()
        self._hidden = Hidden(guard.places if rules.hide_credentials else (), proofs | self._certificate_headers)
        self._caching = CachingRules(guard.place(scheme.name) for scheme in guard.schemes)
        self._repeated = {reason: audit.RepeatedRefusals(reason) for reason in audit.COUNTED}
        self._readers: anyio.CapacityLimiter | None = None  # made in the loop that serves

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = this_task()
        if scope["type"] not in ("http", "websocket"):
            await self._pass_lifespan(scope, receive, send)
            return
        seen = self._access.seen(scope)
        if seen.path in self._documents and _is_read(seen):
            await self._documents[seen.path](scope, receive, send)
            return
        if seen.is_public:
            await self._pass_public(seen, receive, send)
            return
        now = self._clock()
        caller: Caller | Refused | None = self._access.remembered(seen, now)
        ahead = None
        try:
            if caller is None:
                ahead = ReadAhead(receive)
                decision = self._access.caller(seen, now)
                caller = await (ahead.during(decision) if scope["type"] == "http" else decision)
                receive = ahead.receive
            if isinstance(caller, Refused):
                await self._refuse(caller, seen, receive, send)
                return
            send = self._admit(caller, seen.scope, send)
            with Running(caller, task):
                await self._served(caller, seen, receive, send)
        except ClientGoneError:
            return
        finally:
            if ahead is not None:
                ahead.close()

    def _admit(self, caller: Caller, scope: Scope, send: Send) -> Send:
        """Write the caller into the scope in place of the credentials; the ``send`` for answers to this caller."""
        if audit.is_heard():
            audit.request_allowed(scope, caller)
        credentials = set_caller(scope, caller)
        if self._keep_subject_token:
            credentials.keep(self._guard.subject_token(scope, caller))
        self._hidden.hide(scope)
        return self._caching.applied(send, scope.pop(NEXT_NONCE, None))

    async def _pass_public(self, seen: Seen, receive: Receive, send: Send) -> None:
        """Serve a request that needs no credential: for a public path, or a preflight (without its body)."""
        scope = seen.scope
        set_public(scope)
        if self._certificate_headers:  # only the guard may see certificate headers and the proxy's secret
            scope["headers"] = lines_without(self._certificate_headers, scope["headers"])
        if seen.method == "OPTIONS":  # its caller is not authenticated, so it must not carry a call
            scope["headers"] = lines_without(_OF_BODIES, scope["headers"])
            receive = replayed(b"", partial(_after_body, receive))
        with Running(None, None):
            await self._served(None, seen, receive, send)

    def _served(self, caller: Caller | None, seen: Seen, receive: Receive, send: Send) -> Awaitable[None]:
        """A document, a call, a request of the application, or the rejection of a request by the rules."""
        scope = seen.scope
        if seen.path in self._for_callers and _is_read(seen):
            return self._for_callers[seen.path](scope, receive, send)
        if self._calls is None:
            return self._app(scope, receive, send)
        try:
            needed = self._calls.needed(seen)
        except CallRefusedError as refused:
            return self._reject(refused, None, caller, scope, receive, send)
        if needed is None:
            return self._app(scope, receive, send)
        return self._serve_call(self._calls, needed, caller, scope, receive, send)

    async def _serve_call(
        self, calls: CallRules, needed: NeedsBody, caller: Caller | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Read the call; pass it on, answer with the extended card, or reject it."""
        try:
            call, receive = await self._read(calls, needed, caller, scope, receive)
            if call is not None and call.operation is Operation.GET_EXTENDED_CARD:
                await self._extended.answer(call, caller, scope, receive, send)
                return
        except CallRefusedError as refused:
            await self._reject(refused, needed, caller, scope, receive, send)
            return
        except ClientGoneError:
            return
        await self._app(scope, receive, send)

    async def _read(
        self, calls: CallRules, needed: NeedsBody, caller: Caller | None, scope: Scope, receive: Receive
    ) -> tuple[Call | None, Receive]:
        """The call, which is in the scope, too, and the ``receive`` for the application. No frame keeps the body: the
        application may drop it and stream an answer for minutes."""
        body = await _body_of(receive, needed.most, scope["headers"])
        if needed.target is None:
            return None, replayed(body, receive)
        if len(body) <= _SHORT:
            call = calls.read(needed.target, body, scope)
        else:
            call, receive = await self._read_in_thread(partial(calls.read, needed.target, body, scope), receive)
        calls.check_tenants(call, caller)
        scope[CALL] = call
        return call, replayed(body, receive)

    async def _read_in_thread(self, read: Callable[[], Call], receive: Receive) -> tuple[Call, Receive]:
        """The call, and the ``receive`` for later messages. A disconnect of the client ends the wait."""
        if self._readers is None:
            self._readers = anyio.CapacityLimiter(_READERS)
        ahead = ReadAhead(receive)
        try:
            call = await ahead.during(to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._readers))
        finally:
            ahead.close()
        return call, ahead.receive

    async def _reject(
        self,
        refused: CallRefusedError,
        needed: NeedsBody | None,
        caller: Caller | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a request that the rules do not allow."""
        reason = _REASONS.get(refused.error.status, audit.Reason.AMBIGUOUS_REQUEST)
        audit.request_refused(scope, reason, refused.why, caller)
        if scope["type"] == "websocket":
            await close_websocket(receive, send)
            return
        target = None if needed is None else needed.target
        is_json_rpc = isinstance(target, Target) and target.binding is Binding.JSONRPC
        await respond_to_caller(refused.error, refused.call_id if is_json_rpc else None, scope, send)

    async def _refuse(self, refused: Refused, seen: Seen, receive: Receive, send: Send) -> None:
        """Answer a request that the guard does not allow."""
        error, scope = refused.error, seen.scope
        reason = audit.reason_of(error)
        if reason in self._repeated:
            cause = error.cause if isinstance(error, TooManyRequestsError) else ""
            self._repeated[reason].refused(scope, str(error), cause)
        else:
            audit.request_refused(scope, reason, str(error), refused.caller)
        binding, legacy = self._access.interfaces.language(seen.path or "/", seen.root_path)
        dpop = self._guard.dpop
        refusal = refusal_for(
            refused,
            self._guard,
            binding,
            legacy=legacy,
            resource_metadata=self._resource_metadata,
            dpop_nonce=None if dpop is None else dpop.nonce(self._clock()),
        )
        await send_refusal(refusal, scope, receive, send)

    async def _pass_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            raise ConfigurationError(f"ASGI scope type {scope['type']!r} is not understood, so it is rejected")
        try:
            await self._app(scope, receive, send)
        finally:
            self.flush()

    def flush(self) -> None:
        """Log the rejections that were counted and not logged yet, at the end of the program."""
        for repeated in self._repeated.values():
            repeated.flush()


class CardEnforcementMiddleware(Door):
    """Admits to ``app`` only callers that the card allows: the guard of ``protect``, without its other parts.

    ``card`` is the agent's own card, in any form that ``protect`` takes except a source; the application serves it.
    ``verifiers`` has a verifier for every scheme that the card demands, by the scheme's name in the card.
    ConfigurationError: a rule of the card would not be enforced, or an option is wrong.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        card: GivenCard | CardView,
        verifiers: Mapping[str, Verifier[Any] | CredentialAt],
        url: str | None = None,
        rules: GuardRules = GuardRules(),  # noqa: B008  frozen
        client_certificates: CertificateSource | None = None,
        dpop: DPoP | None = None,
        resource_metadata: str | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        """``url``, ``client_certificates`` and ``dpop`` are those of ``protect``. ``resource_metadata`` is the URL of
        the metadata of RFC 9728, which challenges name. Bodies are not read here."""
        check_app(app)
        if isinstance(rules, RequestRules):
            raise ConfigurationError(
                "rules: RequestRules is enforced by protect(app, …) only; write GuardRules(…) here"
            )
        if not isinstance(rules, GuardRules):
            raise ConfigurationError("rules: write GuardRules(…), as in GuardRules(public_paths=['/healthz'])")
        view = card if isinstance(card, CardView) else read_card(given_card(card))
        access = Access(
            view,
            verifiers,
            Interfaces(view, unguarded=frozenset(rules.unguarded), served_at=rules.served_at),
            rules=rules,
            url=url,
            certificates=client_certificates,
            dpop=dpop,
            card_paths=CARD_PATHS,
        )
        super().__init__(app, access, rules=rules, resource_metadata=resource_metadata, clock=clock)


_REASONS: Final = {403: audit.Reason.TENANT, 404: audit.Reason.UNDECLARED_PATH, 413: audit.Reason.TOO_LARGE}


def _is_read(seen: Seen) -> bool:
    """Whether the request is GET, HEAD or a preflight of exactly its path."""
    is_read = seen.method in ("GET", "HEAD") or (seen.method == "OPTIONS" and is_preflight(seen.scope))
    return is_read and is_exact(seen.scope)


_OF_BODIES: Final = frozenset({b"content-length", b"transfer-encoding", b"content-type", b"content-encoding"})


async def _after_body(receive: Receive) -> Message:
    """The first message that is not of the body, such as http.disconnect."""
    while (message := await receive())["type"] == "http.request":
        pass
    return message


_CONTENT_LENGTH: Final = len("content-length")
_MANY_DIGITS: Final = 20


async def _body_of(receive: Receive, most: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The whole body, of ``most`` bytes at most; CallRefusedError for a longer one."""
    for name, announced in headers:
        if len(name) == _CONTENT_LENGTH and name.lower() == b"content-length":
            if not (announced.isdigit() and len(announced) < _MANY_DIGITS and int(announced) <= most):
                raise too_large(most)
            break
    body: bytes | bytearray = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGoneError
        chunk = message.get("body", b"")
        if len(body) + len(chunk) > most:
            raise too_large(most)
        if not message.get("more_body", False):
            return bytes(chunk) if not body else bytes(body + chunk)
        if chunk:
            # Not a list of chunks: many small chunks would take many times the memory.
            body = bytearray(body) if isinstance(body, bytes) else body
            body += chunk
