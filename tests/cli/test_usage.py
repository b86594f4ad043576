"""Mistakes in arguments: the usage of the command that they are in, then one line that says what to do."""

from __future__ import annotations

import json

import pytest

from a2a_trust.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "command", "mistake"),
    [
        ("sign", "sign", "the following arguments are required: FILE"),
        ("--no-iat", "sign", "the following arguments are required: FILE"),
        ("card.json --bogus", "sign", "unrecognized arguments: --bogus"),
        ("sign card.json --expire 90d", "sign", "unrecognized arguments: --expire 90d"),
        ("inspect card.json --memory FILE", "inspect", "unrecognized arguments: --memory FILE"),
        ("verify card.json --signer else", "verify", "argument --signer: invalid choice: 'else'"),
        ("trust", "trust", "the following arguments are required: {add,remove,list,revoke}"),
        ("trust ad trust.toml", "trust", "invalid choice: 'ad'"),
        ("trust add trust.toml", "trust add", "the following arguments are required: --origin"),
        ("trust list trust.toml other.toml", "trust list", "unrecognized arguments: other.toml"),
        ("keys revoke ring.json kid --bogus", "keys revoke", "unrecognized arguments: --bogus"),
    ],
)
def test_a_mistake_shows_the_usage_of_its_command_and_what_to_do(
    arguments: str, command: str, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == 2
    usage, _, line = capsys.readouterr().err.removesuffix("\n").rpartition("\n")
    assert usage.startswith(f"usage: a2a-sign {command} [-h]")
    assert line.startswith(f"a2a-sign {command}: error: ")
    assert mistake in line
    assert line.endswith(f"; for help: a2a-sign {command} --help")


@pytest.mark.parametrize(
    ("arguments", "command"), [("sgin --json", "sign"), ("keys revoke ring.json kid --bogus --json", "keys revoke")]
)
def test_a_mistake_is_json_where_json_is_asked_for(
    arguments: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == 2
    report = json.loads(capsys.readouterr().out)
    assert (report["command"], report["exit"], report["error"]["class"]) == (command, 2, "usage")
