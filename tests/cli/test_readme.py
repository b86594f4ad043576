"""The README is true: its blocks run as they stand, in the environment that it makes, and print what it shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.installed import installed
from tests.docs.newcomer import Newcomer
from tests.docs.pages import PAGES
from tests.tiers import missing

README = PAGES["README.md"]
BEFORE, INSTALL, REST = re.split(r"(?m)^## Install$|^(?=## Sign$)", README)
PYTHON = re.findall(r"(?ms)^```python\n(.*?)^```$", README)


def run(text: str, language: str, folder: Path) -> str:
    """What the commands of a block print; tests/cli/test_reference.py runs those of its page."""
    assert language == "console"
    lines = [line.removeprefix("$ ") for line in text.strip().splitlines()]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config")}
    command = ["bash", "-euo", "pipefail", "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout


@pytest.mark.real
def test_a_newcomer_installs_signs_verifies_protects_and_probes(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        missing("curl", "real-packaging")
    Newcomer(tmp_path, installed(tmp_path, INSTALL), 8000).follow(REST)
    assert {"card.json", "verify.py", "agent.py", "ann.key"} <= {file.name for file in tmp_path.iterdir()}


def test_there_is_a_block_for_each_job() -> None:
    sections = dict(re.findall(r"(?ms)^## (\w+)\n(.*?)(?=^## )", README))
    jobs = {"Sign": "a2a-sign card.json", "Verify": "verify_card(", "Protect": "protect(", "Probe": "a2a-sign probe"}
    assert {job: text in "".join(re.findall(r"(?ms)^```.*?^```$", sections[job])) for job, text in jobs.items()} == (
        dict.fromkeys(jobs, True)
    )


@pytest.mark.parametrize("text", PYTHON, ids=["verify", "protect"])
def test_each_job_takes_fifteen_lines_of_python_at_most(text: str) -> None:
    assert len([line for line in text.splitlines() if line.strip()]) <= 15


def test_the_targets_at_the_top_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"(?m)^make (\w+)", BEFORE)
    assert targets == ["demo", "test"]
    assert [target for target in targets if not re.search(rf"(?m)^{target}:", makefile)] == []


def test_what_it_counts_is_there() -> None:
    frameworks, presets = map(int, re.findall(r"\[(\d+) of them\]", README))
    pages = [name for name in PAGES if re.match(r"docs/frameworks/(?!README)", name)]
    lines = re.findall(r"(?m)^\| \[.*?\]\(.*?\) \| `\w+\(", PAGES["docs/providers/README.md"])
    assert (frameworks, presets) == (len(pages), len(lines))


def test_every_file_that_the_documents_link_to_is_there() -> None:
    for document in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]:
        for target in re.findall(r"\]\(((?!http)[^)#]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
