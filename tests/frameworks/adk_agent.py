"""The agent of docs/frameworks/google-adk.md, with a model in the place of Gemini that needs no network.

``AGENT_URL`` is where the agent is called: with a path, it is the agent of the page's second block. Run by a server of
ADK's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from google.adk.models import BaseLlm, LLMRegistry, LlmRequest, LlmResponse
from google.genai import types

from tests.frameworks.guide import run_page


class Scripted(BaseLlm):
    """Calls the first of its tools, and answers with what that returns."""

    @classmethod
    def supported_models(cls) -> list[str]:
        return ["gemini-.*"]

    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        told = request.contents[-1].parts[0].function_response
        part = types.Part.from_function_call(name=next(iter(request.tools_dict)), args={})
        if told is not None:
            part = types.Part(text=told.response["result"])
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


LLMRegistry.register(Scripted)
names: dict[str, Any] = {"__name__": "agent"}
run_page("google-adk", names)
if urlsplit(os.environ["AGENT_URL"]).path:
    run_page("google-adk", names, block=1)
app = names["app"]
