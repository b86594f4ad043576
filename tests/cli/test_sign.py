"""``a2a-sign card.json`` in pipelines and by hand."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Literal

import pytest

from a2a_trust.cli.card_text import rewrite
from a2a_trust.keys import base64url
from a2a_trust.keys.files import load_private_key
from tests.cli.conftest import CARD, COMMAND, Run

PART = ("--allow", "missing-member")
"""For cards of these tests that have only the members that the test is about."""

ENCRYPTED = {"A2A_SIGN_KEY_PASSPHRASE": "correct horse battery staple"}


def test_signs_in_place_and_verifies(run: Run, card: Path, key: Path) -> None:
    done = run("card.json", "--key", "key.pem")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("card.json: signed by ")
    signed = json.loads(card.read_bytes())
    assert {name: value for name, value in signed.items() if name != "signatures"} == CARD
    done = run("verify", "card.json", "--jwks", "key.jwks.json", "--origin", "https://invoice.example.com")
    assert done.code == 0
    assert done.out.endswith(", form spec, origin invoice.example.com\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{\n\t"name": "x",\n\t"b": "1"\n}\n', '{\n\t"name": "x",\n\t"b": "1",\n\t"sig', id="tabs"),
        pytest.param('{\r\n  "name": "x"\r\n}', '{\r\n  "name": "x",\r\n  "signatures": [\r\n    {\r\n', id="crlf"),
        pytest.param('{"name":"x","b":"1"}', '{"name":"x","b":"1","signatures":[{"protected":"', id="compact"),
        pytest.param(
            '{"b": 1, "name": "x" , "a": {"y":2 }}',
            '{"b": 1, "name": "x" , "a": {"y":2 }, "signatures": [',
            id="own spacing",
        ),
        pytest.param('{\n "name": "K\\u00f6ln"\n}', '{\n "name": "K\\u00f6ln",\n "signatures"', id="escapes"),
        pytest.param('{\n "name": "Köln"\n}', '{\n "name": "Köln",\n "signatures"', id="UTF-8"),
        pytest.param(
            '{\n "a": 1.50,\n "b": 1e2,\n "name": "x"\n}',
            '{\n "a": 1.50,\n "b": 1e2,\n "name": "x",\n "signatures"',
            id="numbers",
        ),
        pytest.param('  {"name": "x" }\n', '  {"name": "x","signatures": [{', id="blanks"),
    ],
)
def test_the_text_keeps_its_order_indentation_and_characters(
    text: str, expected: str, run: Run, tmp_path: Path, key: Path
) -> None:
    path = tmp_path / "own.json"
    path.write_bytes(text.encode())
    assert run("own.json", "--key", "key.pem", *PART).code == 0
    assert path.read_bytes().decode().startswith(expected)
    again = path.read_bytes()
    assert again.endswith(text[text.rindex("}") :].encode())
    assert run("verify", "own.json", "--jwks", "key.jwks.json", "--any-origin").code == 0


@pytest.mark.parametrize("text", ['{"keys": []}', "{}", '{"name": ""}', '{"name": null, "version": "1"}'])
def test_what_is_no_card_is_left_as_it_is(text: str, run: Run, card: Path, tmp_path: Path, key: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    before = card.read_bytes()
    done = run("card.json", "other.json", "--key", "key.pem")
    assert done.code == 1
    assert "other.json" in done.err
    assert "not an Agent Card" in done.err
    assert (path.read_text(), card.read_bytes()) == (text, before)


@pytest.mark.parametrize(("old", "new"), [("Invoice", "Other"), ('"signature": "', '"signature": "AA')])
def test_a_text_that_differs_from_what_was_signed_is_not_written(
    old: str, new: str, run: Run, card: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = card.read_bytes()
    monkeypatch.setattr("a2a_trust.cli.sign.rewrite", lambda *texts: rewrite(*texts).replace(old, new))
    done = run("card.json", "--key", "key.pem")
    assert done.code != 0
    assert "the signed card differs from the card that was given" in done.err
    assert card.read_bytes() == before


def test_signing_again_replaces_the_own_signature_in_its_place(run: Run, card: Path, key: Path, tmp_path: Path) -> None:
    card.write_text('{"signatures": [],\n "name": "x"}')
    assert run("card.json", "--key", "key.pem", *PART).code == 0
    assert run("card.json", "--key", "key.pem", *PART).code == 0
    text = card.read_text()
    assert text.endswith(',\n "name": "x"}')
    assert len(json.loads(text)["signatures"]) == 1


def test_what_the_specification_drops_is_dropped_and_said(run: Run, card: Path, key: Path) -> None:
    card.write_text(json.dumps({**CARD, "securityRequirements": [{"schemes": {"bearer": {"list": []}}}]}, indent=4))
    done = run("card.json", "--key", "key.pem", "--json")
    (result,) = done.json["results"]
    assert result["normalized"] == ["/securityRequirements/0/schemes/bearer/list"]
    assert (result["companion"], result["left_open"]) == (None, [])
    assert len(result["notes"]) == 4
    assert json.loads(card.read_bytes())["securityRequirements"] == [{"schemes": {"bearer": {}}}]
    assert '\n    "version": "2.4.1",\n' in card.read_text()


def test_standard_input_goes_to_standard_output_and_the_report_to_standard_error(run: Run, key: Path) -> None:
    done = run("-", "--key", "key.pem", stdin=json.dumps(CARD).encode())
    assert done.code == 0
    assert "signatures" in json.loads(done.out)
    assert done.err.startswith("-: signed by ")
    report = run("-", "--key", "key.pem", "--json", stdin=json.dumps(CARD).encode())
    assert json.loads(report.err)["ok"] is True


def test_output_goes_where_it_is_told_and_the_input_stays(run: Run, card: Path, key: Path, tmp_path: Path) -> None:
    before = card.read_bytes()
    assert run("card.json", "-o", "signed.json", "--key", "key.pem").code == 0
    assert card.read_bytes() == before
    assert "signatures" in json.loads((tmp_path / "signed.json").read_bytes())
    done = run("card.json", "-o", "-", "--key", "key.pem")
    assert json.loads(done.out)["name"] == CARD["name"]


def test_several_files_are_all_signed_or_none_is(run: Run, card: Path, key: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"name": "x", "name": "y"}')
    before = card.read_bytes()
    done = run("card.json", "bad.json", "--key", "key.pem")
    assert done.code == 1
    assert "bad.json: card: the member 'name' appears more than once" in done.err
    assert card.read_bytes() == before
    (tmp_path / "bad.json").write_text('{"name": "x"}')
    assert run("card.json", "bad.json", "--key", "key.pem", *PART).code == 0
    assert run("verify", "card.json", "bad.json", "--jwks", "key.jwks.json", "--any-origin").code == 0


def test_a_file_keeps_its_mode_and_a_link_stays_a_link(run: Run, card: Path, key: Path, tmp_path: Path) -> None:
    card.chmod(0o640)
    (tmp_path / "link.json").symlink_to(card)
    assert run("link.json", "--key", "key.pem").code == 0
    assert (tmp_path / "link.json").is_symlink()
    assert stat.S_IMODE(card.stat().st_mode) == 0o640
    assert "signatures" in json.loads(card.read_bytes())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_without_a_key_it_says_what_to_run(run: Run, card: Path) -> None:
    done = run("card.json")
    assert done.code == 2
    assert "a2a-sign keygen" in done.err
    assert run("keygen").code == 0
    assert run("card.json").code == 0


def test_keys_come_from_the_environment(run: Run, card: Path, key: Path) -> None:
    assert run("card.json", A2A_SIGN_KEY=key.read_text()).code == 0
    assert run("card.json", A2A_SIGN_KEY_FILE=str(key)).code == 0
    done = run("card.json", A2A_SIGN_KEY=key.read_text(), A2A_SIGN_KEY_FILE=str(key))
    assert done.code == 2
    assert "unset one" in done.err


@pytest.mark.parametrize("form", ["pem", "jwk"])
def test_an_encrypted_key_opens_with_the_passphrase_of_the_environment(
    form: str, run: Run, card: Path, tmp_path: Path
) -> None:
    assert run("keygen", "-o", "secret", "--encrypt", "--format", form, **ENCRYPTED).code == 0
    assert run("card.json", "--key", "secret", **ENCRYPTED).code == 0
    (tmp_path / "pass").write_text("correct horse battery staple\n")
    assert run("card.json", "--key", "secret", A2A_SIGN_KEY_PASSPHRASE_FILE="pass").code == 0
    wrong = run("card.json", "--key", "secret", A2A_SIGN_KEY_PASSPHRASE="mistaken")
    assert wrong.code == 2
    assert "passphrase is wrong" in wrong.err
    missing = run("card.json", "--key", "secret")
    assert missing.code == 2
    assert "A2A_SIGN_KEY_PASSPHRASE" in missing.err
    for done in (wrong, missing):
        assert "mistaken" not in done.err
        assert "correct horse" not in done.err


def test_a_key_that_everybody_can_read_is_refused_with_the_mend(run: Run, card: Path, key: Path) -> None:
    key.chmod(0o644)
    done = run("card.json", "--key", "key.pem")
    assert done.code == 2
    assert "chmod 600 key.pem" in done.err
    key.chmod(0o640)
    done = run("card.json", "--key", "key.pem")
    assert done.code == 0
    assert done.err.startswith("warning: ")


def test_several_keys_sign_the_same_card(run: Run, card: Path, key: Path) -> None:
    assert run("keygen", "-o", "second.jwk", "--alg", "EdDSA", "--kid", "second").code == 0
    assert run("card.json", "--key", "key.pem", "--key", "second.jwk").code == 0
    assert len(json.loads(card.read_bytes())["signatures"]) == 2
    for name in ("key.jwks.json", "second.jwks.json"):
        assert run("verify", "card.json", "--jwks", name, "--any-origin").code == 0
    assert run("card.json", "--key", "key.pem", "--key", "second.jwk", "--kid", "x").code == 2


def test_a_signature_that_expires(run: Run, card: Path, key: Path) -> None:
    assert run("card.json", "--key", "key.pem", "--expires", "90d").code == 0
    assert run("verify", "card.json", "--jwks", "key.jwks.json", "--any-origin").code == 0
    for when in ("2020-01-31", "soon", "0d", "2999-01-31T12:00:00", "-5d"):
        done = run("card.json", "--key", "key.pem", f"--expires={when}")
        assert (done.code, "--expires" in done.err) == (2, True), when
    assert run("card.json", "--key", "key.pem", "--expires", "2999-01-31T12:00:00Z").code == 0


def test_a_companion_and_what_it_leaves_open_are_told_and_a_choice(run: Run, card: Path, key: Path) -> None:
    text = json.dumps({**CARD, "securityRequirements": [{"schemes": {"bearer": {}}}]})
    card.write_text(text)
    done = run("card.json", "--key", "key.pem")
    assert "note: rejected by a2a-python and a2a-js: no companion signature was added, because it would not" in done.out
    assert "sign with --companion; or give the card one form, with a scope in each requirement" in done.out
    assert len(json.loads(card.read_bytes())["signatures"]) == 1
    done = run("card.json", "--key", "key.pem", "--companion")
    assert "note: added a companion signature (pruned form) for a2a-python and a2a-js" in done.out
    assert "(without them clients send no credentials): /securityRequirements." in done.out
    assert len(json.loads(card.read_bytes())["signatures"]) == 2
    card.write_text(text)
    done = run("card.json", "--key", "key.pem", "--no-companion", "--expires=90d", "--json")
    (result,) = done.json["results"]
    assert (result["companion"], result["left_open"]) == (None, [])
    assert result["notes"] == [
        "rejected by a2a-python and a2a-js: signed without a companion signature in the pruned form"
    ]
    assert len(json.loads(card.read_bytes())["signatures"]) == 1


def test_a_card_with_a_companion_has_to_be_signed_again_unless_it_is_asked_for(run: Run, card: Path, key: Path) -> None:
    card.write_text(json.dumps({**CARD, "securityRequirements": [{"schemes": {"bearer": {}}}]}))
    assert run("card.json", "--key", "key.pem", "--companion").code == 0
    before = card.read_bytes()
    for options in (["--check"], ["--if-needed"]):
        assert run("card.json", "--key", "key.pem", "--companion", *options).code == 0
    assert card.read_bytes() == before
    done = run("card.json", "--key", "key.pem", "--check")
    assert (done.code, "a companion signature that does not protect /securityRequirements" in done.out) == (1, True)
    assert run("card.json", "--key", "key.pem", "--if-needed").code == 0
    assert len(json.loads(card.read_bytes())["signatures"]) == 1
    assert run("card.json", "--key", "key.pem", "--check").code == 0
    assert run("card.json", "--key", "key.pem", "--check", "--companion").code == 1


def test_a_signature_without_iat_is_a_choice_with_a_warning(run: Run, card: Path, key: Path) -> None:
    assert run("card.json", "--key", "key.pem").code == 0
    (signature,) = json.loads(card.read_bytes())["signatures"]
    assert "iat" in json.loads(base64url.decode(signature["protected"], "protected"))
    done = run("card.json", "--key", "key.pem", "--no-iat")
    assert (done.code, done.err) == (0, "")
    assert "note: signed without iat: clients that remember an earlier iat of this agent reject the card" in done.out
    (signature,) = json.loads(card.read_bytes())["signatures"]
    assert "iat" not in json.loads(base64url.decode(signature["protected"], "protected"))
    (result,) = run("card.json", "--key", "key.pem", "--no-iat", "--json").json["results"]
    assert ["without iat" in note for note in result["notes"]] == [True, False]
    assert result["notes"][1].endswith(
        "accept this one until its key is revoked. To set an end, sign with --expires 90d"
    )
    assert run("card.json", "--key", "key.pem", "--expires", "90d", "--json").json["results"][0]["notes"] == []
    assert run("verify", "card.json", "--jwks", "key.jwks.json", "--any-origin").code == 0


def test_a_card_that_a2a_python_rewrites_is_signed_and_told(run: Run, card: Path, key: Path) -> None:
    requirements = {name: value for name, value in CARD.items() if name != "securityRequirements"}
    card.write_text(json.dumps({**requirements, "security": [{"bearer": ["read"]}]}))
    done = run("card.json", "--key", "key.pem")
    assert done.code == 0
    assert "note: rejected by a2a-python 1.3: before it verifies, it rewrites members of 0.3" in done.out
    assert "(/security)" in done.out
    assert "python-rewrites" in run("lint", "card.json").out


def test_jku_must_be_https(run: Run, card: Path, key: Path) -> None:
    assert run("card.json", "--key", "key.pem", "--jku", "https://invoice.example.com/jwks.json").code == 0
    assert run("card.json", "--key", "key.pem", "--jku", "http://invoice.example.com/jwks.json").code == 2


def test_signatures_of_others_are_not_broken_silently(run: Run, card: Path, key: Path) -> None:
    assert run("keygen", "-o", "other.pem").code == 0
    assert run("card.json", "--key", "other.pem").code == 0
    text = card.read_text().replace('"streaming": true', '"streaming": true, "extensions": []')
    card.write_text(text)
    done = run("card.json", "--key", "key.pem")
    assert done.code == 1
    assert "--drop-broken" in done.err
    assert card.read_text() == text
    assert run("card.json", "--key", "key.pem", "--drop-broken").code == 0
    assert len(json.loads(card.read_bytes())["signatures"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "usage: a2a-sign"),
        (("nothing.json",), 6, "No such file"),
        (("card.json", "other.json", "-o", "x.json"), 2, "-o works with one card only"),
        (("-", "card.json"), 2, "must be the only card"),
        (("card.json", "-o", ""), 2, "-o needs a file name"),
        (("card.json", "--key", "nokey.pem"), 6, "--key nokey.pem: no such file"),
        (("card.json", "--key", "card.json"), 2, "private key"),
        (("card.json", "-o", "no/such/folder.json"), 6, "No such file"),
        (("card.json", "--frobnicate"), 2, "unrecognized arguments"),
    ],
)
def test_errors_have_a_code_and_say_what_is_wrong(
    arguments: tuple[str, ...], code: int, words: str, run: Run, card: Path, key: Path
) -> None:
    given = arguments if not arguments or "--key" in arguments else (*arguments, "--key", "key.pem")
    card.chmod(0o600)
    before = card.read_bytes()
    done = run(*given)
    assert done.code == code
    assert words in done.err
    assert "Traceback" not in done.err
    assert card.read_bytes() == before


def test_a_reader_that_goes_away_is_no_crash(card: Path, key: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [COMMAND, "card.json", "-o", "-", "--key", "key.pem"],
            cwd=tmp_path,
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (6, b"")


def test_an_empty_expiry_is_a_mistake_and_not_for_ever(run: Run, card: Path, key: Path) -> None:
    before = card.read_bytes()
    for never in ("", "9999-12-31T23:59:59-14:00"):
        assert run("card.json", "--key", "key.pem", "--expires", never).code == 2
    assert card.read_bytes() == before


def test_the_key_is_never_written_over(run: Run, card: Path, key: Path) -> None:
    before = key.read_bytes()
    assert run("card.json", "--key", "key.pem", "-o", "key.pem").code == 2
    assert key.read_bytes() == before


@pytest.mark.parametrize("given", ["A2A_SIGN_KEY_FILE", "the default key", "A2A_SIGN_KEY_PASSPHRASE_FILE", "unused"])
def test_no_secret_that_the_command_reads_is_written_over(
    given: str, run: Run, card: Path, key: Path, tmp_path: Path
) -> None:
    secret, arguments, environment = key, list[str](), dict[str, str]()
    if given == "the default key":
        assert run("keygen").code == 0
        secret = tmp_path / "config" / "a2a-trust" / "signing-key"
    elif given == "A2A_SIGN_KEY_PASSPHRASE_FILE":
        secret = tmp_path / "pass"
        secret.write_text("correct horse battery staple\n")
        assert run("keygen", "-o", "secret", "--encrypt", **ENCRYPTED).code == 0
        arguments, environment = ["--key", "secret"], {given: "pass"}
    elif given == "unused":  # --key takes precedence
        assert run("keygen", "-o", "other.pem").code == 0
        arguments, environment = ["--key", "other.pem"], {"A2A_SIGN_KEY_FILE": "key.pem"}
    else:
        environment = {given: "key.pem"}
    (tmp_path / "link.json").symlink_to(secret)
    before, link = secret.read_bytes(), tmp_path / "link.json"
    for output in (secret, link):
        done = run("card.json", *arguments, "-o", output, **environment)
        assert (done.code, secret.read_bytes()) == (2, before), done
        assert "would be overwritten" in done.err
    assert run("keys", "create", "ring").code == 0
    assert run("keys", "export", "ring", "-o", link, **environment).code == 2
    assert secret.read_bytes() == before
    assert run("card.json", *arguments, "-o", "signed.json", **environment).code == 0


def test_no_card_is_changed_when_one_of_them_cannot_be_written(run: Run, card: Path, key: Path, tmp_path: Path) -> None:
    before = card.read_bytes()
    (tmp_path / "second.json").write_bytes(before)
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "third.json").symlink_to(tmp_path / "second.json")
    long = tmp_path / ("x" * 250)
    long.write_bytes(before)
    assert run("card.json", long.name, "--key", "key.pem").code == 0  # its temporary name is short
    card.write_bytes(before)
    done = run("card.json", "/proc/version", "--key", "key.pem")
    assert done.code == 1
    assert card.read_bytes() == before


def test_strange_signatures_of_others_are_refused_and_not_a_crash(run: Run, card: Path, key: Path) -> None:
    strange = {"protected": "e30", "signature": "", "header": {"n": 123456789012345678901234567890}}
    card.write_text(json.dumps({**CARD, "signatures": [strange]}))
    done = run("card.json", "--key", "key.pem")
    assert (done.code, "Traceback" in done.err) == (1, False)


def test_a_merged_card_that_contradicts_itself_is_not_signed(run: Run, card: Path, key: Path) -> None:
    card.write_text(json.dumps({**CARD, "security": [{}]}))
    done = run("card.json", "--key", "key.pem")
    assert done.code == 1
    assert "/security: it contradicts securityRequirements" in done.err


def test_only_the_first_line_of_the_passphrase_file_counts(run: Run, card: Path, tmp_path: Path) -> None:
    assert run("keygen", "-o", "secret", "--encrypt", **ENCRYPTED).code == 0
    (tmp_path / "pass").write_text("correct horse battery staple\r\nsecond line\n")
    assert run("card.json", "--key", "secret", A2A_SIGN_KEY_PASSPHRASE_FILE="pass").code == 0
    (tmp_path / "pass").write_bytes(b"\xff\n")
    assert run("card.json", "--key", "secret", A2A_SIGN_KEY_PASSPHRASE_FILE="pass").code == 2
    assert run("verify", "card.json", "--jwks", "secret.jwks.json", "--any-origin").code == 0


def test_a_key_under_another_name_verifies_under_that_name(run: Run, card: Path, key: Path, tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_bytes(load_private_key(key).public_key.to_pem())
    assert run("card.json", "--key", "key.pem", "--kid", "prod").code == 0
    assert run("verify", "card.json", "--public-key", "key.pub", "--any-origin").code == 4
    assert run("verify", "card.json", "--public-key", "key.pub", "--kid", "prod", "--any-origin").code == 0


@pytest.mark.parametrize(
    "arguments", [("verify",), ("verify", "x", "--signer", "spec"), ("keygen", "--bogus"), ("x", "--bogus")]
)
def test_mistakes_in_the_arguments_are_json_too(arguments: tuple[str, ...], run: Run) -> None:
    done = run(*arguments, "--json")
    assert done.code == 2
    assert done.json["error"]["class"] == "usage"
    assert done.json["command"] == (arguments[0] if arguments[0] != "x" else "sign")


@pytest.mark.parametrize("closed", [0, 1, 2, "full"])
def test_closed_and_full_streams_are_no_crash(
    closed: int | Literal["full"], card: Path, key: Path, tmp_path: Path
) -> None:
    for arguments in (
        ["verify", "card.json", "--any-origin", "--jwks", "key.jwks.json"],
        ["card.json", "-o", "-", "--key", "key.pem"],
    ):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [COMMAND, *arguments],
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                stdout=full if closed == "full" else subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=(lambda: os.close(closed)) if isinstance(closed, int) else None,
                text=True,
                timeout=60,
                check=False,
            )
        assert done.returncode in (0, 3, 6), arguments
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr


def test_a_slip_of_the_pen_is_told_as_one(run: Run) -> None:
    for arguments, said in (
        ("sgin card.json", "sgin is neither a command nor a file; did you mean sign?"),
        ("xyzzy card.json", "xyzzy is neither a command nor a file; the commands are sign, keygen"),
        ("card.json --expries 9d", "unrecognized arguments: --expries 9d; did you mean --expires?"),
        ("verify card.json --jwk=keys.json", "unrecognized arguments: --jwk=keys.json; did you mean --jwks?"),
    ):
        done = run(*arguments.split())
        assert (done.code, said in done.err) == (2, True), done.err


def test_options_may_come_before_the_card(run: Run, card: Path, key: Path) -> None:
    """As keygen itself says what to do next."""
    for arguments in (("--key", "key.pem", "card.json"), ("-o", "copy.json", "card.json", "--key", "key.pem")):
        done = run(*arguments)
        assert (done.code, done.err) == (0, "")
    assert json.loads(Path(card.with_name("copy.json")).read_bytes())["signatures"]


def test_files_of_keys_that_are_mixed_up_are_called_by_what_they_are(run: Run, card: Path) -> None:
    assert run("keygen", "-o", "k.jwk", "--kid", "a").code == 0
    assert run("keygen", "-o", "p.pem").code == 0
    assert run("keys", "create", "ring.json", "--key", "k.jwk").code == 0
    for arguments, words in (
        (("card.json", "--key", "k.jwks.json"), "k.jwks.json is a JWK Set with public keys"),
        (
            ("verify", "card.json", "--public-key", "ring.json", "--any-origin"),
            "ring.json is a key ring, which signs; to verify, export its public keys",
        ),
        (
            ("verify", "card.json", "--jwks", "ring.json", "--any-origin"),
            "a2a-sign keys export ring.json -o FILE, then give --jwks FILE",
        ),
        (
            ("verify", "card.json", "--jwks", "p.pem", "--any-origin"),
            "p.pem is a single key; give it with --public-key",
        ),
    ):
        done = run(*arguments)
        assert (done.code, words in done.err) == (2, True), done.err


def test_the_errors_of_the_operating_system_name_the_file_once(run: Run, card: Path) -> None:
    assert run("keygen", "-o", "k.pem").code == 0
    for arguments in (("gone.json", "--key", "k.pem"), ("inspect", "gone.json"), ("lint", "gone.json")):
        done = run(*arguments)
        assert (done.code, done.err) == (6, "a2a-sign: error: gone.json: No such file or directory\n")
    done = run("verify", "gone.json", "--jwks", "k.jwks.json", "--any-origin")
    assert (done.code, done.out) == (6, "gone.json: NOT VERIFIED (input-output): No such file or directory\n")
    assert run("card.json", "--key", "no.pem").err == "a2a-sign: error: --key no.pem: no such file; check the name\n"


# --- what lint finds -----------------------------------------------------------------------------------------------


def having(**members: object) -> str:
    return json.dumps({**CARD, **members}, indent=2)


INTERFACE = {"url": "https://invoice.example.com/a2a/v1", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}

#: By rule of lint: the card for which signing is refused, and the pointer that is named.
REJECTED = {
    "missing-member": (json.dumps({name: CARD[name] for name in CARD if name != "skills"}), "/skills"),
    "proto-name": (having(documentation_url="https://example.com"), "/documentation_url"),
    "requirement-spelling": (having(securityRequirements=[{"bearer": ["read"]}]), "/securityRequirements/0"),
    "undeclared-scheme": (having(securityRequirements=[{"schemes": {"oauth": {}}}]), "/securityRequirements/0"),
    "unclear-url": (
        having(
            securitySchemes={"oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://a@evil.example/"}}},
            securityRequirements=[{"schemes": {"oidc": {"list": ["read"]}}}],
        ),
        "/securitySchemes/oidc/openIdConnectSecurityScheme/openIdConnectUrl",
    ),
    "unread-member": (
        having(
            securitySchemes={
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "apiKeySecurityScheme": {"location": "header", "name": "X-Key"},
                }
            }
        ),
        "/securitySchemes/bearer",
    ),
    "secret": (
        having(documentationUrl="https://docs.example.net/?api_key=9f86d081884c7d659a2feaa0" + "c55ad015"),
        "/documentationUrl",
    ),
}


@pytest.mark.parametrize("rule", REJECTED)
def test_a_card_that_contradicts_itself_is_signed_only_by_naming_the_exception(
    rule: str, run: Run, card: Path, key: Path
) -> None:
    text, pointer = REJECTED[rule]
    card.write_text(text)
    done = run("card.json", "--key", "key.pem")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("a2a-sign: error: card.json: the card has errors, so it was not signed:\n")
    assert f"\n  {pointer} {rule}: " in done.err
    assert done.err.endswith(f"\n  fix it, or sign it as it is with --allow {rule}\n")
    error = run("card.json", "--key", "key.pem", "--json").json["results"][0]
    assert [(finding["rule"], finding["pointer"]) for finding in error["findings"]] == [(rule, pointer)]
    others = [f"--allow={other}" for other in REJECTED if other != rule]
    assert run("card.json", "--key", "key.pem", *others).code == 1
    assert card.read_text() == text
    done = run("card.json", "--key", "key.pem", "--allow", rule)
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert done.err.startswith(f"warning: card.json:{pointer} {rule}: ")
    assert run("verify", "card.json", "--jwks", "key.jwks.json", "--any-origin").code == 0


@pytest.mark.parametrize("url", ["dns:///invoice.example.com:443", "unix:443", "ftp://invoice.example.com/"])
def test_a_scheme_that_no_verifier_accepts_is_named_and_cannot_be_allowed(
    url: str, run: Run, card: Path, key: Path
) -> None:
    card.write_text(having(supportedInterfaces=[{**INTERFACE, "url": url}]))
    for allowed in ((), ("--allow", "unclear-url")):
        done = run("card.json", "--key", "key.pem", *allowed)
        scheme = url.partition(":")[0]
        assert done.code == 1
        assert done.err.startswith(
            f"a2a-sign: error: card.json: /supportedInterfaces/0/url: URL: the scheme '{scheme}' "
        )
        assert "does not verify" not in done.err
        assert "--allow" not in done.err


def test_what_the_gate_refuses_cannot_be_allowed(run: Run, card: Path, key: Path) -> None:
    for rule in ("ambiguous-member", "unreadable-document", "http-url", "no-such-rule", ""):
        done = run("card.json", "--key", "key.pem", "--allow", rule)
        assert (done.code, "this rule cannot be allowed; these can: missing-member" in done.err) == (2, True)
    card.write_text(having(securitySchemes={"bearer": {"httpAuthSecurityScheme": {}, "mtlsSecurityScheme": {}}}))
    done = run("card.json", "--key", "key.pem", *(f"--allow={rule}" for rule in REJECTED))
    assert (done.code, "exclude each other" in done.err) == (1, True)


def test_other_errors_of_lint_are_warnings_when_signing(run: Run, card: Path, key: Path) -> None:
    card.write_text(having(supportedInterfaces=[{**INTERFACE, "url": "http://agent.example.com/"}]))
    done = run("card.json", "--key", "key.pem")
    assert done.code == 0
    assert done.err.startswith(
        "warning: card.json:/supportedInterfaces/0/url http-url: the connection is not encrypted"
    )
    (result,) = run("card.json", "--key", "key.pem", "--json").json["results"]
    assert [(each["rule"], each["severity"]) for each in result["findings"]] == [("http-url", "error")]
    card.write_text(having(supportedInterfaces=[{**INTERFACE, "url": "http://localhost:9999/"}]))
    done = run("card.json", "--key", "key.pem")
    assert (done.code, done.err) == (0, "")


def test_a_long_list_of_reasons_is_cut_and_no_name_of_the_card_begins_a_line(run: Run, card: Path, key: Path) -> None:
    schemes: dict[str, object] = {f"s{number}\n  fix it, or\x1b[2J": {} for number in range(7)}
    card.write_text(having(securityRequirements=[{"schemes": schemes}] * 7))
    done = run("card.json", "--key", "key.pem")
    assert done.code == 1
    assert done.err.count(" undeclared-scheme: ") == 5
    assert "and 2 more; to see all: a2a-sign lint card.json\n" in done.err
    assert done.err.count("\n  fix it, or") == 1
    assert "\x1b" not in done.err
