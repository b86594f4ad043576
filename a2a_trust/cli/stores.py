"""Stores that an argument names: a file, or a database of all machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from a2a_trust.databases.addresses import DatabaseUrl, is_database_url
from a2a_trust.errors import ConfigurationError

if TYPE_CHECKING:
    from a2a_trust.auth.api_key.postgres import PostgresApiKeys
    from a2a_trust.auth.api_key.redis import RedisApiKeys
    from a2a_trust.auth.api_key.sqlite import SqliteApiKeys

__all__ = ["COMMAND_SECONDS", "ApiKeys", "api_keys", "postgres_url"]

COMMAND_SECONDS: Final = 5.0
"""How long a command waits for a database."""

ApiKeys: TypeAlias = "SqliteApiKeys | PostgresApiKeys | RedisApiKeys"


def api_keys(name: str, *, create: bool = False) -> ApiKeys:
    """The store of API keys that ``--store`` names. ConfigurationError: there is none, or the name is not valid."""
    if not is_database_url(name):
        from a2a_trust.auth.api_key.sqlite import SqliteApiKeys

        return SqliteApiKeys(name, create=create)
    if name.startswith("postgres"):
        from a2a_trust.auth.api_key.postgres import PostgresApiKeys

        return PostgresApiKeys(postgres_url(name), timeout=COMMAND_SECONDS)
    from a2a_trust.auth.api_key.redis import RedisApiKeys

    url = DatabaseUrl.redis(name)
    _check_no_password(url, "set REDISCLI_AUTH")
    return RedisApiKeys(name, create=create, timeout=COMMAND_SECONDS)


def postgres_url(name: str) -> str:
    """The URL in an argument. ConfigurationError: not one of PostgreSQL, or with a password."""
    _check_no_password(DatabaseUrl.postgres(name), "set PGPASSWORD, or write it to ~/.pgpass or to PGPASSFILE")
    return name


def _check_no_password(url: DatabaseUrl, instead: str) -> None:
    if url.has_password:
        raise ConfigurationError(
            f"other users of this machine can read arguments, so a URL has no password here; treat it as known, and "
            f"write {url.shown}, and for the password {instead}"
        )
