"""Clients with bound tokens and an agent that ``protect`` guards, under a real server: proofs, nonces, refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest

from a2a_trust import generate_signer, verify_card
from a2a_trust.auth.dpop import DPoP, ServerNonces
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.client import CardAuth, ClientCredentials, ClientSecret, CredentialsRejectedError, OAuthClient
from a2a_trust.keys import LocalSigner
from a2a_trust.middleware.protection import protect
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, claims, token
from tests.client.agents import OWNER_TRUSTED, Page, card_of, serving_agent, signed, trusting
from tests.client.test_dpop import TLS
from tests.middleware.agent import CALL, Agent, uvicorn_serving

pytestmark = pytest.mark.anyio

SIGNER: Final = generate_signer("ES256")
TOKEN: Final = token(claims(exp=NOW + 6000, cnf={"jkt": SIGNER.public_key.thumbprint}))
NONCES: Final = ServerNonces(b"n" * 32)


class Clock:
    """The time of both sides."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def login() -> Iterator[str]:
    """The origin of an authorization server that gives the token to everybody."""
    answer = {"access_token": TOKEN, "token_type": "DPoP", "expires_in": 6000}
    with serving_agent(None) as running:
        running.pages["/token"] = Page(body=json.dumps(answer).encode())
        yield f"http://127.0.0.1:{running.port}"


def card_at(origin: str, login: str) -> dict[str, Any]:
    flow = {"tokenUrl": f"{login}/token", "scopes": {"read": "Read"}}
    return card_of(
        origin,
        securitySchemes={"oauth": {"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}}},
        securityRequirements=[{"schemes": {"oauth": {"list": ["read"]}}}],
        capabilities={},
    )


@asynccontextmanager
async def serving(
    login: str, nonces: ServerNonces | None = None, clock: Clock | None = None, http: str = "h11"
) -> AsyncIterator[str]:
    """The origin of an agent that takes tokens bound to keys."""
    guarded: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await guarded[0](scope, receive, send)

    async with uvicorn_serving(app, http) as origin:
        guarded.append(
            protect(
                Agent(),
                card=card_at(origin, login),
                verifiers={"oauth": JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)},
                dpop=DPoP(url=origin, nonces=nonces),
                clock=clock or Clock(),
            )
        )
        yield origin


def auth_for(origin: str, login: str, signer: LocalSigner = SIGNER, clock: Clock | None = None) -> CardAuth:
    clock = clock or Clock()
    client = OAuthClient(
        issuer=login,
        token_endpoint=f"{login}/token",
        client_id="me",
        authentication=ClientSecret("s"),
        dpop=signer,
        fetcher=Fetcher(private_origins=[login]),
        clock=clock,
    )
    card = verify_card(signed(card_at(origin, login), iat=NOW), trusting("127.0.0.1"), origin=origin, now=NOW)
    credential = ClientCredentials(client, origins=[origin], allowed_scopes=["read"])
    return CardAuth(card, {"oauth": credential}, clock=clock, trust=OWNER_TRUSTED)


async def statuses(auth: CardAuth, *urls: str) -> list[list[int]]:
    """What came to each request, retries included."""
    seen: list[list[int]] = []
    async with httpx.AsyncClient(auth=auth, verify=TLS, trust_env=False) as client:
        for url in urls:
            answer = await client.get(url)
            seen.append([each.status_code for each in (*answer.history, answer)])
    return seen


@pytest.mark.parametrize("nonces", [None, NONCES])
async def test_the_first_call_is_sent_twice_where_nonces_are_wanted_and_no_other(
    login: str, nonces: ServerNonces | None
) -> None:
    async with serving(login, nonces) as origin:
        found = await statuses(auth_for(origin, login), *[f"{origin}/rest/tasks/1"] * 3)
    assert found == [[401, 200] if nonces else [200], [200], [200]]


async def test_programs_that_wait_are_served_too(login: str) -> None:
    def ask(origin: str) -> list[int]:
        with httpx.Client(auth=auth_for(origin, login), verify=TLS, trust_env=False) as client:
            return [client.post(f"{origin}/rpc", json=CALL).status_code for _ in range(2)]

    async with serving(login, NONCES) as origin:
        assert await asyncio.to_thread(ask, origin) == [200, 200]


async def test_nonces_that_grow_old_are_replaced(login: str) -> None:
    clock = Clock()
    async with serving(login, NONCES, clock) as origin:
        auth = auth_for(origin, login, clock=clock)
        for _ in range(3):
            assert await statuses(auth, *[f"{origin}/rest/tasks/1"] * 2) == [[401, 200], [200]]
            clock.now += 900


async def test_while_calls_come_new_nonces_come_with_the_answers(login: str) -> None:
    clock = Clock()
    async with serving(login, NONCES, clock) as origin:
        auth = auth_for(origin, login, clock=clock)
        assert await statuses(auth, f"{origin}/rest/tasks/1") == [[401, 200]]
        for _ in range(4):
            clock.now += 290
            assert await statuses(auth, f"{origin}/rest/tasks/1") == [[200]]


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_both_sides_mean_the_same_url(login: str, http: str) -> None:
    paths = [
        "/rpc",
        "/rpc/",
        "/rpc?a=/b",
        "/rest/tasks/%7Euser",
        "/rest/tasks/~user",
        "/rest/tasks/%41",
        "/rest/tasks/ü",
        "/rest/tasks/%C3%BC",
        "/rest/tasks/%c3%bc?a=b",
        "/rest/tasks/a b;c=d,e",
        "/rest/tasks/(a)*'!$&+@:",
    ]
    async with serving(login, http=http) as origin:
        found = await statuses(auth_for(origin, login), *[origin + path for path in paths])
    assert [path for path, answers in zip(paths, found, strict=True) if answers != [200]] == []


async def test_many_at_once_share_one(login: str) -> None:
    async with (
        serving(login, NONCES) as origin,
        httpx.AsyncClient(auth=auth_for(origin, login), verify=TLS, trust_env=False) as client,
    ):
        answers = await asyncio.gather(*(client.get(f"{origin}/rest/tasks/1") for _ in range(30)))
    assert {answer.status_code for answer in answers} == {200}
    assert max(len(answer.history) for answer in answers) == 1


class Listening(httpx.AsyncHTTPTransport):
    """Sees what goes over the network."""

    heard: list[tuple[bytes, bytes]]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.heard = request.headers.raw
        return await super().handle_async_request(request)


async def test_the_token_alone_is_nothing_and_neither_is_a_proof_that_was_used_or_is_by_another_key(login: str) -> None:
    thief = Listening(verify=TLS)
    async with serving(login) as origin, httpx.AsyncClient(transport=thief, trust_env=False) as client:
        url = f"{origin}/rpc"
        good = await client.post(url, json=CALL, auth=auth_for(origin, login))
        assert good.status_code == 200
        raw = dict(thief.heard)
        sent = {"Authorization": raw[b"authorization"].decode(), "DPoP": raw[b"dpop"].decode()}
        assert sent["Authorization"] == f"DPoP {TOKEN}"
        for stolen in (
            sent,  # again
            {"Authorization": f"DPoP {TOKEN}"},
            {"Authorization": f"Bearer {TOKEN}"},
            {**sent, "Authorization": f"Bearer {TOKEN}"},
        ):
            assert (await client.post(url, json=CALL, headers=stolen)).status_code == 401
        with pytest.raises(CredentialsRejectedError, match="answers 401"):
            await client.post(url, json=CALL, auth=auth_for(origin, login, generate_signer("ES256")))
        assert (await client.post(url, json=CALL, auth=auth_for(origin, login))).status_code == 200
