"""The clock runs ahead by a day, for minutes, and comes back: callers are let in again, and no proof counts twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from a2a_trust import DPoP, JwtVerifier
from a2a_trust.auth import ServerNonces, VolatileProofMemory
from a2a_trust.auth.proofs.memory import ProofMemory
from a2a_trust.auth.proofs.sqlite import SqliteProofMemory
from tests.auth.proofs import BASE, bound_token, by_dpop, proof
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, claims, token
from tests.faults.agent_process import OAUTH, AgentFiles
from tests.middleware.agent import Agent, guarded

DAY = 86_400.0
TOKEN = bound_token(exp=NOW + 10 * DAY)
BEARER = token(claims(exp=NOW + 10 * DAY))
LAPSING = token(claims(exp=NOW + 600))


class Guarded:
    """A running guard whose clock is set by hand."""

    def __init__(self, memory: ProofMemory | None = None, nonces: ServerNonces | None = None) -> None:
        self.now = NOW
        self.keys, self.nonces = Keys(EC), nonces
        verifiers = {"oauth": JwtVerifier(self.keys, issuer=ISSUER, audience=AUDIENCE)}
        dpop = DPoP(url=BASE, memory=memory, nonces=nonces)
        self._app = guarded(Agent(), OAUTH, verifiers=verifiers, dpop=dpop, clock=lambda: self.now)

    def set_clock(self, now: float) -> None:
        self.now = now

    def ask(self, credential: str, used: str) -> int:
        return self.answer(by_dpop(credential, used)).status_code

    def answer(self, headers: list[tuple[bytes, bytes]]) -> httpx.Response:
        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app=self._app)) as http:
                return await http.post(f"{BASE}/rpc", headers=headers)

        return anyio.run(send)


class Process:
    """A server in a process of its own, whose clock reads a file."""

    def __init__(self, files: AgentFiles, ask: Callable[[str, str], int]) -> None:
        self.set_clock, self.ask = files.set_clock, ask


@pytest.fixture(params=["in memory", "in a file", "in a file of another process"])
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guarded | Process]:
    if request.param == "in memory":
        yield Guarded(VolatileProofMemory())
    elif request.param == "in a file":
        yield Guarded(SqliteProofMemory(tmp_path / "proofs.db", create=True, timeout=60))
    else:
        files = AgentFiles(tmp_path)
        files.set_clock(NOW)
        with files.serving() as process:
            yield Process(files, process.ask)


def made(now: float, **changes: Any) -> str:
    return proof(TOKEN, iat=now, **changes)


def test_after_a_clock_that_ran_ahead_callers_are_let_in_and_no_proof_counts_twice(
    agent: Guarded | Process, is_long: bool
) -> None:
    step = 5 if is_long else 60
    before = made(NOW)
    assert agent.ask(TOKEN, before) == 200
    agent.set_clock(NOW + DAY)
    assert agent.ask(TOKEN, made(NOW + 1)) == 401  # whose clock is right is refused meanwhile
    ahead = {NOW + DAY + passed: made(NOW + DAY + passed) for passed in range(0, 301, step)}
    for now, used in ahead.items():
        agent.set_clock(now)
        assert agent.ask(TOKEN, used) == 200
        assert agent.ask(TOKEN, used) == 401
    for passed in (0, 1, 30, 59, 300, 3_600):  # the clock came back, at once or to a moment in between
        agent.set_clock(NOW + passed)
        assert agent.ask(TOKEN, before) != 200
        assert all(agent.ask(TOKEN, used) != 200 for used in ahead.values())
    for passed in (3_600, 3_601, 3_700):
        agent.set_clock(NOW + passed)
        assert agent.ask(TOKEN, made(NOW + passed)) == 200
    for now, used in ahead.items():  # a day later
        agent.set_clock(now)
        assert agent.ask(TOKEN, used) != 200
    agent.set_clock(NOW + DAY + 600)
    assert agent.ask(TOKEN, made(NOW + DAY + 600)) == 200


def test_right_after_the_clock_came_back_callers_are_let_in(agent: Guarded | Process) -> None:
    """Everything was refused until the clock had caught up: for a day."""
    for passed in range(0, 301, 60):
        agent.set_clock(NOW + DAY + passed)
        assert agent.ask(TOKEN, made(NOW + DAY + passed)) == 200
    agent.set_clock(NOW + 301)
    assert [agent.ask(TOKEN, made(NOW + 301)) for _ in range(3)] == [200] * 3


def test_a_nonce_of_the_clock_that_ran_ahead_is_not_taken_after_it_came_back() -> None:
    agent = Guarded(nonces=ServerNonces(b"s" * 32))

    def nonce_given() -> str:
        answer = agent.answer(by_dpop(TOKEN, made(agent.now)))
        assert answer.status_code == 401
        return str(answer.headers["dpop-nonce"])

    before = nonce_given()
    assert agent.ask(TOKEN, made(NOW, nonce=before)) == 200
    agent.set_clock(NOW + DAY)
    assert agent.ask(TOKEN, made(NOW + DAY, nonce=before)) == 401
    ahead = nonce_given()
    used = made(NOW + DAY, nonce=ahead)
    assert [agent.ask(TOKEN, used) for _ in range(2)] == [200, 401]
    agent.set_clock(NOW + 10)
    assert agent.ask(TOKEN, made(NOW + 10, nonce=ahead)) == 401
    assert nonce_given() == before
    assert agent.ask(TOKEN, made(NOW + 10, nonce=before)) == 200


def test_a_token_is_judged_by_the_clock_as_it_is_now() -> None:
    agent = Guarded()

    def ask(credential: str) -> int:
        return agent.answer([(b"authorization", b"Bearer " + credential.encode())]).status_code

    assert [ask(BEARER), ask(LAPSING)] == [200, 200]
    agent.set_clock(NOW + DAY)
    assert [ask(BEARER), ask(LAPSING)] == [200, 401]
    agent.set_clock(NOW + 10)
    asked = agent.keys.asked
    assert [ask(BEARER), ask(LAPSING)] == [200, 200]  # that it was expired is not remembered
    assert agent.keys.asked == asked + 1  # what was remembered for five minutes a day ahead is verified again
    agent.set_clock(NOW - 100)
    assert [ask(BEARER), ask(LAPSING)] == [401, 401]  # not issued yet
