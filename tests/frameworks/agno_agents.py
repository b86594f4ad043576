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

from a2a_trust import principal_of
from tests.frameworks.guards import guard
from tests.frameworks.guide import names_for, run_lines

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


class CallerAsUser:
    """Tells Agno who called. Without it, callers name their user themselves, and read each other's runs."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if "user" in scope:
            user = {"user_id": principal_of(scope).display_name, "authenticated": True, "user_isolation_enabled": True}
            scope = {**scope, "state": {**scope.get("state", {}), **user}}
        await self._app(scope, receive, send)


class GuardedOS(AgentOS):
    """Whose application knows its callers."""

    def get_app(self) -> Any:
        return CallerAsUser(super().get_app())


PREFIXES = {name: f"/a2a/agents/{name}" for name in ("billing", "ops")}
names = names_for("read", ORIGIN)
names["agent_os"] = GuardedOS(agents=[agent(name) for name in PREFIXES], a2a_interface=True, telemetry=False)
names |= {f"{name}_options": guard(name, f"{ORIGIN}{prefix}") for name, prefix in PREFIXES.items()}
run_lines("Agno", names)
app = names["app"]
