"""The index of attacks names every test in this folder, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent


def test_every_attack_stands_in_the_index() -> None:
    named = set(re.findall(r"`(?:tests/attacks/test_)?(\w+)(?:\.py)?`", (FOLDER / "README.md").read_text("utf-8")))
    there = {path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py")} - {"index"}
    assert there - named == set(), "add an item to tests/attacks/README.md"
    assert {name for name in named if re.match(r"[a-z]\d\db?_", name)} - there == set(), "items without a test"


def test_every_item_has_a_test() -> None:
    items = re.findall(r"(?ms)^- \*\*([A-Z]\d+)\*\*: (.*?)(?=^-|^$)", (FOLDER / "README.md").read_text("utf-8"))
    assert len(items) > 60
    assert [code for code, text in items if not re.search(r"\bTests?:\s+`", text)] == []
