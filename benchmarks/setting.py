"""What every row is given: keys, the a2a-sdk if there is one, and how much time there is."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from benchmarks.peers import Peers
from benchmarks.sdk import SdkWorker

__all__ = ["Setting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One run of the benchmarks. ``quick`` wants orientation in seconds."""

    sdk: SdkWorker | None
    quick: bool
    es256: Peers = field(default_factory=partial(Peers.with_new_key, "ES256"))
    rs256: Peers = field(default_factory=partial(Peers.with_new_key, "RS256"))

    def rounds(self, number: int) -> int:
        """So many rounds, or a fifth of them when it must be quick."""
        return max(3, number // 5) if self.quick else number
