"""API keys: how one looks, what is kept of it, and the verifier that judges it by what is kept.

A key is ``prefix_id_secret`` with a checksum, 55 characters with the default prefix::

    a2a_3kTMd9QxL0aB_7Hq…32 random characters…Zw0pK1Xe
    ───┬──────────── ────────────────┬────────── ──┬───
    its id, public     the secret, 190 bits     CRC-32 of all before it, in base 62

The prefix is a word of the operator's, by which scanners find leaked keys; the checksum tells them, and tells us, a key
from a lookalike and from a typo. The id stands in lists, logs and identities. Of the whole text only the SHA-256 is
kept: it needs no salt and no slow hash, since nobody can guess 190 random bits. Keys that were made elsewhere can be
imported; they are known by their digest alone, and are as good as they are random: that nobody can check here.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from hmac import compare_digest
from threading import Lock
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from a2a_trust.auth.principal import SCOPE, CredentialKind, Identity
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MalformedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "DEFAULT_PREFIX",
    "ApiKeyRecord",
    "ApiKeyStore",
    "ApiKeyVerifier",
    "ApiKeyWrites",
    "IssuedApiKey",
    "KeyTable",
    "MemoryApiKeys",
    "key_id_of",
]

DEFAULT_PREFIX: Final = "a2a"

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH, _SECRET_LENGTH, _CHECKSUM_LENGTH = 12, 32, 6
_KEY: Final = re.compile(r"([a-z][a-z0-9]{1,15}_[0-9A-Za-z]{12})_[0-9A-Za-z]{38}")
_KEY_ID: Final = re.compile(r"[a-z][a-z0-9]{1,15}_[0-9A-Za-z]{12}")
_PREFIX: Final = re.compile(r"[a-z][a-z0-9]{1,15}")
#: What follows the id of a key of ours: the underscore, the secret and the checksum.
_TAIL: Final = 1 + _SECRET_LENGTH + _CHECKSUM_LENGTH

_SHORTEST_IMPORT: Final = 32
_LONGEST: Final = 1024
_IMPORTABLE: Final = re.compile(r"[!-~]+")  # what passes every header, cookie and query as it is
_LONGEST_OWNER: Final = 256

_YEAR_10000: Final = 253_402_300_800

_USE_SECONDS: Final = 60.0
"""The last use of a key is written at most this often."""

_PATIENCE: Final = 5.0
"""How long requests wait for a read that hangs."""

_log = logging.getLogger("a2a_trust")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyRecord:
    """What is kept of a key: enough to know it again, and never the key.

    ``digest`` is the SHA-256 of its whole text. Moments are seconds since the epoch; the key is good until just before
    ``expires``. ``replaced_by`` is the id of the key that a rotation made in its place. An ``imported`` key was made
    elsewhere: its id is a name that was given to it here, and no part of its text.
    """

    key_id: str
    digest: bytes = field(repr=False)
    owner: str
    scopes: frozenset[str] = frozenset()
    created: float
    expires: float = math.inf
    revoked: float | None = None
    last_used: float | None = None
    replaced_by: str | None = None
    imported: bool = False

    def __post_init__(self) -> None:
        if not _KEY_ID.fullmatch(self.key_id):
            raise ConfigurationError("API key: the id is a prefix, an underscore and 12 letters or digits")
        if len(self.digest) != sha256().digest_size:
            raise ConfigurationError("API key: the digest is no SHA-256")
        if not all(map(SCOPE.fullmatch, self.scopes)):
            raise ConfigurationError('API key: a scope is a word of visible ASCII without " and \\, as in tasks:read')
        if (
            not 0 < len(self.owner) <= _LONGEST_OWNER
            or not self.owner.isprintable()
            or self.owner != self.owner.strip()
        ):
            # Owners name callers: two that look the same must not differ in what nobody sees.
            raise ConfigurationError(
                f"API key: the owner is 1 to {_LONGEST_OWNER} printable characters, with no blank at either end"
            )
        if not 0 <= self.created < _YEAR_10000 or not (0 <= self.expires < _YEAR_10000 or self.expires == math.inf):
            raise ConfigurationError("API key: moments are seconds (not milliseconds) since the epoch")

    def is_good(self, now: float) -> bool:
        """Whether the key lets anybody in at that moment."""
        return self.revoked is None and now < self.expires


@dataclass(frozen=True, slots=True)
class IssuedApiKey:
    """A key that was just made. ``text`` is the key itself, which exists nowhere else: hand it over, and let it go."""

    record: ApiKeyRecord
    text: str = field(repr=False, compare=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an API key is not pickled or copied; pass on its record")


def key_id_of(text: str) -> str:
    """The id in a whole key of ours. MalformedError when the form or the checksum is not that of one."""
    match = _KEY.fullmatch(text)
    if match is None or _checksum(text[:-_CHECKSUM_LENGTH]) != text[-_CHECKSUM_LENGTH:]:
        raise MalformedError("this is no API key of ours, or one that was mistyped or cut: its checksum does not hold")
    return match[1]


def _checksum(text: str) -> str:
    number, digits = zlib.crc32(text.encode()), ""
    for _ in range(_CHECKSUM_LENGTH):
        number, digit = divmod(number, 62)
        digits = _BASE62[digit] + digits
    return digits


def _random(length: int) -> str:
    return "".join(secrets.choice(_BASE62) for _ in range(length))


def _digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def _new_id(prefix: str) -> str:
    if not _PREFIX.fullmatch(prefix):
        raise ConfigurationError("API key: the prefix is 2 to 16 small letters and digits, a letter first, as in a2a")
    return f"{prefix}_{_random(_ID_LENGTH)}"


class ApiKeyStore(Protocol):
    """Where a verifier reads keys. Write your own over any database; these two methods are all that is asked."""

    async def snapshot(self) -> tuple[ApiKeyRecord, ...]:
        """Every record, the refused ones included; the same object as before while nothing but last uses changed.

        Any exception means that the keys cannot be read now.
        """
        ...

    async def touch(self, used: Mapping[str, float]) -> None:
        """Keep the moment of the last use, by key id, where it is later than the one that is kept."""
        ...


class KeyTable(Protocol):
    """The keys as one write sees them: nobody else writes meanwhile, and all of it happens or nothing."""

    def get(self, key_id: str) -> ApiKeyRecord | None: ...
    def id_of(self, digest: bytes) -> str | None: ...
    def put(self, record: ApiKeyRecord) -> None: ...


class ApiKeyWrites:
    """What an operator does with keys, the same in every store that can open a table for writing.

    All of it is synchronous and safe in threads; in a running server: ``await asyncio.to_thread(store.revoke, id)``.
    ConfigurationError when what is asked for cannot be; nothing was changed then.
    """

    def _writing(self) -> AbstractContextManager[KeyTable]:
        raise NotImplementedError

    def create(
        self, *, owner: str, scopes: Iterable[str] = (), expires: float = math.inf, prefix: str = DEFAULT_PREFIX
    ) -> IssuedApiKey:
        """A new key. Keys of one owner are one caller, however many there are."""
        issued = _issue(owner=owner, scopes=scopes, expires=expires, prefix=prefix, now=time.time())
        with self._writing() as table:
            table.put(issued.record)
        return issued

    def import_key(
        self,
        text: str,
        *,
        owner: str,
        scopes: Iterable[str] = (),
        expires: float = math.inf,
        prefix: str = DEFAULT_PREFIX,
    ) -> ApiKeyRecord:
        """Accept a key that was made elsewhere, as it is: 32 or more visible ASCII characters, which must be random."""
        if not _SHORTEST_IMPORT <= len(text) <= _LONGEST:
            raise ConfigurationError(
                f"an imported key has {_SHORTEST_IMPORT} to {_LONGEST} characters, and they must be random: "
                "shorter ones can be guessed; make a new key instead"
            )
        if not _IMPORTABLE.fullmatch(text):
            raise ConfigurationError("an imported key is visible ASCII characters without blanks")
        now, digest = time.time(), _digest(text)
        _check_ahead(expires, now)
        record = ApiKeyRecord(
            key_id=_new_id(prefix),
            digest=digest,
            owner=owner,
            scopes=_scopes(scopes),
            created=now,
            expires=expires,
            imported=True,
        )
        with self._writing() as table:
            there = table.id_of(digest)
            if there is not None:
                raise ConfigurationError(f"this key is in the store already, as {there}")
            table.put(record)
        return record

    def rotate(self, key_id: str, *, overlap: timedelta, expires: float | None = None) -> IssuedApiKey:
        """A new key for the same owner and scopes; the old one is good for ``overlap`` more, or ends at its own time.

        The new key lives as long as the old one was meant to, unless ``expires`` says until when.
        """
        if overlap < timedelta(0):
            raise ConfigurationError("the overlap is negative; timedelta(0) ends the old key now")
        with self._writing() as table:
            now = time.time()
            old = _get(table, key_id)
            if old.replaced_by is not None:
                raise ConfigurationError(f"{key_id} was rotated already; rotate {old.replaced_by}, which replaced it")
            if not old.is_good(now):
                raise ConfigurationError(f"{key_id} is revoked or expired; create a new key instead")
            issued = _issue(
                owner=old.owner,
                scopes=old.scopes,
                expires=now + (old.expires - old.created) if expires is None else expires,
                prefix=key_id.partition("_")[0],
                now=now,
            )
            table.put(issued.record)
            ends = min(old.expires, now + overlap.total_seconds())
            table.put(replace(old, expires=ends, replaced_by=issued.record.key_id))
        return issued

    def revoke(self, key_id: str) -> ApiKeyRecord:
        """The key lets nobody in any more, as soon as the verifiers read the store again. There is no way back."""
        with self._writing() as table:
            record = _get(table, key_id)
            if record.revoked is None:
                record = replace(record, revoked=time.time())
                table.put(record)
        return record


def _get(table: KeyTable, key_id: str) -> ApiKeyRecord:
    record = table.get(key_id)
    if record is None:
        # What was given is not repeated: it may be a key.
        raise ConfigurationError("no key has this id; ids look like a2a_3kTMd9QxL0aB, and a list of the keys has them")
    return record


def _issue(*, owner: str, scopes: Iterable[str], expires: float, prefix: str, now: float) -> IssuedApiKey:
    _check_ahead(expires, now)
    key_id = _new_id(prefix)
    text = f"{key_id}_{_random(_SECRET_LENGTH)}"
    text += _checksum(text)
    record = ApiKeyRecord(
        key_id=key_id, digest=_digest(text), owner=owner, scopes=_scopes(scopes), created=now, expires=expires
    )
    return IssuedApiKey(record, text)


def _scopes(scopes: Iterable[str]) -> frozenset[str]:
    if isinstance(scopes, str):
        raise ConfigurationError('API key: write scopes=["read"], a list even of one')
    return frozenset(scopes)


def _check_ahead(expires: float, now: float) -> None:
    if not expires > now:
        raise ConfigurationError(
            "this moment of expiry has passed; give one that lies ahead, in seconds since the epoch"
        )


class MemoryApiKeys(ApiKeyWrites):
    """Keys of this process only, gone when it ends: for tests, and for programs that bring their own records."""

    def __init__(self, records: Iterable[ApiKeyRecord] = ()) -> None:
        self._lock = Lock()
        self._snapshot: tuple[ApiKeyRecord, ...] | None = None
        self._table = _MemoryTable({record.key_id: record for record in records})

    def records(self) -> tuple[ApiKeyRecord, ...]:
        """Every record, the last uses included, in order of creation."""
        with self._lock:
            return tuple(self._table.records.values())

    async def snapshot(self) -> tuple[ApiKeyRecord, ...]:
        with self._lock:
            if self._snapshot is None:
                self._snapshot = tuple(self._table.records.values())
            return self._snapshot

    async def touch(self, used: Mapping[str, float]) -> None:
        with self._lock:
            for key_id, moment in used.items():
                record = self._table.get(key_id)
                if record is not None and (record.last_used is None or record.last_used < moment):
                    self._table.put(replace(record, last_used=moment))

    @contextmanager
    def _writing(self) -> Iterator[KeyTable]:
        with self._lock:
            yield self._table
            self._snapshot = None


@dataclass(frozen=True, slots=True)
class _MemoryTable:
    records: dict[str, ApiKeyRecord]

    def get(self, key_id: str) -> ApiKeyRecord | None:
        return self.records.get(key_id)

    def id_of(self, digest: bytes) -> str | None:
        return next((record.key_id for record in self.records.values() if record.digest == digest), None)

    def put(self, record: ApiKeyRecord) -> None:
        self.records[record.key_id] = record


@dataclass(slots=True)
class _Known:
    """A key as the request path needs it.

    Until just before ``nothing_until`` a hit has nothing to do: the key is good and its last use need not be written.
    """

    key_id: str
    digest: bytes
    good_until: float
    identity: Identity
    nothing_until: float = -math.inf


#: Stands in for keys that are not known, so that they cost the same work; it is good for nothing, ever.
_NOBODY: Final = _Known("", bytes(sha256().digest_size), -math.inf, Identity(issuer="", subject=""))


class ApiKeyVerifier:
    """Proves API keys by the records of a store.

    The identity's subject is the key's owner, so a caller stays the same when its key is rotated and owns what it
    made before; ``claims["key_id"]`` says which key it was. Two verifiers over different stores need different
    ``issuer`` names, else an owner of one is taken for an owner of the other.

    A check reads memory only. The store is read again in the background when half of ``refresh`` seconds have gone, and
    a request that comes after a pause of more than ``refresh`` waits for the read. So **a revoked key is refused at
    most** ``refresh`` **seconds after the revocation is in the store**, in every process. While the store cannot be
    read, what was read last still counts, for at most ``stale_if_error`` seconds; after that, and when nothing was ever
    read, it is KeySourceUnavailableError.
    """

    kind = CredentialKind.API_KEY

    def __init__(
        self,
        store: ApiKeyStore,
        *,
        issuer: str = "api-keys",
        refresh: float = 2.0,
        stale_if_error: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` measures the age of what was read, in seconds; the moment of a request is an argument of verify."""
        if not 0 < refresh <= stale_if_error < math.inf:
            raise ConfigurationError("ApiKeyVerifier: 0 < refresh <= stale_if_error, in seconds, and both finite")
        if isinstance(store, type) or not callable(getattr(store, "snapshot", None)):
            raise ConfigurationError(
                "ApiKeyVerifier: this is no store of keys; for a file write ApiKeyVerifier(SqliteApiKeys('keys.db'))"
            )
        if not issuer:
            raise ConfigurationError("ApiKeyVerifier: issuer is empty; name the store, as in issuer='api-keys'")
        self._store = store
        self._issuer = issuer
        self._refresh = refresh
        self._stale_if_error = stale_if_error
        self._clock = clock
        self._records: tuple[ApiKeyRecord, ...] | None = None
        #: Keys of ours by their id, imported ones by their digest; replaced whole, never changed.
        self._known: Mapping[str | bytes, _Known] = {}
        self._read_at = self._look_again_at = self._retry_at = self._began_at = -math.inf
        self._reading: asyncio.Task[None] | None = None
        self._used: dict[str, float] = {}
        self._unwritten: dict[str, float] = {}
        self._writing: asyncio.Task[None] | None = None

    async def verify(self, credential: str, now: float) -> Identity:
        """The owner of the key. InvalidCredentialsError: unknown, expired or revoked; its text holds nothing secret."""
        if self._clock() >= self._look_again_at:
            await self._look_again()
        if not credential.isascii():
            raise InvalidCredentialsError("this is no API key: it is not ASCII")
        digest = sha256(credential.encode()).digest()
        found = self._known.get(credential[:-_TAIL], _NOBODY)
        if not compare_digest(found.digest, digest):  # the same way for unknown ids and for wrong secrets
            found = self._known.get(digest, _NOBODY)
            if not compare_digest(found.digest, digest):
                raise InvalidCredentialsError(_unknown(credential))
        if not now < found.nothing_until:
            self._check_and_note_use(found, now)
        return found.identity

    def _check_and_note_use(self, key: _Known, now: float) -> None:
        if not now < key.good_until:
            end = "revoked" if key.good_until == -math.inf else "expired"
            raise InvalidCredentialsError(f"API key {key.key_id} is {end}")
        if not 0 <= now - self._used.get(key.key_id, -math.inf) < _USE_SECONDS:
            self._used[key.key_id] = self._unwritten[key.key_id] = now
            writing = self._writing
            if writing is None or writing.done() or writing.get_loop() is not asyncio.get_running_loop():
                self._writing = asyncio.create_task(self._write_uses())
        key.nothing_until = min(key.good_until, self._used[key.key_id] + _USE_SECONDS)

    async def _look_again(self) -> None:
        """Let the store be read, and wait for it only if what was read before is too old.

        KeySourceUnavailableError when it is, and stays, too old even for a store that is out of reach.
        """
        at = self._clock()
        if at >= self._retry_at:
            reading = self._reading
            is_running = reading is not None and not reading.done() and reading.get_loop() is asyncio.get_running_loop()
            if is_running and reading is not None and at - self._began_at >= _PATIENCE:
                reading.cancel()  # one that hangs must not keep out the next, which may not
                is_running = False
            if reading is None or not is_running:
                self._began_at = at
                self._reading = reading = asyncio.create_task(self._read(at))
            if at - self._read_at >= self._refresh:
                await asyncio.wait({reading}, timeout=max(0.0, self._began_at + _PATIENCE - at))
        if self._clock() - self._read_at >= self._stale_if_error:
            raise KeySourceUnavailableError("the API keys cannot be read now")

    async def _read(self, at: float) -> None:
        try:
            records = await self._store.snapshot()
            known = self._known
            if records is not self._records:
                known = await asyncio.to_thread(_index, records, self._issuer)
        except Exception as error:  # noqa: BLE001  the store is anybody's, and a failed read must not end the reading
            self._retry_at = self._clock() + self._refresh / 2
            _log.warning("the API keys could not be read: %s", _reason(error))
            return
        if at >= self._read_at:  # else a later read was faster
            self._records, self._known, self._read_at = records, known, at
            self._look_again_at = at + self._refresh / 2

    async def _write_uses(self) -> None:
        while self._unwritten:
            used, self._unwritten = self._unwritten, {}
            try:
                await self._store.touch(used)
            except Exception as error:  # noqa: BLE001  as above; who may come in does not depend on it
                _log.warning("the last use of API keys could not be written: %s", _reason(error))


def _index(records: tuple[ApiKeyRecord, ...], issuer: str) -> Mapping[str | bytes, _Known]:
    known: dict[str | bytes, _Known] = {}
    for record in records:
        name = record.digest if record.imported else record.key_id
        if name in known:
            raise ConfigurationError(f"two API keys share the id or the text of {record.key_id}; drop one")
        identity = Identity(
            issuer=issuer,
            subject=record.owner,
            scopes=record.scopes,
            expires_at=record.expires,
            claims={"key_id": record.key_id},
        )
        good_until = record.expires if record.revoked is None else -math.inf
        known[name] = _Known(record.key_id, record.digest, good_until, identity)
    return known


def _unknown(credential: str) -> str:
    """Why a key is not known, in words for the log: the checksum tells a typo from a key of somebody else's."""
    if not _KEY_ID.match(credential):
        return "the API key is unknown"
    try:
        key_id_of(credential)
    except MalformedError:
        return "the API key is unknown: it was mistyped or cut, since its checksum does not hold"
    return "the API key is unknown, though its checksum holds: it is deleted, of another store, or forged"


def _reason(error: Exception) -> str:
    """Our own words, which hold no secret; of errors of others only the kind."""
    return str(error) if isinstance(error, KeySourceUnavailableError | ConfigurationError) else type(error).__name__
