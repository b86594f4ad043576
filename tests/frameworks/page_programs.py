"""The clients of docs/frameworks as programs, and what they print."""

from __future__ import annotations

import subprocess

from tests.docs.newcomer import is_shown
from tests.frameworks.guide import block_of
from tests.frameworks.parties import Parties
from tests.servers.environments import python_of

__all__ = ["prints", "run_client"]


def prints(page: str, printed: str) -> bool:
    """Whether docs/frameworks/<page>.md shows that text as what its client prints."""
    return is_shown(f"{printed.strip()}\n", block_of(page, 0, "text"))


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
