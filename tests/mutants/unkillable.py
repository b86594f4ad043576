"""Mutants that change nothing that a test could see: the module, the function, the change, and why."""

from __future__ import annotations

from typing import Final

__all__ = ["UNKILLABLE"]

UNKILLABLE: Final[dict[tuple[str, str, str], str]] = {}
