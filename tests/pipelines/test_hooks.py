"""The hooks of pre-commit, run by pre-commit in a repository of cards."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.newcomer import is_shown
from tests.docs.pages import PAGES
from tests.pipelines.pipelines import CARD, clean_environment, git, make_key, python_tools, source_repository

CONFIG = """
repos:
  - repo: {source}
    rev: {commit}
    hooks:
      - id: a2a-lint
      - id: a2a-verify
      - id: a2a-sign
        stages: [manual]
"""


#: What a commit of an unsigned card prints, as the page has it.
(SHOWN,) = re.findall(r"(?ms)^```text\n(.*?)^```$", PAGES["docs/pre-commit.md"])


class Hooks:
    """A repository with the hooks in its configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "repository"
        for name in ("source", "repository", "keys"):
            (folder / name).mkdir()
        revision = source_repository(folder / "source")
        self._environment = clean_environment(folder / "home", PRE_COMMIT_HOME=str(folder / "hooks"))
        self._environment["A2A_SIGN_KEY_FILE"] = str(make_key(folder / "keys"))
        (self.folder / "trust.toml").write_bytes((folder / "keys" / "trust.toml").read_bytes())
        config = CONFIG.format(source=folder / "source", commit=revision)
        (self.folder / ".pre-commit-config.yaml").write_text(config)
        git(self.folder, "init", "--quiet")

    def run(self, hook: str, *names: str) -> subprocess.CompletedProcess[str]:
        """Stage these files, and run the hook for everything that is staged."""
        git(self.folder, "add", "--", *names, "trust.toml", ".pre-commit-config.yaml")
        stage = ("--hook-stage", "manual") if hook == "a2a-sign" else ()
        command = [python_tools() / "python", "-I", "-m", "pre_commit", "run", hook, *stage]
        return subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Hooks:
    return Hooks(tmp_path_factory.mktemp("hooks"))


def test_hooks_block_bad_and_unsigned_cards_and_sign_them(hooks: Hooks) -> None:
    card = hooks.folder / "agents" / "agent-card.json"
    card.parent.mkdir()
    card.write_text(CARD.read_text().replace('"name": "GeoSpatial Route Planner Agent",', ""))
    done = hooks.run("a2a-lint", "agents")
    assert done.returncode == 1
    assert "missing-member" in done.stdout
    card.write_bytes(CARD.read_bytes())
    done = hooks.run("a2a-lint", "agents")
    assert done.returncode == 0, done.stdout

    done = hooks.run("a2a-verify", "agents")
    assert done.returncode == 1
    assert is_shown(done.stdout.rstrip() + "\n", SHOWN)
    done = hooks.run("a2a-sign", "agents")
    assert done.returncode == 1
    assert "files were modified by this hook" in done.stdout
    signed = card.read_bytes()
    done = hooks.run("a2a-sign", "agents")
    assert done.returncode == 0, done.stdout
    assert card.read_bytes() == signed
    done = hooks.run("a2a-verify", "agents")
    assert done.returncode == 0, done.stdout

    card.write_bytes(signed.replace(b"optimal", b"wrong"))
    assert hooks.run("a2a-verify", "agents").returncode == 1
    card.write_bytes(signed)


def test_a_card_whose_name_is_an_option_is_a_card(hooks: Hooks) -> None:
    """``--trust=evil-card.json`` would be a trust file that the author of a pull request wrote."""
    forged = hooks.folder / "--any-origin.card.json"
    forged.write_bytes(CARD.read_bytes())
    (hooks.folder / "--trust=evil-card.json").write_bytes(CARD.read_bytes())
    try:
        done = hooks.run("a2a-verify", "--any-origin.card.json", "--trust=evil-card.json")
        assert done.returncode == 1
        assert "--trust=evil-card.json: NOT VERIFIED" in done.stdout + done.stderr
        assert "--any-origin.card.json: NOT VERIFIED" in done.stdout + done.stderr
    finally:
        git(hooks.folder, "rm", "--quiet", "--force", "--", "--any-origin.card.json", "--trust=evil-card.json")


def test_a_card_that_is_a_link_is_a_card(hooks: Hooks) -> None:
    """A deployment follows the link to the text of the pull request, whatever that is named."""
    (hooks.folder / "moved.txt").write_text('{"name": "Forged"}')
    link = hooks.folder / "linked" / "agent-card.json"
    link.parent.mkdir()
    link.symlink_to("../moved.txt")
    try:
        for hook in ("a2a-lint", "a2a-verify"):
            done = hooks.run(hook, "moved.txt", "linked")
            assert done.returncode == 1, done.stdout
            assert "linked/agent-card.json" in done.stdout
        link.unlink()
        link.symlink_to("../gone.json")
        assert hooks.run("a2a-verify", "linked").returncode == 1
    finally:
        git(hooks.folder, "rm", "-r", "--quiet", "--force", "--", "moved.txt", "linked")


def test_the_hooks_take_files_with_the_names_of_cards() -> None:
    found = re.search(r"files: &cards '(.*)'", (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert found is not None
    cards = [".well-known/agent.json", ".well-known/agent-card.json", "agents/invoice/card.json"]
    cards += ["agents/invoice-card.json", "agents/invoice.agent.json", "agents/Agent-Card.JSON"]
    others = ["package.json", "discard.json", "agents/card.json.bak", "card/keys.json"]
    assert [name for name in cards + others if re.search(found[1], name)] == cards


def test_the_manifest_is_valid() -> None:
    command: list[str | Path] = [
        python_tools() / "python",
        "-m",
        "pre_commit",
        "validate-manifest",
        ROOT / ".pre-commit-hooks.yaml",
    ]
    subprocess.run(command, check=True)
