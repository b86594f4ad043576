"""Sessions and programs on pages, and what they print: run as they stand, and compared with the page.

On a page, "…" stands for any text, and four blanks at the start of a line continue a long line. Times and durations may
differ.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.conftest import ROOT
from tests.docs.newcomer import commands_of
from tests.docs.pages import PAGES

__all__ = ["blocks", "check_program", "check_session", "examples"]

_EXAMPLE: Final = re.compile(
    r"(?ims)^```python\n((?:(?!^```).)*)^```\n\n(?:(?!\n\n|```).)*\bit prints(?:(?!\n\n|```).)*\n\n```text\n(.*?)^```$"
)
_KEY_ID: Final = re.compile(r"a2a_[A-Za-z0-9]{12}")


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in one language."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", PAGES[page])


def examples(page: str) -> list[tuple[str, str]]:
    """The programs of a page below which the page says what "it prints", with this text."""
    return _EXAMPLE.findall(PAGES[page])


def check_program(program: str, shown: str, folder: Path) -> None:
    """Run a program in a folder. AssertionError: it fails, or prints something else than the page shows."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("A2A_SIGN", "COVERAGE"))}
    environment = {**clean, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    _compare(done.stdout, shown, program)


def check_session(session: str, folder: Path) -> None:
    """Type the commands of a session in a folder, in the environment of the tests.

    ``a2a-sign`` and ``python`` run without a shell, with one file as input or output at most; others run in bash.
    The ID of the first key that is made stands for the page's. AssertionError: other output than the page shows.
    """
    (stands,) = set(_KEY_ID.findall(session)) or {""}
    made = ""
    for command, shown in commands_of(session):
        printed = _typed(command.replace(stands, made) if made else command, folder)
        if stands and not made and (found := _KEY_ID.search(printed)):
            made = found[0]
        _compare(printed, shown, command)


def _typed(command: str, folder: Path) -> str:
    """What a command prints, on both outputs."""
    programs = Path(sys.executable).parent
    line, _, output = command.partition(" > ")
    line, _, given = line.partition(" < ")
    words = line.split()
    if words[0] not in ("a2a-sign", "python"):
        shell = ["bash", "-c", command]
        done = subprocess.run(shell, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout
    words[0] = str(programs / words[0])
    entered = (folder / given).read_text() if given else ""
    done = subprocess.run(words, cwd=folder, input=entered, capture_output=True, text=True, timeout=60, check=False)
    if output:
        (folder / output).write_text(done.stdout)
        return done.stderr
    return done.stdout + done.stderr


def _compare(printed: str, shown: str, what: str) -> None:
    printed, shown = (_comparable(text.removesuffix("\n")) for text in (printed, shown))
    shown = re.sub(r"\n {4}(?=\S)", " ", shown)
    lines = [r"(?s:.*)" if line == "…" else re.escape(line).replace("…", ".*") for line in shown.split("\n")]
    assert re.fullmatch("\n".join(lines), printed), f"{what}\n{printed}"


def _comparable(text: str) -> str:
    """A text without times, durations and the IDs of keys."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-11-28T00:00:00Z", text)
    return _KEY_ID.sub("a2a_000000000000", re.sub(r"\d+\.\d\d ms", "1.00 ms", text))
