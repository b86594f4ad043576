"""``a2a-sign lint``: what it says, in three formats, how it ends, and that fixing changes no meaning."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.base import strict_json
from a2a_trust.cli.card_text import positions_of
from a2a_trust.cli.lint import fixed_text
from a2a_trust.lint.findings import Severity
from a2a_trust.lint.linter import lint_card
from a2a_trust.lint.rules import RULES
from a2a_trust.signing.forms import Form, project
from tests.cli.conftest import CARD, Run
from tests.signing.cards import Card, cards
from tests.signing.json_values import documents, write


def saved(folder: Path, name: str, card: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return path


# Exit codes and text


def test_a_card_with_nothing_to_mend_is_0(run: Run, card: Path) -> None:
    done = run("lint", "card.json")
    assert (done.code, done.out, done.err) == (0, "card.json: no problems found\n", "")


def test_a_finding_is_one_line_with_place_severity_rule_and_message_and_one_with_the_mend(
    run: Run, tmp_path: Path
) -> None:
    saved(tmp_path, "card.json", {**CARD, "documentationUrl": None, "iconUrl": "http://example.com/i.png"})
    done = run("lint", "card.json")
    assert done.code == 0
    assert done.out.splitlines() == [
        "card.json:/documentationUrl note explicit-default: the member has no meaning, but gives the card several "
        "canonical forms: SDKs that sign the card as it is served sign it, the form of the specification leaves it out",
        "    Remove it, with a2a-sign lint --fix; signing removes it, too.",
        "card.json:/iconUrl note http-link: the connection is not encrypted: anybody on the network path can change "
        "the page that people see",
        "    Write https.",
        "card.json: 2 notes",
        "  1 can be fixed with --fix; the meaning of the card stays the same",
    ]


def test_an_error_is_1_and_warnings_are_0(run: Run, tmp_path: Path) -> None:
    saved(tmp_path, "error.json", {**CARD, "version": None})
    saved(tmp_path, "warning.json", {**CARD, "skills": []})
    assert run("lint", "error.json").code == 1
    assert run("lint", "warning.json").code == 0
    assert run("lint", "warning.json", "error.json").code == 1


def test_a_file_that_is_no_json_is_a_finding_and_one_that_is_not_there_an_error(run: Run, card: Path) -> None:
    (card.parent / "text.json").write_text('{"name": "a", "name": "b"}')
    done = run("lint", "text.json", "missing.json", "card.json")
    assert done.code == 1
    assert "text.json: error unreadable-document: the member 'name' appears more than once" in done.out
    assert "missing.json" in done.err
    assert "card.json: no problems found" in done.out
    assert run("lint", "missing.json").code == 6


def test_standard_input_is_linted(run: Run) -> None:
    done = run("lint", "-", stdin=json.dumps({**CARD, "skills": []}).encode())
    assert done.code == 0
    assert "-:/skills warning empty-member:" in done.out


@pytest.mark.parametrize("arguments", [["-", "-"], ["--fix", "-"]])
def test_standard_input_is_read_once_and_never_mended(run: Run, arguments: list[str]) -> None:
    done = run("lint", *arguments, "--json")
    assert done.code == 2
    assert done.json["error"]["class"] == "usage"


def test_json_and_sarif_exclude_each_other(run: Run, card: Path) -> None:
    done = run("lint", "--json", "--sarif", "card.json")
    assert done.code == 2
    assert done.json["command"] == "lint"


def test_names_of_a_card_cannot_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    saved(tmp_path, "card.json", {**CARD, "x\x1b[2J\u202e\n": 1})
    done = run("lint", "card.json")
    assert done.code == 1  # two readers may read such a name differently
    assert "card.json:/x\\x1b[2J\\u202e\\n warning control-character:" in done.out
    assert not {"\x1b", "\u202e"} & set(done.out)


def test_no_real_card_makes_a_traceback(run: Run, vectors: Path) -> None:
    paths = sorted((vectors / "cards" / "files").glob("*.json"))
    done = run("lint", *paths)
    assert (done.code, done.err) == (1, "")
    done = run("lint", "--json", *paths)
    assert (done.code, done.err) == (1, "")
    assert [result["file"] for result in done.json["results"]] == list(map(str, paths))


# --fix


def test_fix_leaves_out_what_says_nothing_and_keeps_the_rest_of_the_text(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    before = json.dumps(CARD, indent=3, ensure_ascii=False)
    path.write_text(before.replace('"version"', '"documentationUrl": null,\n   "version"'), encoding="utf-8")
    done = run("lint", "--fix", "card.json")
    assert (done.code, done.err) == (0, "")
    assert done.out == "card.json:/documentationUrl fixed: removed\ncard.json: no problems found\n"
    assert path.read_text(encoding="utf-8") == before
    assert run("lint", "--fix", "card.json").out == "card.json: no problems found\n"


def test_fix_leaves_a_card_without_such_members_and_its_file_alone(run: Run, tmp_path: Path) -> None:
    path = saved(tmp_path, "card.json", {**CARD, "skills": [], "version": None, "x": {}})
    path.write_text(json.dumps({**CARD, "skills": []}))
    before = path.stat()
    assert run("lint", "--fix", "card.json").code == 0
    assert path.stat().st_ino == before.st_ino


def test_fix_does_not_touch_a_signed_card_and_says_why(run: Run, card: Path, key: Path) -> None:
    assert run("card.json", "--key", key).code == 0
    signed = json.loads(card.read_text())
    path = saved(card.parent, "card.json", {**signed, "iconUrl": None})
    before = path.read_bytes()
    done = run("lint", "--fix", "card.json", "--json")
    assert done.code == 2
    assert "remove the signatures, fix the card, and sign it again" in done.json["results"][0]["not_fixed"]
    assert path.read_bytes() == before
    assert run("lint", "card.json").code == 0


def test_fix_does_not_touch_a_card_that_readers_take_for_two(run: Run, tmp_path: Path) -> None:
    path = saved(tmp_path, "card.json", {**CARD, "iconUrl": None, "capabilities": {"streaming": "yes"}})
    before = path.read_bytes()
    done = run("lint", "--fix", "card.json")
    assert done.code == 1
    assert "not fixed: card: /capabilities/streaming" in done.err
    assert path.read_bytes() == before


@given(cards, st.integers(0, 2**32))
def test_a_mended_text_says_what_the_card_said_and_is_mended_once(card: Card, seed: int) -> None:
    text = write(card, Random(seed)).encode()
    fixed, dropped = fixed_text(text)
    assert project(strict_json.parse(fixed), Form.SPEC).payload == project(card, Form.SPEC).payload
    assert fixed_text(fixed) == (fixed, ())
    assert (fixed == text) == (not dropped)
    assert "explicit-default" not in {finding.rule for finding in lint_card(fixed)}


# --json


def test_json_has_every_finding_with_its_line(run: Run, tmp_path: Path) -> None:
    saved(tmp_path, "card.json", {**CARD, "skills": [], "x": 1, "documentationUrl": None})
    done = run("lint", "card.json", "missing.json", "--json")
    assert done.code == 6
    assert (done.json["command"], done.json["ok"], done.json["exit"]) == ("lint", False, 6)
    result, missing = done.json["results"]
    lines = (tmp_path / "card.json").read_text().splitlines()
    assert [(it["rule"], it["severity"], it["pointer"]) for it in result["findings"]] == [
        ("empty-member", "warning", "/skills"),
        ("unknown-member", "note", "/x"),
        ("explicit-default", "note", "/documentationUrl"),
    ]
    for finding in result["findings"]:
        assert lines[finding["line"] - 1][finding["column"] - 1 :].startswith(f'"{finding["pointer"][1:]}"')
        assert finding["message"]
        assert finding["fix"]
    assert (result["ok"], result["class"], result["fixed"], result["not_fixed"]) == (True, "ok", [], None)
    assert (missing["ok"], missing["class"]) == (False, "input-output")


# --sarif


def sarif(run: Run, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = run("lint", "--sarif", *arguments)
    assert done.code == code
    (of_one_run,) = done.json["runs"]
    assert done.json["version"] == "2.1.0"
    of_run: dict[str, Any] = of_one_run
    return of_run


def test_sarif_has_every_rule_of_the_table(run: Run, card: Path) -> None:
    log = sarif(run, "card.json")
    rules = log["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    assert [rule["defaultConfiguration"]["level"] for rule in rules] == [rule.severity for rule in RULES.values()]
    assert {str(severity) for severity in Severity} == {"error", "warning", "note"}  # the levels of SARIF 3.58.6
    assert log["results"] == []
    assert log["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]


def test_sarif_tells_place_rule_and_mend(run: Run, tmp_path: Path) -> None:
    name = "my card ä.json"
    path = saved(tmp_path, name, {**CARD, "skills": []})
    (result,) = sarif(run, name)["results"]
    line = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if '"skills"' in text)
    assert result["ruleId"] == "empty-member"
    assert list(RULES)[result["ruleIndex"]] == "empty-member"
    assert result["level"] == "warning"
    assert result["message"]["text"].endswith("Add an element to skills.")
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": quote(name)},
        "region": {"startLine": line, "startColumn": 3},
    }
    assert location["logicalLocations"] == [{"fullyQualifiedName": "/skills", "kind": "member"}]


def test_fingerprints_stay_when_lines_move_and_differ_by_place(run: Run, tmp_path: Path) -> None:
    card = {**CARD, "x": 1, "y": 2}
    saved(tmp_path, "card.json", card)
    (tmp_path / "moved.json").write_text("\n\n" + json.dumps(dict(sorted(card.items()))))
    before, after = (
        {
            it["locations"][0]["logicalLocations"][0]["fullyQualifiedName"]: it["partialFingerprints"]
            for it in sarif(run, name)["results"]
        }
        for name in ("card.json", "moved.json")
    )
    assert before == after
    assert before["/x"] != before["/y"]


def test_sarif_has_files_that_are_no_json_and_files_that_are_not_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "text.json").write_text("{")
    log = sarif(run, "text.json", "missing.json", code=1)
    assert [(it["ruleId"], it["level"]) for it in log["results"]] == [("unreadable-document", "error")]
    assert log["invocations"][0]["executionSuccessful"] is False
    (notification,) = log["invocations"][0]["toolExecutionNotifications"]
    assert notification["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "missing.json"


def test_names_of_a_card_make_no_links_and_placeholders_in_sarif(run: Run, tmp_path: Path) -> None:
    name = "{0}[click](https://evil.example.com)"
    saved(tmp_path, "card.json", {**CARD, "securityRequirements": [{"schemes": {name: {"list": ["r"]}}}]})
    texts = [it["message"]["text"] for it in sarif(run, "card.json", code=1)["results"]]
    (text,) = (text for text in texts if "click" in text)
    assert "{{0}}[click] (https" in text


# Positions


def pointers(value: Any, pointer: str = "") -> list[tuple[str, Any]]:
    """Every place of a value: its pointer, and what stands in the text there, the name of a member or an element."""
    found: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        for name, item in value.items():
            here = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            found += [(here, name), *pointers(item, here)]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += [(f"{pointer}/{index}", item), *pointers(item, f"{pointer}/{index}")]
    return found


@given(documents, st.integers(0, 2**32))
def test_positions_are_those_of_the_names_and_elements_in_any_spelling(value: Any, seed: int) -> None:
    text = write(value, Random(seed))
    expected = pointers(value)
    lines = text.split("\n")
    found = positions_of(text, [pointer for pointer, _ in expected])
    for pointer, there in expected:
        line, column = found[pointer]
        rest = "\n".join([lines[line - 1][column - 1 :], *lines[line:]])
        assert json.JSONDecoder().raw_decode(rest)[0] == there


def test_what_is_not_there_stands_where_the_object_around_it_does() -> None:
    text = '{\n  "a": [\n    1,\n    {"b": 2}\n  ]\n}'
    found = positions_of(text, ["", "/c", "/a/1/c", "/a/1/b", "/a/7", "/a/1/b/c"])
    assert {pointer: tuple(position) for pointer, position in found.items()} == {
        "": (1, 1),
        "/c": (1, 1),
        "/a/1/c": (4, 5),
        "/a/1/b": (4, 6),
        "/a/7": (2, 3),
        "/a/1/b/c": (4, 6),
    }
