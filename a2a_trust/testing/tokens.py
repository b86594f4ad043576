"""An issuer of access tokens for tests, valid and invalid ones."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from a2a_trust.auth.jwt import JwtVerifier, TokenProfile
from a2a_trust.auth.records import scope_set
from a2a_trust.keys.jwk import publish_jwks
from a2a_trust.keys.signer import generate_signer, sign_jwt
from a2a_trust.keys.trust.jwks_cache import JwksCache


class TokenIssuer:
    """An issuer with its own key, and a verifier for its tokens that needs no network.

    All test issuers use the same ``kid``, so a second one with the same ``url`` makes forged tokens.
    """

    def __init__(self, url: str = "https://idp.test") -> None:
        self.url = url
        self._signer = generate_signer("ES256", kid="test")

    @property
    def jwks(self) -> dict[str, Any]:
        """The key set that the issuer publishes."""
        return publish_jwks([self._signer.public_key])

    def token(
        self, subject: str = "ann", *, audience: str, scopes: Iterable[str] = (), expires_in: float = 300, **claims: Any
    ) -> str:
        """An access token (RFC 9068) for that audience.

        ``expires_in`` is in seconds; a negative value makes an expired token. ``claims`` add or replace claims.
        """
        now = int(time.time())
        known = {
            "iss": self.url,
            "sub": subject,
            "aud": audience,
            "client_id": "test",
            "iat": now,
            "exp": now + expires_in,
            "jti": str(uuid4()),
            "scope": " ".join(sorted(scope_set(scopes, "token"))),
        }
        return self._signed(TokenProfile.RFC9068, {**known, **claims})

    def _signed(self, typ: str, claims: dict[str, Any]) -> str:
        return sign_jwt({"alg": self._signer.alg, "kid": self._signer.kid, "typ": typ}, claims, self._signer)

    def keys(self) -> JwksCache:
        """The keys of the issuer, for verifiers; they need no network."""

        async def load() -> tuple[bytes, float | None]:
            return json.dumps(self.jwks).encode(), None

        return JwksCache(load, name=self.url)

    def verifier(self, audience: str) -> JwtVerifier:
        """A verifier of this issuer's tokens for that audience, for ``protect(verifiers={…})``."""
        return JwtVerifier(self.keys(), issuer=self.url, audience=audience)
