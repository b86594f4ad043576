"""Verifiers of these tests wait for a busy machine."""

from __future__ import annotations

import pytest

from a2a_trust.auth import record_cache


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a limit of time is the point, the test sets it."""
    monkeypatch.setattr(record_cache, "_PATIENCE", 60.0)
