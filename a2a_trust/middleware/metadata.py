"""Public documents about a protected agent: the keys that sign its cards, and the issuers of its tokens.

Each is an ASGI application that answers at any path. Source: RFC 7517 5, RFC 9728.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from urllib.parse import urlsplit

from a2a_trust.auth.guard_config import CredentialAt
from a2a_trust.auth.principal import CredentialKind, TokenBinding, TokenVerifier, Verifier
from a2a_trust.card.view import CardView, OAuth2Scheme
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.algorithms import ALG_NAMES
from a2a_trust.middleware.documents import Document, Receive, Scope, Send, answer, json_bytes

if TYPE_CHECKING:
    from a2a_trust.auth.dpop import DPoP
    from a2a_trust.keys.jwk import PublicKey

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
