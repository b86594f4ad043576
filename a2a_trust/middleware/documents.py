"""Serves documents that callers may cache: cards, key sets, metadata. GET, HEAD and conditional requests. And the
headers for caches in other answers.

Two documents are here: the keys that sign the cards of an agent, and the issuers of its tokens. Each is an ASGI
application that answers at any path.

Every document has a strong entity tag over all of its bytes, so that a change of only the signatures is a change to
caches. Source: RFC 9110 8.8, 13; RFC 9111 5.2; A2A 8.6; RFC 7517 5; RFC 9728.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from email.utils import formatdate, parsedate_to_datetime
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

from a2a_trust.auth.credentials import Extractor, HttpAuthorization
from a2a_trust.auth.guard_config import CredentialAt
from a2a_trust.auth.principal import CredentialKind, TokenBinding, TokenVerifier, Verifier
from a2a_trust.card.view import CardView, OAuth2Scheme
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.algorithms import ALG_NAMES

if TYPE_CHECKING:
    from a2a_trust.auth.dpop import DPoP
    from a2a_trust.keys.jwk import PublicKey

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_Headers: TypeAlias = list[tuple[bytes, bytes]]

#: Pages may read public documents, and need the tag for conditional requests (Fetch 3.3).
_READ_BY_PAGES: Final[_Headers] = [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", b"ETag")]
_PREFLIGHT: Final[_Headers] = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET, HEAD"),
    (b"access-control-allow-headers", b"If-None-Match, If-Modified-Since, A2A-Version"),
    (b"access-control-max-age", b"86400"),
]
_ALLOW: Final = (b"allow", b"GET, HEAD, OPTIONS")


class Document(NamedTuple):
    """Bytes to serve, their entity tag, and their times in seconds since the epoch: ``modified``, and ``good_until``,
    after which callers must not use them."""

    body: bytes
    modified: float
    etag: bytes
    last_modified: bytes
    good_until: float

    @classmethod
    def of(cls, body: bytes, modified: float, good_until: float = inf) -> Document:
        etag = b'"%b"' % sha256(body).hexdigest()[:32].encode()
        return cls(body, modified, etag, formatdate(modified, usegmt=True).encode(), good_until)


async def answer(
    document: Document,
    scope: Mapping[str, Any],
    send: Send,
    *,
    now: float,
    max_age: int,
    shared: bool = True,
    media_type: bytes = b"application/json",
) -> None:
    """Answer one http request for the document at the moment ``now`` (seconds since the epoch).

    ``max_age``: how long callers may keep it, in seconds. ``shared``: the document is public, so caches may share it,
    and pages of other origins may read it; else only its reader may keep it, and must revalidate it each time.
    """
    if scope["type"] != "http":
        raise ConfigurationError(f"ASGI scope type {scope['type']!r}: documents are served over http only")
    method = scope["method"]
    if method not in ("GET", "HEAD"):
        allowed = _PREFLIGHT if shared and is_preflight(scope) else ()
        await send_without_body(send, 204 if method == "OPTIONS" else 405, [_ALLOW, *allowed])
        return
    headers = [(b"etag", document.etag)]
    if document.modified <= now:  # RFC 9110 8.8.2.1: never a date in the future
        headers.append((b"last-modified", document.last_modified))
    if shared:
        headers += [(b"cache-control", b"public, max-age=%d" % max_age), *_READ_BY_PAGES]
    else:
        headers.append((b"cache-control", b"private, no-cache"))
    if _is_known(document, scope["headers"]):
        await send_without_body(send, 304, headers)
        return
    headers += [(b"content-type", media_type), (b"content-length", b"%d" % len(document.body))]
    await respond(scope, send, 200, headers, document.body)


async def respond(
    scope: Mapping[str, Any], send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> None:
    """A whole answer; to HEAD without its body."""
    prefix = "websocket.http" if scope["type"] == "websocket" else "http"
    await send({"type": f"{prefix}.response.start", "status": status, "headers": [*headers]})
    await send({"type": f"{prefix}.response.body", "body": b"" if scope.get("method") == "HEAD" else body})


def is_preflight(scope: Mapping[str, Any]) -> bool:
    """Whether the request is a CORS preflight of a browser (Fetch 4.8)."""
    return scope["method"] == "OPTIONS" and any(
        name.lower() == b"access-control-request-method" for name, _ in scope["headers"]
    )


async def send_without_body(send: Send, status: int, headers: _Headers) -> None:
    length = [] if status in (204, 304) else [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": b""})


async def close_websocket(receive: Receive, send: Send, code: int = 1008) -> None:
    """Reject a websocket before it is accepted: 1008 for good, 1013 for now (RFC 6455 7.4)."""
    await receive()  # websocket.connect, which must be received first
    await send({"type": "websocket.close", "code": code, "reason": ""})


def _is_known(document: Document, headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the caller has this document already (RFC 9110 13.2.2)."""
    tags = [value for name, value in headers if name.lower() == b"if-none-match"]
    if tags:
        # 13.1.2: a weak comparison, because a cache may have weakened the tag, which has its quotation marks here.
        return any(document.etag in value or value.strip() == b"*" for value in tags)
    for name, value in headers:
        if name.lower() == b"if-modified-since":
            try:
                # Equality: after a clock change, or with an older file, a new document can have an older date.
                return int(document.modified) == parsedate_to_datetime(value.decode("ascii")).timestamp()
            except (ValueError, UnicodeDecodeError, OverflowError):
                return False  # 13.1.3: an invalid date is ignored
    return False


def json_bytes(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


_LENGTHS: Final = (len("cache-control"), len("vary"))


class CachingRules:
    """Adds headers to answers, for requests that may carry credentials in ``places``: no cache gives the answer to one
    caller to another.

    Caches protect answers to requests with ``Authorization`` by themselves (RFC 9111 3.5). They do not recognize a key
    in another header, in a cookie or in the query, or a client certificate.

    ``Cache-Control: private``, unless the application sets that header, and ``Vary`` with the headers of credentials,
    in addition to the application's. Source: RFC 9110 12.5.5, RFC 9111 4.1, 5.2.2.7.
    """

    def __init__(self, places: Iterable[Extractor]) -> None:
        places = [place for place in places if not isinstance(place, HttpAuthorization)]
        self._vary = sorted({place.header for place in places if place.header is not None})
        self._both = [(b"cache-control", b"private"), *([(b"vary", b", ".join(self._vary))] if self._vary else [])]
        self._lengths = _LENGTHS if places else None

    def add(self, message: MutableMapping[str, Any], nonce: str | None = None) -> MutableMapping[str, Any]:
        """The beginning of an answer, with these headers. ``nonce`` is for the caller's next proof, in the answer, too
        (RFC 9449 8.2)."""
        if self._lengths is None and nonce is None:
            return message
        headers = [*message.get("headers", ())]
        if self._lengths is not None:
            for name, _ in headers:
                if len(name) in self._lengths:
                    self._add_missing(headers)
                    break
            else:  # as in most answers
                headers += self._both
        if nonce is not None:
            headers.append((b"dpop-nonce", nonce.encode("ascii")))
        return {**message, "headers": headers}

    def _add_missing(self, headers: list[tuple[bytes, bytes]]) -> None:
        if not any(name.lower() == b"cache-control" for name, _ in headers):
            headers.append((b"cache-control", b"private"))
        lists = b",".join(value for name, value in headers if name.lower() == b"vary")
        named = {word.strip().lower() for word in lists.split(b",")}
        missing = [] if b"*" in named else [name for name in self._vary if name not in named]
        if missing:
            headers.append((b"vary", b", ".join(missing)))


_log: Final = logging.getLogger(__name__)

_URL: Final = re.compile(r"[!#-\[\]-~]+")  # it stands between quotation marks in a header
_RESOURCE_PATH: Final = "/.well-known/oauth-protected-resource"


class PublishedKeys(Protocol):
    """Knows which keys are published now, such as a key ring."""

    def published(self, now: float) -> Iterable[PublicKey]: ...


class JwksEndpoint:
    """Serves the public keys that sign this agent's cards, as a JWK Set.

    ``max_age`` is how long others may keep the set, in seconds. A new key must be in the set for at least this time
    before it signs.
    """

    def __init__(
        self, keys: Iterable[PublicKey] | PublishedKeys, *, max_age: int = 300, clock: Callable[[], float] = time.time
    ) -> None:
        from a2a_trust.keys.jwk import publish_jwks  # not every agent signs, and the import takes time

        fixed = None if hasattr(keys, "published") else tuple(keys)
        if fixed == ():
            raise ConfigurationError("JwksEndpoint: keys is empty; pass the public keys that sign the card")
        published: Any = getattr(keys, "published", lambda _: fixed)
        self._body: Callable[[float], bytes] = lambda now: json_bytes(publish_jwks(published(now)))
        self._max_age, self._clock = max_age, clock
        self._document = Document.of(self._body(clock()), clock())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        now = self._clock()
        body = self._body(now)
        if body != self._document.body:
            self._document = Document.of(body, now)
        await answer(
            self._document, scope, send, now=now, max_age=self._max_age, media_type=b"application/jwk-set+json"
        )


class ProtectedResource:
    """Serves the metadata of RFC 9728 for one agent: the authorization servers that issue its tokens, and its scopes.

    ``resource`` is the agent's public URL. It is never taken from a header of a request. The attribute ``path`` is the
    path of the metadata, and ``url`` is its URL, which challenges name. ``dpop`` and ``certificate_bound`` say that the
    agent accepts tokens that are bound to a key, or to a client certificate.
    """

    def __init__(
        self,
        resource: str,
        card: CardView,
        verifiers: Mapping[str, Verifier[Any] | CredentialAt],
        *,
        dpop: DPoP | None = None,
        certificate_bound: bool = False,
        max_age: int = 3600,
        clock: Callable[[], float] = time.time,
    ) -> None:
        parts = urlsplit(resource) if _URL.fullmatch(resource) else urlsplit("")
        if parts.scheme not in ("https", "http") or not parts.netloc or parts.query or parts.fragment:
            raise ConfigurationError(
                f"resource: {resource[:128]!a} is not an agent's URL; write https://host/path, without query and "
                "fragment (RFC 9728 1.2)"
            )
        self.path: str = f"{_RESOURCE_PATH}{parts.path.rstrip('/')}"  # 3.1: between host and path
        self.url: str = f"{parts.scheme}://{parts.netloc}{self.path}"
        tokens = _token_verifiers(verifiers)
        self.metadata: dict[str, Any] = _metadata(resource, card, tokens)
        for name, audiences in [(name, getattr(each, "audiences", ())) for name, each in tokens.items()]:
            if audiences and resource not in audiences:
                _log.warning(
                    "url=%r is the resource that callers request tokens for, and the verifier of %r accepts only those "
                    "for %s; make the URL one of its audiences, unless the issuer writes another aud",
                    *(resource, name, " or ".join(map(repr, sorted(audiences)))),
                )
        if tokens:
            if dpop is not None:
                self.metadata["dpop_signing_alg_values_supported"] = list(ALG_NAMES)
                if not certificate_bound and all(each.binding is TokenBinding.REQUIRED for each in tokens.values()):
                    self.metadata["dpop_bound_access_tokens_required"] = True
            if certificate_bound:
                self.metadata["tls_client_certificate_bound_access_tokens"] = True
        self._max_age, self._clock = max_age, clock
        self._document = Document.of(json_bytes(self.metadata), clock())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await answer(self._document, scope, send, now=self._clock(), max_age=self._max_age)


def _token_verifiers(verifiers: Mapping[str, Verifier[Any] | CredentialAt]) -> dict[str, TokenVerifier]:
    """The verifiers of access tokens. ID tokens are not issued for a resource, so their provider is not listed."""
    given = {name: each.verifier if isinstance(each, CredentialAt) else each for name, each in verifiers.items()}
    return {
        name: cast("TokenVerifier", verifier)
        for name, verifier in given.items()
        if getattr(verifier, "kind", None) is CredentialKind.ACCESS_TOKEN
    }


def _metadata(resource: str, card: CardView, tokens: Mapping[str, TokenVerifier]) -> dict[str, Any]:
    demanded = [pair for alternative in card.alternatives for pair in alternative.schemes]
    scopes = {scope for name, needed in demanded if name in tokens for scope in needed}
    schemes = [scheme for name in tokens if isinstance(scheme := card.schemes.get(name), OAuth2Scheme)]
    scopes.update(scope for scheme in schemes for flow in scheme.flows for scope in flow.scopes)
    metadata = {
        "resource": resource,
        "bearer_methods_supported": ["header"],
        "resource_name": card.name,
        "authorization_servers": sorted({issuer for each in tokens.values() for issuer in each.issuers}),
        "scopes_supported": sorted(scopes),
    }
    return {name: value for name, value in metadata.items() if value}
