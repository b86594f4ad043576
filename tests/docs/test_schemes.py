"""docs/schemes.md is true: each agent, client and command runs as it stands, with the built wheel and real servers.

So is docs/mtls-clients.md, whose program calls an agent of that page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.newcomer import Newcomer
from tests.docs.pages import PAGES
from tests.interop.sdk_process import install

pytestmark = pytest.mark.real

PAGE = PAGES["docs/schemes.md"]
INSTALL = re.findall(r"(?ms)^```console\n(.*?)^```$", PAGE)[0]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the built wheel, what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-I", "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    install(environment, "--require-hashes", "--only-binary", ":all:", "-r", str(ROOT / "requirements" / "runtime.txt"))
    install(environment, "--no-deps", *map(str, folder.glob("*.whl")))
    return environment / "bin"


def test_every_example_runs_as_it_stands(tmp_path: Path, programs: Path) -> None:
    # The environment is made as the tutorial makes its own, which its test does word for word.
    tutorial = re.findall(r"(?ms)^```console\n(.*?)^```$", PAGES["docs/tutorial.md"])[0]
    assert tutorial.replace("client,uvicorn", "client,basic,uvicorn").replace("invoices", "schemes") == INSTALL
    (tmp_path / "a2a-trust").symlink_to(ROOT)
    (tmp_path / "schemes").mkdir()
    last = PAGES["docs/mtls-clients.md"].partition("A program on httpx uses the transports")[2]  # while that agent runs
    Newcomer(tmp_path / "schemes", programs, 8000, 8443, 9000).follow(PAGE.partition(INSTALL)[2] + last)
