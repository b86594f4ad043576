"""SQLite files that several processes of one machine share.

A file has a rollback journal, SQLite's default. Between two changes there is no other file beside it, so a reader needs
only the right to read: it works on a read-only mount and on a full disk. One process writes at a time (``BEGIN
IMMEDIATE``), and readers wait while a change is written; both wait for at most ``timeout`` seconds.

SQLite plays a log or a journal that it finds beside a file into that file, even if it belongs to another file. So every
opening checks first that no other user can write to them, and that there is no log. A journal of another file is not
detected: move an old ``-journal`` away before you restore a file.

A file is made for its owner only, complete from its first moment, and never by opening it: a file that has vanished is
not an empty one.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Final

from a2a_trust.base.files.atomic import write_atomically
from a2a_trust.base.files.watched import check_writers
from a2a_trust.errors import ConfigurationError, TrustError, with_option

_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

# https://www.sqlite.org/fileformat2.html#the_database_header
_HEADER_BYTES: Final = 100
_MAGIC: Final = b"SQLite format 3\0"
_WAL_VERSION: Final = 2
_SERIALIZES: Final = hasattr(sqlite3.Connection, "serialize")
"""Whether this SQLite gives the bytes of a database in memory; one before 3.36 may not."""


def revision_of(table: str, columns: str) -> str:
    """The SQL of a table ``revision`` with one random ``value``, which every change of these columns replaces.

    Triggers do that, so a change that is made by hand is noticed as well.
    """
    change = "BEGIN UPDATE revision SET value = randomblob(16); END;"
    triggers = (
        f"CREATE TRIGGER {name} AFTER {event} ON {table} {change}"
        for name, event in (("inserted", "INSERT"), ("deleted", "DELETE"), ("updated", f"UPDATE OF {columns}"))
    )
    table_of_it = "CREATE TABLE revision (value BLOB NOT NULL); INSERT INTO revision VALUES (randomblob(16));"
    return "\n".join((table_of_it, *triggers))


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteFile:
    """A shared SQLite file.

    - ``what``: its kind, for people ("API key store"). ``application_id`` and ``version`` mark a file of this kind.
    - ``tables``: the SQL that makes its tables.
    - ``if_damaged``: advice for people, for a damaged file.
    - ``timeout``: the longest time that a read or a write waits for others, in seconds.
    - ``unavailable``: an error that ``open_or_make``, ``check_content``, ``connection``, ``writing`` and
      ``SqliteReader.reading``, with their blocks, raise in place of OSError and sqlite3.Error.
    """

    path: Path
    what: str
    application_id: int
    version: int
    tables: str
    if_damaged: str
    timeout: float
    unavailable: type[TrustError] | None = None

    def open_or_make(self, given: Path | str, *, create: bool, if_missing: str) -> bool:
        """Open the file, or make it with ``create``; returns whether it was made. ``given`` is its path in errors.

        ConfigurationError: it does not exist (``if_missing`` says what to do), it is not a file of this kind, or
        everybody can write to it. OSError: it cannot be made. sqlite3.Error: it cannot be read.
        """
        with self.translate_errors():
            makes = not self.path.exists()
            if makes:
                if not create:
                    missing = f"there is no {self.what} at {given}; {if_missing}"
                    raise with_option(ConfigurationError(f"{missing}   (or write create=True)"), missing)
                self.make()
            with self.connection():
                pass  # the schema is ours
            return makes

    def check_content(self) -> None:
        """Read the whole file; sqlite3.DatabaseError if it is damaged."""
        with self.connection() as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                error = sqlite3.DatabaseError(found)
                error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise error

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """OSErrors and sqlite3.Errors of the block become ``unavailable``, if there is one."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if self.unavailable is None:
                raise
            raise self.unavailable(self.complaint(error)) from None

    def complaint(self, error: sqlite3.Error | OSError) -> str:
        """The text of the error, and what to do. The texts of SQLite name tables and columns, not values."""
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:  # the kind, without what it is of
            return f"the {self.what} {self.path} is damaged ({error}); {self.if_damaged}"
        return f"the {self.what} {self.path}: {_reason(error)}"

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for the block; it raises as ``open`` does."""
        with self.translate_errors(), closing(self.open()) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction, in which no other process writes; an exception undoes its changes.

        After the block the change is on the disk, and survives a power cut.
        """
        with self.connection() as connection:
            connection.execute("PRAGMA synchronous = EXTRA")  # the end of the journal is on the disk too
            connection.execute("BEGIN IMMEDIATE")  # before reading: the second writer sees the change of the first
            yield connection
            connection.execute("COMMIT")  # an exception before this closes the connection, which rolls back

    def open(self, *, read_only: bool = False) -> sqlite3.Connection:
        """A connection, for any thread but one at a time, that the caller closes.

        ConfigurationError: the file is of another kind now, everybody can write to it, or as ``check_beside``.
        OSError, sqlite3.Error: it cannot be read.
        """
        file = self.follow_links()
        check_writers(file.path.stat(), file.path, f"add anything to this {self.what}")
        file.check_beside()
        # Neither makes the file. "rw" only reads where the rights allow no more.
        address = f"{file.path.as_uri()}?mode={'ro' if read_only else 'rw'}"
        connection = sqlite3.connect(
            address, uri=True, timeout=self.timeout, isolation_level=None, check_same_thread=False
        )
        try:
            file.check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def follow_links(self) -> SqliteFile:
        """This file under the name to which symbolic links in ``path`` lead now: SQLite keeps its journal there.

        Links may change, so every opening does this.
        """
        return replace(self, path=Path(os.path.realpath(self.path)))

    def check(self, connection: sqlite3.Connection) -> None:
        """ConfigurationError unless the connection reads a file of this kind and version."""
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise
            application = version = None
        if application != self.application_id:
            raise ConfigurationError(
                f"{self.path} is not a valid {self.what}: another file, or damaged; it was not changed. Check the path"
            )
        if version != self.version:
            hint = "or move the file away to begin with an empty one" if version < self.version else "or a newer one"
            raise ConfigurationError(
                f"{self.path} is of version {version} of the {self.what}, and this release reads version "
                f"{self.version}; use the release of a2a-trust that made it, {hint}"
            )

    def path_beside(self, suffix: str) -> Path:
        """The file that SQLite keeps beside this one: its journal (``-journal``) or its log (``-wal``)."""
        return self.path.with_name(f"{self.path.name}{suffix}")

    def check_beside(self) -> None:
        """ConfigurationError: another user could change a file beside this one, or there is a write-ahead log."""
        for suffix in ("-journal", "-wal", "-shm"):
            self._check_owner(self.path_beside(suffix))
        log = self.path_beside("-wal")
        has_log = _size(log) > 0  # before the header, which is the first to change when the mode does
        header = _descriptors.header(self.path)
        quoted = shlex.quote(str(self.path))
        if header.startswith(_MAGIC) and _WAL_VERSION in header[18:20]:
            restored = f"if it was restored from a copy, first move {log} away, which is not part of the copy; then "
            raise ConfigurationError(
                f"{self.path} has a write-ahead log, which readers cannot open without writing; "
                f"{restored if has_log else ''}run: sqlite3 {quoted} 'PRAGMA journal_mode = DELETE'"
            )
        if has_log:
            raise ConfigurationError(
                f"{log} belongs to another file than this {self.what}, and SQLite would read it into {self.path}; "
                f"move it away: mv {shlex.quote(str(log))} {shlex.quote(f'{log}.old')}"
            )

    def _check_owner(self, beside: Path) -> None:
        """ConfigurationError if another user owns this file or can write to it, even if it is empty."""
        try:
            status = beside.lstat()
        except FileNotFoundError:
            return
        trusted = (0, os.geteuid(), self.path.stat().st_uid) if os.name == "posix" else (status.st_uid,)
        if not stat.S_ISREG(status.st_mode):
            wrong = "is not a regular file"
        elif status.st_uid not in trusted:
            wrong = f"belongs to user {status.st_uid}, who neither owns {self.path} nor runs this program"
        elif os.name == "posix" and status.st_mode & stat.S_IWOTH:
            wrong = "can be written by everybody"
        else:
            return
        folder, quoted = shlex.quote(str(beside.parent)), shlex.quote(str(beside))
        raise ConfigurationError(
            f"{beside} {wrong}, and SQLite would change {self.path} with it; move it away: "
            f"mv {quoted} {shlex.quote(f'{beside}.old')}   (and let only the owner of this {self.what} write to its "
            f"folder: chmod go-w {folder})"
        )

    def make(self) -> None:
        """Make an empty file at ``path``; a file that another process has just made stays."""
        path = self.path
        for suffix in ("-wal", "-journal"):
            left = self.path_beside(suffix)
            # In this order: another process may make the file now.
            if os.path.lexists(left) and not path.exists():
                raise ConfigurationError(
                    f"{left} is left from another {self.what} and would be read into a new one; move it away"
                )
        with suppress(FileExistsError):
            write_atomically(path, self._empty(), mode=0o600, replace=False)

    def _empty(self) -> bytes:
        """The content of a new file."""
        with tempfile.TemporaryDirectory() if not _SERIALIZES else nullcontext() as folder:
            path = Path(folder, "new.db") if folder else ":memory:"
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.executescript(
                    f"BEGIN; PRAGMA application_id = {self.application_id}; PRAGMA user_version = {self.version};"
                    f"{self.tables} COMMIT;"
                )
                if isinstance(path, str):
                    return connection.serialize()
            return path.read_bytes()


class SqliteReader:
    """Reads of one file over a connection that stays open: a read costs microseconds, whatever the file's size.

    One thread reads at a time. The connection is opened again in a forked child, after an error, and when another file
    lies at the path.
    """

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._begin_in_this_process()

    def __del__(self) -> None:
        if self._process == os.getpid():
            self._close()  # Python 3.13 warns of connections that are dropped open

    def _begin_in_this_process(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._opened: sqlite3.Connection | None = None
        self._opened_file = self._file
        self._identity = (0, 0)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, within one transaction: all that the block reads is of one moment. It only reads.

        Raises as ``SqliteFile.connection`` does.
        """
        if self._process != os.getpid():
            _INHERITED.append(self._opened)  # SQLite allows a child neither to use nor to close it
            self._begin_in_this_process()
        with self._file.translate_errors():
            if not self._lock.acquire(timeout=self._file.timeout):
                raise sqlite3.OperationalError("an earlier read in another thread has not ended; try again")
            try:
                connection = self._begin_or_recover()
                yield connection
                connection.execute("ROLLBACK")
            except BaseException:
                self._close()
                raise
            finally:
                self._lock.release()

    def _begin_or_recover(self) -> sqlite3.Connection:
        """The connection, in a transaction. The change of a process that died while writing is undone first."""
        try:
            return self._begin()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
                raise
        self._close()
        with self._file.connection():  # SQLite undoes it in opening, where we may write
            return self._begin()

    def _begin(self) -> sqlite3.Connection:
        connection = self._connection()
        connection.execute("BEGIN")
        self._file.check(connection)
        return connection

    def _connection(self) -> sqlite3.Connection:
        identity = _identity(self._file.path.stat())
        if self._opened is not None and self._identity == identity:
            if any(os.path.lexists(self._opened_file.path_beside(suffix)) for suffix in ("-wal", "-journal")):
                self._opened_file.check_beside()
            return self._opened
        self._close()
        self._opened_file = file = self._file.follow_links()
        # When the file is replaced between the two, the next read notices: it finds another one than this.
        self._identity = _identity(file.path.stat())
        self._opened = opened = file.open(read_only=True)
        return opened

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


#: Connections of the parent, in a forked child: kept, since to drop one is to close it.
_INHERITED: Final[list[sqlite3.Connection | None]] = []


class _Descriptors:
    """File descriptors, to read the files of databases while SQLite has them open.

    A descriptor stays open as long as its file is at the path. To close any descriptor of a file ends all locks that
    the process has on it (POSIX), also the locks of SQLite in other threads.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._opened: dict[Path, tuple[tuple[int, int], int]] = {}
        if os.name == "posix":
            os.register_at_fork(after_in_child=self._begin_in_child)

    def _begin_in_child(self) -> None:
        self._lock = Lock()  # a thread that the child does not have may hold the other one

    def header(self, path: Path) -> bytes:
        """The header of the database."""
        if os.name != "posix":
            with path.open("rb") as file:
                return file.read(_HEADER_BYTES)
        with self._lock:
            identity = _identity(path.stat())
            known = self._opened.get(path)
            if known is None or known[0] != identity:
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for its other end
                self._close_replaced()
                known = self._opened[path] = _identity(os.fstat(descriptor)), descriptor
            return os.pread(known[1], _HEADER_BYTES, 0)

    def _close_replaced(self) -> None:
        for path, (identity, descriptor) in [*self._opened.items()]:
            try:
                is_there = _identity(path.stat()) == identity
            except OSError:
                is_there = False
            if not is_there:
                del self._opened[path]
                os.close(descriptor)


_descriptors: Final = _Descriptors()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _size(path: Path) -> int:
    """In bytes; 0 when it is not there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _reason(error: sqlite3.Error | OSError) -> str:
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_ROLLBACK:
        return (
            "a process died while it wrote, and undoing its change needs the right to write; run any command of "
            "a2a-sign on the file as a user who may write to it and to its folder"
        )
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
        return (
            "database is locked: another process has read or written it for too long; nothing was changed. Run this "
            "again; if that fails, end the other process (fuser FILE names it)"
        )
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
