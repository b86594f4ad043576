"""Moments and durations in the forms that people write: ``90d``, ``12h``, ``2027-01-31``, ``2027-01-31T12:00:00Z``."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from a2a_trust.base.dates import date_of
from a2a_trust.errors import ConfigurationError

_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC).timestamp(), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


def duration(text: str, option: str) -> timedelta:
    """The length of time; ConfigurationError names the ``option`` that the text is from."""
    match = re.fullmatch(r"([0-9]{1,6})([dhm])", text)
    if match is None:
        raise ConfigurationError(f"{option} {text!a}: write 90d, 12h or 30m")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def moment(text: str, now: float, option: str, *, may_have_passed: bool = False) -> float:
    """The moment, a duration from ``now`` or a date and time, in seconds since the epoch.

    ConfigurationError: neither of these, or not after ``now`` unless ``may_have_passed``.
    """
    if re.fullmatch(r"[0-9]+[dhm]", text):
        seconds = int(now) + duration(text, option).total_seconds()
    else:
        seconds = _date(text, option).timestamp()
    if not _FIRST <= seconds <= _LAST:
        raise ConfigurationError(
            f"{option} {text!a}: this moment is outside of the years 1 to 9999 in UTC; write another one"
        )
    if seconds <= now and not may_have_passed:
        raise ConfigurationError(f"{option} {text!a}: this moment has passed; write a later one")
    return seconds


def rfc3339(moment: float | None) -> str | None:
    """The moment in the form of RFC 3339; None for None and for infinity.

    A number that is not a date comes back as text: cards of others, and files written by hand, may hold any number.
    """
    if moment is None or moment == math.inf:
        return None
    return date_of(moment)


def _date(text: str, option: str) -> datetime:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{option} {text!a}: write 90d, 12h, 30m, 2027-01-31, or 2027-01-31T12:00:00Z"
        ) from None
    if date.tzinfo is None:
        if len(text) > len("2027-01-31"):
            raise ConfigurationError(f"{option} {text!a}: a time needs its zone, as in 2027-01-31T12:00:00Z")
        date = date.replace(tzinfo=UTC)
    return date
