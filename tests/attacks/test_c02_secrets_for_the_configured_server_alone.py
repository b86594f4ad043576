"""C2: a card, a challenge or an answer names the attacker's authorization server (MCP CVE-2026-104850, -115563).

The attacker's server records what it gets. The configured one may itself redirect, stall, answer oddly, and repeat what
it was sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qs

import httpx
import pytest

from a2a_trust import generate_signer
from a2a_trust.auth.principal import SubjectToken
from a2a_trust.client import (
    ApiKey,
    BasicCredentials,
    BearerToken,
    CardAuth,
    ClientCredentials,
    ClientSecret,
    CredentialsError,
    CredentialsRejectedError,
    IdentityAssertion,
    OAuthClient,
    PrivateKeyJwt,
    RefreshToken,
    TlsClientAuth,
    TokenExchange,
)
from a2a_trust.client.credentials import Credential
from a2a_trust.client.flow import run_async
from a2a_trust.errors import TokenRequestError
from tests.attacks.calling import (
    CLIENT_SECRET,
    PASSWORD,
    TOKEN,
    VICTIM,
    Ask,
    Servers,
    assert_got_nothing,
    card_with,
    leaks_in,
    oauth_scheme,
    one_of,
    tokens,
)
from tests.client.agents import OWNER_TRUSTED, Asked, Page
from tests.client.proofs import proof_in
from tests.tables import walk

SIGNER: Final = generate_signer("ES256", kid="client")

AUTHENTICATIONS: Final[dict[str, Callable[[], Any]]] = {
    "basic": lambda: ClientSecret(CLIENT_SECRET),
    "post": lambda: ClientSecret(CLIENT_SECRET, method="client_secret_post"),
    "jwt": lambda: PrivateKeyJwt(SIGNER),
    "tls": TlsClientAuth,
}


def held(grant: str, client: OAuthClient, origin: str, *scopes: str) -> Credential:
    options: Any = {"origins": [origin], "allowed_scopes": scopes}
    if grant == "client credentials":
        return ClientCredentials(client, **options)
    if grant == "refresh token":
        return RefreshToken(client, "secret-refresh", **options)
    subject = SubjectToken("secret-subject", issuer="https://i.example", subject="ann", expires_at=time.time() + 60)
    if grant == "identity assertion":
        return IdentityAssertion(client, subject, provider=client, **options)
    return TokenExchange(client, subject, **options)


GRANTS: Final = ("client credentials", "refresh token", "token exchange")


def schemes_of_the_attacker(servers: Servers) -> dict[str, dict[str, Any]]:
    """Schemes that lead to the attacker, or to almost the right server; all have what the right one has, too."""
    good, evil = servers.token_endpoint, f"{servers.evil}/token"
    origin = servers.login.origin(VICTIM)
    metadata = "/.well-known/oauth-authorization-server"

    def with_metadata(url: str, **members: Any) -> dict[str, Any]:
        scheme = oauth_scheme(good)
        scheme["oauth2SecurityScheme"]["oauth2MetadataUrl"] = url
        return scheme

    lookalikes = {
        "another port": f"{servers.thief.origin(VICTIM)}/token",
        "another path": f"{good}/../steal",
        "a longer path": f"{good}/x",
        "a slash": f"{good}/",
        "a query": f"{good}?to={evil}",
        "a fragment": f"{good}#x",
        "another case": good.replace("/token", "/Token"),
        "http": good.replace("https:", "http:"),
        "a user": good.replace("https://", f"https://{VICTIM}@localhost:{servers.thief.port}/"),
        "a longer host": good.replace(VICTIM, f"{VICTIM}.evil.test"),
        "a blank": f"{good} ",
    }
    return {
        "token endpoint": oauth_scheme(evil),
        "refresh endpoint": oauth_scheme(evil, refreshUrl=evil),
        "metadata": with_metadata(f"{servers.evil}{metadata}"),
        "metadata of almost the issuer": with_metadata(f"{origin}{metadata}/evil"),
        "openid": {
            "openIdConnectSecurityScheme": {"openIdConnectUrl": f"{servers.evil}/.well-known/openid-configuration"}
        },
        "openid at another port": {
            "openIdConnectSecurityScheme": {
                "openIdConnectUrl": f"{servers.thief.origin(VICTIM)}/.well-known/openid-configuration"
            }
        },
        **{name: oauth_scheme(url) for name, url in lookalikes.items()},
    }


NAMES: Final = (
    *("token endpoint", "refresh endpoint", "metadata", "metadata of almost the issuer", "openid"),
    *("openid at another port", "another port", "another path", "a longer path", "a slash", "a query", "a fragment"),
    *("another case", "http", "a user", "a longer host", "a blank"),
)


@walk("name", NAMES)
def test_a_card_that_names_another_server_gets_no_token(servers: Servers, asks: Ask, name: str) -> None:
    card = card_with(servers.origin, {"login": schemes_of_the_attacker(servers)[name]}, {"login": []})
    for grant in (*GRANTS, "identity assertion"):
        for authentication in AUTHENTICATIONS.values():
            client = servers.client(authentication=authentication())
            auth = CardAuth(card, {"login": held(grant, client, servers.origin)}, trust=OWNER_TRUSTED)
            with pytest.raises(CredentialsError, match="the OAuthClient is for the"):
                asks(auth, f"{servers.origin}/rpc")
    assert [servers.agent.asked, servers.thief.asked, servers.login.asked] == [[], [], []]


@walk("grant", GRANTS)
@walk("authentication", [*AUTHENTICATIONS])
def test_a_card_that_names_another_server_beside_the_right_one_changes_nothing(
    servers: Servers, asks: Ask, grant: str, authentication: str
) -> None:
    """The token comes from where the program says, whatever else the card has."""
    evil = f"{servers.evil}/token"
    scheme = {
        "oauth2SecurityScheme": {
            "flows": {
                "clientCredentials": {"tokenUrl": evil, "refreshUrl": servers.token_endpoint, "scopes": {}},
            }
        }
    }
    issued = "urn:ietf:params:oauth:token-type:access_token"
    servers.login.pages["/token"] = tokens(issued_token_type=issued)
    client = servers.client(authentication=AUTHENTICATIONS[authentication](), dpop=None)
    card = card_with(servers.origin, {"login": scheme}, {"login": []})
    asks(CardAuth(card, {"login": held(grant, client, servers.origin)}, trust=OWNER_TRUSTED), f"{servers.origin}/rpc")
    assert servers.agent.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert servers.login.paths() == ["/token"]
    assert servers.thief.asked == []


def login_card(servers: Servers, *demanded: str) -> Any:
    scheme = oauth_scheme(servers.token_endpoint, "read", "write", "admin")
    return card_with(servers.origin, {"login": scheme}, {"login": [*demanded]})


def login_auth(servers: Servers, *allowed: str, **options: Any) -> CardAuth:
    credential = ClientCredentials(servers.client(**options), origins=[servers.origin], allowed_scopes=allowed)
    return CardAuth(login_card(servers, *allowed[:1]), {"login": credential}, trust=OWNER_TRUSTED)


def scopes_asked(servers: Servers) -> list[str]:
    return [parse_qs(asked.body.decode()).get("scope", [""])[0] for asked in servers.login.asked]


# Challenges


@walk("status", [401, 403])
@walk(
    "challenge",
    [
        'Bearer resource_metadata="{evil}/.well-known/oauth-protected-resource"',
        'Bearer error="insufficient_scope", resource_metadata="{evil}/m", scope="admin"',
        'Bearer realm="{evil}", authorization_uri="{evil}/token", issuer="{evil}", as_uri="{evil}"',
        'Bearer error="invalid_token", scope="admin write", token_endpoint="{evil}/token"',
        'DPoP error="use_dpop_nonce", resource_metadata="{evil}/m"',
        'Basic realm="{evil}"',
        'Digest realm="x", nonce="n", domain="{evil}"',
        "Negotiate",
        'GNAP as_uri="{evil}/token", Bearer error="insufficient_scope", scope="hidden"',
    ],
)
def test_no_challenge_leads_elsewhere_or_to_more(servers: Servers, asks: Ask, status: int, challenge: str) -> None:
    headers = {
        "WWW-Authenticate": challenge.format(evil=servers.evil),
        "Link": f'<{servers.evil}/m>; rel="oauth-protected-resource"',
        "DPoP-Nonce": "n",
    }
    servers.agent.pages["/rpc"] = Page(status=status, headers=headers)
    servers.login.pages["/token"] = tokens()
    auth = login_auth(servers, "read", "write")
    told = ""
    try:
        assert asks(auth, f"{servers.origin}/rpc").status_code == 403
    except CredentialsRejectedError as refused:
        told = str(refused)
    assert leaks_in(told) == []
    assert servers.thief.asked == []
    assert set(scopes_asked(servers)) == {"read"}
    assert {asked.headers["authorization"] for asked in servers.agent.asked} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    "scope",
    [
        "admin",
        "read admin",
        "write admin",
        "hidden",
        "write hidden",
        "WRITE",
        "write,admin",
        'write\\"',
        "",
        "write  read",
        " write",
    ],
)
def test_a_step_up_goes_no_further_than_card_and_caller(servers: Servers, asks: Ask, scope: str) -> None:
    """The card has read, write and admin; the caller allows read, write and hidden."""
    challenge = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'}
    servers.agent.pages["/rpc"] = Page(status=403, headers=challenge)
    servers.login.pages["/token"] = tokens()
    with suppress(CredentialsRejectedError):
        asks(login_auth(servers, "read", "write", "hidden"), f"{servers.origin}/rpc")
    assert scopes_asked(servers) == ["read"]
    assert len(servers.agent.asked) == 1


def test_a_step_up_that_the_server_refuses_is_forgotten(servers: Servers, asks: Ask) -> None:
    """Else one answer of the agent would stop all further requests."""
    challenge = {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="write"'}
    servers.agent.pages["/rpc"] = one_of(Page(status=403, headers=challenge), b"{}")

    def token(asked: Asked) -> Page:
        if b"write" in asked.body:
            return Page(status=400, body=b'{"error": "invalid_scope"}')
        return Page(body=tokens(expires_in=0.01))  # so that the next request asks again

    servers.login.pages["/token"] = token
    auth = login_auth(servers, "read", "write")
    with pytest.raises(CredentialsError, match="invalid_scope"):
        asks(auth, f"{servers.origin}/rpc")
    assert asks(auth, f"{servers.origin}/rpc").status_code == 200


def test_a_step_up_that_the_server_refuses_fails_nobody_who_waits_for_less(servers: Servers) -> None:
    """One login asks for one token at a time, and an agent can make it ask for a token that it does not get."""

    def token(asked: Asked) -> Page:
        if b"write" in asked.body:
            time.sleep(0.3)
            return Page(status=400, body=b'{"error": "invalid_scope"}')
        return Page(body=tokens())

    servers.login.pages["/token"] = token
    credential = held("refresh token", servers.client(), servers.origin, "read", "write")

    async def obtain_both() -> list[Any]:
        more = asyncio.create_task(run_async(credential.obtain(frozenset({"read", "write"}))))
        while not servers.login.asked:
            await asyncio.sleep(0.01)
        less = run_async(credential.obtain(frozenset({"read"})))
        return [*await asyncio.gather(more, less, return_exceptions=True)]

    refused, value = asyncio.run(obtain_both())
    assert isinstance(refused, TokenRequestError)
    assert value.text == TOKEN


# Endless demands


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("dpop", [None, SIGNER], ids=["bearer", "dpop"])
def test_endless_demands_come_to_an_end(servers: Servers, asks: Ask, status: int, dpop: Any) -> None:
    """Each answer has another nonce, and wants another token and more scopes."""
    kind = "Bearer" if dpop is None else "DPoP"

    def rpc(asked: Asked) -> Page:
        challenge = f'{kind} error="use_dpop_nonce", Bearer error="insufficient_scope", scope="read write"'
        nonce = f"n{len(servers.agent.asked)}"
        return Page(status=status, headers={"WWW-Authenticate": challenge, "DPoP-Nonce": nonce})

    def token(asked: Asked) -> Page:
        members = tokens(access_token=f"{TOKEN}-{len(servers.login.asked)}", token_type=kind)
        return Page(body=members, headers={"DPoP-Nonce": f"n{len(servers.login.asked)}"})

    servers.agent.pages["/rpc"], servers.login.pages["/token"] = rpc, token
    auth = login_auth(servers, "read", "write", dpop=dpop)
    with pytest.raises(CredentialsRejectedError):
        asks(auth, f"{servers.origin}/rpc")
    assert len(servers.agent.asked) <= (3 if dpop else 2)
    assert len(servers.login.asked) <= 2


def test_a_token_endpoint_that_always_wants_another_nonce_is_asked_twice(servers: Servers, asks: Ask) -> None:
    servers.login.pages["/token"] = lambda asked: Page(
        status=400,
        body=b'{"error": "use_dpop_nonce"}',
        headers={"DPoP-Nonce": f"n{len(servers.login.asked)}"},
    )
    with pytest.raises(CredentialsError, match="use_dpop_nonce"):
        asks(login_auth(servers, "read", dpop=SIGNER), f"{servers.origin}/rpc")
    assert [proof_in(asked).claims.get("nonce") for asked in servers.login.asked] == [None, "n1"]
    assert servers.agent.asked == []


def test_nonces_of_the_agent_do_not_go_to_the_login(servers: Servers, asks: Ask) -> None:
    servers.login.pages["/token"] = Page(body=tokens(token_type="DPoP"), headers={"DPoP-Nonce": "of-login"})
    servers.agent.pages["/rpc"] = Page(body=b"{}", headers={"DPoP-Nonce": "of-agent"})
    client = servers.client(dpop=SIGNER)
    credential = ClientCredentials(client, origins=[servers.origin], allowed_scopes=["read", "write"])
    for scope in ("read", "write"):
        asks(CardAuth(login_card(servers, scope), {"login": credential}, trust=OWNER_TRUSTED), f"{servers.origin}/rpc")
    assert [proof_in(asked).claims.get("nonce") for asked in servers.login.asked] == [None, "of-login"]
    assert [proof_in(asked).claims.get("nonce") for asked in servers.agent.asked] == [None, "of-agent"]


# The configured server misbehaves


@walk("status", [300, 301, 302, 303, 307, 308])
@walk("authentication", [*AUTHENTICATIONS])
def test_a_token_endpoint_that_redirects_sends_nobody_on(
    servers: Servers, asks: Ask, status: int, authentication: str
) -> None:
    servers.login.pages["/token"] = Page(
        status=status, body=tokens(), headers={"Location": f"{servers.evil}/token", "Content-Location": servers.evil}
    )
    client = servers.client(authentication=AUTHENTICATIONS[authentication](), dpop=SIGNER)
    auth = CardAuth(login_card(servers), {"login": held("refresh token", client, servers.origin)}, trust=OWNER_TRUSTED)
    with pytest.raises(CredentialsError):
        asks(auth, f"{servers.origin}/rpc")
    assert len(servers.login.asked) == 1
    assert servers.thief.asked == servers.agent.asked == []


ODD: Final[dict[str, bytes]] = {
    "nothing": b"",
    "no JSON": b"access_token=secret-token&token_type=Bearer",
    "null": b"null",
    "a list": b"[" + tokens() + b"]",
    "a text": json.dumps(tokens().decode()).encode(),
    "nested": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "lists": b"[" * 100_000,
    "twice": tokens()[:-1] + b', "access_token": "x"}',
    "utf-16": tokens().decode().encode("utf-16"),
    "huge": tokens(filler="a" * 2_000_000),
    "a token with line breaks": tokens(access_token="secret-token\r\nX-Evil: 1"),
    "an empty token": tokens(access_token=""),
    "a token of blanks": tokens(access_token="secret-token b"),
    "a token of UTF-8": tokens(access_token="sécret-token"),
    "a token that is a number": tokens(access_token=1),
    "a list of tokens": tokens(access_token=[TOKEN]),
    "a null token": tokens(access_token=None),
    "no type": tokens(token_type=None),
    "mac": tokens(token_type="mac"),
    "dpop": tokens(token_type="DPoP"),
    "a list of types": tokens(token_type=["Bearer"]),
    "never good": tokens(expires_in=0),
    "negative": tokens(expires_in=-1),
    "true": tokens(expires_in=True),
    "a list of seconds": tokens(expires_in=[600]),
    "infinite": tokens(expires_in="9" * 400),
    "words": tokens(expires_in="secret-token"),
    "not a number": tokens()[:-1] + b', "x": NaN}',
    "too large": tokens()[:-1] + b', "x": 1e999}',
    "huge int": tokens(expires_in=int("9" * 400)),
    "a list of scopes": tokens(scope=["read"]),
    "other scopes": tokens(scope="secret-scope"),
    "fewer scopes": tokens(scope=""),
    "a bad refresh token": tokens(refresh_token="secret-refresh\n"),
}


@walk("name", [*ODD])
def test_an_answer_that_is_no_token_is_none(
    servers: Servers, asks: Ask, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    servers.login.pages["/token"] = ODD[name]
    caplog.set_level(logging.DEBUG)
    with pytest.raises(CredentialsError) as refused:
        asks(login_auth(servers, "read"), f"{servers.origin}/rpc")
    assert servers.agent.asked == []
    assert leaks_in(f"{refused.value} {refused.value!r} {refused.value.__cause__!r} {caplog.text}") == []


def test_control_the_ordinary_answer_is_a_token(servers: Servers, asks: Ask) -> None:
    servers.login.pages["/token"] = tokens(scope="read more", expires_in="600")
    assert asks(login_auth(servers, "read"), f"{servers.origin}/rpc").status_code == 200


def test_a_token_endpoint_that_never_answers_holds_nobody_up(servers: Servers, asks: Ask) -> None:
    is_over = threading.Event()

    def late(asked: Asked) -> Page:
        is_over.wait(60)
        return Page(body=tokens())

    servers.login.pages["/token"] = late
    try:
        with pytest.raises(CredentialsError, match="no complete answer within 2 seconds"):
            asks(login_auth(servers, "read"), f"{servers.origin}/rpc")
    finally:
        is_over.set()
    assert servers.agent.asked == []


@walk("status", [200, 400, 401, 403, 500])
@walk("authentication", ["basic", "post", "jwt"])
def test_a_token_endpoint_that_repeats_what_it_got_is_not_quoted(
    servers: Servers, asks: Ask, status: int, authentication: str, caplog: pytest.LogCaptureFixture
) -> None:
    def echo(asked: Asked) -> Page:
        said = f"{asked.headers.get('authorization', '')} {asked.body.decode()} {CLIENT_SECRET} secret-refresh"
        names = ("error", "error_description", "error_uri", "token_type", "scope", "issued_token_type")
        members = dict.fromkeys(names, said)
        return Page(status=status, body=json.dumps({**members, "access_token": said}).encode())

    servers.login.pages["/token"] = echo
    client = servers.client(authentication=AUTHENTICATIONS[authentication]())
    caplog.set_level(logging.DEBUG)
    with pytest.raises(CredentialsError) as refused:
        asks(
            CardAuth(
                login_card(servers), {"login": held("refresh token", client, servers.origin)}, trust=OWNER_TRUSTED
            ),
            f"{servers.origin}/rpc",
        )
    assert leaks_in(f"{refused.value} {refused.value!r} {refused.value.__cause__!r} {caplog.text}") == []
    assert servers.agent.asked == servers.thief.asked == []


@walk("status", [401, 403])
@walk("scheme", ["bearer", "basic"])
@walk("said", ["as it came", PASSWORD])
def test_an_agent_that_repeats_what_it_got_is_not_quoted(
    servers: Servers, asks: Ask, status: int, scheme: str, said: str
) -> None:
    def echo(asked: Asked) -> Page:
        repeated = said if said == PASSWORD else asked.headers["authorization"].partition(" ")[2]
        metadata = f'resource_metadata="https://x.example/{repeated}"'
        challenge = f'Bearer error="insufficient_scope", scope="{repeated}", {metadata}'
        return Page(status=status, headers={"WWW-Authenticate": challenge})

    servers.agent.pages["/rpc"] = echo
    card = card_with(servers.origin, {"s": {"httpAuthSecurityScheme": {"scheme": scheme}}}, {"s": []})
    basic = BasicCredentials("ann", PASSWORD, origins=[servers.origin])
    credential = basic if scheme == "basic" else BearerToken(PASSWORD, origins=[servers.origin])
    with pytest.raises(CredentialsRejectedError) as refused:
        asks(CardAuth(card, {"s": credential}, trust=OWNER_TRUSTED), f"{servers.origin}/rpc")
    error = refused.value
    assert leaks_in(f"{error} {error!r} {error.scopes} {error.resource_metadata} {error.schemes}") == []


def test_a_key_of_another_kind_does_not_answer_a_login(servers: Servers, asks: Ask) -> None:
    auth = CardAuth(login_card(servers), {"login": ApiKey("secret-key", origins=[servers.origin])}, trust=OWNER_TRUSTED)
    with pytest.raises(CredentialsError):
        asks(auth, f"{servers.origin}/rpc")
    assert_got_nothing(servers.agent, servers.login)
    assert servers.agent.asked == []


def test_a_stream_is_not_sent_twice(servers: Servers) -> None:
    servers.agent.pages["/rpc"] = Page(status=401)
    servers.login.pages["/token"] = tokens()
    with (
        httpx.Client(auth=login_auth(servers, "read"), verify=servers.authority.client()) as http,
        pytest.raises(CredentialsRejectedError, match="cannot be sent twice"),
    ):
        http.post(f"{servers.origin}/rpc", content=iter([b"{", b"}"]), headers={"Content-Length": "2"})
    assert len(servers.agent.asked) == 1
