"""docs/a2a-sign.md names every command, every option and every exit code, and none that is not there."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest

from a2a_trust.cli.arguments import COMMANDS
from a2a_trust.cli.main import _parser
from a2a_trust.cli.report import Exit, class_of
from tests.conftest import ROOT

REFERENCE = (ROOT / "docs" / "a2a-sign.md").read_text(encoding="utf-8")
USAGE = re.findall(r"```\n(.*?)```", REFERENCE, re.DOTALL)[0].replace("[sign]", "sign")


def parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands of a command, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_usage_of_every_command_has_its_options_and_its_commands(command: str) -> None:
    parser = dict(parsers(_parser(command)))[command]
    inner = dict(parsers(parser))
    lines = " ".join(re.findall(rf"^a2a-sign {command} .*(?:\n .*)*", USAGE, re.MULTILINE))
    named = set(re.findall(r"(?<![\w-])--[a-z-]+|(?<![\w-])-o\b", lines))
    options = {
        option for each in (parser, *inner.values()) for action in each._actions for option in action.option_strings
    }
    options -= {"-h", "--help", "-q", "-v", "--output"}  # -o is its short name
    if command in ("api-key", "password"):  # their sections lead to their help
        assert {"--store", "--json"} <= named <= options
    else:
        assert named == options
    assert all(re.search(rf"[ |]{name}[ |]", lines) for name in inner)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_section(command: str) -> None:
    assert command in ", ".join(re.findall(r"^## (.*)$", REFERENCE, re.MULTILINE)).split(", ")


def test_the_exit_codes_are_those_of_the_command() -> None:
    rows = re.findall(r"^\| (\d) \| `([a-z-]+)` \|", REFERENCE, re.MULTILINE)
    assert rows == [(str(int(code)), class_of(code)) for code in Exit]
