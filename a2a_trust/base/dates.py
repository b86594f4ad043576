"""Moments in the form that people read."""

from __future__ import annotations

from datetime import UTC, datetime


def date_of(seconds: float) -> str:
    """The moment (seconds since the epoch) in the form of RFC 3339, in UTC; the number if no date is so far away."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return repr(seconds)
