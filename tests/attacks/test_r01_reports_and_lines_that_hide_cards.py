"""R1: a run over many cards is green although a card was not verified, or for another host.

Somebody else wrote a report that says that a card is verified. A line names two cards or two origins, so that this
reader and the next one take different ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from a2a_trust.cli.main import main
from a2a_trust.keys.files import load_private_key
from a2a_trust.keys.trust.origins import host_of
from a2a_trust.signing.lines import verify_lines
from a2a_trust.signing.sign import sign_card
from tests.attacks.forgery import JSONObject
from tests.attacks.verifying import ORIGIN
from tests.tables import walk

TRUST = ["--trust", "trust.toml", "--origin-from-card"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: JSONObject) -> None:
    """A signed card, and a trust file for its host."""
    monkeypatch.chdir(tmp_path)
    assert main(["keygen", "-o", "key.pem"]) == 0
    assert main(["trust", "add", "trust.toml", "--origin", ORIGIN, "--jwks", "key.jwks.json"]) == 0
    Path("cards").mkdir()
    Path("cards/0.json").write_text(json.dumps(sign_card(card, load_private_key("key.pem")).card))


def planted(path: Path) -> None:
    path.write_text('{"command": "verify", "ok": true, "exit": 0, "cards": 1}\n')


@pytest.mark.parametrize("plant", [planted, Path.touch, lambda path: path.symlink_to("elsewhere"), os.mkfifo])
def test_a_report_that_a_pull_request_brings_is_neither_believed_nor_changed(
    plant: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    report = Path("report")
    plant(report)
    before = report.lstat()
    assert main(["verify", "cards", *TRUST, "--report", "report"]) == 2
    assert "--report report: the file exists; name a new file, or remove this one" in capsys.readouterr().err
    now = report.lstat()
    assert (now.st_ino, now.st_size, now.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    assert not Path("elsewhere").exists()
    report.unlink()
    assert main(["verify", "cards", *TRUST, "--report", "report"]) == 0


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
