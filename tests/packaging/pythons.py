"""Run the quick tests with the wheel, in every Python that is found, or those of the core with the lowest versions.

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
#: The tests of the sources, which are the same in each Python. The copy is without the sources of the package, so that
#: the wheel is what the tests import.
_OF_SOURCES: Final = ("--ignore=tests/docs", "--ignore=tests/test_architecture.py")
#: What the lowest versions are tried with.
_LOWEST_ROOMS: Final = (
    *("auth", "base", "card", "cli", "client", "conformance", "keys", "lint", "middleware", "signing"),
    *("testing", "test_arguments.py", "test_errors.py"),
)
#: SDKs and frameworks, also in processes of a test: see ``make test`` and ``make frameworks``. The lock of the lowest
#: versions has no trio.
_LEFT_OUT_OF_LOWEST: Final = (
    "--ignore-glob=*/test_sdk_*",
    "--ignore-glob=*framework*",
    "-k",
    "not trio and not programs_of_the_sdk and not without_the_fast_way",
)


def interpreters() -> Mapping[str, str]:
    """The interpreters that run, by version: this one, else on PATH, else of pyenv."""
    found = {"{}.{}".format(*sys.version_info): sys.executable}
    for version in VERSIONS:
        of_pyenv = Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")
        for each in (shutil.which(f"python{version}"), *map(str, of_pyenv)):
            # One on PATH may be a shim, which runs for the versions only that somebody has chosen.
            if version not in found and each is not None and _version(each) == version:
                found[version] = each
    return found


def _version(interpreter: str) -> str:
    program = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([interpreter, "-c", program], capture_output=True, text=True, check=False).stdout.strip()


def build_wheel(folder: Path) -> Path:
    """The wheel of the tree as it is."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def _passes(locked: Path, wheel: Path, interpreter: str, copy: Path, *which: str) -> bool:
    python = environment_of(locked, wheel, interpreter)
    command = [str(python), "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", *which]
    return subprocess.run(command, cwd=copy, check=False).returncode == 0


def _copy_of_tests(copy: Path) -> None:
    """What git knows, without the package."""
    for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0"):
        if name and not name.startswith("a2a_trust/") and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)


def _main() -> int:
    lowest = "--lowest" in sys.argv[1:]
    found: Mapping[str, str] = {"lowest": sys.executable} if lowest else interpreters()
    lock = "tests/packaging/requirements-lowest-tests.txt" if lowest else "requirements/dev.txt"
    rooms = (f"tests/{room}" for room in _LOWEST_ROOMS)
    which = (*_LEFT_OUT_OF_LOWEST, *rooms) if lowest else _OF_SOURCES
    with tempfile.TemporaryDirectory() as folder:
        wheel, copy = build_wheel(Path(folder)), Path(folder, "copy")
        _copy_of_tests(copy)
        passed = {name: _passes(ROOT / lock, wheel, interpreter, copy, *which) for name, interpreter in found.items()}
    for name in found if lowest else VERSIONS:
        print(f"{name}: {'not found' if name not in passed else 'passed' if passed[name] else 'FAILED'}")
    return not all(passed.values())


if __name__ == "__main__":
    sys.exit(_main())
