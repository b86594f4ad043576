"""docs/replicas.md is true: the rights that it lists are what the servers of replicas need in PostgreSQL."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path

import pytest

from a2a_trust.auth import PostgresApiKeys, PostgresProofMemory
from tests.databases import PostgresServer, has_known_proofs_for_long
from tests.docs.newcomer import Newcomer
from tests.docs.pages import PAGES

pytestmark = pytest.mark.real

SECTION = PAGES["docs/replicas.md"].partition("## Three replicas behind nginx\n")[2]


def test_servers_work_with_the_rights_of_the_page(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a2a_trust.auth.proofs.shared._IN_TIME", 0.0)  # a second try would hide what is not allowed
    place = f"127.0.0.1:{postgres.port}"
    postgres.sql("CREATE ROLE owner LOGIN")
    postgres.sql("CREATE DATABASE agents OWNER owner")
    Newcomer(tmp_path, Path(sys.executable).parent).follow(SECTION.replace("db.example.com:5432", place))
    (statements,) = re.findall(r"(?ms)^```sql\n(.*?)^```$", SECTION)
    for statement in filter(str.strip, statements.split(";\n")):
        postgres.sql(statement, "agents")
    has_known_proofs_for_long(postgres, f"postgresql://postgres@{place}/agents")
    issued = PostgresApiKeys(f"postgresql://owner@{place}/agents", timeout=60).create(owner="ann")

    async def serve() -> list[bool]:
        keys = PostgresApiKeys(f"postgresql://agent@{place}/agents", timeout=60)
        proofs = PostgresProofMemory(f"postgresql://agent@{place}/agents", timeout=60)
        await keys.touch({issued.record.key_id: time.time()})
        now = time.time()
        used = [await proofs.first_use("jkt", "jti", now=now, issued=now, window=60) for _ in range(2)]
        await keys.aclose()
        await proofs.aclose()
        return used

    assert asyncio.run(serve()) == [True, False]
    ((last_used,),) = postgres.sql("SELECT last_used FROM a2a_trust.api_key", "agents")
    assert time.time() - 60 < last_used
