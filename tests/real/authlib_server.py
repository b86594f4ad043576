"""Authlib's authorization server on Flask: client credentials and refresh tokens, in access tokens of RFC 9068.

Run in its own environment, never imported by a test. Its clients are "service" (client_secret_basic), "service-post"
(client_secret_post), those that a test registers, and "web", which gets a user's first refresh token by the password
grant.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-any-return, untyped-decorator, unused-ignore"

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, TokenMixin, list_to_scope, scope_to_list
from authlib.oauth2.rfc6749.grants import (
    ClientCredentialsGrant,
    RefreshTokenGrant,
    ResourceOwnerPasswordCredentialsGrant,
)
from authlib.oauth2.rfc7523 import JWTBearerClientAssertion
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from flask import Flask
from flask import request as current_request
from joserfc.jwk import ECKey, KeySet

from tests.real.wsgi_server import CERTIFICATE, Application, Command, serve

AUDIENCE: Final = "https://agent.example"
METHODS: Final = ["client_secret_basic", "client_secret_post", "private_key_jwt", "tls_client_auth"]
SCOPES: Final = ("read", "write")


@dataclass
class Client(ClientMixin):  # type: ignore[misc]
    client_id: str
    token_endpoint_auth_method: str = "client_secret_basic"
    client_secret: str = "secret"
    grant_types: tuple[str, ...] = ("client_credentials",)
    jwks: Any = None
    certificate: str = ""
    """The SHA-256 thumbprint of the client's certificate, in hexadecimal."""

    def get_client_id(self) -> str:
        return self.client_id

    def get_allowed_scope(self, scope: str) -> str:
        return list_to_scope([each for each in scope_to_list(scope) or () if each in SCOPES])

    def check_client_secret(self, client_secret: str) -> bool:
        return secrets.compare_digest(self.client_secret, client_secret)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == self.token_endpoint_auth_method

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.grant_types


@dataclass(frozen=True)
class User:
    name: str

    def get_user_id(self) -> str:
        return self.name


@dataclass(frozen=True)
class RefreshToken(TokenMixin):  # type: ignore[misc]
    value: str
    client_id: str
    scope: str
    user: User

    def check_client(self, client: Client) -> bool:
        return self.client_id == client.client_id

    def get_scope(self) -> str:
        return self.scope


def _by_certificate(query_client: Any, request: Any) -> Client | None:
    """RFC 8705 2.1, which Authlib leaves to its users: TLS has verified the certificate."""
    client = query_client(request.form.get("client_id"))
    shown = current_request.environ[CERTIFICATE]
    is_theirs = client is not None and shown is not None and hashlib.sha256(shown).hexdigest() == client.certificate
    return client if is_theirs else None


def _make(issuer: str) -> tuple[Application, Mapping[str, Command]]:
    key = ECKey.generate_key("P-256", {"kid": secrets.token_hex(4), "use": "sig", "alg": "ES256"})
    clients = {
        each.client_id: each
        for each in (
            Client("service"),
            Client("service-post", "client_secret_post"),
            Client("web", grant_types=("password", "refresh_token")),
        )
    }
    refresh_tokens: dict[str, RefreshToken] = {}
    seen_ids = set[str]()
    lifetime = {"seconds": 600}

    class Tokens(JWTBearerTokenGenerator):  # type: ignore[misc]
        def get_jwks(self) -> KeySet:
            return KeySet([key])  # from a set a key is named in the header

        def get_audiences(self, client: Client, user: User | None, scope: str) -> str:
            return AUDIENCE

    class Password(ResourceOwnerPasswordCredentialsGrant):  # type: ignore[misc]
        TOKEN_ENDPOINT_AUTH_METHODS = METHODS

        def authenticate_user(self, username: str, password: str) -> User:
            return User(username)

    class Refresh(RefreshTokenGrant):  # type: ignore[misc]
        TOKEN_ENDPOINT_AUTH_METHODS = METHODS
        INCLUDE_NEW_REFRESH_TOKEN = True

        def authenticate_refresh_token(self, refresh_token: str) -> RefreshToken | None:
            return refresh_tokens.get(refresh_token)

        def authenticate_user(self, refresh_token: RefreshToken) -> User:
            return refresh_token.user

        def revoke_old_credential(self, refresh_token: RefreshToken) -> None:
            del refresh_tokens[refresh_token.value]

    class Credentials(ClientCredentialsGrant):  # type: ignore[misc]
        TOKEN_ENDPOINT_AUTH_METHODS = METHODS

    class Assertion(JWTBearerClientAssertion):  # type: ignore[misc]
        CLIENT_AUTH_METHOD = "private_key_jwt"

        def get_audiences(self) -> list[str]:
            return [issuer, f"{issuer}/token"]

        def validate_jti(self, claims: dict[str, Any], jti: str) -> bool:
            seen = jti in seen_ids
            seen_ids.add(jti)
            return not seen

        def resolve_client_public_key(self, client: Client) -> KeySet:
            return KeySet.import_key_set(client.jwks)

    def save_token(token: dict[str, Any], request: Any) -> None:
        if "refresh_token" in token:
            value = token["refresh_token"]
            refresh_tokens[value] = RefreshToken(value, request.client.client_id, token["scope"], request.user)

    app = Flask(__name__)
    server = AuthorizationServer(app, clients.get, save_token)
    tokens = Tokens(
        issuer,
        alg="ES256",
        refresh_token_generator=lambda **_: secrets.token_urlsafe(24),
        expires_generator=lambda *_: lifetime["seconds"],
    )
    server.register_token_generator("default", tokens)
    server.register_client_auth_method("private_key_jwt", Assertion())
    server.register_client_auth_method("tls_client_auth", _by_certificate)
    for grant in (Credentials, Password, Refresh):
        server.register_grant(grant)

    @app.post("/token")
    def token() -> Any:
        return server.create_token_response()

    @app.get("/jwks")
    def jwks() -> dict[str, Any]:
        return {"keys": [key.as_dict(private=False)]}

    @app.get("/.well-known/oauth-authorization-server")
    def metadata() -> dict[str, Any]:
        return {
            "issuer": issuer,
            "token_endpoint": f"{issuer}/token",
            "jwks_uri": f"{issuer}/jwks",
            "response_types_supported": [],
            "grant_types_supported": ["client_credentials", "refresh_token"],
            "token_endpoint_auth_methods_supported": METHODS,
        }

    def register(client: str, metadata: dict[str, Any]) -> dict[str, Any]:
        clients[client] = Client(client, **metadata)
        return {}

    def set_lifetime(seconds: int) -> dict[str, Any]:
        lifetime["seconds"] = seconds
        return {}

    return app, {"register": register, "setLifetime": set_lifetime}


if __name__ == "__main__":
    serve(_make)
