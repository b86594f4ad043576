"""Verifiers of these tests wait for a busy machine."""

from __future__ import annotations

import pytest

from a2a_trust.auth import records


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a limit of time is the point, the test sets it."""
    monkeypatch.setattr(records, "_PATIENCE", 60.0)
