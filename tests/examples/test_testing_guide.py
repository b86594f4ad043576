"""docs/testing.md is true: each of its blocks is a test module, and its tests pass."""

from __future__ import annotations

import asyncio
import re
import subprocess
from typing import Any

import pytest

from tests.servers.environments import python_of
from tests.servers.serving import ROOT

GUIDE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
HANDLER, EXECUTOR, TOKENS, ACTORS, WHOLE, CLIENT = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)

#: Runs every test of a module, and prints how many there were.
RUN_ALL = """
import asyncio
tests = [asyncio.run(each()) for name, each in list(globals().items()) if name.startswith("test_")]
print(len(tests))
"""


@pytest.mark.parametrize(
    "block",
    [HANDLER, TOKENS, ACTORS, WHOLE, CLIENT],
    ids=["handler", "tokens", "actors", "whole agent", "client"],
)
def test_the_tests_of_the_guide_pass(block: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(block, "docs/testing.md", "exec"), names)
    tests = [each for name, each in names.items() if name.startswith("test_")]
    assert len(tests) == 1
    asyncio.run(tests[0]())


@pytest.mark.real
@pytest.mark.parametrize("environment", ["server-1.3.0"])
def test_the_test_of_an_executor_passes_with_the_sdk(environment: str) -> None:
    command = [str(python_of(environment)), "-c", EXECUTOR + RUN_ALL]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr[-4000:]
