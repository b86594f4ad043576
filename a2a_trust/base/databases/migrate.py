"""Make the tables in PostgreSQL, or bring them up to date."""

from __future__ import annotations

from typing import Final, NamedTuple

from a2a_trust.base.databases.postgres import Postgres, SqlConnection, background
from a2a_trust.base.databases.schema import MIGRATIONS, VERSION, VERSION_QUERY, WrongTables, check_version
from a2a_trust.errors import ConfigurationError, TrustError

_LONGEST: Final = 3_600.0
"""How long one migration may take, in seconds."""

#: One migration at a time; no other program uses this number.
_LOCK: Final = "SELECT pg_advisory_xact_lock(x'a2a7'::int)"
_THERE: Final = "SELECT to_regclass('a2a_trust.schema_version') IS NOT NULL"
_DONE: Final = "UPDATE a2a_trust.schema_version SET version = $1, works_from = $2"


class Migrated(NamedTuple):
    """The version of the tables before, 0 for none, and now."""

    before: int
    now: int


def migrate(url: str, *, unavailable: type[TrustError], timeout: float, only_check: bool = False) -> Migrated:
    """Make the tables of this release, in the schema ``a2a_trust``, all of them or none.

    The role needs the right to create a schema the first time, and later has to own the tables. ConfigurationError: the
    tables are of a newer release.
    """
    database = Postgres(url, what="tables of a2a-trust", unavailable=unavailable, timeout=timeout)

    async def work() -> Migrated:
        async with database.connect_unchecked() as connection, connection.transaction():
            await connection.execute(_LOCK)
            await connection.execute("SET LOCAL statement_timeout = 0")  # a large table takes its time
            before = await _version(connection, database.url.shown)
            if not only_check:
                for number, migration in enumerate(MIGRATIONS[before:], before + 1):
                    await connection.execute(migration.sql, timeout=_LONGEST)
                    await connection.execute(_DONE, number, migration.works_from)
            return Migrated(before, before if only_check else max(before, VERSION))

    return background().result(work())


async def _version(connection: SqlConnection, shown: str) -> int:
    ((is_there,),) = await connection.fetch(_THERE)
    if not is_there:
        return 0
    rows = await connection.fetch(VERSION_QUERY)
    if len(rows) != 1:
        raise ConfigurationError(f"the tables of a2a-trust in {shown} are damaged: schema_version has not one row")
    version, works_from = int(rows[0][0]), int(rows[0][1])
    if version > VERSION:
        try:
            check_version(version, works_from, shown)
        except WrongTables as error:
            raise ConfigurationError(str(error)) from None
    return version
