"""The example of several agents in one application, by the commands of examples/README.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.examples.readme import Typed, typed

MESSAGE = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "chair"}]}}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": MESSAGE}
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typed]:
    python = Path(sys.executable)
    with typed("several_agents", "8000", python, tmp_path_factory.mktemp("several_agents")) as running:
        yield running


def test_the_orchestrator_prints_what_the_readme_shows(session: Typed) -> None:
    assert session.printed == session.expected != ""


def test_a_stranger_gets_the_cards_and_is_told_that_the_shop_is_well(session: Typed) -> None:
    for agent in ("catalog", "orders"):
        card = httpx.get(f"{session.url}/{agent}/.well-known/agent-card.json").raise_for_status().json()
        assert (card["name"], len(card["signatures"]) > 0) == (agent, True)
        assert httpx.post(f"{session.url}/{agent}/rpc", json=CALL).status_code == 401
    assert httpx.get(f"{session.url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{session.url}/docs").status_code == 404  # a path of no agent


def test_the_orchestrator_sends_nothing_to_a_shop_whose_key_is_not_trusted(session: Typed) -> None:
    session.run("a2a-sign keygen -o other.key")
    made = session.run("a2a-sign trust add other.toml --origin 127.0.0.1 --jwks other.jwks.json")
    assert made.returncode == 0, made.stderr
    done = session.run("TRUST=other.toml python examples/several_agents/orchestrator.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert "UnverifiedCardError" in done.stderr
