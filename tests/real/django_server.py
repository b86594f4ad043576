"""django-oauth-toolkit as an authorization server: opaque tokens, their introspection and revocation, a real login.

Run in its own environment, never imported by a test. Its clients are "service" (client credentials), "web" (the login
of a user, with ID and refresh tokens) and "agent", which may ask about tokens.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-any-return, misc, unused-ignore"

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import django
from django.conf import settings
from django.core.management import call_command
from jwcrypto.jwk import JWK
from jwcrypto.jwt import JWT

from tests.real.wsgi_server import Application, Command, serve

AUDIENCE: Final = "https://agent.example"
PREFIX: Final = "/o"
LOGIN_FORM: Final = '<form method="post">{% csrf_token %}{{ form.as_p }}</form>'
urlpatterns: Final[list[Any]] = []
"""Django reads these when the first request comes."""

KEY: Final = JWK.generate(kty="RSA", size=2048)
JWT_TOKENS: Final = {"ACCESS_TOKEN_GENERATOR": f"{__name__}.signed_access_token"}
RANDOM_REFRESH_TOKENS: Final = {"REFRESH_TOKEN_GENERATOR": "oauthlib.oauth2.rfc6749.tokens.random_token_generator"}

sys.modules["tests.real.django_server"] = sys.modules[__name__]  # the settings name the functions of this module


def signed_access_token(request: Any) -> str:
    """An access token of RFC 9068, as the documentation of the toolkit has its users write it for themselves."""
    now = int(time.time())
    claims = {
        "iss": settings.OAUTH2_PROVIDER["OIDC_ISS_ENDPOINT"],
        "sub": request.user.get_username() if request.user else request.client.client_id,
        "aud": AUDIENCE,  # the toolkit learns the resource of a code only after the token is made
        "client_id": request.client.client_id,
        "scope": " ".join(request.scopes),
        "iat": now,
        "exp": now + request.expires_in,
        "jti": secrets.token_hex(8),
    }
    token = JWT(header={"alg": "RS256", "typ": "at+jwt", "kid": KEY.thumbprint()}, claims=claims)
    token.make_signed_token(KEY)
    return token.serialize()


def _configure(issuer: str, folder: Path) -> None:
    settings.configure(
        SECRET_KEY=secrets.token_hex(),
        ALLOWED_HOSTS=["127.0.0.1"],
        ROOT_URLCONF="tests.real.django_server",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "django.sqlite3"}},
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "oauth2_provider",
        ],
        MIDDLEWARE=[
            "django.middleware.security.SecurityMiddleware",
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {
                    "loaders": [
                        ("django.template.loaders.locmem.Loader", {"registration/login.html": LOGIN_FORM}),
                        "django.template.loaders.app_directories.Loader",
                    ]
                },
            }
        ],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.PBKDF2PasswordHasher"],
        USE_TZ=True,
        OAUTH2_PROVIDER={
            "SCOPES": {"openid": "who you are", "read": "read", "write": "write"},
            "OIDC_ENABLED": True,
            "OIDC_ISS_ENDPOINT": issuer,
            "OIDC_RSA_PRIVATE_KEY": KEY.export_to_pem(private_key=True, password=None).decode(),
            "ACCESS_TOKEN_EXPIRE_SECONDS": 600,
            "ALWAYS_RELOAD_OAUTHLIB_CORE": True,  # the tests change how tokens are made
        },
    )
    django.setup()


def _fill() -> None:
    """The tables, one user and three clients. Few rounds are enough for the passwords of a test."""
    # Django's models can be imported only after it is configured.
    from django.contrib.auth.hashers import PBKDF2PasswordHasher
    from django.contrib.auth.models import User
    from oauth2_provider.models import Application as Client

    PBKDF2PasswordHasher.iterations = 1000
    call_command("migrate", verbosity=0)
    User.objects.create_user("alice", password="alices-password")
    for name in ("service", "agent"):
        Client.objects.create(
            client_id=name,
            client_secret="secret",
            client_type="confidential",
            authorization_grant_type="client-credentials",
        )
    Client.objects.create(
        client_id="web",
        client_secret="secret",
        client_type="confidential",
        authorization_grant_type="authorization-code",
        redirect_uris="https://client.example/callback",
        algorithm="RS256",
    )


def _make(origin: str) -> tuple[Application, Mapping[str, Command]]:
    _configure(f"{origin}{PREFIX}", Path(sys.argv[1]).parent)
    _fill()
    from django.contrib.auth.models import User
    from django.contrib.auth.views import LoginView
    from django.core.wsgi import get_wsgi_application
    from django.urls import include, path
    from oauth2_provider.settings import oauth2_settings

    urlpatterns.extend((path("o/", include("oauth2_provider.urls")), path("accounts/login/", LoginView.as_view())))
    plain = dict(settings.OAUTH2_PROVIDER)

    def token_form(form: str) -> None:
        """Tokens are "opaque", "jwt", or "jwt-with-random-refresh-tokens" from now on."""
        forms = {"opaque": {}, "jwt": JWT_TOKENS, "jwt-with-random-refresh-tokens": JWT_TOKENS | RANDOM_REFRESH_TOKENS}
        settings.OAUTH2_PROVIDER = {**plain, **forms[form]}
        oauth2_settings.reload()

    def set_active(user: str, active: bool) -> None:
        User.objects.filter(username=user).update(is_active=active)

    return get_wsgi_application(), {"tokenForm": token_form, "setActive": set_active}


if __name__ == "__main__":
    serve(_make, f"{PREFIX}/token/")
