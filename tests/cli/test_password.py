"""``a2a-sign password``: the life of passwords as an operator lives it; each is shown once and never an argument."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import subprocess
import sys
import time
from base64 import b64encode
from contextlib import ExitStack
from pathlib import Path

import pytest

from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.principal import Identity
from a2a_trust.auth.record_table import SqlitePasswords
from a2a_trust.errors import InvalidCredentialsError
from tests.cli.conftest import COMMAND, Run

pytestmark = pytest.mark.usefixtures("cheap_hashes")

CHOSEN = "correct horse battery staple"
STORE = ("--store", "passwords.db")


def verified(folder: Path, user: str, password: str, now: float | None = None) -> Identity:
    """What a server with this store proves by the password."""
    verifier = BasicVerifier(SqlitePasswords(folder / "passwords.db"))
    credential = b64encode(f"{user}:{password}".encode()).decode()
    return asyncio.run(verifier.verify(credential, time.time() if now is None else now))


def created(run: Run, *arguments: str, user: str = "ann") -> str:
    done = run("password", "create", *STORE, "--user", user, *arguments)
    assert done.code == 0, done.err
    return done.out.removesuffix("\n")


def test_a_new_password_goes_alone_to_standard_output_and_lets_its_user_in(run_process: Run, tmp_path: Path) -> None:
    done = run_process("password", "create", *STORE, "--user", "ann", "--scope", "read", "--scope", "write")
    password = done.out.removesuffix("\n")
    assert (done.code, "shown only now" in done.err, password in done.err) == (0, True, False)
    assert re.fullmatch(r"[2-9a-z]{4}(-[2-9a-z]{4}){6}", password)
    identity = verified(tmp_path, "ann", password)
    assert (identity.issuer, identity.subject, identity.scopes) == ("passwords", "ann", frozenset({"read", "write"}))
    assert (tmp_path / "passwords.db").stat().st_mode & 0o777 == 0o600
    kept = (tmp_path / "passwords.db").read_bytes()
    assert password.encode() not in kept
    assert b"$argon2id$v=19$m=65536,t=3,p=4$" in kept


def test_a_report_in_json_has_the_password_and_all_that_is_kept(run: Run, tmp_path: Path) -> None:
    done = run("password", "create", *STORE, "--user", "ann", "--expires", "90d", "--json")
    assert done.err == ""
    assert (done.json["command"], done.json["ok"], done.json["user"]) == ("password create", True, "ann")
    until = verified(tmp_path, "ann", done.json["password"]).expires_at
    assert until == pytest.approx(time.time() + 90 * 86_400, abs=60)


def test_a_list_names_users_and_shows_no_secret(run: Run, tmp_path: Path) -> None:
    first, second = created(run), created(run, "--expires", "1h", "--scope", "read", user="bob")
    run("password", "import", *STORE, "--user", "eve", stdin=CHOSEN.encode())
    run("password", "revoke", *STORE, "--user", "ann")
    listed, report = run("password", "list", *STORE), run("password", "list", *STORE, "--json")
    assert [line.split()[:2] for line in listed.out.splitlines()] == [
        ["USER", "STATE"],
        ["ann", "revoked"],
        ["bob", "valid"],
        ["eve", "valid"],
    ]
    assert [entry["expires"] is None for entry in report.json["passwords"]] == [True, False, True]
    told = listed.out + listed.err + report.out + report.err
    assert not [secret for secret in (first, second, CHOSEN, "argon2") if secret in told]


def test_a_record_that_was_made_by_hand_is_named_and_hinders_nobody(run: Run, tmp_path: Path) -> None:
    password = created(run)
    created(run, user="bob")
    with SqlitePasswords(tmp_path / "passwords.db")._file.writing() as connection:
        connection.execute("UPDATE password SET hash = 'secret' WHERE user = 'bob'")
    listed, report = run("password", "list", *STORE), run("password", "list", *STORE, "--json")
    assert "bob is rejected, because the record is unreadable: password: the hash is not argon2id" in listed.err
    assert [entry["user"] for entry in report.json["unreadable"]] == ["bob"]
    assert verified(tmp_path, "ann", password).subject == "ann"
    with pytest.raises(InvalidCredentialsError):
        verified(tmp_path, "bob", "secret")
    assert "secret" not in listed.out + listed.err + report.out


def test_a_rotation_ends_the_old_password_at_once(run: Run, tmp_path: Path) -> None:
    old = created(run, "--scope", "read")
    done = run("password", "rotate", *STORE, "--user", "ann")
    new = done.out.removesuffix("\n")
    assert done.code == 0
    assert verified(tmp_path, "ann", new).scopes == {"read"}
    with pytest.raises(InvalidCredentialsError, match="wrong"):
        verified(tmp_path, "ann", old)


def test_a_revoked_password_lets_nobody_in_until_there_is_a_new_one(run: Run, tmp_path: Path) -> None:
    old = created(run)
    assert run("password", "revoke", *STORE, "--user", "ann").code == 0
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        verified(tmp_path, "ann", old)
    done = run("password", "create", *STORE, "--user", "ann")
    assert "both name the same caller" in done.err
    assert verified(tmp_path, "ann", done.out.removesuffix("\n")).subject == "ann"


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_password_is_imported_from_standard_input_or_a_file(ending: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "ann.txt").write_bytes(f" {CHOSEN} é{ending}".encode())
    from_file = run("password", "import", *STORE, "--user", "ann", "ann.txt")
    from_stdin = run("password", "import", *STORE, "--user", "bob", "-", stdin=f"{CHOSEN}2{ending}".encode())
    assert (from_file.code, from_stdin.code) == (0, 0)
    assert verified(tmp_path, "ann", f" {CHOSEN} é").subject == "ann"
    assert verified(tmp_path, "bob", f"{CHOSEN}2").subject == "bob"
    assert CHOSEN not in from_file.out + from_file.err + from_stdin.out + from_stdin.err


@pytest.mark.parametrize("content", [b"", b"x" * 14, b"x" * 1025, b"x" * 40 + b"\n\n", b"x" * 40 + b"\xff"])
def test_what_is_no_password_is_not_imported(content: bytes, run: Run, tmp_path: Path) -> None:
    done = run("password", "import", *STORE, "--user", "ann", "--json", stdin=content)
    assert (done.code, done.json["error"]["class"]) == (2, "usage")
    assert "password is" in done.json["error"]["message"]
    assert "xxxx" not in done.out + done.err


@pytest.mark.skipif(sys.platform == "win32", reason="no such terminals")
@pytest.mark.parametrize("second", [CHOSEN, "another one of them"])
def test_a_password_is_typed_twice_and_shown_by_no_terminal(second: str, tmp_path: Path) -> None:
    terminal, inner = pty.openpty()
    command = [str(COMMAND), "password", "import", *STORE, "--user", "ann"]
    with (
        subprocess.Popen(
            command, cwd=tmp_path, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
        ) as process,
        ExitStack() as stack,
    ):
        os.close(inner)
        stack.callback(process.kill)  # when what is awaited does not come
        shown = ""
        for prompt, typed in (("Password to import: ", CHOSEN), ("Once more: ", second)):
            while prompt not in shown:
                shown += os.read(terminal, 1024).decode()
            os.write(terminal, f"{typed}\n".encode())
        try:
            while more := os.read(terminal, 1024):
                shown += more.decode()
        except OSError:
            pass  # the other end is closed
        code = process.wait(60)
    os.close(terminal)
    assert CHOSEN not in shown
    if second == CHOSEN:
        assert (code, verified(tmp_path, "ann", CHOSEN).subject) == (0, "ann")
    else:
        assert (code, "the two passwords differ" in shown, (tmp_path / "passwords.db").exists()) == (2, True, False)


def test_a_password_that_is_given_as_an_argument_is_neither_taken_nor_repeated(run: Run, tmp_path: Path) -> None:
    created(run)
    imported = run("password", "import", *STORE, "--user", "bob", CHOSEN)
    assert (imported.code, "never the password itself" in imported.err) == (6, True)
    revoked = run("password", "revoke", *STORE, "--user", CHOSEN)
    assert revoked.code == 2
    assert CHOSEN not in imported.out + imported.err + revoked.out + revoked.err
    with pytest.raises(InvalidCredentialsError):
        verified(tmp_path, "bob", CHOSEN)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", *STORE), "--user"),
        (("create", "--user", "ann"), "--store"),
        (("create", *STORE, "--user", " ann"), "printable"),
        (("create", *STORE, "--user", "a:b"), "colon"),
        (("create", *STORE, "--user", "ann", "--expires", "soon"), "90d"),
        (("create", *STORE, "--user", "ann", "--expires", "0d"), "passed"),
        (("create", *STORE, "--user", "ann", "--scope", "a b"), "scope"),
        (("list", *STORE), "password create"),
        (("rotate", *STORE, "--user", "ann"), "password create"),
        ((), "create"),
    ],
)
def test_wrong_use_is_said_to_be_that(arguments: tuple[str, ...], said: str, run: Run) -> None:
    done = run("password", *arguments)
    assert done.code == 2
    assert said in done.err


def test_a_store_of_something_else_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    run("api-key", "create", "--store", "keys.db", "--owner", "ann")
    before = (tmp_path / "keys.db").read_bytes()
    done = run("password", "create", "--store", "keys.db", "--user", "ann")
    assert (done.code, "not a valid password store" in done.err) == (2, True)
    assert (tmp_path / "keys.db").read_bytes() == before


@pytest.mark.parametrize("action", ["create", "rotate"])
def test_a_new_password_that_nobody_saw_is_taken_back(action: str, tmp_path: Path) -> None:
    store = SqlitePasswords(tmp_path / "passwords.db", create=True)
    old = store.create(user="ann").record if action == "rotate" else None
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [str(COMMAND), "password", action, *STORE, "--user", "ann"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    (record,) = store.records()
    assert done.returncode == 6
    assert "the new password could not be shown (No space left on device)" in done.stderr
    if old is None:
        assert record.revoked is not None
        assert "it was revoked at once" in done.stderr
    else:
        assert record == old
        assert "the old one stays valid" in done.stderr


def test_without_argon2_the_command_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['argon2'] = None; from a2a_trust.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "password", "create", *STORE, "--user", "ann"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert 'pip install "./a2a-trust[server,basic]"' in done.stderr
