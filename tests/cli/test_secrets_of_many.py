"""API keys and passwords of many owners: made all together or not at all, found by their age, and revoked together."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import time
from base64 import b64encode
from pathlib import Path

import pytest

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier
from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.record_table import SqliteApiKeys, SqlitePasswords
from tests.cli.conftest import COMMAND, Run

pytestmark = pytest.mark.usefixtures("cheap_hashes")

KEYS, PASSWORDS = ("--store", "keys.db"), ("--store", "passwords.db")
OWNERS = ["ann", "bob & co", "Zoë"]


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def index_of(folder: Path) -> list[list[str]]:
    return [line.split("\t") for line in (folder / "index.tsv").read_text("utf-8").splitlines()]


def test_each_owner_gets_a_key_in_a_file_that_does_not_name_it(run: Run, tmp_path: Path) -> None:
    owners = "\n".join(OWNERS).encode()
    done = run("api-key", "create", *KEYS, "--owners-from", "-", "-o", "new", "--scope", "read", stdin=owners)
    assert (done.code, done.out.splitlines()[0]) == (0, "made 3 keys in new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == ["000001", "000002", "000003", "index.tsv"]
    verifier = ApiKeyVerifier(SqliteApiKeys(tmp_path / "keys.db"))
    for file, key_id, owner in index_of(tmp_path / "new"):
        path = tmp_path / "new" / file
        assert path.stat().st_mode & 0o777 == 0o600
        text = path.read_text("ascii").removesuffix("\n")
        identity = asyncio.run(verifier.verify(text, time.time()))
        assert (identity.subject, identity.claims["key_id"], *identity.scopes) == (owner, key_id, "read")
        assert text not in done.out + done.err
    assert [row[2] for row in index_of(tmp_path / "new")] == OWNERS


def test_each_user_gets_a_password_in_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "users.txt").write_text("\n".join(OWNERS) + "\n", "utf-8")
    done = run("password", "create", *PASSWORDS, "--users-from", "users.txt", "-o", "new", "--json")
    assert [each["user"] for each in done.json["passwords"]] == OWNERS
    verifier = BasicVerifier(SqlitePasswords(tmp_path / "passwords.db"))
    for file, user in index_of(tmp_path / "new"):
        text = (tmp_path / "new" / file).read_text("ascii").removesuffix("\n")
        credential = b64encode(f"{user}:{text}".encode()).decode()
        assert asyncio.run(verifier.verify(credential, time.time())).subject == user
        assert text not in done.out + done.err


@pytest.mark.parametrize(
    ("command", "owners", "said"),
    [
        (("api-key", *KEYS, "--owners-from"), "ann\nbob\nann\n", "name 1 occurs 2 times"),
        (("api-key", *KEYS, "--owners-from"), "ann\n bob\n", "name 2: API key: the owner"),
        (("api-key", *KEYS, "--owners-from"), "ann\u2028bob\n", "name 1: API key: the owner"),
        (("api-key", *KEYS, "--owners-from"), "\ufeffann\n", "name 1: API key: the owner"),
        (("api-key", *KEYS, "--owners-from"), "Zo\udcff\n", "name 1: API key: the owner"),
        (("api-key", *KEYS, "--owners-from"), "\n", "no names"),
        (("password", *PASSWORDS, "--users-from"), "ann\nbob\nann\n", "name 1 occurs 2 times"),
        (("password", *PASSWORDS, "--users-from"), "ann\nb:b\n", "name 2: password: the user name"),
    ],
)
def test_one_wrong_name_leaves_nothing_behind(
    command: tuple[str, ...], owners: str, said: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "names.txt").write_text(owners, "utf-8", "surrogateescape")
    name, *arguments = command
    done = run(name, "create", *arguments, "names.txt", "-o", "new")
    assert (done.code, said in done.err) == (2, True)
    assert names_in(tmp_path) == ["names.txt"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("api-key", "create", *KEYS, "--owner", " "),
        ("api-key", "create", *KEYS, "--owner", "ann", "--scope", 'a"b'),
        ("api-key", "create", *KEYS, "--owner", "ann", "--prefix", "A"),
        ("api-key", "create", *KEYS, "--owner", "ann", "--output", "new"),
        ("api-key", "create", *KEYS, "--owners-from", "-"),
        ("api-key", "import", *KEYS, "--owner", "ann"),
        ("password", "create", *PASSWORDS, "--user", " ann"),
        ("password", "create", *PASSWORDS, "--user", "ann", "--output", "new"),
        ("password", "import", *PASSWORDS, "--user", "ann"),
    ],
)
def test_a_wrong_argument_makes_no_store(arguments: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    assert run(*arguments, stdin=b"short").code == 2
    assert names_in(tmp_path) == []


def test_an_owner_with_a_valid_key_stops_all_and_no_secret_stays(run: Run, tmp_path: Path) -> None:
    assert run("api-key", "create", *KEYS, "--owner", "bob").code == 0
    assert run("password", "create", *PASSWORDS, "--user", "bob").code == 0
    for command, store, option in (("api-key", KEYS, "--owners-from"), ("password", PASSWORDS, "--users-from")):
        done = run(command, "create", *store, option, "-", "-o", "new", stdin=b"ann\nbob\n")
        assert done.code == 2
        assert "'bob' has a " in done.err
    assert names_in(tmp_path) == ["keys.db", "passwords.db"]
    assert [record.owner for record in SqliteApiKeys(tmp_path / "keys.db").records()] == ["bob"]
    assert [record.user for record in SqlitePasswords(tmp_path / "passwords.db").records()] == ["bob"]


def test_a_store_that_cannot_be_written_leaves_no_secret(run: Run, tmp_path: Path) -> None:
    (tmp_path / "keys.db").write_text("not a store")
    done = run("api-key", "create", *KEYS, "--owners-from", "-", "-o", "new", stdin=b"ann\nbob\n")
    assert (done.code, names_in(tmp_path)) == (2, ["keys.db"])


def test_a_folder_that_exists_is_not_written_to(run: Run, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir(mode=0o755)
    done = run("api-key", "create", *KEYS, "--owners-from", "-", "-o", "new", stdin=b"ann\n")
    assert (done.code, "name a new folder" in done.err) == (2, True)
    assert (names_in(tmp_path), names_in(tmp_path / "new")) == (["new"], [])


def test_a_report_of_many_keys_has_no_key_so_no_terminal_shows_one(tmp_path: Path) -> None:
    (tmp_path / "owners.txt").write_text("ann\n")
    ours, theirs = pty.openpty()
    command = [str(COMMAND), "api-key", "create", *KEYS, "--owners-from", "owners.txt", "-o", "new", "--json"]
    subprocess.run(command, cwd=tmp_path, stdout=theirs, check=True, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 65_536)
    os.close(ours)
    assert (tmp_path / "new" / "000001").read_bytes().strip() not in shown
    assert [key["owner"] for key in json.loads(shown)["keys"]] == ["ann"]


@pytest.mark.long
def test_a_thousand_owners_take_two_seconds(run_process: Run, tmp_path: Path) -> None:
    (tmp_path / "owners.txt").write_text("".join(f"team {number}\n" for number in range(1_000)))
    before = os.times()
    assert run_process("api-key", "create", *KEYS, "--owners-from", "owners.txt", "-o", "new").code == 0
    after = os.times()  # of the processor: other processes use the disk and the cores, too
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    assert seconds < 2


def test_a_team_that_leaves_loses_all_its_keys(run: Run, tmp_path: Path) -> None:
    for owner in ("ann", "ann", "bob"):
        run("api-key", "create", *KEYS, "--owner", owner)
    done = run("api-key", "revoke", *KEYS, "--owner", "ann", "--json")
    assert [key["state"] for key in done.json["keys"]] == ["revoked", "revoked"]
    assert [each.owner for each in SqliteApiKeys(tmp_path / "keys.db").records() if each.revoked is None] == ["bob"]
    assert run("api-key", "revoke", *KEYS, "--owner", "carol").code == 2


def test_a_list_of_ids_is_what_revoke_reads(run: Run, tmp_path: Path) -> None:
    for owner in ("ann", "bob", "carol"):
        run("api-key", "create", *KEYS, "--owner", owner)
    used = SqliteApiKeys(tmp_path / "keys.db")
    asyncio.run(used.touch({used.records(owner="bob")[0].key_id: time.time() + 3_600}))
    unused = run("api-key", "list", *KEYS, "--unused-for", "0m", "-q")
    assert len(unused.out.splitlines()) == 2
    done = run("api-key", "revoke", *KEYS, "-", "-q", stdin=unused.out.encode())
    assert (done.code, done.out, done.err) == (0, "", "")
    assert [each.owner for each in used.records() if each.revoked is None] == ["bob"]


def test_one_unknown_id_of_many_revokes_none(run: Run, tmp_path: Path) -> None:
    run("api-key", "create", *KEYS, "--owner", "ann")
    (record,) = SqliteApiKeys(tmp_path / "keys.db").records()
    done = run("api-key", "revoke", *KEYS, "-", stdin=f"{record.key_id}\na2a_000000000000\n".encode())
    assert (done.code, "number 2 of 2: no key has this id" in done.err) == (2, True)
    assert run("api-key", "revoke", *KEYS, "-").code == 2
    assert run("api-key", "revoke", *KEYS, record.key_id, "--owner", "ann").code == 2
    assert SqliteApiKeys(tmp_path / "keys.db").records() == (record,)
    run("password", "create", *PASSWORDS, "--user", "ann")
    assert run("password", "revoke", *PASSWORDS, "--users-from", "-", stdin=b"ann\nbob\n").code == 2
    assert SqlitePasswords(tmp_path / "passwords.db").records()[0].revoked is None
    assert run("password", "revoke", *PASSWORDS, "--users-from", "-", stdin=b"ann\n").code == 0
    assert SqlitePasswords(tmp_path / "passwords.db").records()[0].revoked is not None


def test_a_list_shows_what_ends_soon(run: Run) -> None:
    for owner, expires in (("soon", "10d"), ("later", "20d")):
        run("api-key", "create", *KEYS, "--owner", owner, "--expires", expires)
        run("password", "create", *PASSWORDS, "--user", owner, "--expires", expires)
    run("api-key", "create", *KEYS, "--owner", "never")
    run("api-key", "create", *KEYS, "--owner", "gone", "--expires", "1d")
    run("api-key", "revoke", *KEYS, "--owner", "gone")
    keys = run("api-key", "list", *KEYS, "--expires-within", "14d", "--json").json["keys"]
    assert [key["owner"] for key in keys] == ["soon"]
    assert run("password", "list", *PASSWORDS, "--expires-within", "14d", "-q").out == "soon\n"
    assert [key["owner"] for key in run("api-key", "list", *KEYS, "--owner", "gone", "--json").json["keys"]] == ["gone"]
    assert run("api-key", "list", *KEYS, "--expires-within", "soon").code == 2
