"""The pages about cards and keys for people at a shell are true: their commands print what the pages show."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.newcomer import Newcomer
from tests.docs.pages import PAGES

pytestmark = pytest.mark.real


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    folders = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "data")}
    return Newcomer(tmp_path, Path(sys.executable).parent, **folders)


def test_a_card_is_signed_verified_and_signed_by_other_keys(newcomer: Newcomer) -> None:
    for page in ("sign", "verify", "a2a-sign", "keys"):
        newcomer.follow(PAGES[f"docs/{page}.md"])


def test_the_card_memory_is_changed_as_its_page_says(newcomer: Newcomer) -> None:
    newcomer.follow(PAGES["docs/memory-stores.md"].partition("## The file")[0])


def test_a_card_is_signed_for_sdks_as_their_page_says(newcomer: Newcomer) -> None:
    newcomer.follow(PAGES["docs/interop.md"])
