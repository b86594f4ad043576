"""R1: a run over many cards is green although a card was not verified, or for another host.

The report of an earlier run says that a card is verified, which was changed meanwhile; it is of other keys, of another
day, or somebody else wrote it. A line names two cards or two origins, so that this reader and the next one take
different ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from a2a_trust.cli.main import main
from a2a_trust.keys.files import load_private_key
from a2a_trust.keys.origins import host_of
from a2a_trust.signing.lines import verify_lines
from a2a_trust.signing.sign import sign_card
from tests.attacks.forgery import JSONObject
from tests.attacks.verifying import ORIGIN
from tests.tables import walk

TRUST = ["--trust", "trust.toml", "--origin-from-card"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: JSONObject) -> None:
    """Ten signed cards, a trust file for their host, and the report of a run that was killed after all cards."""
    monkeypatch.chdir(tmp_path)
    assert main(["keygen", "-o", "key.pem"]) == 0
    assert main(["trust", "add", "trust.toml", "--origin", ORIGIN, "--jwks", "key.jwks.json"]) == 0
    signer = load_private_key("key.pem")
    Path("cards").mkdir()
    for number in range(10):
        Path(f"cards/{number}.json").write_text(json.dumps(sign_card({**card, "name": str(number)}, signer).card))
    assert main(["verify", "cards", *TRUST, "--report", "report"]) == 0
    report = Path("report").read_text().splitlines(keepends=True)
    Path("report").write_text("".join(report[:-1]))


def again(*options: str) -> int:
    return main(["verify", "cards", *(options or TRUST), "--report", "report"])


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("report").read_text().splitlines()]


def test_control_a_report_that_fits_is_gone_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert again() == 0
    assert "10 cards are in report already" in capsys.readouterr().out


def stripped(path: Path) -> None:
    card = json.loads(path.read_text())
    path.write_text(json.dumps({**card, "securityRequirements": []}))


@pytest.mark.parametrize("change", [stripped, Path.unlink, lambda path: path.write_text("{}")])
@pytest.mark.parametrize("number", [0, 4, 9])
def test_a_card_that_was_changed_meanwhile_is_verified_again(number: int, change: Callable[[Path], object]) -> None:
    change(Path(f"cards/{number}.json"))
    code = main(["verify", *(f"cards/{each}.json" for each in range(10)), *TRUST, "--report", "report"])
    assert code != 0
    first, *cards, last = lines()
    assert (first["command"], last["exit"]) == ("verify", code)
    assert [card["ok"] for card in cards] == [each != number for each in range(10)]


def test_a_card_that_came_meanwhile_is_verified() -> None:
    Path("cards/00.json").write_text(Path("cards/0.json").read_text().replace('"0"', '"x"'))
    assert again() == 1
    assert [card["ok"] for card in lines()[1:-1]] == [True, False, *[True] * 9]


def test_a_card_is_reported_under_its_name() -> None:
    Path("cards/9.json").rename("cards/99.json")
    assert again() == 0
    assert [card["file"] for card in lines()[1:-1]] == [f"cards/{name}.json" for name in (*range(9), 99)]


@walk(
    "options",
    [
        ["--trust", "trust.toml", "--any-origin"],
        ["--trust", "trust.toml", "--origin", ORIGIN],
        ["--trust", "other.toml", "--origin-from-card"],
        ["--jwks", "key.jwks.json", "--origin", ORIGIN],
        ["--jwks", "key.jwks.json", "--origin", ORIGIN, "--signer", "whole"],
    ],
)
def test_a_report_of_other_keys_or_options_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trust", "add", "other.toml", "--origin", "*.example.com", "--jwks", "key.jwks.json"]) == 0
    before = Path("report").read_bytes()
    assert again(*options) == 2
    assert "is of a run with other keys or options" in capsys.readouterr().err
    assert Path("report").read_bytes() == before


def test_a_key_that_was_revoked_meanwhile_verifies_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    kid = json.loads(Path("key.jwks.json").read_text())["keys"][0]["kid"]
    assert main(["trust", "revoke", "trust.toml", f"--thumbprint={kid}"]) == 0
    assert again() == 2
    assert "other keys or options" in capsys.readouterr().err


def without_run(text: str) -> str:
    return text.replace('"run"', '"ran"', 1)


def of_yesterday(text: str) -> str:
    first, _, rest = text.partition("\n")
    return f"{json.dumps({**json.loads(first), 'at': time.time() - 86_500})}\n{rest}"


def of_tomorrow(text: str) -> str:
    return of_yesterday(text).replace(first_moment(of_yesterday(text)), str(time.time() + 1_000), 1)


def first_moment(text: str) -> str:
    return str(json.loads(text.partition("\n")[0])["at"])


def ended(text: str) -> str:
    return text + '{"command": "verify", "ok": true, "exit": 0, "cards": 10}\n'


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (without_run, "other keys or options"),
        (of_yesterday, "more than a day ago"),
        (of_tomorrow, "more than a day ago"),
        (ended, "of a run that ended"),
        (lambda text: text.replace("verify", "lint", 1), "not a report of this command"),
        (lambda text: text.replace('"file"', '"file', 1), "not a report of this command"),
        (lambda text: "[1]\n" + text, "not a report of this command"),
        (lambda _: "notes of mine\n", "not a report of this command"),
        (lambda _: "notes of mine", "not a report of this command"),
    ],
)
def test_another_file_is_neither_believed_nor_changed(
    change: Callable[[str], str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Path("report")
    report.write_text(change(report.read_text()))
    before = report.read_bytes()
    assert again() == 2
    assert what in capsys.readouterr().err
    assert report.read_bytes() == before


def test_a_report_that_everybody_can_write_is_not_believed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("report").chmod(0o666)
    assert again() == 2
    assert "everybody can write to report and claim that a card is verified" in capsys.readouterr().err


def test_a_report_that_a_pull_request_brings_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its author has the trust file and the cards, so every line of it fits, also that of a card nobody signed."""
    monkeypatch.setenv("CI", "true")
    stripped(Path("cards/3.json"))
    forged = lines()
    forged[4]["sha256"] = hashlib.sha256(Path("cards/3.json").read_bytes()).hexdigest()
    Path("report").write_text("".join(f"{json.dumps(line)}\n" for line in forged))
    assert again() == 2
    assert "every card is verified, so remove it" in capsys.readouterr().err
    monkeypatch.delenv("CI")
    assert again() == 0, "the control: its user is believed"


def test_two_runs_do_not_write_one_report(capsys: pytest.CaptureFixture[str]) -> None:
    import fcntl

    with Path("report").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert again() == 2
    assert "another run writes this report" in capsys.readouterr().err


def test_a_new_report_has_the_rights_of_a_file_of_its_user() -> None:
    before = os.umask(0o022)
    try:
        assert main(["verify", "cards", *TRUST, "--report", "new"]) == 0
    finally:
        os.umask(before)
    assert Path("new").stat().st_mode & 0o777 == 0o644


@walk(
    "line",
    [
        '{{"card": {other}, "card": {card}}}',
        '{{"card": {card}, "c\\u0061rd": {other}}}',
        '{{"card": {card}, "card": 1}}',
        '{{"origin": "https://evil.example.net", "origin": "{origin}", "card": {card}}}',
        '{{"origin": "{origin}", "card": {card}, "origin": "https://evil.example.net"}}',
        '{{"origin": "{origin}", "card": {card}, "Card": {other}}}',
    ],
)
def test_a_line_that_readers_read_differently_is_refused(line: str) -> None:
    card = Path("cards/0.json").read_text()
    other = json.dumps({"name": "other"})
    text = line.format(card=card, other=other, origin=ORIGIN)
    Path("lines").write_text(text + "\n")
    assert main(["verify", "--cards-from", "lines", *TRUST]) == 1
    (report,) = map(json.loads, verify_lines([text], trust_text()))
    assert (report["ok"], report["code"]) == (False, "malformed")


def test_the_origin_of_a_line_is_that_of_its_card_alone() -> None:
    card = Path("cards/0.json").read_text()
    Path("lines").write_text(f'{{"origin": "{ORIGIN}", "card": {card}}}\n{card}\n')
    assert main(["verify", "--cards-from", "lines", "--trust", "trust.toml"]) == 1
    reports = list(map(json.loads, verify_lines(Path("lines").read_text().splitlines(), trust_text())))
    assert [report["ok"] for report in reports] == [True, False]


def trust_text() -> str:
    key = json.loads(Path("key.jwks.json").read_text())["keys"][0]
    jwk = ", ".join(f"{name} = {json.dumps(value)}" for name, value in key.items())
    return f'version = 1\n[[trust]]\norigins = ["{host_of(ORIGIN)}"]\njwk = {{ {jwk} }}\n'
