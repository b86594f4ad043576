"""Stores that an argument names: a file, or a database of all machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from a2a_trust.base.databases.availability import DatabaseUrl, is_database_url
from a2a_trust.errors import ConfigurationError

if TYPE_CHECKING:
    from a2a_trust.auth.api_key.shared import PostgresApiKeys, RedisApiKeys
    from a2a_trust.auth.record_table import SqliteApiKeys
    from a2a_trust.client.memory_store import PostgresCardMemory, SqliteCardMemory

COMMAND_SECONDS: Final = 5.0
"""How long a command waits for a database."""

ApiKeys: TypeAlias = "SqliteApiKeys | PostgresApiKeys | RedisApiKeys"
CardRecords: TypeAlias = "SqliteCardMemory | PostgresCardMemory"


def api_keys(name: str, *, create: bool = False) -> ApiKeys:
    """The store of API keys that ``--store`` names. ConfigurationError: there is none, or the name is not valid."""
    if not is_database_url(name):
        from a2a_trust.auth.record_table import SqliteApiKeys

        return SqliteApiKeys(name, create=create)
    from a2a_trust.auth.api_key.shared import PostgresApiKeys, RedisApiKeys

    if name.startswith("postgres"):
        return PostgresApiKeys(postgres_url(name), timeout=COMMAND_SECONDS)
    url = DatabaseUrl.redis(name)
    _check_no_password(url, "set REDISCLI_AUTH")
    return RedisApiKeys(name, create=create, timeout=COMMAND_SECONDS)


def card_memory(name: str, *, create: bool = False) -> CardRecords:
    """The card memory that an argument names; ``create`` makes a missing file.

    ConfigurationError, CardMemoryUnavailableError, OSError: it cannot be opened, or the name is not valid.
    """
    if not is_database_url(name):
        from a2a_trust.client.memory_store import SqliteCardMemory

        return SqliteCardMemory(name, create=create)
    from a2a_trust.client.memory_store import PostgresCardMemory

    return PostgresCardMemory(postgres_url(name), timeout=COMMAND_SECONDS)


def memory_name(name: str) -> str:
    """A card memory as messages name it: without a password. ConfigurationError: the name is not valid."""
    return DatabaseUrl.postgres(postgres_url(name)).argument if is_database_url(name) else str(Path(name))


def postgres_url(name: str) -> str:
    """The URL in an argument. ConfigurationError: not one of PostgreSQL, or with a password."""
    _check_no_password(DatabaseUrl.postgres(name), "set PGPASSWORD, or write it to ~/.pgpass or to PGPASSFILE")
    return name


def _check_no_password(url: DatabaseUrl, instead: str) -> None:
    if url.has_password:
        raise ConfigurationError(
            f"other users of this machine can read arguments, so a URL has no password here; treat it as known, and "
            f"write {url.argument}, and for the password {instead}"
        )
