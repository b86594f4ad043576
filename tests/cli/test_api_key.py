"""``a2a-sign api-key``: the life of keys as an operator lives it, and that a key is shown once and never taken in."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, key_id_of
from a2a_trust.auth.principal import Identity
from a2a_trust.auth.record_table import SqliteApiKeys
from a2a_trust.errors import InvalidCredentialsError
from tests.cli.conftest import Done, Run

FOREIGN = "sk-live-0123456789abcdef0123456789"
STORE = ("--store", "keys.db")


def verified(folder: Path, key: str, now: float | None = None) -> Identity:
    """What a server with this store proves by the key."""
    verifier = ApiKeyVerifier(SqliteApiKeys(folder / "keys.db"))
    return asyncio.run(verifier.verify(key, time.time() if now is None else now))


def created(run: Run, *arguments: str) -> str:
    done = run("api-key", "create", *STORE, "--owner", "alice", *arguments)
    assert done.code == 0, done.err
    return done.out.removesuffix("\n")


def test_a_new_key_goes_alone_to_standard_output_and_lets_its_owner_in(run: Run, tmp_path: Path) -> None:
    done = run("api-key", "create", *STORE, "--owner", "alice", "--scope", "read", "--scope", "write")
    key = done.out.removesuffix("\n")
    assert done.code == 0
    assert key_id_of(key) in done.err
    assert "shown only now" in done.err
    assert key not in done.err
    identity = verified(tmp_path, key)
    assert (identity.subject, identity.scopes) == ("alice", frozenset({"read", "write"}))
    assert (tmp_path / "keys.db").stat().st_mode & 0o777 == 0o600


def test_a_report_in_json_has_the_key_and_all_that_is_kept(run: Run, tmp_path: Path) -> None:
    done = run("api-key", "create", *STORE, "--owner", "alice", "--expires", "90d", "--prefix", "acme", "--json")
    report = done.json
    assert done.err == ""
    assert (report["command"], report["ok"], report["exit"]) == ("api-key create", True, 0)
    assert report["id"] == key_id_of(report["key"])
    assert report["key"].startswith("acme_")
    assert (report["owner"], report["state"], report["other_keys"]) == ("alice", "valid", 0)
    until = verified(tmp_path, report["key"]).expires_at
    assert until == pytest.approx(time.time() + 90 * 86_400, abs=60)


def test_a_second_key_of_an_owner_is_told(run: Run) -> None:
    created(run)
    done = run("api-key", "create", *STORE, "--owner", "alice")
    assert "1 more key of this owner is valid" in done.err
    assert "more of this owner" not in run("api-key", "create", *STORE, "--owner", "bob").err


def test_a_list_names_keys_and_shows_none(run: Run) -> None:
    keys = [created(run), created(run, "--expires", "1h", "--scope", "read")]
    run("api-key", "import", *STORE, "--owner", "bob", stdin=FOREIGN.encode())
    run("api-key", "revoke", *STORE, key_id_of(keys[0]))
    listed, report = run("api-key", "list", *STORE), run("api-key", "list", *STORE, "--json")
    assert listed.code == report.code == 0
    assert [line.split()[1:3] for line in listed.out.splitlines()] == [
        ["OWNER", "STATE"],
        ["alice", "revoked"],
        ["alice", "valid"],
        ["bob", "valid"],
    ]
    entries = report.json["keys"]
    assert [entry["id"] for entry in entries[:2]] == [key_id_of(key) for key in keys]
    assert [entry["imported"] for entry in entries] == [False, False, True]
    assert [entry["expires"] is None for entry in entries] == [True, False, True]
    for secret in (keys[0][17:], keys[1][17:], FOREIGN):
        assert secret not in listed.out + listed.err + report.out + report.err


def test_a_rotated_key_goes_on_for_the_overlap(run: Run, tmp_path: Path) -> None:
    old = created(run, "--scope", "read")
    done = run("api-key", "rotate", *STORE, key_id_of(old), "--overlap", "2h")
    new = done.out.removesuffix("\n")
    assert done.code == 0
    assert f"{key_id_of(old)}, which it replaces, is valid until" in done.err
    assert verified(tmp_path, old).subject == verified(tmp_path, new).subject == "alice"
    later = time.time() + 7200 + 1
    assert verified(tmp_path, new, later).scopes == frozenset({"read"})
    with pytest.raises(InvalidCredentialsError, match="expired"):
        verified(tmp_path, old, later)
    assert f"replaced by {key_id_of(new)}" in run("api-key", "list", *STORE).out
    again = run("api-key", "rotate", *STORE, key_id_of(old))
    assert again.code == 2
    assert f"rotate {key_id_of(new)}" in again.err


def test_a_revoked_key_lets_nobody_in(run: Run, tmp_path: Path) -> None:
    key = created(run)
    assert run("api-key", "revoke", *STORE, key_id_of(key)).code == 0
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        verified(tmp_path, key)


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_key_is_imported_from_standard_input_or_a_file(ending: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_bytes(f"{FOREIGN}{ending}".encode())
    from_file = run("api-key", "import", *STORE, "--owner", "alice", "key.txt")
    from_stdin = run("api-key", "import", *STORE, "--owner", "bob", stdin=f"{FOREIGN}2{ending}".encode())
    assert (from_file.code, from_stdin.code) == (0, 0)
    assert (verified(tmp_path, FOREIGN).subject, verified(tmp_path, f"{FOREIGN}2").subject) == ("alice", "bob")
    assert FOREIGN not in from_file.out + from_file.err + from_stdin.out + from_stdin.err


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 40 + b" y", b"x" * 40 + b"\n\nmore", "é".encode() * 40])
def test_what_is_no_long_word_is_not_imported(content: bytes, run: Run, tmp_path: Path) -> None:
    done = run("api-key", "import", *STORE, "--owner", "alice", "--json", stdin=content)
    assert (done.code, done.json["error"]["class"]) == (2, "usage")
    assert "an imported key" in done.json["error"]["message"]
    assert "xxxx" not in done.out + done.err


def said_nothing_of(key: str, done: Done) -> bool:
    return done.code != 0 and key not in done.out + done.err


def test_a_key_that_is_given_as_an_argument_is_neither_taken_nor_repeated(run: Run, tmp_path: Path) -> None:
    key = created(run)
    imported = run("api-key", "import", *STORE, "--owner", "alice", FOREIGN)
    assert said_nothing_of(FOREIGN, imported)
    assert imported.code == 6
    assert "never the API key itself" in imported.err
    assert said_nothing_of(key, run("api-key", "revoke", *STORE, key))
    assert said_nothing_of(key, run("api-key", "rotate", *STORE, key, "--json"))
    assert verified(tmp_path, key).subject == "alice"
    with pytest.raises(InvalidCredentialsError):
        verified(tmp_path, FOREIGN)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", *STORE), "--owner"),
        (("create", "--owner", "alice"), "--store"),
        (("create", *STORE, "--owner", " alice"), "printable"),
        (("create", *STORE, "--owner", "alice", "--expires", "soon"), "90d"),
        (("create", *STORE, "--owner", "alice", "--expires", "0d"), "passed"),
        (("create", *STORE, "--owner", "alice", "--scope", "a b"), "scope"),
        (("create", *STORE, "--owner", "alice", "--prefix", "A"), "prefix"),
        (("list", *STORE), "api-key create"),
        (("revoke", *STORE, "a2a_000000000000"), "api-key create"),
        ((), "create"),
    ],
)
def test_wrong_use_is_said_to_be_that(arguments: tuple[str, ...], said: str, run: Run) -> None:
    done = run("api-key", *arguments)
    assert done.code == 2
    assert said in done.err


def test_an_unknown_id_changes_nothing(run: Run) -> None:
    created(run)
    before = run("api-key", "list", *STORE).out
    assert run("api-key", "revoke", *STORE, "a2a_000000000000").code == 2
    assert run("api-key", "rotate", *STORE, "a2a_000000000000").code == 2
    assert run("api-key", "list", *STORE).out == before


def test_a_store_out_of_reach_is_an_error_of_input(run: Run, tmp_path: Path) -> None:
    (tmp_path / "keys.db").mkdir()
    done = run("api-key", "create", *STORE, "--owner", "alice", "--json")
    assert (done.code, done.json["error"]["class"]) == (6, "input-output")
    assert run("api-key", "create", "--store", "no/such/keys.db", "--owner", "alice").code == 6
