"""The GitHub action: read by the linters of its field, and run by act."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.newcomer import is_shown
from tests.docs.pages import PAGES
from tests.pipelines.acting import act
from tests.pipelines.pipelines import CARD, clean_environment, make_key, python_tools

ACTION = ROOT / "action.yml"

RELEASE = """
on: push
jobs:
  release:
    runs-on: ubuntu-latest
    steps:
      - uses: CHECKOUT
      - id: unsigned
        continue-on-error: true
        uses: ACTION
        with: {mode: check, files: agents, key: "${{ secrets.A2A_SIGN_KEY }}"}
      - id: first
        uses: ACTION
        with:
          mode: sign
          files: |
            agents
            other cards/*.json
          key: ${{ secrets.A2A_SIGN_KEY }}
          expires: 90d
      - id: again
        uses: ACTION
        with: {mode: sign, files: agents, key: "${{ secrets.A2A_SIGN_KEY }}", expires: 90d, expires-within: 30d}
      - id: ends-soon
        uses: ACTION
        with: {mode: sign, files: agents, key: "${{ secrets.A2A_SIGN_KEY }}", expires: 200d, expires-within: 100d}
      - uses: ACTION
        with: {mode: verify, files: agents, trust: trust.toml}
      - uses: ACTION
        with: {mode: verify, files: agents, trust: trust.toml, origin: "https://georoute-agent.example.com"}
      - id: elsewhere
        continue-on-error: true
        uses: ACTION
        with: {mode: verify, files: agents, trust: trust.toml, origin: "https://other.example.com"}
      - uses: ACTION
        with: {mode: lint, files: agents}
      - continue-on-error: true
        id: alarm
        uses: ACTION
        with: {mode: verify, files: agents, trust: trust.toml, expires-within: 300d}
      - run: |
          echo "failed: ${{ steps.unsigned.outcome }} ${{ steps.elsewhere.outcome }} ${{ steps.alarm.outcome }}"
          echo "changed: ${{ steps.first.outputs.changed }} ${{ steps.again.outputs.changed }}"
          echo "changed: ${{ steps.ends-soon.outputs.changed }}"
"""


def test_the_action_signs_checks_verifies_and_lints(tmp_path: Path) -> None:
    workspace, keys = tmp_path / "workspace", tmp_path / "keys"
    (workspace / "agents").mkdir(parents=True)
    (workspace / "other cards").mkdir()
    keys.mkdir()
    key = make_key(keys)
    (workspace / "trust.toml").write_bytes((keys / "trust.toml").read_bytes())
    for name in ("agents/card.json", "other cards/--check.json"):
        (workspace / name).write_bytes(CARD.read_bytes())
    done = act(workspace, RELEASE, tmp_path, key.read_text())
    assert done.ok, done.log
    said = done.said()
    assert [line for line in said if line.startswith(("failed:", "changed:"))] == [
        "failed: failure failure failure",
        "changed: true false",
        "changed: true",
    ]
    (shown,) = re.findall(r"(?ms)^```text\n(.*?)^```$", PAGES["docs/github.md"])
    assert any(is_shown(f"{line}\n", shown) for line in said)
    text = "\n".join(said)
    assert "agents/card.json: has to be signed: not signed by" in text
    assert re.search(r"^other cards/--check\.json: signed by", text, re.MULTILINE)
    assert re.search(r"^agents/card\.json: unchanged, signed by", text, re.MULTILINE)
    assert "2 cards: 2 signed" in text
    assert text.count("agents/card.json: verified: ") == 2


@pytest.mark.parametrize(
    ("step", "inputs", "said"),
    [
        ("Install a2a-sign", {"MODE": "sing"}, "the input mode is sign, check, verify, lint or probe"),
        ("Sign or check", {"MODE": "check"}, "the input key is empty; pull requests from forks get no secrets"),
        ("Verify or lint", {"MODE": "verify"}, "mode verify needs the input trust"),
        ("Verify or lint", {"MODE": "lint"}, "the list is empty"),
        ("Probe", {}, "no agent to probe"),
        ("Probe", {"FILES": "https://agent.example.com", "SCHEME": "key"}, "the input credential is empty"),
    ],
)
def test_a_missing_input_is_an_error_that_names_it(
    step: str, inputs: dict[str, str], said: str, tmp_path: Path
) -> None:
    """Without act, which now and then loses the last lines of a step that ends at once."""
    script = ACTION.read_text(encoding="utf-8").split(f"- name: {step}\n")[1].split("run: |")[1]
    script = script.partition("\n    - name:")[0]
    names = ("FILES", "A2A_SIGN_KEY", "EXPIRES", "EXPIRES_WITHIN", "COMPANION", "TRUST", "ORIGIN", "FAIL_ON")
    nothing = dict.fromkeys((*names, "SCHEME", "CREDENTIAL"), "") | {"GITHUB_OUTPUT": os.devnull}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=clean_environment(tmp_path / "home", **{**nothing, **inputs}, PYTHON=sys.executable, CI="true"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stdout + done.stderr


def test_lint_leaves_a_file_for_code_scanning(tmp_path: Path) -> None:
    script = ACTION.read_text(encoding="utf-8").split("- name: Verify or lint\n")[1].split("run: |")[1]
    (tmp_path / "card.json").write_text("{}")
    outputs = tmp_path / "outputs"
    inputs = {"MODE": "lint", "FILES": "card.json", "GITHUB_OUTPUT": str(outputs), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script.partition("\n    - name:")[0]],
        cwd=tmp_path,
        env=clean_environment(tmp_path / "home", **inputs, PYTHON=sys.executable, CI="true"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "card.json: " in done.stdout) == (1, True)
    name = outputs.read_text().removeprefix("sarif=").removesuffix("\n")
    (run,) = json.loads(Path(name).read_text())["runs"]
    assert {result["ruleId"] for result in run["results"]} >= {"missing-member"}


def test_linters_of_actions_find_nothing() -> None:
    tools = python_tools()
    zizmor: list[str | Path] = [tools / "zizmor", "--offline", "--quiet", "--persona=pedantic", ACTION]
    schema: list[str | Path] = [
        tools / "python",
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-actions",
        ACTION,
    ]
    for command in (zizmor, schema):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_no_input_stands_in_a_script_and_one_step_has_the_key() -> None:
    """zizmor reports an input in a script too; the step with the key is ours to keep alone."""
    steps = ACTION.read_text(encoding="utf-8").split("\n    - name: ")[1:]
    assert len(steps) == 4
    for step in steps:
        assert "${{" not in step.partition("run: |")[2]
    assert [step.partition("\n")[0] for step in steps if "inputs.key" in step] == ["Sign or check"]
    assert [step.partition("\n")[0] for step in steps if "inputs.credential" in step] == ["Probe"]
