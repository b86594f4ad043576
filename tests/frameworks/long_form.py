"""Which frameworks run in every test run: the others take minutes to install."""

from __future__ import annotations

import os
from typing import Final

import pytest

__all__ = ["in_make_frameworks"]

in_make_frameworks: Final = pytest.mark.skipif(
    os.environ.get("A2A_TRUST_FRAMEWORKS") != "all", reason="not a framework of every test run: make frameworks"
)
