"""The container file: hadolint reads it, and what it copies reaches the builder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.pipelines.pipelines import CARD, IS_LONG, python_tools

FILE = ROOT / "Containerfile"
TEXT = FILE.read_text(encoding="utf-8")


def test_hadolint_finds_nothing() -> None:
    done = subprocess.run([python_tools() / "hadolint", FILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_what_is_copied_is_there_and_nothing_else_reaches_the_builder() -> None:
    copied = {name for names in re.findall(r"^COPY ((?!--from).*) \S+$", TEXT, re.MULTILINE) for name in names.split()}
    assert all((ROOT / name).exists() for name in copied)
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == copied


def test_the_image_runs_the_command_as_a_user_without_rights() -> None:
    last = TEXT.rpartition("\nFROM ")[2]
    assert re.search(r"^USER (\d+)$", last, re.MULTILINE), "a number, so that Kubernetes can check runAsNonRoot"
    assert 'ENTRYPOINT ["/opt/a2a-sign/bin/a2a-sign"]' in last
    assert "ARG" not in last
    assert "SECRET" not in TEXT.upper().replace("NO SECRET", "")


@pytest.mark.skipif(not IS_LONG, reason="make pipelines")
def test_the_install_commands_work(tmp_path: Path) -> None:
    """The RUN line of the build stage, with other folders; nothing here builds an image."""
    (line,) = re.findall(r"^RUN (python3 (?:.*\\\n)*.*)$", TEXT, re.MULTILINE)
    place = tmp_path / "a2a-sign"
    line = (
        line.replace("/opt/a2a-sign", str(place))
        .replace("/source", str(ROOT))
        .replace("python3 ", f"{sys.executable} ")
    )
    subprocess.run(["sh", "-euc", line], check=True, capture_output=True)
    done = subprocess.run([place / "bin" / "a2a-sign", "lint", CARD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not list(place.glob("lib/python*/site-packages/pip"))
