"""Reports that pipelines show beside a change: JUnit XML, and the code-quality report of GitLab."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from a2a_trust.base.files.atomic import write_atomically
from a2a_trust.cli.report import printable
from a2a_trust.cli.sources import check_not_secret
from a2a_trust.errors import ConfigurationError

#: Severities of code-quality reports: a card with an error must not be published.
_LEVELS: Final = {"error": "critical", "warning": "minor", "note": "info"}
#: How the reports of each option begin.
_BEGINNINGS: Final = {
    "junit": re.compile(rb"<\?xml [^>]*>\s*<testsuite"),
    "code_quality": re.compile(rb'\[(\]|\s*\{\s*"description")'),
}


def check_reports(options: argparse.Namespace) -> None:
    """ConfigurationError: a file of --junit or --code-quality is a key, or is there and is not such a report."""
    for member, beginning in _BEGINNINGS.items():
        if (name := vars(options)[member]) is None or not Path(name).exists():
            continue
        check_not_secret([Path(name)], ())
        with nullcontext() if not Path(name).is_file() else Path(name).open("rb") as file:
            is_report = file is not None and beginning.match(file.read(4_096)) is not None
        if not is_report:
            option = member.replace("_", "-")
            raise ConfigurationError(f"--{option} {name}: it is not an earlier report, so it stays; name another file")


def write_reports(command: str, entries: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Write the files of --junit and --code-quality about these entries, which are as in the report of --json."""
    for name, report in ((options.junit, _junit), (options.code_quality, _code_quality)):
        if name is not None:
            write_atomically(Path(name), report(command, entries))


def _problems(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The findings, and what is wrong with the card as a whole, which begins in its first line."""
    message = entry.get("message") or entry.get("not_fixed")
    whole = {
        "rule": entry.get("code", entry["class"]),
        "severity": "error",
        "pointer": "",
        "line": 1,
        "message": message,
    }
    return [*([whole] if message else []), *entry.get("findings", ())]


def _junit(command: str, entries: list[dict[str, Any]]) -> bytes:
    """A test case for each card: it fails if its exit code is not 0, and else its findings are its output."""
    kinds = ["" if each["ok"] else "error" if each["class"] == "input-output" else "failure" for each in entries]
    counts = {"tests": str(len(kinds)), "failures": str(kinds.count("failure")), "errors": str(kinds.count("error"))}
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", counts, name=f"a2a-sign {command}")
    for entry, kind in zip(entries, kinds, strict=True):
        case = ET.SubElement(suite, "testcase", classname=f"a2a-sign.{command}", name=printable(entry["file"]))
        lines = [printable(f"line {each['line']}: {each['rule']}: {_text(each)}") for each in _problems(entry)]
        if lines:
            about = {"type": entry["class"], "message": lines[0]} if kind else {}
            ET.SubElement(case, kind or "system-out", about).text = "\n".join(lines)
    return bytes(ET.tostring(root, "utf-8", xml_declaration=True)) + b"\n"


def _code_quality(command: str, entries: list[dict[str, Any]]) -> bytes:
    """A list of all findings. Their fingerprints stay the same when lines move and when our texts change."""
    found = [
        {
            "description": printable(_text(each)),
            "check_name": f"a2a-sign {command}: {each['rule']}",
            "fingerprint": hashlib.sha256(f"{entry['file']}\0{each['rule']}\0{each['pointer']}".encode()).hexdigest(),
            "severity": _LEVELS[each["severity"]],
            "location": {"path": entry["file"].removeprefix("./"), "lines": {"begin": each["line"]}},
        }
        for entry in entries
        for each in _problems(entry)
    ]
    return f"{json.dumps(found, indent=2)}\n".encode()


def _text(problem: dict[str, Any]) -> str:
    place = f"{problem['pointer']}: " if problem["pointer"] else ""
    return f"{place}{problem['message']}{'. ' if problem.get('fix') else ''}{problem.get('fix', '')}"
