"""The card memory: what a client remembers of earlier cards, and which cards it rejects because of that.

A signature proves who made a card. It does not prove that the card is the latest one, or that its key is the key from
before. So the memory keeps for every agent location (``location``): that a signed card came from there, its keys, and
the highest protected ``iat``. It also keeps for every interface at which location a card named it last.
``Admission`` decides about a card by seven rules. These invariants hold:

- A card is checked and recorded in one transaction. If two processes see a location or an interface for the first time,
  the second one is checked against the record of the first.
- Only verified cards, and acceptances of people, are recorded. A rejected card changes nothing.
- An interface is of one location. It stays there when newer cards of that location do not name it any more, until a
  card at another location names it, or a person forgets the location.
- A location has at most 256 interfaces. A card with more is rejected. Older interfaces are kept while they fit.
"""

from __future__ import annotations

import logging
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import zip_longest
from threading import Lock
from typing import Any, Final, Protocol

from a2a_trust.base.dates import CLOCK_SKEW, date_of
from a2a_trust.base.net.urls import with_plain_escapes
from a2a_trust.card.view import Interface, read_interfaces
from a2a_trust.client.location import Location, named_location
from a2a_trust.errors import CardMemoryError, ConfigurationError, MalformedError, PinnedKeyError, RolledBackCardError
from a2a_trust.keys import base64url
from a2a_trust.keys.trust.origins import url_of
from a2a_trust.keys.trust.policy import is_thumbprint
from a2a_trust.signing.verify import VerifiedCard

_log: Final = logging.getLogger(__name__)
_VERSION: Final = re.compile(r"v?([0-9]{1,9}(?:\.[0-9]{1,9}){0,7})(?:[-+].*)?", re.DOTALL)
_LONGEST_VERSION: Final = 64  # longer ones are no version, and not remembered
_MOST_INTERFACES: Final = 256  # of one location


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The record of one agent location.

    ``thumbprints`` (RFC 7638) are of the keys that signed the last card, or that were accepted. ``issued`` is the
    highest protected ``iat``, or None if no card had one. ``version`` is the last card's ``version``. ``first_seen``
    and ``last_seen`` are the times of cards or acceptances. Times are seconds since the epoch. ``interfaces`` are
    SHA-256 digests of URL and tenant, in base64url, of the interfaces that a card from here was the last to name.
    """

    location: Location
    thumbprints: frozenset[str] = frozenset()
    issued: float | None = None
    version: str | None = None
    first_seen: float
    last_seen: float
    interfaces: frozenset[str] = frozenset()
    on_first_use: bool = True
    """Whether the keys were trusted on first use, or accepted by a person, and not named by a trust store."""

    @classmethod
    def of_row(cls, row: Iterable[Any]) -> Remembered:
        """The record in a row of a database: the columns of ``row``, and the interfaces with blanks between them."""
        location, thumbprints, issued, version, first_seen, last_seen, on_first_use, interfaces = row
        return cls(
            location=Location(location),
            thumbprints=frozenset(thumbprints.split()),
            issued=issued,
            version=version,
            first_seen=first_seen,
            last_seen=last_seen,
            interfaces=frozenset((interfaces or "").split()),
            on_first_use=bool(on_first_use),
        )

    def bound_by(self, keys: frozenset[str]) -> Remembered:
        """The record, or what is left of it for a card of none of its keys: the times when the location was seen."""
        if self.thumbprints & keys:
            return self
        return Remembered(location=self.location, first_seen=self.first_seen, last_seen=self.last_seen)

    def row(self) -> tuple[Any, ...]:
        thumbprints = " ".join(sorted(self.thumbprints))
        seen = self.first_seen, self.last_seen
        return self.location, thumbprints, self.issued, self.version, *seen, self.on_first_use


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedCard:
    """An accepted card: the record of its location now, and ``before`` (None: there was no record).

    ``warnings`` are sentences that a person must see, such as a key that was trusted on first use, or a lower version.
    """

    remembered: Remembered
    before: Remembered | None
    warnings: tuple[str, ...]


class CardMemory(Protocol):
    """The memory of a client about the cards that it has seen, by location. Safe in threads."""

    def admit(self, verified: VerifiedCard, url: str, *, now: float | None = None) -> AdmittedCard:
        """Check a card against what is remembered of its location, and remember it.

        ``url`` is the URL that the card came from; its query does not count. Call this with every card, before you use
        anything in it. ``now`` is in seconds since the epoch; the default is the clock. It may wait for a disk, so
        async programs call it in a thread.

        CardMemoryError, RolledBackCardError, PinnedKeyError: the card is rejected, and nothing is recorded.
        CardMemoryUnavailableError: the memory cannot be read or written, so the card must not be used.
        """

    def expects_signature(self, url: str) -> bool:
        """Whether the location has a record, so that an unsigned card must be rejected. Errors as of ``admit``."""


def acceptance(location: str, thumbprints: Iterable[str]) -> tuple[Location, frozenset[str]]:
    """The checked arguments of ``TableCardMemory.accept``. ConfigurationError: not a location, or not a thumbprint."""
    named = named_location(location, with_query=True)
    keys = frozenset([thumbprints] if isinstance(thumbprints, str) else thumbprints)
    if not keys or not all(map(is_thumbprint, keys)):
        raise ConfigurationError(
            "accept: a thumbprint is not valid; write the key's RFC 7638 thumbprint as in the error: 43 letters, "
            "digits, - and _"
        )
    return named, keys


def _interfaces_of(verified: VerifiedCard, location: Location) -> dict[str, str]:
    """The URLs of the card's interfaces, by the digests in ``Remembered.interfaces``. CardMemoryError: too many."""
    interfaces: dict[str, str] = {}
    for each in read_interfaces(verified.card):
        with suppress(MalformedError):  # no client of ours calls it
            interfaces[_digest(each)] = each.url
    if len(interfaces) > _MOST_INTERFACES:
        raise CardMemoryError(
            f"{location}: the card has more than {_MOST_INTERFACES} interfaces, and the memory keeps no more of an "
            "agent; ask the agent's operator to divide the card",
            location,
        )
    return interfaces


def _digest(interface: Interface) -> str:
    """Agents of one server may share a URL, and differ in the tenant. The other parts have no line ends."""
    url = url_of(interface.url)
    named = (url.origin, with_plain_escapes(url.path).removesuffix("/"), url.query or "", interface.tenant)
    return base64url.encode(sha256("\n".join(named).encode()).digest())


class CardTable(Protocol):
    """The records, within one transaction: no other reader or writer is active."""

    def records(self) -> Sequence[Remembered]: ...

    def get(self, location: Location) -> Remembered | None: ...

    def neighbours(self, location: Location) -> Sequence[Remembered]:
        """The records of the other locations of the same host, at every port."""

    def elsewhere(self, location: Location, interfaces: Mapping[str, str]) -> Sequence[Remembered]:
        """The records of other locations with one of these interfaces: URLs by digest. It comes first, and may lock."""

    def put(self, record: Remembered) -> None:
        """Keep the record. Records of other locations lose the interfaces that it has."""

    def remove(self, location: Location) -> None: ...


class Admission:
    """The decision about one verified card, from the record of its location. ``hint``: a command to overrule it."""

    def __init__(
        self, table: CardTable, verified: VerifiedCard, location: Location, *, now: float, hint: Callable[..., str]
    ) -> None:
        self._table, self._verified, self._location, self._now, self._hint = table, verified, location, now, hint
        self._interfaces = _interfaces_of(verified, location)
        self._elsewhere = table.elsewhere(location, self._interfaces)
        self._before = table.get(location)
        self._past = self._before or Remembered(location=location, first_seen=now, last_seen=now)
        self._presented = frozenset([key.thumbprint for key in verified.keys])
        self._issued: float | None = None
        version = verified.card.get("version")
        self._version = version if isinstance(version, str) and len(version) <= _LONGEST_VERSION else None
        self._warnings: list[str] = []

    def decide(self) -> AdmittedCard:
        """Admit the card. CardMemoryError: the first rule that rejects it."""
        self._reject_future()
        self._reject_changed_key()
        self._reject_other_key_of_host()
        self._end_first_use()
        self._reject_older()
        self._reject_older_than_elsewhere()
        self._warn_of_changes()
        return AdmittedCard(remembered=self._new_record(), before=self._before, warnings=tuple(self._warnings))

    def _reject_future(self) -> None:
        """1. A card from the future is rejected: after its ``iat``, all honest cards would count as older."""
        issued = self._verified.issued
        if issued is None:
            return
        if not issued <= self._now + CLOCK_SKEW:  # written so that what is not a number is rejected too
            raise CardMemoryError(
                f"{self._location}: the card was signed in the future, says its protected iat; check this machine's "
                "clock, else the signer's",
                self._location,
            )
        self._issued = max(float(issued), 0.0)  # before 1970 is as old as can be

    def _reject_changed_key(self) -> None:
        """2. A key that the trust store names is accepted, whatever the key was before. A key from the agent's own
        origin (``TrustOnFirstUse``) is accepted on first use, with a warning; later it must be one of the remembered
        keys of the location.
        """
        before = self._before
        if not self._verified.on_first_use:
            return
        if before is None:
            self._warnings.append(
                f"{self._location}: its key was trusted on first use and is remembered from now on: "
                f"{_show(self._presented)}. Only {self._location.origin} itself confirms it: compare the thumbprint "
                "with the one from the agent's operator"
            )
        elif not self._presented <= before.thumbprints:
            raise self._other_key(
                f"THE KEY OF {self._location} HAS CHANGED\n  Either the agent has a new key",
                f"remembered since {date_of(before.first_seen)}",
                before.thumbprints,
                "the new one",
            )

    def _reject_other_key_of_host(self) -> None:
        """3. On a host with records, the first use of a new location is limited to the keys that were trusted on first
        use there, at any port. A person must accept any other key. Otherwise an attacker who can choose a path or a
        port would get a first use, with a key for the whole host.
        """
        if not self._verified.on_first_use or self._before is not None:
            return
        neighbours = self._table.neighbours(self._location)
        pinned = frozenset[str]().union(*[each.thumbprints for each in neighbours if each.on_first_use])
        if neighbours and not self._presented <= pinned:
            raise self._other_key(
                f"ANOTHER KEY AT {self._location.origin}\n"
                f"  {self._location} is new here, and its card is signed by a key that is not remembered from first "
                "use for this host.\n"
                "  Either this agent has another key",
                "remembered from first use for this host",
                pinned,
                "this one",
            )

    def _other_key(self, event: str, remembered: str, pinned: frozenset[str], which: str) -> PinnedKeyError:
        return PinnedKeyError(
            f"{event}, or an attacker answers in its place. The card was rejected.\n"
            f"  {remembered}: {_show(pinned) or 'no key; a trust store named the keys'}\n"
            f"  signed the card now: {_show(self._presented)}\n"
            f"  Ask the agent's operator, not the agent, for the thumbprint of its key. If it is {which}:\n"
            f"    {self._hint('accept', self._location, self._presented)}",
            self._location,
            presented=self._presented,
            pinned=pinned,
        )

    def _end_first_use(self) -> None:
        """4. When a key of the trust store replaces a key of first use, the remembered ``iat`` and version end."""
        if self._past.on_first_use and not self._verified.on_first_use:
            self._past = self._past.bound_by(self._presented)

    def _reject_older(self) -> None:
        """5. A card with a lower ``iat`` than the remembered one is rejected; an equal one is accepted. A card without
        ``iat`` after one with it is rejected, too: else an old card without ``iat`` would be accepted for ever. If a
        signer really stops writing ``iat``, forget the location.
        """
        remembered = self._past.issued
        if remembered is None or (self._issued is not None and self._issued >= remembered):
            return
        raise RolledBackCardError(
            f"{self._location}: an older card came after a newer one: it {_when(self._issued)}, and a card of "
            f"{date_of(remembered)} was seen before. Ask the agent's operator to sign the card again; or, if the "
            "operator went back to an old card on purpose, run: "
            f"{self._hint('forget', self._location)}",
            self._location,
            issued=self._issued,
            remembered=remembered,
        )

    def _reject_older_than_elsewhere(self) -> None:
        """6. An older card must not name an interface that a card at another location named last. Else it could come
        back at another location of the agent, such as a folder of its host. A card without ``iat`` is older than every
        card with one; if neither has one, the new location is rejected. As in rule 4, a record of first use does not
        count against a key of the trust store.
        """
        for other in self._elsewhere:
            if self._issued is not None and (other.issued is None or self._issued >= other.issued):
                continue
            if other.on_first_use and not self._verified.on_first_use and not self._presented & other.thumbprints:
                continue
            url = min(url for digest, url in self._interfaces.items() if digest in other.interfaces).partition("?")[0]
            raise RolledBackCardError(
                f"{self._location}: the card names {url[:200]}, as a card at {other.location} did, and may be older "
                f"than the last card from there: it {_when(self._issued)}, and that one {_when(other.issued)}. Ask the "
                "agent's operator to sign the card again, or to remove the old copy; or, if the card has moved on "
                f"purpose, run: {self._hint('forget', other.location)}",
                self._location,
                issued=self._issued,
                remembered=other.issued,
            )

    def _warn_of_changes(self) -> None:
        """7. A lower ``version`` is only a warning: people go back on purpose, and versions have no fixed order. So is
        a change to a key of the trust store that belongs to another agent on the host.
        """
        if _is_lower(self._version, self._past.version):
            self._warnings.append(
                f"{self._location}: the card's version is {self._version!a}, and was {self._past.version!a} before"
            )
        if not self._past.thumbprints or self._presented & self._past.thumbprints:
            return
        neighbours = self._table.neighbours(self._location)
        others = sorted(each.location for each in neighbours if self._presented & each.thumbprints)
        if others:
            self._warnings.append(
                f"{self._location}: its card is signed by another key than before, the key of {others[0]}; if these "
                "agents have different keys, the card of one is served in place of the other"
            )

    def _new_record(self) -> Remembered:
        before, past, on_first_use = self._before, self._past, self._verified.on_first_use
        interfaces = [*self._interfaces, *sorted(past.interfaces - self._interfaces.keys())]
        return replace(
            past,
            thumbprints=before.thumbprints if before is not None and on_first_use else self._presented,
            issued=self._issued,
            version=past.version if self._version is None else self._version,
            last_seen=max(self._now, past.last_seen),
            interfaces=frozenset(interfaces[:_MOST_INTERFACES]),
            on_first_use=on_first_use and past.on_first_use,
        )


class TableCardMemory:
    """The base of memories: the rules, and the changes that people make.

    All methods are synchronous and safe in threads. ConfigurationError: an argument is wrong; nothing was changed.
    """

    _place: str
    """The argument of ``--file`` for commands that work on this memory."""

    def _reading(self) -> AbstractContextManager[CardTable]:
        raise NotImplementedError

    def _writing(self) -> AbstractContextManager[CardTable]:
        raise NotImplementedError

    def _hint(self, action: str, location: str, thumbprints: Iterable[str] = ()) -> str:
        arguments = [location, *sorted(thumbprints)]
        if any(argument.startswith("-") for argument in arguments):
            arguments.insert(0, "--")
        return shlex.join(["a2a-sign", "memory", action, "--file", self._place, *arguments])

    def admit(self, verified: VerifiedCard, url: str, *, now: float | None = None) -> AdmittedCard:
        """As ``CardMemory.admit``. The warnings also go to the log."""
        location = named_location(url)
        if not isinstance(verified, VerifiedCard):
            raise ConfigurationError("admit: it is not a VerifiedCard; pass the result of verify_card")
        # A key of the trust store may be trusted for any host.
        is_bound = verified.origin is not None or verified.on_first_use
        if verified.origin != location.host and is_bound:
            raise ConfigurationError(
                f"admit: the card was not verified for the host of {location}; call verify_card with that origin="
            )
        with self._writing() as table:
            moment = time.time() if now is None else now
            admitted = Admission(table, verified, location, now=moment, hint=self._hint).decide()
            table.put(admitted.remembered)
        for warning in admitted.warnings:
            _log.warning("%s", warning)
        return admitted

    def expects_signature(self, url: str) -> bool:
        """As ``CardMemory.expects_signature``."""
        location = named_location(url)
        with self._reading() as table:
            return table.get(location) is not None

    def records(self) -> tuple[Remembered, ...]:
        with self._reading() as table:
            return tuple(table.records())

    def accept(self, location: str, thumbprints: Iterable[str], *, now: float) -> Remembered:
        """Expect these keys of the agent from now on, in place of the remembered ones. The location may be new.

        ``location`` is the URL of the agent or of its card, as in ``records``; a query in it counts, for clients that
        name the URL in ``cards``. Get the ``thumbprints`` (RFC 7638, SHA-256) from the agent's operator, not from the
        agent. With other keys than before, ``iat``, version and interfaces are forgotten, because an attacker may have
        signed the last card.
        """
        named, keys = acceptance(location, thumbprints)
        with self._writing() as table:
            past = table.get(named) or Remembered(location=named, first_seen=now, last_seen=now)
            record = replace(past.bound_by(keys), thumbprints=keys, on_first_use=True)
            table.put(record)
        return record

    def forget(self, location: str) -> Remembered:
        """Remove the record of this location, as for ``accept``, with its interfaces, and return it. Its next card
        counts as the first one, and other locations may name its interfaces with older cards.
        """
        named = named_location(location, with_query=True)
        with self._writing() as table:
            record = table.get(named)
            if record is None:
                raise ConfigurationError(
                    f"forget: there is no record of {named}; write a location as in a2a-sign memory list"
                )
            table.remove(named)
        return record


class VolatileCardMemory(TableCardMemory):
    """A memory of this process only, for tests and for programs that store the records themselves. It never evicts."""

    def __init__(self, records: Iterable[Remembered] = ()) -> None:
        self._lock = Lock()
        self._table = _VolatileTable()
        for record in records:
            self._table.put(record)

    @contextmanager
    def _writing(self) -> Iterator[CardTable]:
        with self._lock:
            yield self._table

    _reading = _writing

    def _hint(self, action: str, location: str, thumbprints: Iterable[str] = ()) -> str:
        keys = [sorted(thumbprints)] if thumbprints else []
        arguments = ", ".join([repr(str(location)), *map(repr, keys)])
        return f"the program's memory.{action}({arguments}{', now=…' if keys else ''})"


class _VolatileTable:
    def __init__(self) -> None:
        self._by_location: dict[Location, Remembered] = {}

    def records(self) -> list[Remembered]:
        return [record for _, record in sorted(self._by_location.items())]

    def get(self, location: Location) -> Remembered | None:
        return self._by_location.get(location)

    def neighbours(self, location: Location) -> list[Remembered]:
        return [each for each in self.records() if each.location.host == location.host and each.location != location]

    def elsewhere(self, location: Location, interfaces: Iterable[str]) -> list[Remembered]:
        named = frozenset(interfaces)
        return [each for each in self.records() if each.interfaces & named and each.location != location]

    def put(self, record: Remembered) -> None:
        for other in self.elsewhere(record.location, record.interfaces):
            self._by_location[other.location] = replace(other, interfaces=other.interfaces - record.interfaces)
        self._by_location[record.location] = record

    def remove(self, location: Location) -> None:
        del self._by_location[location]


def _show(thumbprints: Iterable[str]) -> str:
    return ", ".join(sorted(thumbprints))


def _when(issued: float | None) -> str:
    return "does not say when it was signed" if issued is None else f"was signed at {date_of(issued)}"


def _is_lower(version: str | None, before: str | None) -> bool:
    """Whether both are numbers with dots, and the first is lower; the part after ``-`` or ``+`` does not count."""
    new, old = (_VERSION.fullmatch(text or "") for text in (version, before))
    if new is None or old is None:
        return False
    numbers = zip_longest(*[map(int, each[1].split(".")) for each in (new, old)], fillvalue=0)  # 1.0 is 1
    return next((mine < theirs for mine, theirs in numbers if mine != theirs), False)
