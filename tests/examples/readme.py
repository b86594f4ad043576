"""What examples/README.md says to type, typed: its commands word for word, in order, in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.servers.serving import ROOT, free_port, serving

__all__ = ["Typed", "session_of", "typed"]

_README: Final = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
_COMMAND_SECONDS: Final = 120


class Typed:
    """A session of the README that was typed.

    ``printed`` is what its programs said, ``expected`` what the README shows.
    """

    def __init__(self, folder: Path, url: str, settings: dict[str, str]) -> None:
        self.folder, self.url, self.settings = folder, url, settings
        self.printed, self.expected = "", ""

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """The result of one more command."""
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.settings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )


def session_of(example: str) -> str:
    """The block of commands that starts that example."""
    blocks: list[str] = re.findall(r"```console\n(.*?)```", _README, re.DOTALL)
    (block,) = (each for each in blocks if f"examples/{example} " in each)
    return block


@contextmanager
def typed(example: str, port: str, python: Path, folder: Path) -> Iterator[Typed]:
    """The session of that example, with its server running. Another port than the README's is free here for sure.

    Programs run in ``python``'s environment, and ``a2a-sign`` in that of the tests.
    """
    here = str(free_port())
    (folder / "examples").symlink_to(ROOT / "examples")
    commands = folder / "bin"
    commands.mkdir()
    # The environments were moved after they were made, so their own commands do not find their interpreter.
    (commands / "uvicorn").write_text(f'#!/bin/sh\nexec {python} -m uvicorn "$@"\n')
    (commands / "uvicorn").chmod(0o755)
    places = [commands, python.parent, Path(sys.executable).parent, "/usr/bin", "/bin"]
    settings = {"PATH": ":".join(map(str, places)), "PYTHONPATH": str(ROOT)}
    session = Typed(folder, f"http://127.0.0.1:{here}", settings)
    with ExitStack() as stack:
        for line in session_of(example).replace(port, here).replace(" \\\n   ", "").splitlines():
            if not line.startswith("$ "):
                session.expected += f"{line}\n"
                continue
            command = line.removeprefix("$ ")
            if command.startswith("export "):
                settings |= dict(each.split("=", 1) for each in command.split()[1:])
            elif command.endswith(" &"):
                background = ["bash", "-c", f"exec {command.removesuffix(' &')}"]
                stack.enter_context(serving(background, session.url, settings, folder))
            else:
                done = session.run(command)
                assert done.returncode == 0, f"{command}\n{done.stderr[-4000:]}"
                session.printed += done.stdout if command.startswith("python ") else ""
        yield session
