"""A program that calls agents with Strands' own client. Run in its own environment, never imported by a test."""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

from typing import Any

import httpx
from a2a.client import ClientConfig
from a2a.types import TaskArtifactUpdateEvent
from a2a.utils import get_message_text
from strands.agent.a2a_agent import A2AAgent

from tests.frameworks.page_client import answer_cases


async def strands(http: httpx.AsyncClient, case: dict[str, Any]) -> str:
    agent = A2AAgent(case["url"], client_config=ClientConfig(httpx_client=http))
    if case["streaming"]:
        events = [event["event"] async for event in agent.stream_async("hi") if event.get("type") == "a2a_stream"]
        updates = [update for _task, update in events if isinstance(update, TaskArtifactUpdateEvent)]
        return "".join(get_message_text(update.artifact, "") for update in updates)
    return str(await agent.invoke_async("hi")).strip()


if __name__ == "__main__":
    answer_cases("strands", strands)
