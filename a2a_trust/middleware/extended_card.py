"""The authenticated extended card, under every name that a generation has for it, for known callers only.

==========  ============================================  ========================================
generation  HTTP                                          JSON-RPC
==========  ============================================  ========================================
0.2         GET ``…/agent/authenticatedExtendedCard``     –
0.3         GET ``…/v1/card``                             ``agent/getAuthenticatedExtendedCard``
1.0         GET ``…/extendedAgentCard``, also behind      ``GetExtendedAgentCard``
            ``/{tenant}``
==========  ============================================  ========================================

It stands between the guard and the application, and answers instead of the application, whose own idea of who may see
the card plays no part. What reaches it over HTTP is told by the end of the path, wherever the application is mounted.
A call of JSON-RPC is told by its body: read only after the guard has let the caller in, bounded, and in every encoding
that a server might understand; any other body is handed on as it came, and what follows it is not touched.
"""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from a2a_trust import strict_json
from a2a_trust.auth.principal import Anonymous, Principal
from a2a_trust.card import CardView, is_legacy
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.merged import merged_card
from a2a_trust.middleware.card import CardSigner
from a2a_trust.middleware.document import ASGIApp, Receive, Scope, Send, json_bytes

__all__ = ["ExtendedCard", "Provider"]

Provider: TypeAlias = Callable[[Principal, str], Awaitable[bytes | Mapping[str, Any] | None]]
"""Gives the card for a caller and a tenant ("" for none); None when this caller has none for that tenant."""

_log: Final = logging.getLogger("a2a_trust")

MAX_BODY: Final = 16_777_216
"""The largest body that a JSON-RPC interface takes, in bytes: no larger one can be searched for a hidden call."""

_REMEMBERED: Final = 256
_NAME: Final = "/extendedAgentCard"
_NAMES: Final = (_NAME, "/v1/card", "/agent/authenticatedExtendedCard")
_METHODS: Final = frozenset({"GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"})
#: What the names of the methods have in common. A body of plain ASCII without it and without an escape calls neither.
_COMMON: Final = b"xtended"


@dataclass(frozen=True, slots=True)
class _Error:
    """An error in the words of both bindings (A2A 5.4, 9.5, 11.6)."""

    status: int
    code: int
    name: str
    reason: str
    message: str
    is_of_http: bool = False
    """Whether the status is told to callers of JSON-RPC too, who get 200 with the errors of the protocol."""

    def in_json_rpc(self) -> bytes:
        return json_bytes({"code": self.code, "message": self.message, "data": [self._info()]})

    def in_http(self) -> bytes:
        error = {"code": self.status, "status": self.name, "message": self.message, "details": [self._info()]}
        return json_bytes({"error": error})

    def _info(self) -> dict[str, str]:
        return {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.reason,
            "domain": "a2a-protocol.org",
        }


_UNSUPPORTED: Final = _Error(
    400, -32004, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION", "This agent has no extended card."
)
_NOT_CONFIGURED: Final = _Error(
    400,
    -32007,
    "FAILED_PRECONDITION",
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    "There is no extended card for this caller.",
)
_FORBIDDEN: Final = _Error(
    403, -31403, "PERMISSION_DENIED", "UNAUTHORIZED", "The caller is not allowed to do this.", True
)
_UNAUTHENTICATED: Final = _Error(401, -31401, "UNAUTHENTICATED", "UNAUTHENTICATED", "Authentication is required.", True)
_INVALID: Final = _Error(
    400, -32600, "INVALID_ARGUMENT", "INVALID_REQUEST", "The request is not one that all readers read alike.", True
)
_TOO_LARGE: Final = _Error(413, -32600, "INVALID_ARGUMENT", "INVALID_REQUEST", "The request is too large.", True)


class _Call(NamedTuple):
    """A request for the extended card. ``id`` is that of JSON-RPC as it was written, None over HTTP."""

    legacy: bool
    tenant: str
    id: bytes | None


class ExtendedCard:
    """Answers requests for the extended card; passes everything else to ``app``.

    ``source`` is the card, or an async function of caller and tenant that gives it; None where there is none, and then
    every request for it is told so. ``may_read`` says whether a caller may have it. Clients of 0.2 and 0.3 get it
    merged (``merged_card``), each shape signed by ``signer``. ``principal`` and ``route_path`` read a scope.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        card: CardView,
        source: bytes | Mapping[str, Any] | Provider | None,
        principal: Callable[[Scope], Principal | Anonymous],
        route_path: Callable[[Scope], str],
        may_read: Callable[[Principal], bool] | None = None,
        signer: CardSigner | None = None,
        varies_on: Iterable[str] = ("Authorization",),
        clock: Callable[[], float] = time.time,
    ) -> None:
        if source is not None and not card.has_extended_card:
            raise ConfigurationError(
                "the card does not promise an extended card, so nobody would ask for it; say so in the card: "
                '"capabilities": {"extendedAgentCard": true}'
            )
        self._app, self._promised, self._may_read, self._signer = app, card.has_extended_card, may_read, signer
        self._principal, self._route_path, self._clock = principal, route_path, clock
        self._source: Provider | None = source if source is None or callable(source) else _fixed(source)
        paths = [(interface.binding, urlsplit(interface.url).path) for interface in card.interfaces]
        self._json_rpc = frozenset(path or "/" for binding, path in paths if binding == "JSONRPC")
        self._bases = frozenset(path.rstrip("/") for _, path in paths)
        self._headers = (
            (b"cache-control", b"private, no-store"),
            (b"vary", ", ".join(dict.fromkeys((*varies_on, "A2A-Version"))).encode()),
        )
        #: (digest of the card as its source gave it, whether merged, kid) -> signed card, and until when to use it
        self._signed: OrderedDict[tuple[bytes, bool, str], tuple[bytes, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = self._route_path(scope)
        paths = (path, scope["path"], scope.get("root_path", "") + scope["path"])
        if scope["method"] == "POST" and not self._json_rpc.isdisjoint(paths):
            await self._json_rpc_request(scope, receive, send)
            return
        name = next((name for name in _NAMES if path.rstrip("/").endswith(name)), None)
        if name is None or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        before = [each.rstrip("/").removesuffix(name) for each in paths]
        # What stands before the name is a tenant, unless it is the end of an interface's own path.
        has_tenant = name == _NAME and self._bases.isdisjoint(before)
        tenant = before[0].rpartition("/")[2] if has_tenant else ""
        call = _Call(legacy=name != _NAME, tenant=tenant, id=None)
        await self._respond(await self._result(call, scope), None, scope, send)

    async def _json_rpc_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        messages: list[MutableMapping[str, Any]] = []
        size, more = 0, True
        while more:
            message = await receive()
            messages.append(message)
            more = message["type"] == "http.request" and message.get("more_body", False)
            size += len(message.get("body", b""))
            if size > MAX_BODY:
                await self._respond(_TOO_LARGE, b"null", scope, send)
                return
        try:
            call = _call_in(b"".join([message.get("body", b"") for message in messages]))
        except MalformedError as error:
            _log.info("refused a JSON-RPC request: %s", error)
            await self._respond(_INVALID, b"null", scope, send)
            return
        if call is not None:
            await self._respond(await self._result(call, scope), call.id, scope, send)
            return

        async def again() -> MutableMapping[str, Any]:
            # The real one afterwards: an early http.disconnect would end a streamed answer.
            return messages.pop(0) if messages else await receive()

        await self._app(scope, again, send)

    async def _result(self, call: _Call, scope: Scope) -> bytes | _Error:
        """The card for this caller, or why there is none."""
        principal = self._principal(scope)
        if isinstance(principal, Anonymous):  # the guard refuses a card that promises one and lets strangers in
            return _UNSUPPORTED if not self._promised else _UNAUTHENTICATED
        if not self._promised:
            return _UNSUPPORTED
        if self._may_read is not None and not self._may_read(principal):
            return _FORBIDDEN
        card = None if self._source is None else await self._source(principal, call.tenant)
        if card is None:
            return _NOT_CONFIGURED
        return self._made(card, legacy=call.legacy)

    def _made(self, card: bytes | Mapping[str, Any], *, legacy: bool) -> bytes:
        """The card in the shape of the caller's generation, signed; remembered by all that it was made of."""
        body = card if isinstance(card, bytes) else json_bytes(dict(card))
        now = self._clock()
        kid = "" if self._signer is None else self._signer.kid(now)
        made_of = (sha256(body).digest(), legacy, kid)
        signed, good_until = self._signed.get(made_of, (b"", -inf))
        if now < good_until:
            self._signed.move_to_end(made_of)
            return signed
        parsed = strict_json.parse(body, what="extended card")
        merged = merged_card(parsed) if legacy and not is_legacy(parsed) else None
        if self._signer is None:
            signed, good_until = body if merged is None else json_bytes(merged), inf
        else:
            signed, expires = self._signer.sign(parsed if merged is None else merged, now)
            good_until = expires if expires == inf else (now + expires) / 2
        self._signed[made_of] = signed, good_until
        while len(self._signed) > _REMEMBERED:
            self._signed.popitem(last=False)
        return signed

    async def _respond(self, result: bytes | _Error, call_id: bytes | None, scope: Scope, send: Send) -> None:
        """Send a card or an error, in the words of JSON-RPC when ``call_id`` is given."""
        status = 200
        if isinstance(result, _Error):
            # An error of the protocol is an answer like others to JSON-RPC; one of HTTP is not.
            status = result.status if call_id is None or result.is_of_http else 200
            member, body = "error", result.in_json_rpc() if call_id is not None else result.in_http()
        else:
            member, body = "result", result
        if call_id is not None:
            body = b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (call_id, member.encode(), body)
        headers = [*self._headers, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _fixed(card: bytes | Mapping[str, Any]) -> Provider:
    """One card for all callers, and for no tenant."""
    body = card if isinstance(card, bytes) else json_bytes(dict(card))
    if type(strict_json.parse(body, what="extended card")) is not dict:
        raise ConfigurationError("extended card: a JSON object is needed")

    async def provide(principal: Principal, tenant: str) -> bytes | None:  # noqa: ARG001
        return None if tenant else body

    return provide


class _Members(tuple[tuple[str, Any], ...]):
    """The members of a JSON object, those that are there twice included."""

    __slots__ = ()

    def all(self, name: str) -> list[Any]:
        return [value for each, value in self if each == name]

    def only(self, name: str) -> Any:
        values = self.all(name)
        if len(values) > 1:
            raise MalformedError(f"{name} is there twice in a call of the extended card")
        return values[0] if values else None


def _call_in(body: bytes) -> _Call | None:
    """The call of the extended card in a JSON-RPC body; None for every other body.

    MalformedError for what one reader would take for such a call and another would not.
    """
    if _COMMON not in body and b"\\u" not in body and b"\0" not in body:
        return None
    try:
        request = json.loads(body, object_pairs_hook=_Members)  # UTF-16 and UTF-32 too, as servers on it read them
    except ValueError:
        return None  # what is no JSON to it calls nothing
    except RecursionError:
        raise MalformedError("a body that is nested too deep to tell what it calls") from None
    calls = request if type(request) is list else [request]
    if not any(type(call) is _Members and any(_names_it(value) for value in call.all("method")) for call in calls):
        return None
    if type(request) is list:
        raise MalformedError("a batch with a call of the extended card")
    method, params, call_id = request.only("method"), request.only("params"), request.only("id")
    tenant = params.only("tenant") if type(params) is _Members else None
    if type(tenant) not in (str, type(None)):
        raise MalformedError("the tenant of a call of the extended card is not a string")
    if type(call_id) not in (str, int, float, type(None)):
        raise MalformedError("the id of a call of the extended card is neither a string nor a number")
    return _Call(legacy=method != "GetExtendedAgentCard", tenant=tenant or "", id=json_bytes(call_id))


def _names_it(method: object) -> bool:
    return type(method) is str and method in _METHODS
