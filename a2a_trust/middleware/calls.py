"""What a request asks for beyond its path: which tenant, and whether it is a call of the extended card.

It stands between the guard and the application: bodies of POST requests are read after the guard has let the caller in,
bounded, and in every encoding that a server might understand, whatever their path: an application may have routes that
its card does not name. A body is handed on as it came; what follows it is not touched.

A request may name a tenant in its path, its query and its body. All of them must say the same, and the caller must be
allowed to use it; without a rule for that (``may_use_tenant``) no tenant may be named at all. Source: A2A 1.0.1 3.2,
9.1, 11.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from starlette.concurrency import run_in_threadpool

from a2a_trust.auth.principal import Anonymous, Principal
from a2a_trust.card import EXTENDED_CARD_METHODS, CardView
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.middleware import audit
from a2a_trust.middleware.document import ASGIApp, Receive, Scope, Send
from a2a_trust.middleware.extended_card import INVALID, TOO_LARGE, ExtendedCard, check_rule, respond
from a2a_trust.middleware.refusal import FORBIDDEN, Error

__all__ = ["MAX_BODY", "Calls", "TenantRule"]

TenantRule: TypeAlias = Callable[[Principal | Anonymous, str], bool]
"""Whether a caller may use a tenant, whose name is not empty: True, or it may not."""

MAX_BODY: Final = 16_777_216
"""The largest body of a POST request, in bytes: no larger one can be searched for a hidden call."""

#: Where the extended card is: 1.0, 0.3, 0.2.
_NAME: Final = "/extendedAgentCard"
_NAMES: Final = (_NAME, "/v1/card", "/agent/authenticatedExtendedCard")
#: What the paths of HTTP+JSON in 1.0 end in (A2A 1.0.1 5.3).
_OPERATION: Final = re.compile(
    r"(?:(/message:(?:send|stream)|/extendedAgentCard)|/tasks(?:/[^/]+(?:/pushNotificationConfigs(?:/[^/]+)?)?)?)/?"
)


_MOST_SEGMENTS: Final = 4

_SHORT: Final = 65_536
"""Bodies up to here, in bytes, are read at once; larger ones not on the loop that serves everybody."""


class _Members(tuple[tuple[str, Any], ...]):
    """The members of a JSON object, those that are there twice included."""

    __slots__ = ()

    def all(self, name: str) -> list[Any]:
        return [value for each, value in self if each == name]

    def only(self, name: str) -> Any:
        values = self.all(name)
        if len(values) > 1:
            raise MalformedError(f"{name} is there twice")
        return values[0] if values else None


class _Said(NamedTuple):
    """What a body says."""

    tenants: tuple[str, ...] = ()
    extended: str = ""
    """The method, when it is one of the extended card's."""
    id: bytes = b"null"
    """The id of a JSON-RPC request, as JSON."""


class Calls:
    """Refuses tenants that the caller may not use, has ``extended`` answer for the extended card, passes on the rest.

    ``principal`` and ``route_path`` read a scope.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        card: CardView,
        extended: ExtendedCard,
        principal: Callable[[Scope], Principal | Anonymous],
        route_path: Callable[[Scope], str],
        may_use_tenant: TenantRule | None = None,
    ) -> None:
        named = next((interface for interface in card.interfaces if interface.tenant), None)
        if named is not None and may_use_tenant is None:
            raise ConfigurationError(
                f"{named.pointer}: this interface is for the tenant {named.tenant[:64]!a}, and nothing says who may "
                "use it; pass may_use_tenant=lambda caller, tenant: …"
            )
        if may_use_tenant is not None:
            check_rule("may_use_tenant", may_use_tenant)
        self._app, self._extended, self._may_use_tenant = app, extended, may_use_tenant
        self._principal, self._route_path = principal, route_path
        paths = [(interface, unquote(urlsplit(interface.url).path).rstrip("/")) for interface in card.interfaces]
        self._json_rpc = frozenset(
            ending for interface, path in paths if interface.binding == "JSONRPC" for ending in ("", *_endings(path))
        )
        self._http_json = frozenset(
            ending for interface, path in paths if interface.binding == "HTTP+JSON" for ending in _endings(path)
        )
        # 0.3 has its operations below /v1 (0.3, 3.2.3), and knows no tenants.
        legacy = [path for interface, path in paths if interface.binding == "HTTP+JSON" and interface.is_legacy]
        self._of_0_3 = frozenset(f"{ending}/v1" for path in legacy for ending in _endings(path))
        self._is_all_legacy = all(interface.is_legacy for interface in card.interfaces)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, method = self._route_path(scope), scope["method"]
        if method == "OPTIONS":  # asks what could be asked; a browser's is judged by nobody
            await self._app(scope, receive, send)
            return
        if "\n" in path:
            # Starlette's patterns end in "$", which stands before a last newline too: another name for every route.
            self._tell(scope, audit.Reason.AMBIGUOUS_REQUEST, "the path ends in, or holds, a newline")
            await respond(INVALID, None, scope, send)
            return
        paths = {path, scope["path"], scope.get("root_path", "") + scope["path"]}
        if method == "POST":
            is_json_rpc = any(each.rstrip("/") in self._json_rpc for each in paths)
            tenants = None if is_json_rpc else self._tenants_in(paths, method)
            if tenants is None:
                await self._with_body(_said_in_json_rpc, set(), scope, receive, send)
            else:
                await self._with_body(_said_in_http_json, tenants, scope, receive, send)
            return
        name = next((name for name in _NAMES if path.rstrip("/").endswith(name)), "")
        tenants = self._tenants_in(paths, method)
        if tenants is None and not name:
            await self._app(scope, receive, send)
        else:
            tenants = {*(tenants or ()), *_tenants_in_query(scope)}
            error = self._refusal(tenants, scope)
            if error is not None:
                await respond(error, None, scope, send)
            elif name and method in ("GET", "HEAD"):
                caller = self._principal(scope)
                await self._extended.answer(caller, "".join(tenants), scope, send, legacy=name != _NAME)
            else:
                await self._app(scope, receive, send)

    def _tenants_in(self, paths: set[str], method: str) -> set[str] | None:
        """The tenants that a path of HTTP+JSON may mean, in the place of the specification, behind the interface's own
        path, and in that of the a2a-sdk's server, before it; None when it is no such path.

        A path that can be read in two ways means both: ``/tasks/message:send`` is no task, but sends for a tenant.
        """
        endings = {ending for path in paths for ending in _last_segments(path)}
        operations = [operation for ending in endings if (operation := _OPERATION.fullmatch(ending))]
        tenants: set[str] = set()
        is_call = False
        for operation in operations:
            bases = {path.removesuffix(operation[0]) for path in paths if path.endswith(operation[0])}
            # Where there is 1.0 too, /v1 is a tenant of it in what 0.3 has not: the list of tasks, and every DELETE.
            is_ambiguous = not self._is_all_legacy and (method == "DELETE" or operation[0].rstrip("/") == "/tasks")
            if bases & self._http_json or (bases & self._of_0_3 and not is_ambiguous):
                is_call = True
            else:
                tenants |= {self._tenant_in(base, operation[1] or "") for base in bases} - {""}
        is_call = is_call or any(operation[1] == _NAME for operation in operations)
        return tenants if tenants or is_call else None

    def _tenant_in(self, base: str, operation: str) -> str:
        """The tenant in what stands before an operation; ``operation`` is given when nothing else is called like it."""
        parent, _, last = base.rpartition("/")
        first = base[1:].partition("/")[0]
        if parent in self._http_json:
            return last
        # Of no interface of the card, but a call all the same: applications may have routes that it does not name.
        if base[1 + len(first) :] in self._http_json or (operation and base == f"/{first}"):
            return first
        return last if operation == _NAME else ""

    async def _with_body(
        self, read: Callable[[bytes], _Said], tenants: set[str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        is_json_rpc = read is _said_in_json_rpc
        body = bytearray()
        following: list[MutableMapping[str, Any]] = []
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                following.append(message)
                break
            more = message.get("more_body", False)
            body += message.get("body", b"")
            if len(body) > MAX_BODY:
                self._tell(scope, audit.Reason.TOO_LARGE, f"the body is longer than {MAX_BODY} bytes")
                await respond(TOO_LARGE, b"null" if is_json_rpc else None, scope, send)
                return
        try:
            said = read(bytes(body)) if len(body) <= _SHORT else await run_in_threadpool(read, bytes(body))
            tenants = {*tenants, *said.tenants, *_tenants_in_query(scope)}
            error = self._refusal(tenants, scope)
        except MalformedError as malformed:
            self._tell(scope, audit.Reason.AMBIGUOUS_REQUEST, str(malformed))
            said, error = _Said(), INVALID
        if error is not None:
            await respond(error, said.id if is_json_rpc else None, scope, send)
        elif said.extended:
            caller, tenant = self._principal(scope), "".join(tenants)
            legacy = said.extended != "GetExtendedAgentCard"
            await self._extended.answer(caller, tenant, scope, send, legacy=legacy, call_id=said.id)
        else:
            whole = {"type": "http.request", "body": bytes(body), "more_body": more}
            await self._app(scope, _replayed([whole, *following], receive), send)

    def _refusal(self, tenants: set[str], scope: Scope) -> Error | None:
        """Why these tenants may not be used by the caller; None when they may."""
        if not tenants:
            return None
        if len(tenants) > 1:
            self._tell(scope, audit.Reason.AMBIGUOUS_REQUEST, "it names several tenants")
            return INVALID
        (tenant,) = tenants
        if self._may_use_tenant is not None and self._may_use_tenant(self._principal(scope), tenant) is True:
            return None
        why = "the caller may not use it" if self._may_use_tenant else "there is no may_use_tenant"
        self._tell(scope, audit.Reason.TENANT, f"the tenant {tenant[:64]!a}: {why}")
        return FORBIDDEN

    def _tell(self, scope: Scope, reason: audit.Reason, detail: str) -> None:
        audit.request_refused(scope, reason, detail, self._principal(scope))


def _last_segments(path: str) -> Iterator[str]:
    """What may be an operation: the longest has four segments, and a slash behind them."""
    at = len(path)
    for _ in range(_MOST_SEGMENTS + 1):
        at = path.rfind("/", 0, at)
        if at < 0:
            return
        yield path[at:]


def _endings(path: str) -> list[str]:
    """The path, and what is left of it where a proxy takes segments off its front and does not say so."""
    return [path, *(path[at:] for at in range(1, len(path)) if path[at] == "/")]


def _replayed(messages: list[MutableMapping[str, Any]], receive: Receive) -> Receive:
    """The messages again, then the real ones: an early http.disconnect would end a streamed answer."""
    waiting = iter(messages)

    async def again() -> MutableMapping[str, Any]:
        message = next(waiting, None)
        return await receive() if message is None else message

    return again


def _tenants_in_query(scope: Scope) -> set[str]:
    query = scope.get("query_string", b"")
    if b"tenant" not in query and b"%" not in query:
        return set()
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    return {value for name, value in pairs if name == "tenant" and value}


def _said_in_json_rpc(body: bytes) -> _Said:
    """What a JSON-RPC request says; MalformedError when readers could disagree about it."""
    request = _read(body)
    calls = request if type(request) is list else [request]
    found = [_said_in_call(call) for call in calls if type(call) is _Members]
    if type(request) is list and any(said.tenants or said.extended for said in found):
        raise MalformedError("a batch that names a tenant or calls for the extended card")
    return found[0] if found else _Said()


def _said_in_call(call: _Members) -> _Said:
    methods, params = call.all("method"), call.all("params")
    tenants = _tenants_of([tenant for each in params if type(each) is _Members for tenant in each.all("tenant")])
    extended = next((method for method in methods if type(method) is str and method in EXTENDED_CARD_METHODS), "")
    if not tenants and not extended:
        return _Said()
    call_id = call.only("id")
    if len(methods) > 1 or len(params) > 1 or type(call_id) not in (str, int, float, type(None)):
        raise MalformedError("method or params are there twice, or the id is neither a string nor a number")
    try:
        return _Said(tenants, extended, json.dumps(call_id, allow_nan=False).encode())
    except ValueError:
        raise MalformedError("the id is no number that JSON has") from None


def _said_in_http_json(body: bytes) -> _Said:
    request = _read(body)
    return _Said(_tenants_of(request.all("tenant"))) if type(request) is _Members else _Said()


def _tenants_of(values: list[Any]) -> tuple[str, ...]:
    if not all(type(value) is str or value is None for value in values):
        raise MalformedError("tenant is not a string")
    return tuple(value for value in values if value)


def _read(body: bytes) -> Any:
    """The body, with every object as _Members; None when it says nothing that matters here."""
    if b"xtended" not in body and b"tenant" not in body and b"\\u" not in body and b"\0" not in body:
        return None
    try:
        # UTF-16 and UTF-32 too, as servers on it read them. A hook in Python: at each object other threads may go on.
        return json.loads(body, object_pairs_hook=lambda pairs: _Members(pairs))
    except ValueError:
        return None  # what is no JSON to it says nothing
    except RecursionError:
        raise MalformedError("nested too deep to tell what it says") from None
