"""R4 to R6: a pull request attacks the action by names of cards, by code in the workspace, and for the key.

R4: names of cards are options, have line ends, or are commands to the runner (``::set-env``, ``##[add-path]``).
R5: files of the workspace have the names of modules that the action imports.
R6: the key is looked for in the log, in argv, in the environment of other steps, and in what the job leaves behind.

The runner is act, which knows the commands of GitHub's runner; one workflow carries out all of it.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import ROOT
from tests.pipelines.acting import Acted, act
from tests.pipelines.pipelines import CARD, make_key

pytestmark = pytest.mark.real

#: Commands that act carries out, at the beginning of a name and within one.
COMMANDS: Final = (
    "::set-env name=PWNED::1",
    "::set-output name=changed::PWNED",
    "::add-mask::cards",
    "##[set-output name=changed;]PWNED",
)
OPTIONS: Final = ("--any-origin", "--key=PWNED", "-o")
LINES: Final = ("x\n::set-env name=PWNED::2\n", "x\r::set-env name=PWNED::3")

WORKFLOW: Final = """
on: push
jobs:
  release:
    runs-on: ubuntu-latest
    env: {PYTHONPATH: ".:${{ github.workspace }}"}
    steps:
      - uses: CHECKOUT
      - id: control
        run: |
          echo "::set-output name=changed::PWNED"
          echo "##[set-output name=more;]PWNED"
      - id: sign
        uses: ACTION
        with: {mode: sign, files: "*.json", key: "${{ secrets.A2A_SIGN_KEY }}"}
      - id: check
        uses: ACTION
        with: {mode: check, files: "*.json", key: "${{ secrets.A2A_SIGN_KEY }}"}
      - uses: ACTION
        with: {mode: verify, files: "*.json", trust: trust.toml}
      - uses: ACTION
        with: {mode: lint, files: "*.json"}
      - id: unsigned
        continue-on-error: true
        uses: ACTION
        with: {mode: verify, files: "--any-origin", trust: trust.toml}
      - run: |
          echo "control: ${{ steps.control.outputs.changed }} ${{ steps.control.outputs.more }}"
          echo "changed: ${{ steps.sign.outputs.changed }} ${{ steps.check.outputs.changed }}."
          echo "option=${{ steps.unsigned.outcome }}"
          part=$(printf %s 'DRAWKCAB' | rev)
          if grep -rlF "$part" "$GITHUB_WORKSPACE" "$RUNNER_TEMP"; then echo 'KEY ON DISK'; fi
          if env | grep -F "$part"; then echo 'KEY IN ENVIRONMENT'; fi
"""


class Watch(threading.Thread):
    """Reads the argv of every process for as long as it runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[bytes] = set()
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(0.01):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    self.seen.add((process / "cmdline").read_bytes())
                except OSError:
                    continue  # it has ended

    def end(self) -> None:
        self._is_over.set()
        self.join()


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Acted, str, set[bytes]]:
    """The workflow as it ran, the secret of the key, and the argv of every process meanwhile."""
    folder = tmp_path_factory.mktemp("attacked")
    workspace, keys = folder / "workspace", folder / "keys"
    workspace.mkdir()
    keys.mkdir()
    key = make_key(keys)
    (workspace / "trust.toml").write_bytes((keys / "trust.toml").read_bytes())
    for name in (*COMMANDS, *OPTIONS, *LINES):
        (workspace / f"{name}.json").write_bytes(CARD.read_bytes())
    (workspace / "--any-origin").write_bytes(CARD.read_bytes())
    for name in ("venv", "pip", "secrets", "a2a_trust", "json", "sitecustomize", "hatchling"):
        (workspace / f"{name}.py").write_text("raise SystemExit('CODE OF THE WORKSPACE')\n")
    part = key.read_text().splitlines()[2]
    watch = Watch()
    watch.start()
    try:
        done = act(workspace, WORKFLOW.replace("DRAWKCAB", part[::-1]), folder, key.read_text())
    finally:
        watch.end()
    assert done.ok, done.log
    return done, part, watch.seen


def test_names_of_cards_are_no_commands_to_the_runner(attacked: tuple[Acted, str, set[bytes]]) -> None:
    """The control: the same commands, printed by a step of the workflow itself, are carried out."""
    said = attacked[0].said()
    assert "control: PWNED PWNED" in said
    assert "changed: true ." in said


def test_names_of_cards_are_no_options_and_one_line_each(attacked: tuple[Acted, str, set[bytes]]) -> None:
    said = attacked[0].said()
    assert "option=failure" in said
    count = len((*COMMANDS, *OPTIONS, *LINES))
    assert f"{count} cards: {count} signed" in said
    assert f"{count} cards: {count} unchanged" in said
    assert f"{count} cards: {count} verified" in said
    assert f"{count} cards: {count} without problems" in said
    assert not [line for line in said if line.startswith("::set-env name=PWNED::2")]


def test_no_code_of_the_workspace_runs(attacked: tuple[Acted, str, set[bytes]]) -> None:
    assert "CODE OF THE WORKSPACE" not in attacked[0].log


def test_the_key_is_nowhere_but_in_the_step_that_signs(attacked: tuple[Acted, str, set[bytes]]) -> None:
    done, part, arguments = attacked
    assert "KEY ON DISK" not in done.said()
    assert "KEY IN ENVIRONMENT" not in done.said()
    assert any(b"a2a_trust" in each for each in arguments), "the watch has seen the command"
    assert not [each for each in arguments if part.encode() in each and b"grep" not in each]


def test_a_log_of_every_shell_command_has_no_key(tmp_path: Path) -> None:
    """An operator who debugs sets SHELLOPTS=xtrace: the script of the step must not expand the key."""
    keys = tmp_path / "keys"
    keys.mkdir()
    key = base64.b64encode(make_key(keys).read_bytes()).decode()
    script = (ROOT / "action.yml").read_text(encoding="utf-8").split("- name: Sign or check")[1].split("run: |")[1]
    script = script.partition("\n    - name:")[0]
    card = tmp_path / "card.json"
    card.write_bytes(CARD.read_bytes())
    inputs = {"PYTHON": sys.executable, "MODE": "sign", "FILES": "card.json", "EXPIRES": "", "EXPIRES_WITHIN": ""}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-x", "-c", script],
        cwd=tmp_path,
        env={**os.environ, **inputs, "A2A_SIGN_KEY": key, "GITHUB_OUTPUT": str(tmp_path / "output"), "CI": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "signatures" in card.read_text()
    assert "+ run --check" in done.stdout
    assert key not in done.stdout + done.stderr
