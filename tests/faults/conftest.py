"""How often a fault is injected: a few times with the other tests, many times by ``make faults``."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.faults.stepwise import Server, server

IS_LONG = os.environ.get("A2A_TRUST_FAULTS") == "long"


@pytest.fixture
def is_long() -> bool:
    """Whether this is the long form of the fault tests."""
    return IS_LONG


@pytest.fixture(scope="module")
def commands() -> Iterator[Server]:
    """Starts ``a2a-sign`` so that it gets a signal exactly where a test wants it."""
    with server() as it:
        yield it
