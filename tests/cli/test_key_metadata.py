"""--alg, and what keys say about themselves, on the command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from a2a_trust.cli.main import main
from a2a_trust.keys.files import private_key_bytes
from a2a_trust.keys.jwk import publish_jwks
from a2a_trust.keys.signer import LocalSigner, generate_signer
from tests.cli.conftest import CARD, Done
from tests.keys.pss_pem import SHA, parameters, private_pem, public_pem
from tests.tables import walk

A2aSign = Callable[[str], Done]
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ANN, RSA = generate_signer(kid="ann"), LocalSigner(KEY, kid="rsa")
HOST = "invoice.example.com"


@pytest.fixture
def a2a_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> A2aSign:
    """Run the command with these arguments, in a folder with a card and keys."""
    monkeypatch.chdir(tmp_path)
    for name in ("A2A_SIGN_KEY", "A2A_SIGN_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    Path("card.json").write_text(json.dumps(CARD))
    bare = {name: value for name, value in RSA.public_key.to_jwk().items() if name != "alg"}
    private = json.loads(private_key_bytes(RSA, format="jwk"))
    contents: dict[str, Any] = {
        "rsa.pem": private_key_bytes(RSA),
        "pss.pem": private_pem(KEY, parameters(SHA[384], SHA[384], 48)),
        "pss.pub": public_pem(KEY, parameters(SHA[384], SHA[384], 48)),
        "rsa.jwk": {name: value for name, value in private.items() if name != "alg"},
        "rs256.jwk": private,
        "ann.pub": ANN.public_key.to_jwk(),
        "rs256.pub": RSA.public_key.to_jwk(),
        "rsa.pub": RSA.public_key.to_pem(),
        "ann.jwk": json.loads(private_key_bytes(ANN, format="jwk")),
        "old.jwk": {**json.loads(private_key_bytes(ANN, format="jwk")), "exp": 1_600_000_000},
        "bare.jwk": bare,
        "set.json": {"keys": [bare, ANN.public_key.to_jwk(), {**RSA.public_key.to_jwk(), "kid": "says"}]},
        "old.json": {"keys": [{**ANN.public_key.to_jwk(), "exp": 1_600_000_000}]},
        "gone.json": {"keys": [{**ANN.public_key.to_jwk(), "revoked": True}]},
        "later.json": {"keys": [{**ANN.public_key.to_jwk(), "nbf": 4_000_000_000}]},
        "good.json": {"keys": [{**ANN.public_key.to_jwk(), "nbf": 1, "exp": 4_000_000_000}]},
    }
    for name, content in contents.items():
        Path(name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        Path(name).chmod(0o600)

    def run(arguments: str) -> Done:
        code = main(shlex.split(arguments))
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


@walk("key", ["rsa.pem", "rsa.jwk"])
@walk(("option", "alg"), [("", "RS256"), ("--alg PS256", "PS256"), ("--alg RS512", "RS512")])
def test_sign_chooses_among_the_algorithms_of_an_rsa_key(a2a_sign: A2aSign, key: str, option: str, alg: str) -> None:
    done = a2a_sign(f"card.json --key {key} --kid rsa {option}")
    assert (done.code, done.err) == (0, "")
    assert f"rsa ({alg})" in done.out
    done = a2a_sign("verify card.json --any-origin --public-key bare.jwk")
    assert (done.code == 0) == (alg == "RS256")
    assert a2a_sign(f"verify card.json --any-origin --public-key bare.jwk --alg {alg}").code == 0
    assert a2a_sign(f"verify card.json --any-origin --public-key rsa.pub --kid rsa --alg {alg}").code == 0
    assert a2a_sign(f"inspect card.json --any-origin --public-key bare.jwk --alg {alg}").code == 0


def test_a_key_for_rsassa_pss_signs_what_its_parameters_say(a2a_sign: A2aSign) -> None:
    assert "pss (PS384)" in a2a_sign("card.json --key pss.pem --kid pss").out
    assert a2a_sign("verify card.json --any-origin --public-key pss.pub --kid pss").code == 0
    assert a2a_sign("card.json --key pss.pem --kid pss --alg PS384").code == 0
    for command in (
        "card.json --key pss.pem --alg RS256",
        "verify card.json --any-origin --public-key pss.pub --alg PS256",
    ):
        done = a2a_sign(command)
        assert done.code == 2
        assert "--alg: pss." in done.err
        assert "does not fit this key; leave it out, or use PS384" in done.err


@walk(
    ("command", "says"),
    [
        ("card.json --key ann.jwk --alg RS256", "--alg: ann.jwk: algorithm RS256 does not fit this key"),
        ("card.json --key rs256.jwk --alg PS256", "--alg: rs256.jwk: algorithm PS256 does not fit this key"),
        ("card.json --key rsa.pem --alg HS256", "--alg: no signature algorithm is named 'HS256'; choose from ES256"),
        ("card.json --key rsa.pem --alg ''", "--alg: no signature algorithm is named ''"),
        (
            "verify card.json --any-origin --public-key ann.pub --alg PS256",
            "--alg: ann.pub: algorithm PS256 does not fit this key",
        ),
        (
            "verify card.json --any-origin --jwks good.json --alg PS256",
            "--alg: good.json: algorithm PS256 does not fit this key",
        ),
        ("verify card.json --any-origin --jwks set.json --alg ES512", "--alg: no key in set.json is for ES512"),
        (
            "verify card.json --any-origin --trust trust.toml --alg PS256",
            "leave out --jwks, --public-key, --kid, --alg and --signer",
        ),
        ("inspect card.json --alg PS256", "--alg need keys to verify with"),
        (f"trust add new.toml --origin {HOST} --public-key rs256.pub --alg PS256", "--alg: rs256.pub: algorithm PS256"),
        (f"trust add new.toml --origin {HOST} --jwks-url https://a.example/k --alg HS256", "--alg: no signature"),
    ],
)
def test_an_algorithm_that_does_not_fit_names_the_option(a2a_sign: A2aSign, command: str, says: str) -> None:
    done = a2a_sign(command)
    assert done.code == 2
    assert says in done.err
    assert not Path("new.toml").exists()


def test_of_a_set_the_keys_for_another_algorithm_are_skipped(a2a_sign: A2aSign) -> None:
    assert a2a_sign("card.json --key rsa.pem --kid rsa --alg PS256").code == 0
    done = a2a_sign("verify card.json --any-origin --jwks set.json --alg PS256")
    assert done.code == 0
    assert "skipped key 'ann': it is for ES256, and --alg is PS256" in done.err
    assert "skipped key 'says': it is for RS256" in done.err


def test_trust_add_writes_the_algorithm(a2a_sign: A2aSign) -> None:
    assert a2a_sign("card.json --key rsa.pem --kid rsa --alg PS256").code == 0
    assert a2a_sign(f"trust add trust.toml --origin {HOST} --public-key bare.jwk --alg PS256").code == 0
    assert a2a_sign("trust add trust.toml --origin b.example --jwks-url https://b.example/k --alg PS512").code == 0
    text = Path("trust.toml").read_text()
    assert 'alg = "PS256" }' in text
    assert '\nalg = "PS512"\n' in text
    assert [row["alg"] for row in a2a_sign("trust list trust.toml --json").json["entries"]] == ["PS256", "PS512"]
    Path("local.toml").write_text(text.partition('\n\n[[trust]]\norigins = ["b.example"]')[0] + "\n")
    assert a2a_sign(f"verify card.json --trust local.toml --origin {HOST}").code == 0


@pytest.mark.parametrize(
    ("keys", "says", "state", "valid"),
    [
        ("old", "expired on 2020-09-13T12:26:40Z", "expired", "until 2020-09-13T12:26:40Z"),
        ("later", "not valid before 2096-10-02T07:06:40Z", "not yet valid", "from 2096-10-02T07:06:40Z"),
        ("gone", "the key is revoked", "revoked", "always"),
    ],
)
def test_what_a_key_says_about_itself_is_shown_and_counts(
    a2a_sign: A2aSign, keys: str, says: str, state: str, valid: str
) -> None:
    assert a2a_sign("card.json --key ann.jwk").code == 0
    done = a2a_sign(f"verify card.json --any-origin --jwks {keys}.json")
    assert (done.code, says in done.out) == (4, True)
    done = a2a_sign(f"inspect card.json --any-origin --jwks {keys}.json")
    assert (done.code, says in done.out) == (4, True)
    done = a2a_sign(f"trust add trust.toml --origin {HOST} --jwks {keys}.json")
    assert done.code == 0
    assert "its signatures are rejected now" in done.err
    listed = a2a_sign("trust list trust.toml").out.splitlines()[1]
    assert f"  {valid}" in listed
    assert f"  {state}  " in listed
    assert a2a_sign("trust list trust.toml --json").json["entries"][0]["state"] == state
    done = a2a_sign(f"verify card.json --trust trust.toml --origin {HOST}")
    assert (done.code, says in done.out) == (4, True)


def test_the_limits_of_a_good_key_are_shown(a2a_sign: A2aSign) -> None:
    assert a2a_sign("card.json --key ann.jwk").code == 0
    done = a2a_sign("inspect card.json --any-origin --jwks good.json")
    assert done.code == 0
    assert "the key is valid until 2096-10-02T07:06:40Z" in done.out
    report = a2a_sign("inspect card.json --any-origin --jwks good.json --json").json
    assert report["results"][0]["signatures"][0]["key_expires"] == "2096-10-02T07:06:40Z"
    assert "the key is valid until" not in a2a_sign("inspect card.json --any-origin --public-key ann.pub").out


def test_a_key_that_is_over_signs_nothing(a2a_sign: A2aSign) -> None:
    before = Path("card.json").read_bytes()
    done = a2a_sign("card.json --key old.jwk")
    assert done.code == 2
    assert "the key 'ann' is revoked or not valid now" in done.err
    assert Path("card.json").read_bytes() == before
    done = a2a_sign("keys create ring.json --key old.jwk")
    assert done.code == 2
    assert "remove nbf, exp and revoked from the JWK" in done.err
    assert not Path("ring.json").exists()


def test_keys_of_a_set_are_copied_with_their_limits(a2a_sign: A2aSign) -> None:
    assert a2a_sign(f"trust add trust.toml --origin {HOST} --jwks good.json").code == 0
    assert "nbf = 1, exp = 4000000000 }" in Path("trust.toml").read_text()
    assert json.loads(Path("good.json").read_bytes()) != publish_jwks([ANN.public_key])
