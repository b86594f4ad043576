"""C16: a credential for the GET of a card goes to another URL: another name or folder, a key set, a redirect, a call.

The agent behind it, or who writes its answers, is hostile; the operator has bound the credential to one URL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import httpx
import pytest

from a2a_trust import AsyncVerifyingTransport, Fetcher, TrustStore, VerifyingTransport, fetch_card
from a2a_trust.client import (
    ApiKey,
    BasicCredentials,
    BearerToken,
    CredentialsRejectedError,
    FetchOptions,
    TrustOnFirstUse,
    VolatileCardMemory,
    verifying_client,
)
from a2a_trust.errors import ConfigurationError, FetchError, UntrustedCardError
from tests.client.agents import NEW, OLD, Agent, Page, card_of, serving_agent, signed, trusting

SECRET: Final = "card-key-5d20e7"
JWKS: Final = "/.well-known/jwks.json"


@pytest.fixture
def agent() -> Iterator[Agent]:
    with serving_agent(None) as running:
        running.pages["/rpc"] = Page(body=b"{}")
        yield running


def url_of(agent: Agent) -> str:
    return f"http://localhost:{agent.port}"


def card_for(agent: Agent, **members: Any) -> bytes:
    return signed(card_of(url_of(agent), securityRequirements=[], **members))


def bound(agent: Agent, path: str = NEW) -> dict[str, dict[str, ApiKey]]:
    return {f"{url_of(agent)}{path}": {"X-Card-Key": ApiKey(SECRET, origins=[url_of(agent)])}}


def shown(agent: Agent) -> list[str]:
    """The paths of the requests that had the credential, in any part."""
    return [asked.path for asked in agent.asked if SECRET in f"{asked.path}{asked.headers}{asked.body!r}"]


def call(agent: Agent, kind: str, path: str = "/rpc", method: str = "POST", **options: Any) -> int:
    """The status of a call by a client of that kind, which follows redirects."""
    given = {"trust": trusting("localhost"), "card_headers": bound(agent), **options}
    url = f"{url_of(agent)}{path}"
    if kind == "sync":
        with httpx.Client(transport=VerifyingTransport(httpx.HTTPTransport(), **given), follow_redirects=True) as sync:
            return sync.request(method, url).status_code

    async def asked() -> int:
        client = httpx.AsyncClient(transport=AsyncVerifyingTransport(httpx.AsyncHTTPTransport(), **given))
        if kind == "agent":
            client = verifying_client(url_of(agent), credentials={}, **given)
        client.follow_redirects = True
        async with client as http:
            return (await http.request(method, url)).status_code

    return asyncio.run(asked())


KINDS: Final = pytest.mark.parametrize("kind", ["sync", "async", "agent"])


@KINDS
def test_it_goes_to_its_url_and_with_no_call(agent: Agent, kind: str) -> None:
    def behind_a_key(asked: Any) -> Page:
        return Page(body=card_for(agent), status=200 if asked.headers.get("x-card-key") == SECRET else 401)

    agent.pages[NEW] = behind_a_key
    assert call(agent, kind) == 200
    assert (shown(agent), agent.paths()[-1]) == ([NEW], "/rpc")


@KINDS
def test_it_does_not_go_to_the_other_name_or_another_folder(agent: Agent, kind: str) -> None:
    agent.pages[OLD] = card_for(agent)
    assert call(agent, kind) == 200
    assert OLD in agent.paths()
    assert shown(agent) == [NEW]


@KINDS
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_it_follows_no_redirect(agent: Agent, kind: str, status: int) -> None:
    """The card behind it is a good one: still nothing goes there."""
    agent.pages[NEW] = Page(status=status, headers={"Location": f"{url_of(agent)}/moved{NEW}"})
    agent.pages[f"/moved{NEW}"] = card_for(agent)
    with pytest.raises(httpx.RequestError):
        call(agent, kind)
    assert shown(agent) == [NEW]
    assert f"/moved{NEW}" not in agent.paths()


@KINDS
@pytest.mark.parametrize("path", [f"{NEW}?a=b", f"{NEW}/", f"/team{NEW}", "/.well-known/%61gent-card.json"])
def test_it_goes_to_exactly_its_url(agent: Agent, kind: str, path: str) -> None:
    agent.pages[NEW] = card_for(agent)
    with suppress(httpx.RequestError):
        assert call(agent, kind, path, "GET", also=[url_of(agent)]) in (200, 404)
    assert path in agent.paths()
    assert path not in shown(agent)


@KINDS
@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_it_goes_with_no_other_method(agent: Agent, kind: str, method: str) -> None:
    agent.pages[NEW] = card_for(agent)
    with suppress(httpx.RequestError):
        call(agent, kind, NEW, method)
    assert {asked.method for asked in agent.asked if SECRET in str(asked.headers)} <= {"GET"}


@KINDS
def test_it_does_not_come_back_to_the_program(agent: Agent, kind: str) -> None:
    def rejecting(asked: Any) -> Page:
        return Page(status=401, headers={"WWW-Authenticate": f'Bearer realm="{asked.headers.get("x-card-key")}"'})

    agent.pages[NEW] = rejecting
    with pytest.raises(httpx.HTTPError) as caught:
        call(agent, kind)
    assert SECRET not in f"{caught.value!r} {caught.value} {caught.value.__cause__!r} {vars(caught.value.request)}"
    if kind == "agent":
        assert isinstance(caught.value, CredentialsRejectedError)


@pytest.mark.parametrize("path", [NEW, ""])
def test_fetch_card_sends_it_to_one_url(agent: Agent, path: str) -> None:
    """Neither to the older name after a 404, nor for the keys of a first use."""
    fetcher = Fetcher(private_origins=[url_of(agent)], timeout=60)
    options = FetchOptions(fetcher=fetcher, memory=VolatileCardMemory(), on_first_use=TrustOnFirstUse())
    agent.pages[OLD] = card_for(agent)
    with pytest.raises(FetchError, match="404"):
        fetch_card(f"{url_of(agent)}{path}", TrustStore([]), options, headers={"X-Card-Key": SECRET})
    assert agent.paths() == [NEW]
    agent.pages[NEW] = card_for(agent)
    with pytest.raises(UntrustedCardError):
        fetch_card(f"{url_of(agent)}{path}", TrustStore([]), options, headers={"X-Card-Key": SECRET})
    assert JWKS in agent.paths()
    assert shown(agent) == [NEW, NEW]


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"Host": ApiKey(SECRET, origins=["https://a.test"])}, "not safe"),
        ({"Cookie": ApiKey(SECRET, origins=["https://a.test"])}, "not safe"),
        ({"Connection": ApiKey(SECRET, origins=["https://a.test"])}, "not safe"),
        ({"X-Key\r\nHost": ApiKey(SECRET, origins=["https://a.test"])}, "not safe"),
        ({"X-Key": ApiKey(SECRET, origins=["https://b.test"])}, "is for https://b.test"),
        ({"Authorization": ApiKey(SECRET, origins=["https://a.test"])}, "bearer"),
        ({"X-Key": BearerToken(SECRET, origins=["https://a.test"])}, "API key"),
        ({"X-Key": BasicCredentials("u", SECRET, origins=["https://a.test"])}, "API key"),
        ({"X-Key": SECRET}, "write ApiKey"),
        (SECRET, "write a dict"),
    ],
)
def test_wrong_options_are_errors_at_once(headers: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as caught:
        VerifyingTransport(httpx.HTTPTransport(), TrustStore([]), card_headers={f"https://a.test{NEW}": headers})
    assert SECRET not in str(caught.value)
    assert "card_headers: 'https://a.test/.well-known/agent-card.json'" in str(caught.value)
