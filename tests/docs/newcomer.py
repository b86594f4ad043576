"""Somebody who follows a page word for word: writes its files, types its commands, and compares what they print.

"…" on the page stands for any text. Servers run in the background, as in the second terminal of which a page speaks.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.servers.serving import free_port, serving

__all__ = ["Newcomer", "commands_of", "is_shown"]

_SERVERS: Final = ("uvicorn ", "python -m http.server ", "nginx ")
_COMMAND_SECONDS: Final = 60


def commands_of(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with the lines that it prints; a command may have several lines."""
    return re.findall(r"(?m)^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block)


def is_shown(printed: str, shown: str) -> bool:
    """Whether a page shows what a command printed."""
    lines = ["(?:.*\n)*" if line == "…\n" else re.escape(line).replace("…", ".*") for line in shown.splitlines(True)]
    return re.fullmatch("".join(lines), printed) is not None


class Newcomer:
    """Follows pages in a folder, with the programs of an environment. Other ports than a page's are free here for sure.

    ``ports`` are those that the page names.
    """

    def __init__(self, folder: Path, programs: Path, *ports: int, **environment: str) -> None:
        """``environment`` are further variables."""
        self._folder = folder
        self._here = {str(port): str(free_port()) for port in ports}
        names = ("A2A_SIGN", "PYTHON", "VIRTUAL_ENV", "COVERAGE")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        self._environment = {
            **clean,
            **environment,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": "",
        }

    def follow(self, text: str) -> None:
        """Do what the text says, in its order. A server runs until the next one starts on its port."""
        with ExitStack() as stack:
            servers = {port: stack.enter_context(ExitStack()) for port in self._here.values()}
            for name, language, block in self._blocks_of(text):
                if language != "console":
                    (self._folder / name).write_text(block, encoding="utf-8")
                    continue
                for command, shown in commands_of(block):
                    if variable := re.fullmatch(r"export (\w+)=(\S+)", command):
                        self._environment[variable[1]] = variable[2]
                    elif command.startswith(_SERVERS):
                        (port,) = (port for port in servers if port in command)
                        self._serve(command, port, servers[port])
                    else:
                        self._compare(command, shown)

    def _blocks_of(self, text: str) -> Iterator[tuple[str, str, str]]:
        """Name of the file, "" for commands; language; text."""
        for port, here in self._here.items():
            text = text.replace(port, here)
        for block in re.finditer(r"(?ms)^```(console|json|nginx|python)\n(.*?)^```$", text):
            named = re.search(r"`([\w.]+)`:\n\n$", text[: block.start()])
            yield named[1] if named else "", block[1], block[2]

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
        printed = done.stdout if done.stdout.endswith("\n") or not done.stdout else f"{done.stdout}\n"
        assert is_shown(printed, shown), f"{command}\n{printed}"

    def _serve(self, command: str, port: str, server: ExitStack) -> None:
        server.close()
        url = f"{'https' if '--ssl-' in command else 'http'}://localhost:{port}"
        server.enter_context(serving(["bash", "-c", f"exec {command}"], url, self._environment, self._folder))
