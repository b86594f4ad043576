"""Rows of the conformance data, in the shape in which their files keep them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = Callable[[str], list[Row]]


@pytest.fixture(scope="session")
def rows(vectors: Path) -> Rows:
    """Read a JSON Lines file of the vectors by its path below their folder; no id is there twice."""

    def read(name: str) -> list[Row]:
        data = (vectors / name).read_bytes()
        lines = (gzip.decompress(data) if name.endswith(".gz") else data).decode("utf-8").splitlines()
        found = [json.loads(line) for line in lines]
        assert len({row["id"] for row in found}) == len(found) > 0
        return found

    return read
