"""``a2a-sign keys``: keys that follow each other as operators live it, and no output with a secret."""

from __future__ import annotations

import base64
import json
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from a2a_trust.keys.ring_file import load_key_ring
from tests.cli.conftest import COMMAND, Done, Run
from tests.cli.test_startup import HEAVY, loaded

HOUR, DAY = 3_600, 86_400


@pytest.fixture
def ring(run: Run, tmp_path: Path) -> Path:
    """A ring with one key."""
    assert run("keys", "create", "ring.json").code == 0
    return tmp_path / "ring.json"


def passes(path: Path, seconds: float) -> None:
    """Let time pass for the ring: all of its times move into the past."""
    value = json.loads(path.read_bytes())
    for entry in value["keys"]:
        for name, time in entry.items():
            if name.endswith(("_at", "_from")) and time is not None:
                entry[name] = time - seconds
    path.write_text(json.dumps(value))


def kids(run: Run) -> dict[str, str]:
    """State by kid, as the list has it."""
    return {entry["kid"]: entry["state"] for entry in run("keys", "list", "ring.json", "--json").json["keys"]}


def active(run: Run) -> str:
    (kid,) = (kid for kid, state in kids(run).items() if state == "active")
    return kid


def signed_by(path: Path) -> list[str]:
    headers = [each["protected"] for each in json.loads(path.read_bytes())["signatures"]]
    texts = [json.loads(base64.urlsafe_b64decode(header + "==")) for header in headers]
    return sorted({text["kid"] for text in texts})


def verified(run: Run, card: Path) -> Done:
    """The verdict on a card by the key set that the ring has to publish now."""
    assert run("keys", "export", "ring.json", "-o", "jwks.json").code == 0
    return run("verify", card, "--jwks", "jwks.json", "--any-origin")


def test_a_ring_is_made_for_its_owner_and_its_key_signs_at_once(run: Run, card: Path, tmp_path: Path) -> None:
    done = run("keys", "create", "ring.json", "--alg", "EdDSA", "--json")
    assert (done.code, done.json["alg"], done.json["encrypted"]) == (0, "EdDSA", False)
    assert stat.S_IMODE((tmp_path / "ring.json").stat().st_mode) == 0o600
    assert run("card.json", "--key", "ring.json").code == 0
    assert signed_by(card) == [done.json["kid"]]
    assert verified(run, card).code == 0


def test_a_ring_begins_with_a_key_that_verifiers_know_already(run: Run, card: Path, key: Path) -> None:
    assert run("card.json", "--key", "key.pem", "--kid", "known").code == 0
    assert run("keys", "create", "ring.json", "--key", "key.pem", "--kid", "known").code == 0
    assert run("keys", "rotate", "ring.json").code == 0
    assert verified(run, card).code == 0
    assert active(run) == "known"


def test_keys_follow_each_other(run: Run, card: Path, ring: Path) -> None:
    first = active(run)
    done = run("keys", "rotate", "ring.json", "--overlap", "12h", "--keep", "30d")
    assert done.code == 0
    (second,) = kids(run).keys() - {first}
    (following,) = (line for line in done.out.splitlines() if "next:" in line)
    (current,) = (line for line in done.out.splitlines() if "active:" in line)
    assert second in following
    assert "published, signs from 20" in following
    assert first in current
    assert "signs until 20" in current
    assert (kids(run), len(json.loads(run("keys", "export", "ring.json").out)["keys"])) == (
        {first: "active", second: "next"},
        2,
    )
    passes(ring, 11 * HOUR)
    assert run("card.json", "--key", "ring.json").code == 0
    assert signed_by(card) == [first]
    old = card.with_name("old.json")
    old.write_bytes(card.read_bytes())
    assert run("keys", "rotate", "ring.json").out.startswith(
        "ring.json: a rotation is under way already; nothing was changed"
    )

    passes(ring, 2 * HOUR)
    assert kids(run) == {first: "retired", second: "active"}
    assert verified(run, card).code == 0  # the old card, by a verifier that fetches the key set now
    assert run("card.json", "--key", "ring.json", "-o", "new.json").code == 0
    assert second in signed_by(card.with_name("new.json"))
    assert verified(run, card.with_name("new.json")).code == 0

    passes(ring, 30 * DAY)
    assert kids(run) == {first: "removed", second: "active"}
    assert verified(run, old).code == 4
    assert run("keys", "rotate", "ring.json").code == 0
    assert first not in kids(run)


def test_two_rotations_at_once_are_one(run: Run, ring: Path, tmp_path: Path) -> None:
    command = [str(COMMAND), "keys", "rotate", str(ring), "--json"]
    with ThreadPoolExecutor(3) as threads:
        outputs = [*threads.map(lambda _: subprocess.run(command, stdout=-1, timeout=60, check=True).stdout, range(3))]
    reports = [json.loads(output) for output in outputs]
    assert sorted(report["rotated"] for report in reports) == [False, False, True]
    assert len({report["next"] for report in reports}) == 1
    assert sorted(kids(run).values()) == ["active", "next"]


def test_the_next_key_may_be_for_another_algorithm(run: Run, ring: Path) -> None:
    report = run("keys", "rotate", "ring.json", "--alg", "ES384", "--json").json
    assert [entry["alg"] for entry in report["keys"]] == ["ES256", "ES384"]


def test_revoking_the_active_key_hands_over_to_the_next_one(run: Run, card: Path, ring: Path) -> None:
    assert run("card.json", "--key", "ring.json").code == 0
    first, second = active(run), run("keys", "rotate", "ring.json", "--json").json["next"]
    done = run("keys", "revoke", "ring.json", first)
    assert done.code == 0
    assert f"{second} signs from now on" in done.out
    assert "sign the cards again" in done.out
    assert kids(run) == {first: "revoked", second: "active"}
    assert verified(run, card).code == 4
    assert run("card.json", "--key", "ring.json", "-o", "new.json").code == 0
    assert verified(run, card.with_name("new.json")).code == 0


def test_revoking_the_only_key_makes_a_new_one(run: Run, card: Path, ring: Path) -> None:
    first = active(run)
    report = run("keys", "revoke", "ring.json", first, "--json").json
    assert (report["kid"], report["was_active"], report["was_revoked"]) == (first, True, False)
    assert kids(run) == {first: "revoked", report["active"]: "active"}
    assert run("card.json", "--key", "ring.json").code == 0
    assert signed_by(card) == [report["active"]]


def test_revoking_the_next_key_leaves_the_active_one(run: Run, ring: Path) -> None:
    first, second = active(run), run("keys", "rotate", "ring.json", "--json").json["next"]
    done = run("keys", "revoke", "ring.json", second)
    assert f"{first} signs; no rotation is under way" in done.out
    assert "sign the cards again" not in done.out
    assert kids(run) == {first: "active", second: "revoked"}
    assert "revoked before" not in done.out
    again = run("keys", "revoke", "ring.json", second)  # once more changes nothing
    assert (again.code, "it was revoked before, at 20" in again.out) == (0, True)
    assert kids(run) == {first: "active", second: "revoked"}


def test_a_key_whose_name_looks_like_an_option_is_revoked_too(run: Run, key: Path) -> None:
    assert run("keys", "create", "ring.json", "--key", "key.pem", "--kid=-k").code == 0
    assert run("keys", "revoke", "ring.json", "--", "-k").code == 0
    assert kids(run)["-k"] == "revoked"


def private_lines(path: Path) -> set[str]:
    pems = [entry["private_key"] for entry in json.loads(path.read_bytes())["keys"] if entry["private_key"]]
    return {line for pem in pems for line in pem.splitlines() if not line.startswith("-")}


def test_no_output_holds_a_private_half(run: Run, card: Path, ring: Path) -> None:
    secrets = private_lines(ring)
    outputs = []
    for more in ((), ("--json",)):
        for arguments in (
            ("keys", "rotate", "ring.json"),
            ("keys", "list", "ring.json"),
            ("keys", "export", "ring.json"),
            ("keys", "export", "ring.json", "-o", "jwks.json"),
            ("keys", "revoke", "ring.json", active(run)),
            ("card.json", "--key", "ring.json"),
            ("keys", "create", "ring.json"),
            ("keys", "revoke", "ring.json", "none"),
        ):
            done = run(*arguments, *more)
            secrets |= private_lines(ring)
            outputs.append(done.out + done.err)
    outputs.append((ring.parent / "jwks.json").read_text())
    assert len(secrets) >= 9
    for output in outputs:
        assert output
        assert not any(secret in output for secret in secrets)
        assert '"d"' not in output
        assert "PRIVATE" not in output


def test_an_encrypted_ring_needs_its_passphrase_to_sign_and_to_grow_only(run: Run, card: Path, tmp_path: Path) -> None:
    secret = {"A2A_SIGN_KEY_PASSPHRASE": "hunter2"}
    assert run("keys", "create", "ring.json", "--encrypt").code == 2
    assert not (tmp_path / "ring.json").exists()
    assert run("keys", "create", "ring.json", "--encrypt", "--json", **secret).json["encrypted"] is True
    assert b"BEGIN PRIVATE" not in (tmp_path / "ring.json").read_bytes()
    for arguments in (("card.json", "--key", "ring.json"), ("keys", "rotate", "ring.json")):
        refused = run(*arguments)
        assert (refused.code, "A2A_SIGN_KEY_PASSPHRASE" in refused.err) == (2, True)
        wrong = run(*arguments, A2A_SIGN_KEY_PASSPHRASE="mistaken")
        assert (wrong.code, "passphrase is wrong" in wrong.err) == (2, True)
        assert run(*arguments, **secret).code == 0
    assert sorted(kids(run).values()) == ["active", "next"]
    assert verified(run, card).code == 0
    assert run("keys", "revoke", "ring.json", active(run)).code == 0  # the next key exists already
    assert run("card.json", "--key", "ring.json", "-o", "new.json", **secret).code == 0


@pytest.mark.parametrize("way", ["environment", "default"])
def test_a_ring_is_taken_wherever_a_key_is(way: str, run: Run, card: Path, ring: Path, tmp_path: Path) -> None:
    environment = {}
    if way == "default":
        default = tmp_path / "config" / "a2a-trust" / "signing-key"
        default.parent.mkdir(parents=True)
        ring.rename(default)
    else:
        environment = {"A2A_SIGN_KEY_FILE": str(ring)}
    assert run("card.json", **environment).code == 0
    assert len(signed_by(card)) == 1


def test_a_ring_names_its_keys_itself(run: Run, card: Path, ring: Path) -> None:
    before = card.read_bytes()
    done = run("card.json", "--key", "ring.json", "--kid", "mine")
    assert (done.code, "leave out --kid" in done.err) == (2, True)
    assert card.read_bytes() == before


def test_a_ring_that_everybody_can_read_is_refused_by_every_command(run: Run, card: Path, ring: Path) -> None:
    kid = active(run)
    ring.chmod(0o644)
    before = ring.read_bytes()
    for arguments in (
        ("card.json", "--key", "ring.json"),
        ("keys", "rotate", "ring.json"),
        ("keys", "list", "ring.json"),
        ("keys", "export", "ring.json"),
        ("keys", "revoke", "ring.json", kid),
    ):
        done = run(*arguments)
        assert (done.code, "chmod 600 ring.json" in done.err) == (2, True), arguments
    assert ring.read_bytes() == before
    ring.chmod(0o640)
    warned = run("keys", "rotate", "ring.json")
    assert (warned.code, "warning: the group of ring.json" in warned.err) == (0, True)


def test_the_key_set_goes_alone_to_standard_output(run: Run, ring: Path, tmp_path: Path) -> None:
    done = run("keys", "export", "ring.json", "--json")
    (jwk,) = json.loads(done.out)["keys"]
    report: dict[str, Any] = json.loads(done.err)
    assert (report["command"], report["output"], report["kids"]) == ("keys export", "-", [jwk["kid"]])
    quiet = run("keys", "export", "ring.json")
    assert (quiet.out, quiet.err) == (done.out, "")
    assert run("keys", "export", "ring.json", "-o", "jwks.json").code == 0
    assert (tmp_path / "jwks.json").read_text() == done.out
    before = ring.read_bytes()
    refused = run("keys", "export", "ring.json", "-o", "./ring.json")
    assert (refused.code, "is the private key, and would be overwritten" in refused.err) == (2, True)
    assert ring.read_bytes() == before


def test_a_ring_is_never_overwritten(run: Run, ring: Path) -> None:
    before = ring.read_bytes()
    done = run("keys", "create", "ring.json", "--json")
    assert (done.code, done.json["error"]["class"]) == (2, "usage")
    assert "exists already" in done.json["error"]["message"]
    assert ring.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("keys", "rotate", "none.json"), "to make one with its first key: a2a-sign keys create none.json"),
        (("keys", "list", "none.json"), "a2a-sign keys create none.json"),
        (("keys", "export", "none.json"), "a2a-sign keys create none.json"),
        (("keys", "revoke", "none.json", "k"), "a2a-sign keys create none.json"),
        (("keys", "rotate", "key.pem"), "a2a-sign keys create RING [--key FILE]"),
        (("keys", "rotate", "key.jwks.json"), "a2a-sign keys create RING [--key FILE]"),
        (("keys", "revoke", "ring.json", "none"), "the ring has no key 'none'"),
        (("keys", "rotate", "ring.json", "--overlap", "soon"), "--overlap 'soon': write"),
        (("keys", "rotate", "ring.json", "--overlap", "0d"), "overlap: write a time above 0"),
        (("keys", "rotate", "ring.json", "--keep", "0m"), "keep: write a time above 0"),
        (("keys", "rotate", "ring.json", "--alg", "HS256"), "ES256"),
        (("keys", "create", ""), "a key ring is secret, so name a file"),
        (("keys", "create", "-"), "a key ring is secret, so name a file"),
        (("keys", "create", "new.json", "--kid", "mine"), "--kid works only with --key"),
        (("keys", "create", "new.json", "--key", "key.pem", "--alg", "RS256"), "does not fit this key"),
        (("keys", "create", "new.json", "--alg", "HS256"), "ES256"),
        (("keys",), "create"),
        (("keys", "rotate"), "RING"),
    ],
)
def test_wrong_use_is_said_to_be_that_and_changes_nothing(
    arguments: tuple[str, ...], said: str, run: Run, key: Path, ring: Path, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "key.jwks.json").chmod(0o600)
    done = run(*arguments)
    assert done.code == 2
    assert said in done.err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_ring_out_of_reach_is_an_error_of_input(run: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    done = run("keys", "rotate", "folder", "--json")
    assert (done.code, done.json["error"]["class"]) == (6, "input-output")
    assert run("keys", "create", "no/such/ring.json").code == 6


def test_a_list_says_what_each_key_does_and_when_that_changes(run: Run, ring: Path) -> None:
    first = active(run)
    run("keys", "rotate", "ring.json", "--overlap", "1h")
    passes(ring, 2 * HOUR)
    run("keys", "rotate", "ring.json", "--overlap", "1h")
    passes(ring, 2 * HOUR)
    run("keys", "rotate", "ring.json", "--overlap", "1h")
    run("keys", "revoke", "ring.json", first)
    rows = [line.split() for line in run("keys", "list", "ring.json").out.splitlines()]
    assert [row[2] for row in rows] == ["STATE", "revoked", "retired", "active", "next"]
    assert [row[3:5] for row in rows[1:]] == [
        ["since", rows[1][4]],
        ["does", "not"],
        ["signs", "until"],
        ["published,", "signs"],
    ]


def test_signing_with_a_ring_loads_nothing_heavy(card: Path, ring: Path, tmp_path: Path) -> None:
    modules = loaded("card.json", "--key", "ring.json", cwd=tmp_path)
    assert "cryptography" in modules
    assert not modules & {*HEAVY, "logging"}


def test_what_the_command_wrote_is_what_the_library_reads(run: Run, ring: Path) -> None:
    report = run("keys", "rotate", "ring.json", "--json").json
    read = load_key_ring(ring)
    assert read.signer(0).kid == report["active"]
    assert [key.kid for key in read.keys] == [entry["kid"] for entry in report["keys"]]
