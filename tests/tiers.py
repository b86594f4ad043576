"""The tier of each test: quick, ``real`` or ``long``. `make test` runs the quick ones, which need Python only.

A test is real or long by its folder, or by ``pytest.mark.real`` and ``pytest.mark.long``; a test that is both is long.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

__all__ = ["IS_LONG_FORM", "QUICK", "mark", "missing", "python_only", "tier_of_folder"]

#: What ``-m`` says in a run of the quick tests: in pyproject.toml, too.
QUICK: Final = "not real and not long"
#: Whether long tests do all their rounds. `.ci/run` has them do a few.
IS_LONG_FORM: Final = os.environ.get("A2A_TRUST_FORM") == "long"
_TESTS: Final = Path(__file__).resolve().parent
_FOLDERS: Final = {
    "faults": "long",
    "frameworks": "real",
    "fuzz": "long",
    "packaging": "real",
    "pipelines": "real",
    "real": "real",
    "tck": "real",
}


def tier_of_folder(path: Path) -> str | None:
    """The tier of every test below ``path``; None where each test has its own."""
    parts = path.relative_to(_TESTS).parts if path.is_relative_to(_TESTS) else ()
    return _FOLDERS.get(parts[0]) if parts else None


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark the tests whose folder has a tier."""
    for item in items:
        tier = tier_of_folder(item.path)
        if tier is not None:
            item.add_marker(tier)


def missing(what: str, target: str) -> NoReturn:
    """Fail: the components of `make test-real` are installed. ``target`` is that of the Makefile that installs it."""
    pytest.fail(f"{what} is missing: make {target}", pytrace=False)


def python_only(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook that lets the quick tests start Python, and no other program."""
    if event == "subprocess.Popen" and "PYTEST_CURRENT_TEST" in os.environ:
        program = Path(str(arguments[0] or arguments[1][0]))
        is_python = program.resolve().name.startswith("python") or program.parent == Path(sys.executable).parent
        if not is_python and program.name != "uname":  # which ``platform`` of the standard library runs
            raise RuntimeError(f"{program.name} is not Python: mark this test with pytest.mark.real")
