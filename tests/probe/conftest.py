"""Probes without pauses: the agents of these tests are on this machine."""

from __future__ import annotations

import pytest

from a2a_trust.probe import probing


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "INTERVAL", 0.0)
