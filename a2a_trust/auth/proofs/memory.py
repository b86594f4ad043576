"""Which DPoP proofs were used: stored until they end, so that no proof is accepted twice.

The rules of every memory of this package:

1. A stored proof is not accepted again.
2. A proof ends when its time (``iat``) is further back than the window. Then it may be dropped, and the times of
   dropped proofs are kept. A proof of such a time, after the clock was set back or the window grew, could have been
   used: 503.
3. A stored ``iat`` beyond now + window was accepted while the clock was fast. It is dropped in the same way, so it is
   not accepted again when the clock gets there.
4. The memory holds ``capacity`` proofs, and a sixteenth of them for one key. A key that has used up its share is
   rejected (429); if the memory is full, all proofs are rejected (503). Nothing is evicted before its end.
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
    """Remembers which proofs were used, so that no proof is accepted twice."""

    async def first_use(self, jkt: str, jti: str, *, now: float, issued: float, window: float) -> bool:
        """Store that the proof ``jti`` of the key ``jkt`` is used; returns whether this is its first use.

        Checking and storing are one step: if two come at once, one is the first. ``issued`` is the proof's ``iat``; it
        and ``now`` are seconds since the epoch, and differ by at most ``window`` seconds. A stored proof may be dropped
        after ``issued + window`` and never before. KeySourceUnavailableError: the memory is full, or a first use is not
        certain. TooManyRequestsError: this key used up its share.
        """


def digest_of(*parts: str) -> bytes:
    """16 bytes that stand for a proof or a key. A second preimage rejects a valid proof, and accepts no used one."""
    return hashlib.sha256(" ".join(parts).encode()).digest()[:16]


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many proofs a memory stores at once, and how many of one key. ``call`` makes the memory, for errors."""

    proofs: int
    call: str

    def __post_init__(self) -> None:
        if type(self.proofs) is not int or self.proofs < 1:
            name = self.call.partition("(")[0]
            raise ConfigurationError(f"{name}: capacity must be a number of proofs, at least 1")

    def check(self, jkt: str, *, by_key: int, by_all: int) -> None:
        """Rule 4. TooManyRequestsError, KeySourceUnavailableError."""
        share = max(1, self.proofs // 16)
        if by_key >= share:
            raise TooManyRequestsError(
                f"DPoP proofs: the key {jkt!a:.64} used {share} in a few minutes, its share of the memory; if "
                f"its client is honest, give the memory more capacity: DPoP(…, memory={self.call})"
            )
        if by_all >= self.proofs:
            raise KeySourceUnavailableError(
                f"the memory of DPoP proofs is full, with {self.proofs}; give it more capacity: "
                f"DPoP(…, memory={self.call})"
            )


_NEIGHBOURS: Final = 60
"""Times closer than this are one range, in seconds."""
_MAX_RANGES: Final = 16


class DroppedTimes:
    """Rules 2 and 3: the times, in whole seconds, whose proofs were dropped.

    They are a few ranges. If there are too many, the two earliest become one, with the time between them: that rejects
    more, after a clock that goes back by hours, and never less.
    """

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.ranges: list[tuple[int, int]] = sorted(ranges)
        """First and last second of each, in order."""

    def add(self, second: int) -> None:
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
                "the memory of DPoP proofs dropped the proofs of this time: the clock of this machine was set back or "
                "ran ahead before (look at its time service), or another window was configured before"
            )


_ORDER: Final = 60.0
"""Tolerance, in seconds, for requests that arrive out of order."""


def kept_seconds(now: float, window: float) -> tuple[int, int]:
    """First and last second whose proofs are kept: others have ended, or belong to a clock that ran ahead."""
    return int(now - window) - 1, int(now + window + _ORDER)


class _Holder:
    __slots__ = ("jkt", "used")

    def __init__(self, jkt: str) -> None:
        self.jkt, self.used = jkt, 0


class VolatileProofMemory:
    """Remembers proofs in this process, by the rules of this module. A restart forgets all.

    A proof takes about 140 bytes until it ends, a minute or two. Use it only if the agent is one process: two processes
    with a memory each would both accept a proof. It is safe in threads.
    """

    def __init__(self, capacity: int = 1_000_000) -> None:
        """``capacity``: the largest number of proofs at once. ConfigurationError: it is not 1 or more."""
        self.capacity: Capacity = Capacity(capacity, "VolatileProofMemory(capacity=…)")
        self._used: dict[bytes, _Holder] = {}
        self._holders: dict[str, _Holder] = {}
        #: Second -> the proofs of that time.
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
            self.capacity.check(jkt, by_key=holder.used, by_all=len(self._used))
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
