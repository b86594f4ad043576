"""The README is true: its Python runs as it stands, and its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CARD, Run
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a key and a signed card for agent.example.com, as the README assumes."""
    import json

    text = json.dumps(CARD, indent=2).replace("invoice.example.com", "agent.example.com")
    (tmp_path / "card.json").write_text(text)
    command = Path(sys.executable).with_name("a2a-sign")
    for arguments in (["keygen", "-o", "key.pem"], ["card.json", "--key", "key.pem"]):
        subprocess.run([command, *arguments], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


@pytest.mark.parametrize("block", BLOCKS, ids=[block.split("import ")[-1].split("\n")[0] for block in BLOCKS])
def test_a_block_of_python_runs_and_has_ten_lines_at_most(block: str, folder: Path) -> None:
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{block}\nassert card['name'] == 'Invoice Agent'"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_there_is_a_block_for_each_job() -> None:
    assert len(BLOCKS) == 2
    assert "sign_card(" in BLOCKS[0]
    assert "verify_card(" in BLOCKS[1]


def test_the_commands_of_the_console_block_run(run: Run, folder: Path) -> None:
    (block,) = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.strip().splitlines():
        arguments = line.removeprefix("$ a2a-sign ").replace("keys.jwks.json", "config/a2a-trust/signing-key.jwks.json")
        done = run(*arguments.split(), cwd=folder)
        assert done.code == 0, done.err


def test_every_file_that_the_documents_link_to_is_there() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]:
        for target in re.findall(r"\]\(((?!http)[^)#]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
