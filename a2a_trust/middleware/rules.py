"""The rules for requests that the guard has admitted. They define valid requests; all others are rejected.

- A request of an interface is read before the application gets it, and becomes one ``Call`` in the scope (``call_of``).
  Every rule uses that value, and nothing is read twice.
- A request that only looks like one of an interface gets 404.
- Every other request belongs to the application: it streams, and its body is never read. With rules, its path must be
  named, because the guard does not know what the application does there.

A request may name a tenant in its path, its query and its body. All must be the same, and the caller must be allowed to
use it. Without ``may_use_tenant``, a request must not name a tenant. Source: A2A 1.0.1 3.2, 9.1, 11.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio
from anyio import to_thread

from a2a_trust.card.operations import Binding, Operation, ends_like_operation
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import CardView
from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware import audit
from a2a_trust.middleware.caller import is_public, principal_of
from a2a_trust.middleware.calls import INVALID, Call, CallRefusedError, check_media_type, read_call
from a2a_trust.middleware.disconnect import ClientGoneError, Message, ReadAhead
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send, close_websocket
from a2a_trust.middleware.extended_card import ExtendedCardEndpoint, respond
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.refusal import FORBIDDEN, Error
from a2a_trust.middleware.routing import Interfaces, Other, Target, Undeclared, quoted, route_path

TOO_LARGE: Final = Error(413, -32600, "INVALID_ARGUMENT", "INVALID_REQUEST", "The request is too large.", True)
NOT_FOUND: Final = Error(404, -32601, "NOT_FOUND", "METHOD_NOT_FOUND", "There is nothing here.", True)

_CALL: Final = "a2a_trust.call"
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

_SHORT: Final = 1_048_576
"""Bodies up to this size, in bytes, are read at once, in about a millisecond; larger ones in a thread. A thread costs
0.3 ms, five times the cost of reading 68 kB, and msgspec holds the interpreter's lock while it reads."""

_READERS: Final = 4
"""How many larger bodies are read at the same time."""


def call_of(scope: Mapping[str, Any]) -> Call | None:
    """The A2A call of the request, for handlers behind ``protect``; None for a request of no interface."""
    call = scope.get(_CALL)
    return call if isinstance(call, Call) else None


class RulesMiddleware:
    """Enforces the rules in front of ``app``, behind the guard; ``extended`` answers for the extended card."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        card: CardView,
        interfaces: Interfaces,
        extended: ExtendedCardEndpoint,
        rules: RequestRules,
        others_must_be_named: bool = False,
    ) -> None:
        named = next((interface for interface in card.interfaces if interface.tenant), None)
        if named is not None and rules.may_use_tenant is None:
            raise ConfigurationError(
                f"{named.pointer}: this interface is for the tenant {named.tenant[:64]!a}, and no rule says which "
                "callers may use it; pass rules=RequestRules(may_use_tenant=lambda caller, tenant: …)"
            )
        self._app, self._interfaces, self._extended = app, interfaces, extended
        self._may_use_tenant, self._max_body = rules.may_use_tenant, rules.max_body
        self._other = OtherPaths("other_paths", tuple(rules.other_paths), interfaces.paths)
        self._must_be_named = others_must_be_named or rules.may_use_tenant is not None or card.has_extended_card
        self._readers: anyio.CapacityLimiter | None = None  # made in the loop that serves

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope.pop(_CALL, None)
        method = scope["method"] if scope["type"] == "http" else "WEBSOCKET"
        meaning = self._interfaces.meaning(scope, method)
        try:
            if CONTROL.search(scope["path"]):
                # Starlette's patterns end in "$", which also matches before a last newline.
                raise CallRefusedError(INVALID, "the path has a control character")
            if isinstance(meaning, Target):
                call, receive = await self._read_call(meaning, scope, receive)
                if call.operation is Operation.GET_EXTENDED_CARD:
                    await self._answer(call, scope, receive, send)
                    return
            elif not is_public(scope):
                self._check_other(meaning, scope)
            if isinstance(meaning, Other) and meaning.is_json_rpc:  # an unread body must not come
                receive = _replayed(await _read(receive, 0, scope), receive)
        except CallRefusedError as refused:
            await self._refuse(refused, meaning, scope, receive, send)
        except ClientGoneError:
            return
        else:
            await self._app(scope, receive, send)

    async def _read_call(self, target: Target, scope: Scope, receive: Receive) -> tuple[Call, Receive]:
        """The call, which is in the scope, too, and the ``receive`` for the application. No frame keeps the body: the
        application may drop it and stream an answer for minutes."""
        body = await _read(receive, self._max_body if target.has_body else 0, scope)
        if body:
            check_media_type(scope["headers"])
        query = scope.get("query_string", b"")
        if len(body) <= _SHORT:
            call = read_call(target, body, query)
        else:
            call, receive = await self._read_in_thread(target, body, query, receive)
        self._check_tenants(call, scope)
        scope[_CALL] = call
        return call, _replayed(body, receive)

    async def _answer(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        await self._extended.answer(
            principal_of(scope),
            call.tenant,
            scope,
            receive,
            send,
            legacy=call.generation is not Generation.V1_0,
            call_id=call.call_id,
        )

    async def _read_in_thread(
        self, target: Target, body: bytes, query: bytes, receive: Receive
    ) -> tuple[Call, Receive]:
        """The call, and the ``receive`` for later messages. A disconnect of the client ends the wait."""
        if self._readers is None:
            self._readers = anyio.CapacityLimiter(_READERS)
        ahead = ReadAhead(receive)
        try:
            call = await ahead.during(
                to_thread.run_sync(read_call, target, body, query, abandon_on_cancel=True, limiter=self._readers)
            )
        finally:
            ahead.close()
        return call, ahead.receive

    def _check_tenants(self, call: Call, scope: Scope) -> None:
        """Return when the caller may use the tenant that the call names, or it names none."""
        if not call.tenants:
            return
        call_id = call.call_id or b"null"
        if len(call.tenants) > 1:
            raise CallRefusedError(INVALID, "path, query and body name different tenants", call_id)
        if self._may_use_tenant is not None and self._may_use_tenant(principal_of(scope), call.tenant) is True:
            return
        why = (
            "may_use_tenant does not allow it for this caller"
            if self._may_use_tenant
            else "no tenant may be named without rules=RequestRules(may_use_tenant=…)"
        )
        raise CallRefusedError(FORBIDDEN, f"the tenant {call.tenant[:64]!a}: {why}", call_id)

    def _check_other(self, meaning: Other | Undeclared, scope: Scope) -> None:
        """Return when the application may have a request of no interface."""
        path = route_path(scope) or "/"
        if isinstance(meaning, Undeclared):
            if meaning.may_be_named and self._other.names_operation(path):
                return
            raise CallRefusedError(
                NOT_FOUND, f"{meaning.why}; {_advice(path)}" if meaning.may_be_named else meaning.why
            )
        if self._must_be_named and not self._other.has(path):
            raise CallRefusedError(NOT_FOUND, f"{quoted(path)} belongs to no interface of the card; {_advice(path)}")

    async def _refuse(
        self,
        refused: CallRefusedError,
        meaning: Target | Other | Undeclared,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        reason = _REASONS.get(refused.error.status, audit.Reason.AMBIGUOUS_REQUEST)
        audit.request_refused(scope, reason, refused.why, None if is_public(scope) else principal_of(scope))
        if scope["type"] == "websocket":
            await close_websocket(receive, send)
            return
        is_json_rpc = isinstance(meaning, Target) and meaning.binding is Binding.JSONRPC
        await respond(refused.error, refused.call_id if is_json_rpc else None, scope, send)


_REASONS: Final = {
    403: audit.Reason.TENANT,
    404: audit.Reason.UNDECLARED_PATH,
    413: audit.Reason.TOO_LARGE,
}


def _advice(path: str) -> str:
    return f"if it is the application's own, write rules=RequestRules(other_paths=[{quoted(path)}])"


class OtherPaths:
    """The paths that an option names, in addition to the paths of the interfaces."""

    def __init__(self, option: str, entries: Sequence[str], interfaces: Sequence[str] = ()) -> None:
        for entry in entries:
            _check_entry(option, entry, interfaces)
        exact = [entry for entry in entries if entry == "/" or not entry.endswith("/")]
        self._subtrees = tuple(entry for entry in entries if entry not in exact)
        self._exact = frozenset(exact)
        templates = [entry for entry in exact if "{" in entry]
        self._templates = _matching(templates)
        # A template that is an operation only through its placeholders was meant for pages.
        self._operations = _matching([each for each in templates if ends_like_operation(_PLACEHOLDER.sub("x", each))])

    def names(self, path: str) -> bool:
        """Whether an entry is the path."""
        return path in self._exact

    def names_operation(self, path: str) -> bool:
        """Whether an entry is the path, or a template of it that itself ends like an operation."""
        return path in self._exact or self._operations.fullmatch(path) is not None

    def has(self, path: str) -> bool:
        """Whether an entry is the path, a template of it, or a folder above it."""
        if path in self._exact or self._templates.fullmatch(path):
            return True
        # A path that a lenient router resolves to another path is below no entry.
        return path.startswith(self._subtrees) and not _RESOLVED.search(path)


_PLACEHOLDER: Final = re.compile(r"\{\w+\}")


def _matching(templates: list[str]) -> re.Pattern[str]:
    """A pattern for the paths of these templates."""
    patterns = ["[^/]+".join(map(re.escape, _PLACEHOLDER.split(template))) for template in templates]
    return re.compile("|".join(patterns) or r"(?!)")


_RESOLVED: Final = re.compile(r"//|\\|/\.{1,2}(?:/|$)|%")
_ENTRY: Final = re.compile(r"/|(?:/(?:\{\w+\}|[^/{}?#%*\\\x00-\x20\x7f])+)+/?")


def _check_entry(option: str, entry: Any, interfaces: Sequence[str]) -> None:
    if not isinstance(entry, str) or not _ENTRY.fullmatch(entry) or _RESOLVED.search(entry):
        raise ConfigurationError(
            f'{option}: {entry!a:.128} is not a path; write an exact path ("/docs"), a template ("/tasks/{{id}}"), or '
            'a prefix that ends in a slash ("/docs/")'
        )
    if entry == "/" or not entry.endswith("/"):
        return
    if "{" in entry:
        raise ConfigurationError(f"{option}: {entry!a} is a template and cannot stand for all paths below it")
    for path in interfaces:
        if f"{path}/".startswith(entry):
            raise ConfigurationError(
                f"{option}: {entry!a} covers the interface at {path!a}, whose requests must be checked; name the other "
                "paths one by one"
            )


async def _read(receive: Receive, most: int, scope: Scope) -> bytes:
    """The whole body, of ``most`` bytes at most; CallRefusedError for a longer one."""
    announced = b"0"
    for name, value in scope["headers"]:
        if len(name) == _CONTENT_LENGTH and name.lower() == b"content-length":
            announced = value
            break
    body: bytes | bytearray = b""
    if not (announced.isdigit() and len(announced) < _MANY_DIGITS and int(announced) <= most):
        raise _too_large(most)
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGoneError
        chunk = message.get("body", b"")
        if len(body) + len(chunk) > most:
            raise _too_large(most)
        if not message.get("more_body", False):
            return bytes(chunk) if not body else bytes(body + chunk)
        if chunk:
            # Not a list of chunks: many small chunks would take many times the memory.
            body = bytearray(body) if isinstance(body, bytes) else body
            body += chunk


_CONTENT_LENGTH: Final = len("content-length")
_MANY_DIGITS: Final = 20


def _too_large(most: int) -> CallRefusedError:
    if most:
        return CallRefusedError(
            TOO_LARGE, f"the body is longer than {most} bytes; to accept it, write rules=RequestRules(max_body=...)"
        )
    return CallRefusedError(INVALID, "the request has a body, and its method and path must not have one")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body in one message, then the real messages: an early http.disconnect would end a streamed answer."""
    waiting: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def again() -> Message:
        nonlocal waiting
        if waiting is None:
            return await receive()
        message, waiting = waiting, None
        return message

    return again
