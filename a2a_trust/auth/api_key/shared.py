"""API keys in PostgreSQL, Redis or Valkey, for all processes and machines of an agent.

In PostgreSQL, keys are looked up by digest, through an index, so a look-up costs the same however many there are. A
trigger replaces the ``revision`` with every change except of a last use, also with a change by hand, and notifies the
listeners. So a revocation takes effect within milliseconds, and without notifications within ``refresh`` seconds.

In Redis, a record is one value under the digest of its key, with an index by id. Every change except of a last use
replaces the ``revision`` in the same transaction. A server without a ``revision`` has lost its store:
KeySourceUnavailableError, and no key is reported as unknown. With ``appendonly yes`` and ``appendfsync always`` a
change survives a power cut. A failover to a replica can lose the last changes, so repeat the last revocations after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final
from uuid import uuid4

from a2a_trust.auth.api_key.verifier import ApiKeyRecord, ApiKeyWrites
from a2a_trust.auth.record_table import KEY_COLUMNS, ApiKeysInTable, Session, WritableTable, api_key_table
from a2a_trust.auth.records import Found, WriteTable, readable_of, split
from a2a_trust.base.cache import SingleFlight
from a2a_trust.base.databases.availability import REQUEST_SECONDS, Pooled
from a2a_trust.base.databases.postgres import Postgres
from a2a_trust.base.databases.redis import RedisServer
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError

_FIND: Final = f"""
SELECT revision.value, {KEY_COLUMNS} FROM a2a_trust.api_key_revision AS revision
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


class PostgresApiKeys(ApiKeysInTable, Pooled[Postgres]):
    """The API keys in one database, for servers (``ApiKeyVerifier(PostgresApiKeys(url))``) and operators alike.

    KeySourceUnavailableError when the database does not answer in time.
    """

    _table = api_key_table("a2a_trust.api_key")

    def __init__(self, url: str, *, timeout: float = REQUEST_SECONDS) -> None:
        """``url``: ``postgresql://USER@HOST/DATABASE``, prepared with ``a2a-sign database migrate``. ``timeout``: the
        longest, in seconds, that a read or a write waits for the database. ConfigurationError: an argument is wrong.
        """
        self._server = Postgres(url, what="API keys", timeout=timeout)
        self._changed: list[Callable[[], None]] = []
        self._listening = SingleFlight[None, None]()

    def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` after each change of the keys, as long as the database can be reached."""
        self._changed.append(changed)

    async def find(self, digests: tuple[bytes, ...]) -> Found[ApiKeyRecord]:
        if self._changed:
            self._listening.begin(None, self._listen)
        async with self._server.session() as connection:
            rows = await connection.fetch(_FIND, digests)
        if not rows:
            raise KeySourceUnavailableError(f"the {self._server.what} have no revision; restore its row")
        found = [row[1:] for row in map(tuple, rows) if row[1] is not None]
        return Found(rows[0][0], readable_of(found, self._table.record, what=self._server.what))

    async def touch(self, used: Mapping[str, float]) -> None:
        uses = iter(used.items())
        while some := [*islice(uses, _USES)]:
            async with self._server.session() as connection:
                await connection.execute(_TOUCH, *map(list, zip(*some, strict=True)))

    async def aclose(self) -> None:
        listening = self._listening.running(None)
        if listening is not None:
            listening.cancel()
        await super().aclose()

    async def _listen(self) -> None:
        """Listen until the connection ends. The next look-up begins again."""
        with suppress(KeySourceUnavailableError):
            async with self._server.listening(_CHANNEL, self._notify) as lost:
                self._notify()  # of changes before this
                await lost.wait()

    def _notify(self) -> None:
        for changed in self._changed:
            changed()

    def _reading(self) -> AbstractContextManager[Session]:
        return self._server.transaction()

    @contextmanager
    def _writing(self) -> Iterator[WriteTable[ApiKeyRecord]]:
        with self._server.transaction() as session:
            session.execute(_LOCK)
            yield WritableTable(session, self._table)


_REVISION: Final = "a2a:keys:revision"
_IDS: Final = "a2a:keys:ids"
"""A hash: the id of each key -> its digest, in hex."""
_USED: Final = "a2a:keys:used"
"""A sorted set: the id of each key, by its last use."""
_TOGETHER: Final = 1_000
"""Records of one answer."""
_TABLE: Final = api_key_table("")
"""The order of the members of a record. Redis has no tables."""


class RedisApiKeys(ApiKeyWrites, Pooled[RedisServer]):
    """The API keys in one Redis server, for servers (``ApiKeyVerifier(RedisApiKeys(url))``) and operators alike.

    KeySourceUnavailableError when the server does not answer in time, evicts keys, is a replica, or has no store.
    """

    def __init__(self, url: str, *, create: bool = False, timeout: float = REQUEST_SECONDS) -> None:
        """``url``: ``rediss://HOST:6379/0``, or ``redis://…`` without TLS. ``create`` makes the store with its first
        key. ``timeout``: the longest, in seconds, that a read or a write waits for the server. ConfigurationError: an
        argument is wrong.
        """
        self._server = RedisServer(url, what="API keys", timeout=timeout)
        self._create = create

    def records(self, *, owner: str | None = None) -> tuple[ApiKeyRecord, ...]:
        """As ``SqliteApiKeys.records``."""
        rows = self._rows()
        with self._server.blocking() as client:
            used = {key_id.decode(): at for key_id, at in client.zrange(_USED, 0, -1, withscores=True)}
        records = [
            replace(record, last_used=used.get(record.key_id))
            for record in readable_of(rows, _record)
            if owner in (None, record.owner)
        ]
        return tuple(sorted(records, key=lambda record: (record.created, record.key_id)))

    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """As ``SqliteApiKeys.unreadable``, by the digest in hex."""
        rows = ((digest.hex(), value, digest) for value, digest in self._rows())
        return split(rows, lambda row: _record(row[1:]))[1]

    async def find(self, digests: tuple[bytes, ...]) -> Found[ApiKeyRecord]:
        async with self._server.session() as client, client.pipeline(transaction=True) as pipeline:
            pipeline.get(_REVISION)
            pipeline.mget(map(_name, digests))
            pipeline.info("memory")
            pipeline.info("replication")
            revision, values, memory, replication = await pipeline.execute()
            self._server.check_room(memory)
            self._server.check_role(replication)
        if revision is None:
            raise self._no_store()
        rows = [row for row in zip(values, digests, strict=True) if row[0] is not None]
        return Found(revision, readable_of(rows, _record, what=self._server.what))

    async def touch(self, used: Mapping[str, float]) -> None:
        async with self._server.session() as client:
            await client.zadd(_USED, dict(used), gt=True)

    def _rows(self) -> list[tuple[bytes | None, bytes]]:
        """The stored value of each key, and the key's digest."""
        with self._server.blocking() as client:
            if client.get(_REVISION) is None and not self._create:
                raise self._no_store()
            digests = list(map(_digest, client.hvals(_IDS)))
            rows: list[tuple[bytes | None, bytes]] = []
            for first in range(0, len(digests), _TOGETHER):
                some = digests[first : first + _TOGETHER]
                rows += zip(client.mget(map(_name, some)), some, strict=True)
        return rows

    @contextmanager
    def _writing(self) -> Iterator[WriteTable[ApiKeyRecord]]:
        with self._server.transaction(_REVISION) as pipeline:
            if pipeline.get(_REVISION) is None and not self._create:
                raise self._no_store()
            table = _WritableKeys(pipeline, {})
            yield table
            table.write()

    def _no_store(self) -> KeySourceUnavailableError:
        return KeySourceUnavailableError(
            f"there are no {self._server.what}: the server is new, or lost its data; restore it, or make a first key: "
            f"a2a-sign api-key create --store {self._server.url.shown} --owner NAME"
        )


@dataclass(frozen=True, slots=True)
class _WritableKeys:
    """The keys inside a transaction. Reads go to the server at once, and writes all together at the end."""

    pipeline: Any
    changed: dict[str, ApiKeyRecord]

    def get(self, key_id: str) -> ApiKeyRecord | None:
        if key_id in self.changed:
            return self.changed[key_id]
        found = self.pipeline.hget(_IDS, key_id)
        if found is None:
            return None
        digest = _digest(found)
        return _record((self.pipeline.get(_name(digest)), digest))

    def name_of(self, digest: bytes) -> str | None:
        value = self.pipeline.get(_name(digest))
        return None if value is None else _record((value, digest)).key_id

    def put(self, record: ApiKeyRecord) -> None:
        self.changed[record.key_id] = record

    def write(self) -> None:
        self.pipeline.multi()
        for record in self.changed.values():
            key_id, digest, *rest, _ = _TABLE.row(record)
            stored = [float(each) if type(each) is int else each for each in rest]  # a time may be given as an int
            self.pipeline.set(_name(digest), json.dumps([key_id, *stored]))
            self.pipeline.hset(_IDS, key_id, digest.hex())
        self.pipeline.set(_REVISION, uuid4().bytes)


def _name(digest: bytes) -> bytes:
    return b"a2a:key:" + digest


def _digest(value: bytes) -> bytes:
    """The digest in the index of ids. ConfigurationError: it is damaged."""
    try:
        return bytes.fromhex(value.decode())
    except ValueError:
        raise ConfigurationError(f"API keys: a value in {_IDS} is not a digest in hex; restore it") from None


_KINDS: Final[Any] = (str, str, str, float, float, float | None, str | None, bool)


def _record(row: Sequence[Any]) -> ApiKeyRecord:
    """The record in a stored value, and the digest that it is stored under. ConfigurationError: it is damaged."""
    value, digest = row
    try:
        stored = json.loads(value or b"")
    except (ValueError, RecursionError):
        stored = None
    if type(stored) is not list or len(stored) != len(_KINDS) or not all(map(isinstance, stored, _KINDS)):
        raise ConfigurationError("API key: the stored value is not a record")
    key_id, *rest = stored
    return _TABLE.record((key_id, digest, *rest, None))
