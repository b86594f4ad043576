"""The forms of the card memory, which keep the same rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from a2a_trust.client.memory import VolatileCardMemory
from a2a_trust.client.memory_store import PostgresCardMemory, SqliteCardMemory

__all__ = ["KINDS", "Memory", "memory_of"]

Memory = VolatileCardMemory | SqliteCardMemory | PostgresCardMemory

KINDS = ("volatile", "sqlite", pytest.param("postgres", marks=pytest.mark.real))


def memory_of(request: pytest.FixtureRequest) -> Memory:
    """An empty memory of the kind ``request.param``. For "postgres" the module imports the fixture ``postgres_url``."""
    if request.param == "volatile":
        return VolatileCardMemory()
    if request.param == "postgres":
        return PostgresCardMemory(request.getfixturevalue("postgres_url"), timeout=20)
    path: Path = request.getfixturevalue("tmp_path")
    return SqliteCardMemory(path / "cards.db", create=True)
