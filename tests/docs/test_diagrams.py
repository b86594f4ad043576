"""Every diagram of the documentation is one that mermaid draws: GitHub and the site show an error in its place else."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.pages import PAGES
from tests.interop.sdk_process import SdkUnavailableError, node_environment
from tests.tiers import missing

PROGRAM = (ROOT / "tests" / "docs" / "diagrams.mjs").read_text(encoding="utf-8")
DIAGRAMS = {
    f"{name}-{number}": text
    for name, page in PAGES.items()
    for number, text in enumerate(re.findall(r"(?ms)^```mermaid\n(.*?)^```$", page))
}
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def node() -> tuple[str, Path]:
    try:
        return node_environment(ROOT / "docs" / "site" / "scripts")
    except SdkUnavailableError as error:
        missing(f"mermaid ({error})", "real-sdks")


def problems_of(node: tuple[str, Path], texts: list[str]) -> list[str | None]:
    """What mermaid says of each text; None for one that it draws."""
    done = subprocess.run(
        [node[0], "--input-type=module", "--eval", PROGRAM],
        cwd=node[1],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    problems: list[str | None] = json.loads(done.stdout)
    return problems


def test_mermaid_can_draw_them(node: tuple[str, Path]) -> None:
    problems = dict(zip(DIAGRAMS, problems_of(node, [*DIAGRAMS.values()]), strict=True))
    assert len(problems) > 10
    assert {name: problem for name, problem in problems.items() if problem is not None} == {}


def test_a_broken_diagram_is_noticed(node: tuple[str, Path]) -> None:
    (problem,) = problems_of(node, ["flowchart LR\n  a[no end --> b\n"])
    assert "Parse error" in str(problem)
