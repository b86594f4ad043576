"""Used DPoP proofs in an SQLite file (``auth.proofs.memory``), for the processes of one machine, and across restarts.

A proof is accepted only after its transaction. Proofs that come meanwhile share the next one (``LookUps``). A thread
of its own writes, so neither a slow disk nor another process that holds the file blocks the event loop: a request waits
``timeout`` seconds, and is rejected then (503).

A transaction survives a kill, but it does not wait for the disk: with that, requests took 3 to 100 times as long. A
power cut may damage the file.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from a2a_trust.auth.proofs.memory import MAX_WINDOW, Capacity, DroppedTimes, digest_of, kept_seconds
from a2a_trust.base.cache import LookUps
from a2a_trust.base.files.sqlite import SqliteFile
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError, TooManyRequestsError, TrustError

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
_MAX_DROPPED: Final = 1_000
"""How many rows one transaction removes: it must not take long after a busy time."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Use:
    jkt: str
    digest: bytes
    now: float
    issued: float
    window: float
    waits: bool = True
    """Whether the request still waits. If it does not, it was rejected, and the proof was not used."""


class SqliteProofMemory:
    """Remembers proofs in one SQLite file, which the processes of one machine share and which outlives them.

    A kill of the process loses nothing. KeySourceUnavailableError (503) when the file cannot be written in time, when
    it is damaged, or when another file lies in its place: an unreachable memory is never treated as an empty one.
    """

    def __init__(
        self, path: Path | str, *, create: bool = False, capacity: int = 1_000_000, timeout: float = 2.0
    ) -> None:
        """``create`` makes the file, for its owner only, if it is not there. ``capacity``: the largest number of proofs
        at once. ``timeout``: the longest, in seconds, that a request waits for the file. ConfigurationError: the file
        is missing, damaged, or another kind of file. OSError: it cannot be made.
        """
        self._identity = (0, 0)
        self._begin_in_this_process()
        self._capacity = Capacity(capacity, "SqliteProofMemory(…, capacity=…)")
        self._file = SqliteFile(
            path=Path(path).absolute(),
            what="memory of DPoP proofs",
            application_id=_APPLICATION_ID,
            version=1,
            tables=_TABLES,
            if_damaged=f"move it away, and wait {2 * MAX_WINDOW:.0f} seconds before you start with a new one: until "
            "then a used proof may be accepted again",
            timeout=timeout,
        )
        self._timeout = timeout
        first = f"to make one: SqliteProofMemory({str(path)!r}, create=True)"
        try:
            self._file.open_or_make(path, create=create, if_missing=first)
            self._file.check_content()
        except sqlite3.Error as error:
            raise ConfigurationError(self._file.complaint(error)) from None

    def __del__(self) -> None:
        if self._process == os.getpid():
            self._close()  # Python 3.13 warns of connections that are dropped open

    def _begin_in_this_process(self) -> None:
        self._process = os.getpid()
        self._transactions = LookUps(self._remember)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="a2a_trust.proofs")
        self._connection: sqlite3.Connection | None = None  # of the thread

    async def first_use(self, jkt: str, jti: str, *, now: float, issued: float, window: float) -> bool:
        if self._process != os.getpid():  # a fork has no threads
            _INHERITED.append((self._thread, self._connection))
            self._begin_in_this_process()
        use = _Use(jkt=jkt, digest=digest_of(jkt, jti), now=now, issued=issued, window=window)
        answer: bool | TrustError | None
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._transactions.find(use)
        except TimeoutError:
            answer = self._outage(f"a write takes longer than {self._timeout:g} seconds")
        finally:
            use.waits = False
        if isinstance(answer, TrustError):
            raise answer
        return answer is True

    async def _remember(self, uses: tuple[_Use, ...]) -> dict[_Use, bool | TrustError]:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._write, uses)
        except RuntimeError as error:  # no thread can be started now, or the program ends
            raise self._outage(str(error)) from None

    def _write(self, uses: tuple[_Use, ...]) -> dict[_Use, bool | TrustError]:
        """Store the proofs in one transaction: for each whether it is new, or why that is unknown."""
        waiting = [use for use in uses if use.waits]
        if not waiting:
            return {}
        try:
            connection = self._connect()
            connection.execute("BEGIN IMMEDIATE")  # before reading, so a second writer sees the first one's proofs
            table = _ProofTables(connection, self._capacity)
            table.drop(waiting[0].now, waiting[0].window)
            answers = {use: table.first_use(use) for use in waiting}
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001  it is unknown what was written
            self._close()
            if isinstance(error, sqlite3.Error | OSError):
                return {use: KeySourceUnavailableError(self._file.complaint(error)) for use in waiting}
            why = str(error) if isinstance(error, ConfigurationError) else type(error).__name__  # no content of a proof
            return {use: self._outage(why) for use in waiting}
        return answers

    def _outage(self, why: str) -> KeySourceUnavailableError:
        return KeySourceUnavailableError(f"the memory of DPoP proofs {self._file.path}: {why}")

    def _connect(self) -> sqlite3.Connection:
        """The connection to the file at the path, which stays the same file until the process ends."""
        file = self._file.follow_links()
        status = file.path.stat()
        identity = status.st_dev, status.st_ino
        if self._identity not in (identity, (0, 0)):
            raise ConfigurationError(
                "another file lies in its place, which does not know the proofs of this one; "
                "restart the server to use that"
            )
        if self._connection is None:
            self._connection = file.open()
            self._connection.execute("PRAGMA synchronous = OFF")
            self._identity = identity
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error, OSError):  # of a file that cannot be written
                connection.close()


#: Threads and connections of the parent, in a forked child: kept, since SQLite does not allow a child to close them.
_INHERITED: Final[list[tuple[object, object]]] = []


class _ProofTables:
    def __init__(self, connection: sqlite3.Connection, capacity: Capacity) -> None:
        self._connection, self._capacity = connection, capacity
        self._dropped = DroppedTimes(connection.execute("SELECT first, last FROM dropped"))

    def first_use(self, use: _Use) -> bool | TrustError:
        """Whether this is the first use, or why that is unknown."""
        execute, second = self._connection.execute, int(use.issued)
        if execute("SELECT 1 FROM proof WHERE digest = ?", (use.digest,)).fetchone():
            return False
        holder = digest_of(use.jkt)
        try:
            self._dropped.check(second)
            self._capacity.check(use.jkt, by_key=self._number_of(holder), by_all=self._number_of(_ALL))
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

    def _number_of(self, holder: bytes) -> int:
        found = self._connection.execute("SELECT used FROM holder WHERE holder = ?", (holder,)).fetchone()
        return 0 if found is None else int(found[0])

    def _count(self, changes: Iterable[tuple[bytes, int]]) -> None:
        self._connection.executemany(
            "INSERT INTO holder VALUES (?, ?) ON CONFLICT DO UPDATE SET used = used + excluded.used", changes
        )
