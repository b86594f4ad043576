"""What executors of released SDKs know of the credentials of their callers: the kept token, and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from a2a_trust import publish_jwks
from tests.auth.test_jwt import EC, token
from tests.servers.environments import python_of
from tests.servers.serving import ROOT, free_port, serving

pytestmark = [pytest.mark.anyio, pytest.mark.real]

HERE = Path(__file__).resolve().parent
ISSUER, AUDIENCE = "https://login.example.com", "https://agent.example"
KEY = secrets.token_urlsafe(32)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def access_token(subject: str) -> str:
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "iat": now, "exp": now + 3600, "jti": secrets.token_hex()}
    return token(claims)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Task(NamedTuple):
    id: str
    context: str


class Agent(NamedTuple):
    """An agent that runs, and how it is called: ``version`` is that of the protocol."""

    origin: str
    version: str

    async def send(self, http: httpx.AsyncClient, name: str, headers: dict[str, str], task: Task | None = None) -> Task:
        """Send a message of that id, to the task or to a new one; the task."""
        message: dict[str, Any] = {"messageId": name, "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        if self.version == "0.3":
            message |= {"role": "user", "parts": [{"kind": "text", "text": "hi"}], "kind": "message"}
        if task is not None:
            message |= {"taskId": task.id, "contextId": task.context}
        method = "message/send" if self.version == "0.3" else "SendMessage"
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
        answer = await http.post(f"{self.origin}/rpc", json=call, headers={"A2A-Version": self.version, **headers})
        result = answer.json()["result"]
        found = result if self.version == "0.3" else result["task"]
        return Task(found["id"], found["contextId"])

    async def seen(self, http: httpx.AsyncClient, headers: dict[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = (await http.get(f"{self.origin}/seen", headers=headers)).json()
        return found


def card_of(version: str, origin: str) -> dict[str, Any]:
    if version == "0.3":
        schemes: dict[str, Any] = {
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            "login": {"type": "oauth2", "flows": {}},
        }
        demands: list[Any] = [{"key": []}, {"login": []}]
        card = {"protocolVersion": "0.3.0", "url": f"{origin}/rpc", "security": demands, "securitySchemes": schemes}
    else:
        schemes = {
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
            "login": {"oauth2SecurityScheme": {"flows": {}}},
        }
        card = {
            "supportedInterfaces": [{"url": f"{origin}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "securitySchemes": schemes,
            "securityRequirements": [{"schemes": {name: {}}} for name in schemes],
        }
    return {"name": "Telling", "description": "Tells.", "version": "1", "skills": [], **card}


@contextmanager
def telling(environment: str, **rules: bool) -> Iterator[Agent]:
    """The agent of that SDK, with those rules, while the block runs."""
    version, port = "0.3" if "-0.3." in environment else "1.0", free_port()
    origin = f"http://127.0.0.1:{port}"
    # This package and what it needs, and behind them what the servers of the SDK need.
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    servers = python_of("server-1.3.0").parents[1] / "lib" / python / "site-packages"
    settings = {
        "folders": [str(ROOT), sysconfig.get_path("purelib"), str(servers)],
        "card": card_of(version, origin),
        "port": port,
        "key": KEY,
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "jwks": json.dumps(publish_jwks([EC.public_key])),
        "rules": rules,
    }
    command = [str(python_of(environment)), str(HERE / "sdk_telling_agent.py")]
    with serving(command, f"{origin}/seen", {"TELLING": json.dumps(settings)}, HERE):
        yield Agent(origin, version)


SDKS = ["server-1.3.0", "python-1.1.3", "python-0.3.26"]


@pytest.mark.parametrize("sdk", SDKS)
async def test_an_executor_gets_the_token_of_its_own_caller_and_sees_no_other_credential(sdk: str) -> None:
    tokens = {name: access_token(name) for name in ("ann", "bob", "cid")}
    headers = {name: {"Authorization": f"Bearer {text}"} for name, text in tokens.items()}
    with telling(sdk, keep_subject_token=True) as agent:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
            task = await agent.send(http, "by ann", headers["ann"])
            assert await agent.send(http, "by bob", headers["bob"], task) == task
            await asyncio.gather(*[agent.send(http, f"new by {name}", headers[name]) for name in tokens])
            if sdk == "server-1.3.0":  # older ones do not serve every combination of messages to one task at once
                # One event of the task answers several of them, so some may still wait for the executor afterwards.
                await asyncio.gather(*[agent.send(http, f"also by {name}", headers[name], task) for name in tokens])
            await agent.send(http, "by key", {"X-API-Key": KEY})
            seen = await agent.seen(http, headers["cid"])
    by_tokens = {message: message.split()[-1] for message in seen if message not in ("by key", "request")}
    assert {"by ann", "by bob", *(f"new by {name}" for name in tokens)} <= set(by_tokens)
    for message, name in by_tokens.items():
        assert [each["digest"] for each in seen[message]["tokens"]] == [digest(tokens[name])] * 2
        assert {each["subject"] for each in seen[message]["tokens"]} == {name}
        assert {each["issuer"] for each in seen[message]["tokens"]} == {ISSUER}
        assert {each["expires_at"] - time.time() > 3000 for each in seen[message]["tokens"]} == {True}
    assert seen.pop("request")["digest"] == digest(tokens["cid"])
    assert [code for code, _ in seen["by key"]["tokens"]] == ["missing-credentials"] * 2
    for each in seen.values():
        assert "content-type" in each["names"]
        assert {"authorization", "x-api-key"}.isdisjoint(each["names"])
        assert not [text for text in each["texts"] for secret in (*tokens.values(), KEY) if secret in text]


@pytest.mark.parametrize("sdk", SDKS)
async def test_an_agent_that_wants_credentials_gets_them_where_it_says_so(sdk: str) -> None:
    text = access_token("ann")
    with telling(sdk, hide_credentials=False) as agent:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
            await agent.send(http, "by ann", {"Authorization": f"Bearer {text}"})
            seen = await agent.seen(http, {"X-API-Key": KEY})
    assert "authorization" in seen["by ann"]["names"]
    assert [each for each in seen["by ann"]["texts"] if text in each]
    for code, words in (*seen["by ann"]["tokens"], seen["request"]):
        assert (code, "RequestRules(keep_subject_token=True)" in words) == ("configuration", True)
