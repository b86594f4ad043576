"""Moments as people read them."""

from __future__ import annotations

from a2a_trust.base.dates import date_of
from tests.tables import walk


@walk(
    ("seconds", "date"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_800_000_000.9, "2027-01-15T08:00:00Z"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (1e20, "1e+20"),
    ],
)
def test_a_moment_is_written_as_a_date_or_as_the_number_that_it_is(seconds: float, date: str) -> None:
    assert date_of(seconds) == date
