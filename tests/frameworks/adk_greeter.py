"""The agent of ADK that the programs of this folder protect. Never imported by a test."""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

from collections.abc import AsyncIterator

from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.genai import types


class Greeter(BaseAgent):
    """Answers without a model, with its own name."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        greeting = types.Content(role="model", parts=[types.Part(text=f"hello from {self.name}")])
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=greeting)
