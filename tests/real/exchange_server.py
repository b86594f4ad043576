"""The token exchange (RFC 8693) of idpyoidc as an authorization server over https.

Run in its own environment, never imported by a test. The client "front" gets tokens of alice, or of bob where
``login_hint`` names him, by the code flow without a login; the client "service" exchanges them.
"""

# mypy: disable-error-code="import-not-found, untyped-decorator, unused-ignore"

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any, Final

from idpyoidc.server import Server
from idpyoidc.server.configure import ASConfiguration
from idpyoidc.server.exception import UnAuthorizedClient
from idpyoidc.server.oauth2.token_helper.token_exchange import TokenExchangeHelper
from idpyoidc.server.session.grant import ExchangeGrant
from idpyoidc.server.user_authn.user import NoAuthn
from werkzeug.wrappers import Request, Response

from tests.real.wsgi_server import Application, Command, serve

EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
BACKEND: Final = "https://back.example"
AUDIENCES: Final = [BACKEND, "https://calendar.example", "https://mail.example"]
USERS: Final = ("alice", "bob")
LIFETIME: Final = 600


class Exchange(TokenExchangeHelper):  # type: ignore[misc]
    """The library's exchange, whose tokens also say for whom they are.

    Version 5.0.0 checks the audience and the resource, and loses both when a client exchanges the token of another.
    Such a token expires after a minute, whatever the answer says.
    """

    def _mint_token(self, *, grant: Any, **more: Any) -> Any:
        if isinstance(grant, ExchangeGrant):
            request = grant.exchange_request
            grant.resources = [*request.get("audience", []), *request.get("resource", [])]
            grant.usage_rules["access_token"]["expires_in"] = LIFETIME
        return super()._mint_token(grant=grant, **more)


class Named(NoAuthn):  # type: ignore[misc]
    """The user whom the request names, without a login."""

    named = USERS[0]

    def authenticated_as(self, *given: Any, **more: Any) -> tuple[dict[str, str], int]:
        _, now = super().authenticated_as(*given, **more)
        return {"uid": self.named}, now


def _settings(issuer: str) -> dict[str, Any]:
    token = {"class": "idpyoidc.server.token.jwt_token.JWTToken", "kwargs": {"lifetime": LIFETIME}}
    policy = {
        "function": "idpyoidc.server.oauth2.token_helper.validate_token_exchange_policy",
        "kwargs": {"audience": AUDIENCES, "resource": [f"{BACKEND}/a2a", *AUDIENCES[1:]]},
    }
    grants = {
        "authorization_code": {"class": "idpyoidc.server.oauth2.token_helper.access_token.AccessTokenHelper"},
        EXCHANGE: {
            "class": Exchange,
            "kwargs": {"requested_token_types_supported": [ACCESS_TOKEN], "policy": {"": policy}},
        },
    }
    return {
        "issuer": issuer,
        "httpc_params": {"verify": True},
        "key_conf": {"uri_path": "jwks", "key_defs": [{"type": "EC", "crv": "P-256", "use": ["sig"]}]},
        "endpoint": {
            "authorization": {
                "path": "authorization",
                "class": "idpyoidc.server.oauth2.authorization.Authorization",
                "kwargs": {},
            },
            "token": {
                "path": "token",
                "class": "idpyoidc.server.oauth2.token.Token",
                "kwargs": {
                    "client_authn_method": ["client_secret_basic", "client_secret_post"],
                    "grant_types_helpers": grants,
                },
            },
        },
        "authentication": {
            "none": {
                "acr": "none",
                "class": Named,
                "kwargs": {"user": USERS[0]},
            }
        },
        "userinfo": {"class": "idpyoidc.server.user_info.UserInfo", "kwargs": {"db": {user: {} for user in USERS}}},
        "authz": {
            "class": "idpyoidc.server.authz.AuthzHandling",
            "kwargs": {
                "grant_config": {
                    "usage_rules": {
                        "authorization_code": {"supports_minting": ["access_token"], "max_usage": 1},
                        "access_token": {"supports_minting": ["access_token"], "expires_in": LIFETIME},
                    },
                    "expires_in": LIFETIME,
                }
            },
        },
        "session_params": {"sub_func": {"public": {"class": "idpyoidc.server.session.manager.RawID"}}},
        "token_handler_args": {"code": {"lifetime": LIFETIME}, "token": token, "refresh": token},
    }


def _make(issuer: str) -> tuple[Application, Mapping[str, Command]]:
    server = Server(ASConfiguration(conf=_settings(issuer), base_path="."), cwd=".")
    server.context.map_supported_to_preferred()
    for client, grant in (("front", "authorization_code"), ("service", EXCHANGE)):
        server.context.cdb[client] = {
            "client_secret": "secret",
            "redirect_uris": [("https://client.example/callback", None)],
            "response_types": ["code"],
            "grant_types_supported": [grant],
            "allowed_scopes": ["read", "write"],
        }
    documents = {
        "/jwks": server.keyjar.export_jwks(),
        "/.well-known/oauth-authorization-server": server.context.provider_info,
    }
    one_at_a_time = threading.Lock()

    def answer(name: str, form: Any, request: Any) -> tuple[int, str]:
        endpoint = server.get_endpoint(name)
        # A parameter that came once is a string to the library, and one that came again a list.
        parameters = {key: values if len(values) > 1 else values[0] for key, values in form.lists()}
        try:
            parsed = endpoint.parse_request(parameters, {"headers": {**request.headers}})
        except UnAuthorizedClient:
            return 401, json.dumps({"error": "invalid_client"})
        said = endpoint.process_request(parsed)
        return 400 if "error" in said else 200, endpoint.do_response(request=parsed, **said)["response"]

    @Request.application
    def app(request: Any) -> Any:
        with one_at_a_time:
            if request.path in documents:
                return Response(json.dumps(documents[request.path]), content_type="application/json")
            if request.path == "/authorization":
                Named.named = USERS[USERS.index(request.args.get("login_hint", USERS[0]))]
                return Response(status=302, headers={"Location": answer("authorization", request.args, request)[1]})
            if request.path == "/token":
                status, body = answer("token", request.form, request)
                headers = {"Cache-Control": "no-store"}
                return Response(body, status=status, content_type="application/json", headers=headers)
        return Response(status=404)

    return app, {}


if __name__ == "__main__":
    serve(_make)
