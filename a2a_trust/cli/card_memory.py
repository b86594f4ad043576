"""The card memory that an argument names: a file, or a database in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from a2a_trust.cli.sources import naming
from a2a_trust.client.memory_store import SqliteCardMemory
from a2a_trust.databases.addresses import DatabaseUrl, is_database_url
from a2a_trust.errors import ConfigurationError

if TYPE_CHECKING:
    from a2a_trust.client.memory_postgres import PostgresCardMemory

__all__ = ["check_memory", "opened_memory"]

_SECONDS: Final = 5.0
"""How long a command waits for the database."""


def check_memory(name: str, option: str) -> str:
    """The memory as messages may name it: a file, or a database without its password.

    ConfigurationError: it is a URL of something else, or one with a password.
    """
    if not is_database_url(name):
        return str(Path(name))
    with naming(option):
        url = DatabaseUrl.postgres(name)
    if url.has_password:
        raise ConfigurationError(
            f"{option}: the URL has a password, and other users of this machine can read the arguments of commands; "
            f"write {url.argument}, and give the password in PGPASSWORD, in the file of PGPASSFILE (~/.pgpass), or in "
            "a service file"
        )
    return url.argument


def opened_memory(name: str | Path, *, create: bool = False) -> SqliteCardMemory | PostgresCardMemory:
    """The card memory of that name, which ``check_memory`` accepted. ``create`` makes a missing file.

    ConfigurationError, CardMemoryUnavailableError, OSError: it cannot be opened.
    """
    if isinstance(name, Path) or not is_database_url(name):
        return SqliteCardMemory(name, create=create)
    from a2a_trust.client.memory_postgres import PostgresCardMemory  # loads asyncio and asyncpg

    return PostgresCardMemory(name, timeout=_SECONDS)
