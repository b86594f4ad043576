"""Moments as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["date_of"]


def date_of(seconds: float) -> str:
    """The moment (seconds since the epoch) as RFC 3339 writes it, in UTC; the number where no date is so far away."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return repr(seconds)
