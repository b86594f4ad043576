"""S27: a file with an encrypted key is stolen, and its passphrase is guessed, as fast as the rounds in it allow.

PEM as ``cryptography`` encrypts it has 2,048 rounds of PBKDF2. So with a passphrase, keys are written as JWE.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from a2a_trust.cli.main import main
from a2a_trust.keys import base64url
from a2a_trust.keys.files import save_private_key
from a2a_trust.keys.ring_file import save_key_ring, update_key_ring
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.keys.signer import generate_signer

NOW = 1_800_000_000.0
PASSPHRASE = "correct horse"


def rounds_in(text: str) -> int:
    header = json.loads(base64url.decode(text.partition(".")[0], "header"))
    assert header["alg"] == "PBES2-HS512+A256KW"
    return int(header["p2c"])


def test_a_key_file_has_many_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_private_key(tmp_path / "key", generate_signer(), passphrase=PASSPHRASE)
    monkeypatch.setenv("A2A_SIGN_KEY_PASSPHRASE", PASSPHRASE)
    assert main(["keygen", "-o", str(tmp_path / "made"), "--encrypt"]) == 0
    for name in ("key", "made"):
        assert rounds_in((tmp_path / name).read_text()) >= 210_000


def test_each_key_of_a_ring_has_many_rounds(tmp_path: Path) -> None:
    path = tmp_path / "ring.json"
    save_key_ring(path, KeyRing.begin(generate_signer(), NOW, passphrase=PASSPHRASE))
    update_key_ring(path, lambda ring: ring.rotate(NOW), passphrase=PASSPHRASE)
    rounds = [rounds_in(key["private_key"]) for key in json.loads(path.read_text())["keys"]]
    assert len(rounds) == 2
    assert min(rounds) >= 210_000
