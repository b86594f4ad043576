"""DPoPAuth and an agent that ``protect`` guards, under a real server: proofs, nonces, and who is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest

from a2a_trust import DPoPAuth, generate_signer
from a2a_trust.auth.dpop import DPoP, ServerNonces
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.keys import LocalSigner
from a2a_trust.middleware.protection import protect
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, claims, token
from tests.client.test_dpop import TLS
from tests.middleware.agent import Agent, uvicorn_serving

pytestmark = pytest.mark.anyio

SIGNER: Final = generate_signer("ES256")
TOKEN: Final = token(claims(exp=NOW + 6000, cnf={"jkt": SIGNER.public_key.thumbprint}))
NONCES: Final = ServerNonces(b"n" * 32)
CARD: Final[dict[str, Any]] = {
    "name": "agent",
    "supportedInterfaces": [{"url": "http://agent.example/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "securitySchemes": {"oauth": {"oauth2SecurityScheme": {"flows": {}}}},
    "securityRequirements": [{"schemes": {"oauth": {"list": ["read"]}}}],
    "skills": [],
}


class Clock:
    """The time of both sides."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def serving(
    nonces: ServerNonces | None = None, clock: Clock | None = None, http: str = "h11"
) -> AsyncIterator[str]:
    """The origin of an agent that takes tokens bound to keys."""
    guarded: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await guarded[0](scope, receive, send)

    async with uvicorn_serving(app, http) as origin:
        guarded.append(
            protect(
                Agent(),
                card=CARD,
                verifiers={"oauth": JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)},
                dpop=DPoP(url=origin, nonces=nonces),
                clock=clock or Clock(),
            )
        )
        yield origin


def auth_for(origin: str, signer: LocalSigner = SIGNER, clock: Clock | None = None) -> DPoPAuth:
    return DPoPAuth(signer, origins=[origin], token=TOKEN, clock=clock or Clock())


async def statuses(auth: DPoPAuth, *urls: str) -> list[list[int]]:
    """What came to each request, retries included."""
    seen: list[list[int]] = []
    async with httpx.AsyncClient(auth=auth, verify=TLS, trust_env=False) as client:
        for url in urls:
            answer = await client.post(url, json={})
            seen.append([each.status_code for each in (*answer.history, answer)])
    return seen


@pytest.mark.parametrize("nonces", [None, NONCES])
async def test_the_first_call_is_sent_twice_where_nonces_are_wanted_and_no_other(nonces: ServerNonces | None) -> None:
    async with serving(nonces) as origin:
        found = await statuses(auth_for(origin), *[f"{origin}/rpc"] * 3)
    assert found == [[401, 200] if nonces else [200], [200], [200]]


async def test_programs_that_wait_are_served_too() -> None:
    def ask(origin: str) -> list[int]:
        with httpx.Client(auth=auth_for(origin), verify=TLS, trust_env=False) as client:
            return [client.post(f"{origin}/rpc", json={}).status_code for _ in range(2)]

    async with serving(NONCES) as origin:
        assert await asyncio.to_thread(ask, origin) == [200, 200]


async def test_nonces_that_grow_old_are_replaced() -> None:
    clock = Clock()
    async with serving(NONCES, clock) as origin:
        auth = auth_for(origin, clock=clock)
        for _ in range(3):
            assert await statuses(auth, *[f"{origin}/rpc"] * 2) == [[401, 200], [200]]
            clock.now += 900


async def test_while_calls_come_new_nonces_come_with_the_answers() -> None:
    clock = Clock()
    async with serving(NONCES, clock) as origin:
        auth = auth_for(origin, clock=clock)
        assert await statuses(auth, f"{origin}/rpc") == [[401, 200]]
        for _ in range(4):
            clock.now += 290
            assert await statuses(auth, f"{origin}/rpc") == [[200]]


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_both_sides_mean_the_same_url(http: str) -> None:
    paths = [
        "",
        "/",
        "/?a=b",
        "/rpc?a=/b#c",
        "/a%2Fb",
        "/a%2fb",
        "/%7Euser",
        "//a//b",
        "/ü/%C3%BC",
        "/a b;c=d,e",
        "/(a)/*'!$&+@:",
    ]
    async with serving(http=http) as origin:
        found = await statuses(auth_for(origin), *[origin + path for path in paths])
    assert [path for path, answers in zip(paths, found, strict=True) if answers != [200]] == []


async def test_many_at_once_share_one() -> None:
    async with (
        serving(NONCES) as origin,
        httpx.AsyncClient(auth=auth_for(origin), verify=TLS, trust_env=False) as client,
    ):
        answers = await asyncio.gather(*(client.get(f"{origin}/status") for _ in range(30)))
    assert {answer.status_code for answer in answers} == {200}
    assert max(len(answer.history) for answer in answers) == 1


async def test_the_token_alone_is_nothing_and_neither_is_a_proof_that_was_used_or_is_by_another_key() -> None:
    async with serving() as origin, httpx.AsyncClient(verify=TLS, trust_env=False) as client:
        url = f"{origin}/rpc"
        good = await client.post(url, auth=auth_for(origin))
        assert good.status_code == 200
        sent = {name: good.request.headers[name] for name in ("Authorization", "DPoP")}
        for stolen in (
            sent,  # again
            {"Authorization": f"DPoP {TOKEN}"},
            {"Authorization": f"Bearer {TOKEN}"},
            {**sent, "Authorization": f"Bearer {TOKEN}"},
        ):
            assert (await client.post(url, headers=stolen)).status_code == 401
        assert (await client.post(url, auth=auth_for(origin, generate_signer("ES256")))).status_code == 401
        assert (await client.post(url, auth=auth_for(origin))).status_code == 200
