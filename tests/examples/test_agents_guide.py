"""docs/agents.md is true: its Python runs, and everything is where it says, for whom it says.

The lines for frameworks run in ``tests/frameworks``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from a2a_trust import (
    ApiKeyVerifier,
    Origins,
    ProtectedAgent,
    SqliteApiKeys,
    TrustedKey,
    TrustStore,
    generate_signer,
    verify_card,
)
from a2a_trust.keys.files import save_private_key

pytestmark = pytest.mark.anyio

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
SEVERAL, PLACES, QUERY, LATE, EXTENDED = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)

HOST = "https://agents.example.com"
CALL = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}}
KEY = {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}}
SIGNER = generate_signer("ES256")


def card(url: str, *scopes: str) -> dict[str, Any]:
    return {
        "name": "Agent",
        "description": "Helps.",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "securitySchemes": KEY,
        "securityRequirements": [{"schemes": {"key": {"list": [*scopes]}}}],
    }


def bare(url: str) -> dict[str, Any]:
    return {name: value for name, value in card(url).items() if not name.startswith("security")}


async def path_of(request: Request) -> JSONResponse:
    return JSONResponse(request.scope["path"])


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A key with the scope read, in the guide's store; the guide's private keys lie beside it."""
    monkeypatch.chdir(tmp_path)
    for name in ("billing.pem", "ops.pem", "key.pem"):
        save_private_key(Path(name), SIGNER)
    return SqliteApiKeys("keys.db", create=True).create(owner="ann", scopes=["read"]).text


def run(code: str, **names: Any) -> Any:
    exec(compile(code, "docs/agents.md", "exec"), names)
    return names["app"]


@asynccontextmanager
async def running(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """The application after its start, and until its end, as servers run it."""
    to_app: asyncio.Queue[Any] = asyncio.Queue()
    from_app: asyncio.Queue[Any] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    lifespan = asyncio.create_task(app(scope, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    assert (await from_app.get())["type"] == "lifespan.startup.complete"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=HOST) as http:
        yield http
    await to_app.put({"type": "lifespan.shutdown"})
    assert (await from_app.get())["type"] == "lifespan.shutdown.complete"
    await lifespan


async def status_of(app: Any, path: str, key: str) -> int:
    """The status of a call at exactly this path, which clients would tidy up."""
    headers = [(b"x-api-key", key.encode()), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
    said: asyncio.Queue[Any] = asyncio.Queue()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(CALL).encode(), "more_body": False}

    await app(scope, receive, said.put)
    return int((await said.get())["status"])


async def test_several_agents_have_their_own_rules_and_documents(capsys: pytest.CaptureFixture[str]) -> None:
    program = SEVERAL.rpartition("asyncio.run(main())")[0].replace("application = Starlette(", "application = FastAPI(")
    names: dict[str, Any] = {"FastAPI": FastAPI}
    exec(compile(program, "docs/agents.md", "exec"), names)
    app, key = names["app"], names["keys"].create(owner="ann", scopes=["read"]).text
    known = {"X-API-Key": key}
    async with running(app) as http:
        assert capsys.readouterr().out == "ops starts\n"
        places = re.findall(r"`(/\S+)`", "".join(re.findall(r"^\| (?:public|key|metadata).*", GUIDE, re.MULTILINE)))
        assert len(places) == 4
        for place in places:
            assert (await http.get(place)).status_code == 200, place
            assert (await http.get(place.replace("billing", "ops"))).status_code == 200, place
        statuses = [
            (await http.post(f"/{name}/rpc", headers=known, json=CALL)).status_code for name in ("billing", "ops")
        ]
        assert statuses == [200, 403]
        (readings,) = re.findall(r"route to another agent is 404: (.*)\.$", GUIDE, re.MULTILINE)
        for reading in [*re.findall(r"`(.*?)`", readings), "/.well-known/agent-card.json", "/docs", "/billing/other"]:
            assert await status_of(app, reading, key) == 404, reading
        assert (await http.get("/healthz")).text == "ok"


async def test_the_card_is_served_at_a_further_path(key: str) -> None:
    agent = Starlette(routes=[Route("/analysis", path_of, methods=["POST"])])
    async with running(run(PLACES, agent=agent, card=card(f"{HOST}/analysis"))) as http:
        there, here = (
            await http.get("/analysis/.well-known/agent-card.json"),
            await http.get("/.well-known/agent-card.json"),
        )
        assert there.status_code == 200
        assert there.content == here.content


async def test_a_query_names_the_agent_whose_card_is_meant(key: str) -> None:
    def agent(name: str) -> ProtectedAgent:
        verifiers = {"key": ApiKeyVerifier(SqliteApiKeys("keys.db"))}
        return ProtectedAgent(card={**card(f"{HOST}/a2a/{name}"), "name": name}, verifiers=verifiers)

    async with running(run(QUERY, application=Starlette(), billing=agent("billing"), ops=agent("ops"))) as http:
        for name in ("billing", "ops"):
            found = await http.get("/.well-known/agent-card.json", params={"assistant_id": name})
            assert found.json()["name"] == name
        for query in ("", "?assistant_id=other", "?assistant_id=ops&assistant_id=billing"):
            assert (await http.get(f"/.well-known/agent-card.json{query}")).status_code == 404


def late(made: Callable[[Request], dict[str, Any]], **answers: Any) -> Starlette:
    """An application that has its card only after it has started."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async def public(request: Request) -> JSONResponse:
            return JSONResponse(made(request))

        async def answer(request: Request) -> JSONResponse:
            return JSONResponse(answers)

        app.router.routes += [Route("/.well-known/agent-card.json", public), Route("/rpc", answer, methods=["POST"])]
        yield

    return Starlette(routes=[Mount("/static", Starlette())], lifespan=lifespan)


async def test_a_card_that_exists_late_gets_security_and_a_signature(key: str) -> None:
    application = late(lambda request: bare(f"{request.base_url}rpc"))
    trust = TrustStore([TrustedKey(key=SIGNER.public_key, origins=Origins("agent.example.com"))])
    async with running(run(LATE, application=application)) as http:
        served = await http.get("/.well-known/agent-card.json")
        verified = verify_card(served.content, trust, origin="https://agent.example.com")
        assert verified.card["supportedInterfaces"][0]["url"] == "https://agent.example.com/rpc"
        assert verified.card["securitySchemes"] == KEY
        statuses = [(await http.post("/rpc", headers=h, json=CALL)).status_code for h in ({}, {"X-API-Key": key})]
        assert statuses == [401, 200]


async def test_three_lines_are_enough_for_an_extended_card_of_the_application(key: str) -> None:
    url = f"{HOST}/rpc"
    promising = {**bare(url), "capabilities": {"extendedAgentCard": True}}
    application = late(lambda _: promising, jsonrpc="2.0", id=1, result={**promising, "description": "Helps much."})
    async with running(run(EXTENDED, app=application)) as http:
        assert (await http.post("/rpc", json=CALL)).status_code == 401
        told = (await http.post("/rpc", headers={"X-API-Key": key}, json=CALL)).json()["result"]
        assert told["description"] == "Helps much."
        assert told["securitySchemes"] == KEY
