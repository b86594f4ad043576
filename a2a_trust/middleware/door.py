"""The one ASGI callable in front of an application: documents, guard, rules, extended card, application.

Every http and websocket request is checked, except GET and HEAD of exactly the paths of documents and of public paths,
and preflights that an option admits. ``decision`` uses the raw scope, and the path as the application's router sees it.
It ignores the Host header and forwarded headers.

- A request that the guard rejects is answered before its body is read; only during a long wait for a verifier,
  ``disconnect`` reads a part of it ahead.
- A request of an interface is read before the application gets it, and is one ``Call`` in the scope (``call_of``).
- Every other request belongs to the application: it streams, and its body is never read.

Answers of the application stream unchanged, except for headers of caches.

``readiness`` says whether an agent can serve callers now, from what is known: no answer waits for a store, an issuer or
a signer. An agent is ready when its card can be served, and the credentials of at least one alternative of the card can
be verified. So an outage at one issuer does not take an agent with other callers out of service. A store or a key set
that was never used counts as available. A lost one is tried again in the background, so it is found without requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import time
from types import new_class
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import anyio
from anyio import to_thread
from starlette.applications import Starlette

from a2a_trust.auth.credentials import CertificateSource
from a2a_trust.auth.guard import Guard, Rejected
from a2a_trust.auth.guard_config import CredentialAt
from a2a_trust.auth.principal import Verifier
from a2a_trust.card.given import GivenCard, read_given
from a2a_trust.card.operations import Operation
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.card.view import CardView, read_card
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.middleware.audit import Observer, Trail
from a2a_trust.middleware.caller import Caller, HeldAnswer, Running, this_task
from a2a_trust.middleware.calls import AT_ONCE, CALL, Call, CallRejectedError, call_of, replay, without_body
from a2a_trust.middleware.card import CardReaders, CardSource
from a2a_trust.middleware.decision import Access, BodyRule, CallRules, Seen, check_announced, too_large
from a2a_trust.middleware.disconnect import ClientGoneError, Message, ReadAhead, watched
from a2a_trust.middleware.documents import ASGIApp, CachingRules, Receive, Scope, Send, close_websocket, respond
from a2a_trust.middleware.lifespan import closing
from a2a_trust.middleware.options import GuardRules, RequestRules, check_app
from a2a_trust.middleware.rejection import Rejection, send_rejection
from a2a_trust.middleware.routing import is_read
from a2a_trust.middleware.streams import WatchedAnswer
from a2a_trust.middleware.webhooks import registers

if TYPE_CHECKING:
    from a2a_trust.auth.dpop import DPoP

_READERS: Final = 4
"""How many larger bodies are read at the same time."""

AppT = TypeVar("AppT", bound=ASGIApp)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether every agent of an application can serve callers now.

    ``problems``: why a part is unavailable, also if the agent is ready all the same, by "card" or "scheme 'NAME'"; with
    several agents after "agent '/PREFIX': ". The texts are for operators.
    """

    ready: bool
    problems: Mapping[str, str]


NOT_STARTED: Final = Readiness(ready=False, problems={"card": "it could not be made yet"})


class Door:
    """Admits to ``app`` only requests that the card and the rules of one agent allow.

    ``documents`` answer for their exact paths, without a guard; ``for_callers`` do so behind it. ``calls`` may be None.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        *,
        calls: CallRules | None = None,
        documents: Mapping[str, ASGIApp] | None = None,
        for_callers: Mapping[str, ASGIApp] | None = None,
        ends_streams: bool = False,
        clock: Callable[[], float] = time,
    ) -> None:
        self._app, self._calls = app, calls
        self._ends_streams = ends_streams
        self.access: Final[Access] = access
        self._documents, self._for_callers = documents or {}, for_callers or {}
        self._clock = clock
        guard = access.guard
        self._caching = CachingRules(guard.place(scheme.name) for scheme in guard.schemes)
        self._readers: anyio.CapacityLimiter | None = None  # made in the loop that serves
        self.on_start: Callable[[], None] = lambda: None
        self.readiness: Callable[[], Readiness]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = this_task()
        if scope["type"] == "lifespan":
            self.on_start()
            try:
                await self._app(scope, receive, closing(send, self.access.guard.aclose))
            finally:
                self.access.trail.flush()
            return
        seen = self.access.see(scope)
        if seen.path in self._documents and is_read(seen.scope):
            await self._documents[seen.path](scope, receive, send)
            return
        if seen.is_public:
            await self._serve_public(seen, receive, send)
            return
        now = self._clock()
        caller: Caller | Rejected | None = self.access.known_caller(seen, now)
        ahead = answer = None
        try:
            if caller is None:
                ahead = ReadAhead(receive)
                decision = self.access.find_caller(seen, now)
                caller = await (ahead.during(decision) if scope["type"] == "http" else decision)
                receive = ahead.receive
            if isinstance(caller, Rejected):
                await send_rejection(self.access.reject(caller, seen, now), seen.scope, receive, send)
                return
            watched_answer = None
            if self._ends_streams and (caller.identities or caller.for_skills):
                watched_answer = WatchedAnswer(self.access, seen, caller, send, self._clock)
                send = watched_answer.send
            nonce = self.access.admit(caller, seen)
            answer = HeldAnswer(receive, send, seen.scope["auth"], self._caching, nonce)
            with Running(caller, task):
                serving = self._serve(caller, seen, answer.receive, answer.send)
                await (serving if watched_answer is None else watched_answer.during(serving))
            if not answer.has_begun:
                await self._end(answer, None, seen, receive, send)
        except ClientGoneError:
            return
        except Exception as error:
            if answer is None or not await self._end(answer, error, seen, receive, send):
                raise
        finally:
            if ahead is not None:
                ahead.close()

    async def _serve_public(self, seen: Seen, receive: Receive, send: Send) -> None:
        self.access.admit_public(seen)
        if seen.method == "OPTIONS":
            receive = replay(b"", partial(_after_body, receive))
        with Running(None, None):
            await self._serve(None, seen, receive, send)

    def card_for(self, method: str, path: str) -> tuple[str, CardView] | None:
        """The card that the guard enforces for such a request, after the prefix of its agent; None for public paths."""
        seen = self.access.see({"type": "http", "method": method, "path": path, "headers": []})
        return None if seen.is_public or path in self._documents else ("", self.access.card)

    def hides(self, method: str | None, path: str) -> bool:
        """Whether the application never gets such a request. A websocket has no method."""
        kind = "websocket" if method is None else "http"
        seen = self.access.see({"type": kind, "method": method, "path": path, "headers": []})
        if self._calls is None or seen.is_public or path in self._documents or path in self._for_callers:
            return False
        try:
            self._calls.body_rule(seen)
        except CallRejectedError:
            return True
        return False

    async def _end(self, answer: HeldAnswer, error: Exception | None, seen: Seen, receive: Receive, send: Send) -> bool:
        """End the answer of an application that has returned or failed: True for the rejection by a handler."""
        rejected = answer.rejection(error)
        if rejected is None:
            await answer.release()
            return False
        call = call_of(seen.scope)
        rejection = self.access.reject(rejected, seen, self._clock(), call and call.call_id)
        # The application has received websocket.connect already.
        await send_rejection(rejection, seen.scope, replay(b"", receive), send)
        return True

    def _serve(self, caller: Caller | None, seen: Seen, receive: Receive, send: Send) -> Awaitable[None]:
        """A document, a call, a request of the application, or the rejection of a request by the rules."""
        scope, rule, app = seen.scope, None, self._app
        if seen.path in self._for_callers and is_read(seen.scope):
            app = self._for_callers[seen.path]
        elif self._calls is not None:
            try:
                rule = self._calls.body_rule(seen)
            except CallRejectedError as rejected:
                return _reject(self._calls.reject(rejected, None, caller, seen), scope, receive, send)
            if rule is not None and not (seen.is_empty and rule.target is None):
                return self._serve_call(self._calls, rule, caller, seen, receive, send)
            if rule is not None:
                receive = without_body(receive)
        self.access.note_admitted(caller, seen)
        return app(scope, receive, send)

    async def _serve_call(
        self, calls: CallRules, rule: BodyRule, caller: Caller | None, seen: Seen, receive: Receive, send: Send
    ) -> None:
        """Read the call; pass it on, answer with the extended card, or reject it."""
        scope = seen.scope
        try:
            call, receive = await self._read(calls, rule, caller, seen, receive)
            self.access.note_admitted(caller, seen, call)
            if call is not None and call.operation is Operation.GET_EXTENDED_CARD:
                await calls.extended.answer(call, caller, scope, receive, send)
                return
        except CallRejectedError as rejected:
            await _reject(calls.reject(rejected, rule, caller, seen), scope, receive, send)
            return
        except ClientGoneError:
            return
        await self._app(scope, receive, send)

    async def _read(
        self, calls: CallRules, rule: BodyRule, caller: Caller | None, seen: Seen, receive: Receive
    ) -> tuple[Call | None, Receive]:
        """Read the call, and write it into the scope. The second result gives the application the body once more. No
        frame keeps the body: the application may drop it and stream an answer for minutes."""
        check_announced(rule.most, seen.length)
        scope, is_empty = seen.scope, seen.is_empty and not rule.most
        body = b"" if is_empty else await _body_of(receive, rule.most)
        if rule.target is None:
            return None, replay(body, receive)
        if len(body) <= AT_ONCE:
            call = calls.read(rule.target, body, seen)
        else:
            call, receive = await self._read_in_thread(partial(calls.read, rule.target, body, seen), receive)
        asked = calls.check_tenants(call, caller)
        if asked is not None:
            _, receive = await watched(asked, receive)
        scope[CALL] = call
        calls.check_skill(call, body, scope)
        if registers(call):
            _, receive = await watched(calls.webhooks.check(call, caller), receive)
        return call, without_body(receive) if is_empty else replay(body, receive)

    async def _read_in_thread(self, read: Callable[[], Call], receive: Receive) -> tuple[Call, Receive]:
        """The call, and the ``receive`` for later messages. A disconnect of the client ends the wait."""
        if self._readers is None:
            self._readers = anyio.CapacityLimiter(_READERS)
        return await watched(to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._readers), receive)


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
        readers: CardReaders = CardReaders.EVERYBODY,
        rules: GuardRules = GuardRules(),  # noqa: B008  frozen
        client_certificates: CertificateSource | None = None,
        dpop: DPoP | None = None,
        resource_metadata: str | None = None,
        observer: Observer | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        """``url``, ``client_certificates``, ``dpop`` and ``observer`` are as for ``protect``. ``readers`` may read the
        card at its well-known paths. ``resource_metadata`` is the URL of RFC 9728 that challenges name. Bodies are not
        read."""
        check_app(app)
        if isinstance(rules, RequestRules):
            raise ConfigurationError(
                "rules: RequestRules is enforced by protect(app, …) only; write GuardRules(…) here"
            )
        if not isinstance(rules, GuardRules):
            raise ConfigurationError("rules: write GuardRules(…), as in GuardRules(public_paths=['/healthz'])")
        if not isinstance(readers, CardReaders):
            raise ConfigurationError("readers: write CardReaders.EVERYBODY or CardReaders.CALLERS")
        if readers is CardReaders.CALLERS and not {*CARD_PATHS}.isdisjoint(rules.public_paths):
            raise ConfigurationError(
                "public_paths: it names the path of the card, which is for callers only; leave it out, or leave out "
                "readers=CardReaders.CALLERS"
            )
        view = card if isinstance(card, CardView) else read_card(read_given(card))
        access = Access(
            view,
            verifiers,
            rules=rules,
            url=url,
            certificates=client_certificates,
            dpop=dpop,
            card_paths=CARD_PATHS if readers is CardReaders.EVERYBODY else (),
            resource_metadata=resource_metadata,
            trail=Trail(observer),
        )
        super().__init__(app, access, clock=clock)


async def _reject(rejection: Rejection, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await close_websocket(receive, send)
    else:
        await send_rejection(rejection, scope, receive, send)


async def _after_body(receive: Receive) -> Message:
    """The first message that is not of the body, such as http.disconnect."""
    while (message := await receive())["type"] == "http.request":
        pass
    return message


async def _body_of(receive: Receive, most: int) -> bytes:
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


class Installation(Generic[AppT]):
    """The place for a guard in front of an application. ConfigurationError: it has one, or is not an application.

    The class of a Starlette application is exchanged for a subclass whose call is the guard's: the object stays the
    same, no other object serves it without the guard, and the guard is outside of all middleware, also of middleware
    that is added later. Any other application gets a wrapper, a ``ProtectedApplication``.
    """

    def __init__(self, app: AppT) -> None:
        check_app(app)
        if is_protected(app):
            raise ConfigurationError(
                "app: it is protected already; for several agents in one application write protect_agents(app, …) once"
            )
        self._app: Any = app
        self._class: type[Any] = type(app)

    @property
    def unguarded(self) -> ASGIApp:
        """The application without the guard, for the guard to pass requests on to."""
        return self._call_of_class if isinstance(self._app, Starlette) else self._app

    def _call_of_class(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # Found for each request: tools replace it.
        answered: Awaitable[None] = self._class.__call__(self._app, scope, receive, send)
        return answered

    def finish(self, guard: Any) -> AppT:
        is_swapped = isinstance(self._app, Starlette)
        kind: type[Any] = self._class if is_swapped else ProtectedApplication

        async def guarded_call(_: Any, scope: Scope, receive: Receive, send: Send) -> None:
            await guard(scope, receive, send)

        members = {"__call__": guarded_call, "__module__": kind.__module__, **({} if is_swapped else {"__slots__": ()})}
        members["_a2a_trust_guard"] = guard
        guarded = new_class(kind.__name__, (kind, _Guarded), exec_body=lambda space: space.update(members))
        if not is_swapped:
            return cast("AppT", guarded(self._app))
        self._app.__class__ = guarded
        return cast("AppT", self._app)


def is_protected(app: object) -> bool:
    return isinstance(app, _Guarded)


class _Guarded:
    __slots__ = ()


class ProtectedApplication:
    """An application that is not of Starlette, behind its guard. Its public attributes are the application's."""

    __slots__ = ("__weakref__", "_app")

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"the application is protected, and has no public attribute {name!r}")
        return getattr(self._app, name)


def readiness(app: Any) -> Readiness:
    """The readiness of an application that ``protect`` or ``protect_agents`` returned. Call it in its event loop.

    ConfigurationError: it is not such an application.
    """
    this_task()
    return cast("Readiness", guard_of(app, "readiness").readiness())


def guard_of(app: Any, what: str) -> Any:
    """The guard of ``app``, a ``Door`` or ``Agents``, for the function ``what``; ConfigurationError without one."""
    guard = getattr(type(app), "_a2a_trust_guard", None)
    if guard is None:
        raise ConfigurationError(
            f"{what}: {type(app).__name__} is not protected; pass what protect(…) or protect_agents(…) returned"
        )
    return guard


def readiness_of(guard: Guard, card: CardSource, clock: Callable[[], float]) -> Readiness:
    """The readiness of one agent, by its guard and the source of its card."""
    lost, can_admit = guard.outages()
    problems = {f"scheme {name!a}": why for name, why in lost.items()}
    try:
        card.document(clock())
    except TrustError as error:
        problems["card"] = str(error)
    return Readiness(can_admit and "card" not in problems, problems)


def endpoint_at(path: str | None, known: Callable[[], Readiness]) -> dict[str, ASGIApp]:
    """By its path, the ASGI application that says to everybody whether an agent is ready, and nothing else."""

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
        status, body = (200, b"ready") if known().ready else (503, b"not ready")
        headers = [(b"cache-control", b"no-store"), (b"content-type", b"text/plain")]
        await respond(scope, send, status, [*headers, (b"content-length", b"%d" % len(body))], body)

    return {} if path is None else {path: endpoint}
