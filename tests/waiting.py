"""Waiting for what happens, however long it takes: no test depends on how fast the machine is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["settled", "until"]


async def settled() -> None:
    """Let every task of the event loop go as far as it can without the world outside."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until(is_so: Callable[[], bool]) -> None:
    """Until that is so; only a defect takes a minute."""
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.001)
