"""The page of FastAPI, and the README's agent under the commands that start FastAPI's applications."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.exceptions import HTTPException
from fastapi.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from a2a_trust import ApiKeyVerifier, principal_of, protect
from a2a_trust.auth import MemoryApiKeys
from tests.frameworks.parties import Parties, challenged_resource, parties
from tests.servers.environments import python_of
from tests.servers.serving import ROOT, free_port, serving

pytestmark = pytest.mark.anyio

ENVIRONMENT: Final = "fastapi-0.165.0"
PAGE: Final = (ROOT / "docs" / "frameworks" / "fastapi.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
AGENT, CORS, TRACED, SEVERAL = BLOCKS
(SHOWN,) = re.findall(r"(?s)```console\n(.*?)```", PAGE)
CARD: Final = "/.well-known/agent-card.json"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def command(name: str, port: int) -> list[str]:
    """The command as the documents have it, and the port. Environments were moved, so their scripts do not run."""
    program, *rest = name.split()
    return [str(python_of(ENVIRONMENT)), "-m", program, *rest, "--port", str(port)]


@pytest.mark.parametrize("start", ["fastapi run agent.py", "fastapi dev agent.py", "uvicorn agent:app"])
def test_the_agent_of_the_readme_is_guarded_whatever_starts_it(start: str, tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Protect\n")[2].partition("\n## ")[0]
    (agent,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (made,) = re.findall(r"\$ a2a-sign (api-key .*?) > ann.key\n", section)
    (tmp_path / "agent.py").write_text(agent, encoding="utf-8")
    create = [sys.executable, "-m", "a2a_trust", *made.split()]
    key = subprocess.run(create, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()
    assert f"`{start}`" in section or start == "fastapi dev agent.py"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (
        serving(command(start, port), url, {}, tmp_path),
        httpx.Client(base_url=url, trust_env=False, timeout=60) as http,
    ):
        assert http.get(CARD).json()["name"] == "Invoice Agent"
        for path in ("/", "/rpc", "/docs", "/openapi.json"):
            assert http.get(path).status_code == 401
            assert http.get(path, headers={"X-API-Key": key[:-1]}).status_code == 401
        assert http.get("/openapi.json", headers={"X-API-Key": key}).json()["info"]["title"] == "FastAPI"
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}
        assert http.post("/rpc", json=call).status_code == 401
        passed = http.post("/rpc", json=call, headers={"X-API-Key": key})
        assert (passed.status_code, passed.json()) == (404, {"detail": "Not Found"})  # FastAPI has no such route yet


class Agent(NamedTuple):
    url: str
    of: Parties

    def send(self, headers: dict[str, str], path: str = "/rpc") -> httpx.Response:
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        return httpx.post(f"{self.url}{path}", json=call, headers=headers, trust_env=False, timeout=60)

    def said(self, headers: dict[str, str], path: str = "/rpc") -> str:
        text: str = self.send(headers, path).raise_for_status().json()["result"]["message"]["parts"][0]["text"]
        return text

    def get(self, path: str, headers: dict[str, str]) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=headers, trust_env=False, timeout=60)


@contextmanager
def agent_of(program: str, folder: Path) -> Iterator[Agent]:
    """The program serves as agent.py, with its keys beside it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    (folder / "agent.py").write_text(program, encoding="utf-8")
    with parties(folder) as of, serving(command("uvicorn agent:app", port), url, of.settings(AGENT_URL=url), folder):
        yield Agent(url, of)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with agent_of(f"{AGENT}\n{CORS}", tmp_path_factory.mktemp("agent")) as agent:
        yield agent


def key_of(agent: Agent, *scopes: str, owner: str = "ann") -> dict[str, str]:
    return {"X-API-Key": agent.of.key(*scopes, owner=owner)}


def test_callers_are_admitted_as_the_card_says(agent: Agent) -> None:
    issuer = agent.of.issuer
    rejected = {
        401: [{}, {"X-API-Key": "bad"}, {"Authorization": f"Bearer {issuer.token(audience='https://other.example')}"}],
        403: [key_of(agent, "write")],
    }
    for status, callers in rejected.items():
        for headers in callers:
            assert agent.send(headers).status_code == status
            for path in ("/invoices/7", "/docs", "/openapi.json"):
                assert agent.get(path, headers).status_code == status
    assert agent.said(key_of(agent, "read")) == "ann@api-keys said hi"
    token = {"Authorization": f"Bearer {issuer.token(audience=agent.url)}"}
    assert agent.said(token) == f"ann@{issuer.url} said hi"
    assert agent.of.fetch(agent.url).card["name"] == "ledger"
    assert challenged_resource(f"{agent.url}/rpc") == agent.url


def test_tools_in_threads_know_the_caller_of_each_request(agent: Agent) -> None:
    owners = ["ann", "bob", "cid"] * 8
    keys = [key_of(agent, "read", owner=owner) for owner in owners]
    with ThreadPoolExecutor(len(keys)) as pool:
        assert [*pool.map(agent.said, keys)] == [f"{owner}@api-keys said hi" for owner in owners]


def test_the_lifespan_has_run_and_dependencies_know_the_caller(agent: Agent) -> None:
    found = {owner: agent.get("/invoices/7", key_of(agent, "read", owner=owner)) for owner in ("ann", "bob")}
    assert found["ann"].json() == {"number": 7, "owner": "ann"}
    assert found["ann"].text in SHOWN
    assert found["bob"].status_code == 404


def test_docs_show_what_the_guard_demands(agent: Agent) -> None:
    document = agent.get("/openapi.json", key_of(agent, "read")).json()
    assert document["components"]["securitySchemes"] == {
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "login": {
            "type": "openIdConnect",
            "openIdConnectUrl": f"{agent.of.issuer.url}/.well-known/openid-configuration",
        },
    }
    demanded = [{"key": ["read"]}, {"login": ["read"]}]
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    assert [operation["security"] for operation in operations] == [demanded] * 3
    assert "swagger" in agent.get("/docs", key_of(agent, "read")).text


def test_the_extended_card_is_for_callers(agent: Agent) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}
    url, headers = f"{agent.url}/rpc", key_of(agent, "read")
    answer = httpx.post(url, json=call, headers={"A2A-Version": "1.0", **headers}, trust_env=False)
    assert answer.json()["result"]["description"].endswith("for administrators.")
    assert httpx.post(url, json=call, trust_env=False).status_code == 401


def test_a_skill_needs_its_own_credential(agent: Agent) -> None:
    key = key_of(agent, "read", owner="cid")

    def delete(headers: dict[str, str]) -> int:
        return httpx.delete(f"{agent.url}/invoices/8", headers=headers, trust_env=False, timeout=60).status_code

    def token(scope: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {agent.of.issuer.token(audience=agent.url, scope=scope)}"}

    assert [delete(headers) for headers in (key, token("read"), key | token("read admin"))] == [401, 403, 200]


def test_a_browser_of_the_allowed_origin_may_ask(agent: Agent) -> None:
    for origin, allowed in (("https://app.example.com", True), ("https://evil.example", False)):
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key"}
        preflight = httpx.options(f"{agent.url}/rpc", headers={"Origin": origin, **asked}, trust_env=False)
        assert (preflight.status_code == 200) is allowed
        answered = agent.send({"Origin": origin, **key_of(agent, "read")})
        assert (answered.headers.get("Access-Control-Allow-Origin") == origin) is allowed
    assert "Access-Control-Allow-Origin" not in agent.send({"Origin": "https://app.example.com"}).headers


def test_several_agents_have_cards_and_callers_of_their_own(tmp_path: Path) -> None:
    with agent_of(f"import os\n\nURL = os.environ['AGENT_URL']\n{SEVERAL}", tmp_path) as agents:
        reader, admin = key_of(agents, "read"), key_of(agents, "admin", owner="bob")
        assert agents.said(reader, "/billing/rpc") == "ann at billing"
        assert agents.said(admin, "/ops/rpc") == "bob at ops"
        for path, headers, status in (
            *(("/billing/rpc", {}, 401), ("/ops/rpc", {}, 401)),
            *(("/billing/rpc", admin, 403), ("/ops/rpc", reader, 403), ("/rpc", admin, 404)),
        ):
            assert agents.send(headers, path).status_code == status
        assert agents.get("/docs", reader).status_code == 404
        for name in ("billing", "ops"):
            assert agents.get(f"/{name}{CARD}", {}).json()["name"] == name


#: Runs the page's lines, and those in the other order; prints what a stranger and a caller get, and the spans of each.
TRACING: Final = """
import asyncio, json, logging, os, httpx
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry import trace

spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
logging.disable()

async def asked(app):
    app.get("/hello")(lambda: "hello")
    found = []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
        for headers in ({}, {"X-API-Key": os.environ["KEY"]}):
            spans.clear()
            found += [(await http.get("/hello", headers=headers)).status_code, len(spans.get_finished_spans()) > 0]
        spans.clear()
        query = {"lang": "en", "api_key": os.environ["KEY"]}
        found.append((await http.get("/hello", params=query)).status_code)
        told = json.dumps([dict(each.attributes) for each in spans.get_finished_spans()], default=str)
        found += ["lang=en" in told, os.environ["KEY"] in told]
    return found

by_query = "'query': ApiKeyVerifier(SqliteApiKeys('keys.db'), issuer='query-keys'), "
first = open("traced.py").read().replace("verifiers = {", "verifiers = {" + by_query)
line = "FastAPIInstrumentor.instrument_app(app)\\n"
assert line in first
other = first.replace(line, "").replace("app = protect(FastAPI(),", "app = FastAPI()\\n" + line + "app = protect(app,")
answers = {}
for order, text in (("after", first), ("before", other)):
    names = {"card": json.loads(os.environ["CARD"])}
    exec(text, names)
    answers[order] = asyncio.run(asked(names["app"]))
print(json.dumps(answers))
"""
INTERFACE: Final = {"url": "http://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
PLAIN_CARD: Final[dict[str, Any]] = {
    "name": "ledger",
    "supportedInterfaces": [INTERFACE],
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
    "securityRequirements": [{"schemes": {"key": {"list": []}}}],
}
#: For the page's lines, which have a verifier for "key": the key may come in the query, too.
TRACED_CARD: Final = {
    **PLAIN_CARD,
    "securitySchemes": {
        **PLAIN_CARD["securitySchemes"],
        "query": {"apiKeySecurityScheme": {"location": "query", "name": "api_key"}},
    },
    "securityRequirements": [{"schemes": {name: {"list": []}}} for name in ("key", "query")],
}


def test_tracing_is_inside_the_guard_and_sees_no_key(tmp_path: Path) -> None:
    (tmp_path / "traced.py").write_text(TRACED, encoding="utf-8")
    with parties(tmp_path) as of:
        settings = {**of.settings(KEY=of.key()), "CARD": json.dumps(TRACED_CARD)}
        run = [str(python_of(ENVIRONMENT)), "-c", TRACING]
        done = subprocess.run(run, cwd=tmp_path, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = [401, False, 200, True, 200, True, False]
    assert json.loads(done.stdout) == {"after": seen, "before": seen}


class Noting:
    """A middleware that notes the callers of the requests that it sees."""

    seen: Final[list[str]] = []

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.seen.append(principal_of(scope).display_name)
        await self.app(scope, receive, send)


async def test_the_application_stays_what_it_was() -> None:
    async def teapot(request: Request, error: Exception) -> PlainTextResponse:
        return PlainTextResponse(f"no coffee for {principal_of(request).label}", 418)

    store = MemoryApiKeys()
    key = store.create(owner="ann").text
    application = FastAPI(title="ledger", exception_handlers={RuntimeError: teapot})
    application.state.books = 7
    routes = application.routes
    app = protect(application, card=PLAIN_CARD, verifiers={"key": ApiKeyVerifier(store)})
    assert app is application
    assert (app.routes, app.state.books) == (routes, 7)

    @app.get("/coffee/{size}", name="coffee")
    async def coffee(size: int) -> int:
        if size > app.state.books:
            raise RuntimeError
        if size < 0:
            raise HTTPException(422)
        return size

    app.add_middleware(Noting)
    assert (app.url_path_for("coffee", size=3), "/coffee/{size}" in app.openapi()["paths"]) == ("/coffee/3", True)
    outer = FastAPI()
    outer.mount("/team", app)
    for served, prefix in ((app, ""), (outer, "/team")):
        Noting.seen.clear()
        transport = httpx.ASGITransport(served, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
            for headers, statuses in (({}, [401, 401, 401]), ({"X-API-Key": key}, [200, 418, 422])):
                answers = [await http.get(f"{prefix}/coffee/{size}", headers=headers) for size in (3, 8, -1)]
                assert [each.status_code for each in answers] == statuses
        assert answers[1].text == "no coffee for ann"
        assert Noting.seen == ["ann@api-keys"] * 3
