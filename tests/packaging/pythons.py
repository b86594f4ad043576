"""Run the tests that need no real servers with the wheel, in every Python that is found, or with the lowest versions.

``python -m tests.packaging.pythons`` takes the newest versions, of requirements/dev.txt, in each Python; with
``--lowest`` the lowest versions that pyproject.toml allows, in the Python that runs it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.packaging.environments import environment_of

__all__ = ["VERSIONS", "build_wheel", "interpreters"]

ROOT: Final = Path(__file__).resolve().parents[2]
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
#: What the tests read beside themselves; not the package, so that the wheel is what they import.
_COPIED: Final = ("tests", "docs", "examples", "benchmarks", "requirements", "Makefile", "pyproject.toml")
_ROOMS: Final = (
    *("auth", "base", "card", "cli", "client", "conformance", "keys", "lint", "middleware", "signing"),
    *("testing", "test_arguments.py", "test_errors.py"),
)
#: SDKs and frameworks, also in processes of a test: see ``make test`` and ``make frameworks``. The lock of the lowest
#: versions has no trio.
_LEFT_OUT: Final = (
    "--ignore-glob=*/test_sdk_*",
    "--ignore-glob=*framework*",
    "-k",
    "not trio and not programs_of_the_sdk and not without_the_fast_way",
)


def interpreters() -> Mapping[str, str]:
    """The interpreters that run, by version: on PATH, else of pyenv."""
    found: dict[str, str] = {}
    for version in VERSIONS:
        of_pyenv = Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")
        for each in (shutil.which(f"python{version}"), *map(str, of_pyenv)):
            # One on PATH may be a shim, which runs for the versions only that somebody has chosen.
            if each is not None and _version(each) == version:
                found[version] = each
                break
    return found


def _version(interpreter: str) -> str:
    program = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([interpreter, "-c", program], capture_output=True, text=True, check=False).stdout.strip()


def build_wheel(folder: Path) -> Path:
    """The wheel of the tree as it is."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def _passes(locked: Path, wheel: Path, interpreter: str, copy: Path) -> bool:
    python, rooms = environment_of(locked, wheel, interpreter), [f"tests/{room}" for room in _ROOMS]
    command = [str(python), "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    return subprocess.run([*command, *_LEFT_OUT, *rooms], cwd=copy, check=False).returncode == 0


def _main() -> int:
    found: Mapping[str, str] = {"lowest": sys.executable} if "--lowest" in sys.argv[1:] else interpreters()
    lock = "tests/packaging/requirements-lowest-tests.txt" if "lowest" in found else "requirements/dev.txt"
    with tempfile.TemporaryDirectory() as folder:
        wheel, copy = build_wheel(Path(folder)), Path(folder, "copy")
        copy.mkdir()
        for name in (*_COPIED, *(path.name for path in ROOT.glob("*.md"))):
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copy / name)
        passed = {name: _passes(ROOT / lock, wheel, interpreter, copy) for name, interpreter in found.items()}
    for name in found if "lowest" in found else VERSIONS:
        print(f"{name}: {'not found' if name not in passed else 'passed' if passed[name] else 'FAILED'}")
    return not passed or not all(passed.values())


if __name__ == "__main__":
    sys.exit(_main())
