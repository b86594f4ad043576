"""How often a fault is injected: a few times with the other tests, many times by ``make faults``."""

from __future__ import annotations

import os

import pytest

IS_LONG = os.environ.get("A2A_TRUST_FAULTS") == "long"


@pytest.fixture
def is_long() -> bool:
    """Whether this is the long form of the fault tests."""
    return IS_LONG
