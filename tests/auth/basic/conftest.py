"""Hashes of passwords are cheap here: what they cost is counted."""

from __future__ import annotations

import pytest

from tests.cheap_hashes import cheap_hashes

__all__ = ["cheap_hashes"]


@pytest.fixture(autouse=True)
def _cheap(cheap_hashes: None) -> None:
    pass
