"""Authlib's authorization server on Flask: client credentials, refresh tokens, assertions, introspection, revocation.

Run in its own environment, never imported by a test. Its clients are "service" (client_secret_basic), "service-post"
(client_secret_post), those that a test registers, "web", which gets a user's first refresh token by the password
grant, and "agent", which may introspect. Access tokens are those of RFC 9068 until a test asks for opaque ones.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-any-return, untyped-decorator, unused-ignore"

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, InvalidGrantError, TokenMixin, list_to_scope, scope_to_list
from authlib.oauth2.rfc6749.grants import (
    ClientCredentialsGrant,
    RefreshTokenGrant,
    ResourceOwnerPasswordCredentialsGrant,
)
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7523 import JWTBearerClientAssertion, JWTBearerGrant
from authlib.oauth2.rfc7662 import IntrospectionEndpoint
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


@dataclass
class Token(TokenMixin):  # type: ignore[misc]
    """One answer of the token endpoint: a row with the access token and perhaps a refresh token."""

    access_token: str
    client_id: str
    scope: str
    expires_at: float
    refresh_token: str | None = None
    user: User | None = None
    revoked: bool = False

    def check_client(self, client: Client) -> bool:
        return self.client_id == client.client_id

    def get_scope(self) -> str:
        return self.scope

    def is_expired(self) -> bool:
        return time.time() > self.expires_at

    def is_revoked(self) -> bool:
        return self.revoked


class Tokens(list[Token]):
    """The issued tokens. Rows are found by the hint, as Authlib's documentation has it, or whatever the hint says."""

    trust_hints = True

    def find(self, value: str, hint: str | None) -> Token | None:
        columns = (hint,) if hint and self.trust_hints else ("access_token", "refresh_token")
        return next((each for each in self for column in columns if getattr(each, column) == value), None)


def _by_certificate(query_client: Any, request: Any) -> Client | None:
    """RFC 8705 2.1, which Authlib leaves to its users: TLS has verified the certificate."""
    client = query_client(request.form.get("client_id"))
    shown = current_request.environ[CERTIFICATE]
    is_theirs = client is not None and shown is not None and hashlib.sha256(shown).hexdigest() == client.certificate
    return client if is_theirs else None


def _add_introspection(server: AuthorizationServer, tokens: Tokens, issuer: str) -> None:
    """Introspection and revocation, written as the documentation of Authlib asks for."""

    class Introspection(IntrospectionEndpoint):  # type: ignore[misc]
        def check_permission(self, token: Token, client: Client, request: Any) -> bool:
            return client.client_id == "agent"

        def query_token(self, token_string: str, token_type_hint: str | None) -> Token | None:
            return tokens.find(token_string, token_type_hint)

        def introspect_token(self, token: Token) -> dict[str, Any]:
            user = {} if token.user is None else {"username": token.user.name}
            return {
                "active": True,
                "iss": issuer,
                "sub": token.user.name if token.user else token.client_id,
                "aud": AUDIENCE,
                "client_id": token.client_id,
                "token_type": "Bearer",
                "scope": token.scope,
                "exp": int(token.expires_at),
                **user,
            }

    class Revocation(RevocationEndpoint):  # type: ignore[misc]
        def query_token(self, token_string: str, token_type_hint: str | None) -> Token | None:
            return tokens.find(token_string, token_type_hint)

        def revoke_token(self, token: Token, request: Any) -> None:
            token.revoked = True

    server.register_endpoint(Introspection)
    server.register_endpoint(Revocation)


def _make(issuer: str) -> tuple[Application, Mapping[str, Command]]:
    key = ECKey.generate_key("P-256", {"kid": secrets.token_hex(4), "use": "sig", "alg": "ES256"})
    clients = {
        each.client_id: each
        for each in (
            Client("service", grant_types=("client_credentials", JWTBearerGrant.GRANT_TYPE)),
            Client("service-post", "client_secret_post"),
            Client("agent", grant_types=()),
            Client("web", grant_types=("password", "refresh_token")),
        )
    }
    issued = Tokens()
    seen_ids = set[str]()
    trusted: dict[str, Any] = {}
    lifetime = {"seconds": 600}

    class SignedTokens(JWTBearerTokenGenerator):  # type: ignore[misc]
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

        def authenticate_refresh_token(self, refresh_token: str) -> Token | None:
            token = issued.find(refresh_token, "refresh_token")
            return None if token is None or token.revoked else token

        def authenticate_user(self, token: Token) -> User | None:
            return token.user

        def revoke_old_credential(self, token: Token) -> None:
            token.revoked = True

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

    class IdentityAssertions(JWTBearerGrant):  # type: ignore[misc]
        """The grant of RFC 7523, with the rules that the draft of ID-JAG adds."""

        TOKEN_ENDPOINT_AUTH_METHODS = METHODS

        def process_assertion_claims(self, assertion: str) -> Any:
            claims = super().process_assertion_claims(assertion)
            header, _ = self.extract_assertion(assertion)
            client = self.authenticate_token_endpoint_client()
            is_new = claims.get("jti") not in seen_ids
            seen_ids.add(claims.get("jti"))
            if (header.get("typ"), claims.get("client_id"), is_new) != ("oauth-id-jag+jwt", client.client_id, True):
                raise InvalidGrantError("not an ID-JAG for this client, or used before")
            return claims

        def resolve_issuer_client(self, issuer: str) -> Client | None:
            return self.authenticate_token_endpoint_client() if issuer in trusted else None

        def resolve_client_public_key(self, client: Client) -> KeySet:
            (jwks,) = trusted.values()
            return KeySet.import_key_set(jwks)

        def get_audiences(self) -> list[str]:
            return [issuer]

        def authenticate_user(self, subject: str) -> User:
            return User(subject)

        def has_granted_permission(self, client: Client, user: User) -> bool:
            return True

    def save_token(token: dict[str, Any], request: Any) -> None:
        expires_at = time.time() + token["expires_in"]
        row = Token(token["access_token"], request.client.client_id, token["scope"], expires_at)
        row.refresh_token, row.user = token.get("refresh_token"), request.user
        issued.append(row)

    app = Flask(__name__)
    server = AuthorizationServer(app, clients.get, save_token)
    makers: dict[str, Any] = {
        "refresh_token_generator": lambda **_: secrets.token_urlsafe(24),
        "expires_generator": lambda *_: lifetime["seconds"],
    }
    forms = {
        "jwt": SignedTokens(issuer, alg="ES256", **makers),
        "opaque": BearerTokenGenerator(lambda **_: secrets.token_urlsafe(24), **makers),
    }
    server.register_token_generator("default", forms["jwt"])
    server.register_client_auth_method("private_key_jwt", Assertion())
    server.register_client_auth_method("tls_client_auth", _by_certificate)
    for grant in (Credentials, Password, Refresh, IdentityAssertions):
        server.register_grant(grant)
    _add_introspection(server, issued, issuer)

    @app.post("/token")
    def token() -> Any:
        return server.create_token_response()

    @app.post("/introspect")
    def introspect() -> Any:
        return server.create_endpoint_response("introspection")

    @app.post("/revoke")
    def revoke() -> Any:
        return server.create_endpoint_response("revocation")

    @app.get("/jwks")
    def jwks() -> dict[str, Any]:
        return {"keys": [key.as_dict(private=False)]}

    @app.get("/.well-known/oauth-authorization-server")
    def metadata() -> dict[str, Any]:
        return {
            "issuer": issuer,
            "token_endpoint": f"{issuer}/token",
            "introspection_endpoint": f"{issuer}/introspect",
            "revocation_endpoint": f"{issuer}/revoke",
            "jwks_uri": f"{issuer}/jwks",
            "response_types_supported": [],
            "grant_types_supported": ["client_credentials", "refresh_token"],
            "token_endpoint_auth_methods_supported": METHODS,
        }

    def register(client: str, metadata: dict[str, Any]) -> None:
        clients[client] = Client(client, **metadata)

    def set_lifetime(seconds: int) -> None:
        lifetime["seconds"] = seconds

    def token_form(form: str) -> None:
        server.register_token_generator("default", forms[form])

    def trust_hints(trusted: bool) -> None:
        issued.trust_hints = trusted

    def trust(issuer: str, jwks: dict[str, Any]) -> None:
        trusted.clear()
        trusted[issuer] = jwks

    commands: dict[str, Command] = {
        "trust": trust,
        "register": register,
        "setLifetime": set_lifetime,
        "tokenForm": token_form,
        "trustHints": trust_hints,
    }
    return app, commands


if __name__ == "__main__":
    serve(_make)
