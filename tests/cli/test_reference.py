"""docs/a2a-sign.md is true: its exit codes are those of the command, and every command is on it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from a2a_trust.cli import arguments
from a2a_trust.cli.arguments import COMMANDS
from a2a_trust.cli.report import Exit, class_of
from a2a_trust.cli.sources import default_key_path, default_memory_path
from tests.conftest import ROOT

REFERENCE = (ROOT / "docs" / "a2a-sign.md").read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="the page has the names on Linux")
def test_the_default_files_are_those_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    files = [Path(name).expanduser() for name in re.findall(r"^- `(~/.*?)`:", REFERENCE, re.MULTILINE)]
    assert files == [default_key_path(), default_memory_path()]


def test_the_variables_are_those_that_the_command_reads() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(arguments.__file__).parent.glob("*.py"))
    read = set(re.findall(r'"(A2A_SIGN_KEY\w*|CI|NO_COLOR)"', sources))
    table = REFERENCE.partition("| variable |")[2].partition("## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == read


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_explained(command: str) -> None:
    assert re.search(rf"`(?:a2a-sign )?{command}[ `]", REFERENCE)


def test_the_exit_codes_are_those_of_the_command() -> None:
    rows = re.findall(r"^\| (\d) \| `([a-z-]+)` \|", REFERENCE, re.MULTILINE)
    assert rows == [(str(int(code)), class_of(code)) for code in Exit]
