"""What a client remembers of the cards that it has seen, and what it refuses because of that.

A signature proves who made a card, not that it is the latest one, nor that its key is the one of last time. So for
every origin (scheme, host and port) these are kept: that a signed card came from there, by which keys, and the highest
protected ``iat``. The rules, numbered as in ``judge``:

1. A card from the future is refused and not stored: its ``iat`` would make every honest card after it an old one.
2. A key that the trust store names is taken, whichever key was there before. A key that only its own origin vouches
   for (``TrustOnFirstUse``) is taken the first time; later it has to be one of those remembered.
3. What a key has said that only its own origin vouched for does not bind another one that the trust store names.
4. An ``iat`` lower than the remembered one is refused, an equal one is fine. So is a card without ``iat`` after one
   with it: whoever holds a card from before its signer wrote ``iat`` could go back to it for ever. When a signer really
   stops to write ``iat``, forget the origin.
5. A lower ``version`` is a warning: people go back to one on purpose, and the text of a version has no order.

Everything is checked and recorded in one step, so of two that see an origin for the first time one is the first, and
the other is judged by what that one has stored. Nothing is recorded but by way of a proof.

Not here: proving cards (``verify_card``), fetching them and their keys.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

from a2a_trust.errors import (
    CardMemoryError,
    ConfigurationError,
    MalformedError,
    PinnedKeyError,
    RolledBackCardError,
)
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.origins import Origins, host_of, origin_of
from a2a_trust.keys.trust import TrustedKey, TrustStore
from a2a_trust.signing.verify import CLOCK_SKEW, VerifiedCard

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Admitted",
    "CardMemory",
    "CardTable",
    "JudgingMemory",
    "Remembered",
    "TrustOnFirstUse",
    "VolatileCardMemory",
    "asked_origin",
    "judge",
]

_log: Final = logging.getLogger(__name__)

_THUMBPRINT: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_VERSION: Final = re.compile(r"v?([0-9]{1,9}(?:\.[0-9]{1,9}){0,7})(?:[-+].*)?", re.DOTALL)
_LONGEST_VERSION: Final = 64  # longer ones are no version, and not remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What is remembered of one origin.

    ``thumbprints`` are those (RFC 7638) of the keys that signed the last card, or that were accepted. ``issued`` is the
    highest protected ``iat``, None when no card from there had one. ``version`` is what the last card said of itself.
    ``first_seen`` and ``last_seen`` are when a card, or an acceptance, came. Moments are seconds since the epoch.
    """

    origin: str
    thumbprints: frozenset[str]
    issued: float | None
    version: str | None
    first_seen: float
    last_seen: float
    on_first_use: bool
    """Whether the keys were trusted on first use, or accepted by hand: no trust store has named them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A card that was let through, and what is remembered of its origin now and was ``before`` it (None: nothing).

    ``warnings`` are sentences that the user has to see: a key that was trusted on first use, a lower version.
    """

    remembered: Remembered
    before: Remembered | None
    warnings: tuple[str, ...]


class CardMemory(Protocol):
    """What a client remembers of the cards that it has seen, origin by origin. Safe in threads."""

    def admit(self, proven: VerifiedCard, origin: str, *, now: float) -> Admitted:
        """Check a card against what is remembered of ``origin``, the URL that it was asked from, and remember it.

        Call it before anything of the card is used, and with every card, so that the memory knows the latest one. It
        may wait for a disk: asynchronous programs call it in a thread.

        CardMemoryError, RolledBackCardError, PinnedKeyError: the card is refused, and nothing is recorded.
        CardMemoryUnavailableError: the memory cannot be read or written, and the card is not to be used.
        """
        ...

    def expects_signature(self, origin: str) -> bool:
        """Whether a signed card was seen from ``origin``, or a key accepted for it: then an unsigned one is an attack.

        CardMemoryUnavailableError: the memory cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class TrustOnFirstUse:
    """The choice to believe the keys that an agent's own origin publishes, once, and to hold it to them from then on.

    Whoever answers in the agent's place the first time is believed until somebody compares the thumbprint. It is for
    agents of which nothing is known: where the trust store names a key for a host, or demands something of its cards,
    that alone counts.
    """

    def applies_to(self, origin: str, trust: TrustStore) -> bool:
        """Whether the trust store says nothing about the host of ``origin``, a URL or a host."""
        host = host_of(asked_origin(origin))
        return not any(each.covers(host) for each in trust.spoken_for)

    def trust_store(self, published: Iterable[PublicKey], origin: str, trust: TrustStore) -> TrustStore:
        """The keys that ``origin`` has published, trusted for its host alone; nobody where this does not apply.

        A key that the trust store names anywhere is left out: how far it is trusted was said there. So is one that is
        revoked there, by name or by thumbprint. What is proven with this store must go through ``CardMemory.admit``,
        which knows it by its mark.
        """
        # Only what the operator wrote down: a stranger's key set must not block another party's first use.
        said = trust.revoked.union([entry.key.thumbprint for entry in trust.keys if entry.source is None])
        believed = [key for key in published if not said & {key.kid, key.thumbprint}]
        if not self.applies_to(origin, trust):
            believed = []
        origins = Origins(host_of(asked_origin(origin)))
        return TrustStore([TrustedKey(key=key, origins=origins, on_first_use=True) for key in believed])


def asked_origin(url: str) -> str:
    """The origin of the URL that a card is asked from, as memories know it: ``https://agent.example.com``.

    A host, or ``host:port``, without a scheme is asked over https. ConfigurationError: what is no http(s) URL, or what
    two readers could take for two hosts.
    """
    try:
        host_of(url)  # as it is: with a scheme before it a path would be a URL too
        origin = origin_of(url if "//" in url else f"https://{url}")
    except (MalformedError, TypeError):
        raise ConfigurationError(
            "origin: write the URL that the card was asked from, as in https://agent.example.com"
        ) from None
    scheme = origin.partition("://")[0]
    if scheme not in ("https", "http"):
        raise ConfigurationError(f"origin: cards come over https (or http, on this machine), not {scheme!a}")
    return origin


def judge(
    before: Remembered | None,
    proven: VerifiedCard,
    origin: str,
    *,
    now: float,
    way_out: WayOut,
) -> Admitted:
    """What a proven card makes of what is remembered of ``origin`` (an ``asked_origin``), or CardMemoryError."""
    presented, issued = frozenset([key.thumbprint for key in proven.keys]), proven.issued
    # 1. The future. Written so that what is no number is refused too.
    if issued is not None and not issued <= now + CLOCK_SKEW:
        raise CardMemoryError(f"{origin}: the card says that it was signed in the future (protected iat)", origin)
    # 2. Keys.
    if before is not None and proven.on_first_use and not presented <= before.thumbprints:
        raise _another_key(before, presented, way_out)
    # 3. What binds the card.
    binding = before
    if before is not None and before.on_first_use and not proven.on_first_use and not presented & before.thumbprints:
        binding = None
    # 4. Rollback.
    issued = None if issued is None else max(float(issued), 0.0)  # before 1970 is as old as can be
    if binding is not None and binding.issued is not None and (issued is None or issued < binding.issued):
        raise _rolled_back(binding.origin, issued, binding.issued, way_out)
    # 5. Version.
    version = proven.card.get("version")
    version = version if isinstance(version, str) and len(version) <= _LONGEST_VERSION else None
    warnings = []
    if binding is not None and _is_lower(version, binding.version):
        warnings.append(f"{origin}: the card's version is {version!a}, and was {binding.version!a} before")
    if before is None and proven.on_first_use:
        warnings.append(_trusted_on_first_use(origin, presented))
    remembered = Remembered(
        origin=origin,
        thumbprints=before.thumbprints if before is not None and proven.on_first_use else presented,
        issued=issued,
        version=binding.version if version is None and binding is not None else version,
        first_seen=now if before is None else before.first_seen,
        last_seen=now if before is None else max(now, before.last_seen),
        on_first_use=proven.on_first_use if before is None else before.on_first_use and proven.on_first_use,
    )
    return Admitted(remembered=remembered, before=before, warnings=tuple(warnings))


class WayOut(Protocol):
    """How people overrule the memory: what to write for ``accept`` with these thumbprints, or for ``forget``."""

    def __call__(self, action: str, origin: str, thumbprints: Iterable[str] = ()) -> str: ...


class CardTable(Protocol):
    """What is remembered, within one transaction: nobody else reads or writes meanwhile."""

    def get(self, origin: str) -> Remembered | None: ...

    def put(self, record: Remembered) -> None: ...

    def remove(self, origin: str) -> None: ...


class JudgingMemory:
    """The rules, and what people do with a memory: the same in every one that can open its table for writing.

    All of it is synchronous and safe in threads. ConfigurationError when what is asked for cannot be; nothing was
    changed then.
    """

    def _writing(self) -> AbstractContextManager[CardTable]:
        raise NotImplementedError

    def _way_out(self, action: str, origin: str, thumbprints: Iterable[str] = ()) -> str:
        raise NotImplementedError

    def admit(self, proven: VerifiedCard, origin: str, *, now: float) -> Admitted:
        """As ``CardMemory.admit``. The warnings also go to the log, where nobody has to ask for them."""
        known_as = asked_origin(origin)
        if not isinstance(proven, VerifiedCard):
            raise ConfigurationError("admit: give what verify_card returned; only what is proven is remembered")
        unbound = proven.origin is None and not proven.on_first_use  # a key of the trust store that speaks for any host
        if proven.origin != host_of(known_as) and not unbound:
            raise ConfigurationError(f"admit: the card was not proven for the host of {known_as}; give verify_card it")
        with self._writing() as table:
            admitted = judge(table.get(known_as), proven, known_as, now=now, way_out=self._way_out)
            table.put(admitted.remembered)
        for warning in admitted.warnings:
            _log.warning("%s", warning)
        return admitted

    def accept(self, origin: str, thumbprints: Iterable[str], *, now: float) -> Remembered:
        """Hold ``origin`` to these keys from now on, in place of those remembered, whether it was seen before or not.

        ``thumbprints`` (RFC 7638, SHA-256) come from whoever runs the agent, not from the agent. Other keys than before
        begin anew: the ``iat`` of a card that a stranger has signed says nothing about the right ones.
        """
        known_as = asked_origin(origin)
        keys = frozenset([thumbprints] if isinstance(thumbprints, str) else thumbprints)
        if not keys or not all(_THUMBPRINT.fullmatch(key) for key in keys):
            raise ConfigurationError(
                "accept: write the key's RFC 7638 thumbprint, 43 letters, digits, - and _, as the refusal shows it"
            )
        with self._writing() as table:
            before = table.get(known_as)
            binding = before if before is not None and before.thumbprints & keys else None
            record = Remembered(
                origin=known_as,
                thumbprints=keys,
                issued=None if binding is None else binding.issued,
                version=None if binding is None else binding.version,
                first_seen=now if before is None else before.first_seen,
                last_seen=now if before is None else before.last_seen,
                on_first_use=True,
            )
            table.put(record)
        return record

    def forget(self, origin: str) -> Remembered:
        """Know nothing of ``origin`` any more, and return what was known: its next card is the first one again."""
        known_as = asked_origin(origin)
        with self._writing() as table:
            record = table.get(known_as)
            if record is None:
                raise ConfigurationError(f"nothing is remembered of {known_as}")
            table.remove(known_as)
        return record


class VolatileCardMemory(JudgingMemory):
    """A memory of this process only, gone when it ends: for tests, and for programs that keep their own records.

    It grows with the origins that the program asks; nothing is ever dropped to make room.
    """

    def __init__(self, records: Iterable[Remembered] = ()) -> None:
        self._lock = Lock()
        self._table = _Table()
        for record in records:
            self._table.put(record)

    def records(self) -> tuple[Remembered, ...]:
        """All that is remembered, by origin."""
        with self._lock:
            return tuple(record for _, record in sorted(self._table.records.items()))

    def expects_signature(self, origin: str) -> bool:
        with self._lock:
            return self._table.get(asked_origin(origin)) is not None

    @contextmanager
    def _writing(self) -> Iterator[CardTable]:
        with self._lock:
            yield self._table

    def _way_out(self, action: str, origin: str, thumbprints: Iterable[str] = ()) -> str:
        keys = [sorted(thumbprints)] if thumbprints else []
        arguments = ", ".join([repr(origin), *map(repr, keys)])
        return f"the program's memory.{action}({arguments}{', now=…' if keys else ''})"


class _Table:
    def __init__(self) -> None:
        self.records: dict[str, Remembered] = {}

    def get(self, origin: str) -> Remembered | None:
        return self.records.get(origin)

    def put(self, record: Remembered) -> None:
        self.records[record.origin] = record

    def remove(self, origin: str) -> None:
        del self.records[origin]


def _is_lower(version: str | None, before: str | None) -> bool:
    """Whether both are numbers with dots, and the first is lower; what follows a ``-`` or ``+`` does not count."""
    new, old = (None if text is None else _VERSION.fullmatch(text) for text in (version, before))
    return new is not None and old is not None and _numbers(new[1]) < _numbers(old[1])


def _numbers(text: str) -> tuple[int, ...]:
    numbers = list(map(int, text.split(".")))
    while numbers and numbers[-1] == 0:  # 1.0 is 1
        numbers.pop()
    return tuple(numbers)


def _written(moment: float) -> str:
    return datetime.fromtimestamp(int(moment), UTC).isoformat().replace("+00:00", "Z")


def _shown(thumbprints: Iterable[str]) -> str:
    return ", ".join(sorted(thumbprints))


def _trusted_on_first_use(origin: str, presented: frozenset[str]) -> str:
    return (
        f"{origin}: its key was trusted on first use and is remembered from now on: {_shown(presented)}. "
        "Nobody vouches for it but this origin: compare the thumbprint with what whoever runs the agent tells you"
    )


def _another_key(before: Remembered, presented: frozenset[str], way_out: WayOut) -> PinnedKeyError:
    return PinnedKeyError(
        f"THE KEY OF {before.origin} HAS CHANGED\n"
        "  Either the agent has a new key, or somebody answers in its place. The card was refused.\n"
        f"  remembered since {_written(before.first_seen)}: {_shown(before.thumbprints)}\n"
        f"  signed the card now: {_shown(presented)}\n"
        "  Ask whoever runs the agent, not the agent, for the thumbprint of its key. If it is the new one:\n"
        f"    {way_out('accept', before.origin, presented)}",
        before.origin,
        presented=presented,
        pinned=before.thumbprints,
    )


def _rolled_back(origin: str, issued: float | None, remembered: float, way_out: WayOut) -> RolledBackCardError:
    said = "does not say when it was signed" if issued is None else f"was signed at {_written(issued)}"
    return RolledBackCardError(
        f"{origin}: an older card came after a newer one: it {said}, one of {_written(remembered)} was seen before. "
        "Let whoever runs the agent sign its card anew; or, when it went back on purpose: "
        f"{way_out('forget', origin)}",
        origin,
        issued=issued,
        remembered=remembered,
    )
