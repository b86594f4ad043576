"""What all commands share: the usage that a mistake shows, how much is said, and completion."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from a2a_trust.cli.arguments import COMMANDS
from a2a_trust.cli.main import main
from a2a_trust.cli.report import show_log
from tests.cli.conftest import CARD, Run
from tests.tables import walk


@walk(
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


# --- how much is said ----------------------------------------------------------------------------------------------


def test_quiet_says_nothing_of_what_passes(run: Run, card: Path, key: Path) -> None:
    quiet = [
        run("sign", "-q", "card.json", "--key", "key.pem"),
        run("verify", "--quiet", "card.json", "--jwks", "key.jwks.json", "--any-origin"),
        run("lint", "-q", "card.json"),
    ]
    assert [(done.code, done.out, done.err) for done in quiet] == [(0, "", "")] * 3


def test_quiet_keeps_errors_and_reports(run: Run, card: Path, key: Path) -> None:
    assert "no signing key" in run("-q", "card.json").err
    done = run("verify", "-q", "card.json", "--jwks", "key.jwks.json", "--any-origin")
    assert (done.code, "NOT VERIFIED (unsigned)" in done.out) == (3, True)
    assert run("lint", "-q", "card.json", "--json").json["ok"]
    card.write_text(json.dumps({**CARD, "securitySchemes": {}, "iconUrl": "http://example.com/i.png"}))
    loud, done = run("lint", "card.json"), run("lint", "-q", "card.json")
    assert (loud.code, done.code) == (1, 1)
    assert " note " in loud.out
    assert " error " in done.out
    assert " note " not in done.out


def test_verbose_logs_on_standard_error(run: Run, tmp_path: Path) -> None:
    done = run("memory", "accept", "https://agent.example.com", "A" * 43, "-v", "--file", "cards.db", "--json")
    assert (done.code, done.json["ok"]) == (0, True)
    assert done.err == f"made a memory of cards at {tmp_path}/cards.db; it has no records yet\n"
    (tmp_path / "cards.db").unlink()
    assert run("memory", "accept", "https://agent.example.com", "A" * 43, "--file", "cards.db").err == ""


def test_warnings_of_the_package_look_like_those_of_the_command(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("a2a_trust.keys.trust.file")
    with show_log(verbose=False):
        log.info("not this")
        log.warning("key %s\x1b skipped", "k")
    log.warning("nor this")
    at, _, text = capsys.readouterr().err.partition(" ")
    assert datetime.fromisoformat(at).tzinfo is not None
    assert text == "warning: key k\\x1b skipped\n"


# --- completion ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_completion_names_all_commands_and_options(shell: str, run: Run) -> None:
    done = run(f"--print-completion={shell}")
    assert (done.code, done.err) == (0, "")
    for word in (*COMMANDS, "revoke", "--jwks-url", "--on-first-use", "--print-completion", "a2a-python"):
        assert word in done.out


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["tr"], {"trust"}),
        (["trust", "re"], {"remove", "revoke"}),
        (["sign", "--drop"], {"--drop-broken"}),
        (["verify", "card.json", "--signer", "a2a-"], {"a2a-trust", "a2a-python", "a2a-js"}),
        (["sign", "--key", "k"], {"key.pem", "key.jwks.json"}),
    ],
)
def test_bash_completes(words: list[str], found: set[str], run: Run, key: Path) -> None:
    program = (
        f"{run('--print-completion', 'bash').out}\n"
        f"COMP_WORDS=(a2a-sign {' '.join(words)}); COMP_CWORD={len(words)}; compopt() {{ :; }}\n"
        '_shtab_a2a_sign; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], cwd=key.parent, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == found


def test_completion_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["--print-completion", "bash"]) == 2
    assert 'needs shtab: pip install "./a2a-trust[completion]"' in capsys.readouterr().err
