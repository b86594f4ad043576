"""Used DPoP proofs in an SQLite file: for several processes of one machine, and across restarts.

A proof counts only when the transaction that remembers it has ended. Proofs that come meanwhile wait for the next
transaction and share it. All this is done in a thread of its own, so neither a slow disk nor another process that holds
the file keeps the event loop waiting: a caller waits ``timeout`` seconds, and is refused then (503).

A transaction is in the file for every process, also after a kill, but it does not wait for the disk: with that,
requests took 3 to 100 times as long, by what else the disk had to do. A power cut may damage the file.

The rules are those of ``auth.proofs.memory``.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from a2a_trust.auth.proofs.memory import MAX_WINDOW, DroppedTimes, Room, digest_of, kept_seconds
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError, TooManyRequestsError, TrustError
from a2a_trust.files.sqlite import SqliteFile

_APPLICATION_ID: Final = 0x41324450  # "A2DP"

_TABLES: Final = """
CREATE TABLE proof (
    digest BLOB NOT NULL PRIMARY KEY CHECK (length(digest) = 16),
    issued INTEGER NOT NULL,
    holder BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX proof_by_time ON proof (issued);
CREATE TABLE holder (holder BLOB NOT NULL PRIMARY KEY, used INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE dropped (first INTEGER NOT NULL, last INTEGER NOT NULL);
"""

_ALL: Final = b""
"""The holder under which the proofs of all are counted."""

_BATCH: Final = 256
"""How many proofs share one transaction."""
_MAX_WAITING: Final = 4_096
"""How many may wait for one."""
_MAX_DROPPED: Final = 1_000
"""How many rows one transaction removes: it must not take long after a busy time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """A proof that waits to be remembered; ``answer`` is whether it is used for the first time."""

    jkt: str
    digest: bytes
    now: float
    issued: float
    window: float
    answer: Future[bool] = field(default_factory=Future)


class SqliteProofMemory:
    """Remembers proofs in one SQLite file, which the processes of one machine share and which outlives them.

    A kill of the process loses nothing. KeySourceUnavailableError (503) when the file cannot be written in time, when
    it is damaged, or when another file lies in its place: an unreachable memory is never treated as an empty one.
    """

    def __init__(
        self, path: Path | str, *, create: bool = False, capacity: int = 1_000_000, timeout: float = 2.0
    ) -> None:
        """``create`` makes the file, for its owner only, if it is not there. ``capacity``: for how many proofs at once
        there is room. ``timeout``: the longest, in seconds, that a request waits for the file. ConfigurationError when
        the file is missing, damaged, or is no such memory. OSError when it cannot be made.
        """
        self._room = Room(capacity, "SqliteProofMemory(…, capacity=…)")
        self._file = SqliteFile(
            path=Path(path).absolute(),
            what="memory of DPoP proofs",
            application_id=_APPLICATION_ID,
            version=1,
            tables=_TABLES,
            if_damaged=f"move it away, and wait {2 * MAX_WINDOW:.0f} seconds before you start with a new one: until "
            "then a used proof may count again",
            timeout=timeout,
        )
        self._timeout = timeout
        first = f"to make one: SqliteProofMemory({str(path)!r}, create=True)"
        try:
            self._file.open_or_make(path, create=create, if_missing=first)
            self._file.check_content()
        except sqlite3.Error as error:
            raise ConfigurationError(self._file.complaint(error)) from None
        self._begin_in_this_process()

    def _begin_in_this_process(self) -> None:
        self._process = os.getpid()
        self._writer = _Writer(self._file, self._room)

    async def first_use(self, jkt: str, jti: str, *, now: float, issued: float, window: float) -> bool:
        if self._process != os.getpid():  # a fork has no threads
            _INHERITED.append(self._writer)
            self._begin_in_this_process()
        use = _Use(jkt=jkt, digest=digest_of(jkt, jti), now=now, issued=issued, window=window)
        self._writer.add(use)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(use.answer), self._timeout)
        except TimeoutError:
            raise KeySourceUnavailableError(
                f"the memory of DPoP proofs {self._file.path}: a write takes longer than {self._timeout:g} seconds"
            ) from None


class _Writer:
    """The one thread of this process that writes to the file, and its connection."""

    def __init__(self, file: SqliteFile, room: Room) -> None:
        self._file, self._room = file, room
        self._lock = threading.Lock()
        self._waiting: list[_Use] = []
        self._is_at_work = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="a2a_trust.proofs")
        # The rest belongs to the thread.
        self._open = ExitStack()
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)

    def __del__(self) -> None:
        self._close()  # Python 3.13 warns of connections that are dropped open

    def add(self, use: _Use) -> None:
        """Have the proof remembered; KeySourceUnavailableError when too many wait already."""
        with self._lock:
            if len(self._waiting) >= _MAX_WAITING:
                raise KeySourceUnavailableError(f"{self._name}: {_MAX_WAITING} proofs wait to be written")
            if not self._is_at_work:
                try:
                    self._thread.submit(self._work)  # it begins with this lock
                except RuntimeError as error:  # no thread can be started now, or the program ends
                    raise KeySourceUnavailableError(f"{self._name}: {error}") from None
                self._is_at_work = True
            self._waiting.append(use)

    @property
    def _name(self) -> str:
        return f"the memory of DPoP proofs {self._file.path}"

    def _work(self) -> None:
        while True:
            with self._lock:
                batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
                self._is_at_work = bool(batch)
            if not batch:
                return
            # A caller that no longer waits was rejected already, and the proof was not used.
            self._answer([use for use in batch if use.answer.set_running_or_notify_cancel()])

    def _answer(self, batch: list[_Use]) -> None:
        """Remember the proofs in one transaction, and then say which were new."""
        answers: list[bool | TrustError]
        try:
            answers = self._remember(batch) if batch else []
        except Exception as error:  # noqa: BLE001  whatever went wrong, nobody can tell
            self._close()
            answers = [KeySourceUnavailableError(self._complaint(error)) for _ in batch]
        for use, answer in zip(batch, answers, strict=True):
            if isinstance(answer, bool):
                use.answer.set_result(answer)
            else:
                use.answer.set_exception(answer)

    def _complaint(self, error: Exception) -> str:
        """The fault, without the content of a proof."""
        if isinstance(error, sqlite3.Error | OSError):
            return self._file.complaint(error)
        return f"{self._name}: {error if isinstance(error, ConfigurationError) else type(error).__name__}"

    def _remember(self, batch: list[_Use]) -> list[bool | TrustError]:
        connection = self._connected()
        connection.execute("BEGIN IMMEDIATE")  # before reading: who is second sees what the first one wrote
        table = _Table(connection, self._room)
        table.drop(batch[0].now, batch[0].window)
        answers = [table.first_use(use) for use in batch]
        connection.execute("COMMIT")
        return answers

    def _connected(self) -> sqlite3.Connection:
        """The connection, to the file that is at the path, which stays the same one until the process ends."""
        file = self._file.followed()
        status = file.path.stat()
        identity = status.st_dev, status.st_ino
        if self._identity not in (identity, (0, 0)):
            raise ConfigurationError(
                "another file lies in its place, which does not know the proofs of this one; "
                "restart the server to use that"
            )
        if self._connection is None:
            self._connection = self._open.enter_context(file.connection())
            self._connection.execute("PRAGMA synchronous = OFF")
            self._identity = identity
        return self._connection

    def _close(self) -> None:
        self._connection = None
        with suppress(sqlite3.Error, OSError):  # of a file that cannot be written
            self._open.close()


#: Writers of the parent, in a forked child: kept, since SQLite does not allow a child to close their connections.
_INHERITED: Final[list[_Writer]] = []


class _Table:
    """The tables inside a transaction."""

    def __init__(self, connection: sqlite3.Connection, room: Room) -> None:
        self._connection, self._room = connection, room
        self._dropped = DroppedTimes(connection.execute("SELECT first, last FROM dropped"))

    def first_use(self, use: _Use) -> bool | TrustError:
        """Whether this is the first use, or why that cannot be told."""
        execute, second = self._connection.execute, int(use.issued)
        if execute("SELECT 1 FROM proof WHERE digest = ?", (use.digest,)).fetchone():
            return False
        holder = digest_of(use.jkt)
        try:
            self._dropped.check(second)
            self._room.check(use.jkt, by_key=self._used(holder), by_all=self._used(_ALL))
        except (KeySourceUnavailableError, TooManyRequestsError) as error:
            return error
        execute("INSERT INTO proof (digest, issued, holder) VALUES (?, ?, ?)", (use.digest, second, holder))
        self._count([(holder, 1), (_ALL, 1)])
        return True

    def drop(self, now: float, window: float) -> None:
        """Remove some of the proofs that have ended, or that belong to a clock that ran ahead."""
        first, last = kept_seconds(now, window)
        find = "SELECT digest, issued, holder FROM proof WHERE issued {} ? LIMIT ?"
        rows = [
            *self._connection.execute(find.format("<"), (first, _MAX_DROPPED)),
            *self._connection.execute(find.format(">"), (last, _MAX_DROPPED)),
        ]
        if not rows:
            return
        self._connection.executemany("DELETE FROM proof WHERE digest = ?", [(digest,) for digest, _, _ in rows])
        fewer = Counter(holder for _, _, holder in rows)
        self._count([(_ALL, -len(rows)), *((holder, -number) for holder, number in fewer.items())])
        self._connection.executemany(
            "DELETE FROM holder WHERE holder = ? AND used = 0", [(holder,) for holder in fewer]
        )
        for second in sorted({second for _, second, _ in rows}):
            self._dropped.add(second)
        self._connection.execute("DELETE FROM dropped")
        self._connection.executemany("INSERT INTO dropped VALUES (?, ?)", self._dropped.ranges)

    def _used(self, holder: bytes) -> int:
        found = self._connection.execute("SELECT used FROM holder WHERE holder = ?", (holder,)).fetchone()
        return 0 if found is None else int(found[0])

    def _count(self, changes: Iterable[tuple[bytes, int]]) -> None:
        self._connection.executemany(
            "INSERT INTO holder VALUES (?, ?) ON CONFLICT DO UPDATE SET used = used + excluded.used", changes
        )
