"""What a client remembers of the cards that it has seen, and which cards it rejects because of that.

A signature proves who made a card. It does not prove that the card is the latest one, nor that its key is the one of
last time. So for every agent location (``location``) these are kept: that a signed card came from there, by which keys,
and the highest protected ``iat``. The rules, numbered as in ``judge``:

1. A card from the future is rejected and not stored: its ``iat`` would make every honest card after it an old one.
2. A key that the trust store names is accepted, whichever key was there before. A key for which only its own origin
   vouches (``TrustOnFirstUse``) is accepted on first use; later it must be one of those remembered for the location.
3. The first use of a new location on a host that is remembered is limited to the keys that were trusted on first use
   there, at any port. Any other key must be accepted by a person. Else everybody who may choose a path or a port would
   get a first use, of a key that speaks for the whole host.
4. If a key that was trusted on first use is replaced by one that the trust store names, its ``iat`` and version no
   longer count.
5. An ``iat`` lower than the remembered one is rejected; an equal one is fine. So is rejected a card without ``iat``
   after one with it: otherwise an old card without ``iat`` would be accepted for ever. If a signer really stops writing
   ``iat``, forget the location.
6. A lower ``version`` is a warning: people go back to one on purpose, and the text of a version has no order. A key of
   the trust store that takes the place of another, and is that of another agent of the host, is a warning, too.

A card is checked and recorded in one step. If two processes see a location for the first time, one is first, and the
other is judged by what the first has stored. Only verified cards are recorded.

Not here: verifying cards (``verify_card``), fetching them and their keys.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

from a2a_trust.client.location import Location, location_of
from a2a_trust.dates import date_of
from a2a_trust.errors import (
    CardMemoryError,
    ConfigurationError,
    MalformedError,
    PinnedKeyError,
    RolledBackCardError,
)
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.origins import Origins, host_of
from a2a_trust.keys.policy import is_thumbprint
from a2a_trust.keys.trust import TrustedKey, TrustStore
from a2a_trust.signing.verify import VerifiedCard
from a2a_trust.signing.verify_signature import CLOCK_SKEW

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
    "acceptance",
    "judge",
    "named_location",
]

_log: Final = logging.getLogger(__name__)

_VERSION: Final = re.compile(r"v?([0-9]{1,9}(?:\.[0-9]{1,9}){0,7})(?:[-+].*)?", re.DOTALL)
_LONGEST_VERSION: Final = 64  # longer ones are no version, and not remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What is remembered of one agent location.

    ``thumbprints`` are those (RFC 7638) of the keys that signed the last card, or that were accepted. ``issued`` is the
    highest protected ``iat``, None when no card from there had one. ``version`` is what the last card said of itself.
    ``first_seen`` and ``last_seen`` are when a card, or an acceptance, came. Moments are seconds since the epoch.
    """

    location: Location
    thumbprints: frozenset[str]
    issued: float | None
    version: str | None
    first_seen: float
    last_seen: float
    on_first_use: bool
    """Whether the keys were trusted on first use, or accepted by hand: no trust store has named them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A card that was accepted, what is remembered of its location now, and what was ``before`` (None: nothing).

    ``warnings`` are sentences that the user has to see: a key that was trusted on first use, a lower version.
    """

    remembered: Remembered
    before: Remembered | None
    warnings: tuple[str, ...]


class CardMemory(Protocol):
    """What a client remembers of the cards that it has seen, location by location. Safe in threads."""

    def admit(self, proven: VerifiedCard, url: str, *, now: float) -> Admitted:
        """Check a card against what is remembered of its location, and remember it.

        ``url`` is the one that the card was asked from; its query does not count. Call this before anything of the card
        is used, and with every card, so that the memory knows the latest one. It may wait for a disk: asynchronous
        programs call it in a thread.

        CardMemoryError, RolledBackCardError, PinnedKeyError: the card is rejected, and nothing is recorded.
        CardMemoryUnavailableError: the memory cannot be read or written, and the card is not to be used.
        """
        ...

    def expects_signature(self, url: str) -> bool:
        """Whether a signed card was seen from that location, or a key accepted for it: an unsigned one is an attack.

        CardMemoryUnavailableError: the memory cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class TrustOnFirstUse:
    """The choice to believe the keys that an agent's own origin publishes, once, and to hold it to them from then on.

    Whoever answers in the agent's place the first time is believed until somebody compares the thumbprint. It is for
    agents of which nothing is known: if the trust store names a key for a host, or demands something of its cards, only
    the trust store counts.
    """

    def applies_to(self, url: str, trust: TrustStore) -> bool:
        """Whether the trust store says nothing about the host of ``url``, the URL of an agent or of its card."""
        host = host_of(named_location(url))
        return not any(each.covers(host) for each in trust.spoken_for)

    def trust_store(self, published: Iterable[PublicKey], url: str, trust: TrustStore) -> TrustStore:
        """The keys that the origin of ``url`` has published, trusted for its host; none if this does not apply.

        A key that the operator wrote down anywhere is left out: how far it is trusted was said there. So is one that is
        revoked there, by name or by thumbprint. A card that is verified with this store must go through
        ``CardMemory.admit``, which knows it by its mark.
        """
        # Only what the operator wrote down: a stranger's key set must not block another party's first use.
        said = trust.revoked.union([entry.key.thumbprint for entry in trust.keys if entry.source is None])
        believed = [key for key in published if not said & {key.kid, key.thumbprint}]
        if not self.applies_to(url, trust):
            believed = []
        origins = Origins(host_of(named_location(url)))
        return TrustStore([TrustedKey(key=key, origins=origins, on_first_use=True) for key in believed])


def named_location(url: str, *, with_query: bool = False) -> Location:
    """The location that the program named; ConfigurationError if it is not one."""
    try:
        return location_of(url, with_query=with_query)
    except MalformedError as error:
        raise ConfigurationError(str(error)) from None


def acceptance(location: str, thumbprints: Iterable[str]) -> tuple[Location, frozenset[str]]:
    """What a person accepts, as ``JudgingMemory.accept`` has it; ConfigurationError if it is no location or no key."""
    named = named_location(location, with_query=True)
    keys = frozenset([thumbprints] if isinstance(thumbprints, str) else thumbprints)
    if not keys or not all(map(is_thumbprint, keys)):
        raise ConfigurationError(
            "accept: write the key's RFC 7638 thumbprint, 43 letters, digits, - and _, as the refusal shows it"
        )
    return named, keys


def judge(table: CardTable, proven: VerifiedCard, location: Location, *, now: float, way_out: WayOut) -> Admitted:
    """What a verified card makes of what is remembered of its location, or CardMemoryError. Nothing is recorded."""
    before, presented = table.get(location), frozenset([key.thumbprint for key in proven.keys])
    # 1. The future.
    _check_future(proven.issued, location, now)
    # 2. and 3. Keys.
    if proven.on_first_use and before is not None:
        _check_pinned(before, presented, way_out)
    elif proven.on_first_use:
        _check_new_location(table.neighbours(location), presented, location, way_out)
    # 4. What binds the card.
    binding = _binding(before, presented, on_first_use=proven.on_first_use)
    # 5. Rollback.
    issued = None if proven.issued is None else max(float(proven.issued), 0.0)  # before 1970 is as old as can be
    _check_rollback(binding, issued, way_out)
    # 6. What people have to see.
    version = proven.card.get("version")
    version = version if isinstance(version, str) and len(version) <= _LONGEST_VERSION else None
    warnings = [*_lower_version(binding, version)]
    if before is None and proven.on_first_use:
        warnings.append(_trusted_on_first_use(location, presented))
    elif binding is not None and not presented & binding.thumbprints:
        warnings += _keys_of_neighbours(table.neighbours(location), presented, location)
    if version is None and binding is not None:
        version = binding.version
    if before is None:
        remembered = Remembered(
            location=location,
            thumbprints=presented,
            issued=issued,
            version=version,
            first_seen=now,
            last_seen=now,
            on_first_use=proven.on_first_use,
        )
    else:
        remembered = replace(
            before,
            thumbprints=before.thumbprints if proven.on_first_use else presented,
            issued=issued,
            version=version,
            last_seen=max(now, before.last_seen),
            on_first_use=before.on_first_use and proven.on_first_use,
        )
    return Admitted(remembered=remembered, before=before, warnings=tuple(warnings))


def _binding(before: Remembered | None, presented: frozenset[str], *, on_first_use: bool) -> Remembered | None:
    """What is remembered, unless a key that the trust store names takes the place of one of first use."""
    if before is None or on_first_use or not before.on_first_use or presented & before.thumbprints:
        return before
    return None


def _check_future(issued: float | None, location: Location, now: float) -> None:
    if issued is not None and not issued <= now + CLOCK_SKEW:  # written so that what is not a number is rejected too
        raise CardMemoryError(f"{location}: the card says that it was signed in the future (protected iat)", location)


def _check_pinned(before: Remembered, presented: frozenset[str], way_out: WayOut) -> None:
    if presented <= before.thumbprints:
        return
    raise PinnedKeyError(
        f"THE KEY OF {before.location} HAS CHANGED\n"
        "  Either the agent has a new key, or somebody answers in its place. The card was rejected.\n"
        f"  remembered since {date_of(before.first_seen)}: {_shown(before.thumbprints)}\n"
        f"  signed the card now: {_shown(presented)}\n"
        "  Ask whoever runs the agent, not the agent, for the thumbprint of its key. If it is the new one:\n"
        f"    {way_out('accept', before.location, presented)}",
        before.location,
        presented=presented,
        pinned=before.thumbprints,
    )


def _check_new_location(
    neighbours: Iterable[Remembered], presented: frozenset[str], location: Location, way_out: WayOut
) -> None:
    """On first use: either nothing is remembered of the host, or the keys are those trusted on first use there."""
    neighbours = list(neighbours)
    known = frozenset[str]().union(*[each.thumbprints for each in neighbours if each.on_first_use])
    if not neighbours or presented <= known:
        return
    raise PinnedKeyError(
        f"ANOTHER KEY AT {location.origin}\n"
        f"  {location} is new here, and its card is signed by a key that is not remembered from first use for this "
        "host.\n"
        "  Either this agent has a key of its own, or somebody answers in its place. The card was rejected.\n"
        f"  remembered from first use for this host: {_shown(known) or 'none; a trust store named the keys'}\n"
        f"  signed the card now: {_shown(presented)}\n"
        "  Ask whoever runs the agent, not the agent, for the thumbprint of its key. If it is this one:\n"
        f"    {way_out('accept', location, presented)}",
        location,
        presented=presented,
        pinned=known,
    )


def _check_rollback(binding: Remembered | None, issued: float | None, way_out: WayOut) -> None:
    if binding is None or binding.issued is None or (issued is not None and issued >= binding.issued):
        return
    location, remembered = binding.location, binding.issued
    said = "does not say when it was signed" if issued is None else f"was signed at {date_of(issued)}"
    raise RolledBackCardError(
        f"{location}: an older card came after a newer one: it {said}, one of {date_of(remembered)} was seen before. "
        "Have whoever runs the agent sign its card again; or, if it went back on purpose, run: "
        f"{way_out('forget', location)}",
        location,
        issued=issued,
        remembered=remembered,
    )


def _lower_version(binding: Remembered | None, version: str | None) -> Iterator[str]:
    if binding is not None and _is_lower(version, binding.version):
        yield f"{binding.location}: the card's version is {version!a}, and was {binding.version!a} before"


def _trusted_on_first_use(location: Location, presented: frozenset[str]) -> str:
    return (
        f"{location}: its key was trusted on first use and is remembered from now on: {_shown(presented)}. "
        f"Only {location.origin} vouches for it: compare the thumbprint with what whoever runs the agent tells you"
    )


def _keys_of_neighbours(
    neighbours: Iterable[Remembered], presented: frozenset[str], location: Location
) -> Iterator[str]:
    others = sorted(each.location for each in neighbours if presented & each.thumbprints)
    if others:
        yield (
            f"{location}: its card is signed by another key than before, which is that of {others[0]}; if these agents "
            "have keys of their own, the card of one is served in the place of the other"
        )


class WayOut(Protocol):
    """How people overrule the memory: what to write for ``accept`` with these thumbprints, or for ``forget``."""

    def __call__(self, action: str, location: str, thumbprints: Iterable[str] = ()) -> str: ...


class CardTable(Protocol):
    """What is remembered, within one transaction: nobody else reads or writes meanwhile."""

    def get(self, location: Location) -> Remembered | None: ...

    def neighbours(self, location: Location) -> Iterable[Remembered]:
        """What is remembered of the other locations of the same host, at every port."""
        ...

    def put(self, record: Remembered) -> None: ...

    def remove(self, location: Location) -> None: ...


class JudgingMemory:
    """The rules, and what people do with a memory: the same in every one that can open its table for writing.

    All of it is synchronous and safe in threads. ConfigurationError: an argument is wrong; nothing was changed.
    """

    def _writing(self) -> AbstractContextManager[CardTable]:
        raise NotImplementedError

    def _way_out(self, action: str, location: str, thumbprints: Iterable[str] = ()) -> str:
        raise NotImplementedError

    def admit(self, proven: VerifiedCard, url: str, *, now: float) -> Admitted:
        """As ``CardMemory.admit``. The warnings also go to the log, where nobody has to ask for them."""
        location = named_location(url)
        if not isinstance(proven, VerifiedCard):
            raise ConfigurationError("admit: give what verify_card returned; only verified cards are remembered")
        unbound = proven.origin is None and not proven.on_first_use  # a key of the trust store that speaks for any host
        if proven.origin != host_of(location) and not unbound:
            raise ConfigurationError(
                f"admit: the card was not verified for the host of {location}; give verify_card that origin"
            )
        with self._writing() as table:
            admitted = judge(table, proven, location, now=now, way_out=self._way_out)
            table.put(admitted.remembered)
        for warning in admitted.warnings:
            _log.warning("%s", warning)
        return admitted

    def accept(self, location: str, thumbprints: Iterable[str], *, now: float) -> Remembered:
        """Hold the agent to these keys from now on, in place of those remembered, whether it was seen before or not.

        ``location`` is the URL of the agent or of its card, as ``records`` shows it; a query in it counts, for clients
        that name the URL in ``cards``. ``thumbprints`` (RFC 7638, SHA-256) come from whoever runs the agent, not
        from the agent. With other keys than before ``iat`` and version start again: those of a card that a stranger has
        signed say nothing about the right ones.
        """
        named, keys = acceptance(location, thumbprints)
        with self._writing() as table:
            before = table.get(named)
            binding = before if before is not None and before.thumbprints & keys else None
            record = Remembered(
                location=named,
                thumbprints=keys,
                issued=None if binding is None else binding.issued,
                version=None if binding is None else binding.version,
                first_seen=now if before is None else before.first_seen,
                last_seen=now if before is None else before.last_seen,
                on_first_use=True,
            )
            table.put(record)
        return record

    def forget(self, location: str) -> Remembered:
        """Know nothing of this location any more, and return what was known: its next card is the first one again.

        ``location`` is as for ``accept``.
        """
        named = named_location(location, with_query=True)
        with self._writing() as table:
            record = table.get(named)
            if record is None:
                raise ConfigurationError(f"nothing is remembered of {named}; write a location as pins list shows it")
            table.remove(named)
        return record


class VolatileCardMemory(JudgingMemory):
    """A memory of this process only, gone when it ends: for tests, and for programs that keep their own records.

    It grows with the locations that the program asks; nothing is ever dropped to make room.
    """

    def __init__(self, records: Iterable[Remembered] = ()) -> None:
        self._lock = Lock()
        self._table = _Table()
        for record in records:
            self._table.put(record)

    def records(self) -> tuple[Remembered, ...]:
        """All that is remembered, by location."""
        with self._lock:
            return tuple(record for _, record in sorted(self._table.records.items()))

    def expects_signature(self, url: str) -> bool:
        with self._lock:
            return self._table.get(named_location(url)) is not None

    @contextmanager
    def _writing(self) -> Iterator[CardTable]:
        with self._lock:
            yield self._table

    def _way_out(self, action: str, location: str, thumbprints: Iterable[str] = ()) -> str:
        keys = [sorted(thumbprints)] if thumbprints else []
        arguments = ", ".join([repr(str(location)), *map(repr, keys)])
        return f"the program's memory.{action}({arguments}{', now=…' if keys else ''})"


class _Table:
    def __init__(self) -> None:
        self.records: dict[Location, Remembered] = {}

    def get(self, location: Location) -> Remembered | None:
        return self.records.get(location)

    def neighbours(self, location: Location) -> Iterable[Remembered]:
        here = tuple(f"{scheme}://{location.host}{end}" for scheme in ("https", "http") for end in "/:")
        return [
            each for each in self.records.values() if f"{each.location}/".startswith(here) and each.location != location
        ]

    def put(self, record: Remembered) -> None:
        self.records[record.location] = record

    def remove(self, location: Location) -> None:
        del self.records[location]


def _is_lower(version: str | None, before: str | None) -> bool:
    """Whether both are numbers with dots, and the first is lower; what follows a ``-`` or ``+`` does not count."""
    new, old = (None if text is None else _VERSION.fullmatch(text) for text in (version, before))
    return new is not None and old is not None and _numbers(new[1]) < _numbers(old[1])


def _numbers(text: str) -> tuple[int, ...]:
    numbers = list(map(int, text.split(".")))
    while numbers and numbers[-1] == 0:  # 1.0 is 1
        numbers.pop()
    return tuple(numbers)


def _shown(thumbprints: Iterable[str]) -> str:
    return ", ".join(sorted(thumbprints))
