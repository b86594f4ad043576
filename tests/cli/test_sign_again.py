"""``a2a-sign --if-needed`` and ``--check``, and the keys that pipelines have."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import CARD, Run


def state_of(path: Path) -> tuple[bytes, int, int]:
    status = path.stat()
    return path.read_bytes(), status.st_mtime_ns, status.st_ino


def test_a_card_that_is_signed_keeps_every_byte(run: Run, card: Path, key: Path) -> None:
    assert run("card.json", "--key", "key.pem", "--if-needed").code == 0
    before = state_of(card)
    for option in ("--if-needed", "--check"):
        done = run("card.json", "--key", "key.pem", option)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("card.json: unchanged, signed by ")
        assert run("card.json", "--key", "key.pem", option, "-q").out == ""
        assert state_of(card) == before


def test_check_says_what_to_sign_and_writes_nothing(run: Run, card: Path, key: Path, tmp_path: Path) -> None:
    before = state_of(card)
    done = run("card.json", "--key", "key.pem", "--check", "-q")
    assert (done.code, done.out.startswith("card.json: has to be signed: not signed by ")) == (1, True)
    (entry,) = run("card.json", "--key", "key.pem", "--check", "--json").json["results"]
    assert (entry["ok"], entry["status"], entry["reason"][:13]) == (False, "to-sign", "not signed by")
    assert state_of(card) == before
    card.chmod(0o400)  # nothing has to be writable
    (tmp_path / "card.json").chmod(stat.S_IRUSR)
    assert run("card.json", "--key", "key.pem", "--check").code == 1


def test_if_needed_signs_what_was_changed(run: Run, card: Path, key: Path) -> None:
    assert run("card.json", "--key", "key.pem").code == 0
    changed = {**json.loads(card.read_text()), "version": "3"}
    card.write_text(json.dumps(changed))
    (entry,) = run("card.json", "--key", "key.pem", "--if-needed", "--json").json["results"]
    assert (entry["status"], "the card was changed after signing" in entry["reason"]) == ("signed", True)
    assert run("verify", "card.json", "--jwks", "key.jwks.json", "--any-origin").code == 0


def test_a_card_in_error_is_one_for_check_too(run: Run, card: Path, key: Path) -> None:
    card.write_text('{"name": "x"}')
    for option in ("--check", "--if-needed"):
        done = run("card.json", "--key", "key.pem", option)
        assert (done.code, "missing-member" in done.err) == (1, True)


def test_a_signature_that_ends_soon_is_made_again(run: Run, card: Path, key: Path) -> None:
    assert run("card.json", "--key", "key.pem", "--expires", "20d").code == 0
    before = state_of(card)
    renew = ("card.json", "--key", "key.pem", "--if-needed", "--expires", "90d", "--expires-within")
    assert run(*renew, "14d").code == 0
    assert state_of(card) == before
    assert run("card.json", "--key", "key.pem", "--check", "--expires-within", "21d").code == 1
    done = run(*renew, "21d", "--json")
    assert [entry["reason"][:16] for entry in done.json["results"]] == ["its signature by"]
    assert state_of(card) != before
    assert run("card.json", "--key", "key.pem", "--check", "--expires-within", "80d").code == 0


def test_a_ring_that_was_rotated_signs_again_with_its_new_key(run: Run, card: Path, tmp_path: Path) -> None:
    assert run("keys", "create", "ring.json").code == 0
    assert run("card.json", "--key", "ring.json").code == 0
    assert run("keys", "rotate", "ring.json").code == 0
    assert run("card.json", "--key", "ring.json", "--check").code == 0  # the next key does not sign yet
    keys = run("keys", "list", "ring.json", "--json").json["keys"]
    (kid,) = (key["kid"] for key in keys if key["state"] == "active")
    assert run("keys", "revoke", "ring.json", kid).code == 0
    assert run("card.json", "--key", "ring.json", "--check").code == 1
    assert run("card.json", "--key", "ring.json", "--if-needed").code == 0
    assert run("card.json", "--key", "ring.json", "--check").code == 0


def test_standard_input_is_checked_and_passed_on(run: Run, card: Path, key: Path) -> None:
    assert run("card.json", "--key", "key.pem").code == 0
    signed = card.read_bytes()
    assert run("-", "--key", "key.pem", "--check", stdin=signed).code == 0
    done = run("-", "--key", "key.pem", "--if-needed", stdin=signed)
    assert (done.out.encode(), "-: unchanged" in done.err) == (signed, True)
    done = run("-", "--key", "key.pem", "--check", stdin=json.dumps(CARD).encode())
    assert (done.code, done.out.startswith("-: has to be signed")) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--check", "--if-needed"], "not allowed with argument"),
        (["--check", "-o", "x.json"], "--check and --if-needed are for cards that are signed in place; leave out -o"),
        (["--if-needed", "-o", "x.json"], "leave out -o"),
        (["--expires-within", "14d"], "add one of them"),
        (["--if-needed", "--expires-within", "soon"], "--expires-within 'soon': write 90d, 12h or 30m"),
        (
            ["--if-needed", "--expires", "10d", "--expires-within", "14d"],
            "every new signature would expire within that time",
        ),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], what: str, run: Run, card: Path, key: Path) -> None:
    before = state_of(card)
    done = run("card.json", "--key", "key.pem", *arguments)
    assert (done.code, what in done.err) == (2, True), done.err
    assert state_of(card) == before


# --- keys ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["key.pem", "key.jwk", "encrypted.jwk", "encrypted.pem", "ring.json"])
def test_the_variable_takes_every_kind_of_key_and_base64_of_it(name: str, run: Run, card: Path, tmp_path: Path) -> None:
    passphrase = {"A2A_SIGN_KEY_PASSPHRASE": "correct horse battery staple"}
    options = [*(["--encrypt"] if "encrypted" in name else []), *(["--format", "jwk"] if "jwk" in name else [])]
    if name == "ring.json":
        assert run("keys", "create", name).code == 0
    else:
        assert run("keygen", "-o", name, *options, **passphrase).code == 0
    key = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    for value in (key.decode(), base64.b64encode(key).decode(), base64.encodebytes(key).decode(), f"\n{key.decode()}"):
        assert run("card.json", A2A_SIGN_KEY=value, **passphrase).code == 0, value[:5]
        assert run("card.json", "--check", A2A_SIGN_KEY=value, CI="true", **passphrase).code == 0


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("key.pem", "A2A_SIGN_KEY looks like the path of a file; set A2A_SIGN_KEY_FILE to that path"),
        ("{folder}/key.pem", "A2A_SIGN_KEY looks like the path of a file"),
        ("/run/secrets/key", "A2A_SIGN_KEY looks like the path of a file"),
        ("{published}", "A2A_SIGN_KEY: a JWK Set with public keys"),
        ("{one line}", "A2A_SIGN_KEY: the PEM has no line ends"),
        ("{escaped}", "A2A_SIGN_KEY: the PEM has no line ends"),
        ("aGVsbG8=", "A2A_SIGN_KEY: not a key; set it to the content of a PEM, JWK or key ring file"),
        ("hunter2", "not a key; set it to"),
        ("x" * 5000, "not a key; set it to"),
        ("{cut}", "A2A_SIGN_KEY: "),
        ("", "A2A_SIGN_KEY is empty"),
        ("   ", "not a key; set it to"),
    ],
)
def test_what_is_no_key_is_an_error_that_shows_nothing_of_it(
    value: str, what: str, run: Run, card: Path, key: Path, tmp_path: Path
) -> None:
    pem = key.read_text()
    forms = {
        "{published}": key.with_name("key.jwks.json").read_text(),
        "{one line}": pem.replace("\n", " "),
        "{escaped}": pem.strip().replace("\n", "\\n"),
        "{cut}": base64.b64encode(pem.encode())[:-60].decode(),
    }
    value = forms.get(value, value).replace("{folder}", str(tmp_path))
    before = state_of(card)
    done = run("card.json", A2A_SIGN_KEY=value)
    assert (done.code, what in done.err) == (2, True), done.err
    secret = pem.splitlines()[1]
    for shown in (secret, secret[:12], "hunter2", base64.b64encode(pem.encode()).decode()[40:60]):
        assert shown not in done.out + done.err
    assert state_of(card) == before


def test_pipelines_do_not_sign_with_the_key_of_their_machine(run: Run, card: Path) -> None:
    assert run("keygen").code == 0
    before = state_of(card)
    for value in ("true", "1", "yes"):
        done = run("card.json", CI=value)
        assert (done.code, "does not use the default key" in done.err) == (2, True)
    assert state_of(card) == before
    for value in ("", "false", "False", "0"):
        assert run("card.json", CI=value).code == 0
