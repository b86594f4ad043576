"""R2: a release is signed with another key than the pipeline was given.

The secret is missing, since the branch may not read it, or was renamed; the build machine has a default key of its own,
perhaps planted by an earlier job. Nothing may be signed then, and nothing of a key that was given wrongly may be shown.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from a2a_trust.cli.main import main
from tests.attacks.forgery import JSONObject
from tests.tables import walk


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: JSONObject) -> None:
    """A build machine with a default key, a card, and the key of the release."""
    monkeypatch.chdir(tmp_path)
    for name in ("A2A_SIGN_KEY", "A2A_SIGN_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CI", "true")
    Path("card.json").write_text(json.dumps(card))
    assert main(["keygen"]) == 0
    assert main(["keygen", "-o", "release.pem"]) == 0


@walk(
    "given",
    [
        {},
        {"A2A_SIGN_KEY": ""},
        {"A2A_SIGN_KEY_FILE": ""},
        {"A2A_SIGN_KEY_FILE": "gone.pem"},
        {"A2A_SIGN_KEY": "", "A2A_SIGN_KEY_FILE": "release.pem"},
        {"A2A_SIGN_KEY": "release.pem"},
        {"A2A_SIGN_KEY": "${{ secrets.A2A_SIGN_KEY }}"},
        {"A2A_SIGN_KEY": "***"},
    ],
    ids=str,
)
@walk("option", [[], ["--check"], ["--if-needed"]])
def test_a_missing_secret_signs_nothing(
    given: dict[str, str], option: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    before = Path("card.json").read_bytes()
    assert main(["card.json", *option]) in (2, 6)
    assert Path("card.json").read_bytes() == before
    assert "signed by" not in capsys.readouterr().out


@walk("form", ["pem", "base64", "cut", "body", "jwk", "jwk in base64"])
@walk("place", ["--key", "A2A_SIGN_KEY_FILE"])
@walk("options", [[], ["--json"], ["--check"]])
def test_a_key_in_the_place_of_a_file_name_is_not_shown(
    form: str, place: str, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pem, jwk = Path("release.pem").read_text(), json.dumps({"kty": "EC", "d": "c2VjcmV0LXNlY3JldC1zZWNyZXQ"})
    encoded = base64.b64encode(pem.encode()).decode()
    value = {
        "pem": pem,
        "base64": encoded,
        "cut": encoded[:-7],
        "body": "".join(pem.splitlines()[1:-1]),
        "jwk": jwk,
        "jwk in base64": base64.b64encode(jwk.encode()).decode(),
    }[form]
    if place == "--key":
        options = ["--key", value, *options]
    else:
        monkeypatch.setenv(place, value)
    assert main(["card.json", *options]) == 2
    said = "".join(capsys.readouterr())
    assert f"{place}: no such file; its name looks like a secret" in said
    assert pem.splitlines()[1][:12] not in said
    assert value[20:32] not in said


def test_nothing_of_a_broken_secret_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pem = Path("release.pem").read_text()
    lines = pem.splitlines()
    broken = [
        pem.replace("\n", " "),
        pem.replace("\n", "\\n"),
        "\n".join(lines[1:]),  # without its first line
        "\n".join(lines[:-1]),
        pem.replace(lines[1][10:14], "AAAA"),
        base64.b64encode(pem.encode()).decode()[:-8],
        base64.b64encode(base64.b64encode(pem.encode())).decode(),
        json.dumps({"kty": "EC", "d": lines[1]}),
    ]
    for value in broken:
        monkeypatch.setenv("A2A_SIGN_KEY", value)
        assert main(["card.json", "--json"]) == 2
        out, err = capsys.readouterr()
        for size in (8, 16):
            parts = [value[start : start + size] for start in range(60, len(value) - size, size)]
            assert not [part for part in parts if part.strip("-").isalnum() and part in out + err]
