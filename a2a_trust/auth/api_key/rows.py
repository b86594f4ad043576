"""The columns of an API key in a table, for the stores in databases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from a2a_trust.auth.api_key.verifier import ApiKeyRecord

COLUMNS: Final = "id, digest, owner, scopes, created, expires, revoked, replaced_by, imported, last_used"


def record_of(row: Sequence[Any]) -> ApiKeyRecord:
    """The record in a row of ``COLUMNS``. ConfigurationError: it was made or damaged by hand."""
    key_id, digest, owner, scopes, created, expires, revoked, replaced_by, imported, last_used = row
    return ApiKeyRecord(
        key_id=key_id,
        digest=digest,
        owner=owner,
        scopes=frozenset(scopes.split()),  # of bytes, where it is none; no record takes them
        created=created,
        expires=expires,
        revoked=revoked,
        replaced_by=replaced_by,
        imported=bool(imported),
        last_used=last_used,
    )


def row_of(record: ApiKeyRecord) -> tuple[Any, ...]:
    """The values of a record, for ``COLUMNS``."""
    return (
        record.key_id,
        record.digest,
        record.owner,
        " ".join(sorted(record.scopes)),
        record.created,
        record.expires,
        record.revoked,
        record.replaced_by,
        record.imported,
        record.last_used,
    )
