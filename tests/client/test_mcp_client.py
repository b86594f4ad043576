"""The client of the MCP SDK, which is on httpx2, calls a protected agent when one line was added to its program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.servers.environments import answer_of
from tests.servers.serving import ROOT

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).resolve().parent / "mcp_client.py"
#: Of Strands: it has the MCP SDK 2 and httpx2.
ENVIRONMENT = "strands-1.62.0"
CASES = {
    "a verified card": {"trusted": True, "known": True},
    "an unknown key": {"trusted": True, "known": False},
    "a card by another key": {"trusted": False, "known": True},
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    answered = answer_of(ENVIRONMENT, str(SCRIPT), list(CASES.values()), PYTHONPATH=str(ROOT))
    return dict(zip(CASES, answered, strict=True))


def test_the_agent_is_called_with_the_key(outcomes: dict[str, Any]) -> None:
    assert outcomes["a verified card"] == {"answer": "booked invoice 1", "errors": []}


@pytest.mark.parametrize(
    ("case", "error"),
    [("an unknown key", "CredentialsRejectedError"), ("a card by another key", "UnverifiedCardError")],
)
def test_the_program_sees_why_it_is_not_answered(outcomes: dict[str, Any], case: str, error: str) -> None:
    assert outcomes[case] == {"answer": None, "errors": [error]}
