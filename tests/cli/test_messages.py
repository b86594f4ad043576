"""What the command says of mistakes: it names its own options, and the file or variable that the mistake is in.

These run in this process: no card is fetched, and only the text counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from a2a_trust import generate_signer
from a2a_trust.cli.main import main
from a2a_trust.keys import KeyRing, publish_jwks
from a2a_trust.keys.files import save_private_key
from a2a_trust.keys.ring_file import save_key_ring
from tests.cli.conftest import CARD, Done

#: Names that only programs can write.
ARGUMENTS = (
    *(
        "private_origins",
        "create=True",
        "drop_broken",
        "Fetcher(",
        "fetcher=",
        "passphrase=",
        "sign_card",
        "verify_card",
    ),
    *("TrustStore", "TrustFile", "UnsafeAnyOrigin", "on_first_use", "not_after", "not_before", "trust="),
)

Command = Callable[..., Done]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """a2a-sign in a folder with sound and broken files of every kind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    save_private_key("key.jwk", generate_signer(kid="k"), format="jwk")
    save_private_key("same.jwk", generate_signer(kid="k"), format="jwk")
    Path("keys.json").write_text(json.dumps(publish_jwks([generate_signer().public_key])))
    save_key_ring("ring.json", KeyRing.begin(generate_signer(), 0.0))
    Path("card.json").write_text(json.dumps(CARD))
    for name, text in (
        ("bad.pem", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
        ("bad.json", '{"x": 1}'),
        ("private", "junk"),
        ("bad.toml", "trust = 1"),
    ):
        Path(name).write_text(text)
        Path(name).chmod(0o600)

    def command(*arguments: str, **environment: str) -> Done:
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            code = main([*arguments])
        return Done(code, *capsys.readouterr())

    return command


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        *((("card.json", "--key", name), name) for name in ("bad.pem", "bad.json", "private", "gone.pem")),
        *(
            (("verify", "card.json", "--public-key", name, "--any-origin"), name)
            for name in ("bad.pem", "bad.json", "private", "gone.pem")
        ),
        *(
            (("verify", "card.json", "--jwks", name, "--any-origin"), name)
            for name in ("bad.pem", "bad.json", "private", "gone.json")
        ),
        *(
            (("verify", "card.json", "--trust", name, "--any-origin"), name)
            for name in ("bad.json", "bad.toml", "gone.toml")
        ),
        *((("keys", "list", name), name) for name in ("bad.pem", "bad.json", "private", "gone.json")),
        (("keys", "create", "new.json", "--key", "bad.pem"), "bad.pem"),
        (("keys", "revoke", "ring.json", "no-such-key"), "ring.json"),
        (("keys", "rotate", "bad.json"), "bad.json"),
        *((("memory", "list", "--file", name), name) for name in ("bad.json", "gone.db")),
        *((("api-key", "list", "--store", name), name) for name in ("bad.json", "gone.db")),
        (("card.json", "--key", "key.jwk", "--key", "same.jwk"), "key.jwk and same.jwk"),
        (("card.json", "--key", "key.jwk", "--jku", "http://a.example.com/keys"), "--jku"),
        (("card.json", "--key", "key.jwk", "--expires", "soon"), "--expires"),
        (("verify", "https://127.0.0.1:1", "--jwks", "keys.json"), "https://127.0.0.1:1"),
        (("verify", "http://agent.example.com", "--jwks", "keys.json"), "http://agent.example.com"),
        (("inspect", "https://10.1.2.3"), "https://10.1.2.3"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_mistake_is_told_with_its_file_and_without_arguments_of_programs(
    arguments: tuple[str, ...], file: str, command: Command
) -> None:
    done = command(*arguments)
    said = done.out + done.err
    assert done.code in (2, 6)
    assert file in said.replace(" ".join(arguments), "")
    assert [name for name in ARGUMENTS if name in said] == []


def test_a_file_named_like_a_word_of_the_text_is_named_too(command: Command) -> None:
    assert command("card.json", "--key", "private").err.startswith("a2a-sign: error: private: private key: neither PEM")


def test_signatures_that_dropping_may_break_are_told_with_the_option(command: Command) -> None:
    assert command("card.json", "--key", "key.jwk").code == 0
    card = json.loads(Path("card.json").read_text())
    Path("card.json").write_text(json.dumps(card | {"documentationUrl": None}))
    save_private_key("other.jwk", generate_signer(kid="other"), format="jwk")
    done = command("card.json", "--key", "other.jwk")
    assert (done.code, "remove their signatures with --drop-broken" in done.err, "drop_broken" in done.err) == (
        1,
        True,
        False,
    )


@pytest.mark.parametrize("name", ["A2A_SIGN_KEY", "A2A_SIGN_KEY_FILE"])
def test_an_empty_variable_selects_no_other_key(name: str, command: Command) -> None:
    """A secret that a pipeline does not have arrives as an empty variable: the default key must not stand in for it."""
    assert command("keygen").code == 0
    before = Path("card.json").read_bytes()
    done = command("card.json", **{name: ""})
    assert (done.code, f"{name} is empty" in done.err) == (2, True)
    assert Path("card.json").read_bytes() == before
    assert command("card.json", "--key", "key.jwk", **{name: ""}).code == 0  # nobody asks it there
    assert command("card.json").code == 0


@pytest.mark.parametrize("name", ["A2A_SIGN_KEY_PASSPHRASE", "A2A_SIGN_KEY_PASSPHRASE_FILE"])
def test_an_empty_passphrase_is_a_mistake(name: str, command: Command) -> None:
    for arguments in (("card.json", "--key", "key.jwk"), ("keygen", "-o", "new.pem", "--encrypt")):
        done = command(*arguments, **{name: ""})
        assert (done.code, f"{name} is empty" in done.err) == (2, True)
    assert not Path("new.pem").exists()


def test_entries_that_are_not_signatures_are_left_out_and_counted(command: Command) -> None:
    others = [{"protected": "e30", "signature": "AA", "note": 1}, {"protected": "?", "signature": ""}]
    junk: list[object] = [
        None,
        "x",
        1,
        [],
        {},
        {"protected": "e30"},
        {"signature": "AA"},
        {"protected": 1, "signature": "AA"},
    ]
    Path("card.json").write_text(json.dumps(CARD | {"signatures": [others[0], *junk, others[1]]}))
    done = command("card.json", "--key", "key.jwk")
    assert (done.code, "note: dropped 8 of the entries in signatures" in done.out) == (0, True)
    assert json.loads(Path("card.json").read_text())["signatures"][:-1] == others
