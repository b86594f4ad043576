"""The file of used proofs is full, read-only, gone, replaced or damaged: 503 then, and never an empty memory."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust import DPoP, JwtVerifier
from a2a_trust.auth import SqliteProofMemory
from a2a_trust.errors import ConfigurationError
from tests.auth.proofs import BASE, bound_token, by_dpop, proof
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, Keys
from tests.faults.agent_process import OAUTH
from tests.faults.folders import TMPFS, small_disk
from tests.middleware.agent import Agent, guarded

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


TOKEN = bound_token()


def agent(path: Path) -> Any:
    memory = SqliteProofMemory(path, create=True, timeout=60)
    verifiers = {"oauth": JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)}
    return guarded(Agent(), OAUTH, verifiers=verifiers, dpop=DPoP(url=BASE, memory=memory))


async def ask(app: Any, used: str | None = None) -> int:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as http:
        answer = await http.post(f"{BASE}/rpc", headers=by_dpop(TOKEN, proof(TOKEN) if used is None else used))
    assert answer.status_code != 503 or answer.headers["retry-after"]
    return answer.status_code


@TMPFS
async def test_on_a_full_disk_nothing_is_let_in_and_nothing_is_forgotten(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        app, used = agent(disk.path / "proofs.db"), proof(TOKEN)
        assert await ask(app, used) == 200
        disk.fill()
        statuses = [await ask(app) for _ in range(400)]
        assert statuses[-1] == 503  # the file itself may have had some room left
        assert set(statuses) <= {200, 503}
        assert await ask(app, used) != 200
        disk.empty()
        assert await ask(app) == 200
        assert await ask(app, used) == 401
        del app


@TMPFS
async def test_on_a_disk_that_became_read_only_nothing_is_let_in(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        memory = SqliteProofMemory(disk.path / "proofs.db", create=True)
        del memory
        with disk.read_only():
            app = agent(disk.path / "proofs.db")
            assert [await ask(app) for _ in range(3)] == [503] * 3
            del app
        app = agent(disk.path / "proofs.db")
        assert await ask(app) == 200
        del app


def _vanish(path: Path) -> None:
    path.unlink()


def _replace(path: Path) -> None:
    other = path.with_name("other.db")
    SqliteProofMemory(other, create=True)
    other.replace(path)


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(os.urandom(path.stat().st_size))


def _other_kind(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("DROP TABLE proof")
    connection.close()


@pytest.mark.parametrize("harm", [_vanish, _replace, _overwrite, _other_kind])
async def test_a_file_that_is_no_longer_the_same_memory_is_not_taken_for_an_empty_one(
    harm: Callable[[Path], None], tmp_path: Path
) -> None:
    path, used = tmp_path / "proofs.db", proof(TOKEN)
    app = agent(path)
    assert await ask(app, used) == 200
    harm(path)
    assert [await ask(app, each) for each in (used, None, used, None)] == [503] * 4
    if harm is _vanish:
        assert not path.exists()  # nobody made another one


@pytest.mark.parametrize("harm", [_vanish, _overwrite, _other_kind])
async def test_no_agent_starts_with_a_file_that_is_not_a_memory(harm: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "proofs.db"
    assert await ask(agent(path)) == 200
    harm(path)
    with pytest.raises(ConfigurationError, match=r"proofs\.db"):
        SqliteProofMemory(path)
