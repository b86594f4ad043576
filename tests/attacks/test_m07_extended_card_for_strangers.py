"""M7: the extended card is given to anybody who asks, on one of its many names.

Measured on the server of an SDK, which gives it on every binding unless something in front refuses.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from a2a_trust.auth import FailureLimits
from a2a_trust.errors import ConfigurationError
from tests.middleware.agent import CARD, KEY, Agent, guarded, verifiers
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


PATHS = [
    "/extendedAgentCard",
    "/tenant/extendedAgentCard",
    "/rest/extendedAgentCard",
    "/v1/card",
    "/rest/v1/card",
    "/agent/authenticatedExtendedCard",
    "/rest/agent/authenticatedExtendedCard",
]
METHODS = ["GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard", "agent\\u002fgetAuthenticatedExtendedCard"]
PROMISING = {**CARD, "capabilities": {"extendedAgentCard": True}}


@pytest.mark.parametrize("headers", [{}, {"X-API-Key": "wrong"}, {"Accept": "application/a2a+json"}])
async def test_no_name_of_the_extended_card_answers_strangers(headers: dict[str, str]) -> None:
    agent = Agent()
    many = FailureLimits(by_credential="1000/minute", by_peer="1000/minute")
    transport = httpx.ASGITransport(guarded(agent, PROMISING, failures=many))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
        for path in PATHS:
            for method in ("GET", "HEAD", "POST"):
                assert (await http.request(method, path, headers=headers)).status_code == 401, path
        for name in METHODS:
            for version in ("0.3", "1.0"):
                body = f'{{"jsonrpc":"2.0","id":1,"method":"{name}"}}'
                json.loads(body)
                answer = await http.post("/rpc", content=body, headers={**headers, "A2A-Version": version})
                assert (answer.status_code, answer.json()["id"]) == (401, None)
        assert agent.scopes == []
        assert (await http.get("/extendedAgentCard", headers={"X-API-Key": KEY})).status_code == 200
    assert agent.scopes[0]["user"].is_authenticated


@pytest.mark.parametrize(
    "flag", [{"capabilities": {"extendedAgentCard": True}}, {"supportsAuthenticatedExtendedCard": True}]
)
def test_an_agent_that_lets_everybody_in_cannot_promise_one(flag: dict[str, object]) -> None:
    choices: list[list[Any]] = [[], [{}], [*CARD["securityRequirements"], {}]]
    for requirements in choices:
        card = {**CARD, "securityRequirements": requirements, **flag}
        given = verifiers() if len(requirements) > 1 else {}
        with pytest.raises(ConfigurationError, match="remove extendedAgentCard from the capabilities"):
            guarded(Agent(), card, verifiers=given, allow_anonymous=True)


@walk("path", [*PATHS, "/a/b/c/extendedAgentCard", "/x/y/v1/card", "/v1/card/", "/tasks", "/r/tasks/5"])
def test_it_cannot_be_made_public_by_its_path(path: str) -> None:
    with pytest.raises(ConfigurationError, match="is an operation of A2A, for callers only"):
        guarded(Agent(), PROMISING, public_paths=[path])
