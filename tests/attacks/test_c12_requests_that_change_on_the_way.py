"""C12: between the decision about a request and its sending, the request, the card or the trusted keys change.

A program may change a request that it sends twice at once, a hook may, and a key may be revoked while a token is
fetched. What counts is what the servers recorded.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from a2a_trust import TrustStore
from a2a_trust.client import (
    ApiKey,
    AsyncVerifyingTransport,
    BearerToken,
    CardAuth,
    ClientCredentials,
    CredentialsError,
    CredentialsRejectedError,
    UnverifiedCardError,
    VerifyingTransport,
    verifying_client,
)
from tests.attacks.calling import (
    KEY,
    TOKEN,
    VICTIM,
    Ask,
    Servers,
    card_with,
    key_scheme,
    oauth_scheme,
    tokens,
)
from tests.attacks.test_c10_credentials_after_a_revocation import ChangingTrust, trusted
from tests.client.agents import NEW, OLD, OWNER_TRUSTED, Asked, Page, card_of, signed, trusting

REVOKED: Final = TrustStore([trusted(revoked=True)])


def demanding(servers: Servers, name: str = "X-API-Key", **members: Any) -> bytes:
    return signed(
        card_of(
            servers.origin,
            securitySchemes={"key": key_scheme(name)},
            securityRequirements=[{"schemes": {"key": {"list": []}}}],
            **members,
        )
    )


def client_for(servers: Servers, bundle: Path, **options: Any) -> httpx.AsyncClient:
    return verifying_client(
        servers.origin,
        **{
            "trust": trusting(VICTIM),
            "credentials": {"key": ApiKey(KEY, origins=[servers.origin])},
            "authorities": bundle,
            **options,
        },
    )


def once(first: Callable[[], None], page: Page | bytes) -> Callable[[Asked], Page]:
    """A page, before whose first answer something happens."""
    left = [first]

    def answer(asked: Asked) -> Page:
        if left:
            left.pop()()
        return page if isinstance(page, Page) else Page(body=page)

    return answer


def change(request: httpx.Request, url: str) -> None:
    request.url = httpx.URL(url)
    request.method = "PUT"
    request.headers["X-Note"] = "changed"
    request.stream = httpx.ByteStream(b"changed")


def test_a_request_that_changes_while_the_card_of_the_agent_is_fetched(servers: Servers, bundle: Path) -> None:
    async def call() -> None:
        async with client_for(servers, bundle) as http:
            request = http.build_request("POST", f"{servers.origin}/rpc", content=b"judged")
            servers.agent.pages[NEW] = once(lambda: change(request, f"{servers.evil}/rpc"), demanding(servers))
            await http.send(request)

    asyncio.run(call())
    assert servers.thief.asked == []
    [call_] = [asked for asked in servers.agent.asked if asked.path == "/rpc"]
    assert (call_.method, call_.body, call_.headers["x-api-key"]) == ("POST", b"judged", KEY)
    assert "x-note" not in call_.headers


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_request_that_changes_while_its_card_is_searched_for(servers: Servers, kind: str) -> None:
    request = httpx.Request("POST", f"{servers.origin}/rpc", content=b"judged", headers={"Authorization": TOKEN})
    servers.agent.pages[NEW] = once(lambda: change(request, f"{servers.evil}/rpc"), demanding(servers))
    tls = servers.authority.client()
    if kind == "sync":
        with httpx.Client(transport=VerifyingTransport(httpx.HTTPTransport(verify=tls), trusting(VICTIM))) as http:
            http.send(request)
    else:

        async def call() -> None:
            transport = AsyncVerifyingTransport(httpx.AsyncHTTPTransport(verify=tls), trusting(VICTIM))
            async with httpx.AsyncClient(transport=transport) as http:
                await http.send(request)

        asyncio.run(call())
    assert servers.thief.asked == []
    assert [(asked.method, asked.body) for asked in servers.agent.asked if asked.path == "/rpc"] == [
        ("POST", b"judged")
    ]


def test_a_request_that_changes_while_its_token_is_obtained(servers: Servers, asks: Ask) -> None:
    """``asks`` sends with a client of its own, so a hook of the token takes the request from the frame below."""
    seen: list[httpx.Request] = []

    class Noting(CardAuth):
        def _exchange(self, request: httpx.Request) -> Any:
            seen.append(request)
            return super()._exchange(request)

    def token() -> str:
        change(seen[0], f"{servers.evil}/rpc")
        return TOKEN

    card = card_with(servers.origin, {"s": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}, {"s": []})
    auth = Noting(card, {"s": BearerToken(token, origins=[servers.origin])}, trust=OWNER_TRUSTED)
    with pytest.raises(CredentialsError, match="was changed while it was sent"):
        asks(auth, f"{servers.origin}/rpc")
    assert servers.thief.asked == servers.agent.asked == []


def oauth_card(servers: Servers) -> bytes:
    return signed(
        card_of(
            servers.origin,
            securitySchemes={"login": oauth_scheme(servers.token_endpoint)},
            securityRequirements=[{"schemes": {"login": {"list": []}}}],
        )
    )


def login_of(servers: Servers) -> dict[str, Any]:
    return {"login": ClientCredentials(servers.client(), origins=[servers.origin], allowed_scopes=[])}


def test_a_key_that_is_revoked_while_a_token_is_fetched(servers: Servers, bundle: Path) -> None:
    trust = ChangingTrust(trusted())
    servers.agent.pages |= {NEW: oauth_card(servers), "/rpc": Page(body=b"{}")}
    servers.login.pages["/token"] = once(lambda: trust.become(REVOKED), tokens())

    async def call() -> None:
        async with client_for(servers, bundle, trust=trust, credentials=login_of(servers)) as http:
            with pytest.raises((CredentialsError, UnverifiedCardError), match="revoked"):
                await http.post(f"{servers.origin}/rpc", json={})

    asyncio.run(call())
    assert servers.login.paths() == ["/token"]
    assert set(servers.agent.paths()) == {NEW}


def test_a_key_that_is_revoked_while_card_auth_fetches_a_token(servers: Servers, asks: Ask) -> None:
    trust = ChangingTrust(trusted())
    servers.login.pages["/token"] = once(lambda: trust.become(REVOKED), tokens())
    card = card_with(servers.origin, {"login": oauth_scheme(servers.token_endpoint)}, {"login": []})
    with pytest.raises(CredentialsError, match="revoked"):
        asks(CardAuth(card, login_of(servers), trust=trust), f"{servers.origin}/rpc")
    assert servers.login.paths() == ["/token"]
    assert servers.agent.asked == []


def test_a_card_that_changes_while_a_token_is_fetched(servers: Servers, bundle: Path) -> None:
    """The agent's newer card, which the program fetches meanwhile, wants the token of nobody any more."""
    asked, fetched = threading.Event(), threading.Event()

    def wait() -> None:
        asked.set()
        assert fetched.wait(60)

    servers.agent.pages |= {NEW: oauth_card(servers), "/rpc": Page(body=b"{}")}
    servers.login.pages["/token"] = once(wait, tokens())

    async def call() -> None:
        credentials = {**login_of(servers), "key": ApiKey(KEY, origins=[servers.origin])}
        async with client_for(servers, bundle, credentials=credentials) as http:
            calling = asyncio.create_task(http.post(f"{servers.origin}/rpc", json={}))
            await asyncio.to_thread(asked.wait, 60)
            servers.agent.pages[NEW] = demanding(servers)
            await http.get(f"{servers.origin}{NEW}")
            fetched.set()
            await calling

    asyncio.run(call())
    [sent] = [asked for asked in servers.agent.asked if asked.path == "/rpc"]
    assert (sent.headers.get("authorization"), sent.headers.get("x-api-key")) == (None, KEY)


def test_a_key_that_is_revoked_before_a_request_is_sent_once_more(servers: Servers, bundle: Path) -> None:
    trust = ChangingTrust(trusted())
    servers.agent.pages |= {NEW: oauth_card(servers), "/rpc": once(lambda: trust.become(REVOKED), Page(status=401))}
    servers.login.pages["/token"] = lambda _: Page(body=tokens(access_token=f"{TOKEN}-{len(servers.login.asked)}"))

    async def call() -> None:
        async with client_for(servers, bundle, trust=trust, credentials=login_of(servers)) as http:
            with pytest.raises((CredentialsError, CredentialsRejectedError, UnverifiedCardError), match="revoked"):
                await http.post(f"{servers.origin}/rpc", json={})

    asyncio.run(call())
    assert servers.agent.paths().count("/rpc") == 1


def test_an_older_card_at_the_other_url_does_not_choose_the_credentials(servers: Servers, bundle: Path) -> None:
    """Without a memory nothing else stops a card from a time when the key was in another header."""
    older = signed(
        card_of(
            servers.origin,
            securitySchemes={"key": key_scheme("X-Logged")},
            securityRequirements=[{"schemes": {"key": {"list": []}}}],
        ),
        iat=1_700_000_000,
    )
    servers.agent.pages |= {NEW: demanding(servers), OLD: older, "/rpc": Page(body=b"{}")}

    async def call() -> None:
        async with client_for(servers, bundle) as http:
            await http.get(f"{servers.origin}{OLD}")  # as an SDK of 0.2 does
            await http.post(f"{servers.origin}/rpc", json={})
            await http.get(f"{servers.origin}{OLD}")
            await http.post(f"{servers.origin}/rpc", json={})

    asyncio.run(call())
    sent = [asked.headers for asked in servers.agent.asked if asked.path == "/rpc"]
    assert [each.get("x-api-key") for each in sent] == [KEY, KEY]
    assert not [each for each in sent if "x-logged" in each]


def test_control_a_card_is_taken_from_the_other_url_where_the_first_has_none(servers: Servers, bundle: Path) -> None:
    servers.agent.pages |= {OLD: demanding(servers), "/rpc": Page(body=b"{}")}

    async def call() -> None:
        async with client_for(servers, bundle) as http:
            await http.post(f"{servers.origin}/rpc", json={})
            await http.post(f"{servers.origin}/rpc", json={})

    asyncio.run(call())
    assert servers.agent.paths() == [NEW, OLD, "/rpc", "/rpc"]
    assert [asked.headers.get("x-api-key") for asked in servers.agent.asked] == [None, None, KEY, KEY]


def test_a_hook_that_replaces_extensions_gives_a_redirect_no_credential(servers: Servers, bundle: Path) -> None:
    """Both URLs are the agent's, so that only the redirect keeps the key back (C1)."""
    servers.agent.pages |= {
        NEW: demanding(servers),
        "/rpc": Page(status=307, headers={"Location": f"{servers.origin}/rest/tasks"}),
        "/rest/tasks": Page(body=b"{}"),
    }

    async def hook(request: httpx.Request) -> None:
        request.extensions = {"timeout": request.extensions["timeout"]}

    async def call() -> None:
        async with client_for(servers, bundle) as http:
            http.event_hooks = {"request": [hook], "response": []}
            await http.post(f"{servers.origin}/rpc", json={}, follow_redirects=True)

    asyncio.run(call())
    assert [(asked.path, asked.headers.get("x-api-key")) for asked in servers.agent.asked] == [
        (NEW, None),
        ("/rpc", KEY),
        ("/rest/tasks", None),
    ]


def test_a_program_switches_credentials_off(servers: Servers, bundle: Path) -> None:
    servers.agent.pages |= {NEW: demanding(servers), "/rpc": Page(body=b"{}")}

    async def call() -> None:
        async with client_for(servers, bundle) as http:
            await http.post(f"{servers.origin}/rpc", json={}, auth=None)  # type: ignore[arg-type]
            await http.post(f"{servers.origin}/rpc", json={}, auth=("ann", "pass"))
            await http.post(f"{servers.origin}/rpc", json={})

    asyncio.run(call())
    sent = [asked.headers for asked in servers.agent.asked if asked.path == "/rpc"]
    assert [each.get("x-api-key") for each in sent] == [None, None, KEY]


def test_user_information_of_a_url_is_no_credential(servers: Servers, bundle: Path) -> None:
    servers.agent.pages |= {NEW: demanding(servers), "/rpc": Page(body=b"{}")}

    async def call() -> None:
        async with client_for(servers, bundle) as http:
            url = f"{servers.origin}/rpc".replace("https://", "https://ann:secret-password@")
            await http.post(url, json={})

    asyncio.run(call())
    sent = [asked.headers for asked in servers.agent.asked]
    assert [(each.get("x-api-key"), each.get("authorization")) for each in sent] == [(None, None), (KEY, None)]


def test_the_rejection_leads_to_no_credential(servers: Servers, bundle: Path) -> None:
    servers.agent.pages |= {NEW: demanding(servers), "/rpc": Page(status=401)}

    async def call() -> CredentialsRejectedError:
        async with client_for(servers, bundle) as http:
            with pytest.raises(CredentialsRejectedError) as raised:
                await http.post(f"{servers.origin}/rpc", json={})
        return raised.value

    error = asyncio.run(call())
    assert (error.__context__, error.__cause__) == (None, None)
    assert KEY not in repr(error.request.headers.raw)
