"""Workflows of GitHub, run by act on this machine, without containers."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.pipelines.pipelines import clean_environment, commit, python_tools, source_repository

__all__ = ["CHECKOUT", "Acted", "act"]

#: act takes the workspace for it as it is, and fetches nothing.
CHECKOUT = "actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8"


@dataclass(frozen=True)
class Acted:
    """How a workflow ended, and its log without what act says of itself."""

    ok: bool
    log: str

    def said(self) -> list[str]:
        """The lines that the steps printed."""
        plain = re.sub(r"\x1b\[[0-9;]*m", "", self.log)
        return re.findall(r"^\[[^]]*\]\s+\| (.*?)\r?$", plain, re.MULTILINE)


def act(workspace: Path, workflow: str, scratch: Path, key: str = "") -> Acted:
    """Run the workflow, in which ``ACTION`` is this tree as an action, in a workspace that is committed before.

    act has the key as the secret A2A_SIGN_KEY. Its copy of the workspace goes away with it.
    """
    source = scratch / "source"
    source.mkdir()
    action = f"OWNER/a2a-trust@{source_repository(source)}"
    file = workspace / ".github" / "workflows" / "release.yml"
    file.parent.mkdir(parents=True)
    file.write_text(workflow.replace("ACTION", action).replace("CHECKOUT", CHECKOUT))
    commit(workspace)
    secrets = scratch / "secrets"  # not in the environment, which the steps inherit when there are no containers
    secrets.write_text(f'A2A_SIGN_KEY="{key}"\n')
    command: list[str | Path] = [python_tools() / "act", "push", "--platform=ubuntu-latest=-self-hosted"]
    done = subprocess.run(
        [*command, f"--secret-file={secrets}", f"--local-repository={action}={source}"],
        cwd=workspace,
        env=clean_environment(scratch / "home"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Acted(done.returncode == 0, done.stdout)
