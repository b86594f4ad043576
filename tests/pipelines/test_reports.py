"""JUnit XML and code-quality reports, read by the readers of their field."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.pipelines.pipelines import CARD, make_key, python_tools

#: What a reader of JUnit XML makes of it.
READ = """
import json, sys
from junitparser import JUnitXml
whole = JUnitXml.fromfile(sys.argv[1])
suites = [
    {"name": suite.name, "counts": [suite.tests, suite.failures, suite.errors], "cases": [
        [case.classname, case.name, [[type(each).__name__, each.type, each.message, each.text] for each in case.result]]
        for case in suite
    ]}
    for suite in whole
]
print(json.dumps({"counts": [whole.tests, whole.failures, whole.errors], "suites": suites}))
"""
#: The members that GitLab documents for code-quality reports; all of them are required.
MEMBERS = {"description", "check_name", "fingerprint", "location", "severity"}
SEVERITIES = {"info", "minor", "major", "critical", "blocker"}


def command(folder: Path, *arguments: str) -> int:
    program = [str(Path(sys.executable).with_name("a2a-sign")), *arguments]
    return subprocess.run(program, cwd=folder, capture_output=True, check=False).returncode


def read_junit(path: Path) -> dict[str, Any]:
    done = subprocess.run([python_tools() / "python", "-c", READ, path], capture_output=True, text=True, check=True)
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def read_code_quality(path: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(path.read_text())
    for each in entries:
        assert {*each} == MEMBERS
        assert each["severity"] in SEVERITIES
        assert {*each["location"]} == {"path", "lines"}
        assert each["location"]["lines"]["begin"] >= 1
    assert len({each["fingerprint"] for each in entries}) == len(entries)
    return entries


def test_the_reports_of_lint(tmp_path: Path) -> None:
    card = json.loads(CARD.read_text())
    (tmp_path / "good.json").write_text(json.dumps(card))
    (tmp_path / "bad\x01.json").write_text(json.dumps({**card, "name": 1, "]]>\u0001": 0}))
    code = command(tmp_path, "lint", "good.json", "bad\x01.json", "gone.json", "--junit=j.xml", "--code-quality=c.json")
    assert code == 1
    read = read_junit(tmp_path / "j.xml")
    (suite,) = read["suites"]
    assert read["counts"] == suite["counts"] == [3, 1, 1]
    assert suite["name"] == "a2a-sign lint"
    (good, bad, gone) = suite["cases"]
    assert [good[1], bad[1], gone[1]] == ["good.json", "bad\\x01.json", "gone.json"]
    assert [kind for _, _, results in (bad, gone) for kind, *_ in results] == ["Failure", "Error"]
    assert (bad[2][0][1], "ambiguous-member" in bad[2][0][3]) == ("invalid", True)
    entries = read_code_quality(tmp_path / "c.json")
    rules = {(each["location"]["path"], each["check_name"], each["severity"]) for each in entries}
    assert ("bad\x01.json", "a2a-sign lint: ambiguous-member", "critical") in rules
    assert ("gone.json", "a2a-sign lint: input-output", "critical") in rules
    before = {each["fingerprint"] for each in entries}
    bad_card = json.dumps({**card, "name": 1, "]]>\u0001": 0}, indent=4)
    (tmp_path / "bad\x01.json").write_text(bad_card)
    command(tmp_path, "lint", "good.json", "bad\x01.json", "gone.json", "--code-quality=c.json")
    assert {each["fingerprint"] for each in read_code_quality(tmp_path / "c.json")} == before  # lines have moved


def test_the_reports_of_verify(tmp_path: Path) -> None:
    make_key(tmp_path)
    for name in ("signed.json", "unsigned.json"):
        (tmp_path / name).write_bytes(CARD.read_bytes())
    key = next(each for each in tmp_path.iterdir() if b"PRIVATE" in each.read_bytes() or b'"d"' in each.read_bytes())
    assert command(tmp_path, "signed.json", "--key", key.name, "--expires", "30d") == 0
    verify = ["verify", "signed.json", "unsigned.json", "--trust=trust.toml", "--origin-from-card"]
    assert command(tmp_path, *verify, "--junit=j.xml", "--code-quality=c.json") == 3
    assert read_junit(tmp_path / "j.xml")["counts"] == [2, 1, 0]
    (entry,) = read_code_quality(tmp_path / "c.json")
    assert (entry["check_name"], entry["severity"]) == ("a2a-sign verify: unsigned", "critical")
    assert command(tmp_path, *verify, "--expires-within=90d", "--code-quality=c.json") == 1
    names = {each["check_name"] for each in read_code_quality(tmp_path / "c.json")}
    assert names == {"a2a-sign verify: expires-soon", "a2a-sign verify: unsigned"}


def test_a_report_never_replaces_a_key(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    assert command(tmp_path, "keygen", "-o", key.name) == 0
    before = key.read_bytes()
    program = [str(Path(sys.executable).with_name("a2a-sign")), "lint", str(CARD), "--junit", key.name]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "A2A_SIGN_KEY_FILE": str(key)}
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "would be overwritten" in done.stderr) == (2, True)
    assert key.read_bytes() == before
