"""The index of attacks names every test in this folder, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent


def test_every_attack_stands_in_the_index() -> None:
    named = set(re.findall(r"`(?:tests/attacks/test_)?(\w+)(?:\.py)?`", (FOLDER / "README.md").read_text("utf-8")))
    there = {path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py")} - {"index"}
    assert there - named == set(), "add a row to tests/attacks/README.md"
    assert {name for name in named if re.match(r"[a-z]\d\db?_", name)} - there == set(), "rows without a test"


def test_every_row_has_a_test() -> None:
    rows = re.findall(r"^\| ([A-Z]\d+) \|.*\|(.*)\|$", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    assert rows
    assert [code for code, tests in rows if not tests.strip()] == []
