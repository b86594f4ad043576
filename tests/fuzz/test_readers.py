"""The guard reads in a call what the a2a-sdk's own parsers read. The short form of ``make fuzz``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.servers.environments import python_of
from tests.servers.serving import ROOT

_HERE = Path(__file__).resolve().parent
_COUNT = 1_000


@pytest.mark.parametrize("seed", [1])
def test_the_guard_reads_what_the_sdk_reads(seed: int) -> None:
    command = [str(python_of("frameworks", _HERE)), str(_HERE / "fuzz_readers.py"), str(seed), str(_COUNT)]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=600)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["differently"] == []
    # Else it is no test: the SDK alone is misled, and calls of every operation reach it through the guard.
    assert found["misled"] >= 5
    assert {name for name, count in found["reached"].items() if not count} == {"on_get_extended_agent_card"}
