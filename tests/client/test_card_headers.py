"""Credentials for a card behind authentication: a key, a password, a token, and one from an authorization server."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import parse_qs

import httpx
import pytest

from a2a_trust import Fetcher, VerifyingTransport
from a2a_trust.client import (
    ApiKey,
    BasicCredentials,
    BearerToken,
    ClientCredentials,
    ClientSecret,
    OAuthClient,
    verifying_client,
)
from a2a_trust.client.credentials import Credential
from tests.client.agents import NEW, Agent, Asked, Page, card_of, serving_agent, signed, trusting


@pytest.fixture
def agent() -> Iterator[Agent]:
    with serving_agent(None) as running:
        running.pages["/rpc"] = Page(body=b"{}")
        yield running


def url_of(agent: Agent) -> str:
    return f"http://localhost:{agent.port}"


def behind(agent: Agent, header: str, value: str) -> None:
    document = signed(card_of(url_of(agent), securityRequirements=[]))

    def page(asked: Asked) -> Page:
        return Page(body=document, status=200 if asked.headers.get(header.lower()) == value else 401)

    agent.pages[NEW] = page


def status_of_call(agent: Agent, header: str, credential: Credential) -> int:
    async def call() -> int:
        client = verifying_client(
            url_of(agent),
            trust=trusting("localhost"),
            credentials={},
            card_headers={f"{url_of(agent)}{NEW}": {header: credential}},
        )
        async with client as http:
            return (await http.post(f"{url_of(agent)}/rpc", json={})).status_code

    return asyncio.run(call())


@pytest.mark.parametrize("kind", ["key", "password", "token"])
def test_the_card_is_fetched_with_it(agent: Agent, kind: str) -> None:
    origins = [url_of(agent)]
    header, credential, value = {
        "key": ("X-API-Key", ApiKey("k1", origins=origins), "k1"),
        "password": (
            "Authorization",
            BasicCredentials("u", "p", origins=origins),
            f"Basic {b64encode(b'u:p').decode()}",
        ),
        "token": ("Authorization", BearerToken("t1", origins=origins), "Bearer t1"),
    }[kind]
    behind(agent, header, value)
    assert status_of_call(agent, header, credential) == 200
    assert header.lower() not in agent.asked[-1].headers


def test_a_token_is_asked_for_with_all_allowed_scopes_and_once_more_after_a_401(agent: Agent) -> None:
    issued: list[list[str]] = []

    def token(asked: Asked) -> Page:
        issued.append(sorted(parse_qs(asked.body.decode())["scope"][0].split()))
        answer = {"access_token": f"t{len(issued)}", "token_type": "Bearer", "expires_in": 600}
        return Page(body=json.dumps(answer).encode())

    agent.pages["/token"] = token
    url = url_of(agent)
    client = OAuthClient(
        issuer=url,
        token_endpoint=f"{url}/token",
        client_id="c",
        authentication=ClientSecret("s"),
        fetcher=Fetcher(private_origins=[url], timeout=60),
    )
    login = ClientCredentials(client, origins=[url], allowed_scopes=["cards", "read"], resource=url)
    behind(agent, "Authorization", "Bearer t2")  # the first token has been revoked
    card_headers = {f"{url}{NEW}": {"Authorization": login}}
    transport = VerifyingTransport(httpx.HTTPTransport(), trusting("localhost"), card_headers=card_headers)
    with httpx.Client(transport=transport) as http:
        assert http.post(f"{url}/rpc", json={}).status_code == 200
    assert issued == [["cards", "read"]] * 2


def test_a_function_and_a_rotated_key(agent: Agent) -> None:
    behind(agent, "X-API-Key", "new")
    keys = iter(["old", "new"])
    assert status_of_call(agent, "X-API-Key", ApiKey(lambda: next(keys), origins=[url_of(agent)])) == 200
