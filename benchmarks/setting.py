"""What every row is given: keys, the a2a-sdk if there is one, and how much time there is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from benchmarks.peers import Peers
from benchmarks.rounds import Contender
from benchmarks.sdk import SdkWorker

__all__ = ["Setting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One run of the benchmarks. ``quick`` wants orientation in seconds."""

    sdk: SdkWorker | None
    quick: bool
    left_out: list[str] = field(default_factory=list)
    """Whom the rows leave out, and why: a peer that is missing is told of, loudly."""
    es256: Peers = field(default_factory=partial(Peers.with_new_key, "ES256"))
    rs256: Peers = field(default_factory=partial(Peers.with_new_key, "RS256"))

    def leave_out(self, why: str) -> None:
        """Say loudly who is missing, now and at the end."""
        if why not in self.left_out:
            self.left_out.append(why)
            print(f"\n*** {why} ***", file=sys.stderr, flush=True)

    def available(self, name: str, make: Callable[[], Contender]) -> Iterator[Contender]:
        """The peer of that name, or nobody when what it needs is not installed."""
        try:
            contender = make()
        except ModuleNotFoundError as error:
            self.leave_out(f"NO {name}: {error.name} is not installed; its line is left out.")
        else:
            yield contender

    def rounds(self, number: int) -> int:
        """So many rounds, or a fifth of them when it must be quick."""
        return max(3, number // 5) if self.quick else number
