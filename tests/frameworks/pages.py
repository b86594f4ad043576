"""The blocks of docs/frameworks as files, and its clients as programs."""

from __future__ import annotations

import re
import subprocess
from typing import Final

from tests.frameworks.parties import Parties
from tests.servers.environments import python_of
from tests.servers.serving import ROOT

__all__ = ["block_of", "run_client"]

PAGES: Final = ROOT / "docs" / "frameworks"


def block_of(page: str, block: int, language: str = "python") -> str:
    """One block of docs/frameworks/<page>.md."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return blocks[block]


def run_client(
    environment: str, page: str, block: int, of: Parties, url: str, scope: str = "read"
) -> subprocess.CompletedProcess[str]:
    """What became of that block as a program that calls the agent at that URL, with a key that has the scope."""
    program, key = of.folder / "client.py", of.folder / "agent-key"
    program.write_text(block_of(page, block), encoding="utf-8")
    key.touch(0o600)
    key.write_text(of.key(scope), encoding="utf-8")
    return subprocess.run(
        [str(python_of(environment)), str(program)],
        cwd=of.folder,
        env={"PATH": "/usr/bin:/bin", **of.settings(AGENT_URL=url)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
