"""The examples of agents of the first generation, started as their documentation says, and called over loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust import SqliteApiKeys, generate_signer
from a2a_trust.keys.files import private_key_bytes
from tests.examples.waiting import until
from tests.servers.serving import free_port, serving

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
REQUEST = {"id": "t1", "message": {"role": "user", "parts": [{"type": "text", "text": "hello"}]}}
ROUTES = [("POST", "/tasks/send"), ("POST", "/tasks/sendSubscribe"), ("GET", "/tasks/t1"), ("GET", "/tasks/t2")]


def ask(url: str, method: str, path: str, **headers: str) -> httpx.Response:
    return httpx.request(method, url + path, json=REQUEST if method == "POST" else None, headers=headers, timeout=60)


def started(app: str, folder: Path, **settings: str) -> Any:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(folder), "--port", str(port), app]
    return url, serving(command, f"{url}/.well-known/agent.json", {"WRITER_URL": url, **settings}, folder)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "keys.db"


@pytest.fixture(scope="module")
def key(store: Path) -> str:
    return SqliteApiKeys(store, create=True).create(owner="somebody").text


#: The protected agent. It thinks until the file is there, not for a second.
THINKING = f"""
import asyncio, os, sys
from types import SimpleNamespace

sys.path.insert(0, {str(EXAMPLES / "tasks_agent")!r})
import agent
from protected import app

async def think(_: float) -> None:
    while not os.path.exists("thought"):
        await asyncio.sleep(0.02)

agent.asyncio = SimpleNamespace(sleep=think)
"""


@pytest.fixture(scope="module")
def protected(store: Path, key: str) -> Iterator[str]:
    store.with_name("thinking.py").write_text(THINKING)
    url, running = started("thinking:app", store.parent, API_KEYS=str(store))
    with running:
        yield url


def test_the_agent_as_it_was_answers_anybody() -> None:
    url, running = started("agent:app", EXAMPLES / "tasks_agent")
    with running:
        card = ask(url, "GET", "/.well-known/agent.json").json()
        assert card["authentication"] == {"schemes": ["apiKey"]}
        assert ask(url, "POST", "/tasks/send").status_code == 200


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_behind_one_line_it_answers_nobody_without_a_good_key(method: str, path: str, protected: str) -> None:
    for headers in ({}, {"X-API-Key": "a2a_guessed"}, {"Authorization": "Bearer a2a_guessed"}):
        response = ask(protected, method, path, **headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith('ApiKey in="header", name="X-API-Key"')
        assert response.json()["error"]["status"] == "UNAUTHENTICATED"
        assert response.headers["content-type"] == "application/json"


def test_a_good_key_is_served_and_a_revoked_one_is_not(protected: str, store: Path) -> None:
    keys = SqliteApiKeys(store)
    issued = keys.create(owner="ann")
    good = {"X-API-Key": issued.text}
    until(lambda: ask(protected, "POST", "/tasks/send", **good).status_code == 200)  # when the store was read again
    assert ask(protected, "GET", "/tasks/t1", **good).json()["artifacts"][0]["parts"][0]["text"] == "HELLO"
    assert ask(protected, "GET", "/tasks/t2", **good).status_code == 404
    keys.revoke(issued.record.key_id)
    until(lambda: ask(protected, "GET", "/tasks/t1", **good).status_code == 401)
    for method, path in ROUTES:
        assert ask(protected, method, path, **good).status_code == 401


def test_events_arrive_while_the_agent_is_still_at_work(protected: str, store: Path, key: str) -> None:
    request = {**REQUEST, "id": "slow"}
    good = {"X-API-Key": key}
    with httpx.stream("POST", f"{protected}/tasks/sendSubscribe", json=request, headers=good) as response:
        assert response.status_code == 200
        events = (json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line)
        assert next(events)["final"] is False
        assert ask(protected, "GET", "/tasks/slow", **good).json()["status"] == {"state": "working"}
        store.with_name("thought").touch()
        last = next(events)
        assert last["final"] is True
        assert last["artifacts"][0]["parts"][0]["text"] == "HELLO"
        assert not list(events)


def test_the_card_stays_public(protected: str) -> None:
    assert ask(protected, "GET", "/.well-known/agent.json").json()["name"] == "Shouter"
    assert ask(protected, "POST", "/.well-known/agent.json").status_code == 401


def test_an_orchestrator_writes_with_three_agents_until_its_key_is_revoked() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "writers" / "orchestrator.py")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line for line in done.stdout.splitlines() if line.startswith("==")] == [
        "== outline",
        "== document",
        "== summary",
    ]
    assert "1. Why agents need identities; 2. How agents need identities" in done.stdout
    assert "the asynchronous client gets the same: True\n" in done.stdout
    assert done.stdout.rstrip().endswith("after the user's key is revoked: 401")


@pytest.mark.parametrize("writer", ["outline", "document", "summary"])
def test_each_writer_knows_its_caller_and_refuses_strangers(writer: str, store: Path, key: str) -> None:
    card_key = store.with_name("card.key")
    card_key.write_bytes(private_key_bytes(generate_signer(), format="pem"))
    card_key.chmod(0o600)
    settings = {"WRITER": writer, "API_KEYS": str(store), "CARD_KEY": str(card_key)}
    url, running = started("serve:app", EXAMPLES / "writers", **settings)
    with running:
        assert ask(url, "POST", "/tasks/send").status_code == 401
        assert ask(url, "POST", "/tasks/send", **{"X-API-Key": key[:-1] + "?"}).status_code == 401
        answer = ask(url, "POST", "/tasks/send", **{"X-API-Key": key}).json()
    assert answer["metadata"]["caller"] == "somebody@api-keys"
