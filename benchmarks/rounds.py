"""Contenders take turns: the one way in which everything here is measured."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import repeat
from statistics import median
from time import perf_counter
from typing import Any, Final, TypeAlias

__all__ = ["Contender", "Result", "Row", "Timer", "calls_per_round", "repeated", "run"]

Timer: TypeAlias = Callable[[], float]
"""Does one round of one contender and returns the seconds that one call took in it."""

_SLICE: Final = 0.005
"""About so many seconds a contender works in one round: long enough for the clock, short enough to be interleaved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Somebody who does the work of a row. ``target`` is the largest ratio to the row's baseline that we want, or to
    the contender ``target_to``; ``at_most`` are the most seconds that we want one call to take, where the design says
    seconds."""

    name: str
    timer: Timer
    target: float | None = None
    target_to: str | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One work, and who does it. ``baseline`` names the contender that is 1.00.

    ``as_rate``: ratios are of work done in a time and not of time; targets are then the smallest ones that we want.
    """

    title: str
    baseline: str
    contenders: tuple[Contender, ...]
    rounds: int
    as_rate: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The medians over all rounds: seconds for one call, and the ratio to the baseline in the same round.

    ``best`` is the ratio of the fastest tenth of the rounds: what else the machine does slows down work in memory
    more than it slows down a signature, so on a busy machine it is the fairer one.
    """

    name: str
    seconds: float
    ratio: float
    best: float
    best_seconds: float
    target: float | None
    target_to: str | None
    reached: float
    best_reached: float
    """The ratio to ``target_to``, or to the baseline: the one that has the target."""
    at_most: float | None
    as_rate: bool

    @property
    def verdict(self) -> str:
        """What to print beside the target; "" when there is none or it is met."""
        if self._meets(self.reached, self.seconds):
            return ""
        return "MISSED, but not by the best" if self._meets(self.best_reached, self.best_seconds) else "MISSED"

    def _meets(self, ratio: float, seconds: float) -> bool:
        if self.at_most is not None and seconds > self.at_most:
            return False
        if self.target is None:
            return True
        return ratio >= self.target if self.as_rate else ratio <= self.target


def run(row: Row) -> list[Result]:
    """The results of a row, in the order of its contenders."""
    timers = {contender.name: contender.timer for contender in row.contenders}
    taken = _interleaved(timers, row.rounds)
    results = []
    for contender in row.contenders:
        own = taken[contender.name]
        ratio, best = _ratios(own, taken[row.baseline], as_rate=row.as_rate)
        reached, best_reached = _ratios(own, taken[contender.target_to or row.baseline], as_rate=row.as_rate)
        results.append(
            Result(
                name=contender.name,
                seconds=median(own),
                ratio=ratio,
                best=best,
                best_seconds=_best(own),
                target=contender.target,
                target_to=contender.target_to,
                reached=reached,
                best_reached=best_reached,
                at_most=contender.at_most,
                as_rate=row.as_rate,
            )
        )
    return results


def _ratios(own: list[float], base: list[float], *, as_rate: bool) -> tuple[float, float]:
    """The median over the rounds, and the ratio of the fastest tenths."""
    ratio = median(o / b for o, b in zip(own, base, strict=True))
    best = _best(own) / _best(base)
    return (1 / ratio, 1 / best) if as_rate else (ratio, best)


def _best(times: list[float]) -> float:
    """The median of the fastest tenth."""
    return median(sorted(times)[: max(1, len(times) // 10)])


def repeated(work: Callable[[], Any]) -> Timer:
    """A timer that calls ``work`` so often that a round is neither too short for the clock nor too long."""
    work()  # what is made on the first call is not what a call takes
    calls = calls_per_round(_timed(work, 3))

    def timer() -> float:
        return _timed(work, calls)

    return timer


def calls_per_round(seconds: float) -> int:
    """How often a call that takes so many seconds is made in one round."""
    return max(1, int(_SLICE / seconds))


def _timed(work: Callable[[], Any], calls: int) -> float:
    start = perf_counter()
    for _ in repeat(None, calls):
        work()
    return (perf_counter() - start) / calls


def _interleaved(timers: Mapping[str, Timer], rounds: int) -> dict[str, list[float]]:
    """The times of all rounds. Who begins moves on from round to round."""
    names = list(timers)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for timer in timers.values():
        timer()  # caches warm, pages read
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                taken[name].append(timers[name]())
    finally:
        gc.enable()
    return taken
