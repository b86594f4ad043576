"""docs/dpop.md is true: its agents take bound tokens, its memory tells used proofs, its client gets through."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust import DPoP, Fetcher, JwtVerifier, protect, publish_jwks
from a2a_trust.auth import ServerNonces
from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.keys import base64url
from a2a_trust.keys.jwk import public_key_from_jwk
from a2a_trust.middleware.protection import CardServing
from tests.auth.proofs import CLIENT, bound_token, proof, scope_of
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, claims, token
from tests.client.agents import OWNER
from tests.databases import RedisServer
from tests.middleware.agent import CALL, Agent, uvicorn_serving

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "dpop.md").read_text(encoding="utf-8")
_, FILE, REDIS, NONCES, CALLER = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
HERE = "https://agent.example.com"
LOGIN = "https://login.example.com"


def card_of(origin: str, scheme: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "Invoice Agent",
        "description": "Books invoices.",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": f"{origin}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "securitySchemes": {"login": scheme},
        "securityRequirements": [{"schemes": {"login": {"list": []}}}],
        "skills": [],
    }


@pytest.mark.real
def test_processes_with_one_memory_take_a_proof_once_between_them(
    redis_server: RedisServer, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    thine, now = bound_token(), time.time()
    line = proof(thine, htu=f"{HERE}/rpc", iat=int(now)).encode()
    monkeypatch.setenv("AGENT_REDIS", redis_url)

    async def use() -> None:
        names: dict[str, Any] = {"DPoP": DPoP, "HERE": HERE}  # one process
        exec(REDIS, names)
        try:
            jkt = CLIENT.public_key.thumbprint
            await names["dpop"].check([line], scope_of(), token=thine, jkt=jkt, now=now)
        finally:
            await names["dpop"]._memory.aclose()

    asyncio.run(use())
    with pytest.raises(InvalidCredentialsError, match="used before"):
        asyncio.run(use())


def test_a_file_remembers_proofs_over_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    thine = bound_token()
    line = proof(thine, htu=f"{HERE}/rpc").encode()

    async def use() -> None:
        names: dict[str, Any] = {"DPoP": DPoP, "HERE": HERE}  # one process
        exec(FILE, names)
        await names["dpop"].check([line], scope_of(), token=thine, jkt=CLIENT.public_key.thumbprint, now=NOW)

    asyncio.run(use())
    with pytest.raises(InvalidCredentialsError, match="used before"):
        asyncio.run(use())


def test_nonces_come_from_the_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPOP_NONCE_SECRET", "s" * 32)
    names: dict[str, Any] = {"DPoP": DPoP, "HERE": HERE}
    exec(NONCES, names)
    assert names["dpop"].nonce(NOW) is not None


async def give_token(request: Request) -> JSONResponse:
    """An authorization server that binds its tokens to the key of the proof."""
    header = json.loads(base64url.decode(request.headers["dpop"].split(".")[0], "header"))
    now = time.time()
    cnf = {"jkt": public_key_from_jwk(header["jwk"]).thumbprint}
    return JSONResponse({"access_token": token(claims(cnf=cnf, iat=now, exp=now + 600)), "token_type": "DPoP"})


def test_the_client_gets_a_token_and_through_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "login").write_text("s")
    (tmp_path / "owner.json").write_text(json.dumps(publish_jwks([OWNER.public_key])))
    (tmp_path / "trust.toml").write_text('version = 1\n[[trust]]\norigins = ["127.0.0.1"]\nkeys = "owner.json"\n')
    monkeypatch.chdir(tmp_path)

    async def run() -> None:
        late: list[Any] = []
        statuses: list[int] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            async def noted(message: Any) -> None:
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])
                await send(message)

            await late[0](scope, receive, noted)

        login = Starlette(routes=[Route("/token", give_token, methods=["POST"])])
        async with uvicorn_serving(login, "h11") as issuer, uvicorn_serving(app, "h11") as origin:
            judge = JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)
            flow = {"tokenUrl": f"{issuer}/token", "scopes": {"read": "Read"}}
            card = card_of(origin, {"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}})
            nonces = ServerNonces(b"n" * 32)
            late.append(
                protect(
                    Agent(),
                    card=card,
                    verifiers={"login": judge},
                    serving=CardServing(signer=OWNER),
                    dpop=DPoP(url=origin, nonces=nonces),
                )
            )
            monkeypatch.setattr("a2a_trust.client.oauth.Fetcher", lambda: Fetcher(private_origins=[issuer]))
            names: dict[str, Any] = {}
            block = CALLER.replace(LOGIN, issuer).replace(HERE, origin).replace("/run/secrets/login", "login")
            exec(block, names)
            async with names["http"] as http:
                answers = [await http.post(f"{origin}/rpc", json=CALL) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [200, 200]
            assert statuses == [200, 401, 200, 200]  # the first is the card
            assert answers[1].json()["user"] == f"alice@{ISSUER}"

    asyncio.run(run())
