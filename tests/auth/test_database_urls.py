"""URLs of databases: which connections stay on this machine, and which are encrypted."""

from __future__ import annotations

import pytest

from a2a_trust.base.databases.postgres import Postgres
from a2a_trust.errors import KeySourceUnavailableError


@pytest.mark.parametrize(
    ("url", "environment", "is_encrypted"),
    [
        ("postgresql://ann@127.0.0.1/d", {}, False),
        ("postgresql://ann@LOCALHOST:5432/d", {}, False),
        ("postgresql://ann@[::1]:5432/d", {}, False),
        ("postgresql:///d", {}, False),
        ("postgresql:///d?host=/run/postgresql", {}, False),
        ("postgresql://ann@db.example/d", {}, True),
        ("postgresql://ann@127.0.0.1,db.example:5432/d", {}, True),
        ("postgresql:///d?host=db.example", {}, True),
        ("postgresql://127.0.0.1/d?service=far", {}, True),
        ("postgresql:///d", {"PGHOST": "db.example"}, True),
        ("postgresql://127.0.0.1/d", {"PGSERVICE": "far"}, True),
        ("postgresql://ann@db.example/d?sslmode=verify-full", {}, False),  # asyncpg does what the URL says
    ],
)
def test_a_connection_to_another_machine_is_encrypted(
    url: str, environment: dict[str, str], is_encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGSERVICE", "PGSSLMODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    options = Postgres(url, what="keys", unavailable=KeySourceUnavailableError)._options()
    assert ("ssl" in options) == is_encrypted
