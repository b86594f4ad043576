"""The agent of docs/frameworks/agent-framework.md. Run by a server of its own environment, never imported by a test."""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agent_framework import BaseChatClient, ChatResponse, ChatResponseUpdate, Content, FunctionInvocationLayer

from tests.frameworks.guide import run_page


class Fixed(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """Calls ``whoami``, and answers with how many messages it has seen and what the tool has said."""

    def _inner_get_response(self, *, messages: Any, stream: bool, **_: Any) -> Any:
        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            await asyncio.sleep(0.05)  # requests of other callers come in between
            results = [content for content in messages[-1].contents if content.type == "function_result"]
            if not results:
                yield ChatResponseUpdate(role="assistant", contents=[Content.from_function_call("1", "whoami")])
                return
            for text in (f"{results[0].result}, ", f"message {len(messages)}"):
                yield ChatResponseUpdate(role="assistant", contents=[Content.from_text(text)])

        async def response() -> ChatResponse[Any]:
            return ChatResponse.from_updates([update async for update in updates()])

        return self._build_response_stream(updates()) if stream else response()


names: dict[str, Any] = {"client": Fixed()}
run_page("agent-framework", names)
app = names["app"]
