"""docs/lint.md is true: its commands run. docs/operations.md names one path in its program and its probe."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from a2a_trust.cli.main import main
from tests.docs.newcomer import commands_of, is_shown
from tests.docs.pages import PAGES


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
    ((command, shown),) = commands_of(session)
    assert main(command.removeprefix("a2a-sign ").split()) == 0
    assert is_shown(capsys.readouterr().out, shown)


def test_the_step_for_code_scanning_writes_sarif(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workflow,) = blocks("docs/lint.md", "yaml")
    command, file = re.findall(r"^- run: a2a-sign (.*) > (\S+)\n", workflow)[0]
    assert main(command.split()) == 0
    assert json.loads(capsys.readouterr().out)["version"] == "2.1.0"
    assert f"sarif_file: {file}\n" in workflow


def test_the_probe_of_kubernetes_asks_the_path_of_the_page() -> None:
    (program,) = blocks("docs/operations.md", "python")
    (probe,) = blocks("docs/operations.md", "yaml")
    (path,) = re.findall(r"    path: (\S+)\n", probe)
    assert probe.startswith("readinessProbe:\n  httpGet:\n")
    assert f'readiness_path="{path}"' in program
