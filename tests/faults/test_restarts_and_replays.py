"""Agents that are killed and started again, and agents of several processes: no proof counts twice."""

from __future__ import annotations

import itertools
import random
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.auth.proofs import bound_token, proof
from tests.auth.test_jwt import NOW
from tests.faults.agent_process import AgentFiles, AgentProcess
from tests.faults.processes import SECONDS

TOKEN = bound_token()


@pytest.fixture
def files(tmp_path: Path) -> AgentFiles:
    files = AgentFiles(tmp_path)
    files.set_clock(NOW)
    return files


def test_a_proof_that_was_used_before_a_kill_is_refused_after_it(files: AgentFiles, is_long: bool) -> None:
    """The server is killed at any moment of a flood. What it had let in is refused by the next one."""
    order, let_in = random.Random(1), list[str]()
    for _ in range(40 if is_long else 1):
        flood = [proof(TOKEN) for _ in range(300)]
        with files.serving() as agent, ThreadPoolExecutor(8) as callers:
            assert [*callers.map(lambda used, agent=agent: agent.ask(TOKEN, used), let_in)] == [401] * len(let_in)
            answers = callers.map(lambda new, agent=agent: _status(agent, new), flood)
            statuses = [*itertools.islice(answers, order.randrange(1, 200))]
            agent.kill()
            statuses += answers
        assert set(statuses) <= {200, None}
        let_in = [each for each, status in zip(flood, statuses, strict=True) if status == 200]
    with files.serving() as agent:
        assert [agent.ask(TOKEN, used) for used in let_in] == [401] * len(let_in)
    assert let_in


def _status(agent: AgentProcess, used: str) -> int | None:
    """None when the server went away before it answered."""
    try:
        return agent.ask(TOKEN, used)
    except httpx.TransportError:
        return None


def test_of_two_processes_that_get_one_proof_at_once_one_takes_it(files: AgentFiles, is_long: bool) -> None:
    with files.serving() as first, files.serving() as second, ThreadPoolExecutor(8) as callers:
        for _ in range(30 if is_long else 2):
            proofs = [proof(TOKEN) for _ in range(100)]
            asked = [(agent, each) for each in proofs for agent in (first, second)]
            statuses = [*callers.map(lambda one: one[0].ask(TOKEN, one[1]), asked)]
            pairs = [sorted(statuses[at : at + 2]) for at in range(0, len(statuses), 2)]
            assert pairs == [[200, 401]] * len(proofs)


def test_while_another_process_holds_the_file_nothing_is_let_in(files: AgentFiles) -> None:
    with files.serving(patience=1.0) as agent:
        used = _first_accepted(agent)
        with closing(sqlite3.connect(files.proofs, isolation_level=None)) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            assert agent.ask(TOKEN, used) == 503
            assert agent.ask(TOKEN, proof(TOKEN)) == 503
            holder.execute("ROLLBACK")
        _first_accepted(agent)  # the write that waited for the lock comes first
        assert _settled(agent, used) == 401


def _first_accepted(agent: AgentProcess) -> str:
    """The first new proof that is accepted: a machine that is busy may take longer than the agent waits."""
    ends = time.monotonic() + SECONDS
    while (status := agent.ask(TOKEN, used := proof(TOKEN))) == 503 and time.monotonic() < ends:
        time.sleep(0.1)
    assert status == 200
    return used


def _settled(agent: AgentProcess, used: str) -> int:
    ends = time.monotonic() + SECONDS
    while (status := agent.ask(TOKEN, used)) == 503 and time.monotonic() < ends:
        time.sleep(0.1)
    return status
