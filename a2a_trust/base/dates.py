"""Moments in the form that people read, and how far clocks may differ."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

CLOCK_SKEW: Final = 60.0
"""How far in the future the protected ``iat`` or ``nbf`` of a card may be, in seconds."""


def date_of(seconds: float) -> str:
    """The moment (seconds since the epoch) in the form of RFC 3339, in UTC; the number if no date is so far away."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return repr(seconds)
