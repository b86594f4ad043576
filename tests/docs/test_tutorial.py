"""docs/tutorial.md is true for a newcomer: the package in an empty environment, then word for word what it says.

Files are written as the page shows them, and commands are typed in an empty folder. Their output is compared with that
on the page, where "…" stands for any text. A server runs until the page starts the next one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import ROOT
from tests.docs.pages import PAGES
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
    if done.returncode and "No matching distribution" in done.stderr and not os.environ.get("A2A_TRUST_REQUIRE_REAL"):
        pytest.skip(f"NO PACKAGE INDEX: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert (folder / "invoices").is_dir()
    return folder / "env" / "bin"


def test_a_newcomer_gets_to_a_verified_call(programs: Path) -> None:
    newcomer = Newcomer(programs.parents[1] / "invoices", programs)
    newcomer.follow("\n".join(STEPS))
