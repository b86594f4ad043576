"""API keys in PostgreSQL, for all processes and machines of an agent.

Keys are looked up by digest, through an index, so a look-up costs the same however many there are. A trigger replaces
the ``revision`` with every change except of a last use, also with a change by hand, and notifies the listeners. So a
revocation takes effect within milliseconds, and without notifications within ``refresh`` seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import Final

from a2a_trust.auth.api_key.sqlite import COLUMNS, ApiKeysInTable, api_key_table
from a2a_trust.auth.api_key.verifier import ApiKeyRecord
from a2a_trust.auth.record_table import Session, WritableTable
from a2a_trust.auth.records import Found, WriteTable, readable_of
from a2a_trust.base.cache import SingleFlight
from a2a_trust.base.databases.availability import REQUEST_SECONDS, Pooled
from a2a_trust.base.databases.postgres import Postgres
from a2a_trust.errors import KeySourceUnavailableError

_FIND: Final = f"""
SELECT revision.value, {COLUMNS} FROM a2a_trust.api_key_revision AS revision
LEFT JOIN a2a_trust.api_key ON digest = ANY ($1::bytea[])
"""  # noqa: S608  a constant
#: A row that another replica writes at this moment gets its last use from that replica.
_TOUCH: Final = """
WITH used AS (SELECT * FROM unnest($1::text[], $2::float8[]) AS given (id, at)),
free AS (SELECT id FROM a2a_trust.api_key WHERE id = ANY ($1::text[]) FOR NO KEY UPDATE SKIP LOCKED)
UPDATE a2a_trust.api_key AS api_key SET last_used = used.at FROM used, free
WHERE api_key.id = used.id AND free.id = used.id AND (last_used IS NULL OR last_used < used.at)
"""
#: Others may read, and write no keys until the end of the transaction.
_LOCK: Final = "LOCK TABLE a2a_trust.api_key IN SHARE ROW EXCLUSIVE MODE"

_CHANNEL: Final = "a2a_trust_api_key"
_USES: Final = 1_000
"""Last uses of one transaction."""


class PostgresApiKeys(ApiKeysInTable, Pooled):
    """The API keys in one database, for servers (``ApiKeyVerifier(PostgresApiKeys(url))``) and operators alike.

    KeySourceUnavailableError when the database does not answer in time.
    """

    _table = api_key_table("a2a_trust.api_key")

    def __init__(self, url: str, *, timeout: float = REQUEST_SECONDS) -> None:
        """``url``: ``postgresql://USER@HOST/DATABASE``, prepared with ``a2a-sign database migrate``. ``timeout``: the
        longest, in seconds, that a read or a write waits for the database. ConfigurationError: an argument is wrong.
        """
        self._database = Postgres(url, what="API keys", timeout=timeout)
        self._changed: list[Callable[[], None]] = []
        self._listening = SingleFlight[None, None]()

    def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` after each change of the keys, as long as the database can be reached."""
        self._changed.append(changed)

    async def find(self, digests: tuple[bytes, ...]) -> Found[ApiKeyRecord]:
        if self._changed:
            self._listening.begin(None, self._listen)
        async with self._database.session() as connection:
            rows = await connection.fetch(_FIND, digests)
        if not rows:
            raise KeySourceUnavailableError(f"the {self._database.what} have no revision; restore its row")
        found = [row[1:] for row in map(tuple, rows) if row[1] is not None]
        return Found(rows[0][0], readable_of(found, self._table.record, what=self._database.what))

    async def touch(self, used: Mapping[str, float]) -> None:
        uses = iter(used.items())
        while some := [*islice(uses, _USES)]:
            async with self._database.session() as connection:
                await connection.execute(_TOUCH, *map(list, zip(*some, strict=True)))

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        listening = self._listening.running(None)
        if listening is not None:
            listening.cancel()
        await self._database.aclose()

    async def _listen(self) -> None:
        """Listen until the connection ends. The next look-up begins again."""
        with suppress(KeySourceUnavailableError):
            async with self._database.listening(_CHANNEL, self._notify) as lost:
                self._notify()  # of changes before this
                await lost.wait()

    def _notify(self) -> None:
        for changed in self._changed:
            changed()

    def _reading(self) -> AbstractContextManager[Session]:
        return self._database.transaction()

    @contextmanager
    def _writing(self) -> Iterator[WriteTable[ApiKeyRecord]]:
        with self._database.transaction() as session:
            session.execute(_LOCK)
            yield WritableTable(session, self._table)
