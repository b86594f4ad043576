"""What ``CardAuth`` sends, to whom, and how often. Agents and token endpoints are real sockets on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final
from urllib.parse import parse_qsl

import httpx
import pytest

from a2a_trust import VerifiedCard, generate_signer, verify_card
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.client import (
    ApiKey,
    BasicCredentials,
    BearerToken,
    CardAuth,
    ClientCredentials,
    ClientSecret,
    CredentialsError,
    CredentialsRejectedError,
    OAuthClient,
    TokenExchange,
)
from a2a_trust.keys import base64url
from tests.base.net.test_fetcher import Authority
from tests.client.agents import OWNER_TRUSTED, Agent, Asked, Page, card_of, serving_agent, signed, trusting

pytestmark = pytest.mark.anyio

KEY: Final = "key-4f1b9d"
Send = Callable[..., httpx.Response]


@pytest.fixture
def server(authority: Authority) -> Iterator[Agent]:
    """An authorization server, which answers as a test says at /token."""
    with serving_agent(authority.server("127.0.0.1")) as running:
        yield running


def here(agent: Agent) -> str:
    return agent.origin("127.0.0.1")


def verified(agent: Agent, **members: Any) -> VerifiedCard:
    agent.pages.setdefault("/rpc", Page(body=b"{}"))
    return verify_card(signed(card_of(here(agent), **members)), trusting("127.0.0.1"), origin=here(agent))


def login(server: Agent, authority: Authority, **options: Any) -> OAuthClient:
    return OAuthClient(
        **{
            "issuer": here(server),
            "token_endpoint": f"{here(server)}/token",
            "client_id": "orchestrator",
            "authentication": ClientSecret("s3cret"),
            "fetcher": Fetcher(private_origins=[here(server)], ssl_context=authority.client()),
            **options,
        }
    )


def tokens(*answers: dict[str, Any]) -> Callable[[Asked], Page]:
    """A token endpoint that gives these answers, the last one again and again."""
    left = [*answers]

    def page(asked: Asked) -> Page:
        members = left.pop(0) if len(left) > 1 else left[0]
        return Page(body=json.dumps({"token_type": "Bearer", "expires_in": 600, **members}).encode())

    return page


def oauth_scheme(server: Agent, *scopes: str) -> dict[str, Any]:
    flow = {"tokenUrl": f"{here(server)}/token", "scopes": {name: name for name in scopes}}
    return {"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}}


def demanding_login(agent: Agent, server: Agent) -> VerifiedCard:
    return verified(
        agent,
        securitySchemes={"login": oauth_scheme(server)},
        securityRequirements=[{"schemes": {"login": {}}}],
    )


async def ask(agent: Agent, authority: Authority, auth: CardAuth, url: str = "/rpc", **request: Any) -> httpx.Response:
    async with httpx.AsyncClient(verify=authority.client(), auth=auth) as http:
        return await http.post(url if "://" in url else f"{here(agent)}{url}", **{"json": {}, **request})


@pytest.mark.parametrize(
    ("scheme", "credential", "expected"),
    [
        ({"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}, ApiKey, ("x-api-key", KEY)),
        ({"apiKeySecurityScheme": {"location": "cookie", "name": "key"}}, ApiKey, ("cookie", f"key={KEY}")),
        ({"httpAuthSecurityScheme": {"scheme": "Bearer"}}, BearerToken, ("authorization", f"Bearer {KEY}")),
        ({"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://idp.example/.well-known/openid-configuration"}},
         BearerToken, ("authorization", f"Bearer {KEY}")),
    ],
    ids=["header", "cookie", "bearer", "openid"],
)  # fmt: skip
async def test_a_credential_goes_where_the_scheme_says(
    agent: Agent, authority: Authority, scheme: dict[str, Any], credential: Any, expected: tuple[str, str]
) -> None:
    card = verified(agent, securitySchemes={"s": scheme}, securityRequirements=[{"schemes": {"s": {}}}])
    auth = CardAuth(card, {"s": credential(KEY, origins=[here(agent)])}, trust=OWNER_TRUSTED)
    assert (await ask(agent, authority, auth)).status_code == 200
    assert agent.asked[-1].headers[expected[0]] == expected[1]


async def test_a_key_in_the_query_is_sent_and_not_shown(
    agent: Agent, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    scheme = {"apiKeySecurityScheme": {"location": "query", "name": "key"}}
    card = verified(agent, securitySchemes={"s": scheme}, securityRequirements=[{"schemes": {"s": {}}}])
    auth = CardAuth(card, {"s": ApiKey("a b&c", origins=[here(agent)])}, trust=OWNER_TRUSTED)
    caplog.set_level("DEBUG")
    response = await ask(agent, authority, auth, "/rpc?x=1&key=mine")
    assert agent.asked[-1].path == "/rpc?x=1&key=a%20b%26c"
    assert "b%26c" not in caplog.text
    assert "b%26c" not in f"{response.request!r} {response.url} {response.request.url!r}"


async def test_basic_credentials_are_those_of_the_rfc(agent: Agent, authority: Authority) -> None:
    scheme = {"httpAuthSecurityScheme": {"scheme": "basic"}}
    card = verified(agent, securitySchemes={"s": scheme}, securityRequirements=[{"schemes": {"s": {}}}])
    auth = CardAuth(card, {"s": BasicCredentials("Aladdin", "open sesame", origins=[here(agent)])}, trust=OWNER_TRUSTED)
    await ask(agent, authority, auth)
    assert agent.asked[-1].headers["authorization"] == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="  # RFC 7617 2


async def test_a_key_and_a_token_are_sent_together(agent: Agent, server: Agent, authority: Authority) -> None:
    server.pages["/token"] = tokens({"access_token": "t1", "scope": "read"})
    card = verified(
        agent,
        securitySchemes={
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
            "login": oauth_scheme(server, "read"),
        },
        securityRequirements=[{"schemes": {"key": {}, "login": {"list": ["read"]}}}],
    )
    auth = CardAuth(
        card,
        {
            "key": ApiKey(KEY, origins=[here(agent)]),
            "login": ClientCredentials(login(server, authority), origins=[here(agent)], allowed_scopes=["read"]),
        },
        trust=OWNER_TRUSTED,
    )
    await ask(agent, authority, auth)
    await ask(agent, authority, auth)
    assert agent.asked[-1].headers["authorization"] == "Bearer t1"
    assert agent.asked[-1].headers["x-api-key"] == KEY
    [asked] = server.asked
    assert asked.body == b"grant_type=client_credentials&scope=read"
    assert asked.headers["authorization"] == "Basic b3JjaGVzdHJhdG9yOnMzY3JldA=="


async def test_a_rejected_token_is_replaced_once(agent: Agent, server: Agent, authority: Authority) -> None:
    server.pages["/token"] = tokens({"access_token": "t1"}, {"access_token": "t2"})
    card = verified(
        agent, securitySchemes={"login": oauth_scheme(server)}, securityRequirements=[{"schemes": {"login": {}}}]
    )
    agent.pages["/rpc"] = lambda asked: Page(
        body=b"{}" * 5_000, status=200 if asked.headers.get("authorization") == "Bearer t2" else 401
    )
    credential = ClientCredentials(login(server, authority), origins=[here(agent)], allowed_scopes=[])
    auth = CardAuth(card, {"login": credential}, trust=OWNER_TRUSTED)
    assert (await ask(agent, authority, auth)).status_code == 200
    with httpx.Client(verify=authority.client(), auth=auth) as http:
        assert http.post(f"{here(agent)}/rpc", json={}).status_code == 200
    assert [each.headers["authorization"] for each in agent.asked] == ["Bearer t1", "Bearer t2", "Bearer t2"]
    agent.pages["/rpc"] = Page(
        status=401, headers={"WWW-Authenticate": 'Bearer scope="a b", resource_metadata="https://x.example/m"'}
    )
    with pytest.raises(CredentialsRejectedError) as refused:
        await ask(agent, authority, auth)
    assert refused.value.scopes == ("a", "b")
    assert refused.value.resource_metadata == "https://x.example/m"
    assert refused.value.response.status_code == 401
    assert "t2" not in str(refused.value)


async def test_a_request_that_nothing_fits_is_not_sent(agent: Agent, authority: Authority) -> None:
    card = verified(agent)
    auth = CardAuth(card, {"other": ApiKey(KEY, origins=[here(agent)])}, trust=OWNER_TRUSTED)
    with pytest.raises(CredentialsError, match="'key' asks for an API key in the header X-API-Key: pass credentials="):
        await ask(agent, authority, auth)
    assert not agent.asked


async def test_a_step_up_asks_for_scopes_of_the_card_that_the_caller_allows(
    agent: Agent, server: Agent, authority: Authority
) -> None:
    server.pages["/token"] = tokens({"access_token": "t1"}, {"access_token": "t2"})
    challenge = {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="read write"'}
    agent.pages["/rpc"] = lambda asked: Page(
        status=200 if asked.headers.get("authorization") == "Bearer t2" else 403, headers=challenge
    )
    card = verified(
        agent,
        securitySchemes={"login": oauth_scheme(server, "read", "write", "admin")},
        securityRequirements=[{"schemes": {"login": {"list": ["read"]}}}],
    )
    credential = ClientCredentials(
        login(server, authority), origins=[here(agent)], allowed_scopes=["read", "write", "hidden"]
    )
    auth = CardAuth(card, {"login": credential}, trust=OWNER_TRUSTED)
    assert (await ask(agent, authority, auth)).status_code == 200
    assert [each.body.decode().partition("scope=")[2] for each in server.asked] == ["read", "read+write"]
    for scopes in ("admin", "hidden", "other", "read write admin"):
        agent.pages["/rpc"] = Page(
            status=403, headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scopes}"'}
        )
        with pytest.raises(CredentialsRejectedError):
            await ask(agent, authority, auth)
    assert len(server.asked) == 2


async def test_the_step_up_of_one_caller_leaves_others_as_they_are(
    agent: Agent, server: Agent, authority: Authority
) -> None:
    def token(asked: Asked) -> Page:
        form = dict(parse_qsl(asked.body.decode()))
        if form["subject_token"] == "bob" and form["scope"] != "read":  # what he may do
            return Page(status=400, body=b'{"error": "invalid_scope"}')
        issued = {"access_token": f"{form['subject_token']}-{form['scope'].replace(' ', '-')}", "token_type": "Bearer"}
        kind = {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}
        return Page(body=json.dumps({**issued, **kind}).encode())

    def rpc(asked: Asked) -> Page:
        if asked.body == b'"write"' and not asked.headers["authorization"].endswith("read-write"):
            challenge = {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="read write"'}
            return Page(status=403, headers=challenge)
        return Page(body=json.dumps(asked.headers["authorization"]).encode())

    server.pages["/token"], agent.pages["/rpc"] = token, rpc
    card = verified(
        agent,
        securitySchemes={"login": oauth_scheme(server, "read", "write")},
        securityRequirements=[{"schemes": {"login": {"list": ["read"]}}}],
    )
    caller = ContextVar[str]("caller")
    credential = TokenExchange(
        login(server, authority), caller.get, origins=[here(agent)], allowed_scopes=["read", "write"]
    )
    auth = CardAuth(card, {"login": credential}, trust=OWNER_TRUSTED)

    async def called(name: str, operation: str) -> str:
        caller.set(name)
        answer: str = (await ask(agent, authority, auth, json=operation)).json()
        return answer

    assert await called("alice", "write") == "Bearer alice-read-write"
    assert await called("bob", "read") == "Bearer bob-read"
    with pytest.raises(CredentialsError, match="invalid_scope"):
        await called("bob", "write")
    assert await called("bob", "read") == "Bearer bob-read"
    assert await called("alice", "read") == "Bearer alice-read"


async def test_tokens_are_bound_to_a_key(agent: Agent, server: Agent, authority: Authority) -> None:
    signer = generate_signer("ES256")

    def page(asked: Asked) -> Page:
        claims = json.loads(_part(asked.headers["dpop"], 1))
        if claims.get("nonce") != "n1":
            return Page(status=400, body=b'{"error": "use_dpop_nonce"}', headers={"DPoP-Nonce": "n1"})
        return Page(body=b'{"access_token": "t1", "token_type": "DPoP", "expires_in": 60}')

    def rpc(asked: Asked) -> Page:
        claims = json.loads(_part(asked.headers["dpop"], 1))
        if claims.get("nonce") != "a1":
            challenge = {"WWW-Authenticate": 'DPoP error="use_dpop_nonce"', "DPoP-Nonce": "a1"}
            return Page(status=401, headers=challenge)
        return Page(body=json.dumps(claims).encode())

    server.pages["/token"], agent.pages["/rpc"] = page, rpc
    card = verified(
        agent, securitySchemes={"login": oauth_scheme(server)}, securityRequirements=[{"schemes": {"login": {}}}]
    )
    client = login(server, authority, dpop=signer)
    auth = CardAuth(
        card, {"login": ClientCredentials(client, origins=[here(agent)], allowed_scopes=[])}, trust=OWNER_TRUSTED
    )
    response = await ask(agent, authority, auth, "/rpc?secret=1")
    assert response.json()["htu"] == f"{here(agent)}/rpc"
    assert agent.asked[-1].headers["authorization"] == "DPoP t1"
    assert [len(server.asked), len(agent.asked)] == [2, 2]


def _part(token: str, index: int) -> bytes:
    return base64url.decode(token.split(".")[index], "part")
