"""Passwords in an SQLite file: the embedded store, which several processes of one machine may share.

How they share it is in ``base.files.sqlite``. Servers need the right to read only.
"""

from __future__ import annotations

from typing import Final

from a2a_trust.auth.basic.records import PasswordRecord, PasswordWrites
from a2a_trust.auth.record_table import RecordTable, SqliteStore, store_file
from a2a_trust.base.files.sqlite import revision_of

_COLUMNS: Final = "user, hash, scopes, created, changed, expires, revoked"
_CHANGING: Final = _COLUMNS.removeprefix("user, ")

_TABLES: Final = f"""
CREATE TABLE password (
    user TEXT NOT NULL PRIMARY KEY,
    hash TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created REAL NOT NULL CHECK (typeof(created) = 'real'),
    changed REAL NOT NULL CHECK (typeof(changed) = 'real'),
    expires REAL NOT NULL CHECK (typeof(expires) = 'real'),
    revoked REAL CHECK (typeof(revoked) IN ('real', 'null'))
);
{revision_of("password", _COLUMNS)}"""


class SqlitePasswords(SqliteStore[PasswordRecord], PasswordWrites):
    """The passwords in one SQLite file, for servers (``BasicVerifier(SqlitePasswords(path))``) and operators alike.

    KeySourceUnavailableError when the file cannot be read or written now.
    """

    _kind = store_file("password store", application_id=0x41325077, version=1, tables=_TABLES)  # "A2Pw"
    _first = "make one with its first password: a2a-sign password create --store {path} --user NAME"
    _table = RecordTable("password", _COLUMNS, PasswordRecord, members=_COLUMNS, key="user", changing=_CHANGING)

    def records(self) -> tuple[PasswordRecord, ...]:
        """Every record, in order of creation. Damaged ones are left out."""
        return self._records()
