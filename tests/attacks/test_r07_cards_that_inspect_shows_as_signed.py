"""R7: a person looks at a card with ``inspect``, which shows a claim as a fact, or needs gigabytes for a small card.

Without keys every signature is a claim: of a card that was changed after signing, or of a stranger who writes the kid
of another signer. A card refers many times to one long text, or repeats its signature.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from a2a_trust import generate_signer, sign_card
from a2a_trust.card.ambiguity import UnambiguousCard
from a2a_trust.cli.main import main
from a2a_trust.keys import LocalSigner, publish_jwks
from tests.attacks.forgery import JSONObject
from tests.attacks.verifying import ORIGIN
from tests.tables import walk

CLAIM = "claims to be signed by owner: NOT CHECKED; give --trust, --jwks or --public-key"


def stripped(signed: JSONObject) -> JSONObject:
    return {**signed, "securityRequirements": []}


def forged(signed: JSONObject) -> JSONObject:
    return {**signed, "signatures": [{**signed["signatures"][0], "signature": "AAAA"}]}


@pytest.mark.parametrize("change", [stripped, forged])
def test_a_claim_is_shown_as_a_claim(
    change: Callable[[JSONObject], JSONObject],
    card: JSONObject,
    owner: LocalSigner,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = tmp_path / "card.json"
    name.write_text(json.dumps(change(dict(sign_card(card, owner).card))))
    assert main(["inspect", str(name)]) == 0
    shown = capsys.readouterr().out
    assert CLAIM in shown
    assert shown.count("signed by") == shown.count("signed:") == shown.count("NOT CHECKED")
    assert main(["inspect", str(name), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["results"]
    assert (entry["checked"], entry["verified"]) == (False, None)
    assert "NOT CHECKED" in entry["message"]
    assert {signature["good"] for signature in entry["signatures"]} == {None}


def test_a_long_kid_does_not_push_the_word_out_of_the_line(
    card: JSONObject, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = tmp_path / "card.json"
    name.write_text(json.dumps(sign_card(card, generate_signer(kid="owner, checked " * 30)).card))
    assert main(["inspect", str(name)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "signed:" in line)
    assert "NOT CHECKED" in line[:120]


def test_access_for_everybody_is_said_first(
    card: JSONObject, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = [{"schemes": {"oauth": {"list": [f"scope-{number}"]}}} for number in range(100)]
    name = tmp_path / "card.json"
    name.write_text(json.dumps({**card, "securityRequirements": [*ways, {}]}))
    assert main(["inspect", str(name)]) == 0
    assert "callers need: either nothing: anybody may call, or an OAuth 2.0 token" in capsys.readouterr().out


_LONG = {"k": {"apiKeySecurityScheme": {"location": "header", "name": "\U0001f511" * 15_000}}}
COSTLY: dict[str, JSONObject] = {
    "alternatives": {
        "securitySchemes": _LONG,
        "securityRequirements": [{"schemes": {"k": {"list": [str(number)]}}} for number in range(5000)],
    },
    "skills": {
        "securitySchemes": _LONG,
        "skills": [{"id": str(number), "security": [{"k": []}]} for number in range(4500)],
    },
    "methods": {
        "securitySchemes": {"k": {"httpAuthSecurityScheme": {"scheme": "x" * 120_000}}},
        "security": [{"k": [str(number)]} for number in range(7000)],
    },
}
PROGRAM = """
import re, sys
from a2a_trust.cli.main import main
code = main(sys.argv[1:])
print(re.search("VmHWM: *\t*(.*) kB", open("/proc/self/status").read())[1], file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the most memory of a process from /proc")
@walk("form", [[], ["--json"]])
@walk("shape", COSTLY)
def test_a_small_card_costs_little_memory(shape: str, form: list[str], card: JSONObject, tmp_path: Path) -> None:
    name = tmp_path / "card.json"
    name.write_text(json.dumps({**card, **COSTLY[shape]}, ensure_ascii=False, separators=(",", ":")))
    assert 150_000 < name.stat().st_size < 262_144
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "inspect", str(name), *form], capture_output=True, check=False, timeout=600
    )
    assert done.returncode == 0
    assert int(done.stderr) < 100_000
    assert len(done.stdout) < 6_000_000


def test_many_signatures_are_read_with_one_card(
    card: JSONObject,
    owner: LocalSigner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    signed = dict(sign_card(card, owner).card)
    name, keys = tmp_path / "card.json", tmp_path / "keys.json"
    name.write_text(json.dumps({**signed, "signatures": [signed["signatures"][0]] * 16}))
    keys.write_text(json.dumps(publish_jwks([owner.public_key])))
    reading = Mock(side_effect=UnambiguousCard)
    monkeypatch.setattr("a2a_trust.cli.inspect.UnambiguousCard", reading)
    assert main(["inspect", str(name), "--jwks", str(keys), "--origin", ORIGIN]) == 0
    assert capsys.readouterr().out.count("valid in the form spec") == 16
    assert reading.call_count == 2  # once for its signatures, once for the verdict
