"""API keys: their format, their records, and the verifier that checks keys against the records.

A key is ``prefix_id_secret`` with a checksum, 55 characters with the default prefix::

    a2a_3kTMd9QxL0aB_7Hq…32 random characters…Zw0pK1Xe
    ───┬──────────── ────────────────┬────────── ──┬───
    its id, public     the secret, 190 bits     CRC-32 of all before it, in base 62

The operator chooses the prefix, so that scanners find leaked keys. The checksum distinguishes a key from a similar text
and from a typo. The id stands in lists, logs and identities. Only the SHA-256 of the whole text is stored; it needs no
salt and no slow hash, because 190 random bits cannot be guessed. Keys from elsewhere can be imported. They are found by
their digest, and their randomness cannot be checked here.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import blake2s, sha256
from hmac import compare_digest
from typing import Final, Protocol

from a2a_trust.auth.principal import CredentialKind, Identity
from a2a_trust.auth.records import (
    CachedRecord,
    Found,
    Issued,
    MemoryStore,
    MemoryTable,
    Reading,
    RecordCache,
    RecordWrites,
    StoredRecord,
    check_ahead,
    check_moments,
    check_name,
    check_scopes,
    reason,
    revoke_record,
    scope_set,
)
from a2a_trust.base.cache import SingleFlight
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, MalformedError

DEFAULT_PREFIX: Final = "a2a"

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH, _SECRET_LENGTH, _CHECKSUM_LENGTH = 12, 32, 6
_KEY: Final = re.compile(r"([a-z][a-z0-9]{1,15}_[0-9A-Za-z]{12})_[0-9A-Za-z]{38}")
_KEY_ID: Final = re.compile(r"[a-z][a-z0-9]{1,15}_[0-9A-Za-z]{12}")
_PREFIX: Final = re.compile(r"[a-z][a-z0-9]{1,15}")
_SHORTEST_IMPORT: Final = 32
_LONGEST: Final = 1024
_IMPORTABLE: Final = re.compile(r"[!-~]+")  # what passes every header, cookie and query as it is
_USE_SECONDS: Final = 60.0
"""The last use of a key is written at most this often."""
_GATHERING: Final = 1.0
"""For so many seconds, last uses are gathered: look-ups wait while the store is written to."""
_MOST_USES: Final = 32_768
"""Last uses that wait to be written."""
_KNOWN_BASE: Final = 400
"""The bytes of a cached key, without its owner and its scopes."""

_log = logging.getLogger("a2a_trust")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyRecord(StoredRecord):
    """The record of a key in a store, without the key itself.

    ``digest`` is the SHA-256 of the key's whole text. Times are seconds since the epoch; the key is valid before
    ``expires``. ``replaced_by`` is the id of the key that a rotation made in its place. An ``imported`` key was made
    elsewhere; its id was made here, and is not part of its text.
    """

    key_id: str
    digest: bytes = field(repr=False)
    owner: str
    last_used: float | None = None
    replaced_by: str | None = None
    imported: bool = False

    def __post_init__(self) -> None:
        texts = (self.key_id, self.owner, self.replaced_by or "", *self.scopes)
        if not all(isinstance(text, str) for text in texts) or not isinstance(self.digest, bytes):
            raise ConfigurationError("API key: ids, owner and scopes are text, and the digest is bytes")
        for which, key_id in (("", self.key_id), (" of the key that replaces it", self.replaced_by)):
            if key_id is not None and not _KEY_ID.fullmatch(key_id):
                raise ConfigurationError(f"API key: the id{which} is a prefix, an underscore and 12 letters or digits")
        if len(self.digest) != sha256().digest_size:
            raise ConfigurationError("API key: the digest is not a SHA-256: expected 32 bytes")
        check_scopes(self.scopes, "API key")
        check_name(self.owner, "API key: the owner")
        check_moments("API key", self.expires, self.created)


class IssuedApiKey(Issued[ApiKeyRecord]):
    """A new key."""

    __slots__ = ()


def key_id_of(text: str) -> str:
    """The id in a key that was made here. MalformedError: its form or its checksum is wrong."""
    match = _KEY.fullmatch(text)
    if match is None or _checksum(text[:-_CHECKSUM_LENGTH]) != text[-_CHECKSUM_LENGTH:]:
        raise MalformedError(
            "not an API key of this tool, or mistyped or cut: the checksum is wrong; write the whole key"
        )
    return match[1]


def _checksum(text: str) -> str:
    number, digits = zlib.crc32(text.encode()), ""
    for _ in range(_CHECKSUM_LENGTH):
        number, digit = divmod(number, 62)
        digits = _BASE62[digit] + digits
    return digits


def _random(length: int) -> str:
    return "".join(secrets.choice(_BASE62) for _ in range(length))


def _new_id(prefix: str) -> str:
    if not _PREFIX.fullmatch(prefix):
        raise ConfigurationError("API key: the prefix is 2 to 16 small letters and digits, a letter first, as in a2a")
    return f"{prefix}_{_random(_ID_LENGTH)}"


class ApiKeyStore(Protocol):
    """The keys of a verifier. To use another database, write a class with these two methods.

    A store that learns of changes at once may have a third: ``watch(changed)`` has ``changed()`` called after each.
    """

    async def find(self, digests: tuple[bytes, ...]) -> Found[ApiKeyRecord]:
        """The records with these digests, at most 100, also of revoked and expired keys; unknown digests are left out.

        Any exception means that the keys cannot be read now, or one of them: the verifier then asks for a digest that
        no key has. It waits 5 seconds at most.
        """

    async def touch(self, used: Mapping[str, float]) -> None:
        """Store the time of the last use by key id, if it is later than the stored one."""


class ApiKeyWrites(RecordWrites[ApiKeyRecord]):
    """The operator's changes of keys.

    All methods are synchronous and safe in threads; in a running server: ``await asyncio.to_thread(store.revoke, id)``.
    ConfigurationError: an argument is wrong, or the change is not possible; nothing was changed.
    """

    _unknown = "no key has this id; ids look like a2a_3kTMd9QxL0aB; list the keys to find it"

    def create(
        self, *, owner: str, scopes: Iterable[str] = (), expires: float = math.inf, prefix: str = DEFAULT_PREFIX
    ) -> IssuedApiKey:
        """A new key. Keys of one owner are one caller, however many there are."""
        issued = _issue(owner=owner, scopes=scopes, expires=expires, prefix=prefix, now=time.time())
        self.add([issued.record])
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
            raise ConfigurationError("an imported key must be visible ASCII characters without blanks")
        record = _record(_new_id(prefix), text, owner, scopes, expires, now=time.time(), imported=True)
        self.add([record])
        return record

    def add(self, records: Sequence[ApiKeyRecord]) -> None:
        """Add records that another store made: all of them, or none if a key is in the store already."""
        with self._writing() as table:
            for there in filter(None, [table.name_of(record.digest) for record in records]):
                raise ConfigurationError(f"this key is in the store already, as {there}")
            for record in records:
                table.put(record)

    def rotate(self, key_id: str, *, overlap: timedelta, expires: float | None = None) -> IssuedApiKey:
        """A new key for the same owner and scopes; the old one is good for ``overlap`` more, or ends at its own time.

        The new key lives as long as the old one was meant to, unless ``expires`` says until when.
        """
        if overlap < timedelta(0):
            raise ConfigurationError("the overlap is negative; timedelta(0) ends the old key now")
        with self._writing() as table:
            now = time.time()
            old = self._get(table, key_id)
            if old.replaced_by is not None:
                raise ConfigurationError(f"{key_id} was rotated already; rotate {old.replaced_by}, which replaced it")
            if not old.is_good(now):
                raise ConfigurationError(f"{key_id} is revoked or expired; create a new key instead")
            until = now + (old.expires - old.created) if expires is None else expires
            prefix = key_id.partition("_")[0]
            issued = _issue(owner=old.owner, scopes=old.scopes, expires=until, prefix=prefix, now=now)
            table.put(issued.record)
            ends = min(old.expires, now + overlap.total_seconds())
            table.put(replace(old, expires=ends, replaced_by=issued.record.key_id))
        return IssuedApiKey(issued.record, issued.text, old)

    def take_back(self, issued: IssuedApiKey) -> None:
        """Revoke a key that could not be handed over; the key that it replaces stays as it was."""
        with self._writing() as table:
            table.put(revoke_record(self._get(table, issued.record.key_id)))
            before = issued.replaces
            now = None if before is None else self._get(table, before.key_id)
            if before is not None and now is not None and now.replaced_by == issued.record.key_id:
                table.put(replace(now, expires=before.expires, replaced_by=None))

    def revoke(self, key_id: str) -> ApiKeyRecord:
        """Revoke the key: verifiers reject it as soon as they read the store again. This cannot be undone."""
        return self.revoke_all([key_id])[0]


def _issue(*, owner: str, scopes: Iterable[str], expires: float, prefix: str, now: float) -> IssuedApiKey:
    key_id = _new_id(prefix)
    text = f"{key_id}_{_random(_SECRET_LENGTH)}"
    text += _checksum(text)
    return IssuedApiKey(_record(key_id, text, owner, scopes, expires, now=now), text)


def _record(
    key_id: str, text: str, owner: str, scopes: Iterable[str], expires: float, *, now: float, imported: bool = False
) -> ApiKeyRecord:
    check_ahead(expires, now)
    return ApiKeyRecord(
        key_id=key_id,
        digest=sha256(text.encode()).digest(),
        owner=owner,
        scopes=scope_set(scopes, "API key"),
        created=now,
        expires=expires,
        imported=imported,
    )


class MemoryApiKeys(MemoryStore[ApiKeyRecord], ApiKeyWrites):
    """Keys of this process only, gone when it ends: for tests, and for programs that bring their own records."""

    def __init__(self, records: Iterable[ApiKeyRecord] = ()) -> None:
        """ConfigurationError: two records share an id or a text."""
        super().__init__(MemoryTable(lambda record: (record.key_id, record.digest)))
        for record in records:
            if self._table.get(record.key_id) or self._table.name_of(record.digest):
                raise ConfigurationError(f"two API keys share the id or the text of {record.key_id}; drop one")
            self._table.put(record)

    def records(self, *, owner: str | None = None) -> tuple[ApiKeyRecord, ...]:
        """Every record, or every record of the owner, with last uses, in order of creation."""
        with self._lock:
            return tuple(record for record in self._table.records.values() if owner in (None, record.owner))

    async def touch(self, used: Mapping[str, float]) -> None:
        with self._lock:
            for key_id, moment in used.items():
                record = self._table.get(key_id)
                if record is not None and (record.last_used is None or record.last_used < moment):
                    self._table.put(replace(record, last_used=moment))


@dataclass(slots=True, kw_only=True)
class _KnownKey(CachedRecord):
    """Before ``nothing_until`` a key is valid and its last use need not be written."""

    key_id: str
    digest: bytes
    last_used: float
    nothing_until: float = -math.inf


#: The entry for unknown keys, so that they cost the same work. It is never valid.
_NOBODY: Final = _KnownKey(
    reading=Reading(None, -math.inf),
    key_id="",
    digest=bytes(sha256().digest_size),
    good_until=-math.inf,
    last_used=-math.inf,
    identity=Identity(issuer="", subject=""),
)


class ApiKeyVerifier:
    """Verifies API keys with the records of a store.

    The identity's subject is the key's owner, so a caller stays the same, and keeps its data, when its key is rotated.
    ``claims["key_id"]`` is the key's id. Verifiers of different stores need different ``issuer`` names; otherwise
    owners with the same name in both would be one caller, so an agent with both does not start. ``issuer`` is part of
    every owner's ``id``, so do not change it.

    Keys are cached (``auth.records``). So **a revoked key is rejected at most** ``refresh`` **seconds
    after the revocation is in the store**, in every process. A new key works at once. While the store cannot be read, a
    cached key is accepted for ``stale_if_error`` seconds.
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
        if isinstance(store, type) or not callable(getattr(store, "touch", None)):
            raise ConfigurationError(
                "ApiKeyVerifier: this is not a store of keys; for a file write ApiKeyVerifier(SqliteApiKeys('keys.db'))"
            )
        if not issuer:
            raise ConfigurationError("ApiKeyVerifier: issuer is empty; name the store, as in issuer='api-keys'")
        self._issuer = issuer
        self.stores_by_issuer: Final[Mapping[str, object]] = {issuer: store}
        self._clock = clock
        self._records = RecordCache(
            "API keys",
            store.find,
            self._entry_of,
            size=_KNOWN_BASE,
            nobody=lambda: secrets.token_bytes(sha256().digest_size),
            refresh=refresh,
            stale_if_error=stale_if_error,
            clock=clock,
        )
        self.parts: Final[tuple[object, ...]] = (self._records, store)
        self._look_again_after = self._records.look_again_after
        #: By BLAKE2s, which takes 2 µs less than SHA-256 between other work: the code of OpenSSL is far apart.
        self._at_once = self._records.at_once
        self._uses = _Uses(store, clock)
        if (watch := getattr(store, "watch", None)) is not None:
            watch(self._records.look_again)

    def _entry_of(self, record: ApiKeyRecord, reading: Reading) -> tuple[bytes, _KnownKey]:
        identity = Identity(
            issuer=self._issuer,
            subject=record.owner,
            scopes=record.scopes,
            expires_at=record.expires,
            claims={"key_id": record.key_id},
        )
        return record.digest, _KnownKey(
            reading=reading,
            key_id=record.key_id,
            digest=record.digest,
            good_until=record.expires if record.revoked is None else -math.inf,
            last_used=-math.inf if record.last_used is None else record.last_used,
            identity=identity,
        )

    async def verify(self, credential: str, now: float) -> Identity:
        """The owner of the key. InvalidCredentialsError: unknown, expired or revoked; its text holds nothing secret."""
        if not credential.isascii():
            raise InvalidCredentialsError("the API key is unknown: it is not ASCII")
        known = self.remembered(credential, now)
        if known is not None:
            return known
        digest = sha256(credential.encode()).digest()
        key = await self._records.get(digest) or _NOBODY
        if not compare_digest(key.digest, digest):  # the same way for unknown ids and for wrong secrets
            raise InvalidCredentialsError(_why_unknown(credential))
        if not now < key.nothing_until:
            self._check_and_note_use(key, now)
        self._records.keep_at_once(blake2s(credential.encode()).digest(), key)
        return key.identity

    def remembered(self, credential: str, now: float) -> Identity | None:
        """The result of ``verify``, if it needs neither a look-up nor a note of the use; else None."""
        if not credential.isascii():
            return None
        entry = self._at_once.entry(blake2s(credential.encode()).digest())
        if entry is None:
            return None
        key = entry[0]
        is_fresh = self._clock() - key.reading.at < self._look_again_after and now < key.nothing_until
        return key.identity if is_fresh else None

    def credential_name(self, credential: str) -> str:
        """The id in a key of our form, which is counted when the key is wrong; else ""."""
        match = _KEY.fullmatch(credential)
        return match[1] if match else ""

    def _check_and_note_use(self, key: _KnownKey, now: float) -> None:
        if not now < key.good_until:
            end = "revoked" if key.good_until == -math.inf else "expired"
            raise InvalidCredentialsError(f"API key {key.key_id} is {end}")
        if not 0 <= now - key.last_used < _USE_SECONDS:
            key.last_used = now
            self._uses.note(key.key_id, now)
        key.nothing_until = min(key.good_until, key.last_used + _USE_SECONDS)


class _Uses:
    """Writes the last uses of keys to the store. Access does not depend on it."""

    def __init__(self, store: ApiKeyStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._unwritten: dict[str, float] = {}
        self._flights = SingleFlight[None, None]()
        self._retry_at = -math.inf
        self._outage = ""

    def note(self, key_id: str, now: float) -> None:
        if self._clock() >= self._retry_at and len(self._unwritten) < _MOST_USES:
            self._unwritten[key_id] = now
            self._flights.begin(None, self._write)

    async def _write(self) -> None:
        while self._unwritten:
            await asyncio.sleep(_GATHERING)
            used, self._unwritten = self._unwritten, {}
            try:
                await self._store.touch(used)
            except Exception as error:  # noqa: BLE001  the store is anybody's
                self._retry_at = self._clock() + _USE_SECONDS
                why = reason(error)
                if why != self._outage:  # only once: a server may have no right to write
                    _log.warning("the last use of API keys could not be written: %s", why)
                self._outage = why
            else:
                self._outage = ""


def _why_unknown(credential: str) -> str:
    """Why a key is unknown, for the log: the checksum distinguishes a typo from a foreign key."""
    if not _KEY_ID.match(credential):
        return "the API key is unknown"
    try:
        key_id_of(credential)
    except MalformedError:
        return "the API key is unknown: it was mistyped or cut, because its checksum is wrong"
    return "the API key is unknown, though its checksum is right: it was deleted, is of another store, or is forged"
