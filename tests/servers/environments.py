"""Locked environments of other Python packages, beside those of ``tests/interop``, and scripts that run in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.sdk_process import SDKS, SdkUnavailableError, _environment, _run

__all__ = ["answer_of", "python_of"]

_HERE: Final = Path(__file__).resolve().parent
_RUN_SECONDS: Final = 180


def python_of(name: str) -> Path:
    """The interpreter of the environment of ``tests/interop/sdks/<name>``, made on first use.

    The test is skipped, loudly, where it cannot be made; with A2A_TRUST_REQUIRE_REAL=1 it fails.
    """

    def build(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", str(folder)], folder)
        install = ["-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:", "-r"]
        _run([str(folder / "bin" / "python"), *install, str(SDKS / name / "requirements.txt")], folder)

    try:
        return _environment(name, f"{sys.version} {sys.base_prefix}", build) / "bin" / "python"
    except SdkUnavailableError as error:
        if os.environ.get("A2A_TRUST_REQUIRE_REAL") == "1":
            pytest.fail(f"A2A_TRUST_REQUIRE_REAL=1 and no environment {name}: {error}")
        pytest.skip(f"NO ENVIRONMENT {name}: {error}")


def answer_of(environment: str, script: str, question: Any, **settings: str) -> Any:
    """What a script of this folder answers, as JSON, when it runs in that environment."""
    done = subprocess.run(
        [str(python_of(environment)), str(_HERE / script)],
        input=json.dumps(question),
        env={"PATH": os.environ["PATH"], **settings},
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{script} in {environment}:\n{done.stderr[-4000:]}"
    return json.loads(done.stdout)
