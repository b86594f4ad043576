"""docs/lint.md and docs/operations.md are true: their commands and programs run."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_trust import ApiKeyVerifier, SqliteApiKeys, protect
from a2a_trust.auth import MemoryApiKeys
from a2a_trust.cli.main import main
from tests.docs.pages import PAGES
from tests.tiers import missing


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", PAGES[page])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the card of the tutorial, but for what lint says of a machine's own URLs."""
    card = blocks("docs/tutorial.md", "json")[0].replace("http://localhost:8000", "https://agent.example.com")
    (tmp_path / "card.json").write_text(card)
    (tmp_path / "agent-card.json").write_text(card)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_lint_prints_what_its_page_shows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (session,) = blocks("docs/lint.md", "console")
    command, _, shown = session.partition("\n")
    assert main(command.removeprefix("$ a2a-sign ").split()) == 0
    assert capsys.readouterr().out == shown


def test_the_step_for_code_scanning_writes_sarif(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workflow,) = blocks("docs/lint.md", "yaml")
    command, file = re.findall(r"^- run: a2a-sign (.*) > (\S+)\n", workflow)[0]
    assert main(command.split()) == 0
    assert json.loads(capsys.readouterr().out)["version"] == "2.1.0"
    assert f"sarif_file: {file}\n" in workflow


@pytest.mark.real
def test_each_command_copies_a_store_in_use(folder: Path) -> None:
    if shutil.which("sqlite3") is None:
        missing("sqlite3", "real-databases")
    keys = SqliteApiKeys("keys.db", create=True)
    keys.create(owner="ann")
    commands, *_ = blocks("docs/operations.md", "console")
    for command in commands.splitlines():
        Path("keys-2026-11-22.db").unlink(missing_ok=True)
        subprocess.run(["bash", "-c", command.removeprefix("$ ")], check=True)
        assert [record.owner for record in SqliteApiKeys("keys-2026-11-22.db").records()] == ["ann"]


def test_readiness_is_as_the_page_shows() -> None:
    program, endpoint = blocks("docs/operations.md", "python")[1:]
    names: dict[str, Any] = {"JSONResponse": JSONResponse}
    exec(program, names)
    exec(endpoint, names)
    verifiers = {"key": ApiKeyVerifier(MemoryApiKeys())}
    app = Starlette(routes=[Route("/status", names["status"])])
    names["app"] = protect(app, card=blocks("docs/tutorial.md", "json")[0], verifiers=verifiers, rules=names["rules"])
    path = re.findall(r"    path: (\S+)\n", blocks("docs/operations.md", "yaml")[0])[0]

    async def ask() -> tuple[httpx.Response, str]:
        found = await names["status"](None)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://a") as http:
            return await http.get(path), json.loads(found.body)

    answer, found = asyncio.run(ask())
    assert (answer.status_code, answer.text) == (200, "ready")
    assert found == json.loads(blocks("docs/operations.md", "json")[-1])


def test_the_agent_of_operations_starts(folder: Path) -> None:
    assert main(["keys", "create", "ring.json"]) == 0
    assert main(["card.json", "--key", "ring.json"]) == 0
    SqliteApiKeys("keys.db", create=True)
    program = blocks("docs/operations.md", "python")[0]
    names = {"agent": Starlette()}
    exec(compile(program.replace("/etc/agent/", ""), "docs/operations.md", "exec"), names)
    assert callable(names["app"])
