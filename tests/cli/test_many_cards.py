"""Many cards at once, as repositories have them: directories, globs, lists, sums, JSON Lines."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CARD, COMMAND, Run

BAD = '{"name": "x", "name": "y"}'


@pytest.fixture
def cards(tmp_path: Path, key: Path) -> Path:
    """A folder of cards: two agents, one of them with an older card beside, and things that are no cards."""
    folder = tmp_path / "agents"
    for name in ("zoe/card.json", "ann/card.json", "ann/old/card.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({**CARD, "name": name}, indent=2))
    (folder / ".cache").mkdir()
    for name in (".cache/card.json", ".hidden.json", "notes.txt", "ann/card.yaml"):
        (folder / name).write_text(BAD)
    return folder


def test_of_hidden_directories_the_one_that_agents_serve_is_searched(cards: Path, key: Path, run: Run) -> None:
    for name in (".well-known/agent-card.json", "ann/.well-known/more/agent-card.json"):
        (cards / name).parent.mkdir(parents=True)
        (cards / name).write_text(json.dumps({**CARD, "name": name}))
    assert run("agents", "--key", key).code == 0
    assert signed(cards) == [".well-known/agent-card.json", "ann/.well-known/more/agent-card.json", *ALL]


def signed(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*.json") if '"signatures"' in path.read_text("utf-8")
    )


ALL = ["ann/card.json", "ann/old/card.json", "zoe/card.json"]
NAMES = "".join(f"agents/{name}\n" for name in ALL).encode()


@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (["agents"], b"", ALL),
        (["agents/"], b"", ALL),
        (["agents/*/card.json"], b"", ["ann/card.json", "zoe/card.json"]),
        (["agents/**/card.json"], b"", ALL),
        (["agents/[a-m]*/card.json"], b"", ["ann/card.json"]),
        (["agents/[!a-n]*"], b"", ["zoe/card.json"]),
        (["*/*/c?rd.json"], b"", ["ann/card.json", "zoe/card.json"]),
        (["**/old/**/*.json"], b"", ["ann/old/card.json"]),
        (["./agents/[az]*"], b"", ALL),
        (["agents/ann/card.json", "agents/ann"], b"", ["ann/card.json", "ann/old/card.json"]),
        (["--files-from", "-"], NAMES, ALL),
        (["--files-from=-"], NAMES.replace(b"\n", b"\0"), ALL),
        (["--files-from=-"], NAMES.replace(b"\n", b"\r\n"), ALL),
        (["--files-from=-"], b"\nagents/zoe\n\n", ["zoe/card.json"]),
        (["agents/*/*/card.json"], b"", ["ann/old/card.json"]),
        (["agents/ann/old", "--files-from=-"], b"agents/z*/*.json", ["ann/old/card.json", "zoe/card.json"]),
    ],
)
def test_cards_are_named_in_every_way(
    arguments: list[str], stdin: bytes, expected: list[str], run: Run, cards: Path
) -> None:
    done = run(*arguments, "--key", "key.pem", "--json", stdin=stdin)
    assert done.code == 0, done.out
    assert [os.path.normpath(entry["file"]) for entry in done.json["results"]] == [
        f"agents/{name}" for name in expected
    ]
    assert signed(cards) == expected


@pytest.mark.parametrize(
    ("arguments", "stdin", "what"),
    [
        (["nothing/*.json"], b"", "nothing/*.json: no file matches this glob"),
        (["empty"], b"", "empty: no *.json file in this directory"),
        (["--files-from", "-"], b"", "--files-from -: the list is empty"),
        (["--files-from", "-"], b"\0\0", "the list is empty"),
        (["--files-from", "-"], b"\n\r\n", "the list is empty"),
        (["--files-from", "gone.txt"], b"", "gone.txt"),
        (["--files-from", "-"], b'"agents/\\303\\274.json"\n', "make the list with git … -z"),
        (["-", "--files-from", "-"], b"agents", "- (standard input) can be read only once"),
        (["--files-from", "list"], b"", "can be read only once"),
        ([], b"", "the following arguments are required: FILE, or --files-from FILE"),
    ],
)
@pytest.mark.parametrize("command", ["sign --key key.pem", "verify --any-origin --jwks key.jwks.json", "lint"])
def test_what_names_no_card_is_an_error_and_changes_nothing(
    command: str, arguments: list[str], stdin: bytes, what: str, run: Run, cards: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "list").write_text("-\n-\nagents\n")
    done = run(*command.split(), *arguments, stdin=stdin)
    assert (done.code, what in done.err) == (6 if "gone" in what else 2, True), done.err
    assert signed(cards) == []


def test_a_directory_of_more_than_cards_is_an_error_and_no_wait(run: Run, cards: Path) -> None:
    os.mkfifo(cards / "ann" / "pipe.json")
    for name in ("agents", "agents/**/*.json"):
        done = run("lint", name)
        assert (done.code, "agents/ann/pipe.json: not a regular file" in done.err) == (2, True)
    (cards / "ann" / "pipe.json").unlink()
    (cards / "ann" / "gone.json").symlink_to("nowhere.json")
    done = run("lint", "agents")
    assert (done.code, "agents/ann/gone.json: No such file" in done.err) == (6, True)


def test_directories_may_be_nested_deeply(run: Run, cards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cards)
    for _ in range(1100):
        Path("d").mkdir()
        os.chdir("d")
    os.chdir(cards.parent)
    assert (run("lint", "agents").code, run("lint", "agents/**/card.json").code) == (0, 0)
    os.chdir(cards)
    for _ in range(1100):
        os.chdir("d")
    for _ in range(1100):
        os.chdir("..")
        Path("d").rmdir()


def test_a_file_of_that_very_name_is_no_glob(run: Run, cards: Path, tmp_path: Path) -> None:
    (tmp_path / "card[1].json").write_text(json.dumps(CARD))
    (tmp_path / "card1.json").write_text(BAD)
    assert run("card[1].json", "--key", "key.pem").code == 0


def test_a_name_with_odd_characters_is_a_name(run: Run, key: Path, tmp_path: Path) -> None:
    names = ["--json", "-o", "a b.json", "line\nend.json", "*.json"]
    for name in names:
        (tmp_path / name).write_text(json.dumps(CARD))
    done = run("--files-from=-", "--key=key.pem", "--json-lines", stdin="\0".join(names).encode())
    assert (done.code, [json.loads(line).get("file") for line in done.out.splitlines()]) == (0, [*names, None])


def test_one_line_for_each_card_and_the_sums(run: Run, cards: Path) -> None:
    kid = f"{json.loads((cards.parent / 'key.jwks.json').read_text())['keys'][0]['kid'][:12]}…"
    done = run("agents", "--key", "key.pem", "--expires=90d")
    lines = [f"agents/{name}: signed by {kid} (ES256)" for name in ALL]
    assert done.out.splitlines() == [*lines, "3 cards: 3 signed"]
    (cards / "zoe" / "card.json").write_text(json.dumps(CARD))
    done = run("agents", "--key", "key.pem", "--expires=90d", "--if-needed")
    lines = [*(f"agents/{name}: unchanged, signed by {kid} (ES256)" for name in ALL[:2]), lines[2]]
    assert done.out.splitlines() == [*lines, "3 cards: 2 unchanged, 1 signed"]
    (cards / "ann" / "card.json").write_text(json.dumps({**CARD, "version": "3"}))
    done = run("verify", "agents", "--jwks", "key.jwks.json", "--any-origin")
    assert done.code == 3
    assert done.out.splitlines()[0].startswith("agents/ann/card.json: NOT VERIFIED (unsigned): ")
    assert done.out.splitlines()[1:] == [
        *(f"agents/{name}: verified: signed by {kid} (ES256), form spec, origin not bound" for name in ALL[1:]),
        "3 cards: 1 unsigned, 2 verified",
    ]
    done = run("lint", "agents")
    assert (done.code, done.out.splitlines()[-1]) == (0, "3 cards: 3 without problems")
    quiet = run("lint", "agents/ann/card.json", "agents/zoe/card.json", "-q").out
    assert quiet == "2 cards: 2 without problems\n"
    assert run("agents", "--key", "key.pem", "-q").out == "3 cards: 3 signed\n"
    assert run("verify", "agents", "--jwks", "key.jwks.json", "--any-origin", "-q").out == "3 cards: 3 verified\n"


def test_notes_of_many_cards_are_counted_and_in_the_report(run: Run, cards: Path) -> None:
    loose = {**CARD, "securityRequirements": [{"schemes": {"bearer": {}}}]}
    (cards / "zoe" / "card.json").write_text(json.dumps(loose))
    done = run("agents", "--key", "key.pem", "--expires=90d")
    assert done.out.splitlines()[3:] == [
        "notes on 1 of the cards: --json shows them; see docs/sign.md#what-a-signature-says",
        "3 cards: 3 signed",
    ]
    (cards / "zoe" / "card.json").write_text(json.dumps(loose))
    entries = run("agents", "--key", "key.pem", "--expires=90d", "--json").json["results"]
    assert [len(entry["notes"]) for entry in entries] == [0, 0, 2]


def test_every_bad_card_is_reported_and_nothing_is_written(run: Run, cards: Path) -> None:
    (cards / "ann" / "card.json").write_text(BAD)
    (cards / "zoe" / "card.json").write_text('{"keys": []}')
    done = run("agents", "--key", "key.pem")
    last = (
        "agents/ann/old/card.json: not written, because another card was rejected\n3 cards: 2 refused, 1 not written\n"
    )
    assert (done.code, done.out) == (1, last)
    assert [line.split(": ")[2] for line in done.err.splitlines()] == ["agents/ann/card.json", "agents/zoe/card.json"]
    assert signed(cards) == []
    report = run("agents", "--key", "key.pem", "--json").json
    told = [(entry["ok"], entry["status"], entry.get("code")) for entry in report["results"]]
    assert told == [(False, "refused", "malformed"), (False, "not-written", None), (False, "refused", "malformed")]
    assert (report["ok"], report["exit"]) == (False, 1)


def lines_of(text: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    *entries, last = map(json.loads, text.splitlines())
    return entries, last


def test_json_lines_are_an_object_for_each_card_and_one_for_all(run: Run, cards: Path) -> None:
    for command in ("sign", "verify", "lint", "inspect"):
        keys = {"sign": ["--key", "key.pem"], "verify": ["--jwks", "key.jwks.json", "--any-origin"]}.get(command, [])
        entries, last = lines_of(run(command, "agents", *keys, "--json-lines").out)
        assert [(entry["command"], entry["file"], entry["ok"]) for entry in entries] == [
            (command, f"agents/{name}", True) for name in ALL
        ]
        assert last == {"command": command, "ok": True, "exit": 0, "cards": 3}
        whole = run(command, "agents", *keys, "--json").json
        assert [{**entry, "command": command} for entry in whole["results"]] == entries or command == "sign"
    (cards / "ann" / "card.json").write_text(BAD)
    for command in ("verify", "lint", "inspect"):
        keys = ["--jwks", "key.jwks.json", "--any-origin"] if command == "verify" else []
        entries, last = lines_of(run(command, "agents", *keys, "--json-lines").out)
        assert [entry["ok"] for entry in entries] == [False, True, True]
        assert last == {"command": command, "ok": False, "exit": 1, "cards": 3}


@pytest.mark.parametrize(
    "arguments", [("sign", "nothing*"), ("verify", "x"), ("lint", "--no-such"), ("verify", "--json-lines")]
)
def test_mistakes_are_one_line_too(arguments: tuple[str, ...], run: Run, cards: Path) -> None:
    done = run(*arguments, "--json-lines")
    (last,) = map(json.loads, done.out.splitlines())
    assert (done.code, last["command"], last["error"]["class"]) == (2, arguments[0], "usage")


def test_json_and_json_lines_are_a_choice(run: Run, cards: Path) -> None:
    done = run("lint", "agents", "--json", "--json-lines")
    assert (done.code, "not allowed with argument" in done.out) == (2, True)


def test_more_cards_than_a_process_may_have_open(tmp_path: Path, key: Path) -> None:
    for number in range(70):
        (tmp_path / f"{number}.card.json").write_text(json.dumps({**CARD, "name": f"Agent {number}"}))
    done = subprocess.run(
        [COMMAND, "*.card.json", "--key", "key.pem", "-q"],
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr, len(signed(tmp_path))) == (0, "", 70)
