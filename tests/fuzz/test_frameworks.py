"""No request makes an agent do what the rules forbid, whichever framework reads it. The short form of ``make fuzz``."""

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
def test_nothing_that_a_rule_forbids_reaches_an_agent(seed: int) -> None:
    command = [str(python_of("frameworks", _HERE)), str(_HERE / "fuzz_frameworks.py"), str(seed), str(_COUNT)]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=600)
    found: dict[str, Any] = json.loads(done.stdout)
    assert set(found) == {"a2a-sdk", "FastAPI", "Django REST framework", "BlackSheep"}
    for name, outcome in found.items():
        assert outcome["leaks"] == [], name
        # Else it is no test: requests of that kind reach the agent when nothing protects it, and others when it does.
        assert outcome["forbidden"] > 30, name
        assert outcome["reached"] > 0, name
