"""Moments and durations as people write them: ``90d``, ``12h``, ``30m``, ``2027-01-31``, ``2027-01-31T12:00:00Z``."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from a2a_trust.dates import date_of
from a2a_trust.errors import ConfigurationError

__all__ = ["duration", "moment", "written"]

_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC).timestamp(), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


def duration(text: str, option: str) -> timedelta:
    """How long; ConfigurationError names the ``option`` that it was given for."""
    match = re.fullmatch(r"([0-9]{1,6})([dhm])", text)
    if match is None:
        raise ConfigurationError(f"{option}: write 90d, 12h or 30m")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def moment(text: str, now: float, option: str, *, may_have_passed: bool = False) -> float:
    """The moment in seconds since the epoch, which lies after ``now``: a duration from now, or a date and time."""
    if re.fullmatch(r"[0-9]+[dhm]", text):
        seconds = int(now) + duration(text, option).total_seconds()
    else:
        seconds = _date(text, option).timestamp()
    if not _FIRST <= seconds <= _LAST:
        raise ConfigurationError(
            f"{option}: this moment is outside of the years 1 to 9999 in UTC, so no file can hold it"
        )
    if seconds <= now and not may_have_passed:
        raise ConfigurationError(f"{option}: this moment has passed")
    return seconds


def written(moment: float | None) -> str | None:
    """The moment as RFC 3339 writes it; None for none, and for the end of what never ends.

    As it stands where that is no date: cards of others, and files written by hand, may say anything.
    """
    if moment is None or moment == math.inf:
        return None
    return date_of(moment)


def _date(text: str, option: str) -> datetime:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{option}: write 90d, 12h, 30m, 2027-01-31, or 2027-01-31T12:00:00Z") from None
    if date.tzinfo is None:
        if len(text) > len("2027-01-31"):
            raise ConfigurationError(f"{option}: a time needs its zone, as in 2027-01-31T12:00:00Z")
        date = date.replace(tzinfo=UTC)
    return date
