"""Moments in the form that people read, and how far clocks may differ."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from a2a_trust.errors import ConfigurationError

CLOCK_SKEW: Final = 60.0
"""How far in the future the protected ``iat`` or ``nbf`` of a card may be, in seconds."""


def date_of(seconds: float) -> str:
    """The moment (seconds since the epoch) in the form of RFC 3339, in UTC; the number if no date is so far away."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return repr(seconds)


def seconds(now: float | datetime) -> float:
    """A moment as seconds since the epoch; ConfigurationError for a datetime without a time zone."""
    if isinstance(now, datetime):
        if now.tzinfo is None:
            raise ConfigurationError("a datetime needs a time zone; write datetime.now(timezone.utc)")
        return now.timestamp()
    return float(now)
