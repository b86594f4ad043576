"""Locked environments of other Python packages, beside those of ``tests/interop``, and scripts that run in them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, NoReturn

from tests.interop.sdk_process import SDKS, SdkUnavailableError, _environment, _run, python_environment
from tests.tiers import missing

__all__ = ["answer_of", "answer_of_node", "python_of"]

_HERE: Final = Path(__file__).resolve().parent
_RUN_SECONDS: Final = 180


def python_of(name: str, folder: Path = SDKS) -> Path:
    """The interpreter of the environment that is locked in ``<folder>/<name>``, made on first use.

    The test fails where it cannot be made: it is marked with ``pytest.mark.real``.
    """

    try:
        return python_environment(folder / name) / "bin" / "python"
    except SdkUnavailableError as error:
        _unavailable(name, error)


def answer_of(environment: str, script: str, question: Any, **settings: str) -> Any:
    """What a script of this folder answers, as JSON, when it runs in that environment."""
    return _answer([str(python_of(environment)), str(_HERE / script)], question, _HERE, settings)


def answer_of_node(environment: str, script: Path, question: Any) -> Any:
    """What a module of Node answers, as JSON, with the packages of that environment; fails as ``python_of``."""

    def build(folder: Path) -> None:
        shutil.copytree(SDKS / environment, folder, dirs_exist_ok=True)
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    try:
        if shutil.which("node") is None or shutil.which("npm") is None:
            raise SdkUnavailableError("Node is not installed (node and npm)")
        folder = _environment(SDKS / environment, "node", build)
    except SdkUnavailableError as error:
        _unavailable(environment, error)
    # A module from the command line finds its imports from the folder it runs in, where the packages are.
    program = script.read_text(encoding="utf-8")
    return _answer(["node", "--input-type=module", "--eval", program], question, folder, {})


def _answer(command: list[str], question: Any, folder: Path, settings: dict[str, str]) -> Any:
    done = subprocess.run(
        command,
        cwd=folder,
        input=json.dumps(question),
        env={"PATH": os.environ["PATH"], **settings},
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{command[:2]} in {folder}:\n{done.stderr[-4000:]}"
    return json.loads(done.stdout)


def _unavailable(name: str, error: SdkUnavailableError) -> NoReturn:
    missing(f"the environment {name} ({error})", "real-sdks")
