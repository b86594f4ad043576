"""docs/frameworks/starlette.md and the README beside it are true: agents run, and commands print what is shown."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs.newcomer import Newcomer
from tests.docs.pages import PAGES


def test_the_commands_for_all_frameworks_print_what_their_page_shows(tmp_path: Path) -> None:
    Newcomer(tmp_path, Path(sys.executable).parent).follow(PAGES["docs/frameworks/README.md"])


def test_both_agents_run_as_the_page_says(tmp_path: Path) -> None:
    Newcomer(tmp_path, Path(sys.executable).parent, 8000).follow(PAGES["docs/frameworks/starlette.md"])
