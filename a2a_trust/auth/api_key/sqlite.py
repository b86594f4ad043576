"""API keys in an SQLite file: the embedded store, which several processes of one machine may share.

How they share it is in ``base.files.sqlite``, how it is read in ``record_table``. Keys are looked up by digest, so a
look-up costs the same however many there are. ``revision`` changes with every change except of a last use.

Servers need the right to read only; without the right to write, last uses are not kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from a2a_trust.auth.api_key.verifier import ApiKeyRecord, ApiKeyWrites
from a2a_trust.auth.record_table import RecordsInTable, RecordTable, SqliteStore, store_file
from a2a_trust.base.files.sqlite import revision_of

COLUMNS: Final = "id, digest, owner, scopes, created, expires, revoked, replaced_by, imported, last_used"

_TABLES: Final = f"""
CREATE TABLE api_key (
    id TEXT NOT NULL PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (typeof(digest) = 'blob' AND length(digest) = 32),
    owner TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created REAL NOT NULL CHECK (typeof(created) = 'real'),
    expires REAL NOT NULL CHECK (typeof(expires) = 'real'),
    revoked REAL CHECK (typeof(revoked) IN ('real', 'null')),
    replaced_by TEXT,
    imported INTEGER NOT NULL CHECK (imported IN (0, 1)),
    last_used REAL CHECK (typeof(last_used) IN ('real', 'null'))
);
CREATE INDEX api_key_owner ON api_key (owner);
{revision_of("api_key", COLUMNS.removesuffix(", last_used"))}"""

_USES: Final = 100
"""Last uses of one transaction: few enough that readers hardly wait for it."""


def api_key_table(name: str) -> RecordTable[ApiKeyRecord]:
    changing = "expires, revoked, replaced_by"
    return RecordTable(name, COLUMNS, _record_of, members=f"key_{COLUMNS}", key="digest", changing=changing)


def _record_of(*, imported: int, **members: Any) -> ApiKeyRecord:
    return ApiKeyRecord(imported=bool(imported), **members)


class ApiKeysInTable(RecordsInTable[ApiKeyRecord], ApiKeyWrites):
    def records(self, *, owner: str | None = None) -> tuple[ApiKeyRecord, ...]:
        """Every readable record, or every one of the owner, with last uses, in order of creation."""
        return self._records() if owner is None else self._records("WHERE owner = $1", owner)


class SqliteApiKeys(SqliteStore[ApiKeyRecord], ApiKeysInTable):
    """The API keys in one SQLite file, for servers (``ApiKeyVerifier(SqliteApiKeys(path))``) and operators alike.

    KeySourceUnavailableError when the file cannot be read or written now.
    """

    _kind = store_file("API key store", application_id=0x41324B79, version=2, tables=_TABLES)  # "A2Ky"
    _first = "make one with its first key: a2a-sign api-key create --store {path} --owner NAME"
    _table = api_key_table("api_key")

    async def touch(self, used: Mapping[str, float]) -> None:
        uses = iter(used.items())
        while some := [*islice(uses, _USES)]:
            await asyncio.to_thread(self._touch, some)

    def _touch(self, used: list[tuple[str, float]]) -> None:
        with self._file.writing() as connection:
            connection.executemany(
                "UPDATE api_key SET last_used = :at WHERE id = :id AND (last_used IS NULL OR last_used < :at)",
                [{"id": key_id, "at": moment} for key_id, moment in used],
            )
