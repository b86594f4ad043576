"""docs/tutorial.md is true for a newcomer: the package in an empty environment, then word for word what it says.

The first step makes the environment; ``Newcomer`` follows the others.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import ROOT
from tests.docs.newcomer import Newcomer
from tests.docs.pages import PAGES

pytestmark = pytest.mark.real

PAGE: Final = PAGES["docs/tutorial.md"]
INSTALL, *STEPS = re.split(r"(?m)^## (?=\d)", PAGE)[1:]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of the environment that the first step makes, beside a clone of the project."""
    folder = tmp_path_factory.mktemp("installed")
    known = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, known.split("\0")):
        if (ROOT / name).is_file():
            (folder / "a2a-trust" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / "a2a-trust" / name)
    (folder / "python3").symlink_to(sys.executable)
    (commands,) = re.findall(r"(?ms)^```console\n(.*?)^```$", INSTALL)
    done = subprocess.run(
        ["bash", "-euc", re.sub(r"(?m)^\$ ", "", commands)],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "invoices").is_dir()
    return folder / "env" / "bin"


def test_a_newcomer_gets_to_a_verified_call(programs: Path) -> None:
    newcomer = Newcomer(programs.parents[1] / "invoices", programs, 8000)
    newcomer.follow("\n".join(STEPS))
