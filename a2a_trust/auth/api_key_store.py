"""API keys in an SQLite file: the embedded store, which several processes of one machine may share.

Every call opens the file, does one short transaction and closes it, so it works in any thread and across forks.
Writers take turns (``BEGIN IMMEDIATE``); readers never wait for them (write-ahead log; it needs a local disk).
``revision`` takes a random value with every change but that of a last use, by triggers: a change that is made by hand
is noticed as well, and an unchanged store is not read again.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from a2a_trust.auth.api_key import ApiKeyRecord, ApiKeyWrites, KeyTable
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError

__all__ = ["SqliteApiKeys"]

_APPLICATION_ID: Final = 0x41324B79  # "A2Ky"
_VERSION: Final = 1

_SCHEMA: Final = f"""
PRAGMA journal_mode = WAL;
BEGIN;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_VERSION};
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
CREATE TABLE revision (value BLOB NOT NULL);
INSERT INTO revision VALUES (randomblob(16));
CREATE TRIGGER inserted AFTER INSERT ON api_key BEGIN UPDATE revision SET value = randomblob(16); END;
CREATE TRIGGER deleted AFTER DELETE ON api_key BEGIN UPDATE revision SET value = randomblob(16); END;
CREATE TRIGGER updated
    AFTER UPDATE OF id, digest, owner, scopes, created, expires, revoked, replaced_by, imported ON api_key
    BEGIN UPDATE revision SET value = randomblob(16); END;
COMMIT;
"""  # noqa: S608  constants

_COLUMNS: Final = "id, digest, owner, scopes, created, expires, revoked, replaced_by, imported, last_used"


class SqliteApiKeys(ApiKeyWrites):
    """The API keys in one SQLite file, for servers (``ApiKeyVerifier(SqliteApiKeys(path))``) and operators alike.

    KeySourceUnavailableError when the file cannot be read or written now.
    """

    def __init__(self, path: Path | str, *, create: bool = False, timeout: float = 5.0) -> None:
        """``create`` makes the file, for its owner only, if it is not there. ``timeout``: the longest, in seconds, that
        a write waits for others. ConfigurationError when the file is missing or is no such store.
        """
        self._path = Path(path).absolute()
        self._timeout = timeout
        self._last_read: tuple[bytes, tuple[ApiKeyRecord, ...]] | None = None
        if not self._path.exists():
            if not create:
                raise ConfigurationError(
                    f"there is no API key store at {path}; make one with its first key: "
                    f"a2a-sign api-key create --store {path} --owner NAME   (or write create=True)"
                )
            _make(self._path)
        if os.name == "posix" and self._path.stat().st_mode & 0o002:
            raise ConfigurationError(f"{path} can be written by everybody, who may add keys; run: chmod 600 {path}")
        with self._connection():
            pass  # the schema is ours

    def records(self) -> tuple[ApiKeyRecord, ...]:
        """Every record, the last uses included, in order of creation."""
        with self._connection() as connection:
            return _records(connection)

    async def snapshot(self) -> tuple[ApiKeyRecord, ...]:
        return await asyncio.to_thread(self._snapshot)

    def _snapshot(self) -> tuple[ApiKeyRecord, ...]:
        with self._connection() as connection:
            connection.execute("BEGIN")  # the revision and the records of the same moment
            (revision,) = connection.execute("SELECT value FROM revision").fetchone()
            last = self._last_read
            if last is None or last[0] != revision:
                self._last_read = last = (revision, _records(connection))
            return last[1]

    async def touch(self, used: Mapping[str, float]) -> None:
        await asyncio.to_thread(self._touch, dict(used))

    def _touch(self, used: Mapping[str, float]) -> None:
        with self._transaction() as connection:
            connection.executemany(
                "UPDATE api_key SET last_used = ?1 WHERE id = ?2 AND (last_used IS NULL OR last_used < ?1)",
                [(moment, key_id) for key_id, moment in used.items()],
            )

    @contextmanager
    def _writing(self) -> Iterator[KeyTable]:
        with self._transaction() as connection:
            yield _Table(connection)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")  # an exception before this closes the connection, which rolls back

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        address = f"{self._path.as_uri()}?mode=rw"  # never makes the file: an empty store would refuse everybody
        try:
            with closing(sqlite3.connect(address, uri=True, timeout=self._timeout, isolation_level=None)) as connection:
                self._check_schema(connection)
                yield connection
        except sqlite3.Error as error:
            # The words of SQLite name tables and columns, never values.
            raise KeySourceUnavailableError(f"the API key store {self._path}: {error}") from None

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise
            application = version = None
        if application != _APPLICATION_ID:
            raise ConfigurationError(f"{self._path} is no API key store; name another file")
        if version != _VERSION:
            raise ConfigurationError(
                f"{self._path} is an API key store of version {version}, and this release reads version {_VERSION}; "
                "use the release of a2a-trust that made it, or a newer one"
            )


class _Table:
    """The table inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def get(self, key_id: str) -> ApiKeyRecord | None:
        return next(iter(_records(self._connection, "WHERE id = ?", key_id)), None)

    def id_of(self, digest: bytes) -> str | None:
        row = self._connection.execute("SELECT id FROM api_key WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, record: ApiKeyRecord) -> None:
        self._connection.execute(
            f"INSERT INTO api_key ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  a constant
            " ON CONFLICT (id) DO UPDATE SET"
            " expires = excluded.expires, revoked = excluded.revoked, replaced_by = excluded.replaced_by",
            (
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
            ),
        )


def _records(connection: sqlite3.Connection, where: str = "", *values: str) -> tuple[ApiKeyRecord, ...]:
    query = f"SELECT {_COLUMNS} FROM api_key {where} ORDER BY created, id"  # noqa: S608  constants
    return tuple(
        ApiKeyRecord(
            key_id=key_id,
            digest=digest,
            owner=owner,
            scopes=frozenset(scopes.split()),
            created=created,
            expires=expires,
            revoked=revoked,
            replaced_by=replaced_by,
            imported=bool(imported),
            last_used=last_used,
        )
        for key_id, digest, owner, scopes, created, expires, revoked, replaced_by, imported, last_used in (
            connection.execute(query, values)
        )
    )


def _make(path: Path) -> None:
    """An empty store at ``path``, whole from its first moment; one that somebody else made meanwhile stays."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and not path.exists():  # else somebody else has just made it, and writes already
        raise ConfigurationError(f"{log} is left from another store and would be read into a new one; move it away")
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.executescript(_SCHEMA)
        path.hardlink_to(temporary)
    except FileExistsError:
        pass
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            temporary.with_name(f"{temporary.name}{suffix}").unlink(missing_ok=True)
