"""One holder of a good token sends proofs without end: the others go on, and the memory stays within its bounds."""

from __future__ import annotations

import gc
import os
import tracemalloc
from typing import Any

import httpx
import pytest

from a2a_trust import DPoP, JwtVerifier
from a2a_trust.auth import VolatileProofMemory
from a2a_trust.errors import TooManyRequestsError
from a2a_trust.keys import LocalSigner
from tests.auth.proofs import BASE, CLIENT, OTHER, bound_token, by_dpop, proof
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys
from tests.faults.agent_process import OAUTH
from tests.middleware.agent import Agent, guarded

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_flood_by_one_holder_ends_at_its_share_and_the_others_go_on(is_long: bool) -> None:
    """In the long form with the memory as it comes: the flood goes on after 62,500 proofs."""
    capacity = 1_000_000 if is_long else 3_200
    verifiers = {"oauth": JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)}
    dpop = DPoP(url=BASE, memory=VolatileProofMemory(capacity))
    app = guarded(Agent(), OAUTH, verifiers=verifiers, dpop=dpop)
    greedy, modest = bound_token(OTHER), bound_token(CLIENT)

    async def ask(http: httpx.AsyncClient, token: str, signer: LocalSigner) -> int:
        answer = await http.post(f"{BASE}/rpc", headers=by_dpop(token, proof(token, signer)))
        return answer.status_code

    statuses: dict[str, list[int]] = {"greedy": [], "modest": []}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as http:
        for number in range(capacity // 16 + 500):
            statuses["greedy"].append(await ask(http, greedy, OTHER))
            if number % 50 == 0:
                statuses["modest"].append(await ask(http, modest, CLIENT))
    assert statuses["greedy"] == [200] * (capacity // 16) + [429] * 500
    assert set(statuses["modest"]) == {200}


async def test_each_proof_takes_little_memory_and_gives_it_back(is_long: bool) -> None:
    memory, count = VolatileProofMemory(), 900_000 if is_long else 20_000
    keys = [os.urandom(32).hex()[:43] for _ in range(count // 10)]

    async def use(number: int, now: float) -> Any:
        return await memory.first_use(keys[number % len(keys)], f"proof {number}", now=now, issued=now, window=60.0)

    gc.collect()
    tracemalloc.start()
    try:
        for number in range(count):
            assert await use(number, NOW + 50 * number / count)
        full, _ = tracemalloc.get_traced_memory()
        assert await use(count, NOW + 200)
        gc.collect()
        empty, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert full < 200 * count
    assert empty < full * 0.5  # the table of a dict keeps its size until it grows again


async def test_refused_proofs_take_no_room() -> None:
    memory = VolatileProofMemory(160)
    for number in range(10):
        assert await memory.first_use("greedy", str(number), now=NOW, issued=NOW, window=60.0)
    for number in range(10, 2_000):
        with pytest.raises(TooManyRequestsError):
            await memory.first_use("greedy", str(number), now=NOW, issued=NOW, window=60.0)
    for number in range(150):
        assert await memory.first_use(f"key {number}", "1", now=NOW, issued=NOW, window=60.0)
