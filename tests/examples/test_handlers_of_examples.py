"""The handlers of the examples, tested as their authors would: with ``a2a_trust.testing``, and without a server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import SqliteApiKeys, generate_signer
from a2a_trust.keys import save_private_key
from a2a_trust.testing import TokenIssuer, as_caller, fake_principal, memory_client
from tests.servers.environments import python_of
from tests.servers.serving import ROOT

pytestmark = pytest.mark.anyio

EXAMPLES = ROOT / "examples"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], Any]:
    """Imports a module of an example, whose settings are files in ``tmp_path``."""
    save_private_key(tmp_path / "card.key", generate_signer("ES256"))
    SqliteApiKeys(tmp_path / "keys.db", create=True)
    monkeypatch.setenv("CARD_KEY", str(tmp_path / "card.key"))
    monkeypatch.setenv("API_KEYS", str(tmp_path / "keys.db"))

    def imported(example: str, name: str) -> Any:
        monkeypatch.syspath_prepend(EXAMPLES / example)
        for each in (EXAMPLES / example).glob("*.py"):  # examples have modules of one name
            monkeypatch.setitem(sys.modules, each.stem, None)
            del sys.modules[each.stem]
        return import_module(name)

    return imported


def shouting(text: str) -> dict[str, Any]:
    return {"id": "t1", "message": {"role": "user", "parts": [{"type": "text", "text": text}]}}


def saying(text: str) -> dict[str, Any]:
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}


async def test_the_agent_of_0_1_shouts_streams_and_keeps_its_tasks(
    modules: Callable[[str, str], Any], tmp_path: Path
) -> None:
    app = modules("tasks_agent", "protected").app
    key = SqliteApiKeys(tmp_path / "keys.db").create(owner="ann").text
    async with memory_client(app, headers={"X-API-Key": key}) as http:
        assert (await http.post("/tasks/send", json=shouting("hi"))).json()["status"] == {"state": "completed"}
        assert (await http.get("/tasks/t1")).json()["artifacts"][0]["parts"][0]["text"] == "HI"
        stream = (await http.post("/tasks/sendSubscribe", json=shouting("hi"))).text
        assert [json.loads(line[6:])["final"] for line in stream.splitlines() if line] == [False, True]


async def test_the_order_desk_writes_its_callers_into_the_book(modules: Callable[[str, str], Any]) -> None:
    shop = modules("several_agents", "agents")
    for subject in ("ann", "bob"):
        async with memory_client(as_caller(shop.order_desk, fake_principal(subject))) as http:
            answer = (await http.post("/rpc", json=saying("lamp"))).json()
            assert answer["result"]["message"]["parts"] == [{"text": "Order 1: a lamp."}]
        assert shop.order_desk.state.book == [(f"{subject}@api-keys", "lamp")]


async def test_each_agent_of_the_shop_wants_its_own_scope(modules: Callable[[str, str], Any], tmp_path: Path) -> None:
    app, keys = modules("several_agents", "agents").app, SqliteApiKeys(tmp_path / "keys.db")
    async with memory_client(app, base_url="http://127.0.0.1:8000") as http:
        for agent, scope, other in (("catalog", "catalog:read", "orders"), ("orders", "orders:write", "catalog")):
            header = {"X-API-Key": keys.create(owner="ann", scopes=[scope]).text}
            statuses = [
                (await http.post(f"/{each}/rpc", json=saying("lamp"), headers=header)).status_code
                for each in (agent, other)
            ]
            assert statuses == [200, 403]


async def test_users_get_what_is_theirs_by_a_token_for_that_agent(
    modules: Callable[[str, str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = modules("on_behalf_of", "agents")
    issuer, calendar, mail = TokenIssuer(agents.ISSUER), "https://calendar.example", "https://mail.example"
    monkeypatch.setattr(agents, "protection", lambda audience: {"verifiers": {"login": issuer.verifier(audience)}})
    said = {}
    async with memory_client(agents.calendar(), base_url=agents.CALENDAR_URL) as http:
        for name, token in {
            "alice": issuer.token("alice", audience=calendar, scopes=["read"]),
            "carol": issuer.token("carol", audience=calendar, scopes=["read"]),
            "without the scope": issuer.token("alice", audience=calendar),
            "for the mailbox": issuer.token("alice", audience=mail, scopes=["read"]),
            "expired": issuer.token("alice", audience=calendar, scopes=["read"], expires_in=-1),
        }.items():
            answer = await http.post("/rpc", json=saying("?"), headers={"Authorization": f"Bearer {token}"})
            is_good = answer.status_code == 200
            said[name] = answer.json()["result"]["message"]["parts"][0]["text"] if is_good else answer.status_code
    assert said == {
        "alice": "calendar of alice: dentist at 10",
        "carol": "calendar of carol: nothing",
        "without the scope": 403,
        "for the mailbox": 401,
        "expired": 401,
    }


@pytest.mark.real
def test_the_hello_world_of_the_sdk_greets_a_caller_with_a_key_and_its_executor_any() -> None:
    command = [str(python_of("server-1.3.0")), str(Path(__file__).with_name("sdk_hello_world.py"))]
    path = f"{ROOT}:{EXAMPLES / 'sdk_hello_world'}"
    done = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout) == {
        "executor": ["Task", "TASK_STATE_WORKING", "Hello World! You said: hi", "TASK_STATE_COMPLETED"],
        "by key": [200, "Hello World! You said: hi"],
        "without scope": [403, None],
        "made up": [401, None],
    }
