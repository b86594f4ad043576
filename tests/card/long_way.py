"""A plugin of pytest: the fast way to read a card is taken out, so every card is read by the definition."""

from __future__ import annotations

import pytest

from a2a_trust.card import ambiguity

_asked = 0


def _none(document: bytes) -> None:
    global _asked
    _asked += 1


def pytest_configure() -> None:
    ambiguity._usual = _none


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _asked > 100:
        terminalreporter.write_line("the fast way was asked, and knew nothing")
