"""SQLite files that several processes of one machine share, made whole and opened for one short piece of work.

Every connection opens the file, does its work and closes it, so it works in any thread and across forks. Writers take
turns (``BEGIN IMMEDIATE``); readers never wait for them (write-ahead log; it needs a local disk). A file is made for
its owner only, whole from its first moment, and never by way of opening it: who finds none where one was must not take
that for an empty one.

Not here: what is in the tables, and whose fault it is when the file is out of reach.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from a2a_trust.errors import ConfigurationError, with_option
from a2a_trust.files.rights import check_writers

__all__ = ["SqliteFile", "is_damage"]

_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteFile:
    """One such file. ``what`` it is for people ("API key store"); ``application_id`` and ``version`` mark it as one;
    ``tables`` is the SQL that makes what is in it. ``timeout``: the longest, in seconds, that a write waits for others.
    """

    path: Path
    what: str
    application_id: int
    version: int
    tables: str
    timeout: float

    def open_or_make(self, *, create: bool, missing: str) -> bool:
        """Whether the file was made; it is one of ours, and nobody else can write to it.

        ConfigurationError: it is not there (``missing`` says what to do) and not to be made, or is something else.
        OSError: it cannot be made. sqlite3.Error: it cannot be read.
        """
        makes = not self.path.exists()
        if makes:
            if not create:
                raise with_option(ConfigurationError(f"{missing}   (or write create=True)"), missing)
            self.make()
        check_writers(self.path.stat(), self.path, f"add what they like to this {self.what}")
        with self.connection():
            pass  # the schema is ours
        return makes

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for the block; ConfigurationError when the file is something else by now."""
        address = f"{self.path.as_uri()}?mode=rw"  # never makes the file
        with closing(
            sqlite3.connect(address, uri=True, timeout=self.timeout, isolation_level=None, check_same_thread=False)
        ) as connection:
            self._check(connection)
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection within one transaction, in which nobody else writes; an exception undoes what was written."""
        with self.connection() as connection:
            connection.execute("BEGIN IMMEDIATE")  # before reading: who is second sees what the first one wrote
            yield connection
            connection.execute("COMMIT")  # an exception before this closes the connection, which rolls back

    def make(self) -> None:
        """An empty one at ``path``; one that somebody else made meanwhile stays."""
        path = self.path
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and not path.exists():  # in this order: one that another process has just made comes first
            raise ConfigurationError(
                f"{log} is left from another {self.what} and would be read into a new one; move it away"
            )
        temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
                connection.executescript(
                    "PRAGMA journal_mode = WAL; BEGIN;"
                    f"PRAGMA application_id = {self.application_id}; PRAGMA user_version = {self.version};"
                    f"{self.tables} COMMIT;"
                )
            path.hardlink_to(temporary)
        except FileExistsError:
            pass
        finally:
            for suffix in ("", "-wal", "-shm", "-journal"):
                temporary.with_name(f"{temporary.name}{suffix}").unlink(missing_ok=True)

    def _check(self, connection: sqlite3.Connection) -> None:
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise
            application = version = None
        if application != self.application_id:
            raise ConfigurationError(f"{self.path} is no {self.what}, or is damaged; it was left as it is")
        if version != self.version:
            way_out = "or move the file away to begin with an empty one" if version < self.version else "or a newer one"
            raise ConfigurationError(
                f"{self.path} is of version {version} of the {self.what}, and this release reads version "
                f"{self.version}; use the release of a2a-trust that made it, {way_out}"
            )


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is not what was written, in whichever of its parts."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED  # the kind, without what it is of
