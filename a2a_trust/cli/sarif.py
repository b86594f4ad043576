"""Findings as SARIF 2.1.0, the format of code scanning."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from a2a_trust.cli.card_text import Position
from a2a_trust.lint.findings import Finding, Rule
from a2a_trust.lint.rules import RULES

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_PLACES: Final = {rule: index for index, rule in enumerate(RULES)}


def log_of(
    results: list[dict[str, Any]],
    notifications: list[dict[str, Any]],
    command: str = "lint",
    rules: Mapping[str, Any] = RULES,
) -> dict[str, Any]:
    """The whole log of one run; ``notifications`` are about files that could not be read."""
    shown = [
        {
            "id": rule.id,
            "shortDescription": {"text": _text(rule.description)},
            "help": {"text": f"A2A 1.0.1, section {rule.section}" if isinstance(rule, Rule) else rule.section},
            "defaultConfiguration": {"level": rule.severity},
            "properties": {"tags": ["security", "a2a"]},
        }
        for rule in rules.values()
    ]
    release = version("a2a-trust").replace(".dev", "-dev")  # SARIF requires semver: 0.1.0-dev0 for 0.1.0.dev0
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": f"a2a-sign {command}", "semanticVersion": release, "rules": shown}},
                "invocations": [
                    {"executionSuccessful": not notifications, "toolExecutionNotifications": notifications}
                ],
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }


def result(name: str, finding: Finding, position: Position) -> dict[str, Any]:
    """One finding in one file.

    The fingerprint is a hash of rule and pointer, so it stays the same when lines move and when our texts change.
    """
    fingerprint = hashlib.sha256(f"{finding.rule}\0{finding.pointer}".encode()).hexdigest()[:32]
    return {
        "ruleId": finding.rule,
        **({"ruleIndex": _PLACES[finding.rule]} if finding.rule in _PLACES else {}),
        "level": finding.severity,
        "message": {"text": _text(f"{finding.message}. {finding.fix}")},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(name)},
                    "region": {"startLine": position.line, "startColumn": position.column},
                },
                "logicalLocations": [{"fullyQualifiedName": finding.pointer, "kind": "member"}],
            }
        ],
        "partialFingerprints": {"ruleAndPointer/v1": fingerprint},
    }


def notification(name: str, error: Exception) -> dict[str, Any]:
    """A file that could not be read."""
    return {
        "level": "error",
        "message": {"text": _text(str(error))},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(name)}}}],
    }


def _text(text: str) -> str:
    """The text with its braces and links escaped: SARIF has placeholders (3.11.5) and links (3.11.6)."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "] (")


def _uri(name: str) -> str:
    """The file as a URI reference (RFC 3986), relative to the current directory unless it is a URL or absolute."""
    if name == "-":
        return "stdin"
    if "://" in name:
        return quote(name, safe=":/?&=%[]")
    path = Path(name)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
