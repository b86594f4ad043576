"""Answers to rejected requests: status, challenges and bodies, in the format of the binding that was called.

The texts are fixed: the reason for a rejection goes to the log, never to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final, NamedTuple

from a2a_trust.auth.credentials import Extractor, HttpAuthorization, InCookie, InHeader, InQuery
from a2a_trust.auth.guard import Guard, Rejected
from a2a_trust.base.net.metadata import SCOPE
from a2a_trust.card.operations import Binding
from a2a_trust.errors import (
    AuthorizationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    TooManyRequestsError,
)
from a2a_trust.keys.algorithms import ALG_NAMES
from a2a_trust.middleware.documents import Receive, Scope, Send, close_websocket, json_bytes, respond

RETRY_AFTER: Final = 5
"""The seconds after which a caller may retry when the source of keys is down, or a rule does not answer."""

_RETRY: Final = (b"retry-after", b"%d" % RETRY_AFTER)
_CHALLENGE: Final = b"www-authenticate"
_BASIC: Final = HttpAuthorization("basic")
_REALM: Final = 'realm="A2A"'
_ALGS: Final = f'algs="{" ".join(ALG_NAMES)}"'


class Rejection(NamedTuple):
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def with_one_challenge_line(self) -> Rejection:
        """The same with all challenges in one line, which is equivalent (RFC 9110 11.6.1).

        For websockets: granian 2.8.7 crashes, with all connections, when it rejects one with two such lines.
        """
        challenges = b", ".join(value for name, value in self.headers if name == _CHALLENGE)
        others = tuple((name, value) for name, value in self.headers if name != _CHALLENGE)
        return self._replace(headers=(*others, (_CHALLENGE, challenges))) if challenges else self


class Error(NamedTuple):
    """An error in the formats of both bindings (A2A 5.4, 9.5, 11.6). ``name`` is a name of google.rpc.Code."""

    status: int
    code: int
    name: str
    reason: str
    message: str
    is_of_http: bool = False
    """Whether callers of JSON-RPC get this status, too; other errors have the status 200 there."""

    def body(self, call_id: bytes | None) -> bytes:
        """The answer's body; ``call_id`` is the id of a JSON-RPC request, as JSON, None over HTTP."""
        info = {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.reason,
            "domain": "a2a-protocol.org",
        }
        if call_id is None:
            error = {"code": self.status, "status": self.name, "message": self.message, "details": [info]}
            return json_bytes({"error": error})
        error = {"code": self.code, "message": self.message, "data": [info]}
        return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (call_id, json_bytes(error))


UNAUTHENTICATED: Final = Error(401, -31401, "UNAUTHENTICATED", "UNAUTHENTICATED", "Authentication is required.", True)
FORBIDDEN: Final = Error(
    403, -31403, "PERMISSION_DENIED", "UNAUTHORIZED", "The caller is not allowed to do this.", True
)
TOO_MANY: Final = Error(
    429, -31429, "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", "The caller asks too often; try again later.", True
)
TOO_LARGE: Final = Error(413, -32600, "INVALID_ARGUMENT", "INVALID_REQUEST", "The request is too large.", True)
NOT_FOUND: Final = Error(404, -32601, "NOT_FOUND", "METHOD_NOT_FOUND", "There is nothing here.", True)
UNAVAILABLE: Final = Error(503, -32603, "UNAVAILABLE", "UNAVAILABLE", "Credentials cannot be checked now.", True)
LATE: Final = UNAVAILABLE._replace(message="It cannot be decided now whether this is allowed.")
"""A rule of the operator did not answer in time."""


def rejection_for(
    rejected: Rejected,
    guard: Guard,
    binding: Binding,
    *,
    legacy: bool = False,
    resource_metadata: str | None = None,
    dpop_nonce: str | None = None,
    call_id: bytes | None = None,
) -> Rejection:
    """The answer to a request that the guard, or a handler, has rejected.

    ``binding`` is the binding of the interface that was called; ``legacy``: it speaks a version before 1.0.
    ``resource_metadata`` is the URL that challenges for tokens name (RFC 9728 5.1). ``dpop_nonce`` is the nonce that
    the next proof must have (RFC 9449 9). ``call_id`` is the id of a JSON-RPC request whose body was read, as JSON.
    """
    error = rejected.error
    headers: list[tuple[bytes, bytes]] = [(b"cache-control", b"no-store")]
    if isinstance(error, AuthorizationError):
        kind = FORBIDDEN
        headers += _challenges(guard, _wanting(error, guard), rejected, resource_metadata)
    elif isinstance(error, TooManyRequestsError):
        kind = TOO_MANY
        headers.append((b"retry-after", b"%d" % error.retry_after))
    elif isinstance(error, KeySourceUnavailableError):
        kind = UNAVAILABLE
        headers.append(_RETRY)
    else:
        kind = UNAUTHENTICATED
        headers += _challenges(guard, _wrong(rejected, guard), rejected, resource_metadata)
        if dpop_nonce is not None:
            headers.append((b"dpop-nonce", dpop_nonce.encode("ascii")))
    body = _body(kind, binding) if call_id is None else kind.body(call_id)
    # A2A 1.0 has its own media type for HTTP+JSON; clients of 0.3 know only application/json.
    media_type = b"application/json" if legacy or binding is Binding.JSONRPC else b"application/a2a+json"
    headers += [(b"content-type", media_type), (b"content-length", str(len(body)).encode())]
    return Rejection(kind.status, tuple(headers), body)


def rejection_of(error: Error, call_id: bytes | None) -> Rejection:
    """The answer to a request that the guard has admitted, or that is for no agent; with ``call_id``, as JSON-RPC."""
    # Errors of the protocol have the status 200 in JSON-RPC; errors of HTTP keep theirs.
    status = error.status if call_id is None or error.is_of_http else 200
    headers, body = for_caller(error.body(call_id))
    return Rejection(status, headers if error is not LATE else (*headers, _RETRY), body)


def for_caller(body: bytes) -> tuple[tuple[tuple[bytes, bytes], ...], bytes]:
    """The headers of an answer that only its caller may cache, and its body."""
    headers = (
        (b"cache-control", b"private, no-store"),
        (b"vary", b"*"),  # the credential may be anywhere in the request
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    )
    return headers, body


async def send_rejection(rejection: Rejection, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the request; a websocket is closed before it is accepted, if the server can send no answer."""
    if scope["type"] == "websocket":
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await close_websocket(receive, send)
            return
        rejection = rejection.with_one_challenge_line()
    await respond(scope, send, rejection.status, rejection.headers, rejection.body)


def _wrong(rejected: Rejected, guard: Guard) -> dict[Extractor, str]:
    """The error by the place of the wrong credential; empty if no credential came (RFC 6750 3.1)."""
    if not isinstance(rejected.error, InvalidCredentialsError) or rejected.scheme is None:
        return {}
    return {guard.place(rejected.scheme): f'error="{rejected.error.oauth_error}"'}


def _wanting(error: AuthorizationError, guard: Guard) -> dict[Extractor, str]:
    scopes: dict[Extractor, set[str]] = {}
    for scheme in guard.schemes:
        needed = {scope for scope in error.by_scheme.get(scheme.name, ()) if SCOPE.fullmatch(scope)}
        if needed:
            scopes.setdefault(guard.place(scheme.name), set()).update(needed)
    return {place: f'error="insufficient_scope", {_scope(found)}' for place, found in scopes.items()}


def _scope(scopes: Iterable[str]) -> str:
    return f'scope="{" ".join(sorted(scopes))}"'


def _challenges(
    guard: Guard, about: dict[Extractor, str], rejected: Rejected, resource_metadata: str | None
) -> list[tuple[bytes, bytes]]:
    """One WWW-Authenticate line for every demanded scheme (RFC 9110 11.6.1), each once; TLS asks for certificates.

    ``about`` has the errors by the place of the token. If it came as DPoP, they stand in the challenge of DPoP
    (RFC 9449 7.1), else in the challenge of Bearer, which has a parameter in any case (RFC 6750 3): else the scopes of
    the alternative of fewest schemes and scopes.
    """
    metadata = "" if resource_metadata is None else f'resource_metadata="{resource_metadata}"'
    demanded = guard.alternatives if rejected.demanded is None else rejected.demanded
    cheapest_first = sorted(demanded, key=lambda each: (len(each.schemes), sum(len(it) for _, it in each.schemes)))
    named = [pair for alternative in cheapest_first for pair in alternative.schemes]
    names = {rejected.scheme, *(name for name, _ in named)}
    scopes = {guard.place(name): needed for name, needed in reversed(named)}
    lines: dict[str, None] = {}
    for scheme in [each for each in guard.schemes if each.name in names]:
        place = guard.place(scheme.name)
        if place == _BASIC:
            lines['Basic realm="A2A", charset="UTF-8"'] = None  # RFC 7617 2: the same for all errors
        elif isinstance(place, HttpAuthorization):
            fault, by_dpop = about.get(place, ""), rejected.by_dpop
            first = ("" if by_dpop else fault) or (_scope(scopes[place]) if scopes.get(place) else "")
            lines[f"Bearer {', '.join(filter(None, (first, metadata))) or _REALM}"] = None
            if guard.takes_dpop(scheme.name):
                parameters = ", ".join(filter(None, (fault if by_dpop else "", _ALGS, metadata)))
                lines[f"DPoP {parameters}"] = None
        elif isinstance(place, InHeader | InQuery | InCookie):
            lines[f'ApiKey in="{place.location}", name="{place.name}"'] = None
    return [(_CHALLENGE, line.encode("ascii")) for line in lines]


@cache
def _body(error: Error, binding: Binding) -> bytes:
    # The body was not read, so the id is not known (JSON-RPC 2.0, 5).
    return error.body(b"null" if binding is Binding.JSONRPC else None)
