"""``a2a-sign keygen``: keys that are made once, whole, and for their owner only."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_the_default_key_is_private_and_its_jwks_is_public(run: Run, tmp_path: Path) -> None:
    done = run("keygen", "--json")
    assert done.code == 0
    private, public = Path(done.json["private_key"]), Path(done.json["jwks"])
    assert private == tmp_path / "config" / "a2a-trust" / "signing-key"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(private.parent.stat().st_mode) == 0o700
    (jwk,) = json.loads(public.read_bytes())["keys"]
    assert jwk["kid"] == done.json["kid"]
    assert "d" not in jwk


def test_a_key_is_never_overwritten(run: Run, tmp_path: Path) -> None:
    assert run("keygen", "-o", "key.pem").code == 0
    before = (tmp_path / "key.pem").read_bytes()
    done = run("keygen", "-o", "key.pem")
    assert done.code == 2
    assert "move it away" in done.err
    assert (tmp_path / "key.pem").read_bytes() == before
    (tmp_path / "key.pem").unlink()
    assert run("keygen", "-o", "key.pem").code == 2  # its JWK Set is still there
    assert not (tmp_path / "key.pem").exists()


def test_names_of_temporaries_are_refused_as_targets_and_as_keys(run: Run, card: Path, key: Path) -> None:
    reserved = card.with_name(".card.json.a2a-sign")
    done = run("card.json", "--key", key, "-o", reserved.name)
    assert (done.code, "reserved for temporary files" in done.err, reserved.exists()) == (6, True, False)
    assert run("keygen", "-o", ".key.a2a-sign").code == 6
    reserved.write_bytes(key.read_bytes())
    reserved.chmod(0o600)
    done = run("card.json", "--key", reserved.name)
    assert (done.code, "is a temporary file" in done.err) == (2, True)


@pytest.mark.parametrize("alg", ["ES256", "ES384", "ES512", "EdDSA", "RS256", "RS512", "PS256"])
def test_every_algorithm_signs_and_verifies(alg: str, run: Run, card: Path) -> None:
    assert run("keygen", "-o", "key", "--alg", alg, "--kid", "k-1").code == 0
    assert run("card.json", "--key", "key").code == 0
    report = run("verify", "card.json", "--jwks", "key.jwks.json", "--json", "--any-origin").json
    assert (report["results"][0]["alg"], report["results"][0]["kid"]) == (alg, "k-1")


@pytest.mark.parametrize("alg", ["HS256", "none", "RS1", ""])
def test_other_algorithms_are_refused(alg: str, run: Run, tmp_path: Path) -> None:
    done = run("keygen", "-o", "key", "--alg", alg)
    assert done.code == 2
    assert "ES256" in done.err
    assert list(tmp_path.iterdir()) == []


def test_pem_is_refused_where_it_would_forget(run: Run, tmp_path: Path) -> None:
    assert run("keygen", "-o", "key", "--format", "pem", "--kid", "mine").code == 2
    assert run("keygen", "-o", "key", "--format", "pem", "--alg", "PS256").code == 2
    assert list(tmp_path.iterdir()) == []
    assert run("keygen", "-o", "key", "--kid", "mine").code == 0
    assert json.loads((tmp_path / "key").read_bytes())["kid"] == "mine"


def test_encrypting_needs_a_passphrase_from_somewhere(run: Run, tmp_path: Path) -> None:
    done = run("keygen", "-o", "key", "--encrypt")
    assert done.code == 2
    assert "A2A_SIGN_KEY_PASSPHRASE" in done.err
    assert list(tmp_path.iterdir()) == []
    assert run("keygen", "-o", "key", "--encrypt", A2A_SIGN_KEY_PASSPHRASE="hunter2").code == 0
    assert (tmp_path / "key").read_bytes().startswith(b"eyJ")


@pytest.mark.parametrize("output", ["", "-", ".", "/"])
def test_a_key_needs_the_name_of_a_file(output: str, run: Run, tmp_path: Path) -> None:
    done = run("keygen", "-o", output)
    assert (done.code, "a private key is secret, so name a file" in done.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_kid_is_a_mistake(run: Run, tmp_path: Path) -> None:
    assert run("keygen", "-o", "key", "--kid", "").code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_jwk_in_a_file_that_is_named_like_pem_is_told(run: Run, tmp_path: Path) -> None:
    told = run("keygen", "-o", str(tmp_path / "a.pem"), "--kid", "a")
    assert "mode 0600; a JWK, because PEM cannot hold --kid or this --alg" in told.out
    assert "JWK, since" not in run("keygen", "-o", str(tmp_path / "b.pem")).out
    assert "JWK, since" not in run("keygen", "-o", str(tmp_path / "c.jwk"), "--kid", "c").out
