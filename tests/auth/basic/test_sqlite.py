"""Passwords in SQLite: what one process changes counts in another, and damage lets nobody in."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from a2a_trust.auth.basic.records import PasswordStore
from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.record_table import SqliteApiKeys, SqlitePasswords
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError
from tests.auth.api_key.test_verifier import Clock
from tests.auth.basic.test_verifier import GOOD, PASSWORD, RECORD, basic

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store = SqlitePasswords(tmp_path / "passwords.db", create=True)
    with store._writing() as table:
        table.put(RECORD)
    return tmp_path / "passwords.db"


async def test_records_are_kept_whole(path: Path) -> None:
    store: PasswordStore = SqlitePasswords(path)
    expected = replace(RECORD, user="René", expires=RECORD.created + 5, revoked=RECORD.created + 1)
    with SqlitePasswords(path)._writing() as table:
        table.put(expected)
    found = await store.find(("René", "nobody", "ann"))
    assert found.records == (expected, RECORD)
    assert [record.hash for record in found.records] == [RECORD.hash] * 2
    assert SqlitePasswords(path).records() == (expected, RECORD)  # of one moment, by name


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE password SET revoked = 1.0",
        "DELETE FROM password",
        "UPDATE password SET hash = replace(hash, '$', '!')",
        "UPDATE password SET user = 'bob'",
        "UPDATE password SET expires = 5.0",
        "UPDATE password SET scopes = 'a \"'",
    ],
)
async def test_a_change_by_hand_counts_within_the_refresh(change: str, path: Path) -> None:
    clock = Clock()
    verifier = BasicVerifier(SqlitePasswords(path), clock=clock)
    with SqlitePasswords(path)._writing() as table:
        table.put(replace(RECORD, user="eve"))
    await verifier.verify(GOOD, RECORD.created)
    with SqlitePasswords(path)._file.writing() as connection:
        connection.execute(f"{change} WHERE user = 'ann'")
    await verifier.verify(GOOD, RECORD.created)
    clock.at += 2
    await verifier.verify(basic("eve", PASSWORD), RECORD.created)  # confirms all records if nothing seems changed
    with pytest.raises(InvalidCredentialsError):
        await verifier.verify(GOOD, time.time())


async def test_a_rotation_in_another_process_counts_at_once_and_within_the_refresh(path: Path) -> None:
    clock = Clock()
    verifier = BasicVerifier(SqlitePasswords(path), clock=clock)
    await verifier.verify(GOOD, time.time())
    program = "import sys; from a2a_trust.auth import SqlitePasswords as S; print(S(sys.argv[1]).rotate('ann').text)"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert (await verifier.verify(basic("ann", done.stdout.strip()), time.time())).subject == "ann"
    clock.at += 2
    with pytest.raises(InvalidCredentialsError):
        await verifier.verify(GOOD, time.time())


async def test_a_server_needs_no_right_to_write(path: Path) -> None:
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        assert (await BasicVerifier(SqlitePasswords(path)).verify(GOOD, time.time())).subject == "ann"
    finally:
        path.parent.chmod(0o700)


async def test_a_store_that_vanished_admits_nobody(path: Path) -> None:
    verifier = BasicVerifier(SqlitePasswords(path))
    path.unlink()
    with pytest.raises(KeySourceUnavailableError):
        await verifier.verify(GOOD, time.time())


def test_a_file_that_is_no_store_of_passwords_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a2a-sign password create"):
        SqlitePasswords(tmp_path / "none.db")
    SqliteApiKeys(tmp_path / "keys.db", create=True)
    with pytest.raises(ConfigurationError, match="is not a valid password store"):
        SqlitePasswords(tmp_path / "keys.db")


def test_no_password_is_in_the_file(path: Path) -> None:
    text = SqlitePasswords(path).create(user="bob").text
    content = path.read_bytes()
    assert text.encode() not in content
    assert PASSWORD.encode() not in content
