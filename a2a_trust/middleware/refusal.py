"""Refusals on the wire: status, challenges and bodies, in the words of the binding that was called.

The texts are fixed. Why a request was refused goes to the log, never to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from a2a_trust.auth.credentials import Extractor, HttpAuthorization, InCookie, InHeader, InQuery
from a2a_trust.auth.dpop import PROOF_ALGORITHMS
from a2a_trust.auth.guard import Guard, Refused
from a2a_trust.card.operations import Binding
from a2a_trust.errors import (
    AuthorizationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    TooManyRequestsError,
)
from a2a_trust.middleware.documents import json_bytes

__all__ = ["FORBIDDEN", "UNAUTHENTICATED", "Error", "Refusal", "refusal_for"]

RETRY_AFTER: Final = 5
"""Seconds after which a caller may try again when the source of keys is down."""


_CHALLENGE: Final = b"www-authenticate"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A response that is ready to be sent."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def with_one_challenge_line(self) -> Refusal:
        """The same with all challenges in one line, which means the same (RFC 9110 11.6.1).

        For websockets: granian 2.8.7 ends, with everybody's connections, when it is to refuse one by two such lines.
        """
        challenges = b", ".join(value for name, value in self.headers if name == _CHALLENGE)
        others = tuple((name, value) for name, value in self.headers if name != _CHALLENGE)
        return replace(self, headers=(*others, (_CHALLENGE, challenges))) if challenges else self


@dataclass(frozen=True, slots=True)
class Error:
    """An error in the words of both bindings (A2A 5.4, 9.5, 11.6). ``name`` is as google.rpc.Code has it."""

    status: int
    code: int
    name: str
    reason: str
    message: str
    is_of_http: bool = False
    """Whether the status is told to callers of JSON-RPC too, who get 200 with the errors of the protocol."""

    def body(self, call_id: bytes | None) -> bytes:
        """The answer's body; ``call_id`` is that of a JSON-RPC request, as JSON, None over HTTP."""
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
UNAVAILABLE: Final = Error(503, -32603, "UNAVAILABLE", "UNAVAILABLE", "Credentials cannot be checked now.", True)


def refusal_for(
    refused: Refused,
    guard: Guard,
    binding: Binding,
    *,
    legacy: bool = False,
    resource_metadata: str | None = None,
    dpop_nonce: str | None = None,
) -> Refusal:
    """The response for a request that the guard has refused.

    ``binding`` is that of the interface that was called; ``legacy`` says that it speaks a version before 1.0.
    ``resource_metadata`` is the URL that challenges for tokens name (RFC 9728 5.1), ``dpop_nonce`` what the next proof
    has to hold (RFC 9449 9).
    """
    error = refused.error
    headers: list[tuple[bytes, bytes]] = [(b"cache-control", b"no-store")]
    if isinstance(error, AuthorizationError):
        kind = FORBIDDEN
        headers += _challenges(guard, _wanting(error, guard), refused.by_dpop, resource_metadata)
    elif isinstance(error, TooManyRequestsError):
        kind = TOO_MANY
        headers.append((b"retry-after", b"%d" % error.retry_after))
    elif isinstance(error, KeySourceUnavailableError):
        kind = UNAVAILABLE
        headers.append((b"retry-after", b"%d" % RETRY_AFTER))
    else:
        kind = UNAUTHENTICATED
        headers += _challenges(guard, _wrong(refused, guard), refused.by_dpop, resource_metadata)
        if dpop_nonce is not None:
            headers.append((b"dpop-nonce", dpop_nonce.encode("ascii")))
    body = _body(kind, binding)
    # A2A 1.0 has a media type of its own for HTTP+JSON; clients of 0.3 know application/json alone.
    media_type = b"application/json" if legacy or binding is Binding.JSONRPC else b"application/a2a+json"
    headers += [(b"content-type", media_type), (b"content-length", str(len(body)).encode())]
    return Refusal(kind.status, tuple(headers), body)


def _wrong(refused: Refused, guard: Guard) -> dict[Extractor, str]:
    """What to say of the place whose credential is not good; nothing where none came (RFC 6750 3.1)."""
    if not isinstance(refused.error, InvalidCredentialsError) or refused.scheme is None:
        return {}
    return {guard.place(refused.scheme): f'error="{refused.error.oauth_error}"'}


def _wanting(error: AuthorizationError, guard: Guard) -> dict[Extractor, str]:
    """What to say of the places whose credentials came and lack scopes."""
    scopes: dict[Extractor, set[str]] = {}
    for scheme, needed in error.by_scheme.items():
        scopes.setdefault(guard.place(scheme), set()).update(needed)
    return {place: f'error="insufficient_scope", scope="{" ".join(sorted(found))}"' for place, found in scopes.items()}


_BASIC: Final = HttpAuthorization("basic")
_ALGS: Final = f'algs="{" ".join(PROOF_ALGORITHMS)}"'


def _challenges(
    guard: Guard, about: dict[Extractor, str], by_dpop: bool, resource_metadata: str | None
) -> list[tuple[bytes, bytes]]:
    """One WWW-Authenticate line for every usable scheme (RFC 9110 11.6.1); each wording once. There is no such scheme
    for client certificates: TLS has asked for them.

    ``about`` is what those are told who sent a token, by the place where it came; ``by_dpop`` says that they are told
    in the challenge of DPoP (RFC 9449 7.1), and not in that of Bearer.
    """
    metadata = "" if resource_metadata is None else f'resource_metadata="{resource_metadata}"'
    lines: dict[str, None] = {}
    for scheme in guard.schemes:
        place = guard.place(scheme.name)
        if place == _BASIC:
            lines['Basic realm="A2A", charset="UTF-8"'] = None  # RFC 7617 2: whatever was wrong
        elif isinstance(place, HttpAuthorization):
            told = about.get(place, "")
            parameters = ", ".join(filter(None, ("" if by_dpop else told, metadata)))
            lines[f"Bearer {parameters}".strip()] = None
            if guard.takes_dpop(scheme.name):
                parameters = ", ".join(filter(None, (told if by_dpop else "", _ALGS, metadata)))
                lines[f"DPoP {parameters}"] = None
        elif isinstance(place, InHeader | InQuery | InCookie):
            lines[f'ApiKey in="{place.location}", name="{place.name}"'] = None
    return [(_CHALLENGE, line.encode("ascii")) for line in lines]


@cache
def _body(error: Error, binding: Binding) -> bytes:
    # The body was not read, so the id is not known (JSON-RPC 2.0, 5).
    return error.body(b"null" if binding is Binding.JSONRPC else None)
