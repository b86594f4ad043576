"""Runs over many cards: JSON Lines, worker processes, the report, runs that are killed, the line of progress."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from a2a_trust.base.files.atomic import FileToWrite
from a2a_trust.base.workers import CHUNK as REAL_CHUNK
from a2a_trust.cli import progress
from a2a_trust.cli.main import main
from tests.cli.conftest import CARD, COMMAND, Run

CHUNK = 8
NUMBER = 2 * CHUNK + 4


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk for each worker, and one more, from few cards."""
    monkeypatch.setattr("a2a_trust.base.workers.CHUNK", CHUNK)


def host(number: int) -> str:
    return f"agent-{number}.example.com"


def card(number: int) -> dict[str, Any]:
    interface = {"url": f"https://{host(number)}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return {**CARD, "name": f"Agent {number}", "supportedInterfaces": [interface]}


@pytest.fixture
def lines(tmp_path: Path, key: Path, run: Run) -> Path:
    """Lines with unsigned cards of as many agents, and a trust file for all their hosts."""
    path = tmp_path / "cards.jsonl"
    path.write_text(
        "".join(f'{{"origin": "https://{host(n)}", "card": {json.dumps(card(n))}}}\n' for n in range(NUMBER))
    )
    assert run("trust", "add", "trust.toml", "--origin", "*.example.com", "--jwks", "key.jwks.json").code == 0
    return path


@pytest.fixture
def signed(lines: Path, run: Run) -> Path:
    """The same lines, signed by the command."""
    done = run("--cards-from", lines, "-o", "signed.jsonl", "--key", "key.pem", "-q")
    assert (done.code, done.out, done.err) == (0, f"{NUMBER} cards: {NUMBER} signed\n", "")
    return lines.with_name("signed.jsonl")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_lines_are_signed_and_verified(signed: Path, lines: Path, run: Run) -> None:
    before, after = read(lines), read(signed)
    assert [line["origin"] for line in after] == [line["origin"] for line in before]
    for old, new in zip(before, after, strict=True):
        assert {name: value for name, value in new["card"].items() if name != "signatures"} == old["card"]
    done = run("verify", "--cards-from", "signed.jsonl", "--trust", "trust.toml", "--json-lines")
    reports = [json.loads(line) for line in done.out.splitlines()]
    assert reports.pop() == {"command": "verify", "ok": True, "exit": 0, "cards": NUMBER}
    assert [report["file"] for report in reports] == [f"signed.jsonl:{number}" for number in range(1, NUMBER + 1)]
    assert [report["origin"] for report in reports] == [host(number) for number in range(NUMBER)]


def test_lines_come_from_standard_input_and_go_to_standard_output(signed: Path, lines: Path, run: Run) -> None:
    done = run("--cards-from", "-", "-o", "-", "--key", "key.pem", "--if-needed", stdin=signed.read_bytes())
    assert (done.code, done.out) == (0, signed.read_text())
    assert done.err.splitlines()[-1] == f"{NUMBER} cards: {NUMBER} unchanged"
    done = run("verify", "--cards-from=-", "--trust=trust.toml", "-q", stdin=b"\n\n" + signed.read_bytes() + b"\r\n")
    assert (done.code, done.out, done.err) == (0, f"{NUMBER} cards: {NUMBER} verified\n", "")
    done = run("--cards-from", lines, "--check", "--key", "key.pem", "--json")
    assert (done.code, {entry["status"] for entry in done.json["results"]}) == (1, {"to-sign"})


def test_one_wrong_line_and_nothing_is_written(lines: Path, run: Run, tmp_path: Path) -> None:
    written = lines.read_text().splitlines(keepends=True)
    written[CHUNK + 3] = '{"card": {"name": "x", "name": "y"}}\n'
    lines.write_text("".join(written))
    (tmp_path / "there.jsonl").write_text("as it was")
    for output in ("new.jsonl", "there.jsonl", "-"):
        done = run("--cards-from", lines, "-o", output, "--key", "key.pem", "-q")
        assert (done.code, f"cards.jsonl:{CHUNK + 4}: card: the member 'name'" in done.err) == (1, True)
        assert done.out == ("" if output == "-" else f"{NUMBER} cards: {NUMBER - 1} not written, 1 refused\n")
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["cards.jsonl", "there.jsonl"]
    assert (tmp_path / "there.jsonl").read_text() == "as it was"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ("--cards-from cards.jsonl", "--cards-from needs -o FILE"),
        ("--cards-from cards.jsonl -o x --check", "--cards-from needs -o FILE for the signed lines"),
        ("--cards-from cards.jsonl -o cards.jsonl", "are one file; write the signed lines to another file"),
        ("--cards-from cards.jsonl -o key.pem", "is the private key, and would be overwritten"),
        ("--cards-from cards.jsonl card.json -o x", "leave out the other files"),
        ("--cards-from empty -o x", "no line with a card"),
        ("verify --cards-from empty --trust trust.toml", "no line with a card"),
        ("verify --cards-from gone --trust trust.toml", "gone"),
        ("verify --cards-from - - --trust trust.toml --any-origin", "can be read only once"),
        ("verify --cards-from - --jwks - --any-origin", "can be read only once"),
        ("verify --cards-from - --files-from list --trust trust.toml --any-origin", "remove the name - from the list"),
        ("verify --trust trust.toml", "the following arguments are required"),
    ],
)
def test_arguments_that_do_not_fit(arguments: str, what: str, lines: Path, run: Run) -> None:
    lines.with_name("empty").write_text("\n \n")
    lines.with_name("list").write_text("-\n")
    done = run(*arguments.split(), *([] if "verify" in arguments else ["--key", "key.pem"]))
    assert (done.code, what in done.err) == (6 if "gone" in what else 2, True), done.err
    assert not lines.with_name("x").exists()


def test_lines_without_an_origin_need_a_word_on_it(signed: Path, run: Run) -> None:
    bare = signed.with_name("bare.jsonl")
    bare.write_text("".join(f"{json.dumps(line['card'])}\n" for line in read(signed)[:3]))
    done = run("verify", "--cards-from", bare, "--trust", "trust.toml")
    assert (done.code, done.out.count("line: no origin; write")) == (1, 3)
    assert "--origin-from-card" in done.out
    done = run("verify", "--cards-from", bare, "--trust", "trust.toml", "--origin-from-card")
    assert (done.code, f"origin {host(2)}" in done.out) == (0, True)
    done = run("verify", "--cards-from", bare, "--jwks", "key.jwks.json", "--origin", host(0))
    assert (done.code, done.out.splitlines()[-1]) == (4, "3 cards: 1 verified, 2 untrusted")


def folder_of(signed: Path) -> Path:
    folder = signed.with_name("agents")
    folder.mkdir()
    for number, line in enumerate(read(signed)):
        (folder / f"{number:04}.json").write_text(json.dumps(line["card"]))
    return folder


def test_a_directory_of_many_cards_is_signed_by_several_processes_or_not_at_all(
    lines: Path, run: Run, tmp_path: Path
) -> None:
    folder = folder_of(lines)
    middle = folder / f"{CHUNK + 1:04}.json"
    whole = middle.read_text()
    middle.write_text('{"name": "x", "name": "y"}')
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = run("agents", "--key", "key.pem")
    assert (done.code, done.out.splitlines()[-1]) == (1, f"{NUMBER} cards: {NUMBER - 1} not written, 1 refused")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    middle.write_text(whole)
    assert run("agents", "--key", "key.pem", "-q").code == 0
    assert run("agents", "--key", "key.pem", "--if-needed").out.endswith(f"{NUMBER} cards: {NUMBER} unchanged\n")
    assert run("verify", "agents", "--trust", "trust.toml", "--origin-from-card", "-q").code == 0
    assert len(list(folder.iterdir())) == NUMBER


VERIFY = ("verify", "agents", "--trust", "trust.toml", "--origin-from-card")


def test_a_report_has_a_line_for_each_card_and_a_last_one(signed: Path, run: Run, tmp_path: Path) -> None:
    folder = folder_of(signed)
    changed = folder / f"{CHUNK // 2:04}.json"
    changed.write_text(changed.read_text().replace("Reads", "Writes"))
    assert run(*VERIFY, "--report", "r.jsonl", "-q").code == 1
    *cards, last = read(tmp_path / "r.jsonl")
    assert last == {"command": "verify", "ok": False, "exit": 1, "cards": NUMBER}
    assert [card["file"] for card in cards] == [f"agents/{number:04}.json" for number in range(NUMBER)]
    assert [card["ok"] for card in cards] == [number != CHUNK // 2 for number in range(NUMBER)]
    assert cards[CHUNK // 2]["sha256"] == hashlib.sha256(changed.read_bytes()).hexdigest()
    assert not any("card" in card for card in cards)


def many(signed: Path) -> Path:
    """Enough cards for a kill in between."""
    folder = folder_of(signed)
    for number in range(NUMBER, 12 * REAL_CHUNK):
        (folder / f"{number:04}.json").write_bytes((folder / f"{number % NUMBER:04}.json").read_bytes())
    return folder


def killed_when(happens: Callable[[], bool], *arguments: str, cwd: Path) -> None:
    with subprocess.Popen([COMMAND, *arguments, "-q"], cwd=cwd) as process:
        try:
            until = time.monotonic() + 60
            while not happens():
                assert time.monotonic() < until
                time.sleep(0.001)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.long
def test_a_report_of_a_killed_run_has_no_last_line(signed: Path, run: Run, tmp_path: Path) -> None:
    many(signed)
    report = tmp_path / "r.jsonl"
    killed_when(lambda: report.exists() and report.stat().st_size > 0, *VERIFY, "--report", "r.jsonl", cwd=tmp_path)
    assert '"exit"' not in report.read_text()
    done = run(*VERIFY, "--report", "r.jsonl")
    assert (done.code, "--report r.jsonl: the file exists; name a new file" in done.err) == (2, True)


@pytest.mark.long
def test_a_killed_run_leaves_each_card_whole_and_the_next_one_signs_the_rest(
    lines: Path, run: Run, tmp_path: Path
) -> None:
    folder = many(lines)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    last = folder / f"{NUMBER:04}.json"
    killed_when(lambda: last.read_bytes() != before[last], "agents", "--key", "key.pem", cwd=tmp_path)
    now = {path: path.read_bytes() for path in before}
    signed = [path for path in before if now[path] != before[path]]
    assert NUMBER < len(signed) < len(before)
    assert all(json.loads(now[path])["signatures"] for path in signed)
    done = run("agents", "--key", "key.pem", "--if-needed")
    assert done.out.splitlines()[-1] == (
        f"{len(before)} cards: {len(signed)} unchanged, {len(before) - len(signed)} signed"
    )
    assert run(*VERIFY, "-q").code == 0
    assert set(folder.iterdir()) == before.keys()


def test_an_error_while_cards_are_written_names_those_that_are(
    lines: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of(lines)
    commit = FileToWrite.commit

    def failing(file: FileToWrite, flush: Callable[[Path], object]) -> None:
        if file.path.name == "0002.json":
            raise OSError(errno.ENOSPC, "No space left on device", str(file.path))
        commit(file, flush)

    monkeypatch.setattr(FileToWrite, "commit", failing)
    done = run("agents", "--key", "key.pem")
    assert (done.code, done.out) == (6, "")
    assert done.err.splitlines() == [
        "warning: these cards were signed and written before the error: agents/0000.json, agents/0001.json",
        "a2a-sign: error: agents/0002.json: No space left on device",
    ]
    monkeypatch.setattr(FileToWrite, "commit", commit)
    last = run("agents", "--key", "key.pem", "--if-needed").out.splitlines()[-1]
    assert last == f"{NUMBER} cards: 2 unchanged, {NUMBER - 2} signed"


class Terminal(io.StringIO):
    """What is written to it is shown."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_a_long_run_is(signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, seconds = Terminal(), count()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["verify", "--cards-from", "signed.jsonl", "--trust", "trust.toml", "-q"]) == 0
    shown = terminal.getvalue()
    assert re.match(r"\r[\d,]+ cards, [\d,]+ a second\x1b\[K\r", shown), shown
    assert shown.endswith("\r\x1b[K")
    assert "\n" not in shown
