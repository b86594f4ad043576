"""Every diagram of the documentation is one that mermaid draws: GitHub and the site show an error in its place else."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.pages import PAGES
from tests.interop.sdk_process import SdkUnavailableError, node_environment

PROGRAM = (ROOT / "tests" / "docs" / "diagrams.mjs").read_text(encoding="utf-8")
DIAGRAMS = [
    pytest.param(text, id=f"{name}-{number}")
    for name, page in PAGES.items()
    for number, text in enumerate(re.findall(r"(?ms)^```mermaid\n(.*?)^```$", page))
]


@pytest.fixture(scope="module")
def node() -> tuple[str, Path]:
    try:
        return node_environment(ROOT / "docs" / "site" / "mermaid")
    except SdkUnavailableError as error:
        if os.environ.get("A2A_TRUST_REQUIRE_REAL") == "1":
            pytest.fail(f"A2A_TRUST_REQUIRE_REAL=1 and no mermaid: {error}")
        pytest.skip(f"NO MERMAID: {error}")


def problem_of(node: tuple[str, Path], text: str) -> str | None:
    done = subprocess.run(
        [node[0], "--input-type=module", "--eval", PROGRAM],
        cwd=node[1],
        input=json.dumps([text]),
        capture_output=True,
        text=True,
        check=True,
    )
    (problem,) = json.loads(done.stdout)
    return None if problem is None else str(problem)


@pytest.mark.parametrize("text", DIAGRAMS)
def test_mermaid_can_draw_it(text: str, node: tuple[str, Path]) -> None:
    assert problem_of(node, text) is None


def test_a_broken_diagram_is_noticed(node: tuple[str, Path]) -> None:
    assert "Parse error" in str(problem_of(node, "flowchart LR\n  a[no end --> b\n"))
