"""The reverse proxy to the agent: an ASGI application, which the guard is in front of.

Requests keep method, path, query, body and headers, but for hop-by-hop headers, forwarding headers, and headers about
the caller, which only this proxy writes. Bodies and answers stream in both directions, as fast as their reader takes
them. If the client leaves, the request to the agent ends. If the agent fails during an answer, the connection to the
client is cut, so no client takes a part of an answer for all of it.

``httpcore`` makes the requests: unlike a client for programs it changes no byte of a path, and unlike ASGI proxies on
PyPI it streams in both directions with bounded memory. Source: RFC 9110 7.6, RFC 9112 6.3 and 9.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from time import time
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import anyio
import httpcore

from a2a_trust.auth.peers import verified_peer
from a2a_trust.base.net.urls import read_url
from a2a_trust.middleware.caller import CallerCredentials
from a2a_trust.middleware.calls import INVALID, call_of
from a2a_trust.middleware.documents import Receive, Scope, Send, close_websocket
from a2a_trust.middleware.rejection import Error, rejection_of, send_rejection
from a2a_trust.serve.caller_token import CallerTokens, caller_headers

_UNREACHABLE: Final = Error(502, -32603, "UNAVAILABLE", "UPSTREAM_FAILED", "The agent does not answer now.", True)
_TOO_MANY: Final = Error(503, -32603, "UNAVAILABLE", "UPSTREAM_BUSY", "The agent has too many requests now.", True)
_LATE: Final = Error(504, -32603, "DEADLINE_EXCEEDED", "UPSTREAM_LATE", "The agent does not answer in time.", True)

_CONNECT_SECONDS: Final = 5.0
_POOL_SECONDS: Final = 1.0
_IDLE_SECONDS: Final = 1.5
"""An unused connection is closed before the agent closes it: Node does so after 5 seconds, others after 2."""

_HOP_BY_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"http2-settings",
     b"close", b"proxy-connection"}
)  # fmt: skip
_METHOD: Final = re.compile(r"[A-Z]{1,32}(?:-[A-Z]{1,32})*")
_PATH: Final = re.compile(rb"(?:/(?:[A-Za-z0-9._~!$&'()*+,=:@-]++|%[0-9A-Fa-f]{2})*+)++")
_AMBIGUOUS: Final = re.compile(rb"//|/\.{1,2}(?:/|\Z)|%(?:2[fF]|5[cC]|3[bB]|[01][0-9A-Fa-f]|7[fF])")
_ESCAPED_DOT: Final = re.compile(rb"%2[eE]")
_FRAMING: Final = frozenset({b"connection", b"content-length", b"host", b"transfer-encoding"})


class UpstreamLostError(ConnectionError):
    """The agent failed after its answer had begun."""


def reason_to_reject(scope: Mapping[str, Any]) -> str | None:
    """Why agent and proxy could read the head of a request differently; None for a clear one."""
    raw, headers = scope.get("raw_path") or b"", scope["headers"]
    dotted = _ESCAPED_DOT.sub(b".", raw) if b"%" in raw else raw
    if not _PATH.fullmatch(raw) or _AMBIGUOUS.search(dotted):
        return "the path has dot segments, empty segments, a semicolon or escapes that readers understand differently"
    if unquote_to_bytes(raw) != scope["path"].encode("utf-8", "surrogateescape"):
        return "the server read the path differently"
    if scope["type"] == "http" and (not _METHOD.fullmatch(scope["method"]) or scope["method"] in ("CONNECT", "TRACE")):
        return "the method is not one of a request to an agent"
    values = b",".join([value for _, value in headers])
    if b"\n" in values or b"\r" in values or b"\0" in values:
        return "a header has a line break"
    said: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name in _FRAMING:
            said.setdefault(name, []).append(value)
    for value in said.get(b"connection", ()):
        if not _HOP_BY_HOP.issuperset(word.strip().lower() for word in value.split(b",")):
            return "the header Connection names a header that the guard reads, or that the agent must get"
    lengths, is_chunked = said.get(b"content-length", ()), b"transfer-encoding" in said
    if len(said.get(b"host", ())) > 1 or len(lengths) > 1 or (lengths and (is_chunked or not lengths[0].isdigit())):
        return "it has several hosts, or several lengths of its body"
    return None


class ReverseProxy:
    """Passes requests on to the agent at ``url``, ``http://HOST:PORT`` or ``unix:/PATH``."""

    def __init__(self, url: str, *, timeout: float, connections: int, tokens: CallerTokens | None, plain: bool) -> None:
        """``timeout``: the seconds to the next bytes of an answer. ``tokens`` and ``plain``: as ``caller_headers``."""
        path = url.removeprefix("unix:") if url.startswith("unix:") else None
        parts = read_url("http://localhost" if path else url)
        self._scheme, self._host, self._port = b"http", parts.host.strip("[]").encode(), parts.port
        self._tokens, self._plain = tokens, plain
        self._running, self._is_stopped = 0, False
        self._extensions = {
            "timeout": {"connect": _CONNECT_SECONDS, "pool": _POOL_SECONDS, "read": timeout, "write": timeout}
        }
        self._pool = httpcore.AsyncConnectionPool(
            max_connections=connections, keepalive_expiry=_IDLE_SECONDS, http1=True, http2=False, uds=path
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self.stop()
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["type"] == "websocket":  # no binding of A2A uses one
            await close_websocket(receive, send)
            return
        self._running += 1
        try:
            await self._serve(_Body(await receive(), receive), scope, receive, send)
        finally:
            self._running -= 1
            if self._is_stopped and not self._running:
                with anyio.CancelScope(shield=True):
                    await self._pool.aclose()

    async def stop(self) -> None:
        """Close the connections, at the end of the last request."""
        self._is_stopped = True
        if not self._running:
            await self._pool.aclose()

    async def _serve(self, body: _Body, scope: Scope, receive: Receive, send: Send) -> None:
        with anyio.CancelScope() as gone:
            watching = asyncio.create_task(body.wait_for_disconnect(gone))
            try:
                await self._pass_on(scope, body, receive, send)
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching

    async def _pass_on(self, scope: Scope, body: _Body, receive: Receive, send: Send) -> None:
        try:
            answer = await self._ask(self._request(scope, body), may_repeat=not body.is_there)
        except (httpcore.ProtocolError, httpcore.NetworkError, httpcore.TimeoutException) as error:
            call = call_of(scope)
            is_json_rpc = call is not None and call.call_id is not None
            rejection = rejection_of(_error_of(error), call.call_id if call and is_json_rpc else None)
            await send_rejection(rejection, scope, receive, send)
            return
        try:
            # Every server writes its own date.
            headers = [line for line in _without_hop_by_hop(answer.headers) if line[0] != b"date"]
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            async for chunk in answer.aiter_stream():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except (httpcore.ProtocolError, httpcore.NetworkError, httpcore.TimeoutException) as error:
            raise UpstreamLostError(f"the answer of the agent ended early: {type(error).__name__}") from None
        finally:
            with anyio.CancelScope(shield=True):
                await answer.aclose()

    async def _ask(self, request: httpcore.Request, *, may_repeat: bool) -> httpcore.Response:
        """The beginning of the answer. A request without a body is repeated if an idle connection was just closed."""
        try:
            answer = await self._pool.handle_async_request(request)
        except (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError):
            if not may_repeat or request.method not in (b"GET", b"HEAD"):
                raise
            answer = await self._pool.handle_async_request(request)
        if answer.status == 101:  # nobody asked to switch
            await answer.aclose()
            raise httpcore.RemoteProtocolError("101")
        return answer

    def _request(self, scope: Scope, body: _Body) -> httpcore.Request:
        query = scope.get("query_string", b"")
        target = scope["raw_path"] + (b"?" + query if query else b"")
        kept = _without_hop_by_hop(scope["headers"])
        headers = [(name, value) for name, value in kept if not name.replace(b"_", b"-").startswith(_OURS)]
        headers += body.framing(scope["headers"])
        auth = scope.get("auth")  # none: the path is public, or the guard itself fetches the card
        caller = auth.caller if isinstance(auth, CallerCredentials) else None
        headers += caller_headers(caller, self._tokens, time(), plain=self._plain)
        peer = verified_peer(scope)  # not scope["client"]: servers write what callers say into it
        headers += [
            (b"x-forwarded-for", b"" if peer is None else str(peer).encode("ascii")),
            (b"x-forwarded-proto", scope["scheme"].encode("ascii")),
        ]
        return httpcore.Request(
            scope["method"].encode("ascii"),
            httpcore.URL(scheme=self._scheme, host=self._host, port=self._port, target=target),
            headers=headers,
            content=body if body.is_there else None,
            extensions=self._extensions,
        )


_OURS: Final = (
    b"a2a-caller", b"content-length", b"forwarded", b"x-forwarded", b"x-real-ip", b"proxy-",
    # By which agents behind other proxies know their caller.
    b"remote-user", b"x-remote-", b"x-auth-request-", b"x-authenticated-", b"x-webauth-", b"client-cert",
    b"ssl-client-", b"x-ssl-client", b"x-client-cert", b"x-client-verify", b"x-amzn-oidc-",
    b"x-goog-authenticated-user-", b"x-ms-client-principal", b"cf-access-", b"tailscale-user-",
)  # fmt: skip


class _Body:
    """The body of a request, as its reader takes it."""

    def __init__(self, first: Mapping[str, Any], receive: Receive) -> None:
        """``first`` is the first message of the request: HTTP/2 announces no body."""
        self._first, self._receive = first, receive
        self._has_ended, self._is_gone = asyncio.Event(), first["type"] != "http.request"
        self.is_there: bool = bool(first.get("body")) or first.get("more_body", False)
        if not self.is_there:
            self._has_ended.set()

    def framing(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The header that says where the body ends (RFC 9112 6)."""
        if not self.is_there:
            return []
        announced = next((value for name, value in headers if name == b"content-length"), None)
        if not self._first.get("more_body", False):
            announced = b"%d" % len(self._first["body"])
        return [(b"transfer-encoding", b"chunked") if announced is None else (b"content-length", announced)]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        message = self._first
        while message["type"] == "http.request":
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body", False):
                self._has_ended.set()
                return
            message = await self._receive()
        self._is_gone = True
        self._has_ended.set()
        await anyio.sleep_forever()  # until the watcher ends the request

    async def wait_for_disconnect(self, gone: anyio.CancelScope) -> None:
        """Cancel the request when the client has left."""
        await self._has_ended.wait()
        while not self._is_gone:
            self._is_gone = (await self._receive())["type"] == "http.disconnect"
        gone.cancel()


def _without_hop_by_hop(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    """The headers for the next hop (RFC 9110 7.6.1), without hop-by-hop headers and their aliases in CGI."""
    lines = [(name.lower(), value) for name, value in headers]
    removed = {word.strip().lower() for name, value in lines if name == b"connection" for word in value.split(b",")}
    removed |= _HOP_BY_HOP
    if any(name == b"transfer-encoding" for name, _ in lines):
        removed.add(b"content-length")  # it does not count (RFC 9112 6.3)
    return ((name, value) for name, value in lines if name.replace(b"_", b"-") not in removed)


def _error_of(error: Exception) -> Error:
    if isinstance(error, httpcore.LocalProtocolError):
        return INVALID
    if isinstance(error, httpcore.PoolTimeout):
        return _TOO_MANY
    return _LATE if isinstance(error, httpcore.ReadTimeout | httpcore.WriteTimeout) else _UNREACHABLE
