"""Passwords: their records, the operator's changes, and the store in memory.

Only a slow hash of a password is stored (``hashing``). New passwords are random: 28 letters and digits that do not look
alike, in groups of four, 138 bits. A password that a person chose can be imported.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from a2a_trust.auth.basic.hashing import hash_of, is_hash
from a2a_trust.auth.basic.user_pass import LONGEST_PASSWORD, is_text, normalize
from a2a_trust.auth.records import (
    Found,
    Issued,
    MemoryStore,
    MemoryTable,
    RecordWrites,
    StoredRecord,
    check_ahead,
    check_moments,
    check_name,
    check_scopes,
    revoke_record,
    scope_set,
)
from a2a_trust.errors import ConfigurationError

_ALPHABET: Final = "23456789abcdefghjkmnpqrstuvwxyz"
_GROUPS, _GROUP = 7, 4
_SHORTEST_IMPORT: Final = 15
"""NIST SP 800-63B-4 3.1.1.2, for passwords that nothing else comes with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordRecord(StoredRecord):
    """The record of a password: enough to verify it, and never the password.

    ``user`` is the caller's name, compared exactly, in Unicode Normalization Form C. ``hash`` is argon2id, in its
    encoded form. Times are seconds since the epoch: the password was set at ``changed``, and ends at ``expires``.
    """

    user: str
    hash: str = field(repr=False)
    changed: float

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.user, self.hash, *self.scopes)):
            raise ConfigurationError("password: user, hash and scopes are text")
        check_name(self.user, "password: the user name")
        if ":" in self.user or self.user != normalize(self.user):
            raise ConfigurationError(
                "password: the user name has a colon (RFC 7617 2), or is not in Unicode Normalization Form C"
            )
        if not is_hash(self.hash):
            raise ConfigurationError("password: the hash is not argon2id with m=65536,t=3,p=4; make a new password")
        check_scopes(self.scopes, "password")
        check_moments("password", self.expires, self.created, self.changed)


class IssuedPassword(Issued[PasswordRecord]):
    """A new password."""

    __slots__ = ()


class PasswordStore(Protocol):
    """The passwords of a verifier. To use another database, write a class with this method."""

    async def find(self, users: tuple[str, ...]) -> Found[PasswordRecord]:
        """The records of these users, at most 100, also revoked and expired ones; unknown names are left out.

        Any exception means that the passwords cannot be read now, or one of them: the verifier then asks for a name
        that no user has. It waits 5 seconds at most.
        """


class PasswordWrites(RecordWrites[PasswordRecord]):
    """The operator's changes of passwords. A user has one password.

    All methods are synchronous and safe in threads; in a running server:
    ``await asyncio.to_thread(store.revoke, user)``. ConfigurationError: an argument is wrong, or the change is not
    possible; nothing was changed.
    """

    _unknown = "no user has this name; list the passwords to see the names"

    def create(self, *, user: str, scopes: Iterable[str] = (), expires: float = math.inf) -> IssuedPassword:
        """A random password for a user who has none, or whose password is revoked or expired."""
        text = _random()
        record, before = self._add(text, user=user, scopes=scopes, expires=expires)
        return IssuedPassword(record, text, before)

    def import_password(
        self, text: str, *, user: str, scopes: Iterable[str] = (), expires: float = math.inf
    ) -> PasswordRecord:
        """Accept a password that a person chose, of 15 characters or more, as ``create`` does one of its own."""
        text = normalize(text)
        if len(text) < _SHORTEST_IMPORT or len(text.encode()) > LONGEST_PASSWORD or not is_text(text):
            raise ConfigurationError(
                f"a password is {_SHORTEST_IMPORT} characters to {LONGEST_PASSWORD} bytes, without control characters "
                "and long runs of combining ones: choose a longer one, as of several words, or make one with create"
            )
        record, _ = self._add(text, user=user, scopes=scopes, expires=expires)
        return record

    def _add(
        self, text: str, *, user: str, scopes: Iterable[str], expires: float
    ) -> tuple[PasswordRecord, PasswordRecord | None]:
        now = time.time()
        check_ahead(expires, now)
        record = PasswordRecord(
            user=normalize(user),
            hash=hash_of(text),
            scopes=scope_set(scopes, "password"),
            created=now,
            changed=now,
            expires=expires,
        )
        return record, self.add([record])[0]

    def add(self, records: Sequence[PasswordRecord]) -> list[PasswordRecord | None]:
        """Add records that another store made: all of them, or none if a user has a valid password.

        Returns the previous record of each user.
        """
        with self._writing() as table:
            before = [table.get(record.user) for record in records]
            for there in filter(None, before):
                if there.is_good(time.time()):
                    raise ConfigurationError(f"user {there.user!a} has a password; rotate it, or revoke it first")
            for record in records:
                table.put(record)
        return before

    def rotate(self, user: str, *, expires: float | None = None) -> IssuedPassword:
        """A new random password for the user, with the same scopes; the old one ends at once.

        It lives as long as the old one was meant to, unless ``expires`` says until when.
        """
        text = _random()
        hashed = hash_of(text)  # before others have to wait for this write
        with self._writing() as table:
            now = time.time()
            old = self._get(table, normalize(user))
            if not old.is_good(now):
                raise ConfigurationError("the user's password is revoked or expired; create a new one instead")
            ends = now + (old.expires - old.changed) if expires is None else expires
            check_ahead(ends, now)
            record = replace(old, hash=hashed, changed=now, expires=ends)
            table.put(record)
        return IssuedPassword(record, text, old)

    def take_back(self, issued: IssuedPassword) -> None:
        """End a password that could not be handed over. The user's record is again as it was before it."""
        with self._writing() as table:
            if self._get(table, issued.record.user) == issued.record:  # else somebody has rotated or revoked it since
                table.put(issued.replaces or revoke_record(issued.record))

    def revoke(self, user: str) -> PasswordRecord:
        """Revoke the user's password: verifiers reject it as soon as they read the store again."""
        return self.revoke_all([normalize(user)])[0]


def _random() -> str:
    return "-".join("".join(secrets.choice(_ALPHABET) for _ in range(_GROUP)) for _ in range(_GROUPS))


class MemoryPasswords(MemoryStore[PasswordRecord], PasswordWrites):
    """Passwords of this process only, gone when it ends: for tests, and for programs that bring their own records."""

    def __init__(self, records: Iterable[PasswordRecord] = ()) -> None:
        """ConfigurationError: two records are of one user."""
        super().__init__(MemoryTable(lambda record: (record.user, record.user)))
        for record in records:
            if self._table.records.setdefault(record.user, record) is not record:
                raise ConfigurationError(f"two passwords are of the user {record.user!r}; drop one")
            self._table.put(record)

    def records(self) -> tuple[PasswordRecord, ...]:
        """Every record, in order of creation."""
        with self._lock:
            return tuple(self._table.records.values())
