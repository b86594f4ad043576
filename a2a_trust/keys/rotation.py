"""Several signing keys of one agent, one after the other: which one signs at a moment, and which ones are published.

What a key does follows from its times and from nothing else:

=========  =================================  ====================================================================
state      when                               what
=========  =================================  ====================================================================
next       before ``active_from``             published, so that verifiers know it before they need it
active     until ``retired_at``               signs
retired    until ``removed_at``               published, for what it signed; signs no more
removed    afterwards                         nothing; the next change takes it out of the ring
revoked    whenever ``revoked_at`` is set     listed as revoked; is not published and signs nothing, whatever the clock
=========  =================================  ====================================================================

The keys that can sign stand in a row: each one's ``retired_at`` is the following one's ``active_from``, and the last
one's never comes. So there is one signer at every moment, also with a clock that is wrong and after a rotation that was
interrupted: ``rotate`` writes the whole plan at once, and time carries it out.

Everything here is a function over values with ``now`` in seconds since the epoch. ``ring_file`` keeps rings on disk.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, NoReturn

from a2a_trust import strict_json
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.files import PassphraseNeededError, private_key_bytes, read_private_key
from a2a_trust.keys.jwk import PublicKey, public_key_from_pem
from a2a_trust.keys.keyset import MAX_KEYS
from a2a_trust.keys.signer import LocalSigner, generate_signer

__all__ = [
    "DEFAULT_KEEP",
    "DEFAULT_OVERLAP",
    "KeyRing",
    "KeyState",
    "RingKey",
    "is_key_ring",
    "key_ring_bytes",
    "new_ring_key",
    "read_key_ring",
]

DEFAULT_OVERLAP: Final = 86_400.0
"""One day, in seconds: the longest that our own cache of key sets holds one without asking again."""

DEFAULT_KEEP: Final = 91 * 86_400.0
"""91 days, in seconds: signatures of 90 days, and a day for the caches of cards."""

_LONGEST: Final = 36_525 * 86_400.0
_END_OF_TIME: Final = 253_402_300_800.0  # the year 10000, which calendars do not write
_TYPE: Final = "a2a-trust-key-ring"
_VERSION: Final = 1
_TIMES: Final = ("published_at", "active_from", "retired_at", "removed_at", "revoked_at")
_MEMBERS: Final = frozenset({"kid", "alg", *_TIMES, "public_key", "private_key"})


class KeyState(StrEnum):
    """What a key of a ring does at a moment; see the table of this module."""

    NEXT = "next"
    ACTIVE = "active"
    RETIRED = "retired"
    REMOVED = "removed"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class RingKey:
    """One key and its times, in seconds since the epoch; infinity for what is not planned.

    ``pem`` is the private half as the file has it, perhaps encrypted; None as soon as the key signs no more: what
    nobody needs, nobody can steal. ``signer`` is the opened private half, None where no passphrase was given. Neither
    is in the repr, and a pickle is refused.
    """

    public_key: PublicKey
    published_at: float
    active_from: float
    retired_at: float = math.inf
    removed_at: float = math.inf
    revoked_at: float = math.inf
    pem: str | None = field(default=None, repr=False, compare=False)
    signer: LocalSigner | None = field(default=None, repr=False, compare=False)

    @property
    def kid(self) -> str:
        return self.public_key.kid

    @property
    def is_revoked(self) -> bool:
        """Whatever the time: a clock that runs behind brings no revoked key back."""
        return self.revoked_at != math.inf

    def __reduce__(self) -> NoReturn:
        raise TypeError("a RingKey is not pickled: it holds a private key")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """The keys of one agent over time. A change returns a new ring; MalformedError when the keys make no sound one."""

    keys: tuple[RingKey, ...]
    passphrase: str | None = field(default=None, repr=False, compare=False)
    """Opens the private halves and encrypts new ones. Where the ring is not encrypted it does nothing."""

    def __post_init__(self) -> None:
        row = self._row
        if not row:
            raise MalformedError("key ring: no key in it can sign")
        if row[-1].retired_at != math.inf:
            raise MalformedError(f"key ring: nothing signs after {_shown(row[-1])}; its retired_at must be null")
        for key, following in pairwise(row):
            if key.retired_at != following.active_from:
                raise MalformedError(f"key ring: {_shown(following)} does not begin where {_shown(key)} ends")
        for key in self.keys:
            times = [getattr(key, name) for name in _TIMES]
            if not all(0 <= time < _END_OF_TIME or time == math.inf for time in times):
                raise MalformedError(f"key ring: the times of {_shown(key)} are not in seconds since the epoch")
            if key.is_revoked and key.pem is not None:
                raise MalformedError(f"key ring: {_shown(key)} is revoked and has its private half still")
            if not key.is_revoked and not key.published_at <= key.active_from <= key.retired_at <= key.removed_at:
                raise MalformedError(f"key ring: the times of {_shown(key)} are not in their order")
            if key.pem is None and key.retired_at == math.inf:
                raise MalformedError(f"key ring: {_shown(key)} has no private half and is not retired")
        for names in ([key.kid for key in self.keys], [key.public_key.thumbprint for key in self.keys]):
            if len(set(names)) < len(names):
                raise MalformedError("key ring: two of its keys are the same, or have the same kid")

    @classmethod
    def begin(cls, first: LocalSigner, now: float, *, passphrase: str | None = None) -> KeyRing:
        """A ring whose first key signs at once. With a passphrase all its private halves are encrypted.

        ConfigurationError: the key is limited by ``nbf``, ``exp`` or ``revoked`` of its JWK, which a ring cannot keep.
        """
        if first.public_key.is_limited:
            raise ConfigurationError(
                "key ring: its keys are limited by the times of the ring; take nbf, exp and revoked out of the JWK"
            )
        pem = private_key_bytes(first, passphrase=passphrase).decode()
        key = RingKey(public_key=first.public_key, published_at=now, active_from=now, pem=pem, signer=first)
        return cls(keys=(key,), passphrase=passphrase)

    @property
    def is_encrypted(self) -> bool:
        return any(_is_encrypted(key.pem) for key in self.keys if key.pem is not None)

    @property
    def is_open(self) -> bool:
        """Whether it can sign: no passphrase is missing."""
        return all(key.signer is not None for key in self._row)

    def active(self, now: float) -> RingKey:
        """The one key that signs now. Before the first key's time it is the first one: clocks differ a little."""
        row = self._row
        return next((key for key in row if now < key.retired_at), row[-1])

    def next(self, now: float) -> RingKey | None:
        """The key that will sign after the active one, None when no rotation is under way."""
        row = self._row
        return next(iter(row[row.index(self.active(now)) + 1 :]), None)

    def signer(self, now: float) -> LocalSigner:
        """The signer with the active key. PassphraseNeededError: the ring is encrypted and was read without one."""
        signer = self.active(now).signer
        if signer is None:
            raise PassphraseNeededError("key ring: it is encrypted and no passphrase was given")
        return signer

    def state(self, key: RingKey, now: float) -> KeyState:
        """What a key of this ring does now."""
        if key.is_revoked:
            return KeyState.REVOKED
        if key == self.active(now):
            return KeyState.ACTIVE
        if now < key.retired_at and key.pem is not None:
            return KeyState.NEXT
        return KeyState.RETIRED if now < key.removed_at else KeyState.REMOVED

    def published(self, now: float) -> tuple[PublicKey, ...]:
        """The public halves for the JWK Set: of the active key, then of the next, then of the retired ones."""
        order = (KeyState.ACTIVE, KeyState.NEXT, KeyState.RETIRED)
        return tuple(key.public_key for state in order for key in self.keys if self.state(key, now) is state)

    def revoked(self) -> tuple[PublicKey, ...]:
        """The public halves of the revoked keys, for ever: what they signed proves nothing, whenever it was."""
        return tuple(key.public_key for key in self.keys if key.is_revoked)

    def rotate(
        self,
        now: float,
        *,
        overlap: float = DEFAULT_OVERLAP,
        keep: float = DEFAULT_KEEP,
        new: LocalSigner | None = None,
    ) -> KeyRing:
        """A ring in which ``new``, or a new key for the last one's algorithm, is published now and signs afterwards.

        ``overlap`` seconds from now it takes over: at least the max-age of the JWK Set, else there are verifiers that
        do not know it yet. The key before it stays published for ``keep`` seconds more: at least the max-age of the
        cards, plus the longest time that signatures are made for. While a rotation is under way no second one begins:
        the ring comes back with its plan unchanged.
        """
        for name, seconds in (("overlap", overlap), ("keep", keep)):
            if not 0 < seconds <= _LONGEST:
                raise ConfigurationError(f"{name}: longer than nothing, and no longer than a century")
        if self.next(now) is not None:
            return self.prune(now)
        if len(self.published(now)) >= MAX_KEYS:
            raise ConfigurationError(f"the key set is full: {MAX_KEYS} keys; rotate less often, or keep for less time")
        last = self._row[-1]
        begin = max(now, last.active_from)  # with a clock that runs behind, the last key's time has not come yet
        ends = begin + overlap
        following = self._made(last if new is None else new, published_at=begin, active_from=ends)
        ending = replace(last, retired_at=ends, removed_at=ends + keep)
        return self._with((*(ending if key is last else key for key in self.keys), following)).prune(now)

    def revoke(self, kid: str, now: float, *, new: LocalSigner | None = None) -> KeyRing:
        """A ring in which that key is revoked. A revoked key stays revoked; revoking it again changes nothing.

        When it was the active one, the next key signs at once; without a next, ``new`` or a new key for the same
        algorithm does, although no verifier knows it yet. When it was the next one, the active key goes on.
        ConfigurationError: there is no such key.
        """
        found = next((key for key in self.keys if key.kid == kid), None)
        if found is None:
            raise ConfigurationError(f"the ring has no key {ascii(kid)[:66]}")
        ring = self._without_idle_halves(now)
        if not found.is_revoked:
            ring = ring._revoked(next(key for key in ring.keys if key.kid == kid), now, new)
        return ring.prune(now)

    def prune(self, now: float) -> KeyRing:
        """The ring without keys that were removed, and without private halves of keys that sign no more."""
        ring = self._without_idle_halves(now)
        return ring._with(tuple(key for key in ring.keys if ring.state(key, now) is not KeyState.REMOVED))

    @property
    def _row(self) -> tuple[RingKey, ...]:
        """The keys that can sign, in the order in which they do."""
        return tuple(key for key in self.keys if key.pem is not None)

    def _with(self, keys: tuple[RingKey, ...]) -> KeyRing:
        return replace(self, keys=keys)

    def _without_idle_halves(self, now: float) -> KeyRing:
        row = self._row
        idle = row[: row.index(self.active(now))]
        return self._with(tuple(_without_half(key) if key in idle else key for key in self.keys))

    def _revoked(self, key: RingKey, now: float, new: LocalSigner | None) -> KeyRing:
        """The ring, whose row begins with the active key, with ``key`` revoked."""
        active, following = self.active(now), self.next(now)
        ended = _without_half(key, revoked_at=now, retired_at=min(key.retired_at, now), removed_at=now)
        changed = {key.kid: ended}
        added: tuple[RingKey, ...] = ()
        if key == active and following is None:
            added = (self._made(key if new is None else new, published_at=now, active_from=now),)
        elif key == active and following is not None:
            changed[following.kid] = replace(following, active_from=max(now, following.published_at))
        elif key in self._row:  # it has not begun, so the key before it goes on
            before = self._row[self._row.index(key) - 1]
            changed[before.kid] = replace(before, retired_at=key.retired_at, removed_at=key.removed_at)
        return self._with((*(changed.get(each.kid, each) for each in self.keys), *added))

    def _made(self, model: LocalSigner | RingKey, *, published_at: float, active_from: float) -> RingKey:
        """An entry for a signer, or for a new key with the algorithm of another entry."""
        if self.is_encrypted and self.passphrase is None:
            raise PassphraseNeededError("key ring: it is encrypted, and no passphrase was given for a new key")
        signer = new_ring_key(model.public_key.alg) if isinstance(model, RingKey) else model
        passphrase = self.passphrase if self.is_encrypted else None
        public = signer.public_key
        for key in self.keys:
            if public.thumbprint == key.public_key.thumbprint or public.kid == key.kid:
                state = ", and revoked" if key.is_revoked else ""
                raise ConfigurationError(f"the ring has the key {_shown(key)} already{state}; take a new one")
        pem = private_key_bytes(signer, passphrase=passphrase).decode()
        return RingKey(public_key=public, published_at=published_at, active_from=active_from, pem=pem, signer=signer)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a KeyRing is not pickled: it holds private keys")


def new_ring_key(alg: str) -> LocalSigner:
    """A new key, named by its thumbprint, which never begins with a dash: on a command line that would be an option."""
    while (signer := generate_signer(alg)).kid.startswith("-"):
        pass
    return signer


def is_key_ring(data: bytes) -> bool:
    """Whether a file with this content is a key ring, sound or not."""
    try:
        value = strict_json.parse(data)
    except MalformedError:
        return False
    return isinstance(value, dict) and value.get("type") == _TYPE


def read_key_ring(data: bytes, *, passphrase: str | None = None) -> KeyRing:
    """The ring in a file's content.

    An encrypted one that is read without its passphrase shows its public halves and cannot sign. MalformedError: not a
    ring, or not a sound one. ConfigurationError: the passphrase is wrong.
    """
    none = "key ring: this is none; make one, perhaps with a key that you have: a2a-sign keys create RING [--key FILE]"
    if not data.lstrip().startswith(b"{"):
        raise MalformedError(none)
    value = strict_json.parse(data, what="key ring")
    if value.get("type") != _TYPE:
        raise MalformedError(none)
    if value.get("version") != _VERSION or value.keys() != {"type", "version", "keys"}:
        raise MalformedError(f"key ring: not of version {_VERSION}; use the release of a2a-trust that wrote it")
    entries = value["keys"]
    if not isinstance(entries, list):
        raise MalformedError("key ring: keys is not a list")
    return KeyRing(keys=tuple(_read_key(entry, passphrase) for entry in entries), passphrase=passphrase)


def key_ring_bytes(ring: KeyRing) -> bytes:
    """The ring as a file's content: secret, unless it is encrypted."""
    entries = [
        {
            "kid": key.kid,
            "alg": key.public_key.alg,
            **{name: _written_time(getattr(key, name)) for name in _TIMES},
            "public_key": key.public_key.to_pem().decode(),
            "private_key": key.pem,
        }
        for key in ring.keys
    ]
    return f"{json.dumps({'type': _TYPE, 'version': _VERSION, 'keys': entries}, indent=2)}\n".encode()


def _read_key(entry: object, passphrase: str | None) -> RingKey:
    if not isinstance(entry, Mapping) or entry.keys() != _MEMBERS:
        raise MalformedError(f"key ring: a key has exactly the members {', '.join(sorted(_MEMBERS))}")
    kid, alg, public_pem, pem = (entry[name] for name in ("kid", "alg", "public_key", "private_key"))
    if not (isinstance(kid, str) and isinstance(alg, str) and isinstance(public_pem, str)):
        raise MalformedError("key ring: kid, alg and public_key of a key are strings")
    public = public_key_from_pem(public_pem.encode(), alg=alg, kid=kid)
    signer = None
    if pem is not None:
        if not isinstance(pem, str) or not pem.startswith("-----BEGIN"):
            raise MalformedError("key ring: private_key of a key is PEM, or null")
        if passphrase is not None or not _is_encrypted(pem):
            signer = read_private_key(pem.encode(), passphrase=passphrase, alg=alg, kid=kid)
            if signer.public_key != public:
                raise MalformedError("key ring: the public half of a key is not that of its private half")
    return RingKey(
        public_key=public,
        published_at=_read_time(entry, "published_at"),
        active_from=_read_time(entry, "active_from"),
        retired_at=_read_time(entry, "retired_at"),
        removed_at=_read_time(entry, "removed_at"),
        revoked_at=_read_time(entry, "revoked_at"),
        pem=pem,
        signer=signer,
    )


def _read_time(entry: Mapping[str, Any], name: str) -> float:
    value = entry[name]
    if value is None and name not in ("published_at", "active_from"):
        return math.inf
    if type(value) not in (int, float):
        raise MalformedError(f"key ring: {name} is not a time in seconds since the epoch")
    return float(value)


def _written_time(time: float) -> float | None:
    if time == math.inf:
        return None
    return int(time) if time.is_integer() else time


def _is_encrypted(pem: str) -> bool:
    return pem.startswith("-----BEGIN ENCRYPTED")


def _without_half(key: RingKey, **times: float) -> RingKey:
    return replace(key, pem=None, signer=None, **times)  # type: ignore[arg-type]  # names of times only


def _shown(key: RingKey) -> str:
    return ascii(key.kid)[:66]
