"""The causes of a 401 that an error of the client names, from the token and the metadata. It never shows the token."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx
import pytest

from a2a_trust import Fetcher
from a2a_trust.client import (
    BearerToken,
    CardAuth,
    ClientCredentials,
    ClientSecret,
    CredentialsRejectedError,
    OAuthClient,
)
from a2a_trust.keys import base64url
from tests.base.net.test_fetcher import Authority
from tests.client.agents import OWNER_TRUSTED, Agent, Page, card_of
from tests.client.test_rejection import ask, card

__all__ = ["ask"]

pytestmark = pytest.mark.anyio

NOW: Final = int(time.time())
Ask = Callable[..., Awaitable[httpx.Response]]


def token(**claims: Any) -> str:
    return (
        ".".join(base64url.encode(json.dumps(each).encode()) for each in ({"alg": "ES256"}, claims)) + ".c2lnbmF0dXJl"
    )


async def error_of(agent: Agent, ask: Ask, text: str, *, metadata: str | None = None) -> str:
    """The error of a request with this token, which the agent rejects."""
    origin = agent.origin("127.0.0.1")
    verified = card(
        agent,
        securitySchemes={"login": card_of(origin)["securitySchemes"]["login"]},
        securityRequirements=[{"schemes": {"login": {"list": ["read"]}}}],
    )
    named = metadata or f"{origin}/.well-known/oauth-protected-resource/rpc"
    agent.pages["/rpc"] = Page(status=401, headers={"WWW-Authenticate": f'Bearer resource_metadata="{named}"'})
    with pytest.raises(CredentialsRejectedError) as caught:
        await ask(CardAuth(verified, {"login": BearerToken(text, origins=[origin])}, trust=OWNER_TRUSTED))
    assert text not in f"{caught.value} {caught.value!r}"
    return str(caught.value)


async def test_the_audience_is_of_another_agent(agent: Agent, ask: Ask) -> None:
    text = await error_of(agent, ask, token(aud="https://other.example", exp=NOW + 900, scope="read"))
    resource = f"{agent.origin('127.0.0.1')}/rpc"
    assert f"the token is for 'https://other.example', and the agent is the resource '{resource}'" in text
    assert f"pass resource='{resource}' to the credential" in text


async def test_the_right_audience_is_no_cause(agent: Agent, ask: Ask) -> None:
    right = f"{agent.origin('127.0.0.1')}/rpc"
    text = await error_of(agent, ask, token(aud=["x", right], exp=NOW + 900, scope="read"))
    assert "the token" not in text


async def test_the_token_has_expired(agent: Agent, ask: Ask) -> None:
    assert "the token has expired" in await error_of(agent, ask, token(aud="x", exp=NOW - 5))


async def test_a_scope_is_missing(agent: Agent, ask: Ask) -> None:
    right = f"{agent.origin('127.0.0.1')}/rpc"
    assert "the token lacks the scopes read" in await error_of(agent, ask, token(aud=right, scope="write"))


@pytest.mark.parametrize(
    "metadata", ["https://evil.example/.well-known/oauth-protected-resource/rpc", "http://127.0.0.1/x", "x"]
)
async def test_metadata_elsewhere_names_no_resource(agent: Agent, ask: Ask, metadata: str) -> None:
    """The agent could lead the program to get tokens for others."""
    text = await error_of(agent, ask, token(aud="https://other.example", scope="read"), metadata=metadata)
    assert "pass resource=" not in text


@pytest.mark.parametrize("text", ["opaque", "a.b.c", "a.e30.c", "a.W10.c", "..", token(aud=7, exp="x", scope=1)])
async def test_a_token_without_claims_has_no_cause(agent: Agent, ask: Ask, text: str) -> None:
    assert "lacks" not in await error_of(agent, ask, text)


async def test_a_token_that_was_asked_for_without_resource(agent: Agent, authority: Authority, ask: Ask) -> None:
    """Over real sockets: the agent is the authorization server, too."""
    origin = agent.origin("localhost")
    agent.pages["/token"] = Page(body=b'{"access_token": "opaque-77ab", "token_type": "Bearer", "expires_in": 900}')
    login = {"flows": {"clientCredentials": {"tokenUrl": f"{origin}/token", "scopes": {"read": "Read"}}}}
    verified = card(
        agent,
        securitySchemes={"login": {"oauth2SecurityScheme": login}},
        securityRequirements=[{"schemes": {"login": {"list": ["read"]}}}],
    )
    agent.pages["/rpc"] = Page(status=401)

    async def error(**options: Any) -> str:
        client = OAuthClient(
            issuer=origin,
            token_endpoint=f"{origin}/token",
            client_id="c",
            authentication=ClientSecret("client-secret"),
            fetcher=Fetcher(private_origins=[origin], ssl_context=authority.client(), timeout=60),
        )
        here = agent.origin("127.0.0.1")
        login = ClientCredentials(client, origins=[here], allowed_scopes=["read"], **options)
        with pytest.raises(CredentialsRejectedError) as caught:
            await ask(CardAuth(verified, {"login": login}, trust=OWNER_TRUSTED))
        assert "opaque-77ab" not in str(caught.value)
        return str(caught.value)

    assert "the token was asked for without resource=" in await error()
    assert "without resource=" not in await error(resource="https://agent.example")
