"""docs/tutorial.md is true for a newcomer: the package in an empty environment, then word for word what it says.

The first step makes the environment; ``Newcomer`` follows the others.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.installed import installed
from tests.docs.newcomer import Newcomer
from tests.docs.pages import PAGES

pytestmark = pytest.mark.real

PAGE: Final = PAGES["docs/tutorial.md"]
INSTALL, *STEPS = re.split(r"(?m)^## (?=\d)", PAGE)[1:]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of the environment that the first step makes, beside a clone of the project."""
    folder = tmp_path_factory.mktemp("installed")
    found = installed(folder, INSTALL)
    assert (folder / "invoices").is_dir()
    return found


def test_a_newcomer_gets_to_a_verified_call(programs: Path) -> None:
    newcomer = Newcomer(programs.parents[1] / "invoices", programs, 8000)
    newcomer.follow("\n".join(STEPS))
