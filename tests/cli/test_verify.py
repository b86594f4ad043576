"""``a2a-sign verify``: one exit code per class, and nothing claimed that is not verified."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import load_private_key
from a2a_trust.keys import LocalSigner, base64url
from a2a_trust.keys.jws import signing_input
from a2a_trust.signing.forms import Form, project
from tests.cli.conftest import CARD, Run


@pytest.fixture
def signed(run: Run, card: Path, key: Path) -> Path:
    assert run("card.json", "--key", "key.pem").code == 0
    return card


def pruned(card: dict[str, Any], signer: LocalSigner) -> bytes:
    """The card as the common SDKs sign it."""
    protected = base64url.encode(json.dumps({"alg": signer.alg, "kid": signer.kid, "typ": "JOSE"}).encode())
    signature = signer.sign(signing_input(protected, project(card, Form.PRUNED).payload))
    return json.dumps(
        {**card, "signatures": [{"protected": protected, "signature": base64url.encode(signature)}]}
    ).encode()


def test_a_trust_source_is_mandatory(run: Run, signed: Path) -> None:
    done = run("verify", "card.json")
    assert done.code == 2
    assert "--jwks FILE or --public-key FILE" in done.err


def test_an_agent_without_its_scheme_is_no_file(run: Run, signed: Path) -> None:
    done = run("verify", "invoice.example.com", "--jwks", "key.jwks.json")
    assert (done.code, done.out) == (6, "")
    assert "no such file; for an agent write its URL: https://invoice.example.com" in done.err


def test_a_companion_is_not_why_a_card_fails(run: Run, card: Path, key: Path) -> None:
    card.write_text(json.dumps({**CARD, "securityRequirements": [{"schemes": {"bearer": {}}}]}))
    assert run("card.json", "--key", "key.pem", "--companion").code == 0
    assert run("keygen", "-o", "other.pem").code == 0
    done = run("verify", "card.json", "--jwks", "other.jwks.json", "--any-origin")
    assert (done.code, "companion" in done.out) == (4, False)
    report = run("verify", "card.json", "--jwks", "other.jwks.json", "--any-origin", "--json").json
    assert [failure["reason"] for failure in report["results"][0]["failures"]][1:] == ["companion"]


def test_a_key_set_on_the_network_is_named_in_a_trust_file(run: Run, signed: Path) -> None:
    done = run("verify", "card.json", "--any-origin", "--jwks", "https://invoice.example.com/jwks.json")
    assert (done.code, "--jwks-url URL, then verify with --trust trust.toml" in done.err) == (2, True)


def test_without_origin_it_says_not_bound(run: Run, signed: Path) -> None:
    done = run("verify", "card.json", "--jwks", "key.jwks.json", "--any-origin")
    assert done.code == 0
    assert ", origin not bound\n" in done.out
    assert (
        run("verify", "card.json", "--jwks", "key.jwks.json", "--json", "--any-origin").json["results"][0]["origin"]
        is None
    )


def test_another_origin_is_untrusted(run: Run, signed: Path) -> None:
    for origin in ("https://evil.example.com", "example.com", "https://invoice.example.com.evil.example"):
        assert run("verify", "card.json", "--jwks", "key.jwks.json", "--origin", origin).code == 4
    assert run("verify", "card.json", "--jwks", "key.jwks.json", "--origin", "http://a b").code == 2


def test_the_verified_card_is_in_the_json_report(run: Run, signed: Path) -> None:
    report = run("verify", "-", "--jwks", "key.jwks.json", "--json", "--any-origin", stdin=signed.read_bytes()).json
    assert report["results"][0]["card"] == CARD
    assert (report["ok"], report["exit"]) == (True, 0)


def test_each_class_has_its_exit_code(run: Run, signed: Path, key: Path, tmp_path: Path) -> None:
    (tmp_path / "invalid.json").write_text(signed.read_text().replace("Matches", "Mismatches"))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "unsigned.json").write_text(json.dumps(CARD))
    assert run("keygen", "-o", "stranger.pem").code == 0
    uncovered = {**CARD, "securityRequirements": [{"schemes": {"bearer": {}}}]}
    (tmp_path / "uncovered.json").write_bytes(pruned(uncovered, load_private_key(key)))
    expected = {
        ("card.json", "key.jwks.json"): (0, "ok"),
        ("invalid.json", "key.jwks.json"): (1, "invalid"),
        ("broken.json", "key.jwks.json"): (1, "invalid"),
        ("unsigned.json", "key.jwks.json"): (3, "unsigned"),
        ("card.json", "stranger.jwks.json"): (4, "untrusted"),
        ("uncovered.json", "key.jwks.json"): (5, "uncovered"),
        ("missing.json", "key.jwks.json"): (6, "input-output"),
    }
    for (name, trusted), (code, word) in expected.items():
        done = run(
            "verify", name, "--jwks", trusted, "--json", *(["--signer", "a2a-js"] if code == 5 else []), "--any-origin"
        )
        assert (done.code, done.json["exit"], done.json["results"][0]["class"]) == (code, code, word), name
        done = run("verify", name, "--jwks", trusted, *(["--signer", "a2a-js"] if code == 5 else []), "--any-origin")
        assert done.code == code
        assert "Traceback" not in done.err


def test_a_pruned_proof_says_what_is_unverified(run: Run, key: Path, tmp_path: Path) -> None:
    (tmp_path / "sdk.json").write_bytes(pruned(CARD, load_private_key(key)))
    done = run("verify", "sdk.json", "--jwks", "key.jwks.json", "--signer", "a2a-python", "--any-origin")
    assert done.code == 0
    assert done.out.startswith("sdk.json: verified in part: signed by ")
    assert "warning: sdk.json: signed in the form pruned" in done.err
    assert "\n  unverified: /securityRequirements" in done.out


def test_a_partial_signature_says_how_to_accept_it(run: Run, key: Path, tmp_path: Path) -> None:
    (tmp_path / "sdk.json").write_bytes(pruned(CARD, load_private_key(key)))
    done = run("verify", "sdk.json", "--jwks", "key.jwks.json", "--any-origin")
    assert done.code == 5
    assert "accept it: --signer a2a-python or --signer a2a-js" in done.out
    (entry,) = run("verify", "sdk.json", "--jwks", "key.jwks.json", "--json", "--any-origin").json["results"]
    assert (entry["class"], entry["code"], entry["failures"][0]["reason"]) == ("uncovered", "partial", "partial")
    done = run("verify", "sdk.json", "--jwks", "key.jwks.json", "--signer", "whole", "--json", "--any-origin")
    assert (done.code, done.json["results"][0]["unverified"]) == (0, [])


def test_who_has_named_the_signer_is_not_told_to_name_another(run: Run, key: Path, tmp_path: Path) -> None:
    (tmp_path / "sdk.json").write_bytes(pruned(CARD, load_private_key(key)))
    done = run("verify", "sdk.json", "--jwks", "key.jwks.json", "--signer", "a2a-trust", "--any-origin")
    assert (done.code, "accept it" in done.out) == (5, False)
    for signer, is_told in (([], True), (["--signer", "a2a-trust"], False)):
        (tmp_path / "trust.toml").unlink(missing_ok=True)
        arguments = ["--origin", "invoice.example.com", "--jwks", "key.jwks.json", *signer]
        assert run("trust", "add", "trust.toml", *arguments).code == 0
        done = run("verify", "sdk.json", "--trust", "trust.toml", "--any-origin")
        assert (done.code, "accept it" in done.out) == (5, is_told)


def test_several_cards_are_all_reported_and_the_first_failure_is_the_exit_code(
    run: Run, signed: Path, tmp_path: Path
) -> None:
    (tmp_path / "unsigned.json").write_text(json.dumps(CARD))
    done = run(
        "verify", "card.json", "unsigned.json", "missing.json", "--jwks", "key.jwks.json", "--json", "--any-origin"
    )
    assert done.code == 3
    assert [entry["class"] for entry in done.json["results"]] == ["ok", "unsigned", "input-output"]


def test_bad_keys_in_a_set_are_reported_and_skipped(run: Run, signed: Path, tmp_path: Path) -> None:
    jwks = json.loads((tmp_path / "key.jwks.json").read_bytes())
    jwks["keys"].insert(0, {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"})
    (tmp_path / "mixed.json").write_text(json.dumps(jwks))
    done = run("verify", "card.json", "--jwks", "mixed.json", "--any-origin")
    assert done.code == 0
    assert "skipped key 0" in done.err
    (tmp_path / "none.json").write_text('{"keys": []}')
    assert run("verify", "card.json", "--jwks", "none.json", "--any-origin").code == 2
    assert run("verify", "card.json", "--jwks", "card.json", "--any-origin").code == 2
    assert run("verify", "card.json", "--jwks", "missing.json", "--any-origin").code == 6
    assert "give it with --jwks" in run("verify", "card.json", "--public-key", "key.jwks.json", "--any-origin").err


def test_the_public_half_in_pem_is_a_trust_source(run: Run, signed: Path, key: Path, tmp_path: Path) -> None:
    (tmp_path / "public.pem").write_bytes(load_private_key(key).public_key.to_pem())
    assert run("verify", "card.json", "--public-key", "public.pem", "--any-origin").code == 0


def test_what_a_stranger_wrote_cannot_steer_the_terminal(run: Run, signed: Path, key: Path, tmp_path: Path) -> None:
    protected = base64url.encode(json.dumps({"alg": "ES256", "kid": "\x1b[2J\u202eevil"}).encode())
    for name, code, shown in (
        ("x", 4, "\\x1b[2J"),
        ("\x1b[31m", 1, "\\x1b[31m"),
    ):  # a name of the card is not printable
        hostile = {**CARD, name: "\u202e", "signatures": [{"protected": protected, "signature": "AAAA"}]}
        (tmp_path / "hostile.json").write_text(json.dumps(hostile))
        done = run("verify", "hostile.json", "--jwks", "key.jwks.json", "--any-origin")
        assert done.code == code
        assert done.out.replace("\n", "").isprintable()
        assert shown in done.out


TRUSTED = ("--jwks", "key.jwks.json", "--any-origin")


def test_a_card_that_expires_soon_is_an_alarm(run: Run, card: Path, key: Path) -> None:
    assert run("card.json", "--key", "key.pem", "--expires", "20d").code == 0
    assert run("verify", "card.json", *TRUSTED, "--expires-within", "19d").code == 0
    done = run("verify", "card.json", *TRUSTED, "--expires-within", "21d", "--quiet")
    assert (done.code, done.out.startswith("card.json: EXPIRES SOON: verified until 20")) == (1, True)
    report = run("verify", "card.json", *TRUSTED, "--expires-within", "21d", "--json").json
    assert (report["exit"], report["results"][0]["ok"], report["results"][0]["class"]) == (1, False, "invalid")
    assert report["results"][0]["valid_until"] in done.out
    assert run("verify", "card.json", *TRUSTED, "--expires-within", "soon").code == 2


def test_a_card_without_an_end_never_expires_soon(run: Run, signed: Path) -> None:
    report = run("verify", "card.json", *TRUSTED, "--expires-within", "9999d", "--json").json
    assert (report["exit"], report["results"][0]["valid_until"]) == (0, None)


def test_a_card_is_verified_as_of_a_later_day(run: Run, card: Path, key: Path) -> None:
    assert run("card.json", "--key", "key.pem", "--expires", "20d").code == 0
    done = run("verify", "card.json", *TRUSTED, "--at", "19d")
    assert (done.code, re.match(r"AS OF 20\S+Z: card\.json: verified: ", done.out) is not None) == (0, True)
    done = run("verify", "card.json", *TRUSTED, "--at", "21d")
    assert (done.code, re.match(r"AS OF 20\S+Z: card\.json: NOT VERIFIED ", done.out) is not None) == (1, True)
    report = run("verify", "card.json", *TRUSTED, "--at", "2096-01-31", "--json", "--report", "report.jsonl").json
    assert (report["exit"], report["results"][0]["as_of"]) == (1, "2096-01-31T00:00:00Z")
    line = json.loads(card.with_name("report.jsonl").read_text().splitlines()[0])
    assert (line["ok"], line["as_of"]) == (False, "2096-01-31T00:00:00Z")
    assert run("verify", "card.json", *TRUSTED, "--at", "19d", "--expires-within", "2d").code == 1
    for past in ("2020-01-31", "0d"):
        assert "this moment has passed" in run("verify", "card.json", *TRUSTED, "--at", past).err


def test_as_of_a_later_day_a_revoked_key_is_revoked(run: Run, signed: Path) -> None:
    host = ("--origin", "invoice.example.com")
    assert run("trust", "add", "trust.toml", *host, "--jwks", "key.jwks.json").code == 0
    assert run("verify", "card.json", "--trust", "trust.toml", *host, "--at", "9d").code == 0
    assert run("trust", "revoke", "trust.toml", "--jwks", "key.jwks.json", "--yes").code == 0
    assert run("verify", "card.json", "--trust", "trust.toml", *host, "--at", "9d").code == 4
