"""Which DPoP proofs were used: remembered until they end, so that none counts twice.

The rules of every memory of this package:

1. A proof that is remembered does not count again.
2. A proof ends when its time (``iat``) is further back than the window. Then it may be dropped, and the times of
   dropped proofs are kept. Where such a time comes again, because the clock was set back or the window grew, nobody can
   tell a used proof from a new one: 503.
3. A proof whose time is later than any of now could be was used while the clock ran ahead. It is dropped in the same
   way, so it neither takes room nor counts again when the clock gets there.
4. There is room for ``capacity`` proofs, and for one key a sixteenth of it. A key that has used up its share is refused
   (429) and the others go on; when the memory is full, all are refused (503). Nothing is evicted before its end.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError, TooManyRequestsError

MAX_WINDOW: Final = 300.0
"""The most by which the ``iat`` of a proof may be off, in seconds."""


class ProofMemory(Protocol):
    """Remembers which proofs were used, so that none counts twice."""

    async def first_use(self, jkt: str, jti: str, *, now: float, issued: float, window: float) -> bool:
        """Whether this is the first use of the name ``jti`` with the key ``jkt``; it is remembered from now on.

        Asking and remembering are one step: of two that come at once, one is the first. ``issued`` is the proof's
        ``iat``; it and ``now`` are seconds since the epoch, and differ by at most ``window`` seconds. A remembered
        proof may be dropped after ``issued + window`` and never before, for want of room neither:
        KeySourceUnavailableError when there is no room, or when nobody can tell; TooManyRequestsError when this key
        alone used up its share of the room.
        """
        ...


def digest_of(*parts: str) -> bytes:
    """16 bytes that stand for a proof or a key. To be taken for another one takes a second preimage; it would refuse a
    valid proof, and accept no used one."""
    return hashlib.sha256(" ".join(parts).encode()).digest()[:16]


@dataclass(frozen=True, slots=True)
class Room:
    """How many proofs a memory remembers at once, and how many of one key."""

    capacity: int
    call: str
    """The call that makes the memory, for people; ``…`` stands for arguments."""

    def __post_init__(self) -> None:
        if type(self.capacity) is not int or self.capacity < 1:
            name = self.call.partition("(")[0]
            raise ConfigurationError(f"{name}: capacity must be a number of proofs, at least 1")

    def check(self, jkt: str, *, by_key: int, by_all: int) -> None:
        """Rule 4. TooManyRequestsError, KeySourceUnavailableError."""
        share = max(1, self.capacity // 16)
        if by_key >= share:
            raise TooManyRequestsError(
                f"DPoP proofs: the key {jkt!a:.64} used {share} in a few minutes, its share of the memory; if it "
                f"is that of an honest client, give the memory more room: DPoP(…, memory={self.call})"
            )
        if by_all >= self.capacity:
            raise KeySourceUnavailableError(
                f"the memory of DPoP proofs is full, with {self.capacity}; give it more room: "
                f"DPoP(…, memory={self.call})"
            )


_NEIGHBOURS: Final = 60
"""Times that lie so close are one range, in seconds."""
_MAX_RANGES: Final = 16


class DroppedTimes:
    """Rules 2 and 3: the times, in whole seconds, whose proofs were dropped.

    They are a few ranges. When there are too many, the two earliest become one, with what lies between: that refuses
    more, after a clock that goes back by hours, and never less.
    """

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.ranges: list[tuple[int, int]] = sorted(ranges)
        """First and last second of each, in order."""

    def add(self, second: int) -> None:
        """Keep in mind that proofs of this second were dropped."""
        for index, (first, last) in enumerate(self.ranges):
            if first - _NEIGHBOURS <= second <= last + _NEIGHBOURS:
                self.ranges[index] = min(first, second), max(last, second)
                return
        self.ranges = sorted([*self.ranges, (second, second)])
        if len(self.ranges) > _MAX_RANGES:
            (first, _), (_, last) = self.ranges[:2]
            self.ranges[:2] = [(first, last)]

    def check(self, second: int) -> None:
        """KeySourceUnavailableError for a proof of one of these seconds."""
        if any(first <= second <= last for first, last in self.ranges):
            raise KeySourceUnavailableError(
                "the memory of DPoP proofs no longer has those of this time: the clock of this machine was set back or "
                "ran ahead before (look at its time service), or another window was configured before"
            )


_ORDER: Final = 60.0
"""By so many seconds requests may come later than others whose clock was read after theirs."""


def kept_seconds(now: float, window: float) -> tuple[int, int]:
    """First and last second whose proofs are kept: others have ended, or belong to a clock that ran ahead."""
    return int(now - window) - 1, int(now + window + _ORDER)


class _Holder:
    """A key, and how many proofs of it are remembered."""

    __slots__ = ("jkt", "used")

    def __init__(self, jkt: str) -> None:
        self.jkt, self.used = jkt, 0


class VolatileProofMemory:
    """Remembers proofs in this process, by the rules of this module. A restart forgets all.

    A proof takes about 140 bytes until it ends, a minute or two. It is for an agent that is one process: of two
    processes with a memory each, both would take the same proof. Threads take turns.
    """

    def __init__(self, capacity: int = 1_000_000) -> None:
        """``capacity``: for how many proofs at once there is room. ConfigurationError when that is not 1 or more."""
        self.room: Room = Room(capacity, "VolatileProofMemory(capacity=…)")
        self._used: dict[bytes, _Holder] = {}
        self._holders: dict[str, _Holder] = {}
        #: Second -> the proofs of that time, so that nobody has to look through all of them.
        self._by_time: dict[int, list[bytes]] = {}
        self._dropped = DroppedTimes()
        self._dropped_at = 0
        self._lock = threading.Lock()

    async def first_use(self, jkt: str, jti: str, *, now: float, issued: float, window: float) -> bool:
        digest, second = digest_of(jkt, jti), int(issued)
        with self._lock:
            if int(now) != self._dropped_at:
                self._drop(now, window)
            if digest in self._used:
                return False
            self._dropped.check(second)
            holder = self._holders.get(jkt) or _Holder(jkt)
            self.room.check(jkt, by_key=holder.used, by_all=len(self._used))
            holder.used += 1
            self._holders[jkt] = self._used[digest] = holder
            self._by_time.setdefault(second, []).append(digest)
        return True

    def forget(self, jkt: str, jti: str, *, issued: float) -> None:
        """Drop a proof that was not used after all."""
        digest = digest_of(jkt, jti)
        with self._lock:
            of_second = self._by_time.get(int(issued), [])
            if digest in of_second:  # else it was dropped, and perhaps used again with another time
                of_second.remove(digest)
                self._remove(digest)

    def _drop(self, now: float, window: float) -> None:
        self._dropped_at = int(now)
        first, last = kept_seconds(now, window)
        for second in [second for second in self._by_time if not first <= second <= last]:
            self._dropped.add(second)
            for digest in self._by_time.pop(second):
                self._remove(digest)

    def _remove(self, digest: bytes) -> None:
        holder = self._used.pop(digest)
        holder.used -= 1
        if not holder.used:
            del self._holders[holder.jkt]
