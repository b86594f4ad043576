"""Two agents of Agno in one AgentOS, behind ``protect_agents``: each has a card, rules and tokens of its own.

``ORIGIN`` is where the application is called. Agno makes the cards from the URL of the request. Run by a server of
Agno's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS

from a2a_trust import FromApplication, ProtectedAgent, RequestRules, principal_of, protect_agents
from tests.frameworks.guards import guard, serving

ORIGIN = os.environ["ORIGIN"]
DATABASE = InMemoryDb()


class Fixed(Model):
    """Answers its own name."""

    def invoke(self, *_: Any, **__: Any) -> ModelResponse:
        return ModelResponse(role="assistant", content=self.name)

    async def ainvoke(self, *_: Any, **__: Any) -> ModelResponse:
        return self.invoke()

    def invoke_stream(self, *_: Any, **__: Any) -> Iterator[ModelResponse]:
        yield self.invoke()

    async def ainvoke_stream(self, *_: Any, **__: Any) -> AsyncIterator[ModelResponse]:
        yield self.invoke()

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


def agent(name: str) -> Agent:
    model = Fixed(id="fixed", name=f"answer of {name}")
    return Agent(id=name, name=name, description=f"The agent for {name}.", model=model, db=DATABASE, telemetry=False)


def protected(prefix: str) -> ProtectedAgent:
    """The agent below that path: callers need the scope of its name."""
    # The card names the path for streams only. The framework's own client calls these, too.
    others = [f"{prefix}/v1/{name}" for name in ("message:send", "tasks:get", "tasks:cancel")]
    scope = prefix.rpartition("/")[2]
    return ProtectedAgent(
        card=FromApplication(),
        serving=serving(),
        rules=RequestRules(other_paths=others),
        **guard(scope, f"{ORIGIN}{prefix}"),
    )


class CallerAsUser:
    """Tells Agno who called. Without it, callers name their user themselves, and read each other's runs."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if "user" in scope:
            user = {"user_id": principal_of(scope).display_name, "authenticated": True, "user_isolation_enabled": True}
            scope = {**scope, "state": {**scope.get("state", {}), **user}}
        await self._app(scope, receive, send)


agent_os = AgentOS(agents=[agent("billing"), agent("ops")], a2a_interface=True, telemetry=False)
app = protect_agents(
    CallerAsUser(agent_os.get_app()),
    {prefix: protected(prefix) for prefix in ("/a2a/agents/billing", "/a2a/agents/ops")},
    unguarded_paths=["/health"],
)
