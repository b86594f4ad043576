"""A change of the file counts whole or not at all; requests that run, stores and counters are not lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust.auth import SqliteApiKeys
from a2a_trust.serve import ServedAgent
from tests.auth.proofs import CLIENT, proof
from tests.serve.served import CARD, serving, upstream, write
from tests.servers.issuer import Issuer

AGENT = "https://agent.example"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)


@pytest.fixture
def key(tmp_path: Path) -> str:
    return SqliteApiKeys(tmp_path / "keys.db", create=True).create(owner="ann").text


def test_a_reload_under_load_loses_no_request(tmp_path: Path, key: str) -> None:
    async def run() -> None:
        async with upstream() as behind:
            agent = ServedAgent(write(tmp_path, behind.port))
            verifiers = agent._agent.objects.made
            answers: list[int] = []
            async with serving(agent) as url, httpx.AsyncClient(base_url=url, headers={"X-API-Key": key}) as http:
                is_over = asyncio.Event()

                async def ask() -> None:
                    while not is_over.is_set():
                        answers.append((await http.get("/page")).status_code)

                callers = [asyncio.create_task(ask()) for _ in range(8)]
                for number in range(5):
                    before = agent._agent
                    write(tmp_path, behind.port, f"# {number}")
                    agent._told.set()
                    await until(lambda before=before: agent._agent is not before)  # type: ignore[misc]
                is_over.set()
                await asyncio.gather(*callers)
            assert set(answers) == {200}
            assert len(answers) > 8
            now = {type(each).__name__: each for each in agent._agent.objects.made.values()}
            same = {type(each).__name__ for each in verifiers.values() if now[type(each).__name__] is each}
            assert same >= {"SqliteApiKeys", "ApiKeyVerifier"}

    asyncio.run(run())


def test_an_answer_that_runs_is_not_cut(tmp_path: Path, key: str) -> None:
    async def run() -> None:
        go_on = asyncio.Event()

        async def late(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await go_on.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        async with upstream() as behind:
            behind.go_on = late
            agent = ServedAgent(write(tmp_path, behind.port))
            async with serving(agent) as url, httpx.AsyncClient(base_url=url, headers={"X-API-Key": key}) as http:
                asking = asyncio.create_task(http.get("/page", timeout=60))
                await behind.asked.wait()
                before = agent._agent
                write(tmp_path, behind.port, "# changed")
                await until(lambda: agent._agent is not before)
                go_on.set()
                assert (await asking).status_code == 200

    asyncio.run(run())


def test_a_mistake_keeps_the_previous_version(tmp_path: Path, key: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with upstream() as behind:
            path = write(tmp_path, behind.port)
            agent = ServedAgent(path)
            before = agent._agent
            async with serving(agent) as url, httpx.AsyncClient(base_url=url, headers={"X-API-Key": key}) as http:
                for wrong, message in (
                    ("[rules", "not TOML"),
                    (path.read_text() + "[listen]\naddress = '127.0.0.1:1'\n", "only with a restart"),
                    (path.read_text().replace("keys.db", "other.db"), "other.db"),
                    (path.read_text().replace('"key', '"keys').replace("verifiers.key", "verifiers.other"), "other"),
                ):
                    caplog.clear()
                    path.write_text(wrong)
                    await until(lambda: "keeping the previous version" in caplog.text)
                    assert message in caplog.text
                    assert agent._agent is before
                    assert (await http.get("/page")).status_code == 200
                path.unlink()
                await until(lambda: "No such file" in caplog.text)
                assert (await http.get("/page")).status_code == 200

    asyncio.run(run())


def test_counters_of_failures_stay(tmp_path: Path, key: str) -> None:
    async def run() -> None:
        async with upstream() as behind:
            agent = ServedAgent(write(tmp_path, behind.port, limit="3/minute"))
            async with serving(agent) as url, httpx.AsyncClient(base_url=url) as http:

                async def fail() -> int:
                    return (await http.get("/page", headers={"X-API-Key": "wrong"})).status_code

                assert [await fail() for _ in range(3)] == [401] * 3
                before = agent._agent
                write(tmp_path, behind.port, "# changed", limit="3/minute")
                await until(lambda: agent._agent is not before)
                assert await fail() == 429
                before = agent._agent
                write(tmp_path, behind.port, limit="30/minute")
                await until(lambda: agent._agent is not before)
                assert await fail() == 401
                assert (await http.get("/page", headers={"X-API-Key": key})).status_code == 200

    asyncio.run(run())


def test_counters_of_webhooks_stay(tmp_path: Path, key: str) -> None:
    hook = "https://127.0.0.1:8443"
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "CreateTaskPushNotificationConfig",
        "params": {"taskId": "t1", "url": hook},
    }
    card = {**CARD, "capabilities": {**CARD["capabilities"], "pushNotifications": True}}

    async def run() -> None:
        async with upstream() as behind:

            def change(ports: str, limit: str) -> Path:
                path = write(tmp_path, behind.port, card=card, limit=limit)
                rule = f'{{ type = "Webhooks", ports = [{ports}], fetcher = {{ private_origins = ["{hook}"] }} }}'
                path.write_text(path.read_text().replace("[rules]", f"[rules]\nwebhooks = {rule}"))
                return path

            agent = ServedAgent(change("8443", "10/minute"))
            async with serving(agent) as url, httpx.AsyncClient(base_url=url, headers={"X-API-Key": key}) as http:

                async def register() -> int:
                    answer = await http.post("/rpc", json=call)
                    return answer.json()["error"]["code"] if answer.text.startswith("{") else 0

                assert [await register() for _ in range(11)] == [0] * 10 + [-32602]
                for ports, code in (("8443", -32602), ("443, 8443", 0)):
                    before = agent._agent
                    change(ports, "20/minute")
                    agent._told.set()
                    await until(lambda before=before: agent._agent is not before)  # type: ignore[misc]
                    assert await register() == code

    asyncio.run(run())


def test_the_card_of_the_file_and_signals_count(tmp_path: Path, key: str) -> None:
    async def run() -> None:
        async with upstream() as behind:
            agent = ServedAgent(write(tmp_path, behind.port))
            async with serving(agent) as url, httpx.AsyncClient(base_url=url) as http:
                (tmp_path / "card.json").write_text(json.dumps({**CARD, "name": "Other"}))
                before = agent._agent
                await until(lambda: agent._agent is not before)
                assert (await http.get("/.well-known/agent-card.json")).json()["name"] == "Other"
                before = agent._agent
                os.kill(os.getpid(), signal.SIGHUP)
                await until(lambda: agent._agent is not before)
                assert (await http.get("/page", headers={"X-API-Key": key})).status_code == 200

    asyncio.run(run())


@pytest.mark.parametrize("changed", ["", "window = 120.0\n"])
def test_a_proof_of_possession_counts_once(changed: str, tmp_path: Path) -> None:
    issuer = Issuer("https://issuer.example")
    (tmp_path / "keys.json").write_bytes(issuer.documents()["/jwks"])
    login: dict[str, Any] = {"securitySchemes": {"key": {"oauth2SecurityScheme": {"flows": {}}}}}
    SqliteApiKeys(tmp_path / "keys.db", create=True)

    def file(port: int, more: str) -> Path:
        path = write(tmp_path, port, card={**CARD, **login})
        text = path.read_text().partition("[verifiers.key]")[0] + f'[dpop]\nurl = "{AGENT}"\n{more}[verifiers.key]\n'
        keys = 'type = "JwtVerifier"\nkeys = { type = "JwksFile", path = "keys.json" }\n'
        path.write_text(f'{text}{keys}issuer = "{issuer.url}"\naudience = "{AGENT}"\n')
        return path

    async def run() -> None:
        async with upstream() as behind:
            agent = ServedAgent(file(behind.port, ""))
            async with serving(agent) as url, httpx.AsyncClient(base_url=url) as http:
                token = issuer.token(audience=AGENT, cnf={"jkt": CLIENT.public_key.thumbprint})

                async def ask(shown: str) -> int:
                    headers = {"Authorization": f"DPoP {token}", "DPoP": shown}
                    return (await http.get("/page", headers=headers)).status_code

                shown = proof(token, htm="GET", htu=f"{AGENT}/page", iat=int(time.time()))
                assert await ask(shown) == 200
                assert await ask(shown) == 401
                before = agent._agent
                file(behind.port, changed + "# changed\n")
                await until(lambda: agent._agent is not before)
                assert await ask(shown) == 401
                assert await ask(proof(token, htm="GET", htu=f"{AGENT}/page", iat=int(time.time()))) == 200

    asyncio.run(run())
