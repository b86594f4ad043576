"""What a client remembers of the cards that it has seen, and which cards it rejects because of that.

A signature proves who made a card. It does not prove that the card is the latest one, nor that its key is the one of
last time. So for every agent location (``location``) these are kept: that a signed card came from there, by which keys,
and the highest protected ``iat``. ``Admission`` decides on a card by these rules, each of which is one of its methods:

1. A card from the future is rejected.
2. A key of first use that has changed is rejected.
3. A first use at a new location is limited to the keys that its host is remembered for.
4. A key that the trust store names ends a first use.
5. An older card than the one remembered is rejected.
6. A lower version, and a key that changed to that of another agent of the host, are warnings.

A card is checked and recorded in one step. If two processes see a location for the first time, one is first, and the
other is held to what the first has stored. Only verified cards are recorded.

Not here: verifying cards (``verify_card``), fetching them and their keys.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Final, Protocol

from a2a_trust.client.first_use import changed_key, other_key_of_host, trusted_on_first_use
from a2a_trust.client.location import Location, named_location
from a2a_trust.dates import date_of
from a2a_trust.errors import CardMemoryError, ConfigurationError, RolledBackCardError
from a2a_trust.keys.origins import host_of
from a2a_trust.keys.policy import is_thumbprint
from a2a_trust.signing.verify import VerifiedCard
from a2a_trust.signing.verify_signature import CLOCK_SKEW

__all__ = [
    "Admission",
    "Admitted",
    "CardMemory",
    "CardTable",
    "Remembered",
    "TableCardMemory",
    "VolatileCardMemory",
    "acceptance",
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

    def admit(self, verified: VerifiedCard, url: str, *, now: float | None = None) -> Admitted:
        """Check a card against what is remembered of its location, and remember it.

        ``url`` is the one that the card was asked from; its query does not count. Call this before anything of the card
        is used, and with every card, so that the memory knows the latest one. ``now`` are seconds since the epoch, the
        clock's without it. It may wait for a disk: asynchronous
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


def acceptance(location: str, thumbprints: Iterable[str]) -> tuple[Location, frozenset[str]]:
    """What a person accepts, as for ``TableCardMemory.accept``. ConfigurationError: it is no location or no key."""
    named = named_location(location, with_query=True)
    keys = frozenset([thumbprints] if isinstance(thumbprints, str) else thumbprints)
    if not keys or not all(map(is_thumbprint, keys)):
        raise ConfigurationError(
            "accept: write the key's RFC 7638 thumbprint, 43 letters, digits, - and _, as the refusal shows it"
        )
    return named, keys


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


class Admission:
    """The decision on one verified card, by what is remembered of its location. Nothing is recorded.

    Why this is a class: each rule is a method, and some of them leave to the next ones what still binds the card.
    """

    def __init__(
        self, table: CardTable, verified: VerifiedCard, location: Location, *, now: float, way_out: WayOut
    ) -> None:
        self._table, self._verified, self._location, self._now, self._way_out = table, verified, location, now, way_out
        self._before = self._binding = table.get(location)
        self._presented = frozenset([key.thumbprint for key in verified.keys])
        self._issued: float | None = None
        version = verified.card.get("version")
        self._version = version if isinstance(version, str) and len(version) <= _LONGEST_VERSION else None
        self._warnings: list[str] = []

    def decide(self) -> Admitted:
        """The card is admitted. CardMemoryError: it is rejected, by the rule that comes first."""
        self._reject_future()
        self._reject_changed_key()
        self._reject_other_key_of_host()
        self._end_first_use()
        self._reject_older()
        self._warn_of_lower_version()
        self._warn_of_key_of_neighbour()
        return Admitted(remembered=self._remembered(), before=self._before, warnings=tuple(self._warnings))

    def _reject_future(self) -> None:
        """1. A card from the future is rejected: its ``iat`` would make every honest card after it an old one."""
        issued = self._verified.issued
        if issued is None:
            return
        if not issued <= self._now + CLOCK_SKEW:  # written so that what is not a number is rejected too
            raise CardMemoryError(
                f"{self._location}: the card says that it was signed in the future (protected iat)", self._location
            )
        self._issued = max(float(issued), 0.0)  # before 1970 is as old as can be

    def _reject_changed_key(self) -> None:
        """2. A key that the trust store names is accepted, whichever key was there before. A key for which only its own
        origin vouches (``TrustOnFirstUse``) is accepted on first use, with a warning; later it must be one of those
        remembered for the location.
        """
        before = self._before
        if not self._verified.on_first_use:
            return
        if before is None:
            self._warnings.append(trusted_on_first_use(self._location, self._presented))
        elif not self._presented <= before.thumbprints:
            raise changed_key(
                self._location,
                since=before.first_seen,
                pinned=before.thumbprints,
                presented=self._presented,
                accept=self._way_out("accept", self._location, self._presented),
            )

    def _reject_other_key_of_host(self) -> None:
        """3. The first use of a new location on a host that is remembered is limited to the keys that were trusted on
        first use there, at any port. Any other key must be accepted by a person. Else everybody who may choose a path
        or a port would get a first use, of a key that speaks for the whole host.
        """
        if not self._verified.on_first_use or self._before is not None:
            return
        neighbours = list(self._table.neighbours(self._location))
        pinned = frozenset[str]().union(*[each.thumbprints for each in neighbours if each.on_first_use])
        if neighbours and not self._presented <= pinned:
            raise other_key_of_host(
                self._location,
                pinned=pinned,
                presented=self._presented,
                accept=self._way_out("accept", self._location, self._presented),
            )

    def _end_first_use(self) -> None:
        """4. If a key that was trusted on first use is replaced by one that the trust store names, its ``iat`` and
        version no longer count.
        """
        before = self._before
        if before is not None and before.on_first_use and not self._verified.on_first_use:
            self._binding = before if self._presented & before.thumbprints else None

    def _reject_older(self) -> None:
        """5. An ``iat`` lower than the remembered one is rejected; an equal one is fine. So is rejected a card without
        ``iat`` after one with it: otherwise an old card without ``iat`` would be accepted for ever. If a signer really
        stops writing ``iat``, forget the location.
        """
        remembered, issued = None if self._binding is None else self._binding.issued, self._issued
        if remembered is None or (issued is not None and issued >= remembered):
            return
        said = "does not say when it was signed" if issued is None else f"was signed at {date_of(issued)}"
        raise RolledBackCardError(
            f"{self._location}: an older card came after a newer one: it {said}, one of {date_of(remembered)} was seen "
            "before. Have whoever runs the agent sign its card again; or, if it went back on purpose, run: "
            f"{self._way_out('forget', self._location)}",
            self._location,
            issued=issued,
            remembered=remembered,
        )

    def _warn_of_lower_version(self) -> None:
        """6. A lower ``version`` is a warning: people go back to one on purpose, and the text of a version has no
        order.
        """
        if self._binding is not None and _is_lower(self._version, self._binding.version):
            self._warnings.append(
                f"{self._location}: the card's version is {self._version!a}, and was {self._binding.version!a} before"
            )

    def _warn_of_key_of_neighbour(self) -> None:
        """6. A key of the trust store that takes the place of another, and is that of another agent of the host, is a
        warning, too.
        """
        if self._binding is None or self._presented & self._binding.thumbprints:
            return
        neighbours = self._table.neighbours(self._location)
        others = sorted(each.location for each in neighbours if self._presented & each.thumbprints)
        if others:
            self._warnings.append(
                f"{self._location}: its card is signed by another key than before, which is that of {others[0]}; if "
                "these agents have keys of their own, the card of one is served in the place of the other"
            )

    def _remembered(self) -> Remembered:
        version = self._version
        if version is None and self._binding is not None:
            version = self._binding.version
        before, on_first_use = self._before, self._verified.on_first_use
        return Remembered(
            location=self._location,
            thumbprints=before.thumbprints if before is not None and on_first_use else self._presented,
            issued=self._issued,
            version=version,
            first_seen=self._now if before is None else before.first_seen,
            last_seen=self._now if before is None else max(self._now, before.last_seen),
            on_first_use=on_first_use and (before is None or before.on_first_use),
        )


class TableCardMemory:
    """The rules, and what people do with a memory: the same in every one that can open its table for writing.

    All of it is synchronous and safe in threads. ConfigurationError: an argument is wrong; nothing was changed.
    """

    def _writing(self) -> AbstractContextManager[CardTable]:
        raise NotImplementedError

    def _way_out(self, action: str, location: str, thumbprints: Iterable[str] = ()) -> str:
        raise NotImplementedError

    def admit(self, verified: VerifiedCard, url: str, *, now: float | None = None) -> Admitted:
        """As ``CardMemory.admit``. The warnings also go to the log, where nobody has to ask for them."""
        location = named_location(url)
        if not isinstance(verified, VerifiedCard):
            raise ConfigurationError("admit: give what verify_card returned; only verified cards are remembered")
        unbound = (
            verified.origin is None and not verified.on_first_use
        )  # a key of the trust store that speaks for any host
        if verified.origin != host_of(location) and not unbound:
            raise ConfigurationError(
                f"admit: the card was not verified for the host of {location}; give verify_card that origin"
            )
        with self._writing() as table:
            moment = time.time() if now is None else now
            admitted = Admission(table, verified, location, now=moment, way_out=self._way_out).decide()
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
                raise ConfigurationError(
                    f"nothing is remembered of {named}; write a location as a2a-sign memory list shows it"
                )
            table.remove(named)
        return record


class VolatileCardMemory(TableCardMemory):
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
