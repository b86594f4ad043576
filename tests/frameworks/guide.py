"""The code of docs/frameworks, as the tests and the programs of this folder run it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

__all__ = ["block_of", "run_page"]

PAGES: Final = Path(__file__).resolve().parents[2] / "docs" / "frameworks"


def block_of(page: str, block: int, language: str = "python") -> str:
    """One block of docs/frameworks/<page>.md."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return blocks[block]


def run_page(page: str, names: dict[str, Any], block: int = 0) -> None:
    """Run one block of Python of docs/frameworks/<page>.md; what it makes is in ``names`` then."""
    exec(compile(block_of(page, block), f"{PAGES / page}.md, block {block}", "exec"), names)
