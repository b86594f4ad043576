"""Identity assertions (ID-JAG) at a server of another project: Authlib's grant of RFC 7523.

The provider is the ``AuthorizationServer`` of ``a2a_trust.testing`` on a socket, and the agent takes Authlib's tokens.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from a2a_trust import Fetcher, JwtVerifier
from a2a_trust.auth import OAuth2Keys
from a2a_trust.auth.principal import SubjectToken
from a2a_trust.client import ClientSecret, IdentityAssertion, OAuthClient
from a2a_trust.client.flow import run_async
from a2a_trust.errors import TokenRequestError
from a2a_trust.testing import AuthorizationServer
from tests.middleware.agent import uvicorn_serving
from tests.real.token_servers import AUDIENCE, AuthlibServer

pytestmark = pytest.mark.anyio

READ = frozenset({"read"})


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def provider_for(server: AuthlibServer) -> AsyncIterator[AuthorizationServer]:
    """An identity provider that the server trusts."""
    made: Any = None

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await made(scope, receive, send)

    async with uvicorn_serving(app, "h11") as origin:
        made = AuthorizationServer(origin, clients={"service": "secret"})
        server.trust(made.url, json.loads(json.dumps(made.jwks)))
        yield made


def credential_of(server: AuthlibServer, provider: AuthorizationServer, subject: Any, **options: Any) -> Any:
    secret = ClientSecret("secret")
    there = OAuthClient(
        issuer=server.issuer,
        token_endpoint=server.token_url,
        client_id=options.pop("client_id", "service"),
        authentication=secret,
        fetcher=server.fetcher(),
    )
    here = OAuthClient(
        issuer=provider.url,
        token_endpoint=provider.token_endpoint,
        client_id="service",
        authentication=secret,
        fetcher=Fetcher(private_origins=[provider.url], timeout=60),
    )
    about = {"origins": [AUDIENCE], "allowed_scopes": ["read", "write"], "resource": AUDIENCE}
    return IdentityAssertion(there, subject, provider=here, **{**about, **options})


async def test_a_user_of_the_provider_has_a_token_of_the_agents_server(authlib_server: AuthlibServer) -> None:
    async with provider_for(authlib_server) as provider:
        token = provider.token("ann", audience="service", scopes=["read"])
        about: dict[str, Any] = {"issuer": provider.url, "subject": "ann", "expires_at": time.time() + 300}
        subjects = [
            SubjectToken(token, **about, scopes=READ),
            provider.id_token("ann", client="service", scopes=["read"]),
        ]
        keys = OAuth2Keys(authlib_server.issuer, authlib_server.fetcher())
        verifier = JwtVerifier(keys, issuer=authlib_server.issuer, audience=AUDIENCE)
        for subject in subjects:
            authlib_server.token_requests()
            credential = credential_of(authlib_server, provider, subject)
            value = await run_async(credential.obtain(READ))
            identity = await verifier.verify(value.text, time.time())
            assert (identity.subject, identity.scopes, identity.client_id) == ("ann", READ, "service")
            credential.renew(value)
            assert (await run_async(credential.obtain(READ))).text != value.text
            came = authlib_server.token_requests()
            assert [(each.grant, each.scope, each.status) for each in came] == [
                ("urn:ietf:params:oauth:grant-type:jwt-bearer", "read", 200)
            ] * 2


async def test_the_agents_server_rejects_an_assertion_for_another_client_or_of_another_issuer(
    authlib_server: AuthlibServer,
) -> None:
    authlib_server.register("other", grant_types=("urn:ietf:params:oauth:grant-type:jwt-bearer",))
    async with provider_for(authlib_server) as provider:
        subject = provider.id_token("ann", client="service", scopes=["read"])
        stolen = credential_of(authlib_server, provider, subject, client_id="other")
        with pytest.raises(TokenRequestError, match="its client_id is 'service', not 'other'"):
            await run_async(stolen.obtain(READ))
        authlib_server.trust("https://third.example", provider.jwks)
        with pytest.raises(TokenRequestError) as error:
            await run_async(credential_of(authlib_server, provider, subject).obtain(READ))
        assert error.value.error == "invalid_grant"
