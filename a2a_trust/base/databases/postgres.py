"""PostgreSQL: connections for the event loops and the threads of every process, with short time limits; its tables.

- Without ``sslmode`` in the URL, a connection to another machine is encrypted, and its certificate must be valid.
- Synchronous code uses an event loop in a thread of its own, one in each process.

Queries name the schema, and values are parameters: a search path or a value changes no query.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from a2a_trust.base.cache import PerLoop
from a2a_trust.base.databases.availability import REQUEST_SECONDS, Database, DatabaseUrl
from a2a_trust.base.databases.schema import MIGRATIONS, VERSION, VERSION_QUERY, WrongTables, check_version
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError, TrustError

_CONNECTIONS: Final = 8
"""The most connections of one event loop. PostgreSQL allows 100 in all by default."""

_TRY_EVERY: Final = 10.0
"""How often a connection that only listens is tried, in seconds."""

_SPOKEN: Final = ("08", "28", "3D", "3F", "42", "53", "57")
"""Classes of SQLSTATE whose messages name roles, databases and tables, and never a value: connection, authorization,
names and rights, resources, and an operator's intervention."""

_T = TypeVar("_T")


class SqlConnection(Protocol):
    """A connection of asyncpg, as far as queries use it; ``values`` are the parameters $1, $2 ..."""

    async def fetch(self, query: str, *values: object) -> list[Any]: ...
    async def execute(self, query: str, *values: object) -> str: ...


class Postgres(Database):
    """A database with the tables of this release (``base.databases.schema``)."""

    def __init__(
        self,
        url: str,
        *,
        what: str,
        unavailable: type[TrustError] = KeySourceUnavailableError,
        timeout: float = REQUEST_SECONDS,
    ) -> None:
        """ConfigurationError: the URL is not one of PostgreSQL, or the extra is not installed."""
        try:
            import asyncpg  # type: ignore[import-untyped]
        except ImportError:
            raise ConfigurationError('PostgreSQL needs asyncpg: pip install "./a2a-trust[postgres]"') from None
        super().__init__("PostgreSQL", DatabaseUrl.postgres(url), what, unavailable, timeout)
        self._asyncpg: Final = asyncpg
        ours = asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError
        self._errors = (OSError, TimeoutError, WrongTables, *ours)
        self._pools: PerLoop[Any] = PerLoop(self._make_pool)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[SqlConnection]:
        """A connection of the running event loop for the block, which must end in time, too."""
        pool = await self._pools.get()  # which opens no connection yet
        with self._translate(audits=True):
            async with asyncio.timeout(self._timeout), pool.acquire(timeout=self._timeout) as connection:
                try:
                    yield connection
                except (TimeoutError, asyncio.CancelledError):
                    connection.terminate()  # else its release would wait for the answer
                    raise

    @asynccontextmanager
    async def connect_unchecked(self) -> AsyncIterator[Any]:
        """A connection of its own for the block, to tables of any version."""
        with self._translate():
            connection = await self._asyncpg.connect(self.url.text, **self._options())
            try:
                yield connection
            finally:
                connection.terminate()

    @asynccontextmanager
    async def listening(self, channel: str, heard: Callable[[], None]) -> AsyncIterator[asyncio.Event]:
        """A connection that calls ``heard`` for each notification of the channel. The event is its end.

        The connection is tried every ten seconds: its other end may be gone without a word, as after a firewall dropped
        the line, and then nothing would ever come.
        """
        async with self.connect_unchecked() as connection:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(channel, lambda *_: heard())
            trying = asyncio.create_task(self._try(connection))
            try:
                yield lost
            finally:
                trying.cancel()

    async def _try(self, connection: Any) -> None:
        """End a connection that does not answer in time."""
        try:
            while True:
                await asyncio.sleep(_TRY_EVERY)
                await connection.execute("SELECT")
        except self._errors:
            self._drop(connection)

    @contextmanager
    def transaction(self, *, audits: bool = False) -> Iterator[Transaction]:
        """A transaction for synchronous code, which must end in time, too. It is undone when the block raises.

        It is READ COMMITTED, whatever is the default of the server: a query sees all that was committed before it, so
        what follows a lock sees what the holder before has written. ``audits``: a loss is an event in the audit trail.
        """
        own = background()
        session = own.result(self._begin(own, audits=audits))
        try:
            yield session
        except BaseException:
            with suppress(TrustError):
                own.result(session._end(commit=False))
            raise
        own.result(session._end(commit=True))

    async def _begin(self, own: _Background, *, audits: bool) -> Transaction:
        ends = asyncio.get_running_loop().time() + self._timeout
        pool = await self._pools.get()  # which opens no connection yet
        with self._translate(audits=audits, is_part=True):
            async with asyncio.timeout_at(ends):
                connection = await pool.acquire(timeout=self._timeout)
                try:
                    transaction = connection.transaction(isolation="read_committed")
                    await transaction.start()
                except BaseException:
                    self._drop(connection)
                    raise
        return Transaction(self, own, pool, connection, transaction, ends, audits)

    def _drop(self, connection: Any) -> None:
        """End a connection without waiting for the server; the pool makes another one in its place."""
        with suppress(self._asyncpg.InterfaceError):  # it was dropped before
            connection.terminate()

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The next use opens new ones."""
        pool = self._pools.pop()
        if pool is not None:
            with suppress(*self._errors):  # at the time limit, it ends requests that still run
                async with asyncio.timeout(self._timeout):
                    await pool.close()

    def _make_pool(self) -> Any:
        return self._asyncpg.create_pool(
            self.url.text, min_size=0, max_size=_CONNECTIONS, init=self._check, reset=_nothing, **self._options()
        )

    def _options(self) -> dict[str, Any]:
        given_up = str(int(min(self._timeout * 2000, 2**31 - 1)) + 1)
        options: dict[str, Any] = {
            "timeout": self._timeout,
            "command_timeout": self._timeout,
            "server_settings": {
                "application_name": "a2a-trust",
                "search_path": "",
                "synchronous_commit": "on",
                # The locks of a process that was stopped, or cut off, must not stay; in milliseconds.
                "idle_in_transaction_session_timeout": given_up,
                "statement_timeout": given_up,
            },
        }
        if not self.url.names_role:
            options["target_session_attrs"] = "primary"  # a standby lacks what was written a moment ago
        if not self.url.is_local and not self.url.names_tls:
            options["ssl"] = ssl.create_default_context()
        return options

    async def _check(self, connection: SqlConnection) -> None:
        """Each new connection: the tables are those that this release knows."""
        rows = await connection.fetch(VERSION_QUERY)
        check_version(rows[0][0] if rows else None, rows[0][1] if rows else None, self.url.shown)

    def _reason(self, error: Exception) -> str:
        if isinstance(error, WrongTables):
            return str(error)
        state = getattr(error, "sqlstate", None)
        text = str(error.args[0]) if state is not None and state.startswith(_SPOKEN) and error.args else ""
        if isinstance(error, TimeoutError):
            text = f"no answer within {self._timeout:g} seconds"
        elif isinstance(error, OSError):
            text = error.strerror or ""
        elif isinstance(error, self._asyncpg.TargetServerAttributeNotMatched):
            text = "no server in the URL is the primary"
        advice = f"; run: a2a-sign database migrate {self.url.shown}" if (state or "").startswith(("3F", "42P")) else ""
        return f"{text or type(error).__name__}{advice}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Transaction:
    """A transaction in the hands of synchronous code. It must have ended at ``ends``, by the clock of ``own``."""

    database: Postgres
    own: _Background
    pool: Any
    connection: Any
    transaction: Any
    ends: float
    audits: bool

    def fetch(self, query: str, *values: object) -> list[Any]:
        return self.own.result(self._do(self.connection.fetch, query, *values))

    def execute(self, query: str, *values: object) -> None:
        self.own.result(self._do(self.connection.execute, query, *values))

    async def _do(self, method: Callable[..., Coroutine[Any, Any, _T]], *values: object, is_part: bool = True) -> _T:
        with self.database._translate(audits=self.audits, is_part=is_part):
            async with asyncio.timeout_at(self.ends):
                try:
                    if asyncio.get_running_loop().time() > self.ends:
                        raise TimeoutError  # before it is sent: a late commit would count, and be reported as a failure
                    return await method(*values)
                except (TimeoutError, asyncio.CancelledError):
                    self.database._drop(self.connection)  # else its end would wait for the answer
                    raise

    async def _end(self, *, commit: bool) -> None:
        try:
            await self._do(self.transaction.commit if commit else self.transaction.rollback, is_part=not commit)
        except BaseException:
            self.database._drop(self.connection)
            raise
        await self.pool.release(self.connection)


class _Background:
    """An event loop in a thread of its own, for synchronous code."""

    def __init__(self) -> None:
        self.process: int = os.getpid()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="a2a_trust.base.databases", daemon=True).start()

    def result(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of a coroutine, which runs in that thread; it is canceled when a signal ends the wait."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise


_lock: Final = threading.Lock()
if sys.platform != "win32":  # a lock that another thread holds during a fork would never be free in the child
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_running: list[_Background] = []


def background() -> _Background:
    """The event loop of this process for synchronous code."""
    with _lock:
        if not _running or _running[-1].process != os.getpid():
            _running.append(_Background())
        return _running[-1]


async def _nothing(connection: object) -> None:
    """No session changes its settings, so there is nothing to reset, which saves a round trip."""


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
