"""How often a fault is injected: many times by `make test-long`, a few times in its short form."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.faults.stepwise import Server, server
from tests.tiers import IS_LONG_FORM


@pytest.fixture(scope="package", autouse=True)
def no_signal_is_ignored() -> Iterator[None]:
    """The commands get what they are sent: what ignores signals here (nohup) would be inherited by them."""
    ignored = [
        each for each in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT) if signal.getsignal(each) is signal.SIG_IGN
    ]
    for each in ignored:
        signal.signal(each, signal.SIG_DFL)
    yield
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)


@pytest.fixture
def is_long() -> bool:
    """Whether this is the long form of the fault tests."""
    return IS_LONG_FORM


@pytest.fixture(scope="module")
def commands() -> Iterator[Server]:
    """Starts ``a2a-sign`` so that it gets a signal exactly where a test wants it."""
    with server() as it:
        yield it
