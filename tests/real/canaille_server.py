"""Canaille as an authorization server: opaque tokens of machines, JWTs of users, introspection and revocation.

Run in its own environment, never imported by a test. Its clients are "service" (client credentials), "web" (the login
of a user, with ID and refresh tokens) and "agent", which is in the audience of both and may therefore introspect.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-any-return, unused-ignore"

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from canaille import create_app
from canaille.app import models
from canaille.backends import Backend

from tests.real.wsgi_server import Application, Command, serve


def _make(issuer: str) -> tuple[Application, Mapping[str, Command]]:
    app = create_app(
        {
            "SECRET_KEY": secrets.token_hex(),
            "SERVER_NAME": issuer.removeprefix("https://"),
            "CANAILLE": {"DATABASE": "memory", "JAVASCRIPT": False, "HTMX": False},
            "CANAILLE_OIDC": {"TRUSTED_DOMAINS": ""},
        }
    )
    with app.app_context():
        _fill()
    return app, {}


def _fill() -> None:
    Backend.instance.save(
        models.User(user_name="alice", family_name="A", emails=["a@x.example"], password="alices-password")
    )
    agent = _client("agent", [])
    agent.audience = [agent]
    Backend.instance.save(agent)
    _client("service", [agent], grant_types=["client_credentials"])
    _client(
        "web",
        [agent],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        redirect_uris=["https://client.example/callback"],
    )


def _client(name: str, audience: list[Any], **metadata: Any) -> Any:
    client = models.Client(
        client_id=name,
        client_secret="secret",
        client_name=name,
        token_endpoint_auth_method="client_secret_basic",
        scope=["openid", "read", "write"],
        audience=audience,
        **metadata,
    )
    Backend.instance.save(client)
    return client


if __name__ == "__main__":
    serve(_make, "/oauth/token")
