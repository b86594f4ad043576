"""docs/probe.md is true: its commands and its program run, and its rules are those of the probe."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from a2a_trust.card.operations import Operation
from a2a_trust.cli.main import main
from a2a_trust.probe import Verdict
from a2a_trust.probe.requests import HARMLESS
from a2a_trust.probe.verdicts import RULES
from tests.conftest import ROOT
from tests.docs.newcomer import commands_of, is_shown
from tests.probe.agents import KEY, serving

PAGE = (ROOT / "docs" / "probe.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ann.key").write_text(KEY)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("block", COMMANDS)
def test_the_commands_print_what_the_page_shows(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as served:
        for command, shown in commands_of(block):
            line = command.replace("https://agent.example.com", served.url)
            program, *arguments = shlex.split(line.replace("\\\n", ""))
            assert program == "a2a-sign"
            assert main([*arguments, "--private-origins"]) == 0
            assert is_shown(capsys.readouterr().out.replace(served.url, "https://agent.example.com"), shown)


def test_the_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as served:
        exec(compile(PROGRAM.replace("http://127.0.0.1:8000", served.url), "docs/probe.md", "exec"), {})
    assert "JSONRPC; key; enforced; SendMessage with no credential: 401" in capsys.readouterr().out


def test_the_page_has_each_rule_once_in_its_order() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", PAGE.partition("## Rules")[2], re.MULTILINE)
    assert rows == list(RULES)


def test_the_page_has_each_verdict_and_each_operation() -> None:
    assert set(re.findall(r"^\| `([a-z ]+)` \| [^|]+ \|$", PAGE, re.MULTILINE)) == {each.value for each in Verdict}
    for operation in HARMLESS:
        assert f"`{Operation(operation).value}`" in PAGE
