"""Rejections by parts of an agent of the a2a-sdk, which answers most exceptions itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from a2a_trust import SqliteApiKeys
from tests.servers.environments import python_of
from tests.servers.serving import free_port, serving

pytestmark = pytest.mark.real

SDKS = ["server-1.3.0", "server-0.3.26"]
_PROGRAM = Path(__file__).resolve().parent / "sdk_rejections.py"


class Running(NamedTuple):
    http: httpx.Client
    keys: dict[str, str]
    is_0_3: bool
    decisions: Path

    def send(self, binding: str, owner: str = "ann", **headers: str) -> httpx.Response:
        named = {f"X-{name.title()}": value for name, value in headers.items()}
        version = "0.3" if self.is_0_3 else "1.0"
        message: dict[str, Any] = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        method, path = "SendMessage", "/rest/message:send"
        if self.is_0_3 and binding == "rpc":
            message |= {"role": "user", "parts": [{"kind": "text", "text": "hi"}], "kind": "message"}
        if self.is_0_3:
            method, path = "message/send", "/rest/v1/message:send"
            if binding == "rest":
                message = {"messageId": "1", "role": "ROLE_USER", "content": [{"text": "hi"}]}
        body: dict[str, Any] = {"message": message}
        if binding == "rpc":
            body, path = {"jsonrpc": "2.0", "id": 7, "method": method, "params": body}, "/rpc"
        given = {"X-API-Key": self.keys[owner], "A2A-Version": version, **named}
        return self.http.post(path, json=body, headers=given)


@pytest.fixture(scope="module", params=SDKS)
def agent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("rejects")
    store = SqliteApiKeys(folder / "keys.db", create=True)
    keys = {"ann": store.create(owner="ann").text, "rich": store.create(owner="rich", scopes=["pay"]).text}
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    given = {"PORT": str(port), "API_KEYS": str(folder / "keys.db")}
    with (
        serving([str(python_of(request.param)), str(_PROGRAM)], f"{origin}/.well-known/agent-card.json", given, folder),
        httpx.Client(base_url=origin, trust_env=False, timeout=60) as http,
    ):
        yield Running(http, keys, "-0.3." in request.param, folder / "decisions.jsonl")


@pytest.mark.parametrize("binding", ["rpc", "rest"])
@pytest.mark.parametrize("where", ["builder", "handler"])
@pytest.mark.parametrize("how", ["skill", "reject", "unknown"])
def test_a_rejection_is_the_guards_answer(agent: Running, binding: str, where: str, how: str) -> None:
    answer = agent.send(binding, where=where, how=how)
    assert answer.status_code == 403, answer.text
    assert 'ApiKey in="header", name="X-API-Key"' in answer.headers["www-authenticate"]
    assert answer.headers["cache-control"] == "no-store"
    error = answer.json()["error"]
    if binding == "rpc":
        assert (answer.json()["id"], error["code"]) == (7, -31403)
    else:
        assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
    for secret in ("owner may", "pay", "unknown", *agent.keys.values()):
        assert secret not in answer.text


@pytest.mark.parametrize(("binding", "named"), [("rpc", "JSONRPC"), ("rest", "HTTP+JSON")])
def test_an_observer_gets_both_decisions(agent: Running, binding: str, named: str) -> None:
    agent.decisions.write_text("")
    agent.send(binding, where="handler", how="skill")
    agent.send(binding, "rich", where="handler", how="skill")
    admitted = [None, ["key"], named, "SendMessage", False]
    *first, last = map(json.loads, agent.decisions.read_text().splitlines())
    assert first == [admitted, ["insufficient-scope", ["key"], named, None, True]]
    assert last == admitted


@pytest.mark.parametrize("binding", ["rpc", "rest"])
def test_who_has_the_skills_scope_is_served(agent: Running, binding: str) -> None:
    for where in ("builder", "handler", "executor"):
        answer = agent.send(binding, "rich", where=where, how="skill")
        assert (answer.status_code, "error" in answer.json()) == (200, False), answer.text


@pytest.mark.parametrize("binding", ["rpc", "rest"])
def test_in_the_executor_the_task_does_not_complete(agent: Running, binding: str) -> None:
    answer = agent.send(binding, where="executor", how="skill")
    print(answer.status_code, answer.text)
    assert "completed" not in answer.text.lower()
