"""Authorization servers of other projects whose access tokens are JWTs: which of their tokens are accepted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_trust.auth.discovery import OAuth2Keys, OpenIdKeys
from a2a_trust.auth.introspection import IntrospectionVerifier
from a2a_trust.auth.jwt import JwtVerifier, TokenProfile
from a2a_trust.auth.principal import Identity
from a2a_trust.client import ClientSecret
from a2a_trust.errors import InvalidCredentialsError
from tests.real.code_flow import AUDIENCE
from tests.real.glewlwyd import Glewlwyd
from tests.real.test_introspection_servers import verifier_of
from tests.real.token_servers import AuthlibServer, CanailleServer, DjangoServer

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def verified(verifier: JwtVerifier | IntrospectionVerifier, token: str) -> Identity:
    return await verifier.verify_bound(token, time.time())


async def rejected(verifier: JwtVerifier | IntrospectionVerifier, token: str) -> str:
    with pytest.raises(InvalidCredentialsError) as caught:
        await verified(verifier, token)
    return str(caught.value)


# django-oauth-toolkit


@pytest.fixture
def django(django_server: DjangoServer) -> Iterator[DjangoServer]:
    yield django_server
    django_server.token_form("opaque")


def django_verifier(server: DjangoServer) -> JwtVerifier:
    return JwtVerifier(OpenIdKeys(server.issuer, server.fetcher()), issuer=server.issuer, audience=AUDIENCE)


async def test_jwts_of_django_oauth_toolkit_and_its_id_tokens(django: DjangoServer) -> None:
    django.token_form("jwt")
    verifier, tokens = django_verifier(django), django.login("openid read")
    machine, user = await verified(verifier, django.machine_token()), await verified(verifier, tokens["access_token"])
    assert (machine.subject, {*machine.scopes}) == ("service", {"read"})
    assert (user.subject, {*user.scopes}) == ("alice", {"openid", "read"})
    assert "typ is not at+jwt" in await rejected(verifier, tokens["id_token"])


async def test_without_a_generator_of_its_own_the_refresh_token_of_django_oauth_toolkit_is_an_access_token(
    django: DjangoServer,
) -> None:
    """The toolkit makes both with ACCESS_TOKEN_GENERATOR: only the introspection of the server tells them apart."""
    django.token_form("jwt")
    tokens = django.login()
    assert (await verified(django_verifier(django), tokens["refresh_token"])).subject == "alice"
    introspection = verifier_of(django)
    assert "not active" in await rejected(introspection, tokens["refresh_token"])
    assert (await verified(introspection, tokens["access_token"])).subject == "alice"


async def test_with_a_generator_of_its_own_the_refresh_token_of_django_oauth_toolkit_is_rejected(
    django: DjangoServer,
) -> None:
    django.token_form("jwt-with-random-refresh-tokens")
    tokens = django.login()
    assert (await verified(django_verifier(django), tokens["access_token"])).subject == "alice"
    await rejected(django_verifier(django), tokens["refresh_token"])


# Authlib


async def test_jwts_of_authlib_pass_and_its_refresh_tokens_do_not(authlib_server: AuthlibServer) -> None:
    server = authlib_server
    verifier = JwtVerifier(OAuth2Keys(server.issuer, server.fetcher()), issuer=server.issuer, audience=AUDIENCE)
    tokens = server.login()
    assert (await verified(verifier, server.machine_token())).subject == "service"
    assert (await verified(verifier, tokens["access_token"])).subject == "alice"
    await rejected(verifier, tokens["refresh_token"])


# Canaille


@pytest.mark.parametrize("profile", TokenProfile)
async def test_the_access_token_of_a_user_of_canaille_looks_like_an_id_token(
    canaille_server: CanailleServer, profile: TokenProfile
) -> None:
    """It has no scope and no mark, so as a JWT it is rejected; introspection tells which of the two it is."""
    server = canaille_server
    tokens = server.login("openid read")
    verifier = JwtVerifier(
        OpenIdKeys(server.issuer, server.fetcher()), issuer=server.issuer, audience=server.audience, profile=profile
    )
    for kind in ("access_token", "id_token", "refresh_token"):
        await rejected(verifier, tokens[kind])
    introspection = verifier_of(server)
    assert (await verified(introspection, tokens["access_token"])).subject == "alice"
    for kind in ("id_token", "refresh_token"):
        await rejected(introspection, tokens[kind])


# Glewlwyd


async def test_jwts_of_glewlwyd_pass_and_its_other_tokens_do_not(glewlwyd: Glewlwyd) -> None:
    keys = OpenIdKeys(glewlwyd.issuer, glewlwyd.fetcher())
    verifier = JwtVerifier(keys, issuer=glewlwyd.issuer, audience=AUDIENCE)
    tokens = glewlwyd.login()
    machine = await verified(verifier, glewlwyd.machine_token())
    user = await verified(verifier, tokens["access_token"])
    assert (machine.subject, {*machine.scopes}) == ("service", {"read"})
    assert user.scopes == {"openid", "read"}
    assert user.subject not in ("alice", "service")  # a name that means nothing elsewhere
    assert "typ is not at+jwt" in await rejected(verifier, tokens["id_token"])
    await rejected(verifier, tokens["refresh_token"])


async def test_glewlwyd_answers_a_client_about_its_own_tokens_only(glewlwyd: Glewlwyd) -> None:
    def asking_as(client: str, **options: Any) -> IntrospectionVerifier:
        return IntrospectionVerifier(
            glewlwyd.introspection_url,
            issuer=glewlwyd.issuer,
            client_id=client,
            authentication=ClientSecret("secret"),
            fetcher=glewlwyd.fetcher(),
            **{"audience": AUDIENCE, **options},
        )

    machine, tokens = glewlwyd.machine_token(), glewlwyd.login()
    assert "not active" in await rejected(asking_as("agent"), machine)
    identity = await verified(asking_as("service"), machine)
    assert (identity.issuer, identity.subject) == (f"{glewlwyd.issuer}#client_id", "service")
    for audience in (AUDIENCE, "web"):  # "web" is the audience of the two others
        verifier = asking_as("web", audience=audience)
        for kind in ("refresh_token", "id_token"):
            await rejected(verifier, tokens[kind])
    assert (await verified(asking_as("web"), tokens["access_token"])).scopes == {"openid", "read"}
