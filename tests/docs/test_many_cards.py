"""docs/many-cards.md is true: the example and the recipe for Dask run as they stand; those for Ray and Spark, too."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.newcomer import Newcomer
from tests.docs.pages import PAGES

PAGE = PAGES["docs/many-cards.md"]
pytestmark = pytest.mark.real
RECIPES = dict(re.findall(r"(?ms)^\[(Ray|Spark)\]\(.*?^```text\n(.*?)^```$", PAGE))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a2a-trust").symlink_to(ROOT)
    return tmp_path


def test_the_page_runs_as_it_stands(folder: Path) -> None:
    Newcomer(folder, Path(sys.executable).parent).follow(PAGE)
    reports = [
        json.loads(line) for path in (folder / "dask-reports").iterdir() for line in path.read_text().splitlines()
    ]
    assert len(reports) == 1000
    assert {report["ok"] for report in reports} == {True}
    assert len({report["origin"] for report in reports}) == 1000
    assert len(list((folder / "dask-reports").iterdir())) > 1


@pytest.mark.long
@pytest.mark.parametrize(("name", "package"), [("Ray", "ray"), ("Spark", "pyspark")])
def test_the_other_recipes_give_the_same(name: str, package: str, folder: Path) -> None:
    if subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True, check=False).returncode:
        pytest.skip(f"NO {name.upper()}: install it and what it needs to run its recipe")
    Newcomer(folder, Path(sys.executable).parent).follow(PAGE.partition("## What the lines say")[0])
    subprocess.run([sys.executable, "-c", RECIPES[name]], cwd=folder, check=True, capture_output=True)
    parts = [path for path in (folder / f"{name.lower()}-reports").iterdir() if not path.name.startswith(("_", "."))]
    reports = [json.loads(line) for path in parts for line in path.read_text().splitlines()]
    if name == "Ray":
        reports = [json.loads(report["report"]) for report in reports]
    assert sorted(report["origin"] for report in reports if report["ok"]) == sorted(
        f"agent-{number}.agents.example.com" for number in range(1000)
    )
