"""docs/telemetry.md is true: its programs run, and its tables have every metric, label and change."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from a2a_trust.auth.record_table import SqliteApiKeys
from a2a_trust.base.state_changes import StateKind
from tests.docs.pages import PAGES
from tests.middleware.agent import Agent
from tests.test_telemetry import anew, ask, guarded

PAGE = PAGES["docs/telemetry.md"]
PROGRAM, _ = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGE)
#: Asks the application of the page without a key, and shows what it exports.
ASK = """
import asyncio, httpx
async def ask():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:8000") as http:
        return (await http.post("/rpc")).status_code
assert asyncio.run(ask()) == 401
metrics.get_meter_provider().shutdown()
"""


def cells(heading: str) -> set[str]:
    """The words in the first column of the table below a heading."""
    part = PAGE.partition(f"{heading}\n")[2].partition("\n#")[0]
    return {word for row in re.findall(r"(?m)^\| (`.*?) \|", part) for word in re.findall(r"`([\w.-]+)`", row)}


def test_the_program_exports_metrics_and_spans(tmp_path: Path) -> None:
    SqliteApiKeys(tmp_path / "keys.db", create=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + ASK], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert '"a2a_trust.decisions"' in done.stdout
    assert '"error.type": "missing-credentials"' in done.stdout
    assert '"kind": "SpanKind.SERVER"' in done.stdout
    assert done.stderr.startswith("refused POST /rpc: no credential for any scheme of the card")


def test_the_tables_have_every_metric_label_and_change() -> None:
    collected = anew()
    observer = collected.observer()
    ask(guarded(Agent(), observer), "POST", "/rpc")
    instruments: tuple[Any, ...] = (observer._decisions, observer._changes, observer._guard, observer._verifiers)
    made = {instrument.name for instrument in instruments}
    assert made <= cells("### Metrics")
    (point,) = collected.points("a2a_trust.decisions")
    assert {*point.attributes, "a2a_trust.schemes", "a2a_trust.agent"} <= cells("### Metrics")
    assert cells("## Changes of state") == set(map(str, StateKind))
