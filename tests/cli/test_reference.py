"""docs/a2a-sign.md is true: its session runs, its exit codes are those of the command, and every command is on it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from a2a_trust.cli.arguments import COMMANDS
from a2a_trust.cli.report import Exit, class_of
from tests.cli.test_readme import run
from tests.conftest import ROOT

REFERENCE = (ROOT / "docs" / "a2a-sign.md").read_text(encoding="utf-8")
FIRST, LEAKED = re.findall(r"```console\n(.*?)```", REFERENCE, re.DOTALL)


def test_the_session_runs_from_a_key_to_a_revocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    run(FIRST, "console", tmp_path)
    printed = run(LEAKED, "console", tmp_path)
    assert "the key is revoked" in printed
    assert printed.index("NOT VERIFIED") < printed.index("rejected, and it says why") < printed.index(": verified: ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_explained(command: str) -> None:
    assert re.search(rf"`(?:a2a-sign )?{command}[ `]", REFERENCE)


def test_the_exit_codes_are_those_of_the_command() -> None:
    rows = re.findall(r"^\| (\d) \| `([a-z-]+)` \|", REFERENCE, re.MULTILINE)
    assert rows == [(str(int(code)), class_of(code)) for code in Exit]
