"""No agent that enforces its card is called open, however busy the machine is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from a2a_trust.probe import Verdict
from tests.probe.agents import KEY, serving
from tests.tiers import IS_LONG_FORM

ROUNDS = 100 if IS_LONG_FORM else 10
SPINNING = "while True: pass"
pytestmark = pytest.mark.long


@pytest.fixture
def busy() -> Iterator[None]:
    """Two processes for each core, which compute for as long as the test runs."""
    processes = [subprocess.Popen([sys.executable, "-c", SPINNING]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_busy_machine_causes_no_false_verdict(busy: None) -> None:
    with serving() as served, ThreadPoolExecutor(4) as threads:
        keys = [KEY if at % 2 else None for at in range(ROUNDS)]
        verdicts = [report.verdict for report in threads.map(served.probe, keys)]
    assert Verdict.NOT_ENFORCED not in verdicts
    assert Verdict.ENFORCED in verdicts
