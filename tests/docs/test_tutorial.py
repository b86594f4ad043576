"""docs/tutorial.md is true for a newcomer: the built wheel in an empty environment, then word for word what it says.

Files are written as the page shows them, and commands are typed in an empty folder. Their output is compared with that
on the page, where "…" stands for any text. A server runs until the page starts the next one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import ROOT
from tests.docs.pages import PAGES
from tests.packaging.environments import environment_of
from tests.servers.serving import free_port, serving

PAGE: Final = PAGES["docs/tutorial.md"]
INSTALL, *STEPS = re.split(r"(?m)^## (?=\d)", PAGE)[1:]
SERVERS: Final = ("uvicorn ", "python -m http.server ")
_COMMAND_SECONDS: Final = 60


class Newcomer:
    """Somebody who follows the page. Another port than the page's is free here for sure."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder = folder
        self._port = free_port()
        names = ("A2A_SIGN", "PYTHON", "VIRTUAL_ENV", "COVERAGE")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        self._environment = {
            **clean,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "PYTHONPATH": "",
        }

    def follow(self, step: str) -> None:
        """Write the files of a step and type its commands, in their order; a server runs until the next one starts."""
        with ExitStack() as server:
            for name, language, text in self._blocks_of(step):
                if language != "console":
                    (self._folder / name).write_text(text, encoding="utf-8")
                    continue
                for command, shown in re.findall(r"(?m)^\$ (.*)\n((?:(?!\$ ).*\n)*)", text):
                    if command.startswith(SERVERS):
                        server.close()
                        server.enter_context(self._serving(command))
                    else:
                        self._compare(command, shown)

    def _blocks_of(self, step: str) -> Iterator[tuple[str, str, str]]:
        """Name of the file, "" for commands; language; text."""
        step = step.replace("8000", str(self._port))
        for before, language, text in re.findall(r"(?ms)^([^\n]*)\n\n```(\w+)\n(.*?)^```$", step):
            named = re.search(r"`([\w.]+)`:$", before)
            yield named[1] if named else "", language, text

    def _compare(self, command: str, shown: str) -> None:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        lines = [
            "(?:.*\n)*" if line == "…\n" else re.escape(line).replace("…", ".*") for line in shown.splitlines(True)
        ]
        printed = done.stdout if done.stdout.endswith("\n") or not done.stdout else f"{done.stdout}\n"
        assert re.fullmatch("".join(lines), printed), f"{command}\n{printed}"

    def _serving(self, command: str) -> AbstractContextManager[None]:
        return serving(
            ["bash", "-c", f"exec {command}"], f"http://localhost:{self._port}", self._environment, self._folder
        )


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs of an environment are that has the built wheel, what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-I", "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return environment_of(ROOT / "requirements" / "runtime.txt", next(folder.glob("*.whl"))).parent


def test_a_newcomer_gets_to_a_verified_call(tmp_path: Path, programs: Path) -> None:
    assert 'pip install "./a2a-trust[server,client,uvicorn]"' in INSTALL
    newcomer = Newcomer(tmp_path, programs)
    newcomer.follow("\n".join(STEPS))
