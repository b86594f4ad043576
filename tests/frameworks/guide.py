"""The lines of docs/agents.md and docs/frameworks for each framework, as the programs of this folder run them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import a2a_trust
from tests.frameworks.guards import guard

__all__ = ["names_for", "run_lines", "run_page"]

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "agents.md"
PAGES = GUIDE.parent / "frameworks"


def names_for(scope: str, url: str) -> dict[str, Any]:
    """What the lines find: our public names, and options of an agent at that URL whose callers need the scope."""
    signer = a2a_trust.load_private_key(os.environ["CARD_KEY"])
    ours = {name: getattr(a2a_trust, name) for name in dir(a2a_trust) if not name.startswith("_")}
    serving = a2a_trust.CardServing(signer=signer, lifetime=3600)
    return {**ours, "options": guard(scope, url), "url": url, "signer": signer, "serving": serving}


def run_lines(heading: str, names: dict[str, Any], block: int = 0) -> None:
    """Run the lines below that heading; what they make is in ``names`` then."""
    (section,) = re.findall(
        rf"^### {heading}\n(.*?)(?=^##|\Z)", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    lines = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[block]
    exec(compile(lines, str(GUIDE), "exec"), names)


def run_page(page: str, names: dict[str, Any], block: int = 0) -> None:
    """Run one block of Python of docs/frameworks/<page>.md; what it makes is in ``names`` then."""
    path = PAGES / f"{page}.md"
    lines = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)[block]
    exec(compile(lines, f"{path}, block {block}", "exec"), names)
