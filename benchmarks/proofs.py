"""Used DPoP proofs: what it takes to remember one, in the process and in a file."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from time import perf_counter

from a2a_trust.auth.proofs.memory import ProofMemory, VolatileProofMemory
from a2a_trust.auth.proofs.sqlite import SqliteProofMemory
from benchmarks.rounds import Contender, Row, Timer
from benchmarks.setting import Setting

__all__ = ["rows"]

_HERE = "VolatileProofMemory"


def rows(setting: Setting) -> Iterator[Row]:
    """Proofs of 1,000 clients, each for the first time; per proof."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as folder:
        stored = SqliteProofMemory(Path(folder) / "proofs.db", create=True, timeout=60)
        yield Row(
            title="a DPoP proof that is used for the first time",
            baseline=_HERE,
            contenders=(
                Contender(name=_HERE, timer=_used(loop, VolatileProofMemory(), at_once=1)),
                *(
                    Contender(name=f"SqliteProofMemory, {at_once} at once", timer=_used(loop, stored, at_once=at_once))
                    for at_once in (1, 16, 128)
                ),
            ),
            rounds=setting.rounds(60),
        )
    loop.close()


def _used(loop: asyncio.AbstractEventLoop, memory: ProofMemory, *, at_once: int) -> Timer:
    numbers = count()

    async def use() -> None:
        number, now = next(numbers), time.time()
        if not await memory.first_use(f"key {number % 1_000}", f"{at_once} {number}", now=now, issued=now, window=60.0):
            raise AssertionError("a new proof counts as used")

    async def timed() -> float:
        start = perf_counter()
        for _ in range(256 // at_once):
            if at_once == 1:
                await use()
            else:
                await asyncio.gather(*[use() for _ in range(at_once)])
        return (perf_counter() - start) / (256 // at_once * at_once)

    return lambda: loop.run_until_complete(timed())
