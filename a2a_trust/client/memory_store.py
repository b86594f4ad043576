"""The memory of cards in an SQLite file: the embedded one, which several processes of one machine may share.

Every call opens the file, does one short transaction and closes it, so it works in any thread and across forks.
Writers take turns (``BEGIN IMMEDIATE``); readers never wait for them (write-ahead log; it needs a local disk). A file
that is damaged, or that has vanished, is an error: an empty memory would trust everybody for the first time again.
"""

from __future__ import annotations

import logging
import os
import shlex
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from a2a_trust.client.memory import CardTable, JudgingMemory, Remembered, origin_of
from a2a_trust.errors import CardMemoryUnavailableError, ConfigurationError

__all__ = ["SqliteCardMemory"]

_log: Final = logging.getLogger(__name__)

_APPLICATION_ID: Final = 0x41324350  # "A2CP"
_VERSION: Final = 1

_SCHEMA: Final = f"""
PRAGMA journal_mode = WAL;
BEGIN;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_VERSION};
CREATE TABLE card (
    origin TEXT NOT NULL PRIMARY KEY,
    thumbprints TEXT NOT NULL CHECK (length(thumbprints) >= 43),
    issued REAL CHECK (typeof(issued) IN ('real', 'null')),
    version TEXT CHECK (typeof(version) IN ('text', 'null')),
    first_seen REAL NOT NULL CHECK (typeof(first_seen) = 'real'),
    last_seen REAL NOT NULL CHECK (typeof(last_seen) = 'real'),
    on_first_use INTEGER NOT NULL CHECK (on_first_use IN (0, 1))
) WITHOUT ROWID;
COMMIT;
"""

_COLUMNS: Final = "origin, thumbprints, issued, version, first_seen, last_seen, on_first_use"

_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class SqliteCardMemory(JudgingMemory):
    """What is remembered of cards, in one SQLite file that only its owner can read.

    CardMemoryUnavailableError when the file cannot be read or written now, or is damaged.
    """

    def __init__(self, path: Path | str, *, create: bool = False, timeout: float = 5.0) -> None:
        """``create`` makes the file, for its owner only, if it is not there. ``timeout``: the longest, in seconds, that
        a write waits for others. ConfigurationError when the file is missing or is no such memory. OSError when it
        cannot be made.
        """
        self._path = Path(path).absolute()
        self._timeout = timeout
        if not self._path.exists():
            if not create:
                raise ConfigurationError(
                    f"there is no memory of cards at {path}; the first card that is verified with one makes it, and so "
                    f"does: a2a-sign pins accept --file {shlex.quote(str(path))} ORIGIN THUMBPRINT"
                    "   (or write create=True)"
                )
            _make(self._path)
            _log.info("made a memory of cards at %s; nothing is remembered yet", self._path)
        if os.name == "posix" and self._path.stat().st_mode & 0o002:
            raise ConfigurationError(f"{path} can be written by everybody, who may add keys; run: chmod 600 {path}")
        with self._connection() as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise CardMemoryUnavailableError(self._damaged(found))

    def records(self) -> tuple[Remembered, ...]:
        """All that is remembered, by origin."""
        with self._connection() as connection:
            return _records(connection)

    def expects_signature(self, origin: str) -> bool:
        known_as = origin_of(origin)
        with self._connection() as connection:
            return _Table(connection).get(known_as) is not None

    @contextmanager
    def _writing(self) -> Iterator[CardTable]:
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")  # before reading: who is second sees what the first one wrote
            yield _Table(connection)
            connection.execute("COMMIT")  # an exception before this closes the connection, which rolls back

    def _way_out(self, action: str, origin: str, thumbprints: Iterable[str] = ()) -> str:
        arguments = [origin, *sorted(thumbprints)]
        if any(argument.startswith("-") for argument in arguments):
            arguments.insert(0, "--")
        return shlex.join(["a2a-sign", "pins", action, "--file", str(self._path), *arguments])

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        address = f"{self._path.as_uri()}?mode=rw"  # never makes the file
        try:
            with closing(sqlite3.connect(address, uri=True, timeout=self._timeout, isolation_level=None)) as connection:
                self._check_schema(connection)
                yield connection
        except sqlite3.Error as error:
            # The words of SQLite name tables and columns, never values.
            is_damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED  # the kind, without what it is of
            text = self._damaged(str(error)) if is_damaged else f"the memory of cards {self._path}: {error}"
            raise CardMemoryUnavailableError(text) from None

    def _damaged(self, how: str) -> str:
        return (
            f"the memory of cards {self._path} is damaged ({how}); restore it from a copy, or move it away and begin "
            "anew, when every agent is seen for the first time again"
        )

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise
            application = version = None
        if application != _APPLICATION_ID:
            raise ConfigurationError(f"{self._path} is no memory of cards, or is damaged; it was left as it is")
        if version != _VERSION:
            raise ConfigurationError(
                f"{self._path} is a memory of cards of version {version}, and this release reads version {_VERSION}; "
                "use the release of a2a-trust that made it, or a newer one"
            )


class _Table:
    """The table inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def get(self, origin: str) -> Remembered | None:
        return next(iter(_records(self._connection, "WHERE origin = ?", origin)), None)

    def put(self, record: Remembered) -> None:
        self._connection.execute(
            f"INSERT OR REPLACE INTO card ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  a constant
            (
                record.origin,
                " ".join(sorted(record.thumbprints)),
                record.issued,
                record.version,
                record.first_seen,
                record.last_seen,
                record.on_first_use,
            ),
        )

    def remove(self, origin: str) -> None:
        self._connection.execute("DELETE FROM card WHERE origin = ?", (origin,))


def _records(connection: sqlite3.Connection, where: str = "", *values: str) -> tuple[Remembered, ...]:
    query = f"SELECT {_COLUMNS} FROM card {where} ORDER BY origin"  # noqa: S608  constants
    return tuple(
        Remembered(
            origin=origin,
            thumbprints=frozenset(thumbprints.split()),
            issued=issued,
            version=version,
            first_seen=first_seen,
            last_seen=last_seen,
            on_first_use=bool(on_first_use),
        )
        for origin, thumbprints, issued, version, first_seen, last_seen, on_first_use in (
            connection.execute(query, values)
        )
    )


def _make(path: Path) -> None:
    """An empty memory at ``path``, whole from its first moment; one that somebody else made meanwhile stays."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and not path.exists():  # in this order: a memory that another process has just made comes first
        raise ConfigurationError(f"{log} is left from another memory and would be read into a new one; move it away")
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
