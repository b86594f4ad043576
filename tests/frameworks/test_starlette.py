"""docs/frameworks/starlette.md is true: its agents run, and its commands print what it shows."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs.newcomer import Newcomer
from tests.docs.pages import PAGES


def test_both_agents_run_as_the_page_says(tmp_path: Path) -> None:
    Newcomer(tmp_path, Path(sys.executable).parent, 8000).follow(PAGES["docs/frameworks/starlette.md"])
