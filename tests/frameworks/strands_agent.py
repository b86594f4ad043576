"""The agent of docs/frameworks/strands.md. Run by a server of its own environment, never imported by a test."""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from strands.models.model import Model

from tests.frameworks.guide import run_page


class Fixed(Model):
    """Calls ``whoami``, and answers with how many messages it has seen and what the tool has said."""

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {"context_window_limit": 1000}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[dict[str, Any]]:
        await asyncio.sleep(0.05)  # requests of other callers come in between
        results = [part["toolResult"] for part in messages[-1]["content"] if "toolResult" in part]
        yield {"messageStart": {"role": "assistant"}}
        if results:
            text = f"{results[0]['content'][0]['text']}, message {len(messages)}"
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": text}}}
        else:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": "whoami", "toolUseId": "1"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": "{}"}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if results else "tool_use"}}


names: dict[str, Any] = {"model": Fixed()}
run_page("strands", names)
app = names["app"]
