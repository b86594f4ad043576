"""Clients with a user name and a password, and an agent that ``protect`` guards, under a real server."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from a2a_trust import verify_card
from a2a_trust.auth import BasicVerifier, MemoryPasswords
from a2a_trust.card.merge import merged_card
from a2a_trust.client import BasicCredentials, CardAuth
from a2a_trust.middleware.protection import protect
from tests.auth.test_jwt import NOW
from tests.client.agents import OWNER_TRUSTED, card_of, signed, trusting
from tests.client.test_dpop import TLS
from tests.middleware.agent import CALL, Agent, uvicorn_serving
from tests.tiers import missing

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("cheap_hashes")]

USER = "Zoë Q."
STORE = MemoryPasswords()
PASSWORD = STORE.create(user=USER, scopes=["read"]).text


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def card_at(origin: str) -> dict[str, Any]:
    """For clients of 0.3 and 1.0."""
    interfaces = [
        {"url": f"{origin}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": version} for version in ("1.0", "0.3")
    ]
    return merged_card(
        card_of(
            origin,
            supportedInterfaces=interfaces,
            securitySchemes={"login": {"httpAuthSecurityScheme": {"scheme": "Basic"}}},
            securityRequirements=[{"schemes": {"login": {"list": ["read"]}}}],
            capabilities={},
        )
    )


def of_0_3(card: dict[str, Any]) -> dict[str, Any]:
    """The members that a client of 0.3 reads."""
    schemes = {"login": {"type": "http", "scheme": card["securitySchemes"]["login"]["scheme"]}}
    dropped = ("supportedInterfaces", "securityRequirements")
    return {**{name: value for name, value in card.items() if name not in dropped}, "securitySchemes": schemes}


@asynccontextmanager
async def serving(http: str) -> AsyncIterator[tuple[str, Agent]]:
    guarded: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await guarded[0](scope, receive, send)

    async with uvicorn_serving(app, http) as origin:
        agent = Agent()
        guarded.append(protect(agent, card=card_at(origin), verifiers={"login": BasicVerifier(STORE)}))
        yield origin, agent


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_a_client_answers_the_card_with_its_password(http: str, version: str) -> None:
    async with serving(http) as (origin, agent):
        served = card_at(origin) if version == "1.0" else of_0_3(card_at(origin))
        card = verify_card(signed(served, iat=NOW), trusting("127.0.0.1"), origin=origin, now=NOW)
        call = CALL if version == "1.0" else {**CALL, "method": "message/send"}
        for password, status in ((PASSWORD, 200), (f"{PASSWORD}x", 401), (PASSWORD, 200)):
            login = BasicCredentials(USER, password, origins=[origin])
            auth = CardAuth(card, {"login": login}, trust=OWNER_TRUSTED, clock=lambda: NOW)
            async with httpx.AsyncClient(auth=auth, verify=TLS, trust_env=False) as client:
                try:
                    answer = await client.post(f"{origin}/rpc", json=call, headers={"A2A-Version": version})
                    came = answer.status_code
                except httpx.HTTPStatusError as error:
                    came = error.response.status_code
            assert came == status
    users = [scope["user"].by_scheme("login") for scope in agent.scopes]
    assert [(user.issuer, user.subject, user.scopes) for user in users] == [("passwords", USER, {"read"})] * 2
    assert not [name for scope in agent.scopes for name, _ in scope["headers"] if name == b"authorization"]


def by_httpx(origin: str, *user: str) -> tuple[int, str]:
    """The status and the fields of the answer."""
    header = {"Authorization": f"Basic {b64encode(user[0].encode()).decode()}"} if user else {}
    answer = httpx.post(f"{origin}/rpc", json=CALL, headers=header, trust_env=False)
    return answer.status_code, str(answer.headers)


def by_curl(origin: str, *user: str) -> tuple[int, str]:
    """The same, by curl."""
    curl = shutil.which("curl") or missing("curl", "real-proxies")
    body = ("-H", "Content-Type: application/json", "-H", "A2A-Version: 1.0", "-d", json.dumps(CALL))
    login = ("-u", user[0]) if user else ()
    command = [curl, "-s", "-i", "--noproxy", "*", *login, *body, f"{origin}/rpc"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return int(done.stdout.split(" ", 2)[1]), done.stdout


@pytest.mark.parametrize("http", ["h11", "httptools"])
@pytest.mark.parametrize("asked", [by_httpx, pytest.param(by_curl, marks=pytest.mark.real)])
async def test_a_client_of_basic_alone_is_challenged_and_served(
    asked: Callable[..., tuple[int, str]], http: str
) -> None:
    async with serving(http) as (origin, agent):
        status, answer = await asyncio.to_thread(asked, origin)
        assert (status, agent.scopes) == (401, [])
        assert 'Basic realm="A2A", charset="UTF-8"' in answer
        assert (await asyncio.to_thread(asked, origin, f"{USER}:{PASSWORD}"))[0] == 200
        assert (await asyncio.to_thread(asked, origin, f"{USER}:wrong"))[0] == 401
