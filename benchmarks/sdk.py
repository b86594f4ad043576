"""The released a2a-sdk in its own environment, as a process that takes its turn in every round."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.rounds import Timer, calls_per_round

__all__ = ["MISSING", "SDK_VERSION", "SdkWorker", "find_sdk"]

SDK_VERSION: Final = "1.3.0"
_VARIABLE: Final = "A2A_TRUST_BENCH_SDK_PYTHON"
_ROOT: Final = Path(__file__).resolve().parent.parent

MISSING: Final = (
    f"NO a2a-sdk {SDK_VERSION}: its lines are left out. "
    f"`make test` builds its environment, or set {_VARIABLE} to the Python of one."
)


def find_sdk() -> Path | None:
    """The Python of an environment with the a2a-sdk: the one that is named, or the one that the tests have made."""
    named = os.environ.get(_VARIABLE)
    if named:
        return Path(named)
    for installed in sorted(
        _ROOT.glob(f".sdk/python-{SDK_VERSION}-*/lib/python*/site-packages/a2a_sdk-{SDK_VERSION}.dist-info")
    ):
        return installed.parents[3] / "bin" / "python"
    return None


class SdkWorker:
    """The process; it ends when this object is left."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [python, "-I", Path(__file__).with_name("sdk_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def timer(self, work: str, document: bytes, *keys: dict[str, Any], calls: int | None = None) -> Timer:
        """A timer for one work of ``sdk_worker.py``; it gives the times that the worker measured itself."""
        number = self._ask({"work": work, "document": document.decode(), "keys": keys})
        calls = calls or calls_per_round(self._ask({"number": number, "calls": 3}) / 3)
        return lambda: self._ask({"number": number, "calls": calls}) / calls

    def _ask(self, request: dict[str, Any]) -> Any:
        pipes = self._process
        if pipes.stdin is None or pipes.stdout is None:
            raise TypeError("the process has no pipes")
        pipes.stdin.write(json.dumps(request) + "\n")
        pipes.stdin.flush()
        answer = pipes.stdout.readline()
        if not answer:
            raise RuntimeError("the a2a-sdk's process has ended; its reason stands above")
        return json.loads(answer)
