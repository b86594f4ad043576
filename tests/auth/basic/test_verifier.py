"""Passwords: whom one lets in, how soon a change counts, and what an attempt costs, in counted hashes."""

from __future__ import annotations

import asyncio
import base64
import copy
import logging
import math
import os
import pickle
import time
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from a2a_trust.auth.api_key.verifier import MemoryApiKeys
from a2a_trust.auth.basic.hashing import NOBODY, Hashing, hash_of, is_hash
from a2a_trust.auth.basic.records import MemoryPasswords, PasswordRecord
from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.principal import CredentialKind, Identity
from a2a_trust.auth.record_table import SqlitePasswords
from a2a_trust.auth.records import Found
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MissingCredentialsError,
)
from tests.auth.api_key.test_verifier import Clock
from tests.tables import walk

pytestmark = pytest.mark.anyio

PASSWORD = "correct horse battery staple"
NOW = time.time()
PATH = ("192.0.2.7",)
RECORD = PasswordRecord(
    user="ann", hash=hash_of(PASSWORD), scopes=frozenset({"read"}), created=NOW - 9, changed=NOW - 9
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def basic(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


GOOD = basic("ann", PASSWORD)


class Store(MemoryPasswords):
    """A memory store that counts, and that fails when it is told to."""

    def __init__(self, *records: PasswordRecord) -> None:
        super().__init__(records or [RECORD])
        self.reads = 0
        self.error: Exception | None = None

    async def find(self, users: tuple[str, ...]) -> Found[PasswordRecord]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return await super().find(users)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hashes that passwords were verified against, by the real thing."""
    verified: list[str] = []
    real = Hashing._verify

    def counted(self: Hashing, hash_: str, password: str) -> bool:
        verified.append(hash_)
        return real(self, hash_, password)

    monkeypatch.setattr(Hashing, "_verify", counted)
    return verified


async def rejected(verifier: BasicVerifier, credential: str, now: float = NOW) -> str:
    with pytest.raises(InvalidCredentialsError) as caught:
        await verifier.verify(credential, now)
    return str(caught.value)


# --- whom a password lets in


async def test_a_right_password_gives_the_identity_of_its_record() -> None:
    until = NOW + 60
    identity = await BasicVerifier(Store(replace(RECORD, expires=until)), issuer="staff").verify(GOOD, NOW)
    assert (identity.issuer, identity.subject, identity.scopes) == ("staff", "ann", frozenset({"read"}))
    assert identity.expires_at == until
    assert BasicVerifier.kind is CredentialKind.PASSWORD


@walk(("user", "password"), [("ann", PASSWORD + "x"), ("ann", ""), ("ann", PASSWORD.upper()), ("Ann", PASSWORD)])
async def test_a_wrong_password_or_another_name_lets_nobody_in(user: str, password: str) -> None:
    why = await rejected(BasicVerifier(Store()), basic(user, password))
    assert why == ("Basic: the password of 'ann' is wrong" if user == "ann" else "Basic: the user is unknown")


async def test_a_password_that_is_typed_on_another_machine_is_the_same() -> None:
    store = MemoryPasswords()
    store.import_password("cafe\u0301 au lait, s'il vous plaît", user="Rene\u0301")
    verifier = BasicVerifier(store)
    for form in ("Ren\u00e9:caf\u00e9 au lait, s'il vous plaît", "Rene\u0301:cafe\u0301 au lait, s'il vous plaît"):
        identity = await verifier.verify(base64.b64encode(form.encode()).decode(), NOW)
        assert identity.subject == "Ren\u00e9"


# --- what an attempt costs


async def test_unknown_revoked_and_expired_users_cost_the_hash_that_others_do(hashed: list[str]) -> None:
    revoked, expired = replace(RECORD, user="bob", revoked=NOW - 1), replace(RECORD, user="eve", expires=NOW)
    verifier = BasicVerifier(Store(RECORD, revoked, expired))
    for user, against in (("ann", RECORD.hash), ("nobody", NOBODY), ("bob", NOBODY), ("eve", NOBODY)):
        hashed.clear()
        await rejected(verifier, basic(user, "wrong"))
        assert hashed == [against]
    for user, why in (("bob", "revoked"), ("eve", "expired")):
        assert why in await rejected(verifier, basic(user, PASSWORD))


def test_the_hash_of_nobody_has_the_parameters_of_everybody() -> None:
    assert NOBODY.split("$")[:4] == RECORD.hash.split("$")[:4]
    assert is_hash(NOBODY)
    assert [len(part) for part in NOBODY.split("$")] == [len(part) for part in RECORD.hash.split("$")]


def test_a_hash_is_made_and_verified_with_the_real_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """All other hashes here are cheap, but for that of RECORD."""
    monkeypatch.undo()
    hashes = Hashing()
    assert hashes._verify(RECORD.hash, PASSWORD)
    assert not hashes._verify(RECORD.hash, "wrong")
    assert not hashes._verify(NOBODY, PASSWORD)


async def test_a_right_password_is_hashed_once_in_five_minutes(hashed: list[str]) -> None:
    clock = Clock()
    verifier = BasicVerifier(Store(), clock=clock)
    for _ in range(3):
        await verifier.verify(GOOD, NOW)
    assert len(hashed) == 1
    clock.at += 299
    await verifier.verify(GOOD, NOW)
    assert len(hashed) == 1
    clock.at += 1
    await verifier.verify(GOOD, NOW)
    assert len(hashed) == 2


async def test_wrong_passwords_are_not_remembered_and_change_nothing(hashed: list[str]) -> None:
    verifier = BasicVerifier(Store())
    await verifier.verify(GOOD, NOW)
    for _ in range(2):
        await rejected(verifier, basic("ann", "wrong"))
    assert len(hashed) == 3
    await verifier.verify(GOOD, NOW)
    assert len(hashed) == 3


async def test_what_is_remembered_is_of_one_user(hashed: list[str]) -> None:
    verifier = BasicVerifier(Store(RECORD, replace(RECORD, user="an"), replace(RECORD, user="bob")))
    await verifier.verify(GOOD, NOW)
    await verifier.verify(basic("bob", PASSWORD), NOW)
    await rejected(verifier, basic("an", f"n{PASSWORD}"))
    assert len(hashed) == 3


async def test_the_same_password_at_once_is_hashed_once(hashed: list[str]) -> None:
    verifier = BasicVerifier(Store())
    found = await asyncio.gather(*(verifier.verify(GOOD, NOW) for _ in range(50)))
    assert {identity.subject for identity in found} == {"ann"}
    assert len(hashed) == 1


@pytest.mark.parametrize("credential", ["", "YW5u", basic("ann", "x" * 1025), basic("a" * 257, "x"), "YW5uOnh="])
async def test_what_is_malformed_is_neither_hashed_nor_looked_up(credential: str, hashed: list[str]) -> None:
    store = Store()
    await rejected(BasicVerifier(store), credential)
    assert (hashed, store.reads) == ([], 0)


async def test_who_comes_when_too_many_wait_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, pool = Event(), Hashing()
    monkeypatch.setattr(Hashing, "_verify", lambda self, hash_, password: gate.wait(60))
    waiting = [asyncio.create_task(pool.is_right(NOBODY, "x", PATH)) for _ in range(66)]
    await asyncio.sleep(0)
    for _ in range(3):
        with pytest.raises(KeySourceUnavailableError, match="too many passwords wait"):
            await pool.is_right(NOBODY, "x", PATH)
    waiting[-1].cancel()  # one that has not begun makes room
    await asyncio.wait([waiting[-1]])
    last = asyncio.create_task(pool.is_right(NOBODY, "x", PATH))
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(*waiting[:-1], last) == [True] * 66
    assert (pool._running, len(pool._waiting)) == (0, 0)


@pytest.mark.parametrize("error", [MemoryError("secret"), ValueError("secret"), RuntimeError("secret")])
async def test_a_hash_that_cannot_be_computed_is_an_outage(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def verify(self, hash_: str, password: str) -> bool:
            raise error

    pool: Any = Hashing()
    pool._hasher = Broken()
    with pytest.raises(KeySourceUnavailableError) as caught:
        await pool.is_right(NOBODY, "secret", PATH)
    assert type(error).__name__ in caplog.text
    assert "secret" not in f"{caught.value}{caplog.text}"
    assert (pool._running, len(pool._waiting)) == (0, 0)


async def test_where_no_thread_can_be_started_it_is_an_outage() -> None:
    pool = Hashing()
    pool._threads.shutdown()
    with pytest.raises(KeySourceUnavailableError):
        await pool.is_right(NOBODY, "x", PATH)
    assert (pool._running, len(pool._waiting)) == (0, 0)


async def test_a_forked_child_hashes_in_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Hashing()
    pool._threads.shutdown()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert await pool.is_right(RECORD.hash, PASSWORD, PATH)


# --- how soon a change counts


async def test_a_revoked_password_is_rejected_within_the_refresh(hashed: list[str]) -> None:
    store, clock = Store(), Clock()
    verifier = BasicVerifier(store, clock=clock)
    await verifier.verify(GOOD, NOW)
    store.revoke("ann")
    clock.at += 2
    assert "revoked" in await rejected(verifier, GOOD)


async def test_a_changed_password_ends_the_old_one_although_it_was_remembered() -> None:
    store, clock = Store(), Clock()
    verifier = BasicVerifier(store, clock=clock)
    await verifier.verify(GOOD, NOW)
    new = store.rotate("ann").text
    assert (await verifier.verify(basic("ann", new), time.time())).subject == "ann"  # at once
    assert "wrong" in await rejected(verifier, GOOD)
    clock.at += 2
    assert "wrong" in await rejected(verifier, GOOD)
    assert (await verifier.verify(basic("ann", new), time.time())).subject == "ann"


async def test_without_a_new_password_the_old_one_ends_within_the_refresh() -> None:
    store, clock = Store(), Clock()
    verifier = BasicVerifier(store, clock=clock)
    await verifier.verify(GOOD, NOW)
    store.rotate("ann")
    clock.at += 2
    assert "wrong" in await rejected(verifier, GOOD)


async def test_a_user_who_was_revoked_and_created_again_is_known_at_once() -> None:
    store = Store()
    verifier = BasicVerifier(store)
    store.revoke("ann")
    assert "revoked" in await rejected(verifier, GOOD)
    issued = store.create(user="ann")
    assert issued.replaces is not None
    assert (await verifier.verify(basic("ann", issued.text), time.time())).scopes == frozenset()


async def test_a_password_that_expires_is_rejected_although_it_was_remembered() -> None:
    verifier = BasicVerifier(Store(replace(RECORD, expires=NOW + 10)))
    await verifier.verify(GOOD, NOW)
    assert "expired" in await rejected(verifier, GOOD, NOW + 10)


async def test_while_the_store_is_out_of_reach_nobody_can_tell_what_is_not_in_memory(
    hashed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    store, clock = Store(), Clock()
    verifier = BasicVerifier(store, clock=clock)
    await verifier.verify(GOOD, NOW)
    store.error = OSError("secret")
    clock.at += 10
    assert (await verifier.verify(GOOD, NOW)).subject == "ann"
    hashed.clear()
    for user, against in (("ann", RECORD.hash), ("nobody", NOBODY)):  # an outage does not tell who there is
        with pytest.raises(KeySourceUnavailableError):
            await verifier.verify(basic(user, "wrong"), NOW)
        assert hashed.pop() == against
    clock.at += 30
    with pytest.raises(KeySourceUnavailableError):
        await verifier.verify(GOOD, NOW)
    assert "the passwords could not be read: OSError" in caplog.text
    assert "secret" not in caplog.text


class OddStore(Store):
    """A store whose author did not think of one name, or returns something else for another."""

    async def find(self, users: tuple[str, ...]) -> Any:
        if "odd" in users:
            raise ValueError(f"secret {users}")
        if "other" in users:
            return (await super().find(users))._replace(records=("secret",))  # type: ignore[arg-type]
        return await super().find(users)


async def test_a_name_that_the_store_fails_for_keeps_nobody_else_out(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = OddStore(), Clock()
    verifier = BasicVerifier(store, clock=clock)
    for _ in range(2):  # alone, and with others in one look-up
        for name in ("odd", "other"):
            with pytest.raises(KeySourceUnavailableError, match="the store fails for this key") as caught:
                await verifier.verify(basic(name, PASSWORD), NOW)
            assert caught.value.counts_as_failure
            clock.at += 10  # the record of ann is to be read again
            assert (await verifier.verify(GOOD, NOW)).subject == "ann"
    names = ["odd", "ann", "other", "nobody"]
    found = await asyncio.gather(
        *(verifier.verify(basic(name, PASSWORD), NOW) for name in names), return_exceptions=True
    )
    assert [type(each) for each in found] == [
        KeySourceUnavailableError,
        Identity,
        KeySourceUnavailableError,
        InvalidCredentialsError,
    ]
    clock.at += 60
    with pytest.raises(KeySourceUnavailableError):
        await verifier.verify(basic("odd", PASSWORD), NOW)
    assert [record.message for record in caplog.records] == [
        "one record of the passwords could not be read: ValueError"
    ] * 2, "at most one line a minute"


@walk("age", [0, 1, 2, 10, 40])
async def test_a_wrong_password_costs_one_look_up_whatever_is_known_of_the_name(age: float) -> None:
    """A new password of the user counts at once all the same."""
    store, clock = Store(RECORD, replace(RECORD, user="bob", revoked=NOW - 1)), Clock()
    verifier = BasicVerifier(store, clock=clock)
    for name in ("ann", "nobody", "bob", "ann", "nobody", "bob"):  # the second time they are known
        clock.at += age
        store.reads = 0
        await rejected(verifier, basic(name, "wrong"))
        await asyncio.sleep(0)  # one in the background would begin now
        assert store.reads == 1, name


# --- what limits of failures ask


async def test_a_password_is_remembered_for_five_minutes() -> None:
    store, clock = Store(), Clock()
    verifier = BasicVerifier(store, clock=clock)
    assert not verifier.is_remembered(GOOD, NOW)
    await verifier.verify(GOOD, NOW)
    await rejected(verifier, basic("ann", "wrong"))
    assert verifier.is_remembered(GOOD, NOW)
    for other in (basic("ann", "wrong"), basic("nobody", PASSWORD), "?"):
        assert not verifier.is_remembered(other, NOW)
    clock.at += 300
    assert not verifier.is_remembered(GOOD, NOW)


# --- functions


async def test_a_function_gets_the_name_and_the_password_and_gives_the_identity() -> None:
    asked = []

    async def known(user: str, password: str) -> Identity | None:
        asked.append((user, password))
        return Identity(issuer="directory", subject=user) if password == "a:b" else None

    verifier = BasicVerifier(known)
    for _ in range(2):
        assert (await verifier.verify(basic("ann", "a:b"), NOW)).issuer == "directory"
    assert asked == [("ann", "a:b")] * 2  # nothing is remembered
    assert "the function says" in await rejected(verifier, basic("ann", "b"))
    assert not verifier.is_remembered(basic("ann", "a:b"), NOW)


@pytest.mark.parametrize(
    "error",
    [
        OSError(PASSWORD),
        TimeoutError(PASSWORD),
        KeySourceUnavailableError(PASSWORD),
        MissingCredentialsError(PASSWORD),
        TypeError(PASSWORD),
        KeyError(PASSWORD),
    ],
)
async def test_a_function_that_raises_cannot_tell(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def failing(user: str, password: str) -> Identity | None:
        raise error

    caplog.set_level(logging.DEBUG)
    with pytest.raises(KeySourceUnavailableError) as caught:
        await BasicVerifier(failing).verify(GOOD, NOW)
    assert caught.value.counts_as_failure is not isinstance(error, OSError | KeySourceUnavailableError)
    assert f"the function raised {type(error).__name__}" in caplog.text
    assert PASSWORD not in f"{caught.value}{caplog.text}"


async def test_a_function_may_also_raise_that_a_password_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    async def failing(user: str, password: str) -> Identity | None:
        raise InvalidCredentialsError(PASSWORD)

    caplog.set_level(logging.DEBUG)
    with pytest.raises(InvalidCredentialsError, match="the function says that") as caught:
        await BasicVerifier(failing).verify(GOOD, NOW)
    assert PASSWORD not in f"{caught.value}{caught.value.__cause__}{caplog.text}"


@walk("answer", [True, "ann", {"subject": "ann"}, False, 0, ""])
async def test_a_function_that_returns_something_else_lets_nobody_in(answer: Any) -> None:
    async def other(user: str, password: str) -> Any:
        return answer

    with pytest.raises(TypeError, match=f"returned {type(answer).__name__}; return an Identity, or None"):
        await BasicVerifier(other).verify(GOOD, NOW)


@pytest.mark.parametrize("answer", [None, Identity(issuer="i", subject="ann")])
async def test_a_function_is_async(answer: Any) -> None:
    def other(user: str, password: str) -> Any:
        return answer

    with pytest.raises(TypeError, match="write async def"):
        await BasicVerifier(other).verify(GOOD, NOW)


# --- what does not start


@walk("source", ["passwords.db", None, MemoryPasswords, MemoryApiKeys(), RECORD])
def test_what_is_no_source_does_not_start(source: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"write BasicVerifier\(SqlitePasswords\('passwords.db'\)\)"):
        BasicVerifier(source)


@walk(
    "options", [{"issuer": ""}, {"refresh": 0}, {"refresh": 31.0}, {"stale_if_error": math.inf}, {"refresh": math.nan}]
)
def test_options_that_make_no_sense_do_not_start(options: Any) -> None:
    with pytest.raises(ConfigurationError):
        BasicVerifier(Store(), **options)


# --- what operators do


def test_a_new_password_can_be_typed_and_not_be_guessed() -> None:
    store = MemoryPasswords()
    texts = [store.create(user=f"u{number}").text for number in range(20)]
    groups = [group for text in texts for group in text.split("-")]
    assert {len(text) for text in texts} == {34}
    assert {len(group) for group in groups} == {4}
    letters = set("".join(groups))
    assert letters <= set("23456789abcdefghjkmnpqrstuvwxyz")
    assert len(letters) == 31
    assert len(set(texts)) == 20


@walk("text", ["x" * 14, "", "x" * 1025, "x" * 20 + "\n", "x" * 20 + "\0", "e\u0301" * 14])
def test_a_password_that_is_short_long_or_odd_is_not_imported(text: str) -> None:
    store = MemoryPasswords()
    with pytest.raises(ConfigurationError, match="15 characters to 1024 bytes") as caught:
        store.import_password(text, user="ann")
    assert store.records() == ()
    assert not text or text not in str(caught.value)


@walk("user", ["", "a:b", " ann", "ann ", "an\tn", "x" * 257, "a\u200bb"])
def test_a_user_name_has_one_spelling(user: str) -> None:
    with pytest.raises(ConfigurationError, match="user name"):
        MemoryPasswords().create(user=user)


def test_a_user_has_one_password() -> None:
    store = MemoryPasswords([RECORD])
    for another in (lambda: store.create(user="ann"), lambda: store.import_password(PASSWORD, user="ann")):
        with pytest.raises(ConfigurationError, match="rotate it, or revoke it first"):
            another()
    assert store.records() == (RECORD,)
    with pytest.raises(ConfigurationError, match="two passwords are of the user 'ann'"):
        MemoryPasswords([RECORD, replace(RECORD)])


def test_a_rotation_keeps_the_lifetime_and_the_scopes() -> None:
    store = MemoryPasswords([replace(RECORD, expires=NOW + 1000)])
    record = store.rotate("ann").record
    assert record.expires - record.changed == pytest.approx(1009)
    assert (record.scopes, record.created) == (RECORD.scopes, RECORD.created)
    with pytest.raises(ConfigurationError, match="in the past"):
        store.rotate("ann", expires=NOW - 1)
    store.revoke("ann")
    with pytest.raises(ConfigurationError, match="create a new one instead"):
        store.rotate("ann")
    with pytest.raises(ConfigurationError, match="no user has this name"):
        store.rotate("nobody")


def test_a_password_that_nobody_saw_is_taken_back_and_a_later_one_is_not() -> None:
    store = MemoryPasswords()
    first = store.create(user="ann")
    store.take_back(first)
    assert store.records()[0].revoked is not None
    kept = store.create(user="ann").record
    unseen = store.rotate("ann")
    store.take_back(unseen)
    assert store.records() == (kept,)
    unseen = store.rotate("ann")
    later = store.rotate("ann").record
    store.take_back(unseen)
    assert store.records() == (later,)


@pytest.mark.parametrize("is_file", [False, True])
def test_a_user_who_is_revoked_before_a_password_is_taken_back_stays_revoked(tmp_path: Path, is_file: bool) -> None:
    store = SqlitePasswords(tmp_path / "passwords.db", create=True) if is_file else MemoryPasswords()
    store.create(user="ann", scopes=["read"], expires=time.time() + 90.1)
    unseen = store.rotate("ann")  # its output hangs, and meanwhile another operator acts
    revoked = store.revoke("ann")
    store.take_back(unseen)
    assert store.records() == (revoked,)
    unseen = store.create(user="ann", scopes=["read", "write"], expires=time.time() + 90.1)
    store.take_back(unseen)
    assert store.records() == (revoked,), "and one that is as it was made is taken back"


def test_a_record_shows_no_hash_and_an_issued_password_no_text() -> None:
    issued = MemoryPasswords().create(user="ann")
    assert issued.text not in repr(issued)
    assert "argon2" not in repr(issued)
    for action in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="is not pickled or copied"):
            action(issued)


@walk(
    "wrong",
    [
        {"hash": "secret"},
        {"hash": RECORD.hash.replace("t=3", "t=1")},
        {"hash": RECORD.hash.replace("m=65536", "m=4294967295")},
        {"hash": RECORD.hash.replace("argon2id", "argon2i")},
        {"hash": RECORD.hash + "\n"},
        {"hash": b"x"},
        {"user": "Rene\u0301"},
        {"scopes": frozenset({"a b"})},
        {"created": -1.0},
        {"expires": 1e15},
    ],
)
def test_a_record_that_is_not_one_of_ours_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="password: "):
        replace(RECORD, **wrong)
