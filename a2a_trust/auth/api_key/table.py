"""API keys in a table of SQLite or PostgreSQL."""

from __future__ import annotations

from typing import Any, Final

from a2a_trust.auth.api_key.verifier import ApiKeyRecord, ApiKeyWrites
from a2a_trust.auth.record_table import RecordsInTable, RecordTable

COLUMNS: Final = "id, digest, owner, scopes, created, expires, revoked, replaced_by, imported, last_used"


def api_key_table(name: str) -> RecordTable[ApiKeyRecord]:
    """The table of this name, with ``COLUMNS``."""
    changing = "expires, revoked, replaced_by"
    return RecordTable(name, COLUMNS, _made, members=f"key_{COLUMNS}", key="digest", changing=changing)


def _made(*, imported: int, **members: Any) -> ApiKeyRecord:
    return ApiKeyRecord(imported=bool(imported), **members)


class ApiKeysInTable(RecordsInTable[ApiKeyRecord], ApiKeyWrites):
    """The operators' side of the stores in tables."""

    def records(self, *, owner: str | None = None) -> tuple[ApiKeyRecord, ...]:
        """Every record, or every one of the owner, the last uses included, in order of creation.

        Those that ``unreadable`` names are left out.
        """
        return self._records() if owner is None else self._records("WHERE owner = $1", owner)
