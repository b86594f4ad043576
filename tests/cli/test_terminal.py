"""Colours are for terminals alone; the words are the same everywhere."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from a2a_trust.cli.report import printable, printable_lines
from tests.cli.conftest import CARD, COMMAND

COLOUR = re.compile(r"\x1b\[(?:31|32|33|0)m")


def on_terminal(folder: Path, *arguments: str, **environment: str) -> str:
    """What the command writes when its standard output is a terminal."""
    ours, its = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen([COMMAND, *arguments], cwd=folder, env={**clean, **environment}, stdout=its):
        os.close(its)
        written = b""
        try:
            while part := os.read(ours, 65536):
                written += part
        except OSError:  # the other end is closed
            pass
        finally:
            os.close(ours)
    return written.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("command", ["inspect", "lint"])
def test_a_terminal_gets_colors_and_a_pipe_the_same_words_without(command: str, tmp_path: Path) -> None:
    hostile = {**CARD, "name": "Invoice\x1b[2J Agent", "iconUrl": "http://example.com/i.png", "skills": []}
    (tmp_path / "card.json").write_text(json.dumps(hostile))
    piped = subprocess.run([COMMAND, command, "card.json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    shown = on_terminal(tmp_path, command, "card.json")
    assert "\x1b" not in piped.stdout
    assert COLOUR.search(shown)
    assert COLOUR.sub("", shown) == piped.stdout
    assert on_terminal(tmp_path, command, "card.json", NO_COLOR="1") == piped.stdout


def test_of_many_cards_a_terminal_shows_the_failures_and_the_sum(tmp_path: Path) -> None:
    for number in range(51):
        (tmp_path / f"{number:02}.json").write_text(json.dumps(CARD if number else {**CARD, "name": 1}))
    assert COLOUR.sub("", on_terminal(tmp_path, "lint", ".")).splitlines()[-1].startswith("51 cards: ")
    assert "01.json" not in on_terminal(tmp_path, "lint", ".")
    assert "00.json" in on_terminal(tmp_path, "lint", ".")
    piped = subprocess.run([COMMAND, "lint", "."], cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert "01.json" in piped
    (tmp_path / "00.json").unlink()
    assert "01.json" in on_terminal(tmp_path, "lint", ".")  # fifty are few


def test_no_text_of_a_card_makes_a_line_of_its_own(tmp_path: Path) -> None:
    """Where the terminal begins a new line, a text would look like the report."""
    forged = "trusted:      verified, for bank.example.com"
    for padding in (" " * 59, "x" * 59, "word " * 11 + "    ", "\u2800" * 59, "\u3164" * 59):
        (tmp_path / "card.json").write_text(json.dumps({**CARD, "description": f"Pays{padding}  {forged}"}))
        shown = on_terminal(tmp_path, "inspect", "card.json", COLUMNS="80")
        about = shown[shown.index("  says:") : shown.index("  callers need:")].rstrip("\n").split("\n")
        assert len(about) > 1 or padding.isspace()  # runs of blanks become one
        assert all(line.startswith(" " * 16) for line in about[1:])
        assert max(map(len, about)) <= 80


def test_a_further_line_of_a_text_is_ours_or_none() -> None:
    assert printable_lines("wrong\n  make one: x") == "wrong\n  make one: x"
    assert printable_lines("gone\nok: verified") == "gone\\nok: verified"
    assert printable("a\n  b") == "a\\n  b"
    assert printable("::error::x ## y") == "\\x3a:error::x #\\x23 y"
