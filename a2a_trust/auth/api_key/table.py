"""API keys in a table of SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from a2a_trust.auth.api_key.verifier import ApiKeyRecord, ApiKeyWrites
from a2a_trust.auth.record_table import RecordTable, Session

COLUMNS: Final = "id, digest, owner, scopes, created, expires, revoked, replaced_by, imported, last_used"
_MEMBERS: Final = f"key_{COLUMNS}".split(", ")


def record_of(row: Sequence[Any]) -> ApiKeyRecord:
    """The record in a row of ``COLUMNS``. ConfigurationError: it was made or damaged by hand."""
    members = dict(zip(_MEMBERS, row, strict=True))
    scopes = frozenset(members["scopes"].split())  # of bytes, where it is none; no record takes them
    return ApiKeyRecord(**{**members, "scopes": scopes, "imported": bool(members["imported"])})


def row_of(record: ApiKeyRecord) -> tuple[Any, ...]:
    """The values of a record, for ``COLUMNS``."""
    members = {name: getattr(record, name) for name in _MEMBERS}
    return tuple({**members, "scopes": " ".join(sorted(record.scopes))}.values())


class ApiKeysInTable(ApiKeyWrites):
    """The operators' side of the stores in tables."""

    _table: RecordTable[ApiKeyRecord]

    def records(self, *, owner: str | None = None) -> tuple[ApiKeyRecord, ...]:
        """Every record, or every one of the owner, the last uses included, in order of creation.

        Those that ``unreadable`` names are left out.
        """
        return self._table.records() if owner is None else self._table.records("WHERE owner = $1", owner)

    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """The records that were made or damaged by hand, whose keys are rejected: of each its id and what is wrong."""
        return self._table.unreadable()


@dataclass(frozen=True, slots=True)
class WritableApiKeys:
    """The table inside a transaction."""

    session: Session
    table: RecordTable[ApiKeyRecord]

    def get(self, key_id: str) -> ApiKeyRecord | None:
        return self.table.get(self.session, "WHERE id = $1", key_id)

    def id_of(self, digest: bytes) -> str | None:
        rows = self.table.rows(self.session, "WHERE digest = $1", digest)
        return str(rows[0][0]) if rows else None

    def put(self, record: ApiKeyRecord) -> None:
        self.session.execute(
            f"INSERT INTO {self.table.name} ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"  # noqa: S608
            " ON CONFLICT (id) DO UPDATE SET"
            " expires = excluded.expires, revoked = excluded.revoked, replaced_by = excluded.replaced_by",
            *row_of(record),
        )
