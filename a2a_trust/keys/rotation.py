"""Key rings: the signing keys of one agent over time. Which key signs now, and which keys are published?

Only its times decide the state of a key:

- **next**, before ``active_from``: it is published, so that verifiers know it before they need it.
- **active**, until ``retired_at``: it signs, and is published.
- **retired**, until ``removed_at``: it does not sign, and is still published for the signatures that it made.
- **removed**, afterwards: it is not published. The next change removes it from the ring.
- **revoked**, if ``revoked_at`` is set, whatever the clock says: it neither signs nor is published, and stays in the
  ring as revoked.

The keys that can sign form a row: ``retired_at`` of each key is ``active_from`` of the following key, and the last key
has no ``retired_at``. So exactly one key signs at every moment, even with a wrong clock and after an interrupted
rotation: ``rotate`` writes the whole plan at once, and time carries it out.

All functions here work on values, with ``now`` in seconds since the epoch. ``ring_file`` keeps rings on disk.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from a2a_trust.base import strict_json
from a2a_trust.errors import ConfigurationError, MalformedError, with_option
from a2a_trust.keys.files import PassphraseNeededError, private_key_bytes, read_private_key
from a2a_trust.keys.jwk import MAX_KEYS, PublicKey, public_key_from_pem
from a2a_trust.keys.signer import HoldsSecret, LocalSigner, generate_signer

DEFAULT_OVERLAP: Final = 86_400.0
"""One day, in seconds: the longest time for which our own cache keeps a key set without fetching it again."""

DEFAULT_KEEP: Final = 91 * 86_400.0
"""91 days, in seconds: signatures of 90 days, and a day for the caches of cards."""

_LONGEST: Final = 36_525 * 86_400.0
_END_OF_TIME: Final = 253_402_300_800.0  # the year 10000, which calendars do not write
_JWE: Final = "eyJ"
_TYPE: Final = "a2a-trust-key-ring"
_VERSION: Final = 1
_TIMES: Final = ("published_at", "active_from", "retired_at", "removed_at", "revoked_at")
_MEMBERS: Final = frozenset({"kid", "alg", *_TIMES, "public_key", "private_key"})


class KeyState(StrEnum):
    """The state of a key in a key ring at a moment."""

    NEXT = "next"
    ACTIVE = "active"
    RETIRED = "retired"
    REMOVED = "removed"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class RingKey(HoldsSecret):
    """A key of a key ring, and its times in seconds since the epoch; infinity for a time that is not planned.

    ``private_key`` is the private key in the file: PEM, or JWE if it is encrypted. It is None as soon as the key does
    not sign any more, so that it cannot be stolen. ``signer`` has the opened private key; it is None without the
    passphrase. The repr shows neither, and the object cannot be pickled.
    """

    public_key: PublicKey
    published_at: float
    active_from: float
    retired_at: float = math.inf
    removed_at: float = math.inf
    revoked_at: float = math.inf
    private_key: str | None = field(default=None, repr=False, compare=False)
    signer: LocalSigner | None = field(default=None, repr=False, compare=False)

    @property
    def kid(self) -> str:
        return self.public_key.kid

    @property
    def is_revoked(self) -> bool:
        """Whether the key is revoked, at any time: a clock that runs behind does not restore a revoked key."""
        return self.revoked_at != math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing(HoldsSecret):
    """The signing keys of one agent over time: the active key, the next key, and retired and revoked keys.

    A ring does not change: every change returns a new ring. MalformedError: the keys and times do not form a ring.
    """

    keys: tuple[RingKey, ...]
    passphrase: str | None = field(default=None, repr=False, compare=False)
    """Opens the private keys, and encrypts new ones. It has no effect on a ring that is not encrypted."""

    def __post_init__(self) -> None:
        row = self._row
        if not row:
            raise MalformedError("key ring: no key in it can sign")
        if row[-1].retired_at != math.inf:
            raise MalformedError(f"key ring: no key signs after {_show(row[-1])}; its retired_at must be null")
        for key, following in pairwise(row):
            if key.retired_at != following.active_from:
                raise MalformedError(
                    f"key ring: active_from of {_show(following)} is not retired_at of {_show(key)}; make them equal"
                )
        for key in self.keys:
            _check_key(key)
        for names in ([key.kid for key in self.keys], [key.public_key.thumbprint for key in self.keys]):
            if len(set(names)) < len(names):
                raise MalformedError("key ring: two keys are the same, or have the same kid; remove one of them")

    @classmethod
    def begin(cls, first: LocalSigner, now: float, *, passphrase: str | None = None) -> KeyRing:
        """Make a ring whose first key signs at once. With a passphrase its private keys are encrypted.

        ConfigurationError: the JWK of the key has ``nbf``, ``exp`` or ``revoked``, which a ring cannot keep.
        """
        if first.public_key.is_limited:
            raise ConfigurationError(
                f"key ring: the times of the ring limit its keys; remove nbf, exp and revoked from the JWK of the key "
                f"{ascii(first.kid)[:66]}"
            )
        key = _ring_key(first, passphrase, published_at=now, active_from=now)
        return cls(keys=(key,), passphrase=passphrase)

    @property
    def is_encrypted(self) -> bool:
        return any(_is_encrypted(key.private_key) for key in self.keys if key.private_key is not None)

    @property
    def is_open(self) -> bool:
        """Whether the ring can sign: it is not encrypted, or was opened with its passphrase."""
        return all(key.signer is not None for key in self._row)

    def active(self, now: float) -> RingKey:
        """The key that signs now. Before ``active_from`` of the first key it is the first key: clocks differ a bit."""
        row = self._row
        return next((key for key in row if now < key.retired_at), row[-1])

    def next(self, now: float) -> RingKey | None:
        """The key that will sign after the active key; None if no rotation is under way."""
        row = self._row
        return next(iter(row[row.index(self.active(now)) + 1 :]), None)

    def signer(self, now: float) -> LocalSigner:
        """The signer with the active key. PassphraseNeededError: the ring was read without its passphrase."""
        signer = self.active(now).signer
        if signer is None:
            raise PassphraseNeededError("key ring: it is encrypted and no passphrase was given")
        return signer

    def state(self, key: RingKey, now: float) -> KeyState:
        if key.is_revoked:
            return KeyState.REVOKED
        if key == self.active(now):
            return KeyState.ACTIVE
        if now < key.retired_at and key.private_key is not None:
            return KeyState.NEXT
        return KeyState.RETIRED if now < key.removed_at else KeyState.REMOVED

    def published(self, now: float) -> tuple[PublicKey, ...]:
        """The public keys for the JWK Set: of the active key, then of the next, then of the retired keys."""
        order = (KeyState.ACTIVE, KeyState.NEXT, KeyState.RETIRED)
        return tuple(key.public_key for state in order for key in self.keys if self.state(key, now) is state)

    def revoked(self) -> tuple[PublicKey, ...]:
        """The public keys of the revoked keys. Their signatures are rejected, whenever they were made."""
        return tuple(key.public_key for key in self.keys if key.is_revoked)

    def rotate(
        self,
        now: float,
        *,
        overlap: float = DEFAULT_OVERLAP,
        keep: float = DEFAULT_KEEP,
        new: LocalSigner | None = None,
    ) -> KeyRing:
        """A ring with the next key: ``new``, or a new key with the algorithm of the last one.

        1. The next key is published now. It signs after ``overlap`` seconds, which must be at least the max-age of the
           JWK Set; otherwise some verifiers do not know the key yet.
        2. The key before it then stays published for ``keep`` seconds. They must be at least the longest lifetime of
           its signatures plus the max-age of the cards.

        While a rotation is under way, no second one begins: the plan of the returned ring is unchanged.
        """
        for name, seconds in (("overlap", overlap), ("keep", keep)):
            if not 0 < seconds <= _LONGEST:
                text = f"{name}: write a time above 0 and of at most 100 years"
                raise with_option(ConfigurationError(f"{text}, in seconds"), f"--{text}, such as 24h")
        if self.next(now) is not None:
            return self.prune(now)
        if len(self.published(now)) >= MAX_KEYS:
            text = f"the key ring is full: {MAX_KEYS} published keys; rotate less often, or with a shorter "
            raise with_option(ConfigurationError(f"{text}keep"), f"{text}--keep")
        last = self._row[-1]
        begin = max(now, last.active_from)  # with a clock that runs behind, the last key is not active yet
        ends = begin + overlap
        following = self._make_key(last if new is None else new, published_at=begin, active_from=ends)
        ending = replace(last, retired_at=ends, removed_at=ends + keep)
        keys = (*(ending if key is last else key for key in self.keys), following)
        return replace(self, keys=keys).prune(now)

    def revoke(self, kid: str, now: float, *, new: LocalSigner | None = None) -> KeyRing:
        """A ring in which that key is revoked forever. Revoking it again changes nothing.

        - If it was the active key, the next key signs at once. Without a next key, ``new`` or a new key with the same
          algorithm signs at once, although no verifier knows it yet.
        - If it was the next key, the active key continues to sign.

        ConfigurationError: the ring has no such key.
        """
        found = next((key for key in self.keys if key.kid == kid), None)
        if found is None:
            kids = ", ".join(map(_show, self.keys))
            raise ConfigurationError(f"the ring has no key {ascii(kid)[:66]}; its keys are {kids[:1000]}")
        ring = self._without_idle_private_keys(now)
        if not found.is_revoked:
            ring = ring._revoke(next(key for key in ring.keys if key.kid == kid), now, new)
        return ring.prune(now)

    def prune(self, now: float) -> KeyRing:
        """The ring without removed keys, and without the private keys of keys that do not sign any more."""
        ring = self._without_idle_private_keys(now)
        return replace(ring, keys=tuple(key for key in ring.keys if ring.state(key, now) is not KeyState.REMOVED))

    @property
    def _row(self) -> tuple[RingKey, ...]:
        """The keys that can sign, in the order of their times."""
        return tuple(key for key in self.keys if key.private_key is not None)

    def _without_idle_private_keys(self, now: float) -> KeyRing:
        row = self._row
        idle = row[: row.index(self.active(now))]
        return replace(self, keys=tuple(_without_private_key(key) if key in idle else key for key in self.keys))

    def _revoke(self, key: RingKey, now: float, new: LocalSigner | None) -> KeyRing:
        """The ring with ``key`` revoked. Its row must begin with the active key."""
        active, following = self.active(now), self.next(now)
        ended = _without_private_key(key, revoked_at=now, retired_at=min(key.retired_at, now), removed_at=now)
        changed = {key.kid: ended}
        added: tuple[RingKey, ...] = ()
        if key == active and following is None:
            added = (self._make_key(key if new is None else new, published_at=now, active_from=now),)
        elif key == active and following is not None:
            changed[following.kid] = replace(following, active_from=max(now, following.published_at))
        elif key in self._row:  # the next key: the active key continues to sign
            before = self._row[self._row.index(key) - 1]
            changed[before.kid] = replace(before, retired_at=key.retired_at, removed_at=key.removed_at)
        return replace(self, keys=(*(changed.get(each.kid, each) for each in self.keys), *added))

    def _make_key(self, model: LocalSigner | RingKey, *, published_at: float, active_from: float) -> RingKey:
        """An entry for a signer, or for a new key with the algorithm of another entry."""
        if self.is_encrypted and self.passphrase is None:
            raise PassphraseNeededError("key ring: it is encrypted, and no passphrase was given for the new key")
        signer = new_ring_key(model.public_key.alg) if isinstance(model, RingKey) else model
        passphrase = self.passphrase if self.is_encrypted else None
        public = signer.public_key
        for key in self.keys:
            if public.thumbprint == key.public_key.thumbprint or public.kid == key.kid:
                state = ", and revoked" if key.is_revoked else ""
                raise ConfigurationError(f"the ring has the key {_show(key)} already{state}; give a new key")
        return _ring_key(signer, passphrase, published_at=published_at, active_from=active_from)


def _ring_key(signer: LocalSigner, passphrase: str | None, *, published_at: float, active_from: float) -> RingKey:
    return RingKey(
        public_key=signer.public_key,
        published_at=published_at,
        active_from=active_from,
        private_key=private_key_bytes(signer, passphrase=passphrase).decode(),
        signer=signer,
    )


def new_ring_key(alg: str) -> LocalSigner:
    """A new key, named by its thumbprint. It never begins with a dash, because a command would read it as an option."""
    while (signer := generate_signer(alg)).kid.startswith("-"):
        pass
    return signer


def is_key_ring(data: bytes) -> bool:
    """Whether a file with this content is a key ring, valid or not."""
    try:
        value = strict_json.parse(data)
    except MalformedError:
        return False
    return isinstance(value, dict) and value.get("type") == _TYPE


def read_key_ring(data: bytes, *, passphrase: str | None = None) -> KeyRing:
    """Read a key ring from the content of its file.

    Without its passphrase an encrypted ring shows its public keys, but cannot sign. MalformedError: not a key ring, or
    an invalid one. ConfigurationError: the passphrase is wrong.
    """
    return KeyRing(keys=tuple(_read_key(entry, passphrase) for entry in _entries(data)), passphrase=passphrase)


def public_keys_of_ring(data: bytes) -> tuple[PublicKey, ...]:
    """The public keys in the content of a ring's file, also of revoked keys. Private keys are not read."""
    return tuple(_read_key({**entry, "private_key": None}, None).public_key for entry in _entries(data))


def _entries(data: bytes) -> list[dict[str, Any]]:
    other = (
        f'not a key ring: expected an object with "type": "{_TYPE}"; to make a ring, also from an existing key: '
        "a2a-sign keys create RING [--key FILE]"
    )
    if not data.lstrip().startswith(b"{"):
        raise MalformedError(other)
    value = strict_json.parse(data, what="key ring")
    if value.get("type") != _TYPE:
        raise MalformedError(other)
    if value.get("version") != _VERSION or value.keys() != {"type", "version", "keys"}:
        raise MalformedError(f"key ring: not version {_VERSION}; use the release of a2a-trust that wrote the file")
    entries = value["keys"]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise MalformedError("key ring: keys must be a list of objects")
    return entries


def key_ring_bytes(ring: KeyRing) -> bytes:
    """The content of a file with the ring: secret, unless the ring is encrypted."""
    entries = [
        {
            "kid": key.kid,
            "alg": key.public_key.alg,
            **{name: _write_time(getattr(key, name)) for name in _TIMES},
            "public_key": key.public_key.to_pem().decode(),
            "private_key": key.private_key,
        }
        for key in ring.keys
    ]
    return f"{json.dumps({'type': _TYPE, 'version': _VERSION, 'keys': entries}, indent=2)}\n".encode()


def _read_key(entry: dict[str, Any], passphrase: str | None) -> RingKey:
    if entry.keys() != _MEMBERS:
        raise MalformedError(f"key ring: a key must have exactly the members {', '.join(sorted(_MEMBERS))}")
    kid, alg, public_pem, private = (entry[name] for name in ("kid", "alg", "public_key", "private_key"))
    if not (isinstance(kid, str) and isinstance(alg, str) and isinstance(public_pem, str)):
        raise MalformedError("key ring: kid, alg and public_key of a key must be strings")
    public = public_key_from_pem(public_pem.encode(), alg=alg, kid=kid)
    signer = None
    if private is not None:
        if not isinstance(private, str) or not private.startswith(("-----BEGIN", _JWE)):
            raise MalformedError(f"key ring: private_key of {ascii(kid)[:66]} must be PEM, JWE, or null")
        if passphrase is not None or not _is_encrypted(private):
            opened = read_private_key(private.encode(), passphrase=passphrase, alg=alg)
            signer = LocalSigner(opened.private_key, alg=alg, kid=kid)
            if signer.public_key != public:
                raise MalformedError(f"key ring: public_key of {ascii(kid)[:66]} does not belong to its private_key")
    return RingKey(
        public_key=public, private_key=private, signer=signer, **{name: _read_time(entry, name) for name in _TIMES}
    )


def _read_time(entry: Mapping[str, Any], name: str) -> float:
    value = entry[name]
    if value is None and name not in ("published_at", "active_from"):
        return math.inf
    if type(value) not in (int, float):
        raise MalformedError(f"key ring: {name} must be a time in seconds since the epoch")
    return float(value)


def _write_time(time: float) -> float | None:
    if time == math.inf:
        return None
    return int(time) if time.is_integer() else time


def _check_key(key: RingKey) -> None:
    """MalformedError: the times of the key do not fit each other, or its private key."""
    times = [getattr(key, name) for name in _TIMES]
    if not all(0 <= time < _END_OF_TIME or time == math.inf for time in times):
        raise MalformedError(f"key ring: the times of {_show(key)} are not in seconds since the epoch")
    if key.is_revoked and key.private_key is not None:
        raise MalformedError(f"key ring: {_show(key)} is revoked, so its private_key must be null")
    if not key.is_revoked and not key.published_at <= key.active_from <= key.retired_at <= key.removed_at:
        raise MalformedError(
            f"key ring: the times of {_show(key)} must be in the order published_at, active_from, retired_at, "
            "removed_at"
        )
    if key.private_key is None and key.retired_at == math.inf:
        raise MalformedError(f"key ring: {_show(key)} has no private_key, and no retired_at")


def _is_encrypted(private: str) -> bool:
    return private.startswith(("-----BEGIN ENCRYPTED", _JWE))


def _without_private_key(key: RingKey, **times: float) -> RingKey:
    return replace(key, private_key=None, signer=None, **times)  # type: ignore[arg-type]  # names of times only


def _show(key: RingKey) -> str:
    return ascii(key.kid)[:66]
