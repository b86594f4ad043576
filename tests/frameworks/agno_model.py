"""The module ``model`` of docs/frameworks/agno.md: a model that needs no network. Never imported by a test."""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from agno.models.base import Model
from agno.models.response import ModelResponse


class Scripted(Model):
    """Calls the first of its tools, and answers with what that returns."""

    def invoke(self, messages: Any, tools: Any = None, **_: Any) -> ModelResponse:
        if messages[-1].role == "tool":
            return ModelResponse(role="assistant", content=messages[-1].content)
        call = {"name": tools[0]["function"]["name"], "arguments": "{}"}
        return ModelResponse(role="assistant", tool_calls=[{"id": "1", "type": "function", "function": call}])

    async def ainvoke(self, *of: Any, **more: Any) -> ModelResponse:
        return self.invoke(*of, **more)

    def invoke_stream(self, *of: Any, **more: Any) -> Iterator[ModelResponse]:
        yield self.invoke(*of, **more)

    async def ainvoke_stream(self, *of: Any, **more: Any) -> AsyncIterator[ModelResponse]:
        yield self.invoke(*of, **more)

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


model = Scripted(id="scripted")
